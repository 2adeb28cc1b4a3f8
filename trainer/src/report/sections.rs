//! The parts of the page, each from the same view of a run.

pub mod agent;
pub mod cost;
pub mod judgement;
pub mod learning;
pub mod overview;
pub mod rewards;
pub mod table;
pub mod weights;

use super::bucket::{ColumnId, blur};
use super::collect::Run;
use super::domains::DomainFigures;
use super::plot::{Frame, Line, Look, StepAxis};
use super::record::Maybe;

/// A run with the axes that every part shares.
pub struct View<'a> {
    pub run: &'a Run,
    pub axis: StepAxis,
    /// Middles of the buckets of all series.
    pub steps: Vec<f64>,
    /// Steps of the evaluations.
    pub evaluated_at: Vec<f64>,
    /// Places in the log's vectors, in the page's order: heaviest base weight first.
    pub order: Vec<usize>,
    /// Smoothed weights in the page's order: a policy that draws its weights anew at every step
    /// would otherwise hide where it is going.
    pub weights: Vec<Vec<Maybe>>,
}

/// The value of a series that has only one.
pub fn constant(values: &[Maybe]) -> Maybe {
    let mut finite = values.iter().flatten();
    let first = finite.next()?;
    finite.all(|value| value == first).then_some(*first)
}

impl<'a> View<'a> {
    /// Looks at a run.
    pub fn new(run: &'a Run) -> Self {
        let (lo, hi) = run.step_range();
        let warm_up_end = run.warm_up_end().map(|step| step as f64);
        let mut order: Vec<usize> = (0..run.domains.len()).collect();
        let base = |i: usize| run.domains[i].base.unwrap_or(0.0);
        order.sort_by(|a, b| base(*b).total_cmp(&base(*a)));
        let steps = run.timeline.middles();
        let split = steps.partition_point(|step| warm_up_end.is_some_and(|end| *step < end));
        let width = (steps.len() as f64 * 0.015).max(1.0);
        let smoothed = |i: &usize| blur(&run.means(run.columns.weights[*i]), width, split);
        Self {
            weights: order.iter().map(smoothed).collect(),
            run,
            axis: StepAxis {
                lo,
                hi,
                warm_up_end,
            },
            steps,
            evaluated_at: run.evaluations.iter().map(|e| e.step as f64).collect(),
            order,
        }
    }

    /// The domains' figures in the page's order.
    pub fn domains(&self) -> impl Iterator<Item = &'a DomainFigures> {
        let domains = &self.run.domains;
        self.order.iter().map(move |i| &domains[*i])
    }

    /// Name and series of every domain in the page's order.
    pub fn series(&self, columns: &[ColumnId]) -> Vec<(&'a str, Vec<Maybe>)> {
        let of = |i: &usize| {
            (
                self.run.domains[*i].name.as_str(),
                self.run.means(columns[*i]),
            )
        };
        self.order.iter().map(of).collect()
    }

    /// A line with its raw values behind.
    pub fn smoothed(&self, name: &str, look: Look, column: ColumnId) -> Line {
        Line::smoothed(name, look, &self.run.timeline, column)
    }

    /// A frame of the usual size; change what differs.
    pub fn frame<'f>(&self, id: &'f str, title: &'f str, note: &'f str) -> Frame<'f> {
        Frame {
            id,
            title,
            note,
            height: 220.0,
            axis: self.axis,
            end_labels: false,
            row_labels: false,
            wide: false,
        }
    }

    /// Height of a plot whose lines have a label each.
    pub fn labelled_height(&self) -> f64 {
        match self.labels_fit() {
            true => (self.order.len() as f64 * 13.5 + 10.0).max(260.0),
            false => 420.0,
        }
    }

    /// Whether each domain can have a label of its own beside a plot.
    pub fn labels_fit(&self) -> bool {
        self.order.len() <= 48
    }

    /// Evaluations before the first step, which would stretch an axis to no use, where enough follow.
    pub fn untrained(&self) -> usize {
        let before = self
            .evaluated_at
            .iter()
            .filter(|step| **step == 0.0)
            .count();
        if self.evaluated_at.len() >= before + 3 {
            before
        } else {
            0
        }
    }

    /// Why a series of steps may be empty.
    pub fn no_steps(&self) -> &'static str {
        match self.run.totals.steps {
            0 => "no step was logged yet",
            _ => "no finite value was logged",
        }
    }

    /// Why the rewards may be empty.
    pub fn no_rewards(&self) -> String {
        match (self.run.totals.steps, self.run.totals.rewarded_steps) {
            (0, _) => "no step was logged yet".to_owned(),
            (_, 0) => format!(
                "the run logged no rewards (policy {})",
                self.run.header.policy
            ),
            _ => "no finite value was logged".to_owned(),
        }
    }

    /// Why the held-out figures may be empty.
    pub fn no_evaluations(&self) -> &'static str {
        match self.run.evaluations.is_empty() {
            true => "no held-out evaluation was logged",
            false => "nothing is held out, or no loss was finite",
        }
    }
}
