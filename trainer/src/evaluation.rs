//! Held-out loss and perplexity per domain.
