//! Requests to the server of a remote index.
//!
//! In: a file of the index, a range, what the manifest says. Out: its bytes, exactly as many. Always holds: an
//! answer for another range, of an object of another size or another ETag than before is an error. The futures
//! of the client end here: everything above waits on its own thread.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use hds::index::{IndexError, MANIFEST_FILE, Manifest};
use object_store::path::Path as ObjectPath;
use object_store::{Error, GetOptions, GetRange, ObjectStore};
use tokio::runtime::Runtime;

use super::address::{Address, with_causes};
use super::giving_up;

/// Threads that wait for sockets.
const NETWORK_THREADS: usize = 2;
/// How often an answer is asked for again whose body breaks off. (Requests without an answer are the client's to
/// repeat.)
const BROKEN_BODIES: u32 = 5;
/// First pause after a body that broke off; doubled each time.
const BROKEN_BODY_PAUSE: Duration = Duration::from_millis(200);
/// Parts of the URLs that the client asks for credentials where the environment has none.
const CREDENTIAL_SERVICES: [&str; 4] = [
    "/latest/api/token",
    "/latest/meta-data",
    "/computeMetadata/",
    "/metadata/identity/",
];
/// Longest text of a server that is shown.
const MOST_SHOWN: usize = 600;

/// A client with the threads it runs on.
pub(super) struct Store {
    address: Arc<Address>,
    client: Arc<dyn ObjectStore>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// An answer, as far as it came.
struct Answer {
    /// Bytes of the whole object.
    size: u64,
    range: Range<u64>,
    etag: Option<String>,
    body: Result<Vec<u8>, Error>,
}

/// Asks once; does not read a body of more than `most` bytes.
async fn get(
    client: &dyn ObjectStore,
    object: &ObjectPath,
    options: GetOptions,
    most: u64,
) -> Result<Answer, Error> {
    let result = client.get_opts(object, options).await?;
    let (size, range) = (result.meta.size, result.range.clone());
    let etag = result.meta.e_tag.clone();
    let body = if range.end - range.start > most {
        Ok(Vec::new())
    } else {
        result.bytes().await.map(Vec::from)
    };
    Ok(Answer {
        size,
        range,
        etag,
        body,
    })
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing: a look-up of a name may take long.
            runtime.shutdown_background();
        }
    }
}

