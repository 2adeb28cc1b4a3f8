//! What the runs of a comparison show, from their logs.
//!
//! Legend: K domains. Losses are held-out mean nats per token; perplexities are their exponentials. "Steps to" is the step at
//! which a run's held-out loss first falls to the final one of another run of the same seed, linear in the loss between evaluations.

use std::path::Path;

use serde::Serialize;

use super::statistics::{deviation, first_at_or_below, mean, paired_p};
use super::{CompareConfig, CompareError};
use crate::report::{RunSummary, summarize};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunFigures {
    /// Its seed.
    pub seed: u64,
    /// Steps of the last evaluation.
    pub steps: u64,
    /// Steps planned.
    pub total_steps: u64,
    /// (steps, held-out loss as the mean over domains) of every evaluation.
    pub macro_curve: Vec<(f64, f64)>,
    /// The same under base weights.
    pub base_curve: Vec<(f64, f64)>,
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
    /// Final perplexity against the baseline's of the same seed, relative, mean: −0.1 is a tenth lower.
    pub macro_gain: Option<f64>,
    /// The same under base weights.
    pub base_gain: Option<f64>,
    /// p of Student's paired t-test on the final macro losses against the baseline's.
    pub macro_p: Option<f64>,
    /// Mean seconds of a step.
    pub step_seconds: Option<f64>,
    /// Part of it that signals, rewards and policy took.
    pub scheduler_share: Option<f64>,
    /// For each policy of the comparison: its steps to that one's final macro perplexity, as a part of that one's steps, mean over seeds;
    /// `None` unless every seed gets there.
    pub steps_to: Vec<Option<f64>>,
    /// The same under base weights.
    pub base_steps_to: Vec<Option<f64>>,
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

/// Whether a run has been evaluated after its last step.
pub fn is_finished(folder: &Path) -> bool {
    summarize(folder).is_ok_and(|run| finished(&run))
}

fn finished(run: &RunSummary) -> bool {
    let last = run.evaluations.last().map(|e| e.step);
    run.header
        .total_steps
        .is_some_and(|total| last >= Some(total))
}

impl Comparison {
    /// Reads the runs there are.
    ///
    /// # Errors
    /// If a log is damaged, or no run has finished.
    pub fn read(config: &CompareConfig, out: &Path) -> Result<Self, CompareError> {
        let mut shared = None;
        let mut policies = Vec::with_capacity(config.policy.len());
        for policy in &config.policy {
            let (mut runs, mut unfinished) = (Vec::new(), 0);
            for &seed in &config.seeds {
                let folder = CompareConfig::folder(out, policy, seed);
                if !folder.join(crate::report::METRICS_FILE).exists() {
                    unfinished += 1;
                    continue;
                }
                let run = match summarize(&folder) {
                    Ok(run) if finished(&run) => run,
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
                runs.push(RunFigures::of(seed, &run));
                let first = shared.get_or_insert_with(|| (folder.clone(), run.header.clone()));
                if (&first.1.index, &first.1.domains) != (&run.header.index, &run.header.domains) {
                    return Err(CompareError::OtherIndex {
                        first: first.0.clone(),
                        other: folder,
                    });
                }
            }
            policies.push((policy.name.clone(), runs, unfinished));
        }
        let Some((_, header)) = shared else {
            return Err(CompareError::Nothing {
                path: out.to_owned(),
            });
        };
        let policies = policies
            .iter()
            .map(|(name, runs, unfinished)| {
                let baseline = policies.iter().find(|(name, ..)| *name == config.baseline);
                let baseline = baseline.map_or(&[][..], |(_, runs, _)| runs);
                let all = policies.iter().map(|(_, runs, _)| &runs[..]);
                PolicyFigures::of(name, runs, *unfinished, baseline, all)
            })
            .collect();
        Ok(Self {
            baseline: config.baseline.clone(),
            domains: header.domains,
            base_weights: header.base_weights,
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
    fn of(seed: u64, run: &RunSummary) -> Self {
        let curve = |value: fn(&crate::report::Evaluation) -> Option<f64>| {
            let points = run.evaluations.iter();
            // What is not finite is logged as none: the run has diverged, and no earlier value may stand for it.
            let loss = |e| value(e).map_or(f64::INFINITY, f64::ln);
            points.map(|e| (e.step as f64, loss(e))).collect()
        };
        let drawn: u64 = run.samples.iter().sum();
        let last = run.evaluations.last();
        Self {
            seed,
            steps: last.map_or(0, |e| e.step),
            total_steps: run.header.total_steps.unwrap_or(0),
            macro_curve: curve(|e| e.macro_perplexity),
            base_curve: curve(|e| e.base_perplexity),
            domain_losses: last.map(|e| e.losses.clone()).unwrap_or_default(),
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

    /// The curve under base weights, or of the mean over domains.
    pub fn curve(&self, base: bool) -> &[(f64, f64)] {
        if base {
            &self.base_curve
        } else {
            &self.macro_curve
        }
    }

    fn final_loss(&self, base: bool) -> Option<f64> {
        self.curve(base).last().map(|&(_, loss)| loss)
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
    fn of<'a>(
        name: &str,
        runs: &[RunFigures],
        unfinished: usize,
        baseline: &[RunFigures],
        all: impl Iterator<Item = &'a [RunFigures]> + Clone,
    ) -> Self {
        let finals = |base: bool| -> Vec<f64> {
            let losses = runs.iter().filter_map(|run| run.final_loss(base));
            losses.map(f64::exp).collect()
        };
        let differences = |base: bool| -> Vec<f64> {
            pairs(runs, baseline)
                .filter_map(|(run, other)| Some(run.final_loss(base)? - other.final_loss(base)?))
                .collect()
        };
        let gain = |base: bool| {
            let gains: Vec<f64> = differences(base).iter().map(|d| d.exp_m1()).collect();
            mean(&gains)
        };
        let steps_to = |base: bool| -> Vec<Option<f64>> {
            all.clone()
                .map(|others| {
                    let shares: Option<Vec<f64>> = pairs(runs, others)
                        .map(|(run, other)| {
                            let curve = run.curve(base);
                            let target = other.final_loss(base).filter(|loss| loss.is_finite())?;
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
        let (macro_finals, base_finals) = (finals(false), finals(true));
        Self {
            name: name.to_owned(),
            unfinished,
            macro_perplexity: mean(&macro_finals),
            macro_deviation: deviation(&macro_finals),
            base_perplexity: mean(&base_finals),
            base_deviation: deviation(&base_finals),
            macro_gain: gain(false),
            base_gain: gain(true),
            macro_p: paired_p(&differences(false)),
            step_seconds: over_runs(|run| run.step_seconds),
            scheduler_share: over_runs(|run| run.scheduler_share),
            steps_to: steps_to(false),
            base_steps_to: steps_to(true),
            runs: runs.to_vec(),
        }
    }
}
