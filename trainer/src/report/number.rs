//! Numbers as a person reads them.

/// How the values of a plot or a table are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Four significant digits.
    Plain,
    /// A share as a percentage.
    Percent,
    /// A duration, from µs to days.
    Seconds,
    /// A count, from 999 through 1.2k to 3.4T.
    Count,
    /// A multiple, 1.5×.
    Times,
}

impl Format {
    /// The value as text.
    pub fn write(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Self::Plain => plain(value, 4),
            Self::Percent => format!("{} %", plain(value * 100.0, 3)),
            Self::Seconds => seconds(value),
            Self::Count => count(value),
            Self::Times => format!("{}×", plain(value, 3)),
        }
    }

    /// The value, or a dash.
    pub fn write_maybe(self, value: Option<f64>) -> String {
        value.map_or_else(|| "–".to_owned(), |v| self.write(v))
    }

    /// The name that the page's script knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Percent => "percent",
            Self::Seconds => "seconds",
            Self::Count => "count",
            Self::Times => "times",
        }
    }
}

/// `digits` significant digits, no trailing zeros, powers of ten where they are shorter.
pub fn plain(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&magnitude) {
        let text = format!("{value:.*e}", digits.saturating_sub(2));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return minus(format!("{}e{exponent}", without_zeros(mantissa)));
    }
    let decimals = (digits as i32 - 1 - magnitude).max(0) as usize;
    minus(without_zeros(&format!("{value:.decimals$}")).to_owned())
}

/// A whole number with thin spaces between groups of three.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn minus(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

fn count(value: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    // 999,999 is a million, not "1000k".
    match scales
        .iter()
        .find(|(scale, _)| value.abs() >= scale * 0.9995)
    {
        Some((scale, unit)) => format!("{}{unit}", plain(value / scale, 3)),
        None => plain(value, 3),
    }
}

fn seconds(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0 s".to_owned(),
        _ if size < 1e-3 => format!("{} µs", plain(value * 1e6, 3)),
        _ if size < 1.0 => format!("{} ms", plain(value * 1e3, 3)),
        _ if size < 120.0 => format!("{} s", plain(value, 3)),
        _ => {
            let whole = size.round() as u64;
            let (days, hours) = (whole / 86_400, whole / 3_600 % 24);
            let (minutes, rest) = (whole / 60 % 60, whole % 60);
            let sign = if value < 0.0 { "−" } else { "" };
            match (days, hours) {
                (0, 0) if minutes < 10 => format!("{sign}{minutes} min {rest} s"),
                (0, 0) => format!("{sign}{} min", (size / 60.0).round()),
                (0, _) => format!("{sign}{hours} h {minutes} min"),
                _ => format!("{sign}{days} d {hours} h"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(Format::Plain.write(85.9234), "85.92");
        assert_eq!(Format::Plain.write(-0.00025), "−0.00025");
        assert_eq!(Format::Plain.write(2.5e-5), "2.5e-5");
        assert_eq!(Format::Plain.write(f64::NAN), "–");
        assert_eq!(Format::Percent.write(0.1811), "18.1 %");
        assert_eq!(Format::Count.write(5_000_000.0), "5M");
        assert_eq!(Format::Count.write(999_999.0), "1M");
        assert_eq!(Format::Seconds.write(0.0123), "12.3 ms");
        assert_eq!(Format::Seconds.write(5_000.0), "1 h 23 min");
        assert_eq!(Format::Times.write(2.0), "2×");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
