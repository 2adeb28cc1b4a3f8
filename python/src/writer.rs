//! The writer of shared weights for a process of its own, such as an agent beside the trainers.
//!
//! In: domain names and weights. Out: a file that any number of datasets read their weights from.

use std::path::PathBuf;

use hds::{DomainSet, Mixture, SharedWeightsWriter, VersionedMixture};
use pyo3::prelude::*;

use crate::error::{HdsError, shared_error, value_error};

/// Publishes weights to the datasets of other processes: they name the file as `weights_file`.
///
/// One writer a file. Weights are one number a domain, in the order of `domains`, and sum to 1.
#[pyclass(frozen, module = "hds")]
pub(crate) struct WeightsWriter {
    writer: SharedWeightsWriter,
    domains: DomainSet,
    path: PathBuf,
}

#[pymethods]
impl WeightsWriter {
    #[new]
    #[pyo3(signature = (path, domains, weights, *, step = 0, version = 1))]
    fn new(
        path: PathBuf,
        domains: Vec<String>,
        weights: Vec<f64>,
        step: u64,
        version: u64,
    ) -> PyResult<Self> {
        let domains = DomainSet::new(domains).map_err(value_error)?;
        let mixture = Mixture::new(weights, &domains).map_err(value_error)?;
        let first = VersionedMixture { version, mixture };
        let writer = SharedWeightsWriter::create(&path, &domains, &first, step);
        Ok(Self {
            writer: writer.map_err(shared_error)?,
            domains,
            path,
        })
    }

    /// Puts weights in force for every batch that nobody has asked for yet; returns their version.
    fn set_weights(&self, weights: Vec<f64>) -> PyResult<u64> {
        let mixture = Mixture::new(weights, &self.domains).map_err(value_error)?;
        if !self.path.exists() {
            return Err(HdsError::new_err(format!(
                "shared weights: {} was removed, so that no dataset opened later finds it; make another writer",
                self.path.display()
            )));
        }
        self.writer.publish(&mixture).map_err(shared_error)
    }

    /// Lets datasets draw the batches below `step` and no others; `None` lets them draw all.
    #[pyo3(signature = (step))]
    fn set_horizon(&self, step: Option<u64>) {
        self.writer.set_horizon(step.unwrap_or(u64::MAX));
    }

    /// Batches below this have been drawn, so their weights are settled.
    #[getter]
    fn frontier(&self) -> u64 {
        self.writer.reader().frontier()
    }

    /// Version of the newest weights.
    #[getter]
    fn version(&self) -> u64 {
        self.writer.version()
    }

    /// The names, in the order of the weights.
    #[getter]
    fn domains(&self) -> Vec<String> {
        self.domains.names().to_vec()
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}
