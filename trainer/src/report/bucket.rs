//! Series of any length in at most [`BUCKETS`] points.
//!
//! In: values by step, steps growing. Out: per bucket of equally many steps the mean, and where asked
//! for the least and the greatest value. Always holds: memory does not grow with the steps; when the
//! buckets run out, neighbours are joined and each spans twice as many steps. A bucket without a
//! finite value is a gap.

/// The most points of a series.
pub const BUCKETS: u64 = 800;

/// Names a column of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnId(usize);

/// Columns over one axis of steps.
#[derive(Debug, Default)]
pub struct Timeline {
    origin: Option<u64>,
    /// Steps a bucket, as a power of two.
    width_log2: u32,
    /// The bucket of the step being added.
    current: usize,
    columns: Vec<Column>,
}

#[derive(Debug, Default)]
struct Column {
    buckets: Vec<Bucket>,
    spread: Option<Vec<(f64, f64)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    sum: f64,
    count: u32,
}

impl Timeline {
    /// A new column; with `spread` it also keeps each bucket's extremes.
    pub fn column(&mut self, spread: bool) -> ColumnId {
        self.columns.push(Column {
            buckets: Vec::new(),
            spread: spread.then(Vec::new),
        });
        ColumnId(self.columns.len() - 1)
    }

    /// Begins a step; the values added next are its own. Steps must not go back.
    pub fn begin(&mut self, step: u64) {
        let origin = *self.origin.get_or_insert(step);
        let offset = step.saturating_sub(origin);
        while offset >> self.width_log2 >= BUCKETS {
            self.width_log2 += 1;
            self.columns.iter_mut().for_each(Column::join_neighbours);
        }
        self.current = (offset >> self.width_log2) as usize;
    }

    /// Adds the current step's value; `None` and non-finite values leave a gap.
    pub fn add(&mut self, column: ColumnId, value: Option<f64>) {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            return;
        };
        self.columns[column.0].add(self.current, value);
    }

    /// Steps that a bucket spans.
    pub fn width(&self) -> u64 {
        1 << self.width_log2
    }

    /// Number of buckets up to the last step begun.
    pub fn len(&self) -> usize {
        self.origin.map_or(0, |_| self.current + 1)
    }

    /// The middle of each bucket, in steps.
    pub fn middles(&self) -> Vec<f64> {
        let origin = self.origin.unwrap_or(0) as f64;
        let width = self.width() as f64;
        (0..self.len())
            .map(|i| origin + i as f64 * width + (width - 1.0) / 2.0)
            .collect()
    }

    /// Mean of each bucket.
    pub fn means(&self, column: ColumnId) -> Vec<Option<f64>> {
        let buckets = &self.columns[column.0].buckets;
        (0..self.len())
            .map(|i| buckets.get(i).filter(|b| b.count > 0))
            .map(|b| b.map(|b| b.sum / f64::from(b.count)))
            .collect()
    }

    /// Least and greatest value of each bucket, where the column keeps them and a bucket holds more
    /// than a step.
    pub fn spread(&self, column: ColumnId) -> Option<Vec<Option<(f64, f64)>>> {
        let spread = self.columns[column.0].spread.as_ref()?;
        let of = |i: usize| spread.get(i).copied().filter(|(lo, hi)| lo <= hi);
        (self.width() > 1).then(|| (0..self.len()).map(of).collect())
    }
}

/// The extremes of nothing.
const NO_SPREAD: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Column {
    fn add(&mut self, index: usize, value: f64) {
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, Bucket::default());
        }
        self.buckets[index].sum += value;
        self.buckets[index].count = self.buckets[index].count.saturating_add(1);
        if let Some(spread) = &mut self.spread {
            spread.resize(self.buckets.len(), NO_SPREAD);
            let (lo, hi) = spread[index];
            spread[index] = (lo.min(value), hi.max(value));
        }
    }

    fn join_neighbours(&mut self) {
        let join = |pair: &[Bucket]| {
            pair.iter().fold(Bucket::default(), |a, b| Bucket {
                sum: a.sum + b.sum,
                count: a.count.saturating_add(b.count),
            })
        };
        self.buckets = self.buckets.chunks(2).map(join).collect();
        if let Some(spread) = &mut self.spread {
            let join = |pair: &[(f64, f64)]| {
                pair.iter()
                    .fold(NO_SPREAD, |a, b| (a.0.min(b.0), a.1.max(b.1)))
            };
            *spread = spread.chunks(2).map(join).collect();
        }
    }
}

