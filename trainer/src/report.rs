//! The page that shows a run.
