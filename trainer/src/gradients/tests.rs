//! Per-domain gradients equal separate backward passes; sketches are right on average.

use hds::DomainId;
use tch::{Device, Kind, Tensor, no_grad};

use super::*;
use crate::model::{Initialization, Model, ModelConfig, Taps, sequence_losses};
use crate::signals::Gram;

const K: usize = 4;
const SCALE: f64 = 1.0 / 7.0;

fn model(kind: Kind) -> Model {
    let config = ModelConfig {
        vocab_size: 53,
        hidden_size: 32,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        intermediate_size: 128,
        max_position_embeddings: 32,
        rotary_pct: 0.25,
        rotary_emb_base: 10_000.0,
        layer_norm_eps: 1e-5,
        use_parallel_residual: true,
        initialization: Initialization::SmallWang,
    };
    Model::new(&config, Device::Cpu, kind, 11).unwrap()
}

/// Two micro-batches of 4 and 3 sequences; domain 2 is absent.
fn micro_batches() -> Vec<(Tensor, Tensor, Vec<DomainId>)> {
    [(4, vec![0, 1, 0, 3]), (3, vec![3, 3, 1])]
        .into_iter()
        .enumerate()
        .map(|(i, (sequences, domains))| {
            let ids = (Tensor::arange(sequences * 17, (Kind::Int64, Device::Cpu)) * 7919
                + 104_729 * (i as i64 + 1))
                .remainder(53)
                .view([sequences, 17]);
            let domains = domains.into_iter().map(DomainId).collect();
            (ids.narrow(1, 0, 16), ids.narrow(1, 1, 16), domains)
        })
        .collect()
}

