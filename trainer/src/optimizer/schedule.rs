//! Learning rate as a function of the step.
//!
//! Always holds: a pure function; nothing to save. Warm-up is linear and its first step already
//! moves (our choice: a first step at rate 0 would be a wasted batch), reaching the peak at step
//! `warmup_steps − 1`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Shape of the learning rate over a run. Steps count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Half a cosine from the peak to the floor, then the floor.
    Cosine {
        /// Rate after warm-up.
        peak: f64,
        /// Rate at the end.
        floor: f64,
        /// Steps of linear warm-up.
        warmup_steps: u64,
        /// Steps of the run, warm-up included.
        total_steps: u64,
    },
    /// A straight line from the peak to the floor, then the floor.
    Linear {
        /// Rate after warm-up.
        peak: f64,
        /// Rate at the end.
        floor: f64,
        /// Steps of linear warm-up.
        warmup_steps: u64,
        /// Steps of the run, warm-up included.
        total_steps: u64,
    },
    /// Warm-up, stable at the peak, then a straight line down over the last `decay_steps`.
    WarmupStableDecay {
        /// Rate of the stable part.
        peak: f64,
        /// Rate at the end.
        floor: f64,
        /// Steps of linear warm-up.
        warmup_steps: u64,
        /// Steps of the descent at the end.
        decay_steps: u64,
        /// Steps of the run, warm-up and descent included.
        total_steps: u64,
    },
    /// The peak from the end of warm-up on.
    Constant {
        /// The rate.
        peak: f64,
        /// Steps of linear warm-up.
        warmup_steps: u64,
    },
}

/// A schedule that makes no sense.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A rate out of range.
    #[error("{key} is {got}, must be finite and ≥ 0")]
    Rate {
        /// Which rate.
        key: &'static str,
        /// Its value.
        got: f64,
    },
    /// Parts longer than the whole.
    #[error("{key} is {got}, more than total_steps = {total_steps}")]
    Length {
        /// Which part.
        key: &'static str,
        /// Its steps.
        got: u64,
        /// Steps of the run.
        total_steps: u64,
    },
}

impl Schedule {
    /// Learning rate of a step.
    ///
    /// # Source
    /// Cosine: Loshchilov & Hutter, "SGDR", 2017, equation 5 with one cycle. Warm-up, stable,
    /// decay: Hu et al., "MiniCPM", 2024, section 4.2, with a linear descent.
    pub fn at(&self, step: u64) -> f64 {
        let (peak, warmup_steps) = match *self {
            Self::Cosine {
                peak, warmup_steps, ..
            }
            | Self::Linear {
                peak, warmup_steps, ..
            }
            | Self::WarmupStableDecay {
                peak, warmup_steps, ..
            }
            | Self::Constant { peak, warmup_steps } => (peak, warmup_steps),
        };
        if step < warmup_steps {
            return peak * (step + 1) as f64 / warmup_steps as f64;
        }
        match *self {
            Self::Cosine {
                floor, total_steps, ..
            } => {
                let done = progress(step, warmup_steps, total_steps);
                floor + (peak - floor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            Self::Linear {
                floor, total_steps, ..
            } => peak + (floor - peak) * progress(step, warmup_steps, total_steps),
            Self::WarmupStableDecay {
                floor,
                decay_steps,
                total_steps,
                ..
            } => {
                let start = total_steps.saturating_sub(decay_steps).max(warmup_steps);
                if step < start {
                    return peak;
                }
                peak + (floor - peak) * progress(step, start, total_steps)
            }
            Self::Constant { .. } => peak,
        }
    }

    /// Checks rates and lengths.
    ///
    /// # Errors
    /// A negative or non-finite rate; a part longer than the run.
    pub fn validate(&self) -> Result<(), ScheduleError> {
        let rate = |key, got: f64| match got.is_finite() && got >= 0.0 {
            true => Ok(()),
            false => Err(ScheduleError::Rate { key, got }),
        };
        let length = |key, got, total_steps| match got <= total_steps {
            true => Ok(()),
            false => Err(ScheduleError::Length {
                key,
                got,
                total_steps,
            }),
        };
        match *self {
            Self::Cosine {
                peak,
                floor,
                warmup_steps,
                total_steps,
            }
            | Self::Linear {
                peak,
                floor,
                warmup_steps,
                total_steps,
            } => {
                rate("peak", peak)?;
                rate("floor", floor)?;
                length("warmup_steps", warmup_steps, total_steps)
            }
            Self::WarmupStableDecay {
                peak,
                floor,
                warmup_steps,
                decay_steps,
                total_steps,
            } => {
                rate("peak", peak)?;
                rate("floor", floor)?;
                length("warmup_steps", warmup_steps, total_steps)?;
                length("decay_steps", decay_steps, total_steps - warmup_steps)
            }
            Self::Constant { peak, .. } => rate("peak", peak),
        }
    }
}

/// Share of the way from `start` to `end`, in [0, 1].
fn progress(step: u64, start: u64, end: u64) -> f64 {
    if step >= end {
        return 1.0;
    }
    (step - start) as f64 / (end - start) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_warms_up_peaks_and_ends_at_the_floor() {
        let schedule = Schedule::Cosine {
            peak: 1.0,
            floor: 0.1,
            warmup_steps: 10,
            total_steps: 110,
        };
        assert_eq!(schedule.at(0), 0.1);
        assert_eq!(schedule.at(9), 1.0);
        assert_eq!(schedule.at(10), 1.0);
        assert!((schedule.at(60) - 0.55).abs() < 1e-12);
        // A quarter of the way: 0.1 + 0.9 · (1 + √½) / 2.
        assert!((schedule.at(35) - 0.868_198_051_533_946_4).abs() < 1e-12);
        assert!((schedule.at(110) - 0.1).abs() < 1e-12);
        assert_eq!(schedule.at(u64::MAX), schedule.at(110));
    }

    #[test]
    fn stable_part_holds_the_peak_and_the_descent_is_linear() {
        let schedule = Schedule::WarmupStableDecay {
            peak: 2.0,
            floor: 0.0,
            warmup_steps: 4,
            decay_steps: 10,
            total_steps: 100,
        };
        assert_eq!(schedule.at(1), 1.0);
        assert_eq!(schedule.at(50), 2.0);
        assert_eq!(schedule.at(90), 2.0);
        assert!((schedule.at(95) - 1.0).abs() < 1e-12);
        assert_eq!(schedule.at(100), 0.0);
    }

    #[test]
    fn impossible_schedules_are_refused() {
        let text = |schedule: Schedule| schedule.validate().unwrap_err().to_string();
        assert!(
            text(Schedule::Linear {
                peak: f64::NAN,
                floor: 0.0,
                warmup_steps: 0,
                total_steps: 1
            })
            .contains("peak")
        );
        assert!(
            text(Schedule::Cosine {
                peak: 1.0,
                floor: 0.0,
                warmup_steps: 5,
                total_steps: 4
            })
            .contains("warmup_steps")
        );
        assert!(
            text(Schedule::WarmupStableDecay {
                peak: 1.0,
                floor: 0.0,
                warmup_steps: 5,
                decay_steps: 6,
                total_steps: 10
            })
            .contains("decay_steps")
        );
    }
}
