//! Reads tensors by name, checking the whole header first.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hds::durable::{FileError, open_regular};
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

use super::{MAX_HEADER_BYTES, TensorFileError, kind_of};

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__", default)]
    metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// An open tensor file whose header is checked and whose data is read on demand.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
    metadata: BTreeMap<String, String>,
}

impl TensorFile {
    /// Opens a file and checks its header against its length.
    ///
    /// # Errors
    /// A file that cannot be read, or any field that does not fit the file; the error names both.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let fail = |action| move |source| FileError::new(action, path, source);
        let mut file = open_regular(path).map_err(fail("open"))?;
        let length = file.metadata().map_err(fail("read the length of"))?.len();
        let limit = length.saturating_sub(8).min(MAX_HEADER_BYTES);
        let mut prefix = [0u8; 8];
        let header_length = if length < 8 {
            0
        } else {
            file.read_exact(&mut prefix).map_err(fail("read"))?;
            u64::from_le_bytes(prefix)
        };
        if header_length < 2 || header_length > limit {
            return Err(TensorFileError::HeaderLength {
                path: path.to_owned(),
                got: header_length,
                limit,
            });
        }
        let mut bytes = vec![0u8; header_length as usize];
        file.read_exact(&mut bytes).map_err(fail("read"))?;
        let header: Header =
            serde_json::from_slice(&bytes).map_err(|source| TensorFileError::Header {
                path: path.to_owned(),
                source,
            })?;
        let data_start = 8 + header_length;
        let want = check_layout(path, &header.tensors)?;
        if length - data_start != want {
            return Err(TensorFileError::DataLength {
                path: path.to_owned(),
                got: length - data_start,
                want,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            data_start,
            tensors: header.tensors,
            metadata: header.metadata,
        })
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor, without reading it.
    pub fn shape(&self, name: &str) -> Option<Vec<i64>> {
        let info = self.tensors.get(name)?;
        Some(info.shape.iter().map(|&d| d as i64).collect())
    }

    /// Element type of a tensor, where tensors here can have it.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        kind_of(self.tensors.get(name)?.dtype)
    }

    /// The text metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads one tensor.
    ///
    /// # Errors
    /// A name that is not in the file, an element type not supported here, or a failing read.
    pub fn tensor(&mut self, name: &str, device: Device) -> Result<Tensor, TensorFileError> {
        let (info, _) = self.find(name)?;
        let shape: Vec<i64> = info.shape.iter().map(|&d| d as i64).collect();
        let elements = 0..info.shape.iter().product::<usize>();
        self.elements(name, elements, &shape, device)
    }

    /// Reads some elements of a tensor, flat; nothing else of it is read.
    ///
    /// # Errors
    /// As [`Self::tensor`], and elements that it does not have.
    pub fn part(
        &mut self,
        name: &str,
        elements: Range<usize>,
        device: Device,
    ) -> Result<Tensor, TensorFileError> {
        let (info, _) = self.find(name)?;
        let all = info.shape.iter().product::<usize>();
        if elements.start > elements.end || elements.end > all {
            return Err(TensorFileError::Elements {
                path: self.path.clone(),
                name: name.to_owned(),
                got: elements,
                all,
            });
        }
        let shape = [elements.len() as i64];
        self.elements(name, elements, &shape, device)
    }

    fn find(&self, name: &str) -> Result<(&TensorInfo, Kind), TensorFileError> {
        let Some(info) = self.tensors.get(name) else {
            return Err(TensorFileError::Missing {
                path: self.path.clone(),
                name: name.to_owned(),
            });
        };
        let Some(kind) = kind_of(info.dtype) else {
            return Err(TensorFileError::Dtype {
                path: self.path.clone(),
                name: name.to_owned(),
                dtype: info.dtype.to_string(),
            });
        };
        Ok((info, kind))
    }

    fn elements(
        &mut self,
        name: &str,
        elements: Range<usize>,
        shape: &[i64],
        device: Device,
    ) -> Result<Tensor, TensorFileError> {
        let (info, kind) = self.find(name)?;
        let size = kind.elt_size_in_bytes();
        let start = self.data_start + (info.data_offsets.0 + elements.start * size) as u64;
        let mut bytes = vec![0u8; elements.len() * size];
        self.file
            .seek(SeekFrom::Start(start))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|source| FileError::new("read", &self.path, source))?;
        if kind == Kind::Bool && bytes.iter().any(|&b| b > 1) {
            return Err(TensorFileError::Bool {
                path: self.path.clone(),
                name: name.to_owned(),
            });
        }
        Tensor::f_from_data_size(&bytes, shape, kind)
            .and_then(|tensor| tensor.f_to_device(device))
            .map_err(|source| TensorFileError::Torch {
                path: self.path.clone(),
                name: name.to_owned(),
                source,
            })
    }
}

/// Reads all tensors of a file.
///
/// # Errors
/// As [`TensorFile::open`] and [`TensorFile::tensor`].
pub fn read(path: &Path, device: Device) -> Result<HashMap<String, Tensor>, TensorFileError> {
    let mut file = TensorFile::open(path)?;
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    names
        .into_iter()
        .map(|name| {
            let tensor = file.tensor(&name, device)?;
            Ok((name, tensor))
        })
        .collect()
}

/// Checks that the tensors lie one after another and that shapes give their lengths; returns the
/// length of the data.
fn check_layout(
    path: &Path,
    tensors: &BTreeMap<String, TensorInfo>,
) -> Result<u64, TensorFileError> {
    let mut ordered: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
    ordered.sort_by_key(|(_, info)| info.data_offsets);
    let mut next = 0usize;
    for (name, info) in ordered {
        let (start, end) = info.data_offsets;
        if start != next || end < start {
            return Err(TensorFileError::Offsets {
                path: path.to_owned(),
                name: name.clone(),
                got: info.data_offsets,
                want: next,
            });
        }
        if byte_length(info) != Some(end - start) {
            return Err(TensorFileError::Shape {
                path: path.to_owned(),
                name: name.clone(),
                shape: info.shape.clone(),
                dtype: info.dtype,
                bytes: end - start,
            });
        }
        next = end;
    }
    Ok(next as u64)
}

/// Bytes of a tensor by shape and element type, if libtorch can count them.
fn byte_length(info: &TensorInfo) -> Option<usize> {
    // Strides are computed also where a dimension is 0, so every product must fit.
    let spanned = info
        .shape
        .iter()
        .try_fold(1usize, |product, &d| product.checked_mul(d.max(1)))?;
    i64::try_from(spanned.checked_mul(16)?).ok()?;
    let elements: usize = info.shape.iter().product();
    let bits = elements.checked_mul(info.dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}
