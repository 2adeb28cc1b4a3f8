//! What restricts, saves or narrows a training pass leaves the mathematics as it is.

use tch::{Device, Kind, Tensor, no_grad};

use super::tests::{batch, tiny};
use super::*;

/// Losses and all gradients of a pass.
fn pass(
    model: &Model,
    masks: &Masks,
    taps: Option<&mut Taps>,
    scale: f64,
) -> (Tensor, Vec<Tensor>) {
    let (tokens, targets) = batch(model.config(), 3, 12, 4);
    let parameters = model.parameters();
    for parameter in &parameters {
        let mut gradient = parameter.tensor.grad();
        if gradient.defined() {
            let _ = no_grad(|| gradient.zero_());
        }
    }
    let losses = model.accumulate_gradients_masked(&tokens, &targets, masks, scale, taps);
    let gradients = parameters.iter().map(|p| p.tensor.grad().copy());
    (losses, gradients.collect())
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    let difference = a.to_kind(Kind::Double) - b.to_kind(Kind::Double);
    difference.abs().max().double_value(&[])
}

/// Documents of 5, 7, then 12, then 1 and 11 tokens.
fn documents() -> Tensor {
    let row = |first: i64| (0..12).map(move |i| i64::from(i >= first));
    let numbers: Vec<i64> = row(5).chain(row(12)).chain(row(1)).collect();
    Tensor::from_slice(&numbers).view([3, 12])
}

#[test]
fn recomputed_activations_give_the_same_gradients_and_taps() {
    for parallel in [true, false] {
        let mut model = Model::new(&tiny(parallel), Device::Cpu, Kind::Float, 5).unwrap();
        let masks = || Masks {
            documents_bl: Some(documents()),
            counted_bl: None,
        };
        let run = |model: &Model| {
            let mut taps = Taps::new(vec![0, 1]);
            let (losses, gradients) = pass(model, &masks(), Some(&mut taps), 0.25);
            let records = taps.records().iter();
            let records: Vec<(Tensor, Tensor)> = records
                .map(|tap| (tap.input().copy(), tap.output_gradient().unwrap()))
                .collect();
            (losses, gradients, records)
        };
        let (losses, gradients, records) = run(&model);
        model.recompute_activations(true);
        let (again, same, taps) = run(&model);
        assert_eq!(losses, again);
        for (a, b) in gradients.iter().zip(&same) {
            assert!(
                largest_difference(a, b) <= 1e-9,
                "{}",
                largest_difference(a, b)
            );
        }
        assert_eq!(records.len(), 2);
        for ((a, da), (b, db)) in records.iter().zip(&taps) {
            assert_eq!(a, b);
            assert!(largest_difference(da, db) <= 1e-9);
        }
    }
}

#[test]
fn attention_within_documents_is_that_of_documents_alone() {
    let model = Model::new(&tiny(true), Device::Cpu, Kind::Double, 5).unwrap();
    let (tokens, targets) = batch(model.config(), 3, 12, 4);
    let masks = Masks {
        documents_bl: Some(documents()),
        counted_bl: None,
    };
    let together = model.evaluate_losses_masked(&tokens, &targets, &masks);
    let plain = model.evaluate_losses(&tokens, &targets);
    // Rotary positions are relative, so a document at the beginning of a sequence is the same document.
    let part = |row: i64, start: i64, length: i64| {
        let cut = |t: &Tensor| t.narrow(0, row, 1).narrow(1, start, length);
        let losses = model.evaluate_losses(&cut(&tokens), &cut(&targets));
        losses.double_value(&[0]) * length as f64
    };
    let alone = [
        (part(0, 0, 5) + part(0, 5, 7)) / 12.0,
        part(1, 0, 12) / 12.0,
        (part(2, 0, 1) + part(2, 1, 11)) / 12.0,
    ];
    for (row, want) in alone.into_iter().enumerate() {
        let got = together.double_value(&[row as i64]);
        assert!((got - want).abs() < 1e-10, "row {row}: {got}, alone {want}");
    }
    assert!(
        largest_difference(&together, &plain) > 1e-4,
        "the mask does nothing"
    );
}

#[test]
fn losses_that_do_not_count_leave_no_trace() {
    let model = Model::new(&tiny(true), Device::Cpu, Kind::Double, 5).unwrap();
    let counted: Vec<bool> = (0..36).map(|i| i % 12 >= 8 || i < 3).collect();
    let masks = || Masks {
        documents_bl: None,
        counted_bl: Some(Tensor::from_slice(&counted).view([3, 12])),
    };
    let (losses, gradients) = pass(&model, &masks(), None, 0.5);
    // The same by autograd over all logits.
    let (tokens, targets) = batch(model.config(), 3, 12, 4);
    let all_bl = loss::token_losses(&model.forward(&tokens, None), &targets);
    let weights: Vec<f64> = (0..3)
        .flat_map(|row| {
            let row = &counted[12 * row..12 * (row + 1)];
            let count = row.iter().filter(|c| **c).count() as f64;
            row.iter().map(move |&c| f64::from(u8::from(c)) / count)
        })
        .collect();
    let means_b = (all_bl * Tensor::from_slice(&weights).view([3, 12])).sum_dim_intlist(
        [1i64].as_slice(),
        false,
        None::<Kind>,
    );
    assert!(largest_difference(&losses, &means_b) < 1e-12);
    for parameter in model.parameters() {
        let _ = no_grad(|| parameter.tensor.grad().zero_());
    }
    (means_b.sum(None::<Kind>) * 0.5).backward();
    for (got, parameter) in gradients.iter().zip(model.parameters()) {
        let difference = largest_difference(got, &parameter.tensor.grad());
        assert!(difference < 1e-12, "{}: {difference}", parameter.name);
    }
}

#[test]
fn sixteen_bits_come_near_thirty_two_and_scales_cancel() {
    let wide = Model::new(&tiny(true), Device::Cpu, Kind::Float, 5).unwrap();
    let (want_losses, want) = pass(&wide, &Masks::default(), None, 1.0 / 3.0);
    for (kind, factor, tolerance) in [(Kind::BFloat16, 1.0, 0.05), (Kind::Half, 65_536.0, 0.01)] {
        for recompute in [false, true] {
            let mut model = Model::new(&tiny(true), Device::Cpu, kind, 5).unwrap();
            model.recompute_activations(recompute);
            let (losses, gradients) = pass(&model, &Masks::default(), None, factor / 3.0);
            assert!(largest_difference(&losses, &want_losses) < 0.02, "{kind:?}");
            for ((got, want), parameter) in gradients.iter().zip(&want).zip(wide.parameters()) {
                assert_eq!(got.kind(), Kind::Float, "gradients stay in 32 bits");
                let difference = (got / factor - want).norm().double_value(&[]);
                let size = want.norm().double_value(&[]);
                assert!(
                    difference <= tolerance * size,
                    "{kind:?} {}: off by {difference} of {size}",
                    parameter.name
                );
            }
        }
    }
}
