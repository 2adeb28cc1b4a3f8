//! Groups of threads of this process; the run over real processes is tested end to end.

use std::net::TcpListener;
use std::thread;

use tch::{Device, Kind, Tensor};

use super::*;
use crate::optimizer::Parameter;

/// Runs `rank` on as many threads, each a rank of one group; gives what they return.
fn ranks<T: Send>(world: usize, rank: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let one = |number: usize| {
        let launch = Launch {
            rank: number,
            world,
            local_rank: number,
            local_world: world,
            address: "127.0.0.1".into(),
            port,
            hosted: false,
            attempt: "0".into(),
            variable: "WORLD_SIZE",
        };
        let section = DistributedSection {
            join_seconds: 60,
            operation_seconds: 60,
        };
        let group = Group::join(&launch, &section).unwrap();
        let value = rank(&group);
        group.wait().unwrap();
        group.close(None);
        value
    };
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..world).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn ranks_sum_share_send_and_agree() {
    let seen = ranks(3, |group| {
        let rank = group.rank();
        let mut sums = [rank as f64, 1.0];
        group.sum_numbers(&mut sums).unwrap();
        let mut shared = [0.1 + rank as f64];
        group.share_numbers(&mut shared).unwrap();
        let mut moved = Tensor::from_slice(&[rank as i64]);
        match rank {
            0 => group.receive(&mut moved, 2).unwrap(),
            2 => group.send(&moved, 0).unwrap(),
            _ => {}
        }
        let texts = group.texts(["", "é", "two"][rank]).unwrap();
        let outcome: Result<(), GroupError> = group.agree(match rank {
            1 => Err(GroupError::Variable {
                variable: "X",
                reason: "is bad".into(),
            }),
            _ => Ok(()),
        });
        let any = group.any(rank == 2).unwrap();
        let good: Result<usize, GroupError> = group.agree(Ok(rank));
        assert_eq!(good.unwrap(), rank);
        (
            sums,
            shared[0],
            moved.int64_value(&[0]),
            texts,
            any,
            outcome.unwrap_err().to_string(),
        )
    });
    for (rank, (sums, shared, moved, texts, any, outcome)) in seen.into_iter().enumerate() {
        assert_eq!((sums, shared), ([3.0, 3.0], 0.1));
        assert_eq!(moved, [2, 1, 2][rank]);
        assert_eq!(texts, ["", "é", "two"]);
        assert!(any);
        let want = match rank {
            1 => "X in the environment is bad",
            _ => "rank 1 of 3 failed: X in the environment is bad",
        };
        assert_eq!(outcome, want);
    }
}

#[test]
fn gradients_are_summed_where_they_are_owned_and_weights_gathered_from_there() {
    let seen = ranks(3, |group| {
        let parameters: Vec<Parameter> = [vec![4i64, 3], vec![5], vec![2, 2]]
            .into_iter()
            .map(|shape| Parameter {
                name: format!("{shape:?}"),
                tensor: Tensor::zeros(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true),
                decays: false,
            })
            .collect();
        for parameter in &parameters {
            let factor = 10f64.powi(group.rank() as i32);
            (&parameter.tensor * factor).sum(Kind::Float).backward();
        }
        let mut shares = Shares::new(&parameters, group);
        shares.reduce_gradients(&parameters, group).unwrap();
        let own = shares.own_gradients(&parameters);
        let elements: usize = own.iter().map(Tensor::numel).sum();
        assert!(own.iter().all(|part| {
            part.eq_tensor(&part.full_like(111.0))
                .all()
                .int64_value(&[])
                == 1
        }));
        // Each rank writes its number over its share.
        tch::no_grad(|| {
            for (parameter, range) in parameters.iter().zip(shares.own()) {
                let flat = parameter.tensor.detach().view(-1);
                let _ = flat
                    .narrow(0, range.start, range.end - range.start)
                    .fill_(group.rank() as i64);
            }
        });
        shares.gather_weights(&parameters, group).unwrap();
        let all: Vec<Tensor> = parameters
            .iter()
            .map(|p| p.tensor.detach().view(-1))
            .collect();
        (
            elements,
            Vec::<f32>::try_from(Tensor::cat(&all, 0)).unwrap(),
        )
    });
    let want: Vec<f32> = (0..21).map(|element| (element / 7) as f32).collect();
    for (elements, weights) in seen {
        assert_eq!(elements, 7);
        assert_eq!(weights, want);
    }
}
