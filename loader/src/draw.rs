//! Draws a domain for every slot of a global batch.
//!
//! In: the mixture in force, the step and the seed. Out: one [`DomainId`] a slot.
//! Always holds: the same seed, step, mixture and options give the same draws on any rank; a domain of
//! weight 0 is never drawn. Reads no data; which window of the domain is [`crate::order`]'s.

use hds::random::{Purpose, RandomStream};
use hds::{DomainId, Mixture};

use crate::config::{Draws, LoaderConfig};
use crate::error::LoaderError;
use crate::weights::check_minimum;

/// Slots whose random numbers are computed together.
const TOGETHER: usize = 64;

/// The rule by which a run draws.
#[derive(Clone, Debug)]
pub(crate) struct Drawer {
    stream: RandomStream,
    draws: Draws,
    minimum: usize,
}

impl Drawer {
    pub(crate) fn new(config: &LoaderConfig) -> Self {
        Self {
            stream: RandomStream::new(config.seed, Purpose::Draw),
            draws: config.draws,
            minimum: config.minimum_per_domain,
        }
    }

    /// Fills `slots` (length B, at most 2^31) for batch `step`.
    ///
    /// Slot b takes random position (step, b); where slots are shuffled, positions (step, B + b) too.
    ///
    /// # Errors
    /// If the domains with weight need more slots than there are.
    pub(crate) fn draw(
        &self,
        mixture: &Mixture,
        step: u64,
        slots: &mut [DomainId],
    ) -> Result<(), LoaderError> {
        let reserved = self.reserve(mixture, slots)?;
        let free = &mut slots[reserved..];
        let count = free.len() as f64;
        match self.draws {
            Draws::Independent => {
                let mut units = [0.0; TOGETHER];
                let groups = free.chunks_mut(TOGETHER);
                for (first, slots) in (reserved as u32..).step_by(TOGETHER).zip(groups) {
                    let units = &mut units[..slots.len()];
                    self.stream.units_at(step, first, units);
                    for (slot, unit) in slots.iter_mut().zip(units) {
                        *slot = mixture.draw(*unit);
                    }
                }
            }
            Draws::Stratified => {
                let shift = self.stream.unit_at(step, 0);
                for (r, slot) in free.iter_mut().enumerate() {
                    *slot = mixture.draw((r as f64 + shift) / count);
                }
            }
        }
        if reserved > 0 || self.draws == Draws::Stratified {
            self.shuffle(step, slots);
        }
        Ok(())
    }

    /// Gives each domain with weight its minimum, in order from the first slot; returns how many.
    fn reserve(&self, mixture: &Mixture, slots: &mut [DomainId]) -> Result<usize, LoaderError> {
        if self.minimum == 0 {
            return Ok(0);
        }
        let weights = mixture.weights();
        let domains = weights.iter().filter(|&&w| w > 0.0).count();
        let want = check_minimum(self.minimum, domains, slots.len())?;
        let with_weight = (0u16..).zip(weights).filter(|(_, w)| **w > 0.0);
        for ((id, _), chunk) in with_weight.zip(slots.chunks_mut(self.minimum)) {
            chunk.fill(DomainId(id));
        }
        Ok(want)
    }

