//! Reads the wanted fields of one JSON object and checks, but does not keep, the rest.
//!
//! In: the bytes of a line and the paths of text and domain. Out: both as UTF-8, unescaped, or a fault with the byte in
//! the line where it was met. Always holds: the whole line is valid UTF-8 and exactly one JSON object; a wanted field
//! occurs once. Memory: the two strings, reused from line to line.

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::fault::Fault;
use super::path::FieldPath;

/// The fields of the last object read.
#[derive(Debug, Default)]
pub struct Found {
    /// The text.
    pub text: String,
    /// The domain's name, where it was asked for and is there.
    pub domain: String,
    /// Whether `domain` was there.
    pub has_domain: bool,
    has_text: bool,
}

/// A fault and the byte of the line, from 0, where it was met.
#[derive(Debug)]
pub struct JsonFault {
    /// What is wrong.
    pub fault: Fault,
    /// Where.
    pub byte: u64,
}

/// Reads one object. `domain` is the path of the domain's field where it is wanted; its absence is no fault here.
///
/// # Errors
/// The first thing wrong in the line.
pub fn read_object(
    line: &[u8],
    text: &FieldPath,
    domain: Option<&FieldPath>,
    found: &mut Found,
) -> Result<(), JsonFault> {
    found.text.clear();
    found.domain.clear();
    (found.has_text, found.has_domain) = (false, false);
    let line = std::str::from_utf8(line).map_err(|e| JsonFault {
        fault: Fault::NotUtf8,
        byte: e.valid_up_to() as u64,
    })?;
    let mut wants = [None; 2];
    wants[0] = Some(Want::new(Slot::Text, text));
    wants[1] = domain.map(|path| Want::new(Slot::Domain, path));
    let mut fault = None;
    let mut json = serde_json::Deserializer::from_str(line);
    let outcome = json
        .deserialize_any(ObjectVisitor {
            wants,
            outermost: true,
            found: &mut *found,
            fault: &mut fault,
        })
        .map_err(|e| (fault.take().unwrap_or_else(|| syntax(&e)), column(&e)))
        .and_then(|()| json.end().map_err(|e| (Fault::TwoValues, column(&e))));
    if let Err((fault, byte)) = outcome {
        return Err(JsonFault { fault, byte });
    }
    if !found.has_text {
        let field = text.to_string();
        return Err(JsonFault {
            fault: Fault::NoField { field },
            byte: 0,
        });
    }
    Ok(())
}

/// The byte of the line that an error of the parser speaks of.
fn column(error: &serde_json::Error) -> u64 {
    error.column().saturating_sub(1) as u64
}

fn syntax(error: &serde_json::Error) -> Fault {
    let said = error.to_string();
    // The parser has no code for this; its words are pinned by a test.
    if said.starts_with("lone leading surrogate")
        || said.starts_with("unexpected end of hex escape")
    {
        return Fault::LoneSurrogate;
    }
    let mut why = said
        .split_once(" at line ")
        .map_or(said.as_str(), |(why, _)| why)
        .to_owned();
    if why.starts_with("EOF while parsing") {
        why += "; a whole object a line is wanted";
    }
    Fault::Json { why }
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Text,
    Domain,
}

/// A field still to be found below the present object.
#[derive(Clone, Copy, Debug)]
struct Want<'p> {
    slot: Slot,
    path: &'p FieldPath,
    /// How many names of the path are behind us.
    depth: usize,
}

impl<'p> Want<'p> {
    fn new(slot: Slot, path: &'p FieldPath) -> Self {
        Self {
            slot,
            path,
            depth: 0,
        }
    }

    fn name(&self) -> &'p str {
        &self.path.parts()[self.depth]
    }

    fn is_last(&self) -> bool {
        self.depth + 1 == self.path.parts().len()
    }
}

struct ObjectVisitor<'p, 'o> {
    wants: [Option<Want<'p>>; 2],
    outermost: bool,
    found: &'o mut Found,
    fault: &'o mut Option<Fault>,
}

impl ObjectVisitor<'_, '_> {
    /// Anything but an object: a fault at the outermost level, an absent field below.
    fn no_object<E: serde::de::Error>(self, got: &'static str) -> Result<(), E> {
        if !self.outermost {
            return Ok(());
        }
        let hint = if got == "an array" {
            "; the file is one JSON array, not an object a line (`jq -c '.[]'` makes it one)"
        } else {
            ""
        };
        *self.fault = Some(Fault::NotAnObject { got, hint });
        Err(E::custom(""))
    }
}

impl<'de> Visitor<'de> for ObjectVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = [false; 2];
        while let Some(hit) = map.next_key_seed(KeySeed(&self.wants))? {
            // Wants that continue below this key, and the one that ends here.
            let mut below = [None; 2];
            let mut ends = None;
            for (i, want) in self.wants.iter().enumerate() {
                let Some(want) = want.filter(|_| hit[i]) else {
                    continue;
                };
                if std::mem::replace(&mut seen[i], true) {
                    *self.fault = Some(Fault::FieldTwice {
                        field: want.path.to_string(),
                    });
                    return Err(A::Error::custom(""));
                }
                if want.is_last() {
                    ends = Some(want);
                } else {
                    below[i] = Some(Want {
                        depth: want.depth + 1,
                        ..want
                    });
                }
            }
            if let Some(want) = ends {
                map.next_value_seed(StringSeed {
                    want,
                    found: &mut *self.found,
                    fault: &mut *self.fault,
                })?;
            } else if below.iter().any(Option::is_some) {
                map.next_value_seed(ObjectSeed(ObjectVisitor {
                    wants: below,
                    outermost: false,
                    found: &mut *self.found,
                    fault: &mut *self.fault,
                }))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.outermost {
            return self.no_object("an array");
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.no_object("true or false")
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.no_object("a number")
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.no_object("a number")
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.no_object("a number")
    }
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.no_object("a string")
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.no_object("null")
    }
}

struct ObjectSeed<'p, 'o>(ObjectVisitor<'p, 'o>);

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self.0)
    }
}

/// Tells which wants a key is the next name of.
struct KeySeed<'w, 'p>(&'w [Option<Want<'p>>; 2]);

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = [bool; 2];
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<[bool; 2], D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed<'_, '_> {
    type Value = [bool; 2];
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<[bool; 2], E> {
        Ok(self.0.map(|want| want.is_some_and(|w| w.name() == key)))
    }
}

/// Takes a string into its slot.
struct StringSeed<'p, 'o> {
    want: Want<'p>,
    found: &'o mut Found,
    fault: &'o mut Option<Fault>,
}

impl StringSeed<'_, '_> {
    fn no_string<E: serde::de::Error>(self, got: &'static str) -> Result<(), E> {
        *self.fault = Some(Fault::FieldType {
            field: self.want.path.to_string(),
            got,
        });
        Err(E::custom(""))
    }
}

impl<'de> DeserializeSeed<'de> for StringSeed<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StringSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        match self.want.slot {
            Slot::Text => {
                self.found.text.push_str(value);
                self.found.has_text = true;
            }
            Slot::Domain => {
                self.found.domain.push_str(value);
                self.found.has_domain = true;
            }
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.no_string("true or false")
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.no_string("a number")
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.no_string("a number")
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.no_string("a number")
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.no_string("null")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.no_string("an array")
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.no_string("an object")
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