#[test]
fn exact_gradients_take_no_rank() {
    let read = |text: &str| toml::from_str::<GradientMode>(text);
    assert_eq!(read("kind = 'exact'"), Ok(GradientMode::Exact));
    for text in [
        "kind = 'exact'\nrank = 3",
        "kind = 'sketch'\nrank = 3",
        "kind = 'sketch'\nrank = 3\nseed = 1\nside = 2",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

fn gram(model: &Model, blocks: &[usize], mode: GradientMode) -> Gram {
    gram_of(model, blocks, mode, micro_batches())
}

fn gram_of(
    model: &Model,
    blocks: &[usize],
    mode: GradientMode,
    batches: Vec<(Tensor, Tensor, Vec<DomainId>)>,
) -> Gram {
    let mut taps = Taps::new(blocks.to_vec());
    let mut gradients = DomainGradients::new(K, mode);
    for (tokens, targets, domains) in batches {
        let _ = model.accumulate_gradients(&tokens, &targets, SCALE, Some(&mut taps));
        gradients.accumulate(&mut taps, &domains, SCALE).unwrap();
    }
    gradients.finish()
}

/// The mean gradient of each domain by a backward pass of its own over its sequences alone.
fn separate_gram(model: &Model, blocks: &[usize]) -> Vec<f64> {
    let batches = micro_batches();
    let mut gradients: Vec<Option<Tensor>> = Vec::new();
    for domain in 0..K {
        let mut rows: Vec<(Tensor, Tensor)> = Vec::new();
        for (tokens, targets, domains) in &batches {
            for (row, d) in domains.iter().enumerate() {
                if d.index() == domain {
                    rows.push((tokens.get(row as i64), targets.get(row as i64)));
                }
            }
        }
        if rows.is_empty() {
            gradients.push(None);
            continue;
        }
        let stack = |side: fn(&(Tensor, Tensor)) -> &Tensor| {
            Tensor::stack(&rows.iter().map(side).collect::<Vec<_>>(), 0)
        };
        let (tokens, targets) = (stack(|r| &r.0), stack(|r| &r.1));
        let loss = sequence_losses(&model.forward(&tokens, None), &targets).mean(None::<Kind>);
        let names: Vec<String> = blocks
            .iter()
            .map(|b| format!("gpt_neox.layers.{b}.mlp.dense_4h_to_h.weight"))
            .collect();
        let weights: Vec<Tensor> = model
            .parameters()
            .into_iter()
            .filter(|p| names.contains(&p.name))
            .map(|p| p.tensor)
            .collect();
        let flat: Vec<Tensor> = Tensor::run_backward(&[loss], &weights, false, false)
            .iter()
            .map(|g| g.reshape([-1]).to_kind(Kind::Double))
            .collect();
        gradients.push(Some(Tensor::cat(&flat, 0)));
    }
    let mut products = Vec::new();
    for a in &gradients {
        for b in &gradients {
            products.push(match (a, b) {
                (Some(a), Some(b)) => a.dot(b).double_value(&[]),
                _ => 0.0,
            });
        }
    }
    products
}

#[test]
fn exact_gradients_equal_a_backward_pass_for_each_domain() {
    // bf16 keeps 8 bits of every x, δ and gradient, and rounds the two ways differently.
    for (kind, tolerance) in [
        (Kind::Double, 1e-6),
        (Kind::Float, 1e-5),
        (Kind::BFloat16, 3e-2),
    ] {
        let model = model(kind);
        let blocks = [0, 2];
        let got = gram(&model, &blocks, GradientMode::Exact);
        let want = separate_gram(&model, &blocks);
        for i in 0..K {
            for j in 0..K {
                let size = (want[i * K + i] * want[j * K + j]).sqrt();
                let error = (got.at(i, j) - want[i * K + j]).abs();
                assert!(
                    error <= tolerance * size,
                    "{kind:?} {i} {j}: {error} of {size}"
                );
                if i == 2 || j == 2 {
                    assert_eq!(got.at(i, j), 0.0);
                } else {
                    assert!(size > 1e-6, "{size}");
                }
            }
        }
    }
}

#[test]
fn the_mean_square_of_the_sequences_gradients_is_that_of_separate_passes() {
    let model = model(Kind::Double);
    let blocks = [0, 2];
    let mut want = [(0.0, 0.0); K];
    for (tokens, targets, domains) in micro_batches() {
        for (row, domain) in (0i64..).zip(&domains) {
            let mut taps = Taps::new(blocks.to_vec());
            let (token, target) = (tokens.narrow(0, row, 1), targets.narrow(0, row, 1));
            let _ = model.accumulate_gradients(&token, &target, 1.0, Some(&mut taps));
            let mut alone = DomainGradients::new(K, GradientMode::Exact);
            alone.accumulate(&mut taps, &[*domain], 1.0).unwrap();
            let (sum, count) = &mut want[domain.index()];
            *sum += alone.finish().at(domain.index(), domain.index());
            *count += 1.0;
        }
    }
    for mode in [
        GradientMode::Exact,
        GradientMode::Sketch { rank: 128, seed: 9 },
    ] {
        let got = gram(&model, &blocks, mode);
        for (i, &(sum, count)) in want.iter().enumerate() {
            let mean = sum / f64::max(count, 1.0);
            let error = (got.sequence_squares[i] - mean).abs();
            assert!(error <= 1e-5 * mean, "{mode:?} {i}: {error} of {mean}");
        }
        // Domain 2 is absent; the others have more than one sequence, so a variance.
        assert_eq!(got.sequence_variance(2, 0), None);
        assert!(got.sequence_variance(0, 2).unwrap() > 0.0);
    }
}

/// That two matrices are the same but for rounding, and so are the squares of the sequences.
fn assert_close(got: &Gram, want: &Gram, tolerance: f64, what: &str) {
    for i in 0..K {
        for j in 0..K {
            let size = (want.at(i, i) * want.at(j, j)).sqrt();
            let error = (got.at(i, j) - want.at(i, j)).abs();
            assert!(
                error <= tolerance * size,
                "{what} {i} {j}: {error} of {size}"
            );
            assert!(size > 1e-6 || i == 2 || j == 2, "{what}: {size}");
        }
        let (got, want) = (got.sequence_squares[i], want.sequence_squares[i]);
        let error = (got - want).abs();
        assert!(error <= tolerance * want, "{what} {i}: {error} of {want}");
    }
}

#[test]
fn a_sketch_of_full_rank_is_exact() {
    // bf16: the projections round once more.
    for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::BFloat16, 3e-2)] {
        let model = model(kind);
        let exact = gram(&model, &[1, 2], GradientMode::Exact);
        let full = GradientMode::Sketch { rank: 128, seed: 9 };
        let sketch = gram(&model, &[1, 2], full);
        assert_close(&sketch, &exact, tolerance, &format!("{kind:?}"));
    }
}

