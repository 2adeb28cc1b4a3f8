//! `[scheduler]` of a run: which policy, and the options of each.

use serde::{Deserialize, Serialize};

use super::ac_odm::AcOdmConfig;
use super::ado::AdoConfig;
use super::doge::DogeConfig;
use super::error::PolicyError;
use super::fixed::FixedConfig;
use super::hds::HdsConfig;
use super::logged::LoggedConfig;
use super::odm::OdmConfig;

/// The policies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// The paper's soft actor-critic agent.
    Hds,
    /// The same weights at every step.
    Fixed,
    /// Online Data Mixing, an Exp3 bandit on losses.
    Odm,
    /// AC-ODM, a deterministic actor-critic on alignment.
    AcOdm,
    /// Adaptive Data Optimization, forecasts of learning speed.
    Ado,
    /// DoGE used online, exponentiated gradient on alignment with a target.
    Doge,
    /// The weights of another run, from its log.
    Log,
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
    /// Options of `policy = "odm"`.
    pub odm: OdmConfig,
    /// Options of `policy = "ac_odm"`.
    pub ac_odm: AcOdmConfig,
    /// Options of `policy = "ado"`.
    pub ado: AdoConfig,
    /// Options of `policy = "doge"`.
    pub doge: DogeConfig,
    /// Options of `policy = "log"`.
    pub log: LoggedConfig,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::Hds,
            hds: HdsConfig::default(),
            fixed: FixedConfig::default(),
            odm: OdmConfig::default(),
            ac_odm: AcOdmConfig::default(),
            ado: AdoConfig::default(),
            doge: DogeConfig::default(),
            log: LoggedConfig::default(),
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
            PolicyName::Odm => self.odm.validate(),
            PolicyName::AcOdm => self.ac_odm.validate(),
            PolicyName::Ado => self.ado.validate(),
            PolicyName::Doge => self.doge.validate(),
            PolicyName::Log => self.log.validate(),
        }
    }
}
