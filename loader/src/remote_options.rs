//! What reading a remote index is told: where its cache is, how large it may grow, how pieces are fetched.
//!
//! In: values of a user. Out: values in their ranges. Nothing here touches a network or a disk; built in every
//! configuration, so that programs need not know whether they were built with the feature `remote`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Least size of a piece.
const LEAST_PIECE: u64 = 4 << 10;
/// Largest size of a piece; one is held in memory for each connection.
const MOST_PIECE: u64 = 64 << 20;
/// Least number of pieces in a cache.
const LEAST_PIECES: u64 = 8;
/// Most connections.
const MOST_CONNECTIONS: usize = 256;

/// Whether the place of an index is a URL and not a folder.
pub fn is_remote(place: &Path) -> bool {
    hds::index::remote_url(place).is_some()
}

/// When bytes of a remote file are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetch {
    /// As soon as their piece is there. A piece is held against the object's size and ETag at once, and a
    /// file's pieces together against the manifest's checksum as soon as all of them were fetched; from then
    /// on each one by itself.
    #[default]
    Pieces,
    /// Once all pieces of their file were fetched and add up to the manifest's checksum: starts later, and
    /// no byte is used that the manifest does not vouch for.
    Files,
}

/// A number of bytes, written `"100GB"` (10^9), `"512MiB"` (2^20) or as a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no size; write one as 100GB, 512MiB or as a whole number of bytes")
        };
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, *unit)))
            .unwrap_or((text.trim(), 1));
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteSize {
    /// With the largest unit that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS
            .iter()
            .filter(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match fitting.max_by_key(|(_, unit)| *unit) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "must be a size such as \"100GB\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// What the cache of a remote index went through in one process, each mended by fetching again; the first of each kind
/// is also said on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheTroubles {
    /// Pieces, and checksums of the pieces of a file, that were not as they had been written.
    pub damaged: u64,
    /// How often a piece met a full disk, so that others made way, or it was not kept.
    pub disk_full: u64,
    /// Pieces that could not be kept at all, and are fetched anew at each use.
    pub not_kept: u64,
}

/// How a remote index is read; of no effect on one in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Folder that keeps what was fetched, on a local disk; processes of a machine share it. Where none is
    /// given, `$HDS_CACHE`, `$XDG_CACHE_HOME/hds` or `~/.cache/hds`.
    pub cache: Option<PathBuf>,
    /// Most bytes of that folder; what was not used for longest makes room.
    pub cache_limit: ByteSize,
    /// Bytes fetched together: a power of two from 4 KiB to 64 MiB.
    pub piece: ByteSize,
    /// When bytes are handed out.
    pub fetch: Fetch,
    /// Pieces fetched at once for reading ahead.
    pub connections: usize,
    /// How long a request is repeated where the server fails or is away; the first one of an index gives up
    /// after [`Self::FIRST_PATIENCE`] at the latest.
    pub patience: Duration,
}

impl Default for RemoteOptions {
    /// 100 GB of pieces of 1 MiB by 16 connections, two minutes of patience: our choice. A window of 2 KiB
    /// at a random place costs a whole piece the first time, so that larger ones make the start slow and
    /// smaller ones waste requests.
    fn default() -> Self {
        Self {
            cache: None,
            cache_limit: ByteSize(100_000_000_000),
            piece: ByteSize(1 << 20),
            fetch: Fetch::Pieces,
            connections: 16,
            patience: Duration::from_secs(120),
        }
    }
}

impl RemoteOptions {
    /// Most time for the first request of an index: a mistyped host should not take minutes to say so.
    pub const FIRST_PATIENCE: Duration = Duration::from_secs(15);

    /// Checks every value.
    ///
    /// # Errors
    /// The first one out of its range, by name.
    pub fn check(&self) -> Result<(), String> {
        let piece = self.piece.0;
        if !piece.is_power_of_two() || !(LEAST_PIECE..=MOST_PIECE).contains(&piece) {
            return Err(format!(
                "cache_piece: is {}, must be a power of two from {} to {}",
                self.piece,
                ByteSize(LEAST_PIECE),
                ByteSize(MOST_PIECE)
            ));
        }
        if self.cache_limit.0 < piece * LEAST_PIECES {
            return Err(format!(
                "cache_limit: is {}, must hold at least {LEAST_PIECES} pieces of {}",
                self.cache_limit, self.piece
            ));
        }
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return Err(format!(
                "connections: is {}, must be from 1 to {MOST_CONNECTIONS}",
                self.connections
            ));
        }
        Ok(())
    }

    /// The cache's folder.
    ///
    /// # Errors
    /// If none is given and the environment names none.
    pub fn cache_folder(&self) -> Result<PathBuf, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(folder) = &self.cache {
            return Ok(folder.clone());
        }
        if let Some(folder) = set("HDS_CACHE") {
            return Ok(folder.into());
        }
        let base = set("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
        base.map(|base| base.join("hds")).ok_or_else(|| {
            "no folder for the cache: give one, or set HDS_CACHE, XDG_CACHE_HOME or HOME".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_without_loss() {
        for (text, bytes, shown) in [
            ("100GB", 100_000_000_000, "100GB"),
            ("512 MiB", 512 << 20, "512MiB"),
            ("4096", 4096, "4KiB"),
            ("1000", 1000, "1KB"),
            ("12345", 12_345, "12345B"),
            ("0", 0, "0B"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size, size.to_string()), (ByteSize(bytes), shown.into()));
            assert_eq!(shown.parse(), Ok(size));
        }
        for text in ["", "GB", "1.5GB", "-1", "1 parsec", "99999999999TB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(serde_json::to_string(&ByteSize(4096)).unwrap(), "\"4KiB\"");
        let read = |text| serde_json::from_str::<ByteSize>(text);
        assert_eq!(read("\"2KB\"").unwrap(), read("2000").unwrap());
        assert!(read("true").is_err());
    }

    #[test]
    fn each_bad_option_is_named() {
        type Edit = fn(&mut RemoteOptions);
        let cases: [(Edit, &str); 5] = [
            (|o| o.piece = ByteSize(5000), "cache_piece: is 5KB"),
            (|o| o.piece = ByteSize(1 << 30), "cache_piece: is 1GiB"),
            (
                |o| o.cache_limit = ByteSize(1 << 20),
                "cache_limit: is 1MiB",
            ),
            (|o| o.connections = 0, "connections"),
            (|o| o.connections = 1000, "connections"),
        ];
        RemoteOptions::default().check().unwrap();
        for (edit, want) in cases {
            let mut options = RemoteOptions::default();
            edit(&mut options);
            let text = options.check().unwrap_err();
            assert!(text.starts_with(want), "{text}");
        }
    }
}
