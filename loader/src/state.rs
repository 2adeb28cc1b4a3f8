//! Where a loader stands: small, plain, and enough to go on exactly, on any number of ranks.

use hds::{DomainSet, Mixture, MixtureError, VersionedMixture};
use serde::{Deserialize, Serialize};

use crate::config::{LoaderConfig, Order, Packing};
use crate::error::LoaderError;
use crate::index::Index;

const FORMAT_NAME: &str = "hds-loader-state";
const FORMAT_VERSION: u32 = 1;

/// A loader between two batches, as JSON of a few hundred bytes.
///
/// It is the same on every rank. World size, batch size and the rule of the draws may differ where it
/// is restored: they change which sequences come together, never which of a domain come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// What this is: `hds-loader-state`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Fingerprint of the index.
    pub index: String,
    /// Number of the next batch.
    pub step: u64,
    /// Seed of draws and order.
    pub seed: u64,
    /// Sequence length L in tokens.
    pub sequence_length: usize,
    /// How windows are ordered.
    pub order: Order,
    /// What a sequence is.
    pub packing: Packing,
    /// Samples taken of each domain so far, length K.
    pub samples: Vec<u64>,
    /// Version of the weights in force.
    pub weights_version: u64,
    /// The weights in force, length K.
    pub weights: Vec<f64>,
    /// Version of the weights that the batch before was drawn from, 0 before the first: the last one that a weight log must hold.
    pub last_version: u64,
    /// [Digest](VersionedMixture::digest) of those weights, empty before the first batch.
    pub last_weights: String,
    /// Digest of all else, by which an edited or damaged state is noticed.
    pub digest: String,
}

impl LoaderState {
    /// A loader of this index and configuration before batch `step`, with `samples` taken so far (length
    /// K) and these weights in force; `last` are those that the batch before was drawn from, version and digest.
    pub fn new(
        index: &Index,
        config: &LoaderConfig,
        step: u64,
        samples: Vec<u64>,
        weights: &VersionedMixture,
        last: (u64, String),
    ) -> Self {
        let mut state = Self {
            format: FORMAT_NAME.into(),
            version: FORMAT_VERSION,
            index: index.fingerprint().to_string(),
            step,
            seed: config.seed,
            sequence_length: config.sequence_length,
            order: config.order,
            packing: config.packing,
            samples,
            weights_version: weights.version,
            weights: weights.mixture.weights().to_vec(),
            last_version: last.0,
            last_weights: last.1,
            digest: String::new(),
        };
        state.digest = state.digest_of_content();
        state
    }

    /// 16 hexadecimal digits of BLAKE3 over everything but the digest, as JSON.
    fn digest_of_content(&self) -> String {
        let content = Self {
            digest: String::new(),
            ..self.clone()
        };
        // Plain numbers, words and lists: there is nothing in it that JSON cannot say.
        let text = serde_json::to_vec(&content).unwrap_or_default();
        blake3::hash(&text).to_hex()[..16].to_owned()
    }

    /// The weights that were in force, for [`hds::LiveWeights::resumed`].
    ///
    /// # Errors
    /// If they are no mixture of these domains.
    pub fn weights_in_force(&self, domains: &DomainSet) -> Result<VersionedMixture, MixtureError> {
        Ok(VersionedMixture {
            version: self.weights_version,
            mixture: Mixture::new(self.weights.clone(), domains)?,
        })
    }

    /// Checks that a loader of this index and configuration can go on from here.
    ///
    /// # Errors
    /// What differs, or what in the state contradicts itself.
    pub fn check(&self, index: &Index, config: &LoaderConfig) -> Result<(), LoaderError> {
        let differs = |what, got: &dyn ToString, want: &dyn ToString| LoaderError::State {
            what,
            got: got.to_string(),
            want: want.to_string(),
        };
        if self.format != FORMAT_NAME || self.version != FORMAT_VERSION {
            let got = format!("{} version {}", self.format, self.version);
            let want = format!("{FORMAT_NAME} version {FORMAT_VERSION}");
            return Err(differs("format", &got, &want));
        }
        let fingerprint = index.fingerprint().to_string();
        if self.index != fingerprint {
            return Err(differs("index", &self.index, &fingerprint));
        }
        if self.seed != config.seed {
            return Err(differs("seed", &self.seed, &config.seed));
        }
        if self.sequence_length != config.sequence_length {
            let (got, want) = (self.sequence_length, config.sequence_length);
            return Err(differs("sequence length", &got, &want));
        }
        if self.order != config.order {
            let (got, want) = (format!("{:?}", self.order), format!("{:?}", config.order));
            return Err(differs("order of windows", &got, &want));
        }
        if self.packing != config.packing {
            let (got, want) = (&self.packing, &config.packing);
            return Err(differs(
                "packing",
                &format!("{got:?}"),
                &format!("{want:?}"),
            ));
        }
        let domains = index.domains();
        if self.samples.len() != domains.len() {
            return Err(differs(
                "number of domains",
                &self.samples.len(),
                &domains.len(),
            ));
        }
        // Far beyond any run, and far from where counting on would overflow.
        let most = u64::MAX / 2;
        if self.step > most {
            return Err(LoaderError::BadState {
                field: "step",
                reason: format!("{} is beyond any run", self.step),
            });
        }
        if self.weights_version > most {
            return Err(LoaderError::BadState {
                field: "weights_version",
                reason: format!("{} is beyond any run", self.weights_version),
            });
        }
        let taken = self.samples.iter().try_fold(0u64, |t, &n| t.checked_add(n));
        let Some(taken) = taken.filter(|taken| *taken <= most) else {
            return Err(LoaderError::BadState {
                field: "samples",
                reason: "their sum is beyond any run".into(),
            });
        };
        // Every batch has a sequence; how many, may have changed since.
        if taken < self.step || (self.step == 0 && taken > 0) {
            return Err(LoaderError::BadState {
                field: "samples",
                reason: format!("their sum is {taken} after {} batches", self.step),
            });
        }
        for (&samples, id) in self.samples.iter().zip(domains.ids()) {
            let windows = index
                .split(id, hds::index::Split::Train)
                .samples(self.packing, self.sequence_length);
            if samples > 0 && windows == 0 {
                return Err(LoaderError::BadState {
                    field: "samples",
                    reason: format!("{samples} of domain {:?}, which has none", domains.name(id)),
                });
            }
        }
        self.weights_in_force(domains)
            .map_err(|source| LoaderError::Weights { source })?;
        if self.digest != self.digest_of_content() {
            return Err(LoaderError::BadState {
                field: "digest",
                reason: "the state is not as it was saved: it was edited or damaged since".into(),
            });
        }
        Ok(())
    }
}
