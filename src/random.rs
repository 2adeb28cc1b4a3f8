//! Counter-based random streams: every random number of a run is a pure function of
//! (seed, purpose, position).
//!
//! In: a 64-bit seed, a [`Purpose`], and a position (a `u64` such as the step, a `u32` such as the
//! slot). Out: uniform bits, numbers in [0, 1), or normal deviates.
//! Always holds: nothing has to be saved to go on; two purposes never share a number; the values are
//! the same on every machine (integers, and f64 arithmetic without platform functions but for `ln`,
//! `sin` and `cos` of the normals).
//!
//! # Source
//! Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

use multiversion::multiversion;

/// What a stream is for. The number is part of the counter; it never changes once released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Domain of slot b of global batch t.
    Draw = 1,
    /// Key of a domain's window order in an epoch.
    Order = 2,
    /// Noise on the base weights in the scheduler's warm-up.
    WarmUp = 3,
    /// Noise of the policy's action.
    Action = 4,
    /// Choice of replay transitions.
    Replay = 5,
    /// Initial weights of networks.
    Initialization = 6,
    /// Random projections of gradients.
    Sketch = 7,
    /// Noise of actions sampled while learning (critic targets, actor loss).
    Learning = 8,
    /// Windows drawn independently instead of by permutation.
    Window = 9,
    /// Choice of held-out sequences.
    Evaluation = 10,
}

const MULTIPLIER_0: u32 = 0xD251_1F53;
const MULTIPLIER_1: u32 = 0xCD9E_8D57;
const WEYL_0: u32 = 0x9E37_79B9;
const WEYL_1: u32 = 0xBB67_AE85;

/// One block of Philox4x32-10.
#[inline(always)] // with all up to `unit_at`, into each version of `units_at`
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product_0 = u64::from(MULTIPLIER_0) * u64::from(counter[0]);
        let product_1 = u64::from(MULTIPLIER_1) * u64::from(counter[2]);
        counter = [
            (product_1 >> 32) as u32 ^ counter[1] ^ key[0],
            product_1 as u32,
            (product_0 >> 32) as u32 ^ counter[3] ^ key[1],
            product_0 as u32,
        ];
        key = [key[0].wrapping_add(WEYL_0), key[1].wrapping_add(WEYL_1)];
    }
    counter
}

/// The 2⁹⁶ positions of one purpose under one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomStream {
    key: [u32; 2],
    purpose: u32,
}

impl RandomStream {
    /// The stream of a purpose under a seed.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            purpose: purpose as u32,
        }
    }

    /// 128 uniform bits at position (major, minor).
    #[inline(always)]
    pub fn block_at(&self, major: u64, minor: u32) -> [u32; 4] {
        philox4x32(
            [major as u32, (major >> 32) as u32, minor, self.purpose],
            self.key,
        )
    }

    /// 64 uniform bits at position (major, minor).
    #[inline(always)]
    pub fn bits_at(&self, major: u64, minor: u32) -> u64 {
        let block = self.block_at(major, minor);
        u64::from(block[0]) | u64::from(block[1]) << 32
    }

    /// A number in [0, 1) at position (major, minor), a multiple of 2⁻⁵³.
    #[inline(always)]
    pub fn unit_at(&self, major: u64, minor: u32) -> f64 {
        unit(self.bits_at(major, minor))
    }

    /// The numbers of [`Self::unit_at`] at positions (major, minor), (major, minor + 1), …: in less time
    /// than one by one.
    pub fn units_at(&self, major: u64, minor: u32, out: &mut [f64]) {
        units_at(*self, major, minor, out);
    }

    /// Numbers one after another from position (major, 0) on.
    pub fn sequence(&self, major: u64) -> RandomSequence {
        RandomSequence {
            stream: *self,
            major,
            minor: 0,
            spare: None,
        }
    }
}

/// [`RandomStream::units_at`], compiled for the processor's widest vectors too, which work on several
/// positions at once.
#[multiversion(targets("x86_64+avx2"))]
fn units_at(stream: RandomStream, major: u64, minor: u32, out: &mut [f64]) {
    for (place, unit) in (0..).zip(out) {
        *unit = stream.unit_at(major, minor.wrapping_add(place));
    }
}

#[inline(always)]
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A cursor over the numbers of a stream at one major position.
#[derive(Clone, Debug)]
pub struct RandomSequence {
    stream: RandomStream,
    major: u64,
    minor: u32,
    spare: Option<f64>,
}

impl RandomSequence {
    /// The next 64 uniform bits.
    pub fn next_bits(&mut self) -> u64 {
        let bits = self.stream.bits_at(self.major, self.minor);
        self.minor = self.minor.wrapping_add(1);
        bits
    }

    /// The next number in [0, 1).
    pub fn next_unit(&mut self) -> f64 {
        unit(self.next_bits())
    }

    /// The next standard normal deviate (Box–Muller).
    pub fn next_normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let block = self.stream.block_at(self.major, self.minor);
        self.minor = self.minor.wrapping_add(1);
        let first = unit(u64::from(block[0]) | u64::from(block[1]) << 32);
        let second = unit(u64::from(block[2]) | u64::from(block[3]) << 32);
        // 1 − u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - first).ln()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * second;
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// The next integer in `0..bound`, exactly uniform (rejection); 0 for a bound of 0.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire, "Fast random integer generation in an interval", 2019.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_bits()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        // Random123 known-answer tests for philox4x32, 10 rounds.
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn purposes_and_positions_do_not_share_numbers() {
        let draw = RandomStream::new(7, Purpose::Draw);
        let order = RandomStream::new(7, Purpose::Order);
        assert_ne!(draw.bits_at(0, 0), order.bits_at(0, 0));
        assert_ne!(draw.bits_at(0, 1), draw.bits_at(1, 0));
        assert_ne!(draw.bits_at(1 << 32, 0), draw.bits_at(0, 0));
    }

    #[test]
    fn many_numbers_at_once_are_those_one_by_one() {
        let stream = RandomStream::new(0x0123_4567_89ab_cdef, Purpose::Draw);
        for (major, minor) in [(0, 0), (5 << 33 | 7, 3), (u64::MAX, u32::MAX - 10)] {
            for count in [0, 1, 8, 21, 32] {
                let mut units = vec![0.0; count];
                stream.units_at(major, minor, &mut units);
                for (i, unit) in (0..).zip(units) {
                    assert_eq!(unit, stream.unit_at(major, minor.wrapping_add(i)));
                }
            }
        }
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut sequence = RandomStream::new(1, Purpose::Action).sequence(3);
        let n = 200_000;
        let values: Vec<f64> = (0..n).map(|_| sequence.next_normal()).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn integers_below_a_bound_are_uniform() {
        let mut sequence = RandomStream::new(1, Purpose::Replay).sequence(0);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[sequence.next_below(6) as usize] += 1;
        }
        // Chi-square with 5 degrees of freedom: 25.7 is the 0.9999 quantile.
        let chi: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4)
            .sum();
        assert!(chi < 25.7, "{chi} {counts:?}");
        assert_eq!(sequence.next_below(0), 0);
    }
}
