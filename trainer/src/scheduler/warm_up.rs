//! The weights of a learning policy's warm-up: base weights with noise.
//!
//! # Source
//! Paper, warm-up: base weights plus N(0, 0.02), clipped at 0, renormalised.

use hds::random::{Purpose, RandomStream};

/// The weights of batch `step`; length K. Where noise leaves nothing, the base weights.
pub(super) fn noisy_base_weights(base: &[f64], deviation: f64, seed: u64, step: u64) -> Vec<f64> {
    let mut noise = RandomStream::new(seed, Purpose::WarmUp).sequence(step);
    let mut weights: Vec<f64> = base
        .iter()
        .map(|weight| (weight + deviation * noise.next_normal()).max(0.0))
        .collect();
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 {
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    } else {
        base.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_its_deviation_and_weights_stay_a_mixture() {
        let base = [0.5, 0.3, 0.2, 0.0];
        let (mut squares, steps) = (0.0, 2_000);
        for step in 0..steps {
            let weights = noisy_base_weights(&base, 0.02, 7, step);
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(weights.iter().all(|w| *w >= 0.0));
            squares += (weights[0] - 0.5).powi(2) / steps as f64;
        }
        // The normalisation takes some of it away again.
        assert!(
            (0.012..0.02).contains(&squares.sqrt()),
            "{}",
            squares.sqrt()
        );
        assert_eq!(
            noisy_base_weights(&base, 0.02, 7, 3),
            noisy_base_weights(&base, 0.02, 7, 3)
        );
        assert_ne!(
            noisy_base_weights(&base, 0.02, 7, 3),
            noisy_base_weights(&base, 0.02, 7, 4)
        );
    }
}
