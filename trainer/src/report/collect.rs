//! What a report knows of a run, gathered in one pass over its log.
//!
//! Legend: K domains. In: the records in file order. Out: a [`Run`]: header, totals, downsampled
//! series, evaluations, per-domain figures. Always holds: every K-vector taken in has the header's
//! length; a step that was logged before is left out and counted; nothing grows with the steps.

use std::collections::BTreeMap;
use std::path::Path;

use super::METRICS_FILE;
use super::bucket::{ColumnId, Timeline};
use super::domains::DomainFigures;
use super::error::ReportError;
use super::reader::{Seen, for_each_record};
use super::record::{EvalRecord, Maybe, Record, RunRecord, StepRecord};

/// Evaluations kept; beyond, every second one is dropped.
const EVALUATIONS: usize = 800;
/// Diagnostics plotted, by name; a policy has a handful.
const DIAGNOSTICS: usize = 32;

/// A run as its report sees it.
pub struct Run {
    /// The log's first line.
    pub header: RunRecord,
    /// All series over steps.
    pub timeline: Timeline,
    /// Where each series is.
    pub columns: Columns,
    /// Evaluations in order, the last one included.
    pub evaluations: Vec<EvalRecord>,
    /// Of each domain; length K.
    pub domains: Vec<DomainFigures>,
    /// Sums over the whole run.
    pub totals: Totals,
    /// What else the log held.
    pub seen: Seen,
    newest_evaluation: Option<EvalRecord>,
    evaluation_stride: usize,
    evaluations_seen: usize,
}

/// Columns of the run's timeline.
pub struct Columns {
    pub loss: ColumnId,
    pub learning_rate: ColumnId,
    pub gradient_norm: ColumnId,
    pub tokens_per_second: ColumnId,
    pub step_seconds: ColumnId,
    pub scheduler_seconds: ColumnId,
    /// Σ_i a_i r_i of the total reward under the weights in force, the base weights, uniform weights.
    pub expected_reward: [ColumnId; 3],
    pub stability: ColumnId,
    /// ½ Σ_i |a_i − b_i| between the weights in force and the base weights.
    pub departure: ColumnId,
    /// exp of the entropy of the weights in force.
    pub effective_domains: ColumnId,
    /// Length K each.
    pub weights: Vec<ColumnId>,
    pub alignment_raw: Vec<ColumnId>,
    pub alignment: Vec<ColumnId>,
    pub diversity: Vec<ColumnId>,
    pub total: Vec<ColumnId>,
    /// The policy's diagnostics by name.
    pub policy: BTreeMap<String, ColumnId>,
}

/// Sums over the whole run.
#[derive(Debug, Default)]
pub struct Totals {
    pub steps: u64,
    pub first_step: Option<u64>,
    pub last_step: Option<u64>,
    pub tokens: u64,
    /// Steps logged again, left out.
    pub repeated_steps: u64,
    pub step_seconds: f64,
    pub scheduler_seconds: f64,
    pub evaluation_seconds: f64,
    /// Tokens of the steps that were timed.
    pub timed_tokens: f64,
    /// Whether the last step belonged to the warm-up.
    pub in_warm_up: bool,
    /// Whether the policy itself said `warm_up` = 1, and the first step after that.
    pub warm_up_seen: bool,
    pub warm_up_end: Option<u64>,
    pub rewarded_steps: u64,
}

/// Reads the log of a run folder.
///
/// # Errors
/// If it is missing or not a metrics log of ours, with file and line.
pub fn read_run(folder: &Path) -> Result<Run, ReportError> {
    let path = folder.join(METRICS_FILE);
    if !path.exists() {
        let folder = folder.to_owned();
        return Err(ReportError::Missing { folder, path });
    }
    let mut run: Option<Run> = None;
    let seen = for_each_record(&path, |record, _| match (&mut run, record) {
        (None, Record::Run(header)) => {
            run = Some(Run::new(*header)?);
            Ok(())
        }
        (None, Record::Step(_)) => Err("it is a \"step\"".to_owned()),
        (None, Record::Eval(_)) => Err("it is an \"eval\"".to_owned()),
        (None, Record::Other) => Err("it is of another kind".to_owned()),
        (Some(run), Record::Run(header)) => run.check_same(&header),
        (Some(run), Record::Step(step)) => run.add_step(&step),
        (Some(run), Record::Eval(eval)) => run.add_evaluation(*eval),
        (Some(_), Record::Other) => Ok(()),
    })?;
    let mut run = run.ok_or_else(|| ReportError::NotMetrics {
        path,
        reason: "the file is empty".to_owned(),
    })?;
    run.seen = seen;
    if let Some(newest) = run.newest_evaluation.take() {
        let kept = run.evaluations.last().map(|e| e.step);
        if kept != Some(newest.step) {
            run.evaluations.push(newest);
        }
    }
    Ok(run)
}

