//! What happens when a domain's windows have all been used.
//!
//! In: how often each domain may be gone through, the samples taken so far, and the weights. Out: the
//! mixture that slots are drawn from, and slots drawn again where a domain ended inside a batch.
//! Always holds: all of it follows from the seed, the counts and the weights alone, so that every rank
//! and a replay agree. Without a limit nothing here costs anything.

use hds::random::{Purpose, RandomStream};
use hds::{DomainId, DomainSet, Mixture};

use crate::config::{DomainEnd, LoaderConfig};
use crate::error::LoaderError;

/// The limits of a run.
#[derive(Clone, Debug)]
pub(crate) struct DomainEnds {
    policy: DomainEnd,
    /// Most samples of each domain, length K.
    limits: Vec<u64>,
    stream: RandomStream,
}

impl DomainEnds {
    /// `windows`: N of each domain, length K.
    pub(crate) fn new(config: &LoaderConfig, windows: &[u64]) -> Self {
        let limit = |&windows: &u64| match config.domain_end {
            DomainEnd::Restart => u64::MAX,
            DomainEnd::Stop => windows,
            DomainEnd::Cap { epochs } => windows.saturating_mul(epochs),
        };
        Self {
            policy: config.domain_end,
            limits: windows.iter().map(limit).collect(),
            stream: RandomStream::new(config.seed, Purpose::Draw),
        }
    }

    /// Whether a domain with `taken` samples has none left.
    fn ended(&self, domain: usize, taken: u64) -> bool {
        self.limits.get(domain).is_some_and(|&limit| taken >= limit)
    }

    /// The domains that were sampled and have nothing left, in order; with [`DomainEnd::Cap`] only.
    pub(crate) fn ended_domains(&self, taken: &[u64]) -> Vec<DomainId> {
        match self.policy {
            DomainEnd::Cap { .. } => (0u16..)
                .zip(taken)
                .filter(|(id, taken)| **taken > 0 && self.ended(usize::from(*id), **taken))
                .map(|(id, _)| DomainId(id))
                .collect(),
            DomainEnd::Restart | DomainEnd::Stop => Vec::new(),
        }
    }

    /// The weights without those of domains that have ended, in proportion; `None` if none had weight.
    ///
    /// # Errors
    /// If no domain with weight is left.
    pub(crate) fn remaining(
        &self,
        mixture: &Mixture,
        taken: &[u64],
        domains: &DomainSet,
    ) -> Result<Option<Mixture>, LoaderError> {
        if !matches!(self.policy, DomainEnd::Cap { .. }) {
            return Ok(None);
        }
        let lost = |(i, &weight): (usize, &f64)| weight > 0.0 && self.ended(i, taken[i]);
        if !mixture.weights().iter().enumerate().any(lost) {
            return Ok(None);
        }
        let weights = mixture.weights().iter().zip(taken).enumerate();
        let left = weights.map(|(i, (&w, &taken))| if self.ended(i, taken) { 0.0 } else { w });
        Mixture::normalized(left.collect(), domains)
            .map(Some)
            .map_err(|_| LoaderError::AllEnded {
                epochs: match self.policy {
                    DomainEnd::Cap { epochs } => epochs,
                    DomainEnd::Restart | DomainEnd::Stop => 1,
                },
            })
    }