#[test]
fn products_do_not_depend_on_how_a_step_is_passed_through_the_model() {
    let sketch = GradientMode::Sketch { rank: 16, seed: 3 };
    for (kind, tolerance) in [
        (Kind::Double, 1e-6),
        (Kind::Float, 1e-5),
        (Kind::BFloat16, 3e-2),
    ] {
        for mode in [GradientMode::Exact, sketch] {
            let mut model = model(kind);
            let want = gram(&model, &[0, 2], mode);
            let all = micro_batches();
            let join = |side: fn(&(Tensor, Tensor, Vec<DomainId>)) -> &Tensor| {
                Tensor::cat(&all.iter().map(side).collect::<Vec<_>>(), 0)
            };
            let (tokens, targets) = (join(|b| &b.0), join(|b| &b.1));
            let domains: Vec<DomainId> = all.iter().flat_map(|b| b.2.clone()).collect();
            let row = |i: i64| {
                let (token, target) = (tokens.narrow(0, i, 1), targets.narrow(0, i, 1));
                (token, target, vec![domains[i as usize]])
            };
            let one_by_one: Vec<_> = (0..7).map(row).collect();
            let at_once = || {
                vec![(
                    tokens.shallow_clone(),
                    targets.shallow_clone(),
                    domains.clone(),
                )]
            };
            let what = |how: &str| format!("{kind:?} {mode:?} {how}");
            let got = gram_of(&model, &[0, 2], mode, at_once());
            assert_close(&got, &want, tolerance, &what("at once"));
            let got = gram_of(&model, &[0, 2], mode, one_by_one);
            assert_close(&got, &want, tolerance, &what("one by one"));
            model.recompute_activations(true);
            let got = gram(&model, &[0, 2], mode);
            assert_close(&got, &want, tolerance, &what("recomputed"));
        }
    }
}

#[test]
fn sketched_inner_products_are_unbiased() {
    let model = model(Kind::Float);
    let (tokens, targets, _) = micro_batches().remove(0);
    let mut taps = Taps::new(vec![2]);
    let _ = model.accumulate_gradients(&tokens, &targets, SCALE, Some(&mut taps));
    let tap = &taps.records()[0];
    let input_blf = tap.input().view([4, 16, -1]);
    let gradient_blh = tap.output_gradient().unwrap().view([4, 16, -1]);
    let products = |rows: &Tensor| {
        let rows = rows.to_kind(Kind::Double);
        let mut values = vec![0.0; 16];
        rows.matmul(&rows.tr())
            .contiguous()
            .view(-1)
            .copy_data(&mut values, 16);
        values
    };
    let exact = products(&gradient_blh.transpose(1, 2).bmm(&input_blf).flatten(1, 2));
    let seeds = 400;
    let mut sums = [0f64; 16];
    let mut squares = [0f64; 16];
    for seed in 0..seeds {
        let projection = Projection::new(seed, 2, 32, 128, 8, Device::Cpu);
        assert_eq!(projection.len(), 64);
        let sketches = projection.sketch(&input_blf, &gradient_blh);
        for (i, product) in products(&sketches).into_iter().enumerate() {
            sums[i] += product;
            squares[i] += product * product;
        }
    }
    let n = seeds as f64;
    for i in 0..16 {
        let mean = sums[i] / n;
        let error = ((squares[i] / n - mean * mean) / n).sqrt();
        // 10 distinct products: four standard errors for each leave 1 in 1,500 of failing by chance,
        // and the seeds are fixed.
        let want = exact[i];
        assert!(
            (mean - want).abs() <= 4.0 * error,
            "{i}: {mean} {want} ± {error}"
        );
        let size = (exact[i / 4 * 5] * exact[i % 4 * 5]).sqrt();
        assert!(
            error < 0.03 * size,
            "the test has no power: ± {error} of {size}"
        );
    }
}

#[test]
fn taps_change_nothing_and_a_step_begins_empty() {
    let model = model(Kind::Float);
    let (tokens, targets, domains) = micro_batches().remove(0);
    let plain = no_grad(|| model.forward(&tokens, None));
    let mut taps = Taps::new(vec![1, 2]);
    assert!(model.forward(&tokens, Some(&mut taps)).equal(&plain));
    assert_eq!(taps.records()[0].input().size(), [64, 128]);

    let mut gradients = DomainGradients::new(K, GradientMode::default());
    assert_eq!(
        gradients.accumulate(&mut taps, &domains, SCALE),
        Err(GradientError::NoBackward { block: 1 })
    );
    let mut step = || {
        let _ = model.accumulate_gradients(&tokens, &targets, SCALE, Some(&mut taps));
        gradients.accumulate(&mut taps, &domains, SCALE).unwrap();
        assert!(taps.records().is_empty());
        gradients.finish()
    };
    assert_eq!(step(), step());
    assert_eq!(gradients.finish().products, vec![0.0; K * K]);
}

