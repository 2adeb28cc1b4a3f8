//! The run from its first step, or from a checkpoint, to its last.
//!
//! In: configuration, folder, whether to resume. Out: the run folder, and how it ended.
//! The order of a step is fixed: batch under the weights in force → model update → signals → rewards
//! → policy → weights of the next step → logs → evaluation → checkpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hds::weight_log::{Header, WeightLogWriter};
use hds::{DomainSet, LiveWeights, Mixture, VersionedMixture};
use hds_loader::{Index, Loader, LoaderConfig};

use super::checkpoint::Checkpoints;
use super::config::RunConfig;
use super::error::RunError;
use super::folder::RunFolder;
use super::held_out::HeldOut;
use super::interrupt::Interrupt;
use super::metrics::{
    EvaluationRecord, EvaluationTiming, MetricsLog, RunRecord, StepRecord, StepTiming,
};
use super::progress::Progress;
use super::setup;
use super::state::{self, RunState};
use super::step::{StepSettings, Watch, run_step};
use crate::gradients::{DomainGradients, WeightNorms};
use crate::model::Model;
use crate::optimizer::{AdamW, Parameter, Schedule};
use crate::reward::RewardModel;
use crate::scheduler::Policy;
use crate::signals::{Observation, Rewards};
use crate::tensors;

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
    folder: RunFolder,
    checkpoints: Checkpoints,
    domains: DomainSet,
    readable: Vec<bool>,
    base: Mixture,
    model: Model,
    parameters: Vec<Parameter>,
    optimizer: AdamW,
    schedule: Schedule,
    live: LiveWeights,
    loader: Loader,
    watch: Watch,
    reward: RewardModel,
    policy: Box<dyn Policy>,
    held_out: HeldOut,
    metrics: MetricsLog,
    weight_log: WeightLogWriter,
    place: Place,
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
}

