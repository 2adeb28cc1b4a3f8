//! AdamW over named parameters, in place: f32 on a CPU in one pass over memory, others by torch's operations with one scratch
//! buffer for all of them.
//!
//! In: leaf tensors whose gradients a backward pass has filled. Out: the tensors moved by one step.
//! Always holds: the moments have the parameter's kind and device; a parameter without a gradient is not touched,
//! nor is what lies outside this optimizer's share of it. Leaves non-finite gradients to the caller, who sees their norm
//! ([`super::clip_gradient_norm`]) before the step.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};
use thiserror::Error;

#[cfg(fused)]
use crate::fused;

/// Rates, and numbers that a step divides by: what 32 bits hold with room for what they are multiplied with.
pub const IN_SINGLE_PRECISION: RangeInclusive<f64> = 1e-30..=1e30;

/// A trainable tensor and how the optimizer treats it.
#[derive(Debug)]
pub struct Parameter {
    /// Unique name, as in the checkpoint.
    pub name: String,
    /// The leaf itself (`requires_grad`); a shallow clone shares its storage and gradient.
    pub tensor: Tensor,
    /// Whether weight decay applies to it.
    pub decays: bool,
}

impl Parameter {
    /// Another handle to the same tensor.
    pub fn shallow_clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            tensor: self.tensor.shallow_clone(),
            decays: self.decays,
        }
    }
}

/// Settings of [`AdamW`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay rates (β₁, β₂) of the first and second moment, each in [0, 1).
    pub betas: (f64, f64),
    /// Added to the root of the second moment, > 0.
    pub epsilon: f64,
    /// Decoupled decay λ: a step also multiplies the weights by 1 − ηλ. 0 gives Adam.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    /// Pythia's optimizer (Biderman et al. 2023, appendix E; also the HDS paper's).
    fn default() -> Self {
        Self {
            betas: (0.9, 0.95),
            epsilon: 1e-8,
            weight_decay: 0.1,
        }
    }
}

/// An optimizer state or setting that does not fit.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// A state without a tensor that the optimizer needs.
    #[error("optimizer state has no `{name}`; it belongs to another model or version")]
    Missing {
        /// The missing tensor.
        name: String,
    },
    /// A state with a tensor that no parameter asks for.
    #[error("optimizer state has `{name}`, which belongs to no parameter of this model")]
    Unknown {
        /// The extra tensor.
        name: String,
    },
    /// A tensor of another shape.
    #[error("optimizer state `{name}` has shape {got:?}, the parameter has {want:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        got: Vec<i64>,
        /// The parameter's shape.
        want: Vec<i64>,
    },
    /// A step count that is no count.
    #[error("optimizer state `step` is not one whole number ≥ 0")]
    StepCount,
    /// A setting out of range.
    #[error("{key} is {got}, must be {want}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// Its value.
        got: f64,
        /// The allowed range.
        want: &'static str,
    },
}

impl AdamWConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first setting out of range.
    pub fn validate(&self) -> Result<(), OptimizerError> {
        let check = |key, got: f64, fits: bool, want| {
            if fits {
                Ok(())
            } else {
                Err(OptimizerError::Setting { key, got, want })
            }
        };
        let (first, second) = self.betas;
        check("betas[0]", first, (0.0..1.0).contains(&first), "in [0, 1)")?;
        check(
            "betas[1]",
            second,
            (0.0..1.0).contains(&second),
            "in [0, 1)",
        )?;
        let epsilon = self.epsilon;
        check(
            "epsilon",
            epsilon,
            IN_SINGLE_PRECISION.contains(&epsilon),
            "from 1e-30 to 1e30, as weights have 32 bits",
        )?;
        let decay = self.weight_decay;
        check(
            "weight_decay",
            decay,
            (0.0..=*IN_SINGLE_PRECISION.end()).contains(&decay),
            "from 0 to 1e30",
        )
    }
}

