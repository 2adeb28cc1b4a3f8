//! Time: one model and one optimizer make a step under fixed weights and a step under HDS in turn, in random order.
//!
//! So whatever else the machine does meets both alike, and the difference of the two steps of a pair is HDS's. Before a step
//! under HDS learning is begun as at the end of the step before it; after it learning is waited for outside of the times, so
//! that the step under fixed weights runs alone. Printed: GFLOP of a step of the model and of the agent; the median step
//! under fixed weights; the median of the pairs' differences in time and in processor time of the whole process (all threads, the
//! learning beside the step too), with a 95 % interval; and by part: signals (beyond what fixed weights measure), reward,
//! acting, waiting for learning, what is left of the difference (the gradients that are kept for the signals, the learning's share of the
//! cores), and learning beside the step.

use hds::random::{Purpose, RandomStream};
use tch::Device;

use crate::sizes::Size;
use crate::statistics::{Median, median};
use crate::step::{Arm, Bench, Parts};

pub fn measure(size: &Size, device: Device, pairs: usize) {
    let mut bench = Bench::new(size, device, Arm::Sketch);
    bench.fill_replay();
    for arm in [Arm::Fixed, Arm::Sketch] {
        bench.timed(arm);
    }
    let mut order = RandomStream::new(1, Purpose::Learning).sequence(0);
    let measured: Vec<[Parts; 2]> = (0..pairs.max(1))
        .map(|_| {
            if order.next_below(2) == 0 {
                let fixed = bench.timed(Arm::Fixed);
                [fixed, bench.timed(Arm::Sketch)]
            } else {
                let hds = bench.timed(Arm::Sketch);
                [bench.timed(Arm::Fixed), hds]
            }
        })
        .collect();
    print(size, &bench, &measured);
}

fn print(size: &Size, bench: &Bench, measured: &[[Parts; 2]]) {
    let difference = |part: fn(&Parts) -> f64| {
        let pairs = measured.iter();
        median(pairs.map(|[fixed, hds]| part(hds) - part(fixed)))
    };
    let of_fixed = |part: fn(&Parts) -> f64| median(measured.iter().map(|[fixed, _]| part(fixed)));
    let (step, processor) = (of_fixed(|p| p.step).value, of_fixed(|p| p.processor).value);
    println!(
        "{}: model {:.1} GFLOP a step, agent {:.2}: {:.0} to 1; {} parameters, agent {}",
        size.name,
        bench.model_flops / 1e9,
        bench.agent_flops / 1e9,
        bench.model_flops / bench.agent_flops,
        bench.model.config().parameter_count(),
        bench.policy.parameters(),
    );
    let pairs = measured.len();
    let over = |name: &str, whole: f64, more: Median| {
        println!(
            "  {name}: fixed {:.1} ms, HDS {:+.2} ms: {:+.2} % ({:+.2} to {:+.2}), {pairs} pairs",
            1e3 * whole,
            1e3 * more.value,
            100.0 * more.value / whole,
            100.0 * more.low / whole,
            100.0 * more.high / whole,
        );
    };
    over("step", step, difference(|p| p.step));
    over("processor", processor, difference(|p| p.processor));
    let part = |name: &str, part: fn(&Parts) -> f64| {
        let value = difference(part).value;
        format!(
            "{name} {:.2} ms ({:.2} %)",
            1e3 * value,
            100.0 * value / step
        )
    };
    println!(
        "  {}, {}, {}, {}, {}; beside it: {}",
        part("signals", |p| p.signals),
        part("reward", |p| p.reward),
        part("acting", |p| p.acting),
        part("waiting for learning", |p| p.waiting),
        part("the rest", |p| p.step
            - p.signals
            - p.reward
            - p.acting
            - p.waiting),
        part("learning", |p| p.learning),
    );
}
