//! Which blocks' output projections are watched.

use serde::{Deserialize, Serialize};

use super::GradientError;

/// Blocks watched in a region.
const REGION_BLOCKS: usize = 3;

/// A choice of blocks that works at any depth: `"late"`, `[13, 14, 15]`, `[0.5, 1.0]`, or
/// `["gpt_neox.layers.15.mlp.dense_4h_to_h"]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be \"early\", \"middle\", \"late\", or a list of block numbers, of depths from 0.0 to 1.0, or of names"
)]
pub enum LayerChoice {
    /// Three blocks of a region, or as many as there are.
    Region(Region),
    /// Blocks by number, from 0.
    Blocks(Vec<usize>),
    /// Blocks by depth: 0 is the first block, 1 the last.
    Depths(Vec<f64>),
    /// Blocks by the full name of their projection.
    Names(Vec<String>),
}

/// Where in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// The first blocks.
    Early,
    /// The blocks in the middle.
    Middle,
    /// The last blocks.
    Late,
}

impl Default for LayerChoice {
    /// Three late blocks: the paper finds late layers slightly better than early or middle ones.
    fn default() -> Self {
        Self::Region(Region::Late)
    }
}

impl LayerChoice {
    /// What is in the list more than once.
    fn repeated(&self) -> Option<String> {
        fn twice<T: PartialEq + std::fmt::Debug>(list: &[T]) -> Option<String> {
            let mut rest = list;
            while let Some((first, after)) = rest.split_first() {
                if after.contains(first) {
                    return Some(format!("{first:?}"));
                }
                rest = after;
            }
            None
        }
        match self {
            Self::Region(_) => None,
            Self::Blocks(blocks) => twice(blocks),
            Self::Depths(depths) => twice(depths),
            Self::Names(names) => twice(names),
        }
    }

    /// The chosen blocks of a model with `depth` blocks, ascending, each once.
    ///
    /// # Errors
    /// A block that does not exist or is there twice, or none.
    pub fn resolve(&self, depth: usize) -> Result<Vec<usize>, GradientError> {
        let missing = |got: String| GradientError::Layer {
            got,
            last: depth.saturating_sub(1),
        };
        let inside = |block: usize, got: &dyn Fn() -> String| match block < depth {
            true => Ok(block),
            false => Err(missing(got())),
        };
        if let Some(got) = self.repeated() {
            return Err(GradientError::Repeated { got });
        }
        let mut blocks = match self {
            Self::Region(region) => {
                let count = REGION_BLOCKS.min(depth);
                let start = match region {
                    Region::Early => 0,
                    Region::Middle => (depth - count) / 2,
                    Region::Late => depth - count,
                };
                (start..start + count).collect()
            }
            Self::Blocks(blocks) => blocks
                .iter()
                .map(|&block| inside(block, &|| block.to_string()))
                .collect::<Result<Vec<_>, _>>()?,
            Self::Depths(depths) => depths
                .iter()
                .map(|&share| {
                    // A list with a negative whole number is read as depths.
                    if share < 0.0 && share.fract() == 0.0 {
                        return Err(missing(share.to_string()));
                    }
                    if !(0.0..=1.0).contains(&share) {
                        return Err(missing(format!("at depth {share} (of 0 to 1)")));
                    }
                    let block = (share * depth.saturating_sub(1) as f64).round() as usize;
                    inside(block, &|| format!("at depth {share}"))
                })
                .collect::<Result<Vec<_>, _>>()?,
            Self::Names(names) => names
                .iter()
                .map(|name| {
                    let number = name
                        .strip_prefix("gpt_neox.layers.")
                        .and_then(|rest| rest.strip_suffix(".mlp.dense_4h_to_h"));
                    match number.and_then(|number| number.parse::<usize>().ok()) {
                        Some(block) => inside(block, &|| name.clone()),
                        None => Err(missing(format!(
                            "{name:?} (of the form \"gpt_neox.layers.0.mlp.dense_4h_to_h\")"
                        ))),
                    }
                })
                .collect::<Result<Vec<_>, _>>()?,
        };
        blocks.sort_unstable();
        blocks.dedup();
        if blocks.is_empty() {
            return Err(GradientError::NoLayer);
        }
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_choice_is_understood() {
        let choose = |text: &str, depth| {
            serde_json::from_str::<LayerChoice>(text)
                .unwrap()
                .resolve(depth)
        };
        assert_eq!(choose("\"late\"", 16), Ok(vec![13, 14, 15]));
        assert_eq!(choose("\"early\"", 16), Ok(vec![0, 1, 2]));
        assert_eq!(choose("\"middle\"", 16), Ok(vec![6, 7, 8]));
        assert_eq!(choose("\"late\"", 2), Ok(vec![0, 1]));
        assert_eq!(choose("[5, 3]", 16), Ok(vec![3, 5]));
        // Two depths may be of one block.
        assert_eq!(choose("[0.4, 0.5]", 3), Ok(vec![1]));
        assert_eq!(choose("[0.5, 1.0]", 5), Ok(vec![2, 4]));
        assert_eq!(
            choose("[\"gpt_neox.layers.7.mlp.dense_4h_to_h\"]", 16),
            Ok(vec![7])
        );
        for bad in [
            "[16]",
            "[1.5]",
            "[\"embed_in\"]",
            "[\"gpt_neox.layers.16.mlp.dense_4h_to_h\"]",
        ] {
            let error = choose(bad, 16).unwrap_err().to_string();
            assert!(error.contains("0 to 15"), "{error}");
        }
        for (bad, got) in [
            ("[5, 3, 3]", "3"),
            ("[0.5, 1.0, 0.5]", "0.5"),
            (
                "[\"gpt_neox.layers.7.mlp.dense_4h_to_h\", \"gpt_neox.layers.7.mlp.dense_4h_to_h\"]",
                "layers.7",
            ),
        ] {
            let error = choose(bad, 16).unwrap_err().to_string();
            assert!(error.contains(got) && error.contains("twice"), "{error}");
        }
        let error = choose("[-1]", 16).unwrap_err().to_string();
        assert!(
            error.starts_with("signals.layers: layer -1 does not exist"),
            "{error}"
        );
        assert_eq!(choose("[]", 16), Err(GradientError::NoLayer));
        assert_eq!(choose("\"late\"", 0), Err(GradientError::NoLayer));
    }
}
