//! What the runs of a comparison show, from their logs.
//!
//! Legend: K domains. Losses are held-out mean nats per token; perplexities are their exponentials. "Steps to" is the step at
//! which a run's held-out loss first falls to the final one of another run of the same seed, linear in the loss between evaluations.
//! Where a run has a target τ other than uniform, all runs are measured under it too, from their domains' losses: the baseline's, or else
//! the first policy's that has one.

use std::path::Path;

use serde::Serialize;

use super::statistics::{deviation, first_at_or_below, mean, paired_p};
use super::{CompareConfig, CompareError};
use crate::report::{Evaluation, RunSummary, summarize};

/// Which mean over the domains' losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mean {
    /// Every domain alike.
    Macro,
    /// Under base weights.
    Base,
    /// Under the target.
    Target,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunFigures {
    /// Its seed.
    pub seed: u64,
    /// Steps of the last evaluation.
    pub steps: u64,
    /// Steps planned.
    pub total_steps: u64,
    /// Steps after which it gave up; its final losses then are infinite.
    pub gave_up: Option<u64>,
    /// (steps, held-out loss as the mean over domains) of every evaluation.
    pub macro_curve: Vec<(f64, f64)>,
    /// The same under base weights.
    pub base_curve: Vec<(f64, f64)>,
    /// The same under the target; empty where there is none.
    pub target_curve: Vec<(f64, f64)>,
    /// Last held-out loss of each domain; length K.
    pub domain_losses: Vec<Option<f64>>,
    /// Share of the sequences drawn; length K.
    pub shares: Vec<f64>,
    /// Mean seconds of a step.
    pub step_seconds: Option<f64>,
    /// Part of it that signals, rewards and policy took.
    pub scheduler_share: Option<f64>,
}

/// The runs of a policy, and what they show together.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyFigures {
    /// Its name.
    pub name: String,
    /// Finished runs, by seed.
    pub runs: Vec<RunFigures>,
    /// Runs that are not finished.
    pub unfinished: usize,
    /// Final perplexity as the mean over domains: mean over seeds.
    pub macro_perplexity: Option<f64>,
    /// Standard deviation over seeds.
    pub macro_deviation: Option<f64>,
    /// Final perplexity under base weights: mean over seeds.
    pub base_perplexity: Option<f64>,
    /// Standard deviation over seeds.
    pub base_deviation: Option<f64>,
    /// Final perplexity under the target: mean over seeds; `None` where there is no target, as all of the target's.
    pub target_perplexity: Option<f64>,
    /// Standard deviation over seeds.
    pub target_deviation: Option<f64>,
    /// Final perplexity against the baseline's of the same seed, relative, mean: −0.1 is a tenth lower.
    pub macro_gain: Option<f64>,
    /// The same under base weights.
    pub base_gain: Option<f64>,
    /// The same under the target.
    pub target_gain: Option<f64>,
    /// p of Student's paired t-test on the final macro losses against the baseline's.
    pub macro_p: Option<f64>,
    /// The same under the target.
    pub target_p: Option<f64>,
    /// Mean seconds of a step.
    pub step_seconds: Option<f64>,
    /// Part of it that signals, rewards and policy took.
    pub scheduler_share: Option<f64>,
    /// For each policy of the comparison: its steps to that one's final macro perplexity, as a part of that one's steps, mean over seeds;
    /// `None` unless every seed gets there.
    pub steps_to: Vec<Option<f64>>,
    /// The same under base weights.
    pub base_steps_to: Vec<Option<f64>>,
    /// The same under the target.
    pub target_steps_to: Vec<Option<f64>>,
}

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the policy that others are measured against.
    pub baseline: String,
    /// Domain names; length K.
    pub domains: Vec<String>,
    /// Base weights; length K.
    pub base_weights: Vec<Option<f64>>,
    /// The target that all are measured under, where one other than uniform is set; length K.
    pub target_weights: Option<Vec<f64>>,
    /// Policies that followed another target of their own.
    pub other_targets: Vec<String>,
    /// Model parameters, batch, length, steps of the first run.
    pub setting: Setting,
    /// In the order of the configuration.
    pub policies: Vec<PolicyFigures>,
}

/// What all runs share.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setting {
    /// Of the model.
    pub parameters: Option<u64>,
    /// L.
    pub sequence_length: Option<u64>,
    /// B.
    pub batch_size: Option<u64>,
    /// T.
    pub total_steps: Option<u64>,
    /// The index's fingerprint.
    pub index: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has been evaluated after its last step.
    Finished,
    /// It gave up after so many steps: going on would change nothing.
    GaveUp(u64),
}

/// How the run in a folder ended; `None` where it has not.
pub fn end_of(folder: &Path) -> Option<End> {
    ended(&summarize(folder).ok()?)
}

