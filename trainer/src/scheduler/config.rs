//! `[scheduler]` of a run: which policy, and the options of each.

use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::fixed::FixedConfig;
use super::hds::HdsConfig;

/// The policies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// The paper's soft actor-critic agent.
    Hds,
    /// The same weights at every step.
    Fixed,
}

/// `[scheduler]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// The policy that chooses the weights.
    pub policy: PolicyName,
    /// Options of `policy = "hds"`.
    pub hds: HdsConfig,
    /// Options of `policy = "fixed"`.
    pub fixed: FixedConfig,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::Hds,
            hds: HdsConfig::default(),
            fixed: FixedConfig::default(),
        }
    }
}

impl SchedulerConfig {
    /// Checks the options of the policy that is chosen.
    ///
    /// # Errors
    /// Names the dotted key that is out of range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        match self.policy {
            PolicyName::Hds => self.hds.validate(),
            PolicyName::Fixed => self.fixed.validate(),
        }
    }
}
