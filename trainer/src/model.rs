//! GPT-NeoX (Pythia) models.
