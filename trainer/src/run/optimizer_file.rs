//! `optimizer.safetensors` of a checkpoint: the same file for any number of ranks.
//!
//! In: an optimizer whose state is shared out over ranks. Out: one file of whole tensors, which rank 0 writes as it
//! receives their parts; or, read back, each rank's own parts. Memory: one tensor on rank 0.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;

use tch::{Device, Kind, Tensor};

use super::error::RunError;
use crate::distributed::{Group, Shares};
use crate::optimizer::{AdamW, Parameter};
use crate::tensors::{self, Planned, TensorFile};

/// Writes the state; every rank calls it, with a path on rank 0.
///
/// # Errors
/// If a file operation fails or a rank is lost.
pub fn write(
    path: Option<&Path>,
    optimizer: &AdamW,
    shares: &Shares,
    group: &Group,
) -> Result<(), RunError> {
    let own: HashMap<String, Tensor> = optimizer.state().into_iter().collect();
    let parameters: Vec<&Parameter> = optimizer.parameters().collect();
    let mut planned = vec![Planned {
        name: "step".to_owned(),
        kind: Kind::Int64,
        shape: vec![1],
    }];
    let mut parameter_of = HashMap::new();
    for (number, parameter) in parameters.iter().enumerate() {
        for moment in ["first_moment", "second_moment"] {
            let name = format!("{}.{moment}", parameter.name);
            parameter_of.insert(name.clone(), number);
            planned.push(Planned {
                name,
                kind: parameter.tensor.kind(),
                shape: parameter.tensor.size(),
            });
        }
    }
    tensors::order(&mut planned);
    // All ranks go through the tensors in the order of the file.
    let values = |planned: &Planned| -> Result<Tensor, RunError> {
        let own = own[&planned.name].to_device(Device::Cpu);
        let Some(&parameter) = parameter_of.get(&planned.name) else {
            return Ok(own);
        };
        gather(
            &own,
            planned,
            &shares.owners(parameter).collect::<Vec<_>>(),
            group,
        )
    };
    match path {
        Some(path) => {
            let mut failed = None;
            let written = tensors::write_planned(path, &planned, &BTreeMap::new(), |planned| {
                values(planned).map_err(|error| {
                    let text = error.to_string();
                    failed = Some(error);
                    io::Error::other(text)
                })
            });
            match failed {
                Some(error) => Err(error),
                None => Ok(written?),
            }
        }
        None => planned
            .iter()
            .try_for_each(|planned| values(planned).map(drop)),
    }
}

/// The whole tensor on rank 0; on the others it is only sent.
fn gather(
    own: &Tensor,
    planned: &Planned,
    owners: &[(usize, Range<i64>)],
    group: &Group,
) -> Result<Tensor, RunError> {
    let flat = own.reshape(-1);
    if !group.leads() {
        if owners.iter().any(|(rank, _)| *rank == group.rank()) {
            group.send(&flat, 0)?;
        }
        return Ok(flat);
    }
    if let [(0, _)] = owners {
        return Ok(own.reshape(planned.shape.as_slice()));
    }
    let length = planned.shape.iter().product::<i64>();
    let whole = Tensor::empty([length], (planned.kind, Device::Cpu));
    for (rank, range) in owners {
        let mut part = whole.narrow(0, range.start, range.end - range.start);
        if *rank == 0 {
            part.copy_(&flat);
        } else {
            group.receive(&mut part, *rank)?;
        }
    }
    Ok(whole.reshape(planned.shape.as_slice()))
}

/// Reads what the optimizer holds of the state, and nothing else.
///
/// # Errors
/// A file that is missing or damaged, or of another model.
pub fn read(path: &Path, optimizer: &mut AdamW, device: Device) -> Result<(), RunError> {
    let mut file = TensorFile::open(path)?;
    let shapes: BTreeMap<String, Vec<i64>> = file
        .names()
        .filter_map(|name| Some((name.to_owned(), file.shape(name)?)))
        .collect();
    optimizer.load_parts(
        shapes.keys().map(String::as_str),
        |name| shapes.get(name).cloned(),
        |name, elements| {
            let elements = elements.start as usize..elements.end as usize;
            // The step count is read on the CPU at once.
            let device = if name == "step" { Device::Cpu } else { device };
            Ok(file.part(name, elements, device)?)
        },
    )
}
