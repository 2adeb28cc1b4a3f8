//! Memory: the peak of a process that trains under fixed weights, under HDS with sketches, and under HDS with exact gradients.
//!
//! Each is a process of its own, started with the same size one after the other, in one thread and with an allocator that gives freed
//! memory back, so that the peak is that of what is held. What fixed weights take is the model's; the difference is HDS's.

use std::process::Command;

use tch::Device;

use crate::sizes::Size;
use crate::step::{Arm, Bench};

/// Enough that every part of HDS has worked, and nothing is held for the first time.
const STEPS: usize = 3;

/// Measures in processes of their own, and prints.
pub fn measure(size: &Size, device: Device) {
    let program = std::env::current_exe().expect("the benchmark knows its program");
    let peak = |arm: &str| -> f64 {
        let output = Command::new(&program)
            .args(["--only", size.name, "--arm", arm])
            .args([
                "--device",
                if device == Device::Cpu { "cpu" } else { "cuda" },
            ])
            .env("OMP_NUM_THREADS", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "65536")
            .env("MALLOC_TRIM_THRESHOLD_", "65536")
            .output()
            .expect("the benchmark can start itself");
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        last.parse().unwrap_or_else(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("{arm} gave no peak: {said}")
        })
    };
    let [fixed, sketch, exact] = ["fixed", "sketch", "exact"].map(peak);
    println!(
        "{}: peak {fixed:.0} MiB under fixed weights, {sketch:.0} ({:+.0}) with sketches, {exact:.0} ({:+.0}) with exact gradients; \
         {} domains, layers of {} x {}",
        size.name,
        sketch - fixed,
        exact - fixed,
        size.domains,
        size.hidden,
        4 * size.hidden,
    );
}

/// Makes some steps and prints this process's peak in MiB.
pub fn peak_of(size: &Size, arm: &str, device: Device) {
    let arm = match arm {
        "fixed" => Arm::Fixed,
        "sketch" => Arm::Sketch,
        "exact" => Arm::Exact,
        other => panic!("{other} is none of fixed, sketch, exact"),
    };
    let mut bench = Bench::new(size, device, arm);
    if arm != Arm::Fixed {
        bench.fill_replay();
    }
    for _ in 0..STEPS {
        bench.timed(arm);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of processes");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    println!("{}", kib.expect("the peak is in KiB") / 1024.0);
}
