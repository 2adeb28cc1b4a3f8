//! Initial weights, a pure function of seed, name and position in the tensor.

use hds::random::{Purpose, RandomStream};
use tch::{Kind, Tensor};

use super::{Initialization, ModelConfig, Role};

/// Values one thread makes at a time; even, so that the pairs of a normal draw are not split.
const PIECE: usize = 1 << 16;

/// The first values of a parameter, in f32 on the CPU.
pub(super) fn initial_values(
    config: &ModelConfig,
    name: &str,
    shape: &[i64],
    role: Role,
    seed: u64,
) -> Tensor {
    let options = (Kind::Float, tch::Device::Cpu);
    let deviation = match role {
        Role::Bias => return Tensor::zeros(shape, options),
        Role::Gain => return Tensor::ones(shape, options),
        Role::Input | Role::Output => deviation(config, role),
    };
    let length = shape.iter().product::<i64>() as usize;
    let stream = RandomStream::new(seed, Purpose::Initialization);
    let mut values = vec![0f32; length];
    let major = position_of(name);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut pieces: Vec<Vec<(usize, &mut [f32])>> = (0..threads).map(|_| Vec::new()).collect();
    for (i, piece) in values.chunks_mut(PIECE).enumerate() {
        pieces[i % threads].push((i, piece));
    }
    std::thread::scope(|scope| {
        for share in pieces {
            scope.spawn(move || {
                for (i, piece) in share {
                    fill_normal(&stream, major, i * PIECE / 2, deviation, piece);
                }
            });
        }
    });
    Tensor::from_slice(&values).view(shape)
}

/// Standard deviation of a matrix, by [`Initialization`].
fn deviation(config: &ModelConfig, role: Role) -> f64 {
    let hidden = config.hidden_size as f64;
    let layers = config.num_hidden_layers as f64;
    match (config.initialization, role) {
        (Initialization::SmallWang, Role::Output) => 2.0 / (layers * hidden.sqrt()),
        (Initialization::SmallWang, _) => (2.0 / (5.0 * hidden)).sqrt(),
        (Initialization::ScaledNormal, Role::Output) => 0.02 / (2.0 * layers).sqrt(),
        (Initialization::ScaledNormal, _) => 0.02,
    }
}

/// A parameter's place in the stream: 64 bits of its name's hash, so that it does not depend on
/// which other parameters there are.
fn position_of(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// Fills with normal deviates number 2·`first` on; each block of the stream gives two (Box–Muller).
fn fill_normal(stream: &RandomStream, major: u64, first: usize, deviation: f64, out: &mut [f32]) {
    for (i, pair) in out.chunks_mut(2).enumerate() {
        let position = (first + i) as u64;
        // The minor position has 32 bits; larger tensors go on in the next major position.
        let block = stream.block_at(major.wrapping_add(position >> 32), position as u32);
        let unit = |low: u32, high: u32| {
            let bits = u64::from(low) | u64::from(high) << 32;
            (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
        };
        // 1 − u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - unit(block[0], block[1])).ln()).sqrt();
        let (sine, cosine) = (2.0 * std::f64::consts::PI * unit(block[2], block[3])).sin_cos();
        pair[0] = (deviation * radius * cosine) as f32;
        if let Some(second) = pair.get_mut(1) {
            *second = (deviation * radius * sine) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;

    #[test]
    fn values_have_the_published_deviation_and_do_not_depend_on_threads() {
        let config = preset("70m").unwrap().config;
        let shape = [512, 513];
        let values =
            |name: &str, role| initial_values(&config, name, &shape, role, 3).to_kind(Kind::Double);
        for (role, want) in [
            (Role::Input, (2.0f64 / (5.0 * 512.0)).sqrt()),
            (Role::Output, 2.0 / 6.0 / 512f64.sqrt()),
        ] {
            let got = values("w", role).std(true).double_value(&[]);
            assert!((got / want - 1.0).abs() < 0.01, "{role:?}: {got} {want}");
        }
        let one = values("w", Role::Input);
        assert!(one.mean(Kind::Double).double_value(&[]).abs() < 3e-4);
        assert!(one.equal(&values("w", Role::Input)));
        assert!(!one.equal(&values("v", Role::Input)));
        // The value at a position beyond the first piece, drawn alone.
        let mut alone = [0f32; 2];
        let stream = RandomStream::new(3, Purpose::Initialization);
        let want = deviation(&config, Role::Input);
        fill_normal(&stream, position_of("w"), 100_000, want, &mut alone);
        assert_eq!(one.view(-1).double_value(&[200_001]), f64::from(alone[1]));
    }
}
