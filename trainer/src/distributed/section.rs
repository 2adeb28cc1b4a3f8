//! `[distributed]` of a run's configuration: how long ranks wait for one another.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[distributed]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistributedSection {
    /// Seconds that ranks wait for all others to start.
    pub join_seconds: u64,
    /// Seconds that one operation between ranks may take; a checkpoint's writing counts as one.
    pub operation_seconds: u64,
}

impl Default for DistributedSection {
    fn default() -> Self {
        // Our choices: jobs of a cluster start within minutes of one another; the longest that ranks wait is for rank 0
        // to write a checkpoint. A rank that has died is noticed long before, by the watch.
        Self {
            join_seconds: 300,
            operation_seconds: 1800,
        }
    }
}

impl DistributedSection {
    /// [`Self::join_seconds`].
    pub fn join(&self) -> Duration {
        Duration::from_secs(self.join_seconds)
    }

    /// [`Self::operation_seconds`].
    pub fn operation(&self) -> Duration {
        Duration::from_secs(self.operation_seconds)
    }
}
