//! What the rewards are made of: `[reward]` of a run.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::preset::{Preset, configuration_with_presets};

/// Why a reward cannot be configured or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RewardError {
    /// A value out of range.
    #[error("reward.{key} is {got}, must be {want}")]
    Value {
        /// Key below `reward`.
        key: &'static str,
        /// What it is.
        got: f64,
        /// What it may be.
        want: &'static str,
    },
    /// A target that is no weighting of the domains.
    #[error("reward target has {got} weights; want {want}, finite, not negative, not all 0")]
    Target {
        /// Weights given.
        got: usize,
        /// Domains there are.
        want: usize,
    },
    /// A saved state that cannot be read.
    #[error("saved reward state: {source}; the checkpoint is damaged or of another version")]
    State {
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// A saved state of another set of domains.
    #[error("saved reward state is of {got} domains, the run has {want}")]
    Domains {
        /// Domains in the state.
        got: usize,
        /// Domains of the run.
        want: usize,
    },
}

/// How text of different lexical diversity is rewarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Diversity {
    /// The paper's formula: always for the lower MTLD, more strongly as the run goes on, unbounded.
    Paper,
    /// What the paper says the formula is for: simple text early, complex text late; within ±`clamp`.
    Curriculum,
}

/// What of ⟨g_i, g_i⟩ belongs to domain i's alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnTerm {
    /// Nothing: the paper's sum over the other domains.
    Without,
    /// ‖g_i‖² as measured. Of n_i sequences it is too large by their gradients' variance / n_i, so that
    /// a domain loses by being drawn more often.
    Measured,
    /// ‖g_i‖² less that variance / n_i, which makes it right in expectation for any n_i.
    Unbiased,
}

/// What a domain gets that the step did not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// 0, as the authors' code.
    Zero,
    /// Its last value, for at most `absent_age_steps`; then 0.
    Hold,
}

/// `[reward]`: weights and form of the three terms.
///
/// `preset = "paper"` is literal. `preset = "default"` differs in:
/// - `own_term = "unbiased"`: the gain of a domain's own loss counts too; it is part of the target's
///   first-order decrease, which is what a scheduler is after.
/// - `diversity = "curriculum"`: bounded, and what the formula is meant to do.
/// - `scale_stability`: its logarithm, without the cap, centred and scaled by running statistics; the
///   literal term sits at its cap, a constant 50 in every reward that drowns alignment's ±3.
/// - weights 1, 0.5, 0.25 instead of 1, 10, 10: with every term on the same scale they give the
///   order of importance that the paper's ablation found.
/// - `absent = "hold"`: a domain that was not drawn is not thereby worth 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct RewardConfig {
    /// Where the values below started from.
    pub preset: Preset,
    /// w_align; 0 turns the term off.
    pub alignment_weight: f64,
    /// w_div; 0 turns the term off.
    pub diversity_weight: f64,
    /// w_stab; 0 turns the term off.
    pub stability_weight: f64,
    /// What of ⟨g_i, g_i⟩ belongs to domain i's alignment.
    pub own_term: OwnTerm,
    /// Divide alignment by the mean ‖g_j‖, standardise it over the step's domains and clamp it.
    pub scale_alignment: bool,
    /// Form of the diversity term.
    pub diversity: Diversity,
    /// Standardise the paper's diversity over the step's domains and clamp it.
    pub scale_diversity: bool,
    /// Largest value of the stability term before scaling.
    pub stability_cap: f64,
    /// Take the logarithm of stability without its cap, centre and scale it by running statistics, clamp it.
    pub scale_stability: bool,
    /// Memory of the running statistics: the weight of the past in their update, in (0, 1).
    pub statistics_decay: f64,
    /// Bound of every standardised value.
    pub clamp: f64,
    /// ε of the diversity and stability formulas and of standard deviations.
    pub epsilon: f64,
    /// What a domain gets that the step did not show.
    pub absent: Absent,
    /// Steps after which a held value is forgotten.
    pub absent_age_steps: u64,
}
configuration_with_presets!(RewardConfig);

impl RewardConfig {
    /// The paper's and the authors' code's values.
    pub fn paper() -> Self {
        Self {
            preset: Preset::Paper,
            alignment_weight: 1.0,
            diversity_weight: 10.0,
            stability_weight: 10.0,
            own_term: OwnTerm::Without,
            scale_alignment: true,
            diversity: Diversity::Paper,
            scale_diversity: false,
            stability_cap: 5.0,
            scale_stability: false,
            statistics_decay: 0.99,
            clamp: 3.0,
            epsilon: 1e-8,
            absent: Absent::Zero,
            absent_age_steps: 100,
        }
    }

    pub(crate) fn preset_values(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self::paper(),
            Preset::Default => Self::default(),
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the key that is out of range.
    pub fn validate(&self) -> Result<(), RewardError> {
        let check = |key, got: f64, good: bool, want| {
            if good {
                Ok(())
            } else {
                Err(RewardError::Value { key, got, want })
            }
        };
        for (key, weight) in [
            ("alignment_weight", self.alignment_weight),
            ("diversity_weight", self.diversity_weight),
            ("stability_weight", self.stability_weight),
        ] {
            check(key, weight, weight.is_finite(), "finite")?;
        }
        for (key, value) in [
            ("stability_cap", self.stability_cap),
            ("clamp", self.clamp),
            ("epsilon", self.epsilon),
        ] {
            check(key, value, value.is_finite() && value > 0.0, "above 0")?;
        }
        let decay = self.statistics_decay;
        check(
            "statistics_decay",
            decay,
            decay > 0.0 && decay < 1.0,
            "between 0 and 1",
        )
    }
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self {
            preset: Preset::Default,
            alignment_weight: 1.0,
            diversity_weight: 0.5,
            stability_weight: 0.25,
            own_term: OwnTerm::Unbiased,
            diversity: Diversity::Curriculum,
            scale_stability: true,
            absent: Absent::Hold,
            ..Self::paper()
        }
    }
}
