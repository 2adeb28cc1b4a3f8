//! A training run: the one place that joins loader, model, signals, reward and scheduler.
