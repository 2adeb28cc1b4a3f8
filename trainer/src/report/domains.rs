//! What a run did to one domain, over all its steps.

use super::record::{Maybe, StepRecord};

/// Figures of one domain.
#[derive(Clone, Debug, Default)]
pub struct DomainFigures {
    pub name: String,
    /// Reference weight.
    pub base: Maybe,
    /// Weight in the target, where one is set.
    pub target: Maybe,
    /// Weight in force at the first and at the last step.
    pub first_weight: Maybe,
    pub last_weight: Maybe,
    /// Sequences drawn.
    pub samples: u64,
    /// Over the steps after the warm-up.
    pub weight: Mean,
    pub reward: Mean,
    pub alignment: Mean,
    /// MTLD of the sequences drawn.
    pub mtld: Mean,
    pub held_out: HeldOut,
}

/// A mean in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    mass: f64,
}

/// Held-out losses in nats per token, and the steps they were measured at.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldOut {
    pub first: Option<(u64, f64)>,
    pub last: Option<(u64, f64)>,
    pub best: Option<(u64, f64)>,
    /// What the policy's effect is measured from: the last one up to the end of the warm-up, or, if
    /// the model was untrained then, the next.
    pub start: Option<(u64, f64)>,
}

impl Mean {
    fn add(&mut self, value: Maybe, mass: f64) {
        if let Some(value) = value.filter(|v| v.is_finite() && mass > 0.0) {
            self.sum += value * mass;
            self.mass += mass;
        }
    }

    /// The mean, if anything was added.
    pub fn get(&self) -> Maybe {
        (self.mass > 0.0).then(|| self.sum / self.mass)
    }
}

impl DomainFigures {
    /// Before the first step.
    pub fn new(name: &str, base: Maybe) -> Self {
        Self {
            name: name.to_owned(),
            base,
            ..Self::default()
        }
    }

    /// Takes a step in; `domain` is this one's place in the record's vectors, which reach to it.
    pub fn add_step(&mut self, domain: usize, record: &StepRecord, warm_up: bool) {
        let weight = record.weights[domain];
        self.first_weight = self.first_weight.or(weight);
        self.last_weight = weight.or(self.last_weight);
        let samples = record.samples[domain];
        self.samples = self.samples.saturating_add(samples);
        if let Some(mtld) = &record.mtld {
            self.mtld.add(mtld[domain], samples as f64);
        }
        if warm_up {
            return;
        }
        self.weight.add(weight, 1.0);
        if let Some(rewards) = &record.rewards {
            self.reward.add(rewards.total[domain], 1.0);
            self.alignment.add(rewards.alignment[domain], 1.0);
        }
    }

    /// Takes an evaluation in.
    pub fn add_evaluation(&mut self, step: u64, loss: Maybe, after_warm_up: bool) {
        let Some(loss) = loss.filter(|l| l.is_finite()) else {
            return;
        };
        let here = Some((step, loss));
        let held_out = &mut self.held_out;
        held_out.first = held_out.first.or(here);
        held_out.last = here;
        if held_out.best.is_none_or(|(_, best)| loss < best) {
            held_out.best = here;
        }
        let untrained = held_out.start.is_none_or(|(step, _)| step == 0);
        if untrained || !after_warm_up {
            held_out.start = here;
        }
    }

    /// Mean weight after the warm-up over the base weight.
    pub fn weight_ratio(&self) -> Maybe {
        let (weight, base) = (self.weight.get()?, self.base?);
        let ratio = (weight > 0.0 && base > 0.0).then(|| weight / base)?;
        // What rounding leaves of equal weights must not rank domains.
        Some(if (ratio - 1.0).abs() < 1e-9 {
            1.0
        } else {
            ratio
        })
    }

    /// Nats per token that the held-out loss fell since [`HeldOut::start`].
    pub fn gain(&self) -> Maybe {
        let (start, from) = self.held_out.start?;
        let (end, to) = self.held_out.last?;
        (end > start).then_some(from - to)
    }
}
