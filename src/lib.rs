//! Contracts of the Holistic Data Scheduler.
