//! Names of the files of an index.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Name of the manifest in the index folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The manifest's checksum, as the tool `b3sum` writes and checks it.
pub const MANIFEST_SUM_FILE: &str = "manifest.blake3";
/// What a part of an index, made by `hds-index build --shard`, has instead of a manifest.
pub const PART_FILE: &str = "part.json";

/// Which part of a domain: what is trained on, or what is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Sampled in training.
    Train,
    /// Held out for evaluation; never overlaps `Train`.
    Valid,
}

impl Split {
    /// Both splits, in the order they are stored.
    pub const ALL: [Self; 2] = [Self::Train, Self::Valid];

    /// The name in paths and the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The folder of a domain's split, relative to the index, with `/` between the parts.
///
/// Letters, digits, `-`, `_` and inner dots of the name stay; every other byte becomes `%XX`, so that
/// names map to folders one to one and none leads out of the index.
pub fn domain_folder(name: &str, split: Split) -> String {
    let mut folder = String::from("domains/");
    for (i, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if i > 0 => folder.push('.'),
            b'-' | b'_' => folder.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => folder.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => _ = write!(folder, "%{byte:02X}"),
        }
    }
    folder.push('/');
    folder.push_str(split.name());
    folder
}

/// The common stem of a shard's files in its folder: five digits, more where needed.
pub fn shard_stem(number: u64) -> String {
    format!("{number:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_safe_and_distinct() {
        assert_eq!(
            domain_folder("Pile-CC", Split::Train),
            "domains/Pile-CC/train"
        );
        assert_eq!(
            domain_folder("Wikipedia (en)", Split::Valid),
            "domains/Wikipedia%20%28en%29/valid"
        );
        assert_eq!(domain_folder("..", Split::Train), "domains/%2E./train");
        assert_eq!(domain_folder("a/b", Split::Train), "domains/a%2Fb/train");
        assert_ne!(
            domain_folder("a%2Fb", Split::Train),
            domain_folder("a/b", Split::Train)
        );
    }
}
