//! Writes tensors one at a time, so that memory never holds the file.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use hds::durable;
use safetensors::tensor::TensorInfo;
use tch::{Device, Kind, Tensor};

use super::{TensorFileError, dtype_of};

/// A tensor of a file to be written, without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub kind: Kind,
    /// Its shape.
    pub shape: Vec<i64>,
}

/// Writes tensors and text metadata to a safetensors file, durably: whole under its name, or not at
/// all. The same tensors and metadata give the same bytes, in whatever order they are passed.
///
/// # Errors
/// A name twice, an element type without a safetensors equivalent, or a file operation that fails.
pub fn write(
    path: &Path,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), TensorFileError> {
    let by_name: BTreeMap<&String, &Tensor> = tensors.iter().map(|(n, t)| (n, t)).collect();
    let mut planned: Vec<Planned> = tensors
        .iter()
        .map(|(name, tensor)| Planned {
            name: name.clone(),
            kind: tensor.kind(),
            shape: tensor.size(),
        })
        .collect();
    order(&mut planned);
    write_planned(path, &planned, metadata, |planned| {
        Ok(by_name[&planned.name].shallow_clone())
    })
}

/// Puts tensors in the order in which they lie in a file.
pub fn order(planned: &mut [Planned]) {
    // Widest elements first, then by name: every tensor is aligned to its element, as readers that
    // map the file expect.
    planned.sort_by(|a, b| {
        dtype_of(b.kind)
            .cmp(&dtype_of(a.kind))
            .then(a.name.cmp(&b.name))
    });
}

/// As [`write()`], with the values of each tensor asked for when its turn comes, in the given order, which is that of
/// [`order`].
///
/// # Errors
/// As [`write()`], and those of `values`.
pub fn write_planned(
    path: &Path,
    planned: &[Planned],
    metadata: &BTreeMap<String, String>,
    mut values: impl FnMut(&Planned) -> io::Result<Tensor>,
) -> Result<(), TensorFileError> {
    let mut infos = BTreeMap::new();
    let mut offset = 0usize;
    for Planned { name, kind, shape } in planned {
        let Some(dtype) = dtype_of(*kind) else {
            return Err(TensorFileError::Dtype {
                path: path.to_owned(),
                name: name.clone(),
                dtype: format!("{kind:?}"),
            });
        };
        let shape: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
        let bytes = shape.iter().product::<usize>() * kind.elt_size_in_bytes();
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets: (offset, offset + bytes),
        };
        offset += bytes;
        if *name == "__metadata__" || infos.insert(name.as_str(), info).is_some() {
            return Err(TensorFileError::Name {
                path: path.to_owned(),
                name: name.clone(),
            });
        }
    }
    let header = header_bytes(&infos, metadata).map_err(|source| TensorFileError::Header {
        path: path.to_owned(),
        source,
    })?;
    durable::write_file(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut buffer = Vec::new();
        for planned in planned {
            let tensor = values(planned)?;
            if tensor.size() != planned.shape || tensor.kind() != planned.kind {
                return Err(io::Error::other(format!(
                    "values of `{}` are not as planned",
                    planned.name
                )));
            }
            let length = tensor.numel();
            let tensor = tensor.detach().to_device(Device::Cpu).contiguous();
            buffer.resize(length * tensor.kind().elt_size_in_bytes(), 0);
            tensor
                .f_copy_data_u8(&mut buffer, length)
                .map_err(io::Error::other)?;
            file.write_all(&buffer)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn header_bytes(
    infos: &BTreeMap<&str, TensorInfo>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".to_owned(), serde_json::to_value(metadata)?);
    }
    for (name, info) in infos {
        header.insert((*name).to_owned(), serde_json::to_value(info)?);
    }
    let mut bytes = serde_json::to_vec(&header)?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}
