//! Domains: the parts of a corpus that get a sampling weight each (web, code, law, papers…).
//!
//! In: names. Out: dense ids `0..K` in the order of the names, which is the order of every
//! K-vector in this project (weights, losses, rewards). Leaves weights to [`crate::mixture`].

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Position of a domain in its [`DomainSet`], and so in every vector of length K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainId(pub u16);

impl DomainId {
    /// The id as an index into vectors of length K.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a list of names is not a set of domains.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainError {
    /// The list is empty.
    #[error("no domain: at least one is needed")]
    Empty,
    /// More domains than [`DomainSet::MAX`].
    #[error("{got} domains, at most {max} are possible; is the domain field really a domain?", max = DomainSet::MAX)]
    TooMany {
        /// Number of names given.
        got: usize,
    },
    /// A name occurs twice.
    #[error("domain {name:?} is named twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A name is empty, too long, or has control characters.
    #[error("domain name {name:?} must have 1 to {max} bytes and no control characters", max = DomainSet::MAX_NAME_BYTES)]
    Name {
        /// The name.
        name: String,
    },
    /// A name was asked for that is not in the set.
    #[error("no domain is named {name:?}; the domains are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are, comma separated.
        known: String,
    },
}

/// The K domains of an index, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct DomainSet {
    names: Vec<String>,
}

impl DomainSet {
    /// Most domains a set can have.
    pub const MAX: usize = 4096;
    /// Longest name in bytes.
    pub const MAX_NAME_BYTES: usize = 200;

    /// Makes a set of the names, in the given order.
    ///
    /// # Errors
    /// If there is no name, too many, one twice, or one that cannot be shown or stored.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Result<Self, DomainError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() {
            return Err(DomainError::Empty);
        }
        if names.len() > Self::MAX {
            return Err(DomainError::TooMany { got: names.len() });
        }
        let mut seen = std::collections::HashSet::with_capacity(names.len());
        for name in &names {
            Self::check_name(name)?;
            if !seen.insert(name.as_str()) {
                return Err(DomainError::Duplicate { name: name.clone() });
            }
        }
        Ok(Self { names })
    }

    /// Checks one name by the rules of a set.
    ///
    /// # Errors
    /// If it is empty, longer than [`Self::MAX_NAME_BYTES`], or has control characters.
    pub fn check_name(name: &str) -> Result<(), DomainError> {
        let good = !name.is_empty()
            && name.len() <= Self::MAX_NAME_BYTES
            && !name.chars().any(char::is_control);
        if good {
            Ok(())
        } else {
            Err(DomainError::Name {
                name: name.to_owned(),
            })
        }
    }

    /// Number of domains, K.
    #[allow(clippy::len_without_is_empty)] // never empty by construction
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// All names in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// All ids in order.
    pub fn ids(&self) -> impl Iterator<Item = DomainId> + use<> {
        // At most MAX = 4096 domains, so the cast is exact.
        (0..self.names.len()).map(|i| DomainId(i as u16))
    }

    /// The name of a domain; `"?"` for an id of another set.
    pub fn name(&self, id: DomainId) -> &str {
        self.names.get(id.index()).map_or("?", String::as_str)
    }

    /// The id of a name.
    ///
    /// # Errors
    /// If no domain has the name; the error lists those there are.
    pub fn find(&self, name: &str) -> Result<DomainId, DomainError> {
        match self.names.iter().position(|n| n == name) {
            Some(i) => Ok(DomainId(i as u16)),
            None => Err(DomainError::Unknown {
                name: name.to_owned(),
                known: self.names.join(", "),
            }),
        }
    }
}

impl TryFrom<Vec<String>> for DomainSet {
    type Error = DomainError;
    fn try_from(names: Vec<String>) -> Result<Self, DomainError> {
        Self::new(names)
    }
}

impl From<DomainSet> for Vec<String> {
    fn from(set: DomainSet) -> Self {
        set.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_order_of_names() {
        let set = DomainSet::new(["web", "code"]).unwrap();
        assert_eq!(set.find("code").unwrap(), DomainId(1));
        assert_eq!(set.name(DomainId(0)), "web");
        assert_eq!(set.ids().collect::<Vec<_>>(), [DomainId(0), DomainId(1)]);
    }

    #[test]
    fn bad_sets_are_refused() {
        assert_eq!(
            DomainSet::new(Vec::<String>::new()),
            Err(DomainError::Empty)
        );
        assert_eq!(
            DomainSet::new(["a", "a"]),
            Err(DomainError::Duplicate { name: "a".into() })
        );
        assert!(matches!(
            DomainSet::new(["a\n"]),
            Err(DomainError::Name { .. })
        ));
        assert!(matches!(
            DomainSet::new([""]),
            Err(DomainError::Name { .. })
        ));
        let many: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
        assert_eq!(
            DomainSet::new(many),
            Err(DomainError::TooMany { got: 5000 })
        );
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let set = DomainSet::new(["web", "code"]).unwrap();
        let text = set.find("law").unwrap_err().to_string();
        assert!(text.contains("law") && text.contains("web, code"), "{text}");
    }

    #[test]
    fn a_set_read_from_json_is_checked() {
        assert!(serde_json::from_str::<DomainSet>(r#"["a","a"]"#).is_err());
        assert_eq!(
            serde_json::from_str::<DomainSet>(r#"["a","b"]"#)
                .unwrap()
                .len(),
            2
        );
    }
}