struct Slot {
    parameter: Parameter,
    /// The elements, flat, that this optimizer moves: all, or the share of this rank.
    elements: Range<i64>,
    /// Of those elements.
    first_moment: Tensor,
    second_moment: Tensor,
}

impl Slot {
    /// Names and values of both moments in a state.
    fn moments(&self) -> [(String, &Tensor); 2] {
        let name = &self.parameter.name;
        [
            (format!("{name}.first_moment"), &self.first_moment),
            (format!("{name}.second_moment"), &self.second_moment),
        ]
    }

    fn length(&self) -> i64 {
        self.elements.end - self.elements.start
    }
}

/// Adam with decoupled weight decay.
///
/// # Source
/// Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter, "Decoupled weight decay regularization",
/// ICLR 2019, algorithm 2 (decay scaled by the learning rate, as PyTorch's `AdamW`).
pub struct AdamW {
    config: AdamWConfig,
    slots: Vec<Slot>,
    steps: i64,
    scratch: HashMap<(Device, KindKey), Tensor>,
}

type KindKey = &'static str;

fn kind_key(kind: Kind) -> KindKey {
    match kind {
        Kind::Double => "f64",
        Kind::Half => "f16",
        Kind::BFloat16 => "bf16",
        _ => "f32",
    }
}

/// Elements handled at once on the CPU: with four streams of f32 this stays within a core's
/// second-level cache, so a step reads and writes main memory once instead of once an operation.
const CPU_BLOCK: i64 = 1 << 16;

impl AdamW {
    /// An optimizer with zero moments over shallow clones of the parameters.
    pub fn new(parameters: Vec<Parameter>, config: AdamWConfig) -> Self {
        let whole = |parameter: &Parameter| 0..parameter.tensor.numel() as i64;
        let elements = parameters.iter().map(whole).collect();
        Self::sharded(parameters, elements, config)
    }

    /// As [`AdamW::new`], with the state of some elements of each parameter only, which alone it moves; they are
    /// counted in the flat parameter.
    ///
    /// # Panics
    /// If there is not one range for each parameter, or one reaches beyond it.
    pub fn sharded(
        parameters: Vec<Parameter>,
        elements: Vec<Range<i64>>,
        config: AdamWConfig,
    ) -> Self {
        assert_eq!(parameters.len(), elements.len(), "one range a parameter");
        let slots = parameters
            .into_iter()
            .zip(elements)
            .map(|(parameter, elements)| {
                let flat = parameter.tensor.detach().view(-1);
                let zeros = || narrow(&flat, &elements).zeros_like();
                Slot {
                    first_moment: zeros(),
                    second_moment: zeros(),
                    elements,
                    parameter,
                }
            })
            .collect();
        Self {
            config,
            slots,
            steps: 0,
            scratch: HashMap::new(),
        }
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps.unsigned_abs()
    }

