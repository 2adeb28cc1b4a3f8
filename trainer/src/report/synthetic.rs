//! A log as a real run would write it, for tests: losses that fall at their own pace, weights that
//! leave the base weights after the warm-up, noisy rewards, an agent that begins late.

use std::f64::consts::TAU;
use std::io::{self, Write};

use serde_json::{Value, json};

/// The run to imitate.
pub struct Synthetic {
    pub domains: Vec<String>,
    pub steps: u64,
    pub warmup_steps: u64,
    pub evaluation_interval: u64,
    /// Without rewards and diagnostics, as fixed weights have it.
    pub fixed: bool,
    /// Logged where given, as by runs with a target; length K.
    pub target: Option<Vec<f64>>,
}

impl Synthetic {
    /// K domains, T steps, a warm-up of 2 %, 20 evaluations.
    pub fn new(domains: usize, steps: u64) -> Self {
        const NAMES: [&str; 22] = [
            "Pile-CC",
            "PubMed Central",
            "Books3",
            "OpenWebText2",
            "ArXiv",
            "Github",
            "FreeLaw",
            "StackExchange",
            "USPTO Backgrounds",
            "PubMed Abstracts",
            "Gutenberg (PG-19)",
            "OpenSubtitles",
            "Wikipedia (en)",
            "DM Mathematics",
            "Ubuntu IRC",
            "BookCorpus2",
            "EuroParl",
            "HackerNews",
            "YoutubeSubtitles",
            "PhilPapers",
            "NIH ExPorter",
            "Enron Emails",
        ];
        let name = |i: usize| match NAMES.get(i) {
            Some(name) => (*name).to_owned(),
            None => format!("domain-{i}"),
        };
        Self {
            domains: (0..domains).map(name).collect(),
            steps,
            warmup_steps: steps / 50,
            evaluation_interval: (steps / 20).max(1),
            fixed: false,
            target: None,
        }
    }

    /// The weights that the imitated run starts from.
    pub fn base_weights(&self) -> Vec<f64> {
        normalised(
            (0..self.domains.len())
                .map(|i| 0.82f64.powi(i as i32))
                .collect(),
        )
    }

