//! The Pile's own weights (TPW).
//!
//! # Source
//! Gao et al., "The Pile", 2020, table 1, as the HDS paper uses them for its baseline and warm-up.

use hds::{DomainSet, Mixture};

use super::error::PolicyError;

/// Names as in the corpus's `meta.pile_set_name`.
const PILE: [(&str, f64); 22] = [
    ("Pile-CC", 0.1811),
    ("PubMed Central", 0.1440),
    ("Books3", 0.1207),
    ("OpenWebText2", 0.1001),
    ("ArXiv", 0.0896),
    ("Github", 0.0759),
    ("FreeLaw", 0.0612),
    ("StackExchange", 0.0513),
    ("USPTO Backgrounds", 0.0365),
    ("PubMed Abstracts", 0.0307),
    ("Gutenberg (PG-19)", 0.0217),
    ("OpenSubtitles", 0.0155),
    ("Wikipedia (en)", 0.0153),
    ("DM Mathematics", 0.0124),
    ("Ubuntu IRC", 0.0088),
    ("BookCorpus2", 0.0075),
    ("EuroParl", 0.0073),
    ("HackerNews", 0.0062),
    ("YoutubeSubtitles", 0.0060),
    ("PhilPapers", 0.0038),
    ("NIH ExPorter", 0.0030),
    ("Enron Emails", 0.0014),
];

/// The Pile's weights for its domains that are in `domains`, divided by their sum.
///
/// # Errors
/// If a domain is none of The Pile's 22; the error names it.
pub fn pile_weights(domains: &DomainSet) -> Result<Mixture, PolicyError> {
    let mut weights = Vec::with_capacity(domains.len());
    for name in domains.names() {
        match PILE.iter().find(|(pile, _)| pile == name) {
            Some((_, weight)) => weights.push(*weight),
            None => {
                return Err(PolicyError::NotOfThePile {
                    domain: name.clone(),
                });
            }
        }
    }
    Mixture::normalized(weights, domains).map_err(|source| PolicyError::Weights {
        key: "The Pile's weights",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_the_whole_pile_are_those_of_the_paper() {
        let domains = DomainSet::new(PILE.map(|(name, _)| name)).unwrap();
        let mixture = pile_weights(&domains).unwrap();
        assert!((mixture.weights()[0] - 0.1811).abs() < 1e-4);
        assert!((PILE.iter().map(|(_, w)| w).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_subset_is_normalised_and_a_stranger_is_named() {
        let two = DomainSet::new(["Github", "ArXiv"]).unwrap();
        let weights = pile_weights(&two).unwrap();
        assert!((weights.weights()[0] - 0.0759 / 0.1655).abs() < 1e-12);
        let error = pile_weights(&DomainSet::new(["Github", "mine"]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("\"mine\""), "{error}");
    }
}
