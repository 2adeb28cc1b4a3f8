//! What a report knows of a run, gathered in one pass over its log.
//!
//! Legend: K domains. In: the records in file order. Out: a [`Run`]: header, totals, downsampled
//! series, evaluations, per-domain figures. Always holds: every K-vector taken in has the header's
//! length; a step that was logged before is left out and counted; nothing grows with the steps.

use std::path::Path;

use super::METRICS_FILE;
use super::bucket::{ColumnId, Timeline};
use super::columns::Columns;
use super::domains::DomainFigures;
use super::error::ReportError;
use super::reader::{Seen, for_each_record};
use super::record::{EvalRecord, Maybe, Record, RunRecord, StepRecord};

/// Evaluations kept; beyond, every second one is dropped.
const EVALUATIONS: usize = 800;

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
    /// Steps after which the run gave up, where that was its end.
    pub gave_up: Option<u64>,
    newest_evaluation: Option<EvalRecord>,
    evaluation_stride: usize,
    evaluations_seen: usize,
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
        (None, Record::GaveUp(_) | Record::Other) => Err("it is of another kind".to_owned()),
        (Some(run), Record::Run(header)) => run.check_same(&header),
        (Some(run), Record::Step(step)) => run.add_step(&step),
        (Some(run), Record::Eval(eval)) => run.add_evaluation(*eval),
        (Some(run), Record::GaveUp(record)) => {
            run.gave_up = Some(record.step);
            Ok(())
        }
        (Some(_), Record::Other) => Ok(()),
    })?;
    let mut run = run.ok_or_else(|| ReportError::NotMetrics {
        path,
        reason: "the file is empty".to_owned(),
    })?;
    run.seen = seen;
    // One that was gone on with has steps after it.
    let done = run.totals.last_step.map_or(0, |last| last + 1);
    run.gave_up = run.gave_up.filter(|&steps| steps >= done);
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
        if let Some(target) = &header.target_weights {
            check_length("target_weights", target.len(), domains)?;
        }
        let mut timeline = Timeline::default();
        let columns = Columns::new(&mut timeline, domains);
        let target = header.target();
        let figures = |(i, (name, base)): (usize, (&String, &Maybe))| DomainFigures {
            target: target.as_ref().map(|weights| weights[i]),
            ..DomainFigures::new(name, *base)
        };
        let named = header.domains.iter().zip(&header.base_weights);
        Ok(Self {
            domains: named.enumerate().map(figures).collect(),
            header,
            timeline,
            columns,
            evaluations: Vec::new(),
            totals: Totals::default(),
            seen: Seen::default(),
            gave_up: None,
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
        // At least a step, and more than the rounding of the largest steps there can be.
        (lo, (hi.unwrap_or(0) as f64).max(lo + 1.0 + lo * 1e-12))
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

fn check_length(field: &str, got: usize, want: usize) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!(
        "{field} has {got} values, but the run has {want} domains"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Synthetic;
    use std::fs;
    use tempfile::TempDir;

    fn read(lines: &[String]) -> Run {
        let folder = TempDir::new().expect("a temporary folder");
        fs::write(folder.path().join(METRICS_FILE), lines.concat()).expect("written");
        read_run(folder.path()).expect("a run")
    }

    #[test]
    fn many_evaluations_are_thinned_and_the_last_one_stays() {
        let run = Synthetic::new(2, 4000);
        let lines = std::iter::once(run.run()).chain((0..=3001).map(|step| run.evaluation(step)));
        let read = read(
            &lines
                .map(|record| format!("{record}\n"))
                .collect::<Vec<_>>(),
        );
        let steps: Vec<u64> = read.evaluations.iter().map(|e| e.step).collect();
        assert!(steps.len() <= EVALUATIONS + 1, "{}", steps.len());
        assert_eq!(steps[..3], [0, 4, 8]);
        assert_eq!(steps.last(), Some(&3001));
        assert!((read.totals.evaluation_seconds - 3002.0 * 4.2).abs() < 1e-6);
    }

    #[test]
    fn figures_of_a_domain_begin_where_the_warm_up_ends() {
        let run = Synthetic::new(3, 200);
        assert_eq!(run.warmup_steps, 4);
        let mut lines = vec![run.run(), run.evaluation(0)];
        lines.extend((0..4).map(|step| run.step(step)));
        lines.push(run.evaluation(4));
        lines.extend((4..200).map(|step| run.step(step)));
        lines.push(run.evaluation(200));
        let read = read(
            &lines
                .iter()
                .map(|record| format!("{record}\n"))
                .collect::<Vec<_>>(),
        );
        assert_eq!(read.warm_up_end(), Some(4));
        let loss = |steps| run.evaluation(steps)["losses"][1].as_f64().expect("a loss");
        let domain = &read.domains[1];
        assert_eq!(domain.held_out.first, Some((0, loss(0))));
        assert_eq!(domain.gain(), Some(loss(4) - loss(200)));
        let mean = (4..200).map(|step| run.weights(step)[1]).sum::<f64>() / 196.0;
        let ratio = domain.weight_ratio().expect("a ratio");
        assert!((ratio - mean / run.base_weights()[1]).abs() < 1e-12);
    }
}
