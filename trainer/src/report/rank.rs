//! Spearman's rank correlation, for "did the agent favour what paid".

/// Rank correlation of two equally long series, ties at their mean rank; `None` below three points or
/// where one series is constant.
///
/// # Source
/// Spearman 1904: Pearson's correlation of the ranks.
pub fn spearman(xs: &[f64], ys: &[f64]) -> Option<f64> {
    if xs.len() < 3 || xs.len() != ys.len() {
        return None;
    }
    let (xs, ys) = (ranks(xs), ranks(ys));
    let middle = (xs.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    let scale = (product(&xs, &xs) * product(&ys, &ys)).sqrt();
    (scale > 0.0).then(|| product(&xs, &ys) / scale)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let below = order
            .iter()
            .filter(|i| values[**i] < values[tied[0]])
            .count();
        for index in tied {
            ranks[*index] = below as f64 + (tied.len() as f64 - 1.0) / 2.0;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_values_computed_by_scipy() {
        // scipy.stats.spearmanr
        let rho = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5.0, 6.0, 7.0, 8.0, 7.0]);
        assert!((rho.expect("enough points") - 0.820_782_681_668_123_3).abs() < 1e-12);
        let falling = spearman(&[1.0, 2.0, 3.0], &[9.0, 4.0, 1.0]);
        assert_eq!(falling, Some(-1.0));
    }

    #[test]
    fn constant_or_short_series_have_none() {
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0, 2.0]), None);
    }
}
