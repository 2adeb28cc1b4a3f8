//! The replay: the last transitions, as rows of one flat ring.
//!
//! In: transitions, all of whose numbers are finite. Out: rows by place. Always holds: memory is
//! bounded by the capacity; a row that is not finite never enters.
//!
//! A row is: state's domain features [K·3], state's run features [G], action [K], rewards [K], next
//! state's domain features [K·3], next state's run features [G].

use super::state::{DOMAIN_FEATURES, State};

/// One step of the decision process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transition<'a> {
    /// What was known when the action was chosen.
    pub state: &'a State,
    /// The weights that governed the step; length K.
    pub action: &'a [f64],
    /// What the step was worth per domain; length K.
    pub rewards: &'a [f64],
    /// What the step showed.
    pub next: &'a State,
}

/// Where the parts of a row begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLayout {
    /// K.
    pub domains: usize,
    /// G.
    pub globals: usize,
}

impl RowLayout {
    /// Of K domains and so many watched layers: a layer's norm and its change, and t/T.
    pub(super) fn of(domains: usize, layers: usize) -> Self {
        Self {
            domains,
            globals: 2 * layers + 1,
        }
    }

    /// Length of a state.
    pub(super) fn state(self) -> usize {
        self.domains * DOMAIN_FEATURES + self.globals
    }

    /// Start of the action.
    pub(super) fn action(self) -> usize {
        self.state()
    }

    /// Start of the rewards.
    pub(super) fn rewards(self) -> usize {
        self.action() + self.domains
    }

    /// Start of the next state.
    pub(super) fn next(self) -> usize {
        self.rewards() + self.domains
    }

    /// Length of a row.
    pub(super) fn row(self) -> usize {
        self.next() + self.state()
    }
}

/// A ring of rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Replay {
    layout: RowLayout,
    capacity: usize,
    values: Vec<f32>,
    /// Row that the next transition overwrites once the ring is full.
    oldest: usize,
}

impl Replay {
    pub(super) fn new(layout: RowLayout, capacity: usize) -> Self {
        Self {
            layout,
            capacity: capacity.max(1),
            values: Vec::new(),
            oldest: 0,
        }
    }

    /// Rows held.
    pub(super) fn len(&self) -> usize {
        self.values.len() / self.layout.row()
    }

    /// A row by place, `0..len`.
    pub(super) fn row(&self, place: usize) -> &[f32] {
        let row = self.layout.row();
        &self.values[place * row..(place + 1) * row]
    }

    /// Takes a transition in; `false` if a number of it is not finite as f32.
    pub(super) fn push(&mut self, transition: &Transition<'_>) -> bool {
        let mut row = Vec::with_capacity(self.layout.row());
        row.extend_from_slice(&transition.state.domains);
        row.extend_from_slice(&transition.state.globals);
        row.extend(transition.action.iter().map(|&v| v as f32));
        row.extend(transition.rewards.iter().map(|&v| v as f32));
        row.extend_from_slice(&transition.next.domains);
        row.extend_from_slice(&transition.next.globals);
        if row.len() != self.layout.row() || row.iter().any(|v| !v.is_finite()) {
            return false;
        }
        if self.len() < self.capacity {
            self.values.extend_from_slice(&row);
        } else {
            let start = self.oldest * row.len();
            self.values[start..start + row.len()].copy_from_slice(&row);
            self.oldest = (self.oldest + 1) % self.capacity;
        }
        true
    }

    /// Mean and standard deviation of `of` over rows and what it gives of each, for scaling rewards.
    pub(super) fn statistics(
        &self,
        of: impl Fn(&[f32], &[f32], &mut dyn FnMut(f64)),
    ) -> (f64, f64) {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for place in 0..self.len() {
            let row = self.row(place);
            let action = &row[self.layout.action()..self.layout.rewards()];
            let rewards = &row[self.layout.rewards()..self.layout.next()];
            of(action, rewards, &mut |value| {
                count += 1.0;
                sum += value;
                squares += value * value;
            });
        }
        if count == 0.0 {
            return (0.0, 1.0);
        }
        let mean: f64 = sum / count;
        let variance: f64 = (squares / count - mean * mean).max(0.0);
        (mean, variance.sqrt())
    }

    /// All rows end to end, and the place of the oldest: what [`Self::restore`] takes.
    pub(super) fn saved(&self) -> (&[f32], usize) {
        (&self.values, self.oldest)
    }

    /// Takes saved rows in; `None` if they do not fit the layout and capacity or are not finite.
    pub(super) fn restore(&mut self, values: Vec<f32>, oldest: usize) -> Option<()> {
        let row = self.layout.row();
        let rows = values.len() / row;
        let fits = values.len().is_multiple_of(row)
            && rows <= self.capacity
            && (oldest == 0 || (rows == self.capacity && oldest < rows))
            && values.iter().all(|v| v.is_finite());
        fits.then(|| {
            self.values = values;
            self.oldest = oldest;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: RowLayout = RowLayout {
        domains: 1,
        globals: 1,
    };

    fn push(replay: &mut Replay, value: f64) -> bool {
        let state = State {
            domains: vec![0.0; 3],
            globals: vec![0.0],
        };
        replay.push(&Transition {
            state: &state,
            action: &[1.0],
            rewards: &[value],
            next: &state,
        })
    }

    fn rewards(replay: &Replay) -> Vec<f32> {
        (0..replay.len())
            .map(|place| replay.row(place)[LAYOUT.rewards()])
            .collect()
    }

    #[test]
    fn the_oldest_row_gives_way() {
        let mut replay = Replay::new(LAYOUT, 3);
        for value in 0..5 {
            assert!(push(&mut replay, f64::from(value)));
        }
        assert_eq!(rewards(&replay), [3.0, 4.0, 2.0]);
        let (values, oldest) = replay.saved();
        let mut copy = Replay::new(LAYOUT, 3);
        copy.restore(values.to_vec(), oldest).unwrap();
        push(&mut copy, 5.0);
        push(&mut replay, 5.0);
        assert_eq!(copy, replay);
        assert_eq!(rewards(&copy), [3.0, 4.0, 5.0]);
    }

    #[test]
    fn rows_that_are_not_finite_never_enter() {
        let mut replay = Replay::new(LAYOUT, 3);
        for bad in [f64::NAN, f64::INFINITY, 1e300] {
            assert!(!push(&mut replay, bad));
        }
        assert_eq!(replay.len(), 0);
    }

    #[test]
    fn saved_rows_that_do_not_fit_are_refused() {
        let row = LAYOUT.row();
        let mut replay = Replay::new(LAYOUT, 2);
        assert!(replay.restore(vec![0.0; row + 1], 0).is_none());
        assert!(replay.restore(vec![0.0; 3 * row], 0).is_none());
        assert!(replay.restore(vec![0.0; row], 1).is_none());
        assert!(replay.restore(vec![f32::NAN; row], 0).is_none());
        assert!(replay.restore(vec![0.0; 2 * row], 1).is_some());
    }

    #[test]
    fn statistics_are_mean_and_deviation() {
        let mut replay = Replay::new(LAYOUT, 10);
        for value in [1.0, 2.0, 6.0] {
            push(&mut replay, value);
        }
        let (mean, deviation) = replay.statistics(|_, r, take| take(f64::from(r[0])));
        assert!((mean - 3.0).abs() < 1e-6 && (deviation - (14.0f64 / 3.0).sqrt()).abs() < 1e-6);
    }
}
