//! From a client's step to what rewards and policies take in.
//!
//! In: a step as it was sent, the run's facts and its policy. Out: [`StepSignals`]. Always holds: what cannot be is
//! refused with the field's name, and so is a step without what the policy learns from, which would look as if it worked.
//!
//! Legend: K domains, S watched layers.

use super::error::{SessionError, invalid};
use super::protocol::{Facts, Sketches, Step};
use crate::scheduler::Policy;
use crate::signals::{Gram, StepSignals};

/// Loss that no model has: nats per token; a vocabulary's uniform guess is below 20.
const GREATEST_LOSS: f64 = 1e6;
/// Sequences that no batch has.
const MOST_SAMPLES: u64 = 1 << 40;
/// Difference, relative to the diagonal, of two entries of a Gram matrix that should be equal: single precision.
const ASYMMETRY: f64 = 1e-3;

/// The signals of a step.
///
/// # Errors
/// Names the field that is missing, of the wrong length, or out of range.
pub(super) fn of(
    step: &Step,
    facts: &Facts,
    policy: &dyn Policy,
) -> Result<StepSignals, SessionError> {
    let domains = facts.domains.len();
    length("samples", step.samples.len(), domains)?;
    length("losses", step.losses.len(), domains)?;
    length("weight_norms", step.weight_norms.len(), facts.layers)?;
    length(
        "weight_change_norms",
        step.weight_change_norms.len(),
        facts.layers,
    )?;
    if let Some((field, instead)) = missing(step, facts, policy) {
        let policy = policy.name();
        let reason = format!("missing; the policy {policy} learns from it{instead}");
        return Err(invalid(field, reason));
    }
    let mtld = step.mtld.clone().unwrap_or_else(|| vec![None; domains]);
    length("mtld", mtld.len(), domains)?;
    let most_samples = step.samples.iter().copied().max().unwrap_or(0);
    if most_samples > MOST_SAMPLES {
        return Err(invalid(
            "samples",
            format!("{most_samples} sequences in a step"),
        ));
    }
    for (i, loss) in step.losses.iter().enumerate() {
        let Some(loss) = *loss else { continue };
        range("losses", i, loss, GREATEST_LOSS)?;
        if step.samples[i] == 0 {
            let reason = format!("entry {i} is {loss}, but samples has 0 there; send null");
            return Err(invalid("losses", reason));
        }
    }
    for (i, value) in mtld.iter().enumerate() {
        range("mtld", i, value.unwrap_or(0.0), f64::MAX)?;
    }
    for (i, &value) in step.weight_norms.iter().enumerate() {
        range("weight_norms", i, value, f64::MAX)?;
    }
    for (i, &value) in step.weight_change_norms.iter().enumerate() {
        range("weight_change_norms", i, value, f64::MAX)?;
    }
    let gram = match (&step.gram, &step.sketches) {
        (Some(_), Some(_)) => return Err(invalid("gram", "comes with sketches; send one")),
        (Some(gram), None) => {
            length("gram.domains", gram.domains, domains)?;
            length("gram.products", gram.products.len(), domains * domains)?;
            check_gram(gram)?;
            Some(gram.clone())
        }
        (None, Some(sketches)) => Some(gram_of(sketches, domains)?),
        (None, None) => None,
    };
    if let Some(gram) = &gram {
        let squares = &gram.sequence_squares;
        if !squares.is_empty() {
            length("sequence_squares", squares.len(), domains)?;
        }
        for (i, &value) in squares.iter().enumerate() {
            range("sequence_squares", i, value, f64::MAX)?;
            // The mean of squares is no less than the square of the mean; a domain without gradients has neither.
            let least = gram.at(i, i) * (1.0 - ASYMMETRY);
            if step.samples[i] > 0 && value < least {
                let reason = format!(
                    "entry {i} is {value:e}, less than the squared norm of the mean, {least:e}"
                );
                return Err(invalid("sequence_squares", reason));
            }
        }
    }
    Ok(StepSignals {
        step: step.step,
        total_steps: facts.total_steps,
        sequence_length: facts.sequence_length,
        samples: step.samples.clone(),
        losses: step.losses.clone(),
        mtld,
        gram,
        weight_norms: step.weight_norms.clone(),
        weight_change_norms: step.weight_change_norms.clone(),
    })
}