impl Run {
    fn new(header: RunRecord) -> Result<Self, String> {
        let domains = header.domains.len();
        if domains == 0 {
            return Err("\"domains\" is empty".to_owned());
        }
        check_length("base_weights", header.base_weights.len(), domains)?;
        let mut timeline = Timeline::default();
        let columns = Columns::new(&mut timeline, domains);
        let figures = |(name, base): (&String, &Maybe)| DomainFigures::new(name, *base);
        Ok(Self {
            domains: header
                .domains
                .iter()
                .zip(&header.base_weights)
                .map(figures)
                .collect(),
            header,
            timeline,
            columns,
            evaluations: Vec::new(),
            totals: Totals::default(),
            seen: Seen::default(),
            newest_evaluation: None,
            evaluation_stride: 1,
            evaluations_seen: 0,
        })
    }

    fn check_same(&self, header: &RunRecord) -> Result<(), String> {
        if header.domains == self.header.domains {
            return Ok(());
        }
        Err("a second \"run\" record with other domains; one log holds one run".to_owned())
    }

    fn add_step(&mut self, record: &StepRecord) -> Result<(), String> {
        let domains = self.domains.len();
        check_length("weights", record.weights.len(), domains)?;
        check_length("samples", record.samples.len(), domains)?;
        if let Some(mtld) = &record.mtld {
            check_length("mtld", mtld.len(), domains)?;
        }
        if let Some(r) = &record.rewards {
            check_length("rewards.alignment_raw", r.alignment_raw.len(), domains)?;
            check_length("rewards.alignment", r.alignment.len(), domains)?;
            check_length("rewards.diversity", r.diversity.len(), domains)?;
            check_length("rewards.total", r.total.len(), domains)?;
        }
        if self
            .totals
            .last_step
            .is_some_and(|last| record.step <= last)
        {
            self.totals.repeated_steps += 1;
            return Ok(());
        }
        let warm_up = self.totals.take_step(record, self.header.warmup_steps);
        for (domain, figures) in self.domains.iter_mut().enumerate() {
            figures.add_step(domain, record, warm_up);
        }
        self.timeline.begin(record.step);
        let base = &self.header.base_weights;
        self.columns.add_step(&mut self.timeline, record, base);
        Ok(())
    }

    fn add_evaluation(&mut self, record: EvalRecord) -> Result<(), String> {
        check_length("losses", record.losses.len(), self.domains.len())?;
        let newest = self.newest_evaluation.as_ref();
        if newest.is_some_and(|newest| record.step <= newest.step) {
            return Ok(());
        }
        if let Some(seconds) = record.timing.as_ref().and_then(|t| t.seconds) {
            self.totals.evaluation_seconds += seconds;
        }
        let after_warm_up = self.totals.steps > 0 && !self.totals.in_warm_up;
        for (figures, loss) in self.domains.iter_mut().zip(&record.losses) {
            figures.add_evaluation(record.step, *loss, after_warm_up);
        }
        if self.evaluations_seen.is_multiple_of(self.evaluation_stride) {
            self.evaluations.push(record.clone());
        }
        if self.evaluations.len() > EVALUATIONS {
            let mut indices = 0..self.evaluations.len();
            self.evaluations
                .retain(|_| indices.next().is_some_and(|i| i % 2 == 0));
            self.evaluation_stride *= 2;
        }
        self.evaluations_seen += 1;
        self.newest_evaluation = Some(record);
        Ok(())
    }

    /// The first step after the warm-up, where there is one.
    pub fn warm_up_end(&self) -> Option<u64> {
        let totals = &self.totals;
        match totals.warm_up_seen {
            true => totals.warm_up_end,
            false if totals.rewarded_steps == 0 => None,
            false => self.header.warmup_steps.filter(|steps| *steps > 0),
        }
    }

    /// Steps from the first to past the last of anything logged, the range of every step axis.
    pub fn step_range(&self) -> (f64, f64) {
        let first = self.totals.first_step.into_iter();
        let lo = first.chain(self.evaluations.first().map(|e| e.step)).min();
        let last = self.totals.last_step.into_iter();
        let hi = last.chain(self.evaluations.last().map(|e| e.step)).max();
        let lo = lo.unwrap_or(0) as f64;
        (lo, (hi.unwrap_or(0) as f64).max(lo + 1.0))
    }

    /// Series of an evaluation figure.
    pub fn evaluated(&self, value: impl Fn(&EvalRecord) -> Maybe) -> Vec<Maybe> {
        self.evaluations.iter().map(value).collect()
    }

    /// Means of a column.
    pub fn means(&self, column: ColumnId) -> Vec<Maybe> {
        self.timeline.means(column)
    }
}

