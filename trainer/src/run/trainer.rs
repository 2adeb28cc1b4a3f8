//! The run from its first step, or from a checkpoint, to its last.
//!
//! In: configuration, folder, whether to resume, the ranks. Out: the run folder, and how it ended.
//! The order of a step is fixed: batch under the weights in force → model update → signals → rewards
//! → policy → weights of the next step → logs → evaluation → checkpoint. Every rank goes through it; the policy, its
//! rewards and the files are rank 0's alone.

mod build;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use hds::{DomainSet, LiveWeights, Mixture, VersionedMixture};
use hds_loader::{Index, Loader};

use super::checkpoint::checkpoint_name;
use super::config::RunConfig;
use super::error::RunError;
use super::folder::RunFolder;
use super::held_out::HeldOut;
use super::interrupt::Interrupt;
use super::ledger::{CONFIG_FILE, Ledger};
use super::metrics::{
    EvaluationRecord, EvaluationTiming, GaveUpRecord, RunRecord, StepRecord, StepTiming,
};
use super::precision::LossScale;
use super::progress::Progress;
use super::state::{self, RunState};
use super::step::{Learner, StepSettings, Watch, run_step};
use super::target::TargetText;
use super::{optimizer_file, setup};
use crate::distributed::{Group, Shares};
use crate::model::Model;
use crate::optimizer::{AdamW, Parameter, Schedule};
use crate::reward::RewardModel;
use crate::scheduler::{Policy, Troubles};
use crate::signals::{Observation, Rewards, StepSignals};

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At step 0, in a folder without a run.
    New,
    /// At the newest whole checkpoint of the folder, or at step 0 where there is none.
    Resume,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Steps done.
    pub steps: u64,
    /// Whether it was asked to end before its last step.
    pub interrupted: bool,
    /// The checkpoint written at the end.
    pub checkpoint: PathBuf,
}

/// A run, ready to go.
pub struct Trainer {
    config: RunConfig,
    out: PathBuf,
    group: Rc<Group>,
    /// The files; rank 0's.
    ledger: Option<Ledger>,
    index: Index,
    domains: DomainSet,
    readable: Vec<bool>,
    base: Mixture,
    target: Mixture,
    target_text: TargetText,
    model: Model,
    parameters: Vec<Parameter>,
    optimizer: AdamW,
    shares: Shares,
    schedule: Schedule,
    live: LiveWeights,
    loader: Loader,
    watch: Watch,
    reward: RewardModel,
    /// Rank 0's.
    policy: Option<Box<dyn Policy>>,
    held_out: HeldOut,
    /// Where the precision needs one.
    loss_scale: Option<LossScale>,
    place: Place,
    troubles: Troubles,
    /// The newest checkpoint of this run, by its steps.
    saved: Option<(u64, PathBuf)>,
}

/// Where the run stands, apart from what its parts hold.
#[derive(Clone, Debug, Default)]
struct Place {
    step: u64,
    tokens: u64,
    updates: u64,
    bad_steps: u64,
    last_loss: f64,
    gave_up: bool,
}

/// What rank 0 made of a step.
struct Decided {
    mixture: Mixture,
    rewards: Option<Rewards>,
    diagnostics: BTreeMap<String, f64>,
    signals: StepSignals,
}

impl Trainer {
    /// A run in one process; as [`Self::in_group`].
    ///
    /// # Errors
    /// As [`Self::in_group`].
    pub fn new(config: RunConfig, out: &Path, start: Start) -> Result<Self, RunError> {
        let alone = Rc::new(Group::alone());
        Self::in_group(config, out, start, alone, &Interrupt::default())
    }