fn length(field: &'static str, got: usize, want: usize) -> Result<(), SessionError> {
    if got == want {
        return Ok(());
    }
    Err(invalid(field, format!("{got} entries, expected {want}")))
}

fn range(field: &'static str, entry: usize, value: f64, most: f64) -> Result<(), SessionError> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    let bound = match most == f64::MAX {
        true => "0 or more".to_owned(),
        false => format!("from 0 to {most:e}"),
    };
    Err(invalid(
        field,
        format!("entry {entry} is {value:e}, must be {bound}"),
    ))
}

/// What the rewards need and a step lacks, and what to do instead, if anything.
fn missing(
    step: &Step,
    facts: &Facts,
    policy: &dyn Policy,
) -> Option<(&'static str, &'static str)> {
    if !policy.wants_rewards() {
        return None;
    }
    let no_gradients = step.gram.is_none() && step.sketches.is_none();
    if policy.name() != "hds" {
        return no_gradients.then_some(("gram or sketches", ""));
    }
    if no_gradients && facts.reward.alignment_weight != 0.0 {
        let instead = " (or set reward.alignment_weight to 0)";
        return Some(("gram or sketches", instead));
    }
    let no_mtld = step.mtld.is_none() && facts.reward.diversity_weight != 0.0;
    no_mtld.then_some(("mtld", " (or set reward.diversity_weight to 0)"))
}

/// Refuses products that no vectors have.
fn check_gram(gram: &Gram) -> Result<(), SessionError> {
    let bad = |i: usize, j: usize, what: &str| {
        let value = gram.at(i, j);
        let reason = format!("entry ({i}, {j}) is {value:e}, {what}");
        invalid("gram.products", reason)
    };
    for i in 0..gram.domains {
        for j in 0..gram.domains {
            if !gram.at(i, j).is_finite() {
                return Err(bad(i, j, "must be finite"));
            }
        }
        if gram.at(i, i) < 0.0 {
            return Err(bad(i, i, "a squared norm must be 0 or more"));
        }
    }
    for i in 0..gram.domains {
        for j in 0..i {
            let scale = gram.at(i, i).max(gram.at(j, j));
            let difference = (gram.at(i, j) - gram.at(j, i)).abs();
            if difference > ASYMMETRY * scale {
                return Err(bad(i, j, "must equal its mirror image"));
            }
            let most = (gram.at(i, i) * gram.at(j, j)).sqrt();
            if gram.at(i, j).abs() > most * (1.0 + ASYMMETRY) + f64::MIN_POSITIVE {
                return Err(bad(i, j, "more than the product of both norms"));
            }
        }
    }
    Ok(())
}

/// The Gram matrix of sketches.
fn gram_of(sketches: &Sketches, domains: usize) -> Result<Gram, SessionError> {
    let means = &sketches.means;
    if means.len() != domains {
        let reason = format!("{} vectors, expected {domains}", means.len());
        return Err(invalid("sketches.means", reason));
    }
    let size = means.iter().map(Vec::len).max().unwrap_or(0);
    if means.iter().any(|m| !m.is_empty() && m.len() != size) {
        return Err(invalid("sketches.means", "vectors of different lengths"));
    }
    let mut products = vec![0.0; domains * domains];
    for i in 0..domains {
        for j in i..domains {
            let product: f64 = means[i].iter().zip(&means[j]).map(|(a, b)| a * b).sum();
            products[i * domains + j] = product;
            products[j * domains + i] = product;
        }
    }
    if products.iter().any(|p| !p.is_finite()) {
        return Err(invalid("sketches.means", "products that are not finite"));
    }
    // A domain without a vector has no gradient, which is not one of zero: nothing is known of its products.
    for i in (0..domains).filter(|&i| means[i].is_empty()) {
        for j in 0..domains {
            products[i * domains + j] = f64::NAN;
            products[j * domains + i] = f64::NAN;
        }
    }
    Ok(Gram {
        domains,
        products,
        sequence_squares: sketches.sequence_squares.clone(),
    })
}