/// A smooth curve through a series: at each point the line fitted to its neighbours, weighted by a
/// Gaussian of `width` points standard deviation. Gaps stay gaps.
///
/// # Source
/// Local linear regression (Cleveland 1979, with a Gaussian kernel: our choice): unlike a running mean
/// it neither lags behind the series nor flattens its steep beginning.
pub fn smooth(values: &[Option<f64>], width: f64) -> Vec<Option<f64>> {
    let reach = (3.0 * width).ceil() as usize;
    let kernel: Vec<f64> = (0..=reach)
        .map(|d| (-0.5 * (d as f64 / width).powi(2)).exp())
        .collect();
    let fit_at = |i: usize| {
        let near = i.saturating_sub(reach)..(i + reach + 1).min(values.len());
        let near = || {
            near.clone()
                .filter_map(|j| Some((j as f64 - i as f64, values[j]?, kernel[i.abs_diff(j)])))
        };
        let sum = |of: &dyn Fn(f64, f64) -> f64| near().map(|(d, v, k)| k * of(d, v)).sum::<f64>();
        let (mass, d, dd) = (sum(&|_, _| 1.0), sum(&|d, _| d), sum(&|d, _| d * d));
        let (v, dv) = (sum(&|_, v| v), sum(&|d, v| d * v));
        let determinant = mass * dd - d * d;
        match determinant > 1e-9 * mass * mass {
            true => (dd * v - d * dv) / determinant,
            false => v / mass,
        }
    };
    (0..values.len())
        .map(|i| values[i].map(|_| fit_at(i)))
        .collect()
}

/// Gaussian mean of `width` points standard deviation over a series, never across `split`; gaps stay
/// gaps. Series with the same gaps keep their sum, so that smoothed weights are weights.
pub fn blur(values: &[Option<f64>], width: f64, split: usize) -> Vec<Option<f64>> {
    let reach = (3.0 * width).ceil() as usize;
    let weight = |d: usize| (-0.5 * (d as f64 / width).powi(2)).exp();
    let mean_at = |i: usize| {
        let side = if i < split {
            0..split.min(values.len())
        } else {
            split..values.len()
        };
        let near = i.saturating_sub(reach).max(side.start)..(i + reach + 1).min(side.end);
        let (sum, mass) = near
            .filter_map(|j| Some((values[j]?, weight(i.abs_diff(j)))))
            .fold((0.0, 0.0), |(sum, mass), (v, k)| (sum + k * v, mass + k));
        sum / mass
    };
    (0..values.len())
        .map(|i| values[i].map(|_| mean_at(i)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_keep_means_and_extremes_in_few_buckets() {
        let mut timeline = Timeline::default();
        let column = timeline.column(true);
        for step in 0..100_000u64 {
            timeline.begin(step);
            timeline.add(column, Some(step as f64));
        }
        assert_eq!(timeline.width(), 128);
        assert_eq!(timeline.len(), 782);
        assert_eq!(timeline.means(column)[0], Some(63.5));
        assert_eq!(timeline.middles()[1], 191.5);
        assert_eq!(timeline.means(column)[1], Some(191.5));
        let spread = timeline.spread(column).expect("kept");
        assert_eq!(spread[781], Some((99_968.0, 99_999.0)));
    }

    #[test]
    fn missing_steps_and_non_finite_values_are_gaps() {
        let mut timeline = Timeline::default();
        let column = timeline.column(false);
        for (step, value) in [(10, 1.0), (11, f64::NAN), (14, 2.0)] {
            timeline.begin(step);
            timeline.add(column, Some(value));
        }
        let means = timeline.means(column);
        assert_eq!(means, [Some(1.0), None, None, None, Some(2.0)]);
        assert_eq!(timeline.middles()[4], 14.0);
    }

    #[test]
    fn a_far_step_does_not_cost_memory() {
        let mut timeline = Timeline::default();
        let column = timeline.column(false);
        for step in [0, u64::MAX] {
            timeline.begin(step);
            timeline.add(column, Some(1.0));
        }
        assert!(timeline.len() as u64 <= BUCKETS);
    }

    #[test]
    fn smoothing_keeps_constants_gaps_and_lone_points() {
        let values = [Some(2.0), Some(2.0), None, Some(2.0)];
        let smoothed = smooth(&values, 1.5);
        assert_eq!(smoothed[2], None);
        assert!((smoothed[0].expect("a value") - 2.0).abs() < 1e-12);
        assert_eq!(smooth(&[None, Some(7.0), None], 2.0)[1], Some(7.0));
    }

    #[test]
    fn smoothing_neither_lags_nor_flattens_ends() {
        let line: Vec<_> = (0..50).map(|i| Some(3.0 - 0.5 * f64::from(i))).collect();
        for (smoothed, value) in smooth(&line, 4.0).iter().zip(&line) {
            assert!((smoothed.expect("a value") - value.expect("a value")).abs() < 1e-9);
        }
    }

    #[test]
    fn blurred_weights_are_weights_and_do_not_leak_over_the_split() {
        let first: Vec<_> = (0..40)
            .map(|i| (i != 7).then(|| f64::from(i % 5) / 5.0))
            .collect();
        let second: Vec<_> = first.iter().map(|v| v.map(|v| 1.0 - v)).collect();
        let (first, second) = (blur(&first, 3.0, 10), blur(&second, 3.0, 10));
        assert_eq!(first[7], None);
        for (a, b) in first
            .iter()
            .zip(&second)
            .filter_map(|(a, b)| Some(((*a)?, (*b)?)))
        {
            assert!((a + b - 1.0).abs() < 1e-12);
        }
        let step: Vec<_> = (0..40)
            .map(|i| Some(f64::from(u8::from(i >= 10))))
            .collect();
        let blurred = blur(&step, 3.0, 10);
        assert_eq!((blurred[9], blurred[10]), (Some(0.0), Some(1.0)));
    }
}
