//! What the page's script needs for the readout under the pointer.

use serde::{Serialize, Serializer};

/// A plot's series as JSON: short names, since a page holds many.
#[derive(Serialize)]
pub struct Readout<'a> {
    /// The name of its steps in the page's shared data.
    pub x: &'static str,
    /// How values are written.
    pub f: &'static str,
    /// Whether the series are stacked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stack: bool,
    /// Vertical axes: logarithmic or not, least, greatest.
    pub y: Vec<(bool, f64, f64)>,
    pub s: Vec<Series<'a>>,
}

/// One series.
#[derive(Serialize)]
pub struct Series<'a> {
    pub n: &'a str,
    /// Its classes.
    pub c: String,
    /// Its domain's place on the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d: Option<usize>,
    /// Values.
    pub v: Vec<Option<Short>>,
    /// What they were smoothed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r: Option<Vec<Option<Short>>>,
}

/// A number with four significant digits, so that the page stays small.
pub struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rounded: f64 = format!("{:.3e}", self.0).parse().unwrap_or(self.0);
        match rounded.fract() == 0.0 && rounded.abs() < 1e9 {
            true => to.serialize_i64(rounded as i64),
            false => to.serialize_f64(rounded),
        }
    }
}

/// Shortens a series.
pub fn shortened(values: &[Option<f64>]) -> Vec<Option<Short>> {
    values.iter().map(|v| v.map(Short)).collect()
}

impl Readout<'_> {
    /// The JSON text.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_break_json() {
        let values = [
            Some(0.123_456),
            Some(1000.0),
            None,
            Some(f64::INFINITY),
            Some(-2.5e-7),
        ];
        let text = serde_json::to_string(&shortened(&values)).expect("JSON");
        assert_eq!(text, "[0.1235,1000,null,null,-2.5e-7]");
    }
}