#[test]
fn sequences_without_their_domain_are_refused() {
    let model = model(Kind::Float);
    let (tokens, targets, _) = micro_batches().remove(0);
    let mut taps = Taps::new(vec![2]);
    let mut gradients = DomainGradients::new(K, GradientMode::Exact);
    let _ = model.accumulate_gradients(&tokens, &targets, SCALE, Some(&mut taps));
    assert_eq!(
        gradients.accumulate(&mut taps, &[DomainId(0)], SCALE),
        Err(GradientError::Sequences { got: 1, want: 4 })
    );
    assert_eq!(
        gradients.accumulate(&mut taps, &[DomainId(9); 4], SCALE),
        Err(GradientError::Domain { got: 9, domains: K })
    );
}

#[test]
fn norms_and_changes_are_measured_around_an_update() {
    let weight = Tensor::from_slice(&[3.0f32, 4.0]).view([1, 2]);
    let mut norms = WeightNorms::new(vec![weight.shallow_clone()]);
    assert_eq!(norms.norms(), [5.0]);
    assert_eq!(norms.changes(), [0.0]);
    for _ in 0..2 {
        norms.before_update();
        let _ = weight
            .shallow_clone()
            .g_add_(&Tensor::from_slice(&[0.5f32, 0.0]));
        norms.after_update();
        assert_eq!(norms.changes(), [0.5]);
    }
    assert!((norms.norms()[0] - 32f64.sqrt()).abs() < 1e-12);
    let mut other = WeightNorms::new(vec![weight]);
    other.restore(norms.changes()).unwrap();
    assert_eq!(other.changes(), [0.5]);
    assert_eq!(other.restore(&[]), Err(NormError { got: 0, want: 1 }));
}

#[test]
fn what_two_ranks_accumulate_adds_up_to_one_ranks() {
    let model = model(Kind::Double);
    let blocks = [0, 2];
    let sketch = GradientMode::Sketch { rank: 8, seed: 3 };
    for mode in [GradientMode::Exact, sketch] {
        let want = gram(&model, &blocks, mode);
        let mut ranks: Vec<DomainGradients> = micro_batches()
            .into_iter()
            .map(|(tokens, targets, domains)| {
                let mut taps = Taps::new(blocks.to_vec());
                let mut gradients = DomainGradients::new(K, mode);
                let _ = model.accumulate_gradients(&tokens, &targets, SCALE, Some(&mut taps));
                gradients.accumulate(&mut taps, &domains, SCALE).unwrap();
                gradients
            })
            .collect();
        let mut other = ranks.pop().unwrap();
        let mut one = ranks.pop().unwrap();
        // The other rank's tensors in the order of the exchange; of domain 0, which it has not, it gives zeros.
        let mut theirs = Vec::new();
        let all: [f64; K] = [2.0, 2.0, 0.0, 3.0];
        let note = |tensor: &mut Tensor, theirs: &mut Vec<Tensor>| {
            if theirs.is_empty() {
                theirs.push(tensor.copy());
                let squares = tensor.narrow(0, K as i64, K as i64);
                *tensor = Tensor::cat(&[Tensor::from_slice(&all), squares], 0);
            } else {
                theirs.push(tensor.copy());
            }
        };
        other
            .reduce(|tensor| {
                note(tensor, &mut theirs);
                Ok::<(), ()>(())
            })
            .unwrap();
        let mut theirs = theirs.into_iter();
        one.reduce(|tensor| {
            let _ = tensor.g_add_(&theirs.next().unwrap());
            Ok::<(), ()>(())
        })
        .unwrap();
        assert!(theirs.next().is_none());
        let got = one.finish();
        let close = |got: &[f64], want: &[f64]| {
            let size = want.iter().fold(0.0f64, |most, w| most.max(w.abs()));
            let differs = got
                .iter()
                .zip(want)
                .any(|(g, w)| (g - w).abs() > 1e-6 * size);
            assert!(!differs, "{mode:?}: {got:?} {want:?}");
        };
        close(&got.products, &want.products);
        close(&got.sequence_squares, &want.sequence_squares);
    }
}
