//! From values to places on an axis, and the ticks of that axis.

use crate::report::number::plain;

/// An axis: linear or logarithmic, from `lo` to `hi`, `lo` < `hi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub lo: f64,
    pub hi: f64,
    pub log: bool,
}

/// A place on an axis and its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// 0 at `lo`, 1 at `hi`.
    pub at: f64,
    pub label: String,
}

impl Scale {
    /// Linear over what the values span, with a margin of 4 %; 0 is taken in if it is near or asked for.
    pub fn linear(values: impl Iterator<Item = f64>, from_zero: bool) -> Option<Self> {
        let (mut lo, mut hi) = extent(values)?;
        if from_zero || (lo > 0.0 && lo < 0.15 * hi) {
            (lo, hi) = (lo.min(0.0), hi.max(0.0));
        }
        if hi - lo <= 1e-12 * hi.abs().max(lo.abs()) {
            let pad = if hi == 0.0 { 1.0 } else { 0.1 * hi.abs() };
            (lo, hi) = (lo - pad, hi + pad);
        }
        let pad = 0.04 * (hi - lo);
        let bottom = if lo == 0.0 { 0.0 } else { lo - pad };
        let log = false;
        (hi.is_finite() && (hi - lo).is_finite()).then_some(Self {
            lo: bottom,
            hi: hi + pad,
            log,
        })
    }

    /// Logarithmic over the positive values, `None` if there are none.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (lo, hi) = extent(values.filter(|v| *v > 0.0))?;
        let pad = (hi / lo).powf(0.04).max(1.02);
        let (lo, hi, log) = ((lo / pad).max(f64::MIN_POSITIVE), hi * pad, true);
        hi.is_finite().then_some(Self { lo, hi, log })
    }

    /// The same axis with 4 % more at both ends, for plots whose marks have a size.
    pub fn with_margin(self) -> Self {
        match self.log {
            true => {
                let pad = (self.hi / self.lo).powf(0.04);
                Self {
                    lo: self.lo / pad,
                    hi: self.hi * pad,
                    ..self
                }
            }
            false => {
                let pad = 0.04 * (self.hi - self.lo);
                Self {
                    lo: self.lo - pad,
                    hi: self.hi + pad,
                    ..self
                }
            }
        }
    }

    /// 0 at `lo`, 1 at `hi`; `None` for what the axis cannot show.
    pub fn place(self, value: f64) -> Option<f64> {
        let at = match self.log {
            true if value <= 0.0 => return None,
            true => (value / self.lo).ln() / (self.hi / self.lo).ln(),
            false => (value - self.lo) / (self.hi - self.lo),
        };
        at.is_finite().then_some(at)
    }

    /// At most about `most` round values in the axis.
    pub fn ticks(self, most: usize, write: impl Fn(f64) -> String) -> Vec<Tick> {
        let values = match self.log && self.hi / self.lo > 8.0 {
            true => self.log_values(most),
            false => self.linear_values(most),
        };
        let tick = |value: f64| {
            let at = self.place(value)?;
            ((-1e-9..=1.0 + 1e-9).contains(&at)).then(|| Tick {
                at,
                label: write(value),
            })
        };
        values.into_iter().filter_map(tick).collect()
    }

    fn linear_values(self, most: usize) -> Vec<f64> {
        let rough = (self.hi - self.lo) / most.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = step
            .into_iter()
            .find(|s| *s >= rough * 0.999)
            .unwrap_or(rough);
        let first = (self.lo / step - 1e-9).ceil();
        (0..=most + 1)
            .map(|i| (first + i as f64) * step)
            // -0 and rounding dust would be written as such.
            .map(|v| if v.abs() < step * 1e-6 { 0.0 } else { v })
            .collect()
    }

    fn log_values(self, most: usize) -> Vec<f64> {
        let first = self.lo.log10().floor() as i32;
        let last = self.hi.log10().ceil() as i32;
        let decades = (self.hi / self.lo).log10();
        let most = most.max(1) as f64;
        let mantissas: &[f64] = match decades {
            _ if decades * 3.0 <= most + 2.0 => &[1.0, 2.0, 5.0],
            _ if decades * 2.0 <= most + 2.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = (decades / most).ceil().max(1.0) as usize;
        (first..=last)
            .step_by(every)
            .flat_map(|d| mantissas.iter().map(move |m| m * 10f64.powi(d)))
            .collect()
    }
}

/// The words of a step on the axis: 0, 250, 1.5k.
pub fn write_step(step: f64) -> String {
    match step.abs() {
        size if size >= 1e6 => format!("{}M", plain(step / 1e6, 4)),
        size if size >= 1e4 => format!("{}k", plain(step / 1e3, 4)),
        _ => plain(step, 4),
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| {
        let (lo, hi) = range.unwrap_or((v, v));
        Some((v.min(lo), v.max(hi)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        let ticks = scale.ticks(5, |v| plain(v, 4)).into_iter();
        ticks.map(|t| t.label).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale {
            lo: -0.03,
            hi: 1.04,
            log: false,
        };
        assert_eq!(labels(scale), ["0", "0.5", "1"]);
        let scale = Scale {
            lo: 0.0,
            hi: 1000.0,
            log: false,
        };
        assert_eq!(labels(scale), ["0", "200", "400", "600", "800", "1000"]);
        let scale = Scale {
            lo: 0.5,
            hi: 20_000.0,
            log: true,
        };
        assert_eq!(labels(scale), ["1", "10", "100", "1000", "10000"]);
        let scale = Scale {
            lo: 9.0,
            hi: 80.0,
            log: true,
        };
        assert_eq!(labels(scale), ["10", "20", "50"]);
    }

    #[test]
    fn constant_and_single_values_still_make_an_axis() {
        for value in [0.0, 5.0, -3.0, 1e-300] {
            let scale = Scale::linear([value].into_iter(), false).expect("finite");
            assert!(scale.lo < scale.hi, "{value}: {scale:?}");
            assert!(scale.ticks(5, |v| plain(v, 4)).len() <= 12);
        }
        assert_eq!(Scale::linear([f64::NAN].into_iter(), false), None);
        assert_eq!(Scale::logarithmic([0.0, -1.0].into_iter()), None);
    }

    #[test]
    fn places_are_where_they_should_be() {
        let log = Scale {
            lo: 1.0,
            hi: 100.0,
            log: true,
        };
        assert!((log.place(10.0).expect("positive") - 0.5).abs() < 1e-12);
        assert_eq!(log.place(0.0), None);
        let linear = Scale {
            lo: 10.0,
            hi: 20.0,
            log: false,
        };
        assert_eq!(linear.place(12.5), Some(0.25));
    }
}
