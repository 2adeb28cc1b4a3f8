//! Which window of a domain is its c-th sample.
//!
//! In: the number of windows N of each domain and a sample number c. Out: epoch and window.
//! Always holds: with [`Order::Permutation`] the samples of an epoch are the windows 0..N, each once;
//! sample c is the same whatever was asked before. Memory is O(K).

use hds::DomainId;
use hds::permutation::Permutation;
use hds::random::{Purpose, RandomStream};

use crate::config::Order;

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
            Order::Independent => {
                let stream = RandomStream::new(self.seed, Purpose::Window);
                let bits = stream.bits_at(count, u32::from(domain.0));
                // The bias of taking the high half is at most N / 2^64.
                ((u128::from(bits) * u128::from(windows)) >> 64) as u64
            }
        };
        Some(Place { epoch, window })
    }

    fn permutation(&mut self, domain: DomainId, epoch: u64) -> Option<&Permutation> {
        let windows = self.windows(domain);
        let seed = self.seed;
        let cached = self.cached.get_mut(domain.index())?;
        if cached.as_ref().is_none_or(|(e, _)| *e != epoch) {
            *cached = Some((epoch, Permutation::of_epoch(seed, domain, epoch, windows)));
        }
        cached.as_ref().map(|(_, permutation)| permutation)
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
