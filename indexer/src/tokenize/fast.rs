//! The fast engine: the crate `fastokens`, for BPE.
//!
//! In: a checked [`Document`]. Out: the ids of the reference engine, some fifty times faster. What it cannot do
//! it refuses at loading; [`super::check`] then holds it against the reference. It works on its caller's thread alone.
//!
//! Memory: each thread that encodes caches the ids of words it has met, at most 2^21 short words (64 MiB, and as much again for those
//! of many ids) and 32 MiB of long ones with their ids; a full cache is emptied. It does not grow with the corpus. The
//! engine's caches of whole inputs stay off.

use super::document::Document;
use crate::guard::guarded;

/// A loaded fast engine.
pub(super) struct Fast(Box<fastokens::Tokenizer>);

impl Fast {
    /// Builds the engine, or says why it cannot do this tokenizer.
    pub(super) fn build(document: &Document) -> Result<Self, String> {
        stay_on_one_thread();
        match guarded(|| fastokens::Tokenizer::from_json(document.json.clone())) {
            Some(Ok(tokenizer)) => Ok(Self(Box::new(tokenizer))),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the file makes the engine panic".to_owned()),
        }
    }

    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let encoded = self.0.encode(text).map_err(|error| error.to_string())?;
        if ids.is_empty() {
            *ids = encoded;
        } else {
            ids.extend_from_slice(&encoded);
        }
        Ok(())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.0.decode(ids, false).map_err(|error| error.to_string())
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
}

/// Keeps the engine from spreading long texts over threads of its own: a build has its threads already, as many as it was told to.
///
/// The engine sizes its pool once, by the processors that the thread which first needs it may run on, and works without a pool where
/// that is one. So a thread confined to one processor asks first. The only other switch is an environment variable,
/// which a library must not set. Elsewhere than on Linux the pool stays, which costs order on the machine but changes no id.
#[cfg(target_os = "linux")]
fn stay_on_one_thread() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    static ASKED: std::sync::Once = std::sync::Once::new();
    ASKED.call_once(|| {
        let asked = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None)?;
            let mut one = CpuSet::new();
            if let Some(processor) = (0..CpuSet::MAX_CPU).find(|&number| allowed.is_set(number)) {
                one.set(processor);
                sched_setaffinity(None, &one)?;
            }
            fastokens::fanout::threads();
            Ok::<(), rustix::io::Errno>(())
        });
        // Where the system forbids it, the pool stays.
        let _ = asked.join();
    });
}

#[cfg(not(target_os = "linux"))]
fn stay_on_one_thread() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn engine_has_no_threads_of_its_own() {
        super::stay_on_one_thread();
        assert_eq!(fastokens::fanout::threads(), 1);
    }
}
