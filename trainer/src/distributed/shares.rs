//! ZeRO-1: each rank owns a contiguous share of all parameters, taken as one long vector.
//!
//! In: gradients that each rank has accumulated over its own sequences. Out: on each rank the sum over all ranks in the
//! gradients of its share; after its update, everybody's weights. Always holds: the shares of all ranks cover every
//! element once; a share may begin in the middle of a matrix. Memory: one bucket.
//!
//! Ranks have the same model, so that all of them cut it alike. Elements are exchanged in buckets that hold a piece of
//! every rank's share, so that all ranks work at the same time.

use std::ops::Range;

use tch::{Kind, Tensor, no_grad};

use super::{Group, GroupError};
use crate::optimizer::Parameter;

/// Elements of a bucket, all ranks' pieces together: 32 MB of f32 (our choice).
const BUCKET: i64 = 1 << 23;

/// Who owns what.
#[derive(Debug)]
pub struct Shares {
    rank: i64,
    world: i64,
    /// Where each parameter begins in the long vector, and at last where that ends.
    starts: Vec<i64>,
    /// Elements of a share; the last ones may have fewer.
    length: i64,
    bucket: i64,
    buffer: Option<Tensor>,
}

/// A part of a parameter: which, its elements, and where they lie in a run of the long vector.
struct Piece {
    parameter: usize,
    elements: Range<i64>,
    at: i64,
}

impl Shares {
    /// The shares of all ranks of a group in these parameters.
    pub fn new(parameters: &[Parameter], group: &Group) -> Self {
        let sizes = parameters.iter().map(|p| p.tensor.numel() as i64);
        Self::of_sizes(sizes, group.rank() as i64, group.world() as i64, BUCKET)
    }

    fn of_sizes(sizes: impl Iterator<Item = i64>, rank: i64, world: i64, bucket: i64) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for size in sizes {
            end += size;
            starts.push(end);
        }
        Self {
            rank,
            world,
            starts,
            length: (end + world - 1) / world,
            bucket: (bucket / world).max(1),
            buffer: None,
        }
    }

    /// The elements of each parameter, flat, that this rank owns; empty where it owns none.
    pub fn own(&self) -> Vec<Range<i64>> {
        (0..self.starts.len() - 1)
            .map(|parameter| self.part(parameter, self.rank))
            .collect()
    }

    /// The ranks that own a part of a parameter, and which, in order.
    pub fn owners(&self, parameter: usize) -> impl Iterator<Item = (usize, Range<i64>)> + '_ {
        (0..self.world)
            .map(move |rank| (rank as usize, self.part(parameter, rank)))
            .filter(|(_, range)| !range.is_empty())
    }

    /// The gradients of this rank's share, as flat views of the parameters' own.
    pub fn own_gradients(&self, parameters: &[Parameter]) -> Vec<Tensor> {
        let share = self.share(self.rank);
        self.pieces(share)
            .into_iter()
            .filter_map(|piece| {
                let gradient = parameters[piece.parameter].tensor.grad();
                gradient
                    .defined()
                    .then(|| narrow(&gradient.view(-1), &piece.elements))
            })
            .collect()
    }

    /// Sums the gradients over all ranks; what is not of this rank's share is left as it was.
    ///
    /// # Errors
    /// If a rank is lost or the exchange fails.
    pub fn reduce_gradients(
        &mut self,
        parameters: &[Parameter],
        group: &Group,
    ) -> Result<(), GroupError> {
        let flat = |parameter: usize| {
            let gradient = parameters[parameter].tensor.grad();
            // Whoever has none adds none.
            gradient.defined().then(|| gradient.view(-1))
        };
        no_grad(|| {
            for (offset, size) in self.buckets() {
                let mut bucket = self.bucket(parameters, size);
                for rank in 0..self.world {
                    let part = bucket.narrow(0, rank * size, size);
                    self.fill(&part, self.run(rank, offset, size), &flat);
                }
                group.sum(&mut bucket)?;
                let part = bucket.narrow(0, self.rank * size, size);
                self.empty(&part, self.run(self.rank, offset, size), &flat);
            }
            Ok(())
        })
    }

    /// Copies every rank's share of the weights to all others.
    ///
    /// # Errors
    /// If a rank is lost or the exchange fails.
    pub fn gather_weights(
        &mut self,
        parameters: &[Parameter],
        group: &Group,
    ) -> Result<(), GroupError> {
        let flat = |parameter: usize| Some(parameters[parameter].tensor.detach().view(-1));
        no_grad(|| {
            for (offset, size) in self.buckets() {
                let bucket = self.bucket(parameters, size);
                let own = bucket.narrow(0, self.rank * size, size);
                self.fill(&own, self.run(self.rank, offset, size), &flat);
                for rank in 0..self.world {
                    let run = self.run(rank, offset, size);
                    let length = run.end - run.start;
                    if length == 0 {
                        continue;
                    }
                    let mut part = bucket.narrow(0, rank * size, length);
                    group.broadcast(&mut part, rank as usize)?;
                    if rank != self.rank {
                        self.empty(&part, run, &flat);
                    }
                }
            }
            Ok(())
        })
    }

    /// A rank's share of the long vector.
    fn share(&self, rank: i64) -> Range<i64> {
        let total = self.starts[self.starts.len() - 1];
        (rank * self.length).min(total)..((rank + 1) * self.length).min(total)
    }

    /// What a rank owns of a parameter, counted from the parameter's first element.
    fn part(&self, parameter: usize, rank: i64) -> Range<i64> {
        let share = self.share(rank);
        let (start, end) = (self.starts[parameter], self.starts[parameter + 1]);
        let from = share.start.clamp(start, end);
        from - start..share.end.clamp(from, end) - start
    }

    /// `size` elements of a rank's share from `offset` on, or as many as there are.
    fn run(&self, rank: i64, offset: i64, size: i64) -> Range<i64> {
        let share = self.share(rank);
        let start = (share.start + offset).min(share.end);
        start..(start + size).min(share.end)
    }

    /// Offset and size of each bucket's piece of a share.
    fn buckets(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let (length, bucket) = (self.length, self.bucket);
        (0..length)
            .step_by(bucket as usize)
            .map(move |offset| (offset, bucket.min(length - offset)))
    }

    fn bucket(&mut self, parameters: &[Parameter], size: i64) -> Tensor {
        let length = self.world * self.bucket.min(self.length);
        let buffer = self.buffer.get_or_insert_with(|| {
            let kind = parameters.first().map_or(Kind::Float, |p| p.tensor.kind());
            let device = parameters
                .first()
                .map_or(tch::Device::Cpu, |p| p.tensor.device());
            Tensor::zeros([length], (kind, device))
        });
        buffer.narrow(0, 0, self.world * size)
    }

    /// The parts of parameters that make up a run of the long vector.
    fn pieces(&self, run: Range<i64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        // The last parameter that begins at or before the run; empty ones are passed over.
        let mut parameter = self.starts.partition_point(|&start| start <= run.start) - 1;
        let mut at = run.start;
        while at < run.end {
            let (start, end) = (self.starts[parameter], self.starts[parameter + 1]);
            let stop = run.end.min(end);
            if stop > at {
                pieces.push(Piece {
                    parameter,
                    elements: at - start..stop - start,
                    at: at - run.start,
                });
                at = stop;
            }
            parameter += 1;
        }
        pieces
    }

    /// Copies a run of the long vector into `target`, whose rest becomes 0.
    fn fill(&self, target: &Tensor, run: Range<i64>, flat: &impl Fn(usize) -> Option<Tensor>) {
        let length = run.end - run.start;
        let _ = target.narrow(0, length, target.size()[0] - length).zero_();
        for piece in self.pieces(run) {
            let mut place = target.narrow(0, piece.at, piece.elements.end - piece.elements.start);
            match flat(piece.parameter) {
                Some(source) => place.copy_(&narrow(&source, &piece.elements)),
                None => drop(place.zero_()),
            }
        }
    }

    /// Copies `source` into a run of the long vector.
    fn empty(&self, source: &Tensor, run: Range<i64>, flat: &impl Fn(usize) -> Option<Tensor>) {
        for piece in self.pieces(run) {
            if let Some(target) = flat(piece.parameter) {
                let length = piece.elements.end - piece.elements.start;
                narrow(&target, &piece.elements).copy_(&source.narrow(0, piece.at, length));
            }
        }
    }
}