impl Totals {
    /// Takes a new step in and says whether it belongs to the warm-up.
    fn take_step(&mut self, record: &StepRecord, planned: Option<u64>) -> bool {
        self.steps += 1;
        self.first_step.get_or_insert(record.step);
        self.last_step = Some(record.step);
        self.tokens = record.tokens.unwrap_or(self.tokens);
        self.rewarded_steps += u64::from(record.rewards.is_some());
        if let Some(timing) = &record.timing {
            let seconds = timing.step_seconds.unwrap_or(0.0);
            self.step_seconds += seconds;
            self.timed_tokens += seconds * timing.tokens_per_second.unwrap_or(0.0);
            self.scheduler_seconds += timing.scheduler_seconds.unwrap_or(0.0);
        }
        let flag = record.policy.as_ref().and_then(|p| p.get("warm_up"));
        self.in_warm_up = match flag.copied().flatten() {
            None => record.step < planned.unwrap_or(0),
            Some(flag) => flag != 0.0,
        };
        if self.warm_up_seen && !self.in_warm_up {
            self.warm_up_end.get_or_insert(record.step);
        }
        self.warm_up_seen |= self.in_warm_up && flag.is_some();
        self.in_warm_up
    }
}

impl Columns {
    fn new(timeline: &mut Timeline, domains: usize) -> Self {
        let mut each = || (0..domains).map(|_| timeline.column(false)).collect();
        Self {
            weights: each(),
            alignment_raw: each(),
            alignment: each(),
            diversity: each(),
            total: each(),
            loss: timeline.column(true),
            learning_rate: timeline.column(false),
            gradient_norm: timeline.column(true),
            tokens_per_second: timeline.column(true),
            step_seconds: timeline.column(true),
            scheduler_seconds: timeline.column(true),
            expected_reward: [(); 3].map(|()| timeline.column(false)),
            stability: timeline.column(true),
            departure: timeline.column(false),
            effective_domains: timeline.column(false),
            policy: BTreeMap::new(),
        }
    }

    fn add_step(&mut self, timeline: &mut Timeline, record: &StepRecord, base: &[Maybe]) {
        timeline.add(self.loss, record.loss);
        timeline.add(self.learning_rate, record.learning_rate);
        timeline.add(self.gradient_norm, record.gradient_norm);
        if let Some(timing) = &record.timing {
            timeline.add(self.tokens_per_second, timing.tokens_per_second);
            timeline.add(self.step_seconds, timing.step_seconds);
            timeline.add(self.scheduler_seconds, timing.scheduler_seconds);
        }
        add_each(timeline, &self.weights, &record.weights);
        timeline.add(self.departure, departure(&record.weights, base));
        timeline.add(self.effective_domains, effective_domains(&record.weights));
        if let Some(rewards) = &record.rewards {
            add_each(timeline, &self.alignment_raw, &rewards.alignment_raw);
            add_each(timeline, &self.alignment, &rewards.alignment);
            add_each(timeline, &self.diversity, &rewards.diversity);
            add_each(timeline, &self.total, &rewards.total);
            timeline.add(self.stability, rewards.stability);
            let uniform = vec![Some(1.0 / base.len() as f64); base.len()];
            let [acting, under_base, under_uniform] = self.expected_reward;
            timeline.add(acting, expected(&record.weights, &rewards.total));
            timeline.add(under_base, expected(base, &rewards.total));
            timeline.add(under_uniform, expected(&uniform, &rewards.total));
        }
        for (name, value) in record.policy.iter().flatten() {
            let full = self.policy.len() >= DIAGNOSTICS;
            if name == "warm_up" || full && !self.policy.contains_key(name) {
                continue;
            }
            let id = *self
                .policy
                .entry(name.clone())
                .or_insert_with(|| timeline.column(true));
            timeline.add(id, *value);
        }
    }
}

fn add_each(timeline: &mut Timeline, columns: &[ColumnId], values: &[Maybe]) {
    for (column, value) in columns.iter().zip(values) {
        timeline.add(*column, *value);
    }
}

/// Σ_i a_i r_i.
fn expected(weights: &[Maybe], rewards: &[Maybe]) -> Maybe {
    let pairs = weights.iter().zip(rewards);
    pairs.map(|(a, r)| Some((*a)? * (*r)?)).sum()
}

/// Total variation distance, ½ Σ_i |a_i − b_i|.
fn departure(weights: &[Maybe], base: &[Maybe]) -> Maybe {
    let pairs = weights.iter().zip(base);
    let sum: Maybe = pairs.map(|(a, b)| Some(((*a)? - (*b)?).abs())).sum();
    sum.map(|s| s / 2.0)
}

/// exp(−Σ_i a_i ln a_i).
fn effective_domains(weights: &[Maybe]) -> Maybe {
    let terms = weights.iter();
    let sum: Maybe = terms
        .map(|a| a.map(|a| if a > 0.0 { -a * a.ln() } else { 0.0 }))
        .sum();
    sum.map(f64::exp)
}

fn check_length(field: &str, got: usize, want: usize) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!(
        "{field} has {got} values, but the run has {want} domains"
    ))
}