    /// The parameters, in the order given to [`AdamW::new`].
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.slots.iter().map(|slot| &slot.parameter)
    }

    /// Moves every parameter that has a gradient by one step at the given learning rate.
    pub fn step(&mut self, learning_rate: f64) {
        self.step_scaled(learning_rate, 1.0);
    }

    /// As [`AdamW::step`] with all gradients multiplied by a factor, as that of [`super::clip_factor`]; whether the
    /// gradients themselves are multiplied, too, is not said.
    pub fn step_scaled(&mut self, learning_rate: f64, gradient_factor: f64) {
        self.steps += 1;
        let coefficients = Coefficients::new(&self.config, learning_rate, self.steps);
        no_grad(|| {
            for slot in &mut self.slots {
                let gradient = slot.parameter.tensor.grad();
                if !gradient.defined() {
                    continue;
                }
                let length = slot.length();
                if length == 0 {
                    continue;
                }
                let weights = narrow(&slot.parameter.tensor.detach().view(-1), &slot.elements);
                let decay = if slot.parameter.decays {
                    1.0 - learning_rate * self.config.weight_decay
                } else {
                    1.0
                };
                let mut flat = [
                    weights,
                    narrow(&gradient.reshape(-1), &slot.elements),
                    slot.first_moment.shallow_clone(),
                    slot.second_moment.shallow_clone(),
                ];
                #[cfg(fused)]
                if flat.iter().all(fused::takes_tensor) {
                    fused::adamw(&flat, &coefficients.fused(gradient_factor), decay);
                    continue;
                }
                if gradient_factor != 1.0 {
                    let _ = flat[1].multiply_scalar_(gradient_factor);
                }
                let weights = &flat[0];
                let block = match weights.device() {
                    Device::Cpu => CPU_BLOCK.min(length),
                    _ => length,
                };
                let key = (weights.device(), kind_key(weights.kind()));
                let scratch = self
                    .scratch
                    .entry(key)
                    .or_insert_with(|| weights.new_empty([0], (weights.kind(), key.0)));
                if scratch.numel() < block as usize {
                    *scratch = weights.new_empty([block], (weights.kind(), key.0));
                }
                if block == length {
                    coefficients.apply(&mut flat, &scratch.narrow(0, 0, length), decay);
                    continue;
                }
                for start in (0..length).step_by(block as usize) {
                    let size = block.min(length - start);
                    let mut part = flat.each_ref().map(|t| t.narrow(0, start, size));
                    coefficients.apply(&mut part, &scratch.narrow(0, 0, size), decay);
                }
            }
        });
    }

    /// Leaves all parameters without gradients, so that the next ones need not be added to zeros.
    pub fn forget_gradients(&mut self) {
        #[cfg(fused)]
        for slot in &mut self.slots {
            fused::set_gradient(&slot.parameter.tensor, None);
        }
        #[cfg(not(fused))]
        self.zero_gradients();
    }

    /// Sets all gradients to zero, keeping their storage.
    pub fn zero_gradients(&mut self) {
        for slot in &mut self.slots {
            slot.parameter.tensor.zero_grad();
        }
    }

    /// The state by name: `step` (i64, one element), and `<parameter>.first_moment` and
    /// `<parameter>.second_moment`, which share storage with the optimizer: write or copy them
    /// before the next step. Of a sharded optimizer the moments are flat, of its elements only.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let mut state = vec![("step".to_owned(), Tensor::from_slice(&[self.steps]))];
        for slot in &self.slots {
            for (name, moment) in slot.moments() {
                let whole = slot.length() == slot.parameter.tensor.numel() as i64;
                let moment = if whole {
                    moment.view(slot.parameter.tensor.size().as_slice())
                } else {
                    moment.shallow_clone()
                };
                state.push((name, moment));
            }
        }
        state
    }

    /// Copies a state given by [`AdamW::state`] into this optimizer; it must name every tensor and
    /// no other. Moments are converted to the parameter's kind and device.
    ///
    /// # Errors
    /// A missing, unknown or misshapen tensor; nothing is changed then.
    pub fn load_state(&mut self, state: &HashMap<String, Tensor>) -> Result<(), OptimizerError> {
        self.load_parts(
            state.keys().map(String::as_str),
            |name| state.get(name).map(Tensor::size),
            |name, elements| match state.get(name) {
                Some(tensor) => Ok(narrow(&tensor.reshape(-1), &elements)),
                None => Err(OptimizerError::Missing {
                    name: name.to_owned(),
                }),
            },
        )
    }

    /// As [`AdamW::load_state`], from a state of whole parameters that is read part by part: `names` and `shape` say
    /// what it holds, `part` gives some elements of one of its tensors, flat.
    ///
    /// # Errors
    /// As [`AdamW::load_state`], and those of `part`, after which the state must not be used.
    pub fn load_parts<'a, E: From<OptimizerError>>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        shape: impl Fn(&str) -> Option<Vec<i64>>,
        mut part: impl FnMut(&str, Range<i64>) -> Result<Tensor, E>,
    ) -> Result<(), E> {
        let mut known = HashSet::from(["step".to_owned()]);
        for slot in &self.slots {
            let want = slot.parameter.tensor.size();
            for (name, _) in slot.moments() {
                match shape(&name) {
                    None => return Err(OptimizerError::Missing { name }.into()),
                    Some(got) if got != want => {
                        return Err(OptimizerError::Shape { name, got, want }.into());
                    }
                    Some(_) => known.insert(name),
                };
            }
        }
        let Some(step) = shape("step") else {
            return Err(OptimizerError::Missing {
                name: "step".to_owned(),
            }
            .into());
        };
        if step.iter().product::<i64>() != 1 {
            return Err(OptimizerError::StepCount.into());
        }
        if let Some(name) = names.filter(|name| !known.contains(*name)).min() {
            return Err(OptimizerError::Unknown {
                name: name.to_owned(),
            }
            .into());
        }
        let step = part("step", 0..1)?;
        if step.kind() != Kind::Int64 || step.int64_value(&[0]) < 0 {
            return Err(OptimizerError::StepCount.into());
        }
        for slot in &self.slots {
            for (name, moment) in slot.moments() {
                let tensor = part(&name, slot.elements.clone())?;
                no_grad(|| moment.shallow_clone().copy_(&tensor));
            }
        }
        self.steps = step.int64_value(&[0]);
        Ok(())
    }
}

