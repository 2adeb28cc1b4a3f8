//! The paper's own figures, shown beside ours.
//!
//! # Source
//! HDS paper (arXiv:2606.24133), section on results: Pythia-1B on The Pile, 41,667 steps.

/// A figure of the paper.
pub struct PaperFigure {
    /// What HDS is measured against there.
    pub against: &'static str,
    /// HDS's final validation perplexity against that policy's, relative.
    pub gain: f64,
    /// HDS's steps to that policy's final perplexity, as a part of all steps; `None` where the paper does not say.
    pub steps_to: Option<f64>,
}

/// HDS against each baseline.
pub const PAPER: [PaperFigure; 3] = [
    PaperFigure {
        against: "TPW (The Pile's weights)",
        gain: -0.136,
        steps_to: Some(17_917.0 / 41_667.0),
    },
    PaperFigure {
        against: "ODM",
        gain: -0.089,
        steps_to: None,
    },
    PaperFigure {
        against: "AC-ODM",
        gain: -0.053,
        steps_to: Some(0.56),
    },
];
