//! Policies that choose domain weights.
