//! The URL of a remote index, and the client for its server.
//!
//! In: a URL and the environment's credentials. Out: a client, and the names of the index's objects. Messages never
//! show a password that the URL holds.

use std::sync::Arc;
use std::time::Duration;

use hds::index::{Checksum, IndexError};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::{Position, Url};

/// First pause before a request is repeated; the next ones are longer, and random.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// More than fit into any patience.
const MOST_RETRIES: usize = 100_000;
/// Length of [`Address::origin`].
const ORIGIN_DIGITS: usize = 16;
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Where an index is.
pub(super) struct Address {
    url: Url,
    scheme: ObjectStoreScheme,
    prefix: ObjectPath,
    shown: String,
    origin: String,
}

impl Address {
    /// Takes a URL apart.
    pub(super) fn parse(text: &str) -> Result<Self, IndexError> {
        let wrong = |reason: String| IndexError::Remote {
            url: text.into(),
            reason,
        };
        let url = Url::parse(text).map_err(|e| wrong(format!("it is no URL: {e}")))?;
        let mut shown = url.clone();
        if url.password().is_some() {
            // A URL with a password may have another one.
            let _ = shown.set_password(Some("REDACTED"));
        }
        let shown = shown.as_str().trim_end_matches('/').to_owned();
        let wrong = |reason: String| IndexError::Remote {
            url: shown.clone(),
            reason,
        };
        let after = text.split_once("://").map_or("", |(_, rest)| rest);
        if url.scheme() != "file" && (after.is_empty() || after.starts_with(['/', '?', '#'])) {
            let scheme = url.scheme();
            let name = match scheme {
                "http" | "https" => "server",
                "s3" | "s3a" | "gs" => "bucket",
                _ => "container",
            };
            let reason = format!("it names no {name}; an index is at {scheme}://{name}/path");
            return Err(match url.password() {
                // As it was written, which is another URL.
                None => IndexError::Remote {
                    url: text.into(),
                    reason,
                },
                Some(_) => wrong(reason),
            });
        }
        if url.scheme() == "file" && url.has_host() {
            return Err(wrong(
                "a URL of this machine has three slashes, file:///path; or give the path".into(),
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(
                "give the URL of the index's folder, without ? and #".into(),
            ));
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(&url)
            .map_err(|e| wrong(format!("it is no place of an index: {e}")))?;
        let origin = Checksum::of(origin(&shown, &scheme).as_bytes()).to_string();
        Ok(Self {
            url,
            scheme,
            prefix,
            shown,
            origin: origin[..ORIGIN_DIGITS].to_owned(),
        })
    }

    /// Short name of the server and the place there. What comes from one origin is not taken for what another one
    /// has, though both claim the same checksum.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The URL of a file of the index, for messages.
    pub(super) fn of(&self, file: &str) -> String {
        format!("{}/{file}", self.shown)
    }

    /// The URL of the index, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The object that a file of the index is.
    pub(super) fn object(&self, file: &str) -> Result<ObjectPath, IndexError> {
        let whole = match self.prefix.as_ref() {
            "" => file.to_owned(),
            prefix => format!("{prefix}/{file}"),
        };
        ObjectPath::parse(whole).map_err(|e| self.error(file, e.to_string()))
    }

    /// An error that names a file of the index.
    pub(super) fn error(&self, file: &str, reason: impl Into<String>) -> IndexError {
        IndexError::Remote {
            url: self.of(file),
            reason: self.without_password(reason.into()),
        }
    }

    /// A message of the client, which shows URLs as they are.
    fn without_password(&self, text: String) -> String {
        match self.url.password() {
            Some(password) => text.replace(&format!(":{password}@"), ":REDACTED@"),
            None => text,
        }
    }

    /// A client; it repeats requests for as long as `patience`.
    pub(super) fn client(&self, patience: Duration) -> Result<Arc<dyn ObjectStore>, IndexError> {
        // The client takes the process's provider of cryptography and has no other way; where one is set already,
        // that one does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_PAUSE,
                max_backoff: LONGEST_PAUSE,
                base: 2.0,
            },
            // Time is the limit: no pause is shorter than the first.
            max_retries: MOST_RETRIES,
            retry_timeout: patience,
        };
        if self.scheme == ObjectStoreScheme::AmazonS3 {
            check_s3_servers(s3_servers()).map_err(|reason| IndexError::Remote {
                url: self.shown.clone(),
                reason,
            })?;
        }
        let url = self.url.as_str();
        let client: Result<Arc<dyn ObjectStore>, object_store::Error> = match self.scheme {
            ObjectStoreScheme::AmazonS3 => AmazonS3Builder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()
                .map(|client| Arc::new(client) as _),
            ObjectStoreScheme::GoogleCloudStorage => GoogleCloudStorageBuilder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()
                .map(|client| Arc::new(client) as _),
            ObjectStoreScheme::MicrosoftAzure => MicrosoftAzureBuilder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()
                .map(|client| Arc::new(client) as _),
            ObjectStoreScheme::Http => HttpBuilder::new()
                .with_url(&self.url[..Position::BeforePath])
                // Whoever writes http:// wants no encryption.
                .with_client_options(
                    ClientOptions::new().with_allow_http(self.url.scheme() == "http"),
                )
                .with_retry(retry)
                .build()
                .map(|client| Arc::new(client) as _),
            ObjectStoreScheme::Local => Ok(Arc::new(LocalFileSystem::new()) as _),
            _ => {
                let reason = "indexes are read from s3://, gs://, az://, http(s):// and file://";
                return Err(IndexError::Remote {
                    url: self.shown.clone(),
                    reason: reason.into(),
                });
            }
        };
        client.map_err(|e| IndexError::Remote {
            url: self.shown.clone(),
            reason: self.without_password(with_causes(&e)),
        })
    }

