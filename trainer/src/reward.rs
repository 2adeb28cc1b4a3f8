//! The three rewards of the paper, from a step's signals.
