//! Errors of the crates as Python exceptions.
//!
//! In: an error. Out: `ValueError` for what the caller gave, `FileNotFoundError` for a missing file,
//! `hds.DomainEnded` where a domain has nothing left, `hds.HdsError` for everything else.

use std::io::ErrorKind;

use hds::{SharedWeightsError, WeightSourceError};
use hds_loader::{IndexError, LoaderError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyFileNotFoundError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    hds,
    HdsError,
    PyException,
    "An index, a state or a file of weights cannot be used."
);
create_exception!(
    hds,
    DomainEnded,
    HdsError,
    "A domain, or every domain with weight, was gone through as often as `domain_end` allows."
);

pub(crate) fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn index_error(error: IndexError) -> PyErr {
    if let Some(raised) = crate::interrupt::take() {
        return raised;
    }
    let text = error.to_string();
    match error {
        IndexError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(text)
        }
        _ => HdsError::new_err(text),
    }
}

/// How to go on after a domain's end: the weights of the batch are settled, so that only a state takes it up anew.
const GO_ON: &str = "To go on with this batch, dataset.load_state_dict(dataset.state_dict()), and before another iteration \
                     set_weights that";

/// The name that a field of the configuration has in Python.
fn argument(field: &str) -> &str {
    match field {
        "sequence_length" => "seq_len",
        "read_ahead_batches" => "read_ahead",
        other => other,
    }
}

pub(crate) fn loader_error(error: LoaderError) -> PyErr {
    let text = error.to_string();
    match error {
        LoaderError::Index(error) => index_error(error),
        LoaderError::WeightSource(error) => source_error(error),
        LoaderError::Config { field, reason } => {
            PyValueError::new_err(format!("{}: {reason}", argument(field)))
        }
        LoaderError::Weights { .. }
        | LoaderError::NoWindow { .. }
        | LoaderError::Minimum { .. }
        | LoaderError::State { .. }
        | LoaderError::BadState { .. } => PyValueError::new_err(text),
        LoaderError::DomainEnded {
            domain,
            windows,
            step,
        } => DomainEnded::new_err(format!(
            "batch {step} needs more of domain {domain:?} than its {windows} sequences, each of which was used once, and \
             domain_end is \"stop\". {GO_ON} give it 0. Or make the dataset with domain_end=\"restart\", or with a number of \
             epochs, and load the state into that one"
        )),
        LoaderError::AllEnded { epochs } => DomainEnded::new_err(format!(
            "every domain with weight was gone through {epochs} times, which is all that domain_end={epochs} allows. {GO_ON} \
             give some to other domains. Or make the dataset with more epochs as domain_end, or with \"restart\", and load \
             the state into that one"
        )),
        LoaderError::Memory { bytes } => no_memory(bytes),
        _ => HdsError::new_err(text),
    }
}

/// As Python's own allocations fail.
pub(crate) fn no_memory(bytes: usize) -> PyErr {
    PyMemoryError::new_err(format!(
        "no memory for a batch: {bytes} more bytes were not to be had; make batch_size, seq_len or keys smaller"
    ))
}

pub(crate) fn source_error(error: WeightSourceError) -> PyErr {
    match error {
        WeightSourceError::Shared(error) => shared_error(error),
        other => HdsError::new_err(other.to_string()),
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

pub(crate) fn shared_error(error: SharedWeightsError) -> PyErr {
    let text = error.to_string();
    match error {
        SharedWeightsError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(text)
        }
        SharedWeightsError::Io { source, .. } if is_full(&source) => {
            PyOSError::new_err((source.raw_os_error().unwrap_or_default(), text))
        }
        SharedWeightsError::Weights { .. } => PyValueError::new_err(text),
        _ => HdsError::new_err(text),
    }
}