    /// Goes through the slots of batch `step` in order and draws those again whose domain ended before
    /// them, from what is left of `mixture`.
    ///
    /// `taken`: samples before the batch, length K. Slot b takes random position (step, 2·B + b).
    ///
    /// # Errors
    /// With [`DomainEnd::Stop`] the first domain that ended; with [`DomainEnd::Cap`] if none is left.
    pub(crate) fn settle(
        &self,
        mixture: &Mixture,
        taken: &[u64],
        domains: &DomainSet,
        step: u64,
        slots: &mut [DomainId],
    ) -> Result<(), LoaderError> {
        if self.policy == DomainEnd::Restart {
            return Ok(());
        }
        let mut taken = taken.to_vec();
        let mut left: Option<Mixture> = None;
        let base = 2 * slots.len() as u32;
        for (b, slot) in (base..).zip(slots) {
            if self.ended(slot.index(), taken[slot.index()]) {
                if self.policy == DomainEnd::Stop {
                    return Err(LoaderError::DomainEnded {
                        domain: domains.name(*slot).to_owned(),
                        windows: self.limits[slot.index()],
                        step,
                    });
                }
                let unit = self.stream.unit_at(step, b);
                let still_good = left
                    .take()
                    .map(|m| (m.draw(unit), m))
                    .filter(|(d, _)| !self.ended(d.index(), taken[d.index()]));
                let (domain, rest) = match still_good {
                    Some(good) => good,
                    // Another domain has ended since: what is left is less.
                    None => {
                        let rest = self.remaining(mixture, &taken, domains)?;
                        let rest = rest.unwrap_or_else(|| mixture.clone());
                        (rest.draw(unit), rest)
                    }
                };
                *slot = domain;
                left = Some(rest);
            }
            taken[slot.index()] += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(domain_end: DomainEnd, windows: &[u64]) -> DomainEnds {
        let config = LoaderConfig {
            domain_end,
            ..LoaderConfig::new(1, 1, 3)
        };
        DomainEnds::new(&config, windows)
    }

    fn domains(count: usize) -> DomainSet {
        DomainSet::new((0..count).map(|i| format!("d{i}"))).unwrap()
    }

    #[test]
    fn lost_weight_goes_to_the_others_in_proportion() {
        let set = domains(3);
        let mixture = Mixture::new(vec![0.5, 0.2, 0.3], &set).unwrap();
        let ends = ends(DomainEnd::Cap { epochs: 2 }, &[10, 5, 5]);
        assert_eq!(ends.remaining(&mixture, &[19, 9, 9], &set).unwrap(), None);
        let left = ends
            .remaining(&mixture, &[20, 9, 9], &set)
            .unwrap()
            .unwrap();
        assert_eq!(left.weights(), [0.0, 0.4, 0.6]);
        assert_eq!(ends.ended_domains(&[20, 9, 10]), [DomainId(0), DomainId(2)]);
        let error = ends.remaining(&mixture, &[20, 10, 10], &set).unwrap_err();
        assert!(error.to_string().contains("2 epochs"), "{error}");
    }

    #[test]
    fn stop_names_the_domain_that_ended() {
        let set = domains(2);
        let mixture = Mixture::uniform(&set);
        let mut slots = [DomainId(1); 3];
        let ends = ends(DomainEnd::Stop, &[9, 7]);
        ends.settle(&mixture, &[0, 4], &set, 0, &mut slots).unwrap();
        let error = ends
            .settle(&mixture, &[0, 5], &set, 8, &mut slots)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("\"d1\"") && text.contains("7 windows"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn no_domain_goes_over_its_cap_and_other_slots_stay(
            windows in prop::collection::vec(1u64..6, 2..6), raw in prop::collection::vec(0u16..6, 30), step: u64,
        ) {
            let k = windows.len();
            let set = domains(k);
            let mixture = Mixture::uniform(&set);
            let ends = ends(DomainEnd::Cap { epochs: 2 }, &windows);
            let mut slots: Vec<DomainId> = raw.iter().map(|&d| DomainId(d % k as u16)).collect();
            let before = slots.clone();
            let room: u64 = windows.iter().map(|w| 2 * w).sum();
            let outcome = ends.settle(&mixture, &vec![0; k], &set, step, &mut slots);
            prop_assert_eq!(outcome.is_ok(), room >= 30);
            if outcome.is_ok() {
                let mut counts = vec![0u64; k];
                for (slot, was) in slots.iter().zip(&before) {
                    if counts[was.index()] < 2 * windows[was.index()] {
                        prop_assert_eq!(slot, was);
                    }
                    counts[slot.index()] += 1;
                }
                for (count, windows) in counts.iter().zip(&windows) {
                    prop_assert!(*count <= 2 * windows);
                }
            }
        }
    }
}
