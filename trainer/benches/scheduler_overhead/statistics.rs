//! Medians of paired measurements, and how sure they are.

/// A median and an interval for it.
#[derive(Clone, Copy)]
pub struct Median {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The median, with the order statistics between which the median of the distribution lies in 95 of 100 cases, whatever
/// the distribution is (sign test, by the normal approximation of the binomial distribution).
pub fn median(values: impl IntoIterator<Item = f64>) -> Median {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    assert!(n > 0, "a median of nothing");
    let half = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - half).floor().max(0.0) as usize;
    let high = n - 1 - low;
    Median {
        value: (values[(n - 1) / 2] + values[n / 2]) / 2.0,
        low: values[low],
        high: values[high],
    }
}
