//! The fused operations beside torch's own, in f64.

use super::*;

const OPTIONS: (Kind, Device) = (Kind::Float, Device::Cpu);

fn random(shape: &[i64]) -> Tensor {
    Tensor::randn(shape, OPTIONS)
}

/// A leaf of the same values in f64.
fn wide(tensor: &Tensor) -> Tensor {
    tensor
        .detach()
        .to_kind(Kind::Double)
        .set_requires_grad(true)
}

fn leaf(tensor: Tensor) -> Tensor {
    tensor.set_requires_grad(true)
}

/// That the results agree, and for a random gradient of them the gradients of the leaves, to `tolerance` of the largest value.
fn assert_agree(got: &Tensor, want: &Tensor, leaves: &[(&Tensor, &Tensor)], tolerance: f64) {
    assert_close(got, want, tolerance, "result");
    let gradient = random(&got.size());
    (got * &gradient).sum(Kind::Float).backward();
    (want * gradient.to_kind(Kind::Double))
        .sum(Kind::Double)
        .backward();
    for (i, (narrow, wide)) in leaves.iter().enumerate() {
        assert_close(
            &narrow.grad(),
            &wide.grad(),
            tolerance,
            &format!("gradient {i}"),
        );
    }
}

fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.size(), want.size(), "{what}");
    let largest = want.abs().max().double_value(&[]).max(1e-30);
    let difference = (got.to_kind(Kind::Double) - want).abs().max();
    let difference = difference.double_value(&[]) / largest;
    assert!(difference < tolerance, "{what}: {difference}");
}

#[test]
fn attention_is_torchs_on_rotated_heads() {
    tch::manual_seed(1);
    // Lengths around the blocks' 32, heads of one and of several vectors, and none, part and all of a head rotated.
    for (batch, length, heads, size, half) in [
        (2, 1, 1, 16, 2),
        (1, 31, 2, 16, 0),
        (2, 32, 3, 32, 4),
        (1, 33, 2, 80, 10),
        (3, 70, 2, 64, 32),
        (1, 160, 1, 48, 6),
    ] {
        let hidden = heads * size;
        let qkv = leaf(random(&[batch * length, 3 * hidden]));
        let bias = leaf(random(&[3 * hidden]));
        let angles = random(&[length, half]);
        let (cosines, sines) = (angles.cos(), angles.sin());
        let got = attention(&qkv, &bias, &cosines, &sines, heads);

        let (qkv_wide, bias_wide) = (wide(&qkv), wide(&bias));
        let parts = (&qkv_wide + &bias_wide)
            .view([batch, length, heads, 3, size])
            .unbind(3);
        let table = |t: &Tensor| t.to_kind(Kind::Double).view([length, 1, half]);
        let (cosines, sines) = (table(&cosines), table(&sines));
        let turn = |t: &Tensor| {
            let parts = t.split_with_sizes([half, half, size - 2 * half], -1);
            let first = &parts[0] * &cosines - &parts[1] * &sines;
            let second = &parts[1] * &cosines + &parts[0] * &sines;
            Tensor::cat(&[&first, &second, &parts[2]], -1).transpose(1, 2)
        };
        let scores =
            turn(&parts[0]).matmul(&turn(&parts[1]).transpose(2, 3)) / (size as f64).sqrt();
        let later = Tensor::ones([length, length], (Kind::Bool, Device::Cpu)).triu(1);
        let weights = scores
            .masked_fill(&later, f64::NEG_INFINITY)
            .softmax(-1, Kind::Double);
        let want = weights
            .matmul(&parts[2].transpose(1, 2))
            .transpose(1, 2)
            .reshape([batch * length, hidden]);
        assert_agree(&got, &want, &[(&qkv, &qkv_wide), (&bias, &bias_wide)], 3e-6);
    }
}

#[test]
fn gelu_is_torchs_with_a_bias() {
    tch::manual_seed(2);
    let input = leaf(random(&[150, 48]) * 4.0);
    let bias = leaf(random(&[48]));
    let (input_wide, bias_wide) = (wide(&input), wide(&bias));
    let want = (&input_wide + &bias_wide).gelu("none");
    let got = gelu(&input, &bias);
    assert_agree(
        &got,
        &want,
        &[(&input, &input_wide), (&bias, &bias_wide)],
        1e-6,
    );
    // Far out on both sides, and what is no number.
    let far = Tensor::from_slice(&[0f32, -0.0, 1e-20, -30.0, 30.0, -1e30, 1e30, f32::NAN])
        .repeat([2])
        .view([1, 16]);
    let got = gelu(&far, &Tensor::zeros([16], OPTIONS));
    let got = Vec::<f32>::try_from(got.view(-1)).unwrap();
    assert_eq!(got[..2], [0.0, 0.0]);
    assert!((got[2] - 5e-21).abs() < 1e-26, "{}", got[2]);
    assert!(got[3].abs() < 1e-30 && got[5].abs() < 1e-5, "{got:?}");
    assert_eq!(got[4], 30.0);
    assert_eq!(got[6], 1e30);
    assert!(got[7].is_nan());
}

