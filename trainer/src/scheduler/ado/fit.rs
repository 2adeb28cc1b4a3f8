//! Scaling laws of single domains, fitted to the losses of a run.
//!
//! In: samples seen so far and the losses of each step. Out: ε, β, α of L(n) = ε + β n^{−α}.
//! Always holds: memory is bounded: losses are kept as means over spans of steps, whose length doubles
//! whenever there are [`MOST_SPANS`]; the same losses give the same law (a grid, no random start).
//!
//! # Source
//! ADO, section on fitting: Huber loss (δ = 10⁻³) of the log loss, losses smoothed and thinned, a missing
//! loss stands for the last one. Our choices: for each α of a grid over the authors' range (0.05 to 0.8)
//! the best ε, β ≥ 0 by reweighted least squares instead of a quasi-Newton search from 512 starts, and
//! means over spans instead of a smoothing filter.

use serde::{Deserialize, Serialize};

/// Most spans kept.
const MOST_SPANS: usize = 512;
/// Steps in a span at first, as the authors thin.
const FIRST_SPAN_STEPS: u64 = 10;
/// Fewest spans that a law is fitted to.
const FEWEST_SPANS: usize = 4;
const HUBER_DELTA: f64 = 1e-3;
const ROUNDS: usize = 12;
const POWERS: usize = 76;

/// L(n) = floor + scale · n^{−power}.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScalingLaw {
    /// ε, nats per token.
    pub floor: f64,
    /// β.
    pub scale: f64,
    /// α.
    pub power: f64,
}

impl ScalingLaw {
    /// −dL/dn after n samples.
    pub(super) fn speed(&self, samples: f64) -> f64 {
        self.power * self.scale * samples.powf(-self.power) / samples
    }
}

/// Mean losses over spans of steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LossHistory {
    span_steps: u64,
    spans: Vec<Span>,
    open: Span,
    /// Last loss of each domain.
    last: Vec<Option<f64>>,
}

/// Sums over the steps of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    steps: u64,
    samples: f64,
    /// Per domain: sum of losses, and over how many steps.
    losses: Vec<(f64, u64)>,
}

impl Span {
    fn empty(domains: usize) -> Self {
        Self {
            steps: 0,
            samples: 0.0,
            losses: vec![(0.0, 0); domains],
        }
    }

    fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.samples += other.samples;
        for (mine, theirs) in self.losses.iter_mut().zip(&other.losses) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
    }
}

impl LossHistory {
    pub(super) fn new(domains: usize) -> Self {
        Self {
            span_steps: FIRST_SPAN_STEPS,
            spans: Vec::new(),
            open: Span::empty(domains),
            last: vec![None; domains],
        }
    }

    /// K.
    pub(super) fn domains(&self) -> usize {
        self.last.len()
    }

    /// Notes a step, after which `samples` have been seen in all.
    pub(super) fn push(&mut self, samples: f64, losses: &[Option<f64>]) {
        self.open.steps += 1;
        self.open.samples += samples;
        for ((last, sum), loss) in self.last.iter_mut().zip(&mut self.open.losses).zip(losses) {
            *last = loss.filter(|l| l.is_finite() && *l > 0.0).or(*last);
            if let Some(loss) = *last {
                sum.0 += loss;
                sum.1 += 1;
            }
        }
        if self.open.steps < self.span_steps {
            return;
        }
        let domains = self.domains();
        self.spans
            .push(std::mem::replace(&mut self.open, Span::empty(domains)));
        if self.spans.len() >= MOST_SPANS {
            self.spans = self
                .spans
                .chunks(2)
                .map(|pair| {
                    let mut whole = pair[0].clone();
                    pair[1..].iter().for_each(|second| whole.merge(second));
                    whole
                })
                .collect();
            self.span_steps *= 2;
        }
    }

    /// The law of domain i; `None` where there is too little to fit.
    pub(super) fn fit(&self, i: usize) -> Option<ScalingLaw> {
        let points: Vec<(f64, f64)> = self
            .spans
            .iter()
            .filter(|span| span.losses.get(i).is_some_and(|l| l.1 > 0) && span.samples > 0.0)
            .map(|span| {
                let (sum, count) = span.losses[i];
                (span.samples / span.steps as f64, sum / count as f64)
            })
            .collect();
        if points.len() < FEWEST_SPANS {
            return None;
        }
        (0..POWERS)
            .filter_map(|place| fit_scale(&points, 0.05 + 0.01 * place as f64))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, law)| law)
    }
}

