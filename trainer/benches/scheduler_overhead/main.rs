//! What the whole of HDS costs a training step, against the same step under fixed weights: time by part, processor time, memory.
//!
//! `cargo bench -p hds-trainer --bench scheduler_overhead -- [--pairs N] [--device cpu|cuda] [--only NAME] [--memory]`;
//! threads by `OMP_NUM_THREADS`. Without `--memory` time is measured ([`pairs`]), with it the peak of memory ([`memory`]).

#![allow(clippy::print_stdout)] // what a benchmark is for

mod memory;
mod pairs;
mod sizes;
mod statistics;
mod step;

use std::time::Instant;

use sizes::{SIZES, Size};
use tch::Device;

/// What was asked for.
struct Options {
    pairs: usize,
    device: Device,
    only: Option<String>,
    memory: bool,
    /// Of a process that `--memory` starts: what it runs.
    arm: Option<String>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            pairs: 20,
            device: Device::Cpu,
            only: None,
            memory: false,
            arm: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value after the option");
            match argument.as_str() {
                "--pairs" => options.pairs = value().parse().expect("a number of pairs"),
                "--device" if value() == "cuda" => options.device = Device::Cuda(0),
                "--only" => options.only = Some(value()),
                "--memory" => options.memory = true,
                "--arm" => options.arm = Some(value()),
                // What cargo adds, and the device that is the default.
                _ => {}
            }
        }
        options
    }

    fn sizes(&self) -> impl Iterator<Item = &'static Size> {
        let wanted = |size: &&Size| self.only.as_deref().is_none_or(|only| only == size.name);
        SIZES.iter().filter(wanted)
    }
}

fn main() {
    let options = Options::parse();
    if let Some(arm) = &options.arm {
        for size in options.sizes() {
            memory::peak_of(size, arm, options.device);
        }
        return;
    }
    let start = Instant::now();
    let threads = tch::get_num_threads();
    println!("{threads} threads, {:?}", options.device);
    for size in options.sizes() {
        if options.memory {
            memory::measure(size, options.device);
        } else {
            pairs::measure(size, options.device, options.pairs);
        }
    }
    println!("in {} s", start.elapsed().as_secs());
}
