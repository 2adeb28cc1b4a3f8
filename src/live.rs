//! Live weights: the mixture in force, changed by one writer while many readers sample from it.
//!
//! In: mixtures, published one after another. Out: the newest one with its version.
//! Always holds: a reader sees a whole mixture, never parts of two; versions grow by one from 1.
//! The rule of use: what is published after step t governs batch t+1. Leaves logging to
//! [`crate::weight_log`].
//!
//! ```
//! use hds::{DomainSet, LiveWeights, Mixture};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let domains = DomainSet::new(["code", "law"])?;
//! let weights = LiveWeights::new(Mixture::uniform(&domains));
//! let for_the_loader = weights.clone();
//! let version = weights.publish(Mixture::new(vec![0.25, 0.75], &domains)?);
//! assert_eq!((version, for_the_loader.read().version), (2, 2));
//! // A weight that makes no sense is refused by the name of its domain.
//! let error = Mixture::new(vec![1.5, -0.5], &domains).unwrap_err();
//! assert!(error.to_string().contains("\"law\" is -0.5"));
//! # Ok(()) }
//! ```

use std::sync::{Arc, RwLock};

use crate::mixture::Mixture;

/// A mixture and the number of its publication.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedMixture {
    /// 1 for the first mixture published, then one more each time.
    pub version: u64,
    /// The weights.
    pub mixture: Mixture,
}

impl VersionedMixture {
    /// 16 hexadecimal digits of BLAKE3 over version and weights, to tell those of one run from another's.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.version.to_le_bytes());
        for weight in self.mixture.weights() {
            hasher.update(&weight.to_bits().to_le_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

/// A handle to the mixture in force; clones share it.
#[derive(Clone, Debug)]
pub struct LiveWeights {
    current: Arc<RwLock<Arc<VersionedMixture>>>,
}

impl LiveWeights {
    /// Starts with a mixture as version 1.
    pub fn new(mixture: Mixture) -> Self {
        Self::resumed(VersionedMixture {
            version: 1,
            mixture,
        })
    }

    /// Starts where a saved run stood.
    pub fn resumed(current: VersionedMixture) -> Self {
        Self {
            current: Arc::new(RwLock::new(Arc::new(current))),
        }
    }

    /// Puts a mixture in force and returns its version. O(1), no reader waits for more than a swap.
    pub fn publish(&self, mixture: Mixture) -> u64 {
        // A poisoned lock still holds a whole Arc: the value is swapped in one store.
        let mut guard = self.current.write().unwrap_or_else(|e| e.into_inner());
        let version = guard.version + 1;
        *guard = Arc::new(VersionedMixture { version, mixture });
        version
    }

    /// The mixture in force.
    pub fn read(&self) -> Arc<VersionedMixture> {
        Arc::clone(&self.current.read().unwrap_or_else(|e| e.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainSet;

    #[test]
    fn readers_never_see_a_torn_mixture() {
        let domains = DomainSet::new(["a", "b"]).unwrap();
        let live = LiveWeights::new(Mixture::new(vec![0.0, 1.0], &domains).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let live = live.clone();
                scope.spawn(move || {
                    let mut last = 0;
                    while last < 2001 {
                        let now = live.read();
                        assert!(now.version >= last);
                        last = now.version;
                        let expected = ((now.version - 1) % 100) as f64 / 100.0;
                        assert_eq!(now.mixture.weights(), [expected, 1.0 - expected]);
                    }
                });
            }
            for i in 1..=2000u64 {
                let w = (i % 100) as f64 / 100.0;
                let version = live.publish(Mixture::new(vec![w, 1.0 - w], &domains).unwrap());
                assert_eq!(version, i + 1);
            }
        });
    }
}