    /// Fisher–Yates, so that no domain has its slots on the same rank in every batch.
    fn shuffle(&self, step: u64, slots: &mut [DomainId]) {
        let base = slots.len() as u32;
        for i in (1..slots.len()).rev() {
            let bits = self.stream.bits_at(step, base + i as u32);
            // The bias of taking the high half is below 2^-32.
            let j = (u128::from(bits) * (i as u128 + 1)) >> 64;
            slots.swap(i, j as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hds::DomainSet;
    use proptest::prelude::*;

    fn mixture(weights: &[f64]) -> Mixture {
        let domains = DomainSet::new((0..weights.len()).map(|i| format!("d{i}"))).unwrap();
        Mixture::normalized(weights.to_vec(), &domains).unwrap()
    }

    fn drawer(draws: Draws, minimum: usize, seed: u64) -> Drawer {
        Drawer::new(&LoaderConfig {
            draws,
            minimum_per_domain: minimum,
            ..LoaderConfig::new(1, 1, seed)
        })
    }

    fn counts(drawer: &Drawer, mixture: &Mixture, step: u64, batch: usize) -> Vec<u64> {
        let mut slots = vec![DomainId(0); batch];
        drawer.draw(mixture, step, &mut slots).unwrap();
        let mut counts = vec![0; mixture.weights().len()];
        slots.iter().for_each(|d| counts[d.index()] += 1);
        counts
    }

    #[test]
    fn independent_draws_follow_the_weights() {
        let m = mixture(&[0.5, 0.3, 0.15, 0.05, 0.0]);
        let drawer = drawer(Draws::Independent, 0, 11);
        let (steps, batch) = (2000, 32);
        let mut total = [0u64; 5];
        for step in 0..steps {
            for (t, c) in total.iter_mut().zip(counts(&drawer, &m, step, batch)) {
                *t += c;
            }
        }
        let n = (steps * batch as u64) as f64;
        let chi: f64 = (0..4)
            .map(|i| {
                let want = n * m.weights()[i];
                (total[i] as f64 - want).powi(2) / want
            })
            .sum();
        // Chi-square with 3 degrees of freedom: 21.1 is the 0.9999 quantile.
        assert!(chi < 21.1, "{chi} {total:?}");
        assert_eq!(total[4], 0);
    }

    #[test]
    fn stratified_draws_are_unbiased() {
        let m = mixture(&[0.52, 0.31, 0.13, 0.04]);
        let drawer = drawer(Draws::Stratified, 0, 5);
        let steps = 20_000;
        let mut total = [0u64; 4];
        for step in 0..steps {
            for (t, c) in total.iter_mut().zip(counts(&drawer, &m, step, 10)) {
                *t += c;
            }
        }
        for (i, t) in total.iter().enumerate() {
            let mean = *t as f64 / steps as f64;
            // A count varies by at most 1: the deviation of the mean is below 0.5/√20000 = 0.0036.
            assert!((mean - 10.0 * m.weights()[i]).abs() < 0.015, "{i}: {mean}");
        }
    }

    #[test]
    fn shuffled_slots_hold_each_domain_equally_often() {
        let m = mixture(&[1.0, 1.0, 2.0]);
        let drawer = drawer(Draws::Stratified, 1, 3);
        let mut first_slot = [0f64; 3];
        let mut slots = [DomainId(0); 8];
        for step in 0..8000 {
            drawer.draw(&m, step, &mut slots).unwrap();
            first_slot[slots[0].index()] += 1.0;
        }
        // One slot each and the other five by weight.
        for (i, weight) in [0.25, 0.25, 0.5].iter().enumerate() {
            let want = 8000.0 * (1.0 + 5.0 * weight) / 8.0;
            assert!((first_slot[i] - want).abs() < 200.0, "{first_slot:?}");
        }
    }

    #[test]
    fn a_minimum_that_does_not_fit_is_refused() {
        let m = mixture(&[1.0, 1.0, 0.0, 1.0]);
        let mut slots = [DomainId(0); 5];
        let error = drawer(Draws::Independent, 2, 0).draw(&m, 0, &mut slots);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("3 domains") && text.contains("6"), "{text}");
    }

    proptest! {
        #[test]
        fn stratified_counts_are_within_one(
            raw in prop::collection::vec(0u16..100, 1..12), seed: u64, step: u64, batch in 1usize..70,
        ) {
            prop_assume!(raw.iter().any(|&w| w > 0));
            let m = mixture(&raw.iter().map(|&w| f64::from(w)).collect::<Vec<_>>());
            let got = counts(&drawer(Draws::Stratified, 0, seed), &m, step, batch);
            for (count, weight) in got.iter().zip(m.weights()) {
                let want = weight * batch as f64;
                prop_assert!((*count as f64 - want).abs() < 1.0 + 1e-9, "{} for {}", count, want);
                prop_assert!(*weight > 0.0 || *count == 0);
            }
        }

        #[test]
        fn every_domain_with_weight_gets_its_minimum(
            raw in prop::collection::vec(0u16..4, 1..8), seed: u64, step: u64, minimum in 1usize..4,
            stratified: bool,
        ) {
            prop_assume!(raw.iter().any(|&w| w > 0));
            let m = mixture(&raw.iter().map(|&w| f64::from(w)).collect::<Vec<_>>());
            let draws = if stratified { Draws::Stratified } else { Draws::Independent };
            let got = counts(&drawer(draws, minimum, seed), &m, step, 24);
            for (count, weight) in got.iter().zip(m.weights()) {
                prop_assert_eq!(*count >= minimum as u64, *weight > 0.0);
            }
            prop_assert_eq!(got.iter().sum::<u64>(), 24);
        }
    }
}