/// The best ε, β ≥ 0 for a given α and the Huber loss they leave.
fn fit_scale(points: &[(f64, f64)], power: f64) -> Option<(f64, ScalingLaw)> {
    // n is taken relative to the first point: n^{−α} would be far from 1 in long runs.
    let origin = points.first()?.0;
    let basis: Vec<f64> = points
        .iter()
        .map(|(n, _)| (n / origin).powf(-power))
        .collect();
    let mut weights: Vec<f64> = points.iter().map(|(_, loss)| 1.0 / (loss * loss)).collect();
    let (mut floor, mut scale) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        (floor, scale) = least_squares(points, &basis, &weights)?;
        for ((weight, (_, loss)), x) in weights.iter_mut().zip(points).zip(&basis) {
            let off = ((floor + scale * x) / loss).ln().abs();
            *weight = (HUBER_DELTA / off.max(HUBER_DELTA)) / (loss * loss);
        }
    }
    let huber: f64 = points
        .iter()
        .zip(&basis)
        .map(|((_, loss), x)| {
            let off = ((floor + scale * x) / loss).ln().abs();
            if off <= HUBER_DELTA {
                0.5 * off * off
            } else {
                HUBER_DELTA * (off - 0.5 * HUBER_DELTA)
            }
        })
        .sum();
    let law = ScalingLaw {
        floor,
        scale: scale * origin.powf(power),
        power,
    };
    let usable = huber.is_finite() && law.scale.is_finite();
    usable.then_some((huber, law))
}

/// Weighted least squares of loss on (1, x) with both coefficients ≥ 0.
fn least_squares(points: &[(f64, f64)], basis: &[f64], weights: &[f64]) -> Option<(f64, f64)> {
    let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (((_, y), x), weight) in points.iter().zip(basis).zip(weights) {
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wy += weight * y;
        wxy += weight * x * y;
    }
    let determinant = w * wxx - wx * wx;
    if !(determinant.is_finite() && w > 0.0) {
        return None;
    }
    if determinant > 1e-12 * w * wxx {
        let scale = (w * wxy - wx * wy) / determinant;
        let floor = (wy - scale * wx) / w;
        if scale >= 0.0 && floor >= 0.0 {
            return Some((floor, scale));
        }
        if floor < 0.0 && wxy > 0.0 {
            return Some((0.0, wxy / wxx));
        }
    }
    // A loss that does not fall.
    Some((wy / w, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(steps: u64, loss: impl Fn(f64, u64) -> Option<f64>) -> LossHistory {
        let mut history = LossHistory::new(1);
        for step in 0..steps {
            let samples = 40.0 * (step + 1) as f64;
            history.push(samples, &[loss(samples, step)]);
        }
        history
    }

    #[test]
    fn a_known_law_is_recovered() {
        let law = history(2_000, |n, _| Some(2.0 + 9.0 * n.powf(-0.3)))
            .fit(0)
            .unwrap();
        assert!(
            (law.power - 0.3).abs() < 0.02 && (law.floor - 2.0).abs() < 0.05,
            "{law:?}"
        );
        let n = 80_000.0f64;
        let want = 0.3 * 9.0 * n.powf(-1.3);
        assert!((law.speed(n) / want - 1.0).abs() < 0.05, "{law:?}");
    }

    #[test]
    fn noise_and_missing_losses_are_borne() {
        let loss = |n: f64, step: u64| {
            let noise = 1.0 + 0.05 * ((step * 7919 % 101) as f64 / 50.0 - 1.0);
            (step % 3 != 1).then_some((2.0 + 9.0 * n.powf(-0.3)) * noise)
        };
        let law = history(5_000, loss).fit(0).unwrap();
        let n = 200_000.0f64;
        let want = 0.3 * 9.0 * n.powf(-1.3);
        assert!(
            (law.speed(n) / want - 1.0).abs() < 0.5,
            "{law:?} {} {want}",
            law.speed(n)
        );
    }

    #[test]
    fn a_flat_or_rising_loss_is_not_learnt_any_faster() {
        for rise in [0.0, 1e-4] {
            let law = history(500, |_, step| Some(3.0 + rise * step as f64))
                .fit(0)
                .unwrap();
            assert!(law.speed(20_000.0) < 1e-9, "{law:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_too_little_is_no_law() {
        let long = history(200_000, |n, _| Some(2.0 + 9.0 * n.powf(-0.3)));
        assert!(long.spans.len() <= MOST_SPANS);
        let seen: u64 = long.spans.iter().map(|s| s.steps).sum::<u64>() + long.open.steps;
        assert_eq!(seen, 200_000);
        assert!((long.fit(0).unwrap().power - 0.3).abs() < 0.03);
        assert!(history(30, |_, _| Some(1.0)).fit(0).is_none());
        assert!(history(300, |_, _| None).fit(0).is_none());
        assert!(history(300, |_, _| Some(f64::NAN)).fit(0).is_none());
    }
}
