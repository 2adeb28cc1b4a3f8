//! How large the agent's networks are for a run.
//!
//! # Source
//! Paper, agent network: width 256, 8 blocks, 8 heads, feed-forward 512; sizing guide: 0.3 % to 1.5 % of the
//! trained model's parameters a network, 0.5 % the best cost for its benefit.

use super::super::replay::RowLayout;
use super::agent::{NetworkSizing, shapes};
use super::config::NetworkSize;

const PAPER: NetworkSizing = NetworkSizing {
    width: 256,
    blocks: 8,
    heads: 8,
    hidden: 640,
};
const SMALL: NetworkSizing = NetworkSizing {
    width: 32,
    blocks: 1,
    heads: 1,
    hidden: 32,
};

/// The sizes that `auto` chooses among: depth grows with width up to the paper's 8 blocks.
fn candidates() -> impl Iterator<Item = NetworkSizing> {
    [SMALL]
        .into_iter()
        .chain(
            [64, 96, 128, 192, 256, 384, 512, 768, 1024].map(|width| NetworkSizing {
                width,
                blocks: (width / 32).min(8),
                heads: 8,
                hidden: 5 * width / 2,
            }),
        )
}

/// Width, depth and heads for a configured size; `auto` takes the candidate whose actor is nearest, as
/// a ratio, to 0.5 % of the model.
pub(super) fn sizing(size: NetworkSize, layout: RowLayout, model_parameters: u64) -> NetworkSizing {
    match size {
        NetworkSize::Small => SMALL,
        NetworkSize::Paper => PAPER,
        NetworkSize::Auto => {
            let want = (0.005 * model_parameters.max(1) as f64).ln();
            let off = |sizing: NetworkSizing| {
                ((shapes(sizing, layout)[0].parameters_each() as f64).ln() - want).abs()
            };
            candidates()
                .min_by(|a, b| off(*a).total_cmp(&off(*b)))
                .unwrap_or(SMALL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Pile's 22 domains, three selected layers.
    const LAYOUT: RowLayout = RowLayout {
        domains: 22,
        globals: 7,
    };

    #[test]
    fn five_networks_of_paper_size_have_the_papers_parameters() {
        let [actor, critic] = shapes(sizing(NetworkSize::Paper, LAYOUT, 0), LAYOUT);
        let total = (actor.parameters_each() + 4 * critic.parameters_each()) as f64;
        assert!((total / 26.5e6 - 1.0).abs() < 0.02, "{total}");
        assert!((actor.parameters_each() as f64 / 5.3e6 - 1.0).abs() < 0.02);
    }

    #[test]
    fn auto_follows_the_model() {
        let auto = |parameters| sizing(NetworkSize::Auto, LAYOUT, parameters);
        assert_eq!(auto(1_000_000), SMALL);
        assert_eq!(auto(1_011_781_632), PAPER);
        for model in [
            160_000_000u64,
            410_000_000,
            1_400_000_000,
            6_900_000_000,
            11_800_000_000,
        ] {
            let share = shapes(auto(model), LAYOUT)[0].parameters_each() as f64 / model as f64;
            assert!((0.003..0.015).contains(&share), "{model}: {share}");
        }
    }
}