impl Store {
    /// A client that repeats requests for as long as `patience`.
    pub(super) fn new(address: Arc<Address>, patience: Duration) -> Result<Self, IndexError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("hds-remote")
            .enable_all()
            .build()
            .map_err(|e| IndexError::Remote {
                url: address.shown().into(),
                reason: format!("no threads for the network: {e}"),
            })?;
        let client = address.client(patience)?;
        Ok(Self {
            address,
            client,
            runtime: Some(runtime),
        })
    }

    /// The text of the manifest.
    pub(super) fn manifest(&self) -> Result<Vec<u8>, IndexError> {
        let most = Manifest::MAX_BYTES;
        let answer = self.ask(MANIFEST_FILE, GetOptions::default, most, |answer| {
            if answer.size > most {
                let size = answer.size;
                return Err(format!("it has {size} bytes, a manifest at most {most}"));
            }
            Ok(())
        });
        Ok(answer?.0)
    }

    /// The bytes `range` of a file that has `size` bytes, and its ETag, which is `etag` where one is given.
    pub(super) fn range(
        &self,
        file: &str,
        range: Range<u64>,
        size: u64,
        etag: Option<&str>,
    ) -> Result<(Vec<u8>, Option<String>), IndexError> {
        // A weak ETag never matches by the rules of HTTP; it is compared here.
        let strong = etag.filter(|etag| !etag.starts_with("W/"));
        let options = || GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: strong.map(str::to_owned),
            ..GetOptions::default()
        };
        let most = range.end - range.start;
        self.ask(file, options, most, |answer| {
            let got = answer.size;
            if got != size {
                return Err(format!(
                    "the object has {got} bytes, the manifest says {size}; upload the index again"
                ));
            }
            if answer.range != range {
                return Err(format!(
                    "the server answered bytes {:?} for {range:?}",
                    answer.range
                ));
            }
            match (etag, &answer.etag) {
                (Some(old), Some(new)) if old != new => Err(changed(&format!("{new}, not {old}"))),
                _ => Ok(()),
            }
        })
    }

    /// Asks for at most `most` bytes until an answer came whole; `check` looks at its head.
    fn ask(
        &self,
        file: &str,
        options: impl Fn() -> GetOptions,
        most: u64,
        check: impl Fn(&Answer) -> Result<(), String>,
    ) -> Result<(Vec<u8>, Option<String>), IndexError> {
        let object = self.address.object(file)?;
        let mut pause = BROKEN_BODY_PAUSE;
        let mut broken = 0;
        loop {
            let answer = self.answer(file, &object, options(), most)?;
            let answer = answer.map_err(|e| self.failure(file, &e))?;
            check(&answer).map_err(|reason| self.address.error(file, reason))?;
            let want = answer.range.end - answer.range.start;
            let reason = match answer.body {
                Ok(body) if body.len() as u64 == want => return Ok((body, answer.etag)),
                Ok(body) => format!("the answer broke off after {} of {want} bytes", body.len()),
                Err(e) => format!("the answer broke off: {}", with_causes(&e)),
            };
            broken += 1;
            if broken > BROKEN_BODIES {
                let reason = format!("{}, {broken} times", shortened(&reason));
                return Err(self.address.error(file, reason));
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    /// One request, waited for on this thread. (Not by the runtime's own means, which refuse to wait where the
    /// caller is a task of another runtime.)
    fn answer(
        &self,
        file: &str,
        object: &ObjectPath,
        options: GetOptions,
        most: u64,
    ) -> Result<Result<Answer, Error>, IndexError> {
        let lost = || {
            self.address
                .error(file, "the request was lost in this process")
        };
        let runtime = self.runtime.as_ref().ok_or_else(lost)?;
        let (client, object) = (Arc::clone(&self.client), object.clone());
        let (sender, receiver) = sync_channel(1);
        runtime.spawn(async move {
            let answer = get(client.as_ref(), &object, options, most).await;
            // Nobody is gone who waits for it below.
            let _ = sender.send(answer);
        });
        loop {
            match receiver.recv_timeout(giving_up::LOOK_EVERY) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(lost()),
                Err(RecvTimeoutError::Timeout) if giving_up::is_asked() => {
                    return Err(self.address.error(file, "waiting for it was given up"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// What a failed request means to a user.
    fn failure(&self, file: &str, error: &Error) -> IndexError {
        let text = with_causes(error);
        // Not every client of the crate sorts its errors.
        let status = |code: u16| text.contains(&format!("status code: {code}"));
        let reason = if matches!(error, Error::NotFound { .. }) || status(404) {
            let advice = if file == MANIFEST_FILE {
                "there is no index: check the bucket and the path, or upload one"
            } else {
                "there is no such object though the manifest names it; upload the index again"
            };
            format!("{advice} ({})", shortened(&text))
        } else if matches!(
            error,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
        ) || status(401)
            || status(403)
        {
            format!(
                "the server refuses it; check {} ({})",
                self.address.credentials(),
                shortened(&text)
            )
        } else if CREDENTIAL_SERVICES.iter().any(|part| text.contains(part)) {
            format!(
                "there are no credentials in the environment, and this machine gives none; set {} ({})",
                self.address.credentials(),
                shortened(&text)
            )
        } else if matches!(error, Error::Precondition { .. }) || status(412) {
            changed(&shortened(&text))
        } else if status(416) {
            format!(
                "the object is shorter than the manifest says; upload the index again ({})",
                shortened(&text)
            )
        } else if text.contains("Content-Length Header missing") {
            format!(
                "the server answers without a length, as it does with web pages that it makes and not with files: check the address, and whether the network wants you to sign in first ({})",
                shortened(&text)
            )
        } else if text.contains("non-partial response")
            || matches!(error, Error::NotSupported { .. })
        {
            format!(
                "the server ignores byte ranges, or the object is empty, or a page came in its place (from a network that wants you to sign in); use a server that has ranges ({})",
                shortened(&text)
            )
        } else {
            shortened(&text)
        };
        self.address.error(file, reason)
    }
}

fn changed(detail: &str) -> String {
    format!(
        "the object was changed since it was first read, its ETag is another; an index is never written to: upload a new one elsewhere and start again ({detail})"
    )
}

/// Bodies of errors may be whole pages.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}