    /// Trains until the last step, or until `interrupt` asks to end; saves either way.
    ///
    /// # Errors
    /// A failed part, or a loss that stays non-finite; what was saved stays.
    pub fn run(mut self, interrupt: &Interrupt) -> Result<Outcome, RunError> {
        let total = self.config.run.steps;
        let mut progress = Progress::new(total, self.place.step, !self.group.leads());
        if self.saved.is_none() {
            self.evaluate(&progress)?;
        }
        // A signal to any rank stops all of them after the same step.
        while self.place.step < total && !self.group.any(interrupt.is_asked())? {
            let Some(seconds) = self.step(interrupt)? else {
                break;
            };
            let done = self.place.step;
            progress.step(done, || self.message(seconds));
            if self.place.bad_steps == 1 {
                let loss = self.place.last_loss;
                progress.line(&format!(
                    "warning: step {}, loss {loss}: not finite, no update",
                    done - 1
                ));
            }
            // A run whose last steps taught nothing has not reached its end.
            let most = if done < total {
                self.config.run.max_bad_steps
            } else {
                1
            };
            if self.place.bad_steps >= most {
                self.note_giving_up()?;
                let checkpoint = self.save()?;
                progress.finish();
                return Err(RunError::NotFinite {
                    count: self.place.bad_steps,
                    step: done - 1,
                    loss: self.place.last_loss,
                    checkpoint,
                });
            }
            let due = |interval: u64| interval > 0 && done.is_multiple_of(interval);
            if due(self.config.evaluation.interval_steps) || done == total {
                self.evaluate(&progress)?;
            }
            if due(self.config.checkpoint.interval_steps) && done < total {
                self.save()?;
            }
        }
        let checkpoint = self.save()?;
        progress.finish();
        // No rank says that it is done before the files are there.
        self.group.wait()?;
        let steps = self.place.step;
        Ok(Outcome {
            steps,
            interrupted: steps < total,
            checkpoint,
        })
    }

