//! A trainer in the making: every part built or restored, all ranks together.
//!
//! In: configuration, folder, whether to resume, the ranks. Out: a [`Trainer`], and on rank 0 its logs begun. Always
//! holds: what fails on one rank ends all of them with its message, before anything is written into a new folder.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use hds::{LiveWeights, VersionedMixture};
use hds_loader::{Index, Loader, LoaderConfig};

use super::super::config::RunConfig;
use super::super::error::RunError;
use super::super::held_out::HeldOut;
use super::super::interrupt::Interrupt;
use super::super::ledger::{Opened, resume_point};
use super::super::precision::LossScale;
use super::super::state::RunState;
use super::super::step::Watch;
use super::super::target::TargetText;
use super::super::{alike, optimizer_file, setup};
use super::{Place, Start, Trainer};
use crate::distributed::{Group, Shares};
use crate::gradients::{DomainGradients, WeightNorms};
use crate::optimizer::AdamW;
use crate::reward::RewardModel;
use crate::scheduler::Troubles;

impl Trainer {
    /// Opens the index, builds or restores every part, and starts or continues the logs. Every rank of the group calls
    /// it, with the same configuration. An end that is asked for meanwhile is heeded.
    ///
    /// # Errors
    /// Whatever is wrong with configuration, index, folder or checkpoint, on this rank or another.
    pub fn in_group(
        config: RunConfig,
        out: &Path,
        start: Start,
        group: Rc<Group>,
        interrupt: &Interrupt,
    ) -> Result<Self, RunError> {
        alike::check_start(&config, out, start, &group)?;
        let opened = if group.leads() {
            Opened::open(&config, out, start).map(Some)
        } else {
            Ok(None)
        };
        let opened = group.agree(opened)?;
        let resumed = resume_point(opened.as_ref(), out, &group)?;
        let saved = resumed.as_deref().map(RunState::read).transpose();
        let saved = group.agree(saved)?;
        let same = Rc::clone(&group);
        let built = Self::build(config, out, resumed, saved.as_ref(), same, interrupt);
        let mut trainer = group.agree(built)?;
        trainer.align()?;
        let header = trainer.loader.config().log_header(&trainer.index);
        let begun = opened
            .map(|opened| opened.begin(&trainer.config, &header, saved.as_ref(), group.world()))
            .transpose()
            .and_then(|ledger| {
                trainer.ledger = ledger;
                match saved {
                    None => trainer.write_run_record(),
                    Some(_) => Ok(()),
                }
            });
        group.agree(begun)?;
        Ok(trainer)
    }

