//! From what a client says of its run to the policy and the rewards that serve it.
//!
//! In: the facts of `open`. Out: [`Parts`]. Always holds: what a run takes of memory is known, and refused where it is too much, before any
//! of it is taken.

use hds::{DomainSet, Mixture};

use super::error::{SessionError, invalid};
use super::protocol::Facts;
use crate::reward::RewardModel;
use crate::scheduler::{Policy, PolicyName, RunFacts, build, size_warning};

/// Largest replay that a client may ask for. A transition is about 8 K numbers of 4 bytes.
const REPLAY_BYTES: u64 = 4 << 30;

/// The parts of a run.
pub(super) struct Parts {
    pub domains: DomainSet,
    pub policy: Box<dyn Policy>,
    pub reward: RewardModel,
    /// What the client should know.
    pub notes: Vec<String>,
}

/// Makes the parts.
///
/// # Errors
/// If the facts do not fit each other, or ask for more memory than a run is given.
pub(super) fn make(facts: &Facts) -> Result<Parts, SessionError> {
    let domains =
        DomainSet::new(facts.domains.iter().cloned()).map_err(|e| invalid("facts.domains", e))?;
    let k = domains.len();
    if facts.total_steps == 0 {
        return Err(invalid("facts.total_steps", "0; must be 1 or more"));
    }
    if facts.sequence_length == 0 {
        return Err(invalid("facts.sequence_length", "0; must be 1 or more"));
    }
    if let Some(tokens) = &facts.natural_tokens
        && tokens.iter().all(|&n| n == 0)
    {
        return Err(invalid("facts.natural_tokens", "all 0"));
    }
    if facts.layers > 10_000 {
        return Err(invalid("facts.layers", "more than 10000"));
    }
    let base = match &facts.base_weights {
        None => Mixture::uniform(&domains),
        Some(weights) => Mixture::normalized(weights.clone(), &domains)
            .map_err(|e| invalid("facts.base_weights", e))?,
    };
    let transition_bytes = 4 * (8 * k as u64 + 4 * facts.layers as u64 + 2);
    let capacity = match facts.scheduler.policy {
        PolicyName::Hds => facts.scheduler.hds.replay_capacity,
        PolicyName::AcOdm => facts.scheduler.ac_odm.replay_capacity,
        _ => 0,
    };
    if capacity.saturating_mul(transition_bytes) > REPLAY_BYTES {
        let most = REPLAY_BYTES / transition_bytes;
        let reason = format!("a replay_capacity of {capacity}; at most {most} with these domains");
        return Err(invalid("facts.scheduler", reason));
    }
    facts.reward.validate()?;
    let mut reward = RewardModel::new(facts.reward.clone(), k);
    if let Some(target) = &facts.target {
        reward = reward.with_target(target)?;
    }
    let run = RunFacts {
        domains: &domains,
        base_weights: base.weights().to_vec(),
        target: reward.target().to_vec(),
        natural_tokens: facts.natural_tokens.clone().unwrap_or_else(|| vec![1; k]),
        total_steps: facts.total_steps,
        sequence_length: facts.sequence_length,
        layers: facts.layers,
        model_parameters: facts.model_parameters,
        seed: facts.seed,
        index: None,
        device: tch::Device::Cpu,
    };
    let policy = build(&facts.scheduler, &run)?;
    let notes = size_warning(&facts.scheduler, &run).into_iter().collect();
    Ok(Parts {
        domains,
        policy,
        reward,
        notes,
    })
}
