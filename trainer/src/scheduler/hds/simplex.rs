//! The policy's distribution: a logistic normal on the simplex.
//!
//! In: a mean μ_i and a log deviation ln σ_i per domain. Out: mixtures a = softmax(z), z ~ N(μ, diag σ²),
//! and the density of what was really drawn. Treats all domains alike. Leaves random numbers to others.
//!
//! z ↦ softmax(z) forgets the shift of z, so the density is not that of z. With y_i = z_i − z_K,
//! i < K, y ~ N(μ_i − μ_K, D + σ_K² 11ᵀ), D = diag(σ_i²), and a ↔ y is one to one. Sherman–Morrison and
//! the determinant lemma give, with w_i = 1/σ_i², d_i = ln a_i − μ_i, d̄ = Σ w_i d_i / Σ w_i over all K:
//!
//! ln N(y) = −½ [ (K−1) ln 2π + Σ ln σ_i² + ln Σ w_i + Σ w_i (d_i − d̄)² ],
//! ln π(a) = ln N(y) − Σ_i ln a_i,
//!
//! with respect to Lebesgue measure on (a_1 … a_{K−1}); |∂a/∂y| = Π_i a_i.
//!
//! A weight floor maps a to f/K + (1 − f) a, which adds −(K−1) ln(1 − f).
//!
//! Legend: K domains, B batch.
//!
//! # Source
//! Aitchison & Shen, "Logistic-normal distributions", Biometrika 1980; the choice of it is ours: the
//! paper asks for the density of the distribution that actions are drawn from and names none.

use tch::{Kind, Tensor};

/// A floor on every domain's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Floor {
    /// Share f of the mixture that is spread evenly, in [0, 1).
    pub share: f64,
}

impl Floor {
    /// f/K + (1 − f) a.
    pub(super) fn apply(self, mixture_bk: &Tensor) -> Tensor {
        let domains = mixture_bk.size().last().copied().unwrap_or(1) as f64;
        mixture_bk * (1.0 - self.share) + self.share / domains
    }

    /// What the floor adds to the log density of K weights.
    pub(super) fn log_density(self, domains: usize) -> f64 {
        -(domains as f64 - 1.0) * (1.0 - self.share).ln()
    }
}

/// The greatest differential entropy of a density on the simplex of K weights with this floor, that of
/// the uniform one: −ln (K−1)! + (K−1) ln(1 − f).
pub(super) fn greatest_entropy(domains: usize, floor: Floor) -> f64 {
    let log_factorial: f64 = (1..domains).map(|j| (j as f64).ln()).sum();
    -log_factorial - floor.log_density(domains)
}

/// μ and ln σ of a batch of policies, [B, K] each.
#[derive(Debug)]
pub(super) struct LogisticNormal {
    /// μ.
    pub mean_bk: Tensor,
    /// ln σ.
    pub log_deviation_bk: Tensor,
}

/// A mixture and its log density, both differentiable in μ and ln σ.
#[derive(Debug)]
pub(super) struct Draw {
    /// The weights, floor included, [B, K].
    pub mixture_bk: Tensor,
    /// ln π, [B].
    pub log_density_b: Tensor,
}

impl LogisticNormal {
    /// Draws with given standard normal noise [B, K].
    #[cfg(test)]
    pub(super) fn draw(&self, noise_bk: &Tensor, floor: Floor) -> Draw {
        self.draw_around(None, noise_bk, floor)
    }

    /// The same, where the mixture is the draw times the weights whose logarithms, up to a constant, are `center_k` [K]. The density is
    /// that of the draw without them: one to one with the mixture's, and its entropy is relative to them.
    pub(super) fn draw_around(
        &self,
        center_k: Option<&Tensor>,
        noise_bk: &Tensor,
        floor: Floor,
    ) -> Draw {
        let logits_bk = &self.mean_bk + self.log_deviation_bk.exp() * noise_bk;
        let log_mixture_bk = logits_bk.log_softmax(-1, None::<Kind>);
        let mixture_bk = match center_k {
            None => log_mixture_bk.exp(),
            Some(center_k) => (&log_mixture_bk + center_k).softmax(-1, None::<Kind>),
        };
        Draw {
            mixture_bk: floor.apply(&mixture_bk),
            log_density_b: self.log_density(&log_mixture_bk, floor),
        }
    }

