//! Which window of a domain is its c-th sample.
//!
//! In: the number of windows N of each domain and a sample number c. Out: epoch and window.
//! Always holds: with [`Order::Permutation`] the samples of an epoch are the windows 0..N, each once;
//! sample c is the same whatever was asked before. Memory is O(K).

use hds::DomainId;
use hds::permutation::Permutation;
use hds::random::{Purpose, RandomStream};

use crate::batch::SampleId;
use crate::config::Order;

/// Samples whose places are permuted side by side; more would only take memory.
const WALKED_TOGETHER: usize = 4096;

/// Where a sample lies in its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// How many times N samples came before.
    pub(crate) epoch: u64,
    /// Number of the window, below N.
    pub(crate) window: u64,
}

/// The order of every domain's windows.
#[derive(Clone, Debug)]
pub(crate) struct WindowOrder {
    seed: u64,
    order: Order,
    /// N of each domain.
    windows: Vec<u64>,
    /// The epoch last asked for of each domain, with its permutation.
    cached: Vec<Option<(u64, Permutation)>>,
}

impl WindowOrder {
    pub(crate) fn new(seed: u64, order: Order, windows: Vec<u64>) -> Self {
        Self {
            seed,
            order,
            cached: vec![None; windows.len()],
            windows,
        }
    }

    /// N of a domain; 0 for an id of another set.
    pub(crate) fn windows(&self, domain: DomainId) -> u64 {
        self.windows.get(domain.index()).copied().unwrap_or(0)
    }

    /// The place of sample `count`; `None` where the domain has no window.
    pub(crate) fn place(&mut self, domain: DomainId, count: u64) -> Option<Place> {
        let windows = self.windows(domain);
        let epoch = count.checked_div(windows)?;
        let window = match self.order {
            Order::Permutation => self.permutation(domain, epoch)?.at(count % windows)?,
            Order::Independent => self.independent(domain, count, windows),
        };
        Some(Place { epoch, window })
    }

    /// Sets epoch and window of samples from their domain and count, as [`Self::place`] gives them.
    ///
    /// # Errors
    /// The first sample whose domain has no window.
    pub(crate) fn place_each(&mut self, samples: &mut [SampleId]) -> Result<(), DomainId> {
        // Those before are done; those from here on stand at their place in their epoch's order.
        let mut start = 0;
        for i in 0..samples.len() {
            let SampleId { domain, count, .. } = samples[i];
            let windows = self.windows(domain);
            let epoch = count.checked_div(windows).ok_or(domain)?;
            samples[i].epoch = epoch;
            match self.order {
                Order::Permutation => {
                    if !self.is_cached(domain, epoch) {
                        // The samples before may need the permutation that goes.
                        self.permute(&mut samples[start..i]);
                        start = i;
                        self.permutation(domain, epoch);
                    }
                    samples[i].window = count % windows;
                }
                Order::Independent => samples[i].window = self.independent(domain, count, windows),
            }
        }
        if self.order == Order::Permutation {
            self.permute(&mut samples[start..]);
        }
        Ok(())
    }

    /// Replaces places in the order of an epoch by the windows there.
    fn permute(&self, samples: &mut [SampleId]) {
        for samples in samples.chunks_mut(WALKED_TOGETHER) {
            let mut walks = Vec::with_capacity(samples.len());
            walks.extend(samples.iter_mut().filter_map(|sample| {
                let (_, permutation) = self.cached.get(sample.domain.index())?.as_ref()?;
                Some((permutation, &mut sample.window))
            }));
            Permutation::at_each(walks);
        }
    }

    fn independent(&self, domain: DomainId, count: u64, windows: u64) -> u64 {
        let stream = RandomStream::new(self.seed, Purpose::Window);
        let bits = stream.bits_at(count, u32::from(domain.0));
        // The bias of taking the high half is at most N / 2^64.
        ((u128::from(bits) * u128::from(windows)) >> 64) as u64
    }

    fn is_cached(&self, domain: DomainId, epoch: u64) -> bool {
        let cached = self.cached.get(domain.index());
        matches!(cached, Some(Some((e, _))) if *e == epoch)
    }

    fn permutation(&mut self, domain: DomainId, epoch: u64) -> Option<&Permutation> {
        let windows = self.windows(domain);
        let cached = self.is_cached(domain, epoch);
        let seed = self.seed;
        let place = self.cached.get_mut(domain.index())?;
        if !cached {
            *place = Some((epoch, Permutation::of_epoch(seed, domain, epoch, windows)));
        }
        place.as_ref().map(|(_, permutation)| permutation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_window_once_and_the_next_has_another_order() {
        let mut order = WindowOrder::new(9, Order::Permutation, vec![0, 50]);
        assert_eq!(order.place(DomainId(0), 0), None);
        assert_eq!(order.place(DomainId(7), 0), None);
        let epoch = |order: &mut WindowOrder, e: u64| -> Vec<u64> {
            (0..50)
                .map(|c| {
                    let place = order.place(DomainId(1), e * 50 + c).unwrap();
                    assert_eq!(place.epoch, e);
                    place.window
                })
                .collect()
        };
        let (first, second) = (epoch(&mut order, 0), epoch(&mut order, 1));
        assert_ne!(first, second);
        assert_eq!(first, epoch(&mut order, 0));
        for mut windows in [first, second] {
            windows.sort_unstable();
            assert_eq!(windows, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn samples_of_several_epochs_at_once_are_those_one_by_one() {
        for kind in [Order::Permutation, Order::Independent] {
            let mut order = WindowOrder::new(3, kind, vec![1, 3, 70, 0]);
            let sample = |c: u64| SampleId {
                domain: DomainId((c % 3) as u16),
                epoch: 0,
                window: 0,
                count: 40 + c / 2,
            };
            let mut samples: Vec<_> = (0..150).map(sample).collect();
            order.place_each(&mut samples).unwrap();
            for s in &mut samples {
                let place = order.place(s.domain, s.count).unwrap();
                assert_eq!((s.epoch, s.window), (place.epoch, place.window), "{s:?}");
            }
            samples[149].domain = DomainId(3);
            assert_eq!(order.place_each(&mut samples), Err(DomainId(3)));
        }
    }

    #[test]
    fn independent_windows_are_uniform() {
        let mut order = WindowOrder::new(4, Order::Independent, vec![10]);
        let mut counts = [0f64; 10];
        for c in 0..20_000 {
            counts[order.place(DomainId(0), c).unwrap().window as usize] += 1.0;
        }
        // Chi-square with 9 degrees of freedom: 33.7 is the 0.9999 quantile.
        let chi: f64 = counts.iter().map(|c| (c - 2e3).powi(2) / 2e3).sum();
        assert!(chi < 33.7, "{chi}");
    }
}
