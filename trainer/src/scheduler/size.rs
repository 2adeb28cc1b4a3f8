//! What a policy takes before it is made: parameters, memory, operations.
//!
//! In: the configuration, K domains, the watched layers, the model's parameters. Out: [`PolicySize`]. Always holds: parameters
//! are those that the policy itself would have; operations are counted from its networks' shapes, not measured.

use super::replay::RowLayout;
use super::{NetworkSize, PolicyError, PolicyName, RunFacts, SchedulerConfig, ac_odm, hds};

/// Most memory that a policy's networks may take, with what the optimizer keeps of them.
const NETWORK_BYTES: u64 = 8 << 30;

/// Size of a policy's networks and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicySize {
    /// Parameters that are learnt by gradients.
    pub trained: u64,
    /// Parameters of target copies.
    pub targets: u64,
    /// Bytes of a full replay, in main memory.
    pub replay_bytes: u64,
    /// Floating-point operations of a training step once it learns.
    pub flops_per_step: f64,
}

impl PolicySize {
    /// Parameters of all networks.
    pub fn parameters(&self) -> u64 {
        self.trained + self.targets
    }
}

/// The size of the policy that a configuration names; zero for those without networks.
pub fn size(
    config: &SchedulerConfig,
    domains: usize,
    layers: usize,
    model_parameters: u64,
) -> PolicySize {
    match config.policy {
        PolicyName::Hds => hds::size(&config.hds, domains, layers, model_parameters),
        PolicyName::AcOdm => ac_odm::size(&config.ac_odm, RowLayout::of(domains, layers)),
        _ => PolicySize::default(),
    }
}

/// Refuses networks that would take more memory than any policy is given, before any of it is taken.
///
/// # Errors
/// With what they would take.
pub(super) fn check(config: &SchedulerConfig, run: &RunFacts<'_>) -> Result<(), PolicyError> {
    let networks = size(config, run.domains.len(), run.layers, run.model_parameters);
    // Of what is trained also its gradient and two moments.
    let bytes = u128::from(networks.trained) * 16 + u128::from(networks.targets) * 4;
    if bytes <= u128::from(NETWORK_BYTES) {
        return Ok(());
    }
    let section = match config.policy {
        PolicyName::AcOdm => "ac_odm",
        _ => "hds",
    };
    Err(PolicyError::TooLarge {
        key: format!("scheduler.{section}"),
        parameters: networks.parameters(),
        megabytes: u64::try_from(bytes >> 20).unwrap_or(u64::MAX),
        most: NETWORK_BYTES >> 20,
    })
}

/// What to tell of networks that are far from the size that the paper found to pay, as shares of the trained model;
/// `None` where there is nothing to tell.
///
/// # Source
/// Paper, sizing guide: a network of 0.3 % to 1.5 % of the trained model's parameters.
pub fn size_warning(config: &SchedulerConfig, run: &RunFacts<'_>) -> Option<String> {
    if config.policy != PolicyName::Hds {
        return None;
    }
    let each = hds::actor_parameters(
        &config.hds,
        run.domains.len(),
        run.layers,
        run.model_parameters,
    );
    let share = each as f64 / run.model_parameters.max(1) as f64;
    if (0.003..=0.015).contains(&share) {
        return None;
    }
    let advice = match config.hds.network {
        NetworkSize::Auto => "no other size is nearer to it",
        _ => "scheduler.hds.network = \"auto\" takes the nearest size to 0.5 % there is",
    };
    Some(format!(
        "a network of the agent has {each} parameters, {:.2} % of the model's {}; 0.3 % to 1.5 % pays best ({advice})",
        100.0 * share,
        run.model_parameters
    ))
}

impl PolicyName {
    /// Whether the policy needs rewards, and so the per-domain gradients they are made of.
    pub fn wants_rewards(self) -> bool {
        matches!(self, Self::Hds | Self::AcOdm | Self::Doge)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{domains, facts};
    use super::super::{NetworkSize, build};
    use super::*;

    #[test]
    fn sizes_are_those_of_the_policies_themselves() {
        let set = domains(5);
        let run = facts(&set, 1000);
        for policy in [
            PolicyName::Hds,
            PolicyName::AcOdm,
            PolicyName::Odm,
            PolicyName::Ado,
            PolicyName::Doge,
            PolicyName::Fixed,
        ] {
            let mut config = SchedulerConfig {
                policy,
                ..SchedulerConfig::default()
            };
            config.ac_odm.width = 48;
            config.ac_odm.layers = 3;
            for network in [NetworkSize::Small, NetworkSize::Auto] {
                config.hds.network = network;
                let built = build(&config, &run).unwrap();
                let size = size(&config, set.len(), run.layers, run.model_parameters);
                assert_eq!(size.parameters(), built.parameters(), "{policy:?}");
                assert_eq!(policy.wants_rewards(), built.wants_rewards(), "{policy:?}");
            }
        }
    }

    #[test]
    fn networks_out_of_proportion_to_the_model_are_told() {
        let set = domains(22);
        let mut run = facts(&set, 1000);
        run.layers = 3;
        let mut config = SchedulerConfig {
            hds: super::super::HdsConfig::paper(),
            ..SchedulerConfig::default()
        };
        // 5.3 M parameters: 0.53 % of Pythia-1B, 3.31 % of Pythia-160M, 0.05 % of Pythia-12B.
        for (parameters, told) in [
            (1_011_781_632, None),
            (162_322_944, Some("3.31")),
            (11_846_072_320, Some("0.05")),
        ] {
            run.model_parameters = parameters;
            let warning = size_warning(&config, &run);
            let part = told.is_none_or(|t| warning.as_ref().is_some_and(|w| w.contains(t)));
            assert!(warning.is_some() == told.is_some() && part, "{warning:?}");
            config.hds.network = NetworkSize::Auto;
            assert_eq!(size_warning(&config, &run), None);
            config.hds.network = NetworkSize::Paper;
        }
        // The smallest there is, for a model that is smaller still.
        config.hds.network = NetworkSize::Auto;
        run.model_parameters = 100_000;
        let warning = size_warning(&config, &run).unwrap();
        assert!(!warning.contains("\"auto\""), "{warning}");
        config.policy = PolicyName::Odm;
        assert_eq!(size_warning(&config, &run), None);
    }

    #[test]
    fn networks_beyond_all_reason_are_refused_before_they_are_made() {
        let set = domains(3);
        let mut config = SchedulerConfig {
            policy: PolicyName::AcOdm,
            ..SchedulerConfig::default()
        };
        (config.ac_odm.width, config.ac_odm.layers) = (65_536, 64);
        let error = build(&config, &facts(&set, 1000)).err().unwrap();
        let error = error.to_string();
        assert!(
            error.contains("scheduler.ac_odm")
                && error.contains("at most 8192 MB are given to a run"),
            "{error}"
        );
    }

    #[test]
    fn the_papers_agent_costs_what_its_shape_says() {
        // Independently: 5.3 M parameters a network, nearly all applied to each of 22 domains, 2 operations each; 2 updates of
        // 256, 4 passes' worth of the actor and 6 of each critic.
        let config = SchedulerConfig {
            hds: super::super::HdsConfig::paper(),
            ..SchedulerConfig::default()
        };
        let size = size(&config, 22, 3, 1_011_781_632);
        let rough = 2.0 * 5.3e6 * 22.0 * 512.0 * (4.0 + 2.0 * 6.0);
        let ratio = size.flops_per_step / rough;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}