impl Trainer {
    /// Opens the index, builds or restores every part, and starts or continues the logs.
    ///
    /// # Errors
    /// Whatever is wrong with configuration, index, folder or checkpoint.
    pub fn new(config: RunConfig, out: &Path, start: Start) -> Result<Self, RunError> {
        let folder = RunFolder::open(out)?;
        let used = folder.used();
        if let (Start::New, Some(path)) = (start, &used) {
            return Err(RunError::Used { path: path.clone() });
        }
        let checkpoints = Checkpoints::new(folder.checkpoints(), config.checkpoint.keep);
        let mut resumed = None;
        if used.is_some() {
            setup::check_same_run(&folder.config(), &config)?;
            let (newest, damaged) = checkpoints.newest()?;
            match &newest {
                Some(_) => damaged.iter().for_each(|error| {
                    hds::note!("warning: {error}; using the checkpoint before it")
                }),
                // Starting over would overwrite the logs of what may be days of training.
                None => setup::refuse_damaged(damaged)?,
            }
            resumed = newest;
        }
        let device = setup::prepare_device(&config.run)?;
        let data = &config.data;
        let index = Index::open_from(&data.index, data.access, &data.remote())?;
        let domains = index.domains().clone();
        let base = setup::base_weights(&config, &index)?;
        let saved = resumed.as_deref().map(RunState::read).transpose()?;

        let model = setup::model(&config, &index, device, resumed.as_deref())?;
        let parameters = model.parameters();
        let mut optimizer = AdamW::new(model.parameters(), config.optimizer.adamw());
        let schedule = config.optimizer.schedule(config.run.steps);
        let blocks = config
            .signals
            .layers
            .resolve(model.config().num_hidden_layers as usize)?;
        let facts = setup::run_facts(&config, &index, &base, &model, blocks.len(), device);
        let mut policy = crate::scheduler::build(&config.scheduler, &facts)?;
        let mut reward = RewardModel::new(config.reward.clone(), domains.len());
        let mut watch = Watch {
            norms: WeightNorms::new(model.output_projections(&blocks)),
            gradients: policy
                .wants_rewards()
                .then(|| DomainGradients::new(domains.len(), config.signals.gradients)),
            blocks,
        };
        if let (Some(checkpoint), Some(saved)) = (&resumed, &saved) {
            let path = checkpoint.join("optimizer.safetensors");
            optimizer.load_state(&tensors::read(&path, device)?)?;
            policy.restore(&checkpoint.join("policy"))?;
            reward.restore(&saved.reward)?;
            watch.norms.restore(&saved.weight_change_norms)?;
        }

        let readable = setup::readable(&index, config.data.sequence_length);
        let weights = match &saved {
            Some(saved) => VersionedMixture {
                version: saved.weights_version,
                mixture: setup::mixture(
                    saved.weights.clone(),
                    &domains,
                    &readable,
                    &*policy,
                    saved.step,
                )?,
            },
            None => {
                let initial = policy.initial();
                VersionedMixture {
                    version: 1,
                    mixture: setup::mixture(initial, &domains, &readable, &*policy, 0)?,
                }
            }
        };
        let live = LiveWeights::resumed(weights);
        let loader_config = LoaderConfig {
            sequence_length: config.data.sequence_length,
            batch_size: config.data.batch_size,
            seed: config.run.seed,
            minimum_per_domain: config.data.minimum_per_domain,
            ..LoaderConfig::default()
        };
        let loader = match &saved {
            Some(s) => Loader::resume(index.clone(), live.clone(), loader_config, &s.loader)?,
            None => Loader::new(index.clone(), live.clone(), loader_config)?,
        };
        let held_out = HeldOut::new(&index, &config)?;
        for domain in held_out.empty() {
            hds::note!(
                "warning: domain {:?} has no held-out sequence of {} tokens; its perplexity is left out \
                 (hds-index build --valid-fraction)",
                domains.name(domain),
                config.data.sequence_length
            );
        }

        let header = Header::new(
            domains.clone(),
            index.fingerprint().to_string(),
            config.run.seed,
        );
        let (metrics, weight_log, place) = match saved {
            Some(saved) => {
                // Both logs are cut back only once both are known to be this run's.
                MetricsLog::check(&folder.metrics(), saved.metrics_bytes)?;
                let weight_log = WeightLogWriter::resume(&folder.weights(), &header, saved.step)?;
                weight_log.expect_version(saved.step, saved.weights_version)?;
                let metrics = MetricsLog::resume(&folder.metrics(), saved.metrics_bytes)?;
                let place = Place {
                    step: saved.step,
                    tokens: saved.tokens,
                    updates: saved.updates,
                    bad_steps: saved.bad_steps,
                    last_loss: f64::NAN,
                };
                (metrics, weight_log, place)
            }
            None => {
                setup::write_config(&folder, &config)?;
                let metrics = MetricsLog::create(&folder.metrics())?;
                let weight_log = WeightLogWriter::create(&folder.weights(), &header)?;
                (metrics, weight_log, Place::default())
            }
        };
        let mut trainer = Self {
            config,
            folder,
            checkpoints,
            domains,
            readable,
            base,
            model,
            parameters,
            optimizer,
            schedule,
            live,
            loader,
            watch,
            reward,
            policy,
            held_out,
            metrics,
            weight_log,
            saved: resumed.clone().map(|path| (place.step, path)),
            place,
        };
        if resumed.is_none() {
            trainer.write_run_record(&index)?;
        }
        setup::note_event(&trainer.folder, trainer.place.step, resumed.as_deref())?;
        Ok(trainer)
    }

