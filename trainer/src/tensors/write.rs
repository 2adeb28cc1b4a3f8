//! Writes tensors one at a time, so that memory never holds the file.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use hds::durable;
use safetensors::tensor::TensorInfo;
use tch::{Device, Tensor};

use super::{TensorFileError, dtype_of};

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
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let Some(dtype) = dtype_of(tensor.kind()) else {
            return Err(TensorFileError::Dtype {
                path: path.to_owned(),
                name: name.clone(),
                dtype: format!("{:?}", tensor.kind()),
            });
        };
        entries.push((name, tensor, dtype));
    }
    // Widest elements first, then by name: every tensor is aligned to its element, as readers that
    // map the file expect.
    entries.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
    let mut infos = BTreeMap::new();
    let mut offset = 0usize;
    for (name, tensor, dtype) in &entries {
        let shape: Vec<usize> = tensor.size().iter().map(|&d| d as usize).collect();
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        let info = TensorInfo {
            dtype: *dtype,
            shape,
            data_offsets: (offset, offset + bytes),
        };
        offset += bytes;
        if *name == "__metadata__" || infos.insert(name.as_str(), info).is_some() {
            return Err(TensorFileError::Name {
                path: path.to_owned(),
                name: (*name).clone(),
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
        for (_, tensor, _) in &entries {
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
