//! AdamW, learning-rate schedules, gradient clipping.