fn narrow(flat: &Tensor, elements: &Range<i64>) -> Tensor {
    flat.narrow(0, elements.start, elements.end - elements.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_owner() {
        for (sizes, world) in [
            (&[7, 1, 12][..], 3),
            (&[1, 1], 3),
            (&[5], 1),
            (&[0, 4, 0, 4], 2),
            (&[1000, 3], 7),
        ] {
            let all = |rank| Shares::of_sizes(sizes.iter().copied(), rank, world, 64);
            for (parameter, &size) in sizes.iter().enumerate() {
                let mut next = 0;
                for (rank, range) in all(0).owners(parameter) {
                    assert_eq!(range.start, next);
                    assert_eq!(all(rank as i64).own()[parameter], range);
                    next = range.end;
                }
                assert_eq!(next, size, "{sizes:?} over {world}");
            }
        }
    }

    #[test]
    fn a_run_is_cut_into_pieces_of_the_parameters_it_goes_through() {
        let shares = Shares::of_sizes([3, 0, 4, 5].into_iter(), 0, 1, 64);
        let pieces = |run| -> Vec<(usize, Range<i64>, i64)> {
            let pieces = shares.pieces(run).into_iter();
            pieces.map(|p| (p.parameter, p.elements, p.at)).collect()
        };
        assert_eq!(pieces(2..8), [(0, 2..3, 0), (2, 0..4, 1), (3, 0..1, 5)]);
        assert_eq!(pieces(3..4), [(2, 0..1, 0)]);
        assert_eq!(pieces(12..12), []);
    }

    #[test]
    fn what_is_filled_and_emptied_again_is_the_same() {
        let sizes = [7i64, 1, 12];
        let source: Vec<Tensor> = sizes
            .iter()
            .map(|&n| Tensor::arange(n, (Kind::Float, tch::Device::Cpu)) + n)
            .collect();
        let target: Vec<Tensor> = source.iter().map(Tensor::zeros_like).collect();
        let shares = Shares::of_sizes(sizes.into_iter(), 0, 3, 6);
        for rank in 0..3 {
            for (offset, size) in shares.buckets() {
                let bucket = Tensor::ones([size], (Kind::Float, tch::Device::Cpu));
                let run = || shares.run(rank, offset, size);
                shares.fill(&bucket, run(), &|p| Some(source[p].shallow_clone()));
                shares.empty(&bucket, run(), &|p| Some(target[p].shallow_clone()));
            }
        }
        assert_eq!(source, target);
    }
}