fn ended(run: &RunSummary) -> Option<End> {
    let last = run.evaluations.last().map(|e| e.step);
    let total = run.header.total_steps;
    if total.is_some_and(|total| last >= Some(total)) {
        return Some(End::Finished);
    }
    run.gave_up.map(End::GaveUp)
}

impl Comparison {
    /// Reads the runs there are.
    ///
    /// # Errors
    /// If a log is damaged, or no run has finished.
    pub fn read(config: &CompareConfig, out: &Path) -> Result<Self, CompareError> {
        let mut shared = None;
        let mut found = Vec::with_capacity(config.policy.len());
        for policy in &config.policy {
            let (mut runs, mut unfinished) = (Vec::new(), 0);
            for &seed in &config.seeds {
                let folder = CompareConfig::folder(out, policy, seed);
                if !folder.join(crate::report::METRICS_FILE).exists() {
                    unfinished += 1;
                    continue;
                }
                let run = match summarize(&folder) {
                    Ok(run) if ended(&run).is_some() => run,
                    outcome => {
                        unfinished += 1;
                        if let Err(error) = outcome {
                            hds::note!(
                                "warning: {error}; left out (remove {} to run it again)",
                                folder.display()
                            );
                        }
                        continue;
                    }
                };
                let first = shared.get_or_insert_with(|| (folder.clone(), run.header.clone()));
                if (&first.1.index, &first.1.domains) != (&run.header.index, &run.header.domains) {
                    return Err(CompareError::OtherIndex {
                        first: first.0.clone(),
                        other: folder,
                    });
                }
                runs.push((seed, run));
            }
            found.push((policy.name.clone(), runs, unfinished));
        }
        let Some((_, header)) = shared else {
            return Err(CompareError::Nothing {
                path: out.to_owned(),
            });
        };
        let target_of = |runs: &[(u64, RunSummary)]| runs.first()?.1.header.target();
        let (of_baseline, others): (Vec<_>, Vec<_>) = found
            .iter()
            .partition(|(name, ..)| *name == config.baseline);
        let mut in_order = of_baseline.iter().chain(&others);
        let target_weights = in_order.find_map(|(_, runs, _)| target_of(runs));
        let other_targets = found.iter().filter(|(_, runs, _)| {
            let own = target_of(runs);
            own.is_some() && own != target_weights
        });
        let other_targets = other_targets.map(|(name, ..)| name.clone()).collect();
        let policies: Vec<_> = found
            .iter()
            .map(|(name, runs, unfinished)| {
                let figures = |(seed, run): &(u64, RunSummary)| {
                    RunFigures::of(*seed, run, target_weights.as_deref())
                };
                (
                    name,
                    runs.iter().map(figures).collect::<Vec<_>>(),
                    *unfinished,
                )
            })
            .collect();
        let policies = policies
            .iter()
            .map(|(name, runs, unfinished)| {
                let baseline = policies.iter().find(|(name, ..)| **name == config.baseline);
                let baseline = baseline.map_or(&[][..], |(_, runs, _)| runs);
                let all = policies.iter().map(|(_, runs, _)| &runs[..]);
                PolicyFigures::of(name, runs, *unfinished, baseline, all)
            })
            .collect();
        Ok(Self {
            baseline: config.baseline.clone(),
            domains: header.domains,
            base_weights: header.base_weights,
            target_weights,
            other_targets,
            setting: Setting {
                parameters: header.parameters,
                sequence_length: header.sequence_length,
                batch_size: header.batch_size,
                total_steps: header.total_steps,
                index: header.index,
            },
            policies,
        })
    }
}

impl RunFigures {
    fn of(seed: u64, run: &RunSummary, target: Option<&[f64]>) -> Self {
        // A domain without held-out text never has a loss; one that had one and has it no more has diverged.
        let held_out = |i: usize| {
            run.evaluations
                .first()
                .is_some_and(|e| e.losses[i].is_some())
        };
        let under = |weights: &[f64], evaluation: &Evaluation| {
            let weights = weights.iter().enumerate().filter(|(i, _)| held_out(*i));
            let (mut sum, mut total) = (0.0, 0.0);
            for (i, weight) in weights.filter(|(_, weight)| **weight > 0.0) {
                sum += weight * evaluation.losses[i].unwrap_or(f64::INFINITY);
                total += weight;
            }
            (total > 0.0).then(|| (evaluation.step as f64, sum / total))
        };
        let curve = |value: fn(&Evaluation) -> Option<f64>| {
            let points = run.evaluations.iter();
            // What is not finite is logged as none: the run has diverged, and no earlier value may stand for it.
            let loss = |e| value(e).map_or(f64::INFINITY, f64::ln);
            points.map(|e| (e.step as f64, loss(e))).collect()
        };
        let drawn: u64 = run.samples.iter().sum();
        let last = run.evaluations.last();
        let total_steps = run.header.total_steps.unwrap_or(0);
        let gave_up = match ended(run) {
            Some(End::GaveUp(steps)) => Some(steps),
            _ => None,
        };
        // What it had reached before it gave up is not what it ends with.
        let to_its_end = |mut curve: Vec<(f64, f64)>| {
            if gave_up.is_some() {
                curve.push((total_steps as f64, f64::INFINITY));
            }
            curve
        };
        Self {
            seed,
            steps: gave_up.map_or(last.map_or(0, |e| e.step), |_| total_steps),
            total_steps,
            gave_up,
            macro_curve: to_its_end(curve(|e| e.macro_perplexity)),
            base_curve: to_its_end(curve(|e| e.base_perplexity)),
            target_curve: target.map_or(Vec::new(), |weights| {
                let points = run.evaluations.iter();
                to_its_end(points.filter_map(|e| under(weights, e)).collect())
            }),
            domain_losses: match (gave_up, last) {
                (Some(_), _) => vec![None; run.header.domains.len()],
                (None, last) => last.map(|e| e.losses.clone()).unwrap_or_default(),
            },
            shares: run
                .samples
                .iter()
                .map(|&n| n as f64 / drawn.max(1) as f64)
                .collect(),
            step_seconds: (run.steps > 0).then(|| run.step_seconds / run.steps as f64),
            scheduler_share: (run.step_seconds > 0.0)
                .then(|| run.scheduler_seconds / run.step_seconds),
        }
    }