#[test]
fn one_norm_and_two_are_torchs() {
    tch::manual_seed(3);
    let shape = [130, 80];
    let epsilon = 1e-5;
    let input = leaf(random(&shape) * 3.0 + 1.0);
    let parameters: Vec<Tensor> = (0..4).map(|_| leaf(random(&[80]))).collect();
    let torchs =
        |x: &Tensor, p: &[Tensor]| x.layer_norm([80], Some(&p[0]), Some(&p[1]), epsilon, false);
    let wides = |all: &[Tensor]| all.iter().map(wide).collect::<Vec<_>>();
    let pairs = |a: &[Tensor]| (a[0].shallow_clone(), a[1].shallow_clone());

    let (input_wide, parameters_wide) = (wide(&input), wides(&parameters));
    let (gain, bias) = pairs(&parameters);
    let got = norm(&input, (&gain, &bias), epsilon);
    let want = torchs(&input_wide, &parameters_wide[..2]);
    let leaves = [
        (&input, &input_wide),
        (&parameters[0], &parameters_wide[0]),
        (&parameters[1], &parameters_wide[1]),
    ];
    assert_agree(&got, &want, &leaves, 2e-6);

    let fresh = |t: &Tensor| leaf(t.detach().copy());
    let input = fresh(&input);
    let parameters: Vec<Tensor> = parameters.iter().map(fresh).collect();
    let (input_wide, parameters_wide) = (wide(&input), wides(&parameters));
    let (first, second) = (pairs(&parameters[..2]), pairs(&parameters[2..]));
    let (a, b) = two_norms(
        &input,
        (&first.0, &first.1),
        (&second.0, &second.1),
        epsilon,
    );
    let got = Tensor::cat(&[a, b], 1);
    let want = [&parameters_wide[..2], &parameters_wide[2..]].map(|p| torchs(&input_wide, p));
    let mut leaves = vec![(&input, &input_wide)];
    leaves.extend(parameters.iter().zip(&parameters_wide));
    assert_agree(&got, &Tensor::cat(&want, 1), &leaves, 2e-6);
}

#[test]
fn cross_entropy_is_torchs_and_its_gradient() {
    tch::manual_seed(4);
    // A width with a rest, and rows that no thread's share divides.
    for (rows, width) in [(37, 101), (8, 16), (1, 5)] {
        let logits = random(&[rows, width]) * 5.0;
        let targets = Tensor::randint(width, [rows], (Kind::Int64, Device::Cpu));
        let factors = Tensor::rand([rows], OPTIONS);
        let logits_wide = wide(&logits);
        let want = -logits_wide
            .log_softmax(-1, Kind::Double)
            .gather(1, &targets.unsqueeze(1), false)
            .squeeze_dim(1);
        (&want * factors.to_kind(Kind::Double))
            .sum(Kind::Double)
            .backward();
        let losses = Tensor::empty([rows], OPTIONS);
        cross_entropy(&logits, &targets, &factors, &losses);
        assert_close(&losses, &want, 1e-6, "losses");
        assert_close(&logits, &logits_wide.grad(), 1e-6, "gradient");
    }
}

#[test]
fn what_is_no_number_is_not_lost() {
    let spoiled = |shape: &[i64]| {
        let tensor = Tensor::ones(shape, OPTIONS);
        let _ = tensor.view(-1).get(5).fill_(f64::NAN);
        tensor
    };
    let any_nan = |t: &Tensor| t.isnan().any().int64_value(&[]) == 1;
    // Element 5 is part of a query.
    let table = Tensor::ones([4, 2], OPTIONS);
    let zeros = |size: i64| Tensor::zeros([size], OPTIONS);
    assert!(any_nan(&attention(
        &spoiled(&[4, 48]),
        &zeros(48),
        &table,
        &table,
        1
    )));
    assert!(any_nan(&norm(
        &spoiled(&[4, 16]),
        (&zeros(16), &zeros(16)),
        1e-5
    )));
    let (logits, losses) = (spoiled(&[2, 32]), zeros(2));
    let targets = Tensor::from_slice(&[1i64, 1]);
    cross_entropy(&logits, &targets, &zeros(2), &losses);
    assert!(losses.double_value(&[0]).is_nan() && !losses.double_value(&[1]).is_nan());
}

#[test]
#[should_panic(expected = "target 16 is not below 16")]
fn a_target_out_of_range_is_refused() {
    let row = Tensor::zeros([1], OPTIONS);
    let logits = Tensor::zeros([1, 16], OPTIONS);
    cross_entropy(&logits, &Tensor::from_slice(&[16i64]), &row, &row.copy());
}

#[test]
#[should_panic(expected = "bias must be f32 on the CPU")]
fn a_bias_of_another_size_is_refused() {
    let _ = gelu(&random(&[2, 16]), &random(&[32]));
}