    /// What a user who is refused may look at.
    pub(super) fn credentials(&self) -> &'static str {
        match self.scheme {
            ObjectStoreScheme::AmazonS3 => {
                "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT (AWS_SKIP_SIGNATURE=true for public buckets)"
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT"
            }
            ObjectStoreScheme::MicrosoftAzure => {
                "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
            }
            _ => "the server's rules, and the user name and password in the URL",
        }
    }
}

/// The URL, and for S3 the server, which is not in it.
fn origin(shown: &str, scheme: &ObjectStoreScheme) -> String {
    let mut text = shown.to_owned();
    if *scheme == ObjectStoreScheme::AmazonS3 {
        for (name, value) in s3_servers() {
            text.push_str(&format!("\n{name}={value}"));
        }
    }
    text
}

/// The environment's variables that name an S3 server, with their values, by name.
fn s3_servers() -> Vec<(String, String)> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut servers: Vec<_> = variables
        .filter(|(name, _)| name.starts_with("AWS_ENDPOINT"))
        .collect();
    servers.sort_unstable();
    servers
}

/// Whether they are URLs of servers; the client takes them as they are, and some it cannot bear.
fn check_s3_servers(servers: Vec<(String, String)>) -> Result<(), String> {
    for (name, value) in servers {
        let url = Url::parse(&value).ok();
        if !url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
            return Err(format!(
                "{name}={value} is no URL of a server, such as https://s3.example.org:9000"
            ));
        }
        let allowed = std::env::var("AWS_ALLOW_HTTP").unwrap_or_default();
        if value.starts_with("http:")
            && !matches!(&*allowed.to_lowercase(), "1" | "true" | "on" | "yes" | "y")
        {
            return Err(format!(
                "{name}={value} is not encrypted; set AWS_ALLOW_HTTP=true where that is wanted"
            ));
        }
    }
    Ok(())
}

/// An error with what caused it, each said once.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_follow_the_url() {
        for (url, object) in [
            ("s3://bucket/a/index", "a/index/domains/x%20y/f"),
            ("s3://bucket", "domains/x%20y/f"),
            ("s3://bucket/a/index/", "a/index/domains/x%20y/f"),
            ("http://host:81/a", "a/domains/x%20y/f"),
            ("az://container/a", "a/domains/x%20y/f"),
            ("gs://bucket/a", "a/domains/x%20y/f"),
        ] {
            let address = Address::parse(url).unwrap();
            let name = "domains/x%20y/f";
            assert_eq!(address.object(name).unwrap().as_ref(), object, "{url}");
            assert_eq!(
                address.of(name),
                format!("{}/{name}", url.trim_end_matches('/'))
            );
        }
        for url in [
            "http:///x",
            "https:////x/y",
            "s3:///x",
            "s3://",
            "gs:///",
            "az:///c/x",
        ] {
            let error = Address::parse(url).err().unwrap().to_string();
            assert!(error.contains("names no"), "{url}: {error}");
        }
        for url in ["nonsense", "s3://b/i?x=1", "ftp://h/i", "https://h/i#x"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        let secret = Address::parse("http://me:pass@host/i").unwrap();
        assert_eq!(secret.shown(), "http://me:REDACTED@host/i");
        let error = secret.error("f", "GET http://me:pass@host/i/f failed");
        assert!(!error.to_string().contains("pass@"), "{error}");
    }

    #[test]
    fn a_server_that_is_no_url_is_named() {
        for wrong in ["127.0.0.1:9000", "%%%", "localhost", "ftp://host", ""] {
            let named = vec![("AWS_ENDPOINT".to_owned(), wrong.to_owned())];
            let reason = check_s3_servers(named).unwrap_err();
            assert!(reason.contains("AWS_ENDPOINT"), "{reason}");
        }
        let good = vec![(
            "AWS_ENDPOINT_URL".to_owned(),
            "https://host:9000".to_owned(),
        )];
        assert!(check_s3_servers(good).is_ok());
    }
}
