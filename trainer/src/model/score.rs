//! Log-probabilities of chosen tokens, for scoring answers.
//!
//! In: sequences of any lengths. Out: the log-probability of each wanted token. Always holds: sequences are padded on the
//! right, which a causal model cannot see; logits exist for the wanted positions only.

use tch::{Kind, Tensor, no_grad};

use super::{Model, ModelError};

/// A sequence that the model reads, and tokens that may follow some of its positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// Token ids, one or more.
    pub read: Vec<i64>,
    /// Positions in `read`, and the id that is to follow each.
    pub wanted: Vec<(usize, i64)>,
}

impl Model {
    /// Natural logarithm of the probability of every wanted token after its position; one list a sequence.
    ///
    /// # Errors
    /// An id outside the vocabulary, a sequence without tokens or with more than positions, a wanted position beyond its end.
    pub fn log_probabilities(&self, sequences: &[Scored]) -> Result<Vec<Vec<f64>>, ModelError> {
        let vocabulary = self.config.vocab_size;
        let longest = self.config.max_position_embeddings as usize;
        let wrong = |got: String, want: String| ModelError::Field {
            field: "scored sequence",
            got,
            want,
        };
        for sequence in sequences {
            let length = sequence.read.len();
            if !(1..=longest).contains(&length) {
                return Err(wrong(
                    format!("{length} tokens"),
                    format!("of 1 to {longest} tokens"),
                ));
            }
            let wanted = sequence.wanted.iter().map(|(_, id)| id);
            if let Some(id) = sequence
                .read
                .iter()
                .chain(wanted)
                .find(|id| !(0..vocabulary).contains(*id))
            {
                return Err(wrong(
                    format!("token id {id}"),
                    format!("below vocab_size = {vocabulary}"),
                ));
            }
            if let Some((place, _)) = sequence.wanted.iter().find(|(place, _)| *place >= length) {
                return Err(wrong(
                    format!("position {place}"),
                    format!("below the sequence's {length} tokens"),
                ));
            }
        }
        let width = sequences.iter().map(|s| s.read.len()).max().unwrap_or(0);
        let (mut ids, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (i, sequence) in sequences.iter().enumerate() {
            ids.extend_from_slice(&sequence.read);
            ids.resize((i + 1) * width, 0);
            for &(place, id) in &sequence.wanted {
                rows.push((i * width + place) as i64);
                targets.push(id);
            }
        }
        if rows.is_empty() {
            return Ok(vec![Vec::new(); sequences.len()]);
        }
        let found_r = no_grad(|| {
            let tokens_bl = Tensor::from_slice(&ids)
                .view([sequences.len() as i64, width as i64])
                .to_device(self.device);
            let hidden_nh = self.hidden_states(&tokens_bl, None, None, |_| ());
            let rows_r = Tensor::from_slice(&rows).to_device(self.device);
            let wide = match self.kind {
                Kind::Double => Kind::Double,
                _ => Kind::Float,
            };
            let logits_rv = hidden_nh
                .index_select(0, &rows_r)
                .linear(&self.compute(&self.embed_out_vh), None::<&Tensor>)
                .log_softmax(-1, wide);
            let targets_r1 = Tensor::from_slice(&targets)
                .to_device(self.device)
                .unsqueeze(1);
            logits_rv.gather(1, &targets_r1, false).squeeze_dim(1)
        });
        let mut values = vec![0.0; rows.len()];
        found_r
            .to_device(tch::Device::Cpu)
            .to_kind(Kind::Double)
            .copy_data(&mut values, rows.len());
        let mut values = values.into_iter();
        Ok(sequences
            .iter()
            .map(|sequence| values.by_ref().take(sequence.wanted.len()).collect())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::model::ModelSettings;

    fn model() -> Model {
        let settings = ModelSettings {
            hidden_size: Some(32),
            num_hidden_layers: Some(2),
            num_attention_heads: Some(2),
            max_position_embeddings: Some(16),
            ..ModelSettings::default()
        };
        let config = settings.resolve(100, 16).unwrap();
        Model::new(&config, Device::Cpu, Kind::Float, 1).unwrap()
    }

    #[test]
    fn padding_and_neighbours_do_not_change_a_score() {
        let model = model();
        let long = Scored {
            read: (0..12).map(|i| i * 7 % 100).collect(),
            wanted: vec![(11, 3), (11, 99), (4, 0)],
        };
        let short = Scored {
            read: vec![5, 6, 7],
            wanted: vec![(2, 1)],
        };
        let both = model
            .log_probabilities(&[long.clone(), short.clone()])
            .unwrap();
        for (sequence, got) in [long, short].iter().zip(&both) {
            let tokens = Tensor::from_slice(&sequence.read).unsqueeze(0);
            let logits = no_grad(|| model.forward(&tokens, None)).log_softmax(-1, Kind::Float);
            assert_eq!(got.len(), sequence.wanted.len());
            for (&(place, id), got) in sequence.wanted.iter().zip(got) {
                let want = logits.double_value(&[0, place as i64, id]);
                assert!((got - want).abs() < 1e-5, "{got} {want}");
            }
        }
    }

    #[test]
    fn sequences_that_the_model_cannot_read_are_refused() {
        let model = model();
        let scored = |read: Vec<i64>, wanted| Scored { read, wanted };
        for (sequence, word) in [
            (scored(vec![], vec![]), "0 tokens"),
            (scored(vec![1; 17], vec![]), "17 tokens"),
            (scored(vec![128], vec![]), "token id 128"),
            (scored(vec![1], vec![(0, -1)]), "token id -1"),
            (scored(vec![1], vec![(1, 0)]), "position 1"),
        ] {
            let error = model.log_probabilities(&[sequence]).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(model.log_probabilities(&[]).unwrap().is_empty());
    }
}
