//! Means over seeds, and whether two policies differ by more than seeds do.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean of some numbers; `None` of none.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of a sample; `None` of fewer than two.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Two-sided p of Student's paired t-test on the differences of two policies, seed by seed; `None` for fewer
/// than two, or where all are equal.
pub fn paired_p(differences: &[f64]) -> Option<f64> {
    let (mean, deviation) = (mean(differences)?, deviation(differences)?);
    let n = differences.len() as f64;
    let t = mean / (deviation / n.sqrt());
    if !t.is_finite() {
        return None;
    }
    let distribution = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    Some(2.0 * distribution.cdf(-t.abs()))
}

/// The step at which a curve of (step, value) first falls to `target`, interpolated; `None` if it never does.
pub fn first_at_or_below(curve: &[(f64, f64)], target: f64) -> Option<f64> {
    let at = curve.iter().position(|&(_, value)| value <= target)?;
    let (step, value) = curve[at];
    let Some(&(step_before, value_before)) = at.checked_sub(1).and_then(|i| curve.get(i)) else {
        return Some(step);
    };
    if value_before.is_infinite() {
        return Some(step);
    }
    // value_before > target >= value
    let part = (value_before - target) / (value_before - value);
    Some(step_before + part * (step - step_before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paired_test_is_students() {
        // Differences 1, 2, 3: t = 2 / (1 / √3) = 3.4641, two degrees of freedom: p = 0.074 180.
        let p = paired_p(&[1.0, 2.0, 3.0]).unwrap();
        assert!((p - 0.074_180).abs() < 1e-6, "{p}");
        assert_eq!(paired_p(&[1.0]), None);
        assert_eq!(paired_p(&[1.0, 1.0]), None);
        assert_eq!(deviation(&[1.0, 2.0, 3.0]), Some(1.0));
    }

    #[test]
    fn crossings_are_interpolated() {
        let curve = [(0.0, 10.0), (100.0, 6.0), (200.0, 4.0), (300.0, 5.0)];
        assert_eq!(first_at_or_below(&curve, 8.0), Some(50.0));
        assert_eq!(first_at_or_below(&curve, 6.0), Some(100.0));
        assert_eq!(first_at_or_below(&curve, 4.5), Some(175.0));
        assert_eq!(first_at_or_below(&curve, 3.0), None);
        assert_eq!(first_at_or_below(&curve, 11.0), Some(0.0));
        assert_eq!(first_at_or_below(&[], 1.0), None);
        let mended = [(0.0, f64::INFINITY), (100.0, 3.0)];
        assert_eq!(first_at_or_below(&mended, 4.0), Some(100.0));
    }
}
