//! Names of fields, dotted where a field lies inside another: `meta.pile_set_name`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A field's place in a record, from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

/// Why a name is not a field path.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{got:?} names no field; a field path is names with dots between them, such as meta.pile_set_name"
)]
pub struct FieldPathError {
    /// The name given.
    got: String,
}

impl FieldPath {
    /// The usual field of the text: `text`.
    pub fn text() -> Self {
        Self(vec!["text".into()])
    }

    /// The names from the outside in; at least one, none empty.
    pub fn parts(&self) -> &[String] {
        &self.0
    }
}

impl Default for FieldPath {
    /// The domain's field in The Pile: `meta.pile_set_name`.
    fn default() -> Self {
        Self(vec!["meta".into(), "pile_set_name".into()])
    }
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, FieldPathError> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(FieldPathError { got: text.into() });
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_at_dots_and_never_hold_an_empty_name() {
        let path: FieldPath = "meta.pile_set_name".parse().unwrap();
        assert_eq!(path.parts(), ["meta", "pile_set_name"]);
        assert_eq!(path.to_string(), "meta.pile_set_name");
        for bad in ["", ".", "a.", ".a", "a..b"] {
            assert!(bad.parse::<FieldPath>().is_err(), "{bad}");
        }
    }
}