    /// ln π of mixtures given by their logarithms before the floor, [B, K] → [B].
    pub(super) fn log_density(&self, log_mixture_bk: &Tensor, floor: Floor) -> Tensor {
        let domains = log_mixture_bk.size().last().copied().unwrap_or(1);
        let sum =
            |x: &Tensor, keep: bool| x.sum_dim_intlist([-1i64].as_slice(), keep, None::<Kind>);
        let precision_bk = (&self.log_deviation_bk * -2.0).exp();
        let distance_bk = log_mixture_bk - &self.mean_bk;
        let precision_b1 = sum(&precision_bk, true);
        let middle_b1 = sum(&(&precision_bk * &distance_bk), true) / &precision_b1;
        let off_bk = distance_bk - middle_b1;
        let quadratic_b = sum(&(precision_bk * &off_bk * off_bk), false);
        let constant = (domains as f64 - 1.0) * (2.0 * std::f64::consts::PI).ln();
        let normal_b = (sum(&self.log_deviation_bk, false) * 2.0
            + precision_b1.log().squeeze_dim(-1)
            + quadratic_b
            + constant)
            * -0.5;
        normal_b - sum(log_mixture_bk, false) + floor.log_density(domains as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hds::random::{Purpose, RandomStream};
    use tch::Device;

    fn policy(mean: &[f64], deviation: &[f64]) -> LogisticNormal {
        let log: Vec<f64> = deviation.iter().map(|s| s.ln()).collect();
        LogisticNormal {
            mean_bk: Tensor::from_slice(mean).unsqueeze(0),
            log_deviation_bk: Tensor::from_slice(&log).unsqueeze(0),
        }
    }

    fn density(policy: &LogisticNormal, rows: &[Vec<f64>], floor: Floor) -> Vec<f64> {
        let k = rows[0].len() as i64;
        let flat: Vec<f64> = rows.iter().flatten().map(|a| a.ln()).collect();
        let log_a = Tensor::from_slice(&flat).view([-1, k]);
        Vec::<f64>::try_from(policy.log_density(&log_a, floor).exp()).unwrap()
    }

    fn noise(rows: usize, k: usize) -> Tensor {
        let mut sequence = RandomStream::new(5, Purpose::Action).sequence(0);
        let flat: Vec<f64> = (0..rows * k).map(|_| sequence.next_normal()).collect();
        Tensor::from_slice(&flat).view([rows as i64, k as i64])
    }

    #[test]
    fn two_domains_have_the_density_of_a_logit_normal() {
        // y = z_0 − z_1 ~ N(0.7, 0.5² + 1.2²); textbook: N(logit a) / (a (1 − a)).
        let policy = policy(&[0.4, -0.3], &[0.5, 1.2]);
        let variance = 0.25 + 1.44f64;
        for a in [0.01f64, 0.3, 0.5, 0.93] {
            let y = (a / (1.0 - a)).ln();
            let want = (-(y - 0.7f64).powi(2) / (2.0 * variance)).exp()
                / (2.0 * std::f64::consts::PI * variance).sqrt()
                / (a * (1.0 - a));
            let got = density(&policy, &[vec![a, 1.0 - a]], Floor { share: 0.0 })[0];
            assert!((got - want).abs() < 1e-9 * want, "{a}: {got} {want}");
        }
    }

    #[test]
    fn the_density_integrates_to_one() {
        // Midpoint rule over the simplex of three weights; K = 3 has a true shift to integrate out.
        let policy = policy(&[0.4, -0.3, 0.1], &[0.5, 1.2, 0.8]);
        let n = 800;
        let mut rows = Vec::new();
        for i in 0..n {
            for j in 0..n {
                let (x, y) = ((i as f64 + 0.5) / n as f64, (j as f64 + 0.5) / n as f64);
                if x + y < 1.0 - 1e-12 {
                    rows.push(vec![x, y, 1.0 - x - y]);
                }
            }
        }
        let total: f64 = density(&policy, &rows, Floor { share: 0.0 }).iter().sum();
        let integral = total / (n * n) as f64;
        // Cells cut by the edge x + y = 1 are left out by the strict test or counted whole.
        assert!((integral - 1.0).abs() < 5e-3, "{integral}");
    }

    #[test]
    fn draws_have_the_density_they_are_given() {
        // Importance test: for draws a ~ π, E[h(a)/π(a)] = ∫ h for any h; h is the indicator of
        // boxes well inside the simplex. Catches a wrong Jacobian and a wrong covariance alike.
        let floor = Floor { share: 0.2 };
        let policy = policy(&[0.4, -0.3, 0.1], &[0.5, 1.2, 0.8]);
        let rows = 400_000;
        let draw = policy.draw(&noise(rows, 3), floor);
        let mixture = Vec::<f64>::try_from(draw.mixture_bk.contiguous().view(-1)).unwrap();
        let log_density = Vec::<f64>::try_from(&draw.log_density_b).unwrap();
        for (x, y) in [(0.2, 0.2), (0.5, 0.15), (0.2, 0.4)] {
            let side = 0.15;
            let estimate: f64 = mixture
                .chunks_exact(3)
                .zip(&log_density)
                .filter(|(a, _)| (x..x + side).contains(&a[0]) && (y..y + side).contains(&a[1]))
                .map(|(_, log)| (-log).exp())
                .sum::<f64>()
                / rows as f64;
            let area = side * side;
            assert!(
                (estimate / area - 1.0).abs() < 0.03,
                "({x}, {y}): {estimate} for {area}"
            );
        }
        let least = mixture.iter().copied().fold(1.0, f64::min);
        assert!(least >= 0.2 / 3.0 - 1e-12, "{least}");
    }

    #[test]
    fn the_density_matches_the_full_covariance() {
        // y's density by an explicit 3 × 3 inverse and determinant, K = 4.
        let (mean, deviation) = ([0.2, -0.5, 0.9, 0.3], [0.6, 1.1, 0.3, 0.9]);
        let policy = policy(&mean, &deviation);
        let a = [0.1f64, 0.2, 0.3, 0.4];
        let y: Vec<f64> = (0..3)
            .map(|i| (a[i] / a[3]).ln() - (mean[i] - mean[3]))
            .collect();
        let mut covariance = vec![deviation[3] * deviation[3]; 9];
        for i in 0..3 {
            covariance[4 * i] += deviation[i] * deviation[i];
        }
        let covariance = Tensor::from_slice(&covariance).view([3, 3]);
        let y = Tensor::from_slice(&y);
        let quadratic = Tensor::linalg_inv(&covariance)
            .matmul(&y)
            .dot(&y)
            .double_value(&[]);
        let determinant = Tensor::linalg_det(&covariance).double_value(&[]);
        let want = -0.5 * (3.0 * (2.0 * std::f64::consts::PI).ln() + determinant.ln() + quadratic)
            - a.iter().map(|v| v.ln()).sum::<f64>();
        let got = density(&policy, &[a.to_vec()], Floor { share: 0.0 })[0].ln();
        assert!((got - want).abs() < 1e-10, "{got} {want}");
    }

    #[test]
    fn no_policy_is_more_spread_than_the_greatest_entropy() {
        for share in [0.0, 0.3] {
            let floor = Floor { share };
            let k = 6;
            for deviation in [0.2, 0.7, 1.3, 2.5] {
                let policy = policy(&[0.0; 6], &[deviation; 6]);
                let entropy = -policy
                    .draw(&noise(20_000, k), floor)
                    .log_density_b
                    .mean(None::<Kind>)
                    .double_value(&[]);
                let most = greatest_entropy(k, floor);
                assert!(entropy < most, "{deviation}: {entropy} above {most}");
                // σ = 1.3 is about as spread as a logistic normal can be.
                assert!(deviation != 1.3 || entropy > most - 0.5, "{entropy} {most}");
            }
        }
        assert!((greatest_entropy(22, Floor { share: 0.0 }) + 45.4).abs() < 0.05);
    }

    #[test]
    fn gradients_match_finite_differences() {
        // f(μ, ln σ) = E[α ln π(a) − Σ c_i a_i²] at fixed noise.
        let floor = Floor { share: 0.1 };
        let noise = noise(7, 4);
        let value = |parameters: &Tensor| {
            let policy = LogisticNormal {
                mean_bk: parameters.select(0, 0),
                log_deviation_bk: parameters.select(0, 1),
            };
            let draw = policy.draw(&noise, floor);
            let reward = draw.mixture_bk.square() * Tensor::from_slice(&[1.0, -2.0, 0.5, 3.0]);
            (draw.log_density_b * 0.3
                - reward.sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>))
            .mean(None::<Kind>)
        };
        let start = Tensor::from_slice(
            &(0..56)
                .map(|i| (f64::from(i) * 0.7).sin() * 0.8)
                .collect::<Vec<_>>(),
        )
        .view([2, 7, 4]);
        let leaf = start.copy().set_requires_grad(true);
        value(&leaf).backward();
        let gradient = Vec::<f64>::try_from(leaf.grad().view(-1)).unwrap();
        for (i, &got) in gradient.iter().enumerate() {
            let step = 1e-5;
            let bump = Tensor::zeros([56], (Kind::Double, Device::Cpu));
            let _ = bump.get(i as i64).fill_(step);
            let bump = bump.view([2, 7, 4]);
            let rise = value(&(&start + &bump)).double_value(&[])
                - value(&(&start - &bump)).double_value(&[]);
            let want = rise / (2.0 * step);
            assert!(
                (got - want).abs() < 1e-6 * want.abs().max(1.0),
                "{i}: {got} {want}"
            );
        }
    }
}