/// Some elements of a flat tensor.
fn narrow(flat: &Tensor, elements: &Range<i64>) -> Tensor {
    flat.narrow(0, elements.start, elements.end - elements.start)
}

/// The numbers of one step that are the same for all parameters.
struct Coefficients {
    first_rate: f64,
    second_rate: f64,
    root_scale: f64,
    epsilon: f64,
    moves: bool,
}

impl Coefficients {
    fn new(config: &AdamWConfig, learning_rate: f64, step: i64) -> Self {
        let (first, second) = config.betas;
        let steps = step as f64;
        let first_correction = 1.0 - first.powf(steps);
        let second_correction = 1.0 - second.powf(steps);
        // w ← w − η/c₁ · m / (√v/√c₂ + ε), with −η/c₁ folded into the denominator, because the
        // fused divide-and-add takes no factor.
        let fold = -first_correction / learning_rate;
        let root_scale = fold / second_correction.sqrt();
        // Where 32 bits would make it 0, a weight without a gradient would be divided by it.
        let epsilon = -(fold * config.epsilon)
            .abs()
            .max(f64::from(f32::MIN_POSITIVE));
        let in_range = |value: f64| value.abs() <= f64::from(f32::MAX);
        Self {
            first_rate: 1.0 - first,
            second_rate: 1.0 - second,
            root_scale,
            epsilon,
            // A rate that 32 bits cannot divide by moves nothing either.
            moves: learning_rate != 0.0 && in_range(root_scale) && in_range(epsilon),
        }
    }

    #[cfg(fused)]
    fn fused(&self, gradient_factor: f64) -> fused::AdamWStep {
        fused::AdamWStep {
            gradient_factor,
            first_rate: self.first_rate,
            second_rate: self.second_rate,
            root_scale: self.root_scale,
            epsilon: self.epsilon,
            moves: self.moves,
        }
    }

    /// One step on flat `[weights, gradient, first moment, second moment]`.
    fn apply(&self, flat: &mut [Tensor; 4], scratch: &Tensor, decay: f64) {
        let [weights, gradient, first_moment, second_moment] = flat;
        let mut scratch = scratch.shallow_clone();
        let _ = first_moment.lerp_(gradient, self.first_rate);
        let _ = gradient.multiply_out(&scratch, gradient);
        let _ = second_moment.lerp_(&scratch, self.second_rate);
        if !self.moves {
            return;
        }
        if decay != 1.0 {
            let _ = weights.multiply_scalar_(decay);
        }
        let _ = second_moment.sqrt_out(&scratch);
        let _ = scratch.multiply_scalar_(self.root_scale);
        let _ = scratch.g_add_scalar_(self.epsilon);
        let _ = weights.addcdiv_(first_moment, &scratch);
    }
}

#[cfg(test)]
#[path = "adamw_tests.rs"]
mod tests;