    /// Trains until the last step, or until `interrupt` asks to end; saves either way.
    ///
    /// # Errors
    /// A failed part, or a loss that stays non-finite; what was saved stays.
    pub fn run(mut self, interrupt: &Interrupt) -> Result<Outcome, RunError> {
        let total = self.config.run.steps;
        let mut progress = Progress::new(total, self.place.step);
        if self.saved.is_none() {
            self.evaluate(&progress)?;
        }
        while self.place.step < total && !interrupt.is_asked() {
            let seconds = self.step()?;
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
        let steps = self.place.step;
        Ok(Outcome {
            steps,
            interrupted: steps < total,
            checkpoint,
        })
    }

    /// One step; returns its duration in seconds.
    fn step(&mut self) -> Result<f64, RunError> {
        let start = Instant::now();
        let step = self.place.step;
        let in_force = self.live.read();
        self.weight_log.record(step, &in_force)?;
        let batch = self.loader.next_batch()?;
        let learning_rate = self.schedule.at(step);
        let settings = StepSettings {
            micro_batch_size: self.config.micro_batch_size(),
            gradient_clip: self.config.optimizer.gradient_clip,
            learning_rate,
        };
        let outcome = run_step(
            &self.model,
            &self.parameters,
            &mut self.optimizer,
            &batch,
            &mut self.watch,
            &settings,
        )?;
        let scheduler_start = Instant::now();
        let signals = outcome.signals(&batch, self.domains.len(), self.config.run.steps);
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
        let decision = self.policy.next(&observation)?;
        let mixture = setup::mixture(
            decision.weights,
            &self.domains,
            &self.readable,
            &*self.policy,
            step,
        )?;
        if mixture != in_force.mixture {
            self.live.publish(mixture);
        }
        let scheduler_time = scheduler_start.elapsed() + outcome.signals_time;

        self.place.step += 1;
        let tokens = (self.config.data.batch_size * self.config.data.sequence_length) as u64;
        self.place.tokens += tokens;
        self.place.last_loss = outcome.loss;
        if outcome.skipped {
            self.place.bad_steps += 1;
        } else {
            self.place.bad_steps = 0;
            self.place.updates += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let signals = &observation.signals;
        self.metrics.write(&StepRecord {
            step,
            tokens: self.place.tokens,
            loss: outcome.loss,
            learning_rate,
            gradient_norm: outcome.gradient_norm,
            skipped: outcome.skipped,
            weights_version: in_force.version,
            weights: in_force.mixture.weights(),
            samples: &signals.samples,
            losses: &signals.losses,
            mtld: &signals.mtld,
            rewards: rewards.as_ref(),
            policy: &decision.diagnostics,
            timing: StepTiming {
                step_seconds: seconds,
                scheduler_seconds: scheduler_time.as_secs_f64(),
                tokens_per_second: tokens as f64 / seconds,
            },
        })?;
        Ok(seconds)
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
        let held_out = self.held_out.evaluate(&self.model)?;
        let macro_perplexity = held_out.macro_perplexity();
        let base_perplexity = held_out.weighted_perplexity(self.base.weights());
        self.metrics.write(&EvaluationRecord {
            step: self.place.step,
            tokens: self.place.tokens,
            losses: &held_out.losses,
            macro_perplexity: macro_perplexity.unwrap_or(f64::NAN),
            base_perplexity: base_perplexity.unwrap_or(f64::NAN),
            timing: EvaluationTiming {
                seconds: start.elapsed().as_secs_f64(),
            },
        })?;
        let show = |value: Option<f64>| value.map_or("none".to_owned(), |v| format!("{v:.2}"));
        progress.line(&format!(
            "step {}: held-out perplexity {} (mean over domains), {} (base weights)",
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
        let config = self.folder.config();
        if !config.exists() {
            return Err(RunError::Gone { path: config });
        }
        let metrics_bytes = self.metrics.position()?;
        self.weight_log.sync()?;
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
        };
        let path = self
            .checkpoints
            .save::<RunError>(self.place.step, |checkpoint| {
                setup::create_folder(&checkpoint.join("model"))?;
                self.model.save_huggingface(&checkpoint.join("model"))?;
                tensors::write(
                    &checkpoint.join("optimizer.safetensors"),
                    &self.optimizer.state(),
                    &BTreeMap::new(),
                )?;
                setup::create_folder(&checkpoint.join("policy"))?;
                self.policy.save(&checkpoint.join("policy"))?;
                hds::durable::write_json(&RunState::path(checkpoint), &state)?;
                Ok(())
            })?;
        self.saved = Some((self.place.step, path.clone()));
        Ok(path)
    }

    fn write_run_record(&mut self, index: &Index) -> Result<(), RunError> {
        self.metrics.write(&RunRecord {
            domains: self.domains.names(),
            policy: self.policy.name(),
            preset: self.policy.preset(),
            parameters: self.model.config().parameter_count(),
            agent_parameters: self.policy.parameters(),
            sequence_length: self.config.data.sequence_length,
            batch_size: self.config.data.batch_size,
            total_steps: self.config.run.steps,
            warmup_steps: self.policy.warmup_steps(),
            base_weights: self.base.weights(),
            index: index.fingerprint().to_string(),
            seed: self.config.run.seed,
        })?;
        Ok(())
    }
}