    /// The curve of a mean.
    pub fn curve(&self, mean: Mean) -> &[(f64, f64)] {
        match mean {
            Mean::Macro => &self.macro_curve,
            Mean::Base => &self.base_curve,
            Mean::Target => &self.target_curve,
        }
    }

    fn final_loss(&self, mean: Mean) -> Option<f64> {
        self.curve(mean).last().map(|&(_, loss)| loss)
    }
}

/// Pairs the runs of two policies by seed.
fn pairs<'a>(
    runs: &'a [RunFigures],
    others: &'a [RunFigures],
) -> impl Iterator<Item = (&'a RunFigures, &'a RunFigures)> {
    runs.iter().filter_map(|run| {
        let other = others.iter().find(|other| other.seed == run.seed)?;
        Some((run, other))
    })
}

impl PolicyFigures {
    /// Steps to each policy's final perplexity by one of the means.
    pub fn steps_to(&self, mean: Mean) -> &[Option<f64>] {
        match mean {
            Mean::Macro => &self.steps_to,
            Mean::Base => &self.base_steps_to,
            Mean::Target => &self.target_steps_to,
        }
    }

    fn of<'a>(
        name: &str,
        runs: &[RunFigures],
        unfinished: usize,
        baseline: &[RunFigures],
        all: impl Iterator<Item = &'a [RunFigures]> + Clone,
    ) -> Self {
        let finals = |which: Mean| -> Vec<f64> {
            let losses = runs.iter().filter_map(|run| run.final_loss(which));
            losses.map(f64::exp).collect()
        };
        let differences = |which: Mean| -> Vec<f64> {
            pairs(runs, baseline)
                .filter_map(|(run, other)| Some(run.final_loss(which)? - other.final_loss(which)?))
                .collect()
        };
        let gain = |which: Mean| {
            let gains: Vec<f64> = differences(which).iter().map(|d| d.exp_m1()).collect();
            mean(&gains)
        };
        let steps_to = |which: Mean| -> Vec<Option<f64>> {
            all.clone()
                .map(|others| {
                    let shares: Option<Vec<f64>> = pairs(runs, others)
                        .map(|(run, other)| {
                            let curve = run.curve(which);
                            let target = other.final_loss(which).filter(|loss| loss.is_finite())?;
                            let step = first_at_or_below(curve, target)?;
                            Some(step / other.steps as f64)
                        })
                        .collect();
                    shares.and_then(|shares| mean(&shares))
                })
                .collect()
        };
        let over_runs = |value: fn(&RunFigures) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(value).collect();
            mean(&values)
        };
        let (macro_finals, base_finals) = (finals(Mean::Macro), finals(Mean::Base));
        let target_finals = finals(Mean::Target);
        Self {
            name: name.to_owned(),
            unfinished,
            macro_perplexity: mean(&macro_finals),
            macro_deviation: deviation(&macro_finals),
            base_perplexity: mean(&base_finals),
            base_deviation: deviation(&base_finals),
            target_perplexity: mean(&target_finals),
            target_deviation: deviation(&target_finals),
            macro_gain: gain(Mean::Macro),
            base_gain: gain(Mean::Base),
            target_gain: gain(Mean::Target),
            macro_p: paired_p(&differences(Mean::Macro)),
            target_p: paired_p(&differences(Mean::Target)),
            step_seconds: over_runs(|run| run.step_seconds),
            scheduler_share: over_runs(|run| run.scheduler_share),
            steps_to: steps_to(Mean::Macro),
            base_steps_to: steps_to(Mean::Base),
            target_steps_to: steps_to(Mean::Target),
            runs: runs.to_vec(),
        }
    }
}