    /// Writes the whole log.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "{}", self.run())?;
        writeln!(to, "{}", self.evaluation(0))?;
        for step in 0..self.steps {
            writeln!(to, "{}", self.step(step))?;
            if (step + 1) % self.evaluation_interval == 0 {
                writeln!(to, "{}", self.evaluation(step + 1))?;
            }
        }
        to.flush()
    }

    /// The first record.
    pub fn run(&self) -> Value {
        let mut record = json!({
            "kind": "run", "domains": self.domains, "policy": if self.fixed { "fixed" } else { "hds" },
            "preset": "cpu-small", "parameters": 6_815_744, "agent_parameters": if self.fixed { 0 } else { 184_320 },
            "sequence_length": 128, "batch_size": 40, "total_steps": self.steps, "warmup_steps": self.warmup_steps,
            "base_weights": self.base_weights(), "index": "b3:5f0c6d1e9a7742bb8f", "seed": 7,
        });
        if let Some(target) = &self.target {
            record["target_weights"] = json!(target);
        }
        record
    }

    /// The weights in force at a step: noisy base weights, then a drift towards every other domain.
    pub fn weights(&self, step: u64) -> Vec<f64> {
        let base = self.base_weights();
        let mut weights = base.clone();
        for (i, weight) in weights.iter_mut().enumerate() {
            let warm = step < self.warmup_steps || self.fixed;
            let noise = if self.fixed {
                0.0
            } else {
                0.02 * noise(step, i as u64, 1)
            };
            let since = step.saturating_sub(self.warmup_steps) as f64 / self.steps as f64;
            let pull = if warm {
                0.0
            } else {
                (1.0 - (-6.0 * since).exp()) * 1.6 * (i as f64 * 1.7).sin()
            };
            let wave = if warm {
                0.0
            } else {
                0.15 * (TAU * (3.0 * since + i as f64 * 0.13)).sin()
            };
            *weight =
                (*weight * (pull + wave).exp() + noise * if warm { 1.0 } else { 0.12 }).max(0.0005);
        }
        normalised(weights)
    }

    /// A step's record.
    pub fn step(&self, step: u64) -> Value {
        let count = self.domains.len();
        let weights = self.weights(step);
        let progress = step as f64 / self.steps.max(1) as f64;
        let samples: Vec<u64> = (0..count)
            .map(|i| (40.0 * weights[i] + noise(step, i as u64, 2).abs()).round() as u64)
            .collect();
        let seen = |i: usize, value: f64| (samples[i] > 0).then_some(value);
        let losses: Vec<_> = (0..count)
            .map(|i| seen(i, self.loss(i, step) + 0.1 * noise(step, i as u64, 3)))
            .collect();
        let mtld: Vec<_> = (0..count)
            .map(|i| seen(i, 30.0 + 5.0 * i as f64 + 4.0 * noise(step, i as u64, 4)))
            .collect();
        let loss = (0..count)
            .map(|i| weights[i] * self.loss(i, step))
            .sum::<f64>()
            + 0.06 * noise(step, 0, 5);
        let raw: Vec<f64> = (0..count)
            .map(|i| {
                0.01 * ((i as f64 * 1.7).sin() + 1.2 * noise(step, i as u64, 6))
                    / (1.0 + 3.0 * progress)
            })
            .collect();
        let alignment: Vec<f64> = raw
            .iter()
            .map(|r| (r * 100.0 * (1.0 + 3.0 * progress)).clamp(-3.0, 3.0))
            .collect();
        let diversity: Vec<f64> = (0..count)
            .map(|i| progress * 3.0 / (1.0 + 0.3 * i as f64))
            .collect();
        let stability = (1.5 + progress * 4.0 + 0.4 * noise(step, 0, 7)).min(5.0);
        let total: Vec<f64> = (0..count)
            .map(|i| alignment[i] + 0.5 * diversity[i] + 0.1 * stability - 1.0)
            .collect();
        let acting = step >= self.warmup_steps;
        let update = (step.saturating_sub(self.warmup_steps)) as f64 / self.steps as f64;
        let when = |value: f64| acting.then_some(value);
        let policy = json!({
            "critic_loss": when(12.0 * (-5.0 * update).exp() * (1.0 + 0.3 * noise(step, 1, 8)).abs() + 0.3),
            "actor_loss": when(-2.0 * update + 0.2 * noise(step, 2, 8)),
            "alpha": when(0.2 * (-2.0 * update).exp()), "entropy": when(-40.0 + 3.0 * noise(step, 3, 8) * 0.2 - 4.0 * update),
            "updates": 2 * step.saturating_sub(self.warmup_steps), "warm_up": u8::from(!acting),
        });
        let seconds = 1.12 + 0.05 * noise(step, 0, 9) + if step % 97 == 3 { 0.8 } else { 0.0 };
        json!({
            "kind": "step", "step": step, "tokens": (step + 1) * 5120, "loss": loss,
            "learning_rate": 1e-3 * (progress * 50.0).min(1.0) * (0.55 + 0.45 * (progress * TAU / 2.0).cos()),
            "gradient_norm": 0.6 + 3.0 * (-8.0 * progress).exp() + 0.15 * noise(step, 0, 10).abs(),
            "weights_version": step, "weights": weights, "samples": samples, "losses": losses, "mtld": mtld,
            "rewards": if self.fixed { Value::Null } else { json!({
                "alignment_raw": raw, "alignment": alignment, "diversity": diversity, "stability": stability, "total": total,
            }) },
            "policy": if self.fixed { json!({}) } else { policy },
            "timing": { "step_seconds": seconds, "scheduler_seconds": 0.011 + 0.002 * noise(step, 0, 11).abs(), "tokens_per_second": 5120.0 / seconds },
        })
    }

    /// An evaluation's record.
    pub fn evaluation(&self, steps_done: u64) -> Value {
        let losses: Vec<f64> = (0..self.domains.len())
            .map(|i| self.loss(i, steps_done) + 0.05)
            .collect();
        let macro_loss = losses.iter().sum::<f64>() / losses.len() as f64;
        let under =
            |weights: Vec<f64>| -> f64 { losses.iter().zip(weights).map(|(l, w)| l * w).sum() };
        let base_loss = under(self.base_weights());
        let mut record = json!({
            "kind": "eval", "step": steps_done, "tokens": steps_done * 5120, "losses": losses,
            "macro_perplexity": macro_loss.exp(), "base_perplexity": base_loss.exp(), "timing": { "seconds": 4.2 },
        });
        if let Some(target) = &self.target {
            record["target_perplexity"] = json!(under(target.clone()).exp());
        }
        record
    }

    fn loss(&self, domain: usize, step: u64) -> f64 {
        let floor = 2.6 + 1.3 * (domain as f64 * 2.3).sin();
        let pace = 0.35 + 0.06 * (domain % 5) as f64;
        floor + (8.3 - floor) / (1.0 + 60.0 * step as f64 / self.steps.max(1) as f64).powf(pace)
    }
}

fn normalised(mut weights: Vec<f64>) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|w| *w /= sum);
    weights
}

/// Roughly normal noise, a function of its arguments.
fn noise(step: u64, domain: u64, stream: u64) -> f64 {
    let mut state =
        step.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ domain << 32 ^ stream << 48 ^ 0x5851_F42D;
    let mut uniform = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..4).map(|_| uniform() - 0.5).sum::<f64>() * 3f64.sqrt()
}
