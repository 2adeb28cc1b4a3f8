//! Quantiles of any number of values in fixed memory.
//!
//! In: finite values of at least 0. Out: quantiles. Always holds: a quantile is within 0.05 % of a value that has its rank, whole numbers
//! below 2048 are exact, as are the least and the greatest; sketches of parts add up to the sketch of the whole.
//!
//! # Source
//! Our choice: a histogram whose buckets are the first ten bits of a floating-point number's fraction under each exponent, the layout
//! of HdrHistogram (G. Tene) and DDSketch (Masson, Rim, Lee, VLDB 2019) with buckets that cost two instructions to find.

/// Bits of the fraction that a bucket has.
const FRACTION_BITS: u32 = 10;
const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - FRACTION_BITS;
/// Values below this, 2⁻²⁰, count as 0.
const LEAST_EXPONENT: i64 = -20;
/// Values of this, 2⁶⁴, and above share the last bucket.
const MOST_EXPONENT: i64 = 64;
const BUCKETS: usize = ((MOST_EXPONENT - LEAST_EXPONENT) << FRACTION_BITS) as usize;

/// A histogram of values.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Whether values are whole numbers.
    is_whole: bool,
    counts: Vec<u64>,
    /// Values below the first bucket.
    zeros: u64,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

fn first_key() -> u64 {
    ((LEAST_EXPONENT + 1023) as u64) << FRACTION_BITS
}

impl Sketch {
    /// A sketch of nothing; `is_whole` where all values will be whole numbers, so that quantiles are.
    pub fn new(is_whole: bool) -> Self {
        Self {
            is_whole,
            counts: vec![0; BUCKETS],
            zeros: 0,
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }

    /// Adds a value; one that is negative or no number counts as 0.
    pub fn add(&mut self, value: f64) {
        let value = if value > 0.0 { value } else { 0.0 };
        let key = value.to_bits() >> SHIFT;
        match key.checked_sub(first_key()) {
            None => self.zeros += 1,
            Some(bucket) => self.counts[(bucket as usize).min(BUCKETS - 1)] += 1,
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds what another sketch has seen.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.zeros += other.zeros;
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let is_whole = self.is_whole;
        self.counts.fill(0);
        *self = Self {
            counts: std::mem::take(&mut self.counts),
            is_whole,
            zeros: 0,
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        };
    }

    /// How many values were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The value with the rank ⌈q · count⌉, at least 1, in ascending order; 0 of none.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        if rank == 1 {
            return self.min;
        }
        if rank == self.count {
            return self.max;
        }
        let mut behind = self.zeros;
        if rank <= behind {
            return self.min;
        }
        for (bucket, count) in (0u64..).zip(&self.counts) {
            behind += count;
            if rank <= behind {
                let lower = f64::from_bits((first_key() + bucket) << SHIFT);
                let upper = f64::from_bits((first_key() + bucket + 1) << SHIFT);
                let middle = if self.is_whole {
                    // The middle of the whole numbers inside, of which there is at least one.
                    ((lower.ceil() + upper.ceil() - 1.0) / 2.0).floor()
                } else {
                    (lower + upper) / 2.0
                };
                return middle.clamp(self.min, self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By sorting everything.
    fn exact(values: &mut [f64], q: f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
        values[rank - 1]
    }

    const QS: [f64; 9] = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0];

    #[test]
    fn quantiles_are_within_the_error_of_sorted_values() {
        let mut state = 7u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        type Make = fn(f64) -> f64;
        let kinds: [(bool, Make); 4] = [
            (true, |u| (u * 2000.0).floor()),
            (true, |u| (u * 40.0).exp2().floor()),
            (false, |u| 200.0 * u * u),
            (false, |u| (30.0 * u - 10.0).exp2()),
        ];
        for (is_whole, make) in kinds {
            let mut values: Vec<f64> = (0..5000).map(|_| make(random())).collect();
            let mut sketch = Sketch::new(is_whole);
            let mut second = Sketch::new(is_whole);
            for (i, value) in values.iter().enumerate() {
                if i % 3 == 0 { &mut second } else { &mut sketch }.add(*value);
            }
            sketch.merge(&second);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            assert!((sketch.mean() / mean - 1.0).abs() < 1e-12);
            for q in QS {
                let (got, want) = (sketch.quantile(q), exact(&mut values, q));
                assert!(
                    (got - want).abs() <= want * 0.0005,
                    "{q}: {got}, sorted {want}"
                );
                if is_whole && want < 2048.0 {
                    assert_eq!(got, want, "{q}");
                }
            }
        }
    }

    #[test]
    fn odd_values_and_no_values_do_no_harm() {
        let mut sketch = Sketch::new(false);
        assert_eq!((sketch.quantile(0.5), sketch.mean()), (0.0, 0.0));
        for value in [f64::NAN, -1.0, 0.0, 1e-300, f64::MAX] {
            sketch.add(value);
        }
        assert_eq!(
            (sketch.count(), sketch.quantile(0.5), sketch.quantile(1.0)),
            (5, 0.0, f64::MAX)
        );
        sketch.clear();
        assert_eq!((sketch.count(), sketch.quantile(1.0)), (0, 0.0));
    }
}