    /// One step; returns its duration in seconds. `None` where an end was asked for in the middle of it: then it was not made.
    fn step(&mut self, interrupt: &Interrupt) -> Result<Option<f64>, RunError> {
        let start = Instant::now();
        let step = self.place.step;
        let in_force = self.live.read();
        if let Some(ledger) = &mut self.ledger {
            ledger.weight_log.record(step, &in_force)?;
        }
        let before = self.loader.state();
        let batch = self.loader.next_batch()?;
        let learning_rate = self.schedule.at(step);
        let settings = StepSettings {
            micro_batch_size: self.config.micro_batch_size(),
            gradient_clip: self.config.optimizer.gradient_clip,
            learning_rate,
            loss_scale: self.loss_scale.as_ref().map_or(1.0, LossScale::factor),
            attention: self.config.data.attention,
            loss: self.config.data.loss,
        };
        let mut learner = Learner {
            model: &self.model,
            parameters: &self.parameters,
            optimizer: &mut self.optimizer,
            shares: &mut self.shares,
        };
        // The watched gradients are summed over the ranks: one of them reads for all.
        let target = match self.group.leads() && self.watch.gradients.is_some() {
            true => self.target_text.rows(&self.held_out, step)?,
            false => None,
        };
        let outcome = run_step(
            &mut learner,
            &batch,
            target.as_ref(),
            &mut self.watch,
            &settings,
            &self.group,
            interrupt,
        )?;
        let Some(outcome) = outcome else {
            // Nothing else has moved.
            let config = self.loader.config().clone();
            let (index, live) = (self.index.clone(), self.live.clone());
            self.loader = Loader::resume(index, live, config, &before)?;
            return Ok(None);
        };
        let scheduler_start = Instant::now();
        let signals = outcome.signals(&batch, self.domains.len(), self.config.run.steps);
        let decided = self.decide(&in_force, signals)?;
        let mixture = self.next_mixture(decided.as_ref(), step)?;
        if mixture != in_force.mixture {
            self.live.publish(mixture);
        }
        let scheduler_time = scheduler_start.elapsed() + outcome.signals_time;

        self.place.step += 1;
        let tokens = (self.config.data.batch_size * self.config.data.sequence_length) as u64;
        self.place.tokens += tokens;
        self.place.last_loss = outcome.loss;
        let scaled_too_far = outcome.loss.is_finite()
            && self
                .loss_scale
                .as_mut()
                .is_some_and(|scale| scale.after(!outcome.skipped));
        if scaled_too_far {
            // Expected now and then, and mended: the next step's scale is half as large.
        } else if outcome.skipped {
            self.place.bad_steps += 1;
        } else {
            self.place.bad_steps = 0;
            self.place.updates += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        if let (Some(ledger), Some(decided)) = (&mut self.ledger, &decided) {
            ledger.metrics.write(&StepRecord {
                step,
                tokens: self.place.tokens,
                loss: outcome.loss,
                learning_rate,
                gradient_norm: outcome.gradient_norm,
                skipped: outcome.skipped,
                loss_scale: self.loss_scale.as_ref().map(|_| settings.loss_scale),
                weights_version: in_force.version,
                weights: in_force.mixture.weights(),
                samples: &decided.signals.samples,
                losses: &decided.signals.losses,
                mtld: &decided.signals.mtld,
                rewards: decided.rewards.as_ref(),
                policy: &decided.diagnostics,
                timing: StepTiming {
                    step_seconds: seconds,
                    scheduler_seconds: scheduler_time.as_secs_f64(),
                    tokens_per_second: tokens as f64 / seconds,
                },
            })?;
        }
        Ok(Some(seconds))
    }

    /// Rewards and policy, on rank 0.
    fn decide(
        &mut self,
        in_force: &VersionedMixture,
        signals: StepSignals,
    ) -> Result<Option<Decided>, RunError> {
        let Some(policy) = &mut self.policy else {
            return Ok(None);
        };
        let step = signals.step;
        let rewards = self
            .watch
            .gradients
            .is_some()
            .then(|| self.reward.rewards(&signals));
        let observation = Observation {
            weights: in_force.mixture.weights().to_vec(),
            rewards: rewards
                .clone()
                .unwrap_or_else(|| Rewards::none(self.domains.len())),
            signals,
        };
        let decision = policy.next(&observation)?;
        if let Some(trouble) = self.troubles.look(step, &decision) {
            hds::note!("warning: {trouble}");
        }
        let (domains, readable) = (&self.domains, &self.readable);
        let mixture = setup::mixture(decision.weights, domains, readable, policy.name(), step)?;
        Ok(Some(Decided {
            mixture,
            rewards,
            diagnostics: decision.diagnostics,
            signals: observation.signals,
        }))
    }

    /// Rank 0's mixture on every rank.
    fn next_mixture(&self, decided: Option<&Decided>, step: u64) -> Result<Mixture, RunError> {
        let mut weights = match decided {
            Some(decided) if self.group.is_alone() => return Ok(decided.mixture.clone()),
            Some(decided) => decided.mixture.weights().to_vec(),
            None => vec![0.0; self.domains.len()],
        };
        self.group.share_numbers(&mut weights)?;
        Mixture::new(weights, &self.domains).map_err(|source| RunError::Weights {
            policy: "of rank 0".to_owned(),
            step,
            source,
        })
    }

    fn message(&self, seconds: f64) -> String {
        let tokens = (self.config.data.batch_size * self.config.data.sequence_length) as f64;
        let entropy = self.live.read().mixture.entropy_nats();
        format!(
            "loss {:.4}  {:.0} tokens/s  weights' entropy {entropy:.2} of {:.2} nats",
            self.place.last_loss,
            tokens / seconds,
            (self.domains.len() as f64).ln()
        )
    }

    fn evaluate(&mut self, progress: &Progress) -> Result<(), RunError> {
        let start = Instant::now();
        let held_out = self.held_out.evaluate(&self.model, &self.group)?;
        let Some(ledger) = &mut self.ledger else {
            return Ok(());
        };
        let macro_perplexity = held_out.macro_perplexity();
        let base_perplexity = held_out.weighted_perplexity(self.base.weights());
        let target_perplexity = held_out.weighted_perplexity(self.target.weights());
        ledger.metrics.write(&EvaluationRecord {
            step: self.place.step,
            tokens: self.place.tokens,
            losses: &held_out.losses,
            macro_perplexity: macro_perplexity.unwrap_or(f64::NAN),
            base_perplexity: base_perplexity.unwrap_or(f64::NAN),
            target_perplexity: target_perplexity.unwrap_or(f64::NAN),
            timing: EvaluationTiming {
                seconds: start.elapsed().as_secs_f64(),
            },
        })?;
        let show = |value: Option<f64>| value.map_or("none".to_owned(), |v| format!("{v:.2}"));
        let target = match self.target.is_uniform() {
            true => String::new(),
            false => format!(", {} (target)", show(target_perplexity)),
        };
        progress.line(&format!(
            "step {}: held-out perplexity {} (mean over domains), {} (base weights){target}",
            self.place.step,
            show(macro_perplexity),
            show(base_perplexity)
        ));
        Ok(())
    }

    fn save(&mut self) -> Result<PathBuf, RunError> {
        if let Some((step, path)) = &self.saved
            && *step == self.place.step
        {
            return Ok(path.clone());
        }
        // On every rank alike: all have all weights.
        if !self.model.is_finite() {
            self.note_giving_up()?;
            return Err(RunError::WeightsNotFinite {
                step: self.place.step.saturating_sub(1),
                newest: self.saved.as_ref().map(|(_, path)| path.clone()),
            });
        }
        let (optimizer, shares, group) = (&self.optimizer, &self.shares, &self.group);
        let Some(ledger) = &mut self.ledger else {
            optimizer_file::write(None, optimizer, shares, group)?;
            let name = checkpoint_name(self.place.step);
            let path = RunFolder::checkpoints_in(&self.out).join(name);
            self.saved = Some((self.place.step, path.clone()));
            return Ok(path);
        };
        let config = ledger.folder.config();
        if !config.exists() {
            return Err(RunError::Gone { path: config });
        }
        let metrics_bytes = ledger.metrics.position()?;
        ledger.weight_log.sync()?;
        let weights = self.live.read();
        let state = RunState {
            version: state::FORMAT_VERSION,
            step: self.place.step,
            tokens: self.place.tokens,
            updates: self.place.updates,
            bad_steps: self.place.bad_steps,
            metrics_bytes,
            loader: self.loader.state(),
            weights_version: weights.version,
            weights: weights.mixture.weights().to_vec(),
            reward: self.reward.save()?,
            weight_change_norms: self.watch.norms.changes().to_vec(),
            loss_scale: self.loss_scale.clone(),
        };
        let (step, bad_steps) = (self.place.step, self.place.bad_steps);
        // What was saved since the last good step.
        let like_it = self.saved.as_ref().map(|(step, _)| *step);
        let like_it = like_it.filter(|saved| saved + bad_steps > step);
        let write = |checkpoint: &Path| {
            // First what the other ranks wait for.
            let path = checkpoint.join("optimizer.safetensors");
            optimizer_file::write(Some(&path), optimizer, shares, group)?;
            setup::create_folder(&checkpoint.join("model"))?;
            self.model.save_huggingface(&checkpoint.join("model"))?;
            setup::create_folder(&checkpoint.join("policy"))?;
            if let Some(policy) = &mut self.policy {
                policy.save(&checkpoint.join("policy"))?;
            }
            setup::write_config(&checkpoint.join(CONFIG_FILE), &self.config)?;
            hds::durable::write_json(&RunState::path(checkpoint), &state)?;
            Ok(())
        };
        let path = if bad_steps > 0 {
            ledger
                .checkpoints
                .save_beside::<RunError>(step, like_it, write)?
        } else {
            ledger.checkpoints.save::<RunError>(step, write)?
        };
        self.saved = Some((self.place.step, path.clone()));
        Ok(path)
    }

    /// Tells those who read the log that no evaluation will follow.
    fn note_giving_up(&mut self) -> Result<(), RunError> {
        let told = std::mem::replace(&mut self.place.gave_up, true);
        if let Some(ledger) = &mut self.ledger
            && !told
        {
            ledger.metrics.write(&GaveUpRecord {
                step: self.place.step,
                bad_steps: self.place.bad_steps,
            })?;
        }
        Ok(())
    }

    fn write_run_record(&mut self) -> Result<(), RunError> {
        let (Some(ledger), Some(policy)) = (&mut self.ledger, &self.policy) else {
            return Ok(());
        };
        ledger.metrics.write(&RunRecord {
            domains: self.domains.names(),
            policy: policy.name(),
            preset: policy.preset(),
            parameters: self.model.config().parameter_count(),
            agent_parameters: policy.parameters(),
            sequence_length: self.config.data.sequence_length,
            batch_size: self.config.data.batch_size,
            total_steps: self.config.run.steps,
            warmup_steps: policy.warmup_steps(),
            base_weights: self.base.weights(),
            target_weights: self.target.weights(),
            index: self.index.fingerprint().to_string(),
            seed: self.config.run.seed,
        })?;
        Ok(())
    }
}