    /// Every part but the logs. Waits for no other rank, so that one that fails here does not keep them.
    fn build(
        config: RunConfig,
        out: &Path,
        resumed: Option<PathBuf>,
        saved: Option<&RunState>,
        group: Rc<Group>,
        interrupt: &Interrupt,
    ) -> Result<Self, RunError> {
        let device = setup::prepare_device(&config.run, &group)?;
        let data = &config.data;
        let index = Index::open_from(&data.index, data.access, &data.remote())?;
        let domains = index.domains().clone();
        let base = setup::base_weights(&config, &index)?;
        let target = config.data.target.resolve(&domains, &base)?;

        let loader_config = LoaderConfig {
            sequence_length: config.data.sequence_length,
            batch_size: config.data.batch_size,
            seed: config.run.seed,
            minimum_per_domain: config.data.minimum_per_domain,
            rank: group.rank(),
            world_size: group.world(),
            ..LoaderConfig::default()
        };
        if let Some(saved) = saved {
            // First of all: of another index, nothing else fits either, and says so less clearly.
            saved.loader.check(&index, &loader_config)?;
        }

        let model = setup::model(&config, &index, device, resumed.as_deref(), interrupt)?;
        let parameters = model.parameters();
        let shares = Shares::new(&parameters, &group);
        let adamw = config.optimizer.adamw();
        let decaying = model.parameters_decaying(config.optimizer.decay_on);
        let mut optimizer = AdamW::sharded(decaying, shares.own(), adamw);
        let schedule = config.optimizer.schedule(config.run.steps);
        let blocks = config
            .signals
            .layers
            .resolve(model.config().num_hidden_layers as usize)?;
        let facts = setup::run_facts(
            &config,
            &index,
            &base,
            &target,
            &model,
            blocks.len(),
            device,
        );
        if let Some(warning) = crate::scheduler::size_warning(&config.scheduler, &facts)
            && group.leads()
        {
            hds::note!("warning: {warning}");
        }
        let mut policy = crate::scheduler::build(&config.scheduler, &facts)?;
        let reward = RewardModel::new(config.reward.clone(), domains.len());
        let mut reward = reward.with_target(target.weights())?;
        let mut watch = Watch {
            norms: WeightNorms::new(model.output_projections(&blocks)),
            gradients: policy
                .wants_rewards()
                .then(|| DomainGradients::new(domains.len(), config.signals.gradients)),
            blocks,
        };
        if let (Some(checkpoint), Some(saved)) = (&resumed, saved) {
            let path = checkpoint.join("optimizer.safetensors");
            optimizer_file::read(&path, &mut optimizer, device)?;
            watch.norms.restore(&saved.weight_change_norms)?;
            if group.leads() {
                policy.restore(&checkpoint.join("policy"))?;
                reward.restore(&saved.reward)?;
            }
        }

        let readable = setup::readable(&index, config.data.sequence_length);
        let (version, raw, step) = match saved {
            Some(saved) => (saved.weights_version, saved.weights.clone(), saved.step),
            None => (1, policy.initial(), 0),
        };
        let live = LiveWeights::resumed(VersionedMixture {
            version,
            mixture: setup::mixture(raw, &domains, &readable, policy.name(), step)?,
        });
        let loader = match saved {
            Some(s) => Loader::resume(index.clone(), live.clone(), loader_config, &s.loader)?,
            None => Loader::new(index.clone(), live.clone(), loader_config)?,
        };
        let held_out = HeldOut::new(&index, &config)?;
        let target_text = TargetText::new(&target, &readable, config.signals.target_sequences);
        for domain in held_out.empty().into_iter().filter(|_| group.leads()) {
            hds::note!(
                "warning: domain {:?} has no held-out sequence of {} tokens; its perplexity is left out \
                 (hds-index build --valid-fraction)",
                domains.name(domain),
                config.data.sequence_length
            );
        }
        let place = saved.map_or_else(Place::default, |saved| Place {
            step: saved.step,
            tokens: saved.tokens,
            updates: saved.updates,
            bad_steps: saved.bad_steps,
            last_loss: f64::NAN,
            gave_up: false,
        });
        let loss_scale = match saved {
            Some(saved) => saved.loss_scale.clone(),
            None => LossScale::of(config.run.precision),
        };
        Ok(Self {
            config,
            out: out.to_owned(),
            ledger: None,
            index,
            domains,
            target_text,
            readable,
            base,
            target,
            model,
            parameters,
            optimizer,
            shares,
            schedule,
            live,
            loader,
            loss_scale,
            watch,
            reward,
            policy: group.leads().then_some(policy),
            held_out,
            troubles: Troubles::default(),
            saved: resumed.map(|path| (place.step, path)),
            place,
            group,
        })
    }

    /// Sees to it that all ranks begin with the same.
    fn align(&mut self) -> Result<(), RunError> {
        let weights = self.live.read();
        let facts = [
            ("index", self.index.fingerprint().to_string()),
            ("step", self.place.step.to_string()),
            ("domain weights", format!("{:?}", weights.mixture.weights())),
        ];
        alike::check_place(&facts, &self.group)?;
        if !self.group.is_alone() {
            // Also where machines differ in the last bit of what they initialise.
            self.shares.gather_weights(&self.parameters, &self.group)?;
        }
        Ok(())
    }
}
