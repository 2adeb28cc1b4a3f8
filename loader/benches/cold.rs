//! Waiting for disks: time inside `next_batch` with the index out of the page cache, reading ahead and
//! not, mapped and not. Between batches the program "trains" for some milliseconds.
//!
//! ```text
//! cargo bench -p hds-loader --bench cold
//! ```
//! The index of 400 MB is written to the system's temporary folder (TMPDIR), which must be on a disk for
//! this to say anything.

#[allow(clippy::unwrap_used)] // shared with the tests
#[path = "../tests/loader/builder.rs"]
mod builder;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hds::{LiveWeights, Mixture};
use hds_loader::{Access, Index, Loader, LoaderConfig};

const LENGTH: usize = 1024;
const BATCH: usize = 32;
const STEPS: usize = 60;
const TRAINING: Duration = Duration::from_millis(30);

fn index() -> builder::TestIndex {
    let domains: Vec<builder::Domain> = (0..10)
        .map(|d| builder::Domain {
            name: format!("domain-{d}"),
            train: vec![builder::documents(d, 19_500, |i| {
                50 + i.wrapping_mul(2_654_435_761) % 1951
            })],
            valid: vec![],
        })
        .collect();
    builder::write(&domains, 50_277)
}

/// Has the system forget the pages of every file, as `dd` can for a user.
fn forget(folder: &Path) -> bool {
    let walk = Command::new("find")
        .arg(folder)
        .args([
            "-type",
            "f",
            "-exec",
            "dd",
            "if={}",
            "iflag=nocache",
            "count=0",
            "status=none",
            ";",
        ])
        .status();
    let synced = Command::new("sync").status();
    synced.is_ok_and(|s| s.success()) && walk.is_ok_and(|s| s.success())
}

fn measure(folder: &Path, access: Access, read_ahead_batches: usize) -> Option<Vec<Duration>> {
    if !(forget(folder) && forget(folder)) {
        return None;
    }
    let index = Index::open_with(folder, access).expect("a good index");
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let config = LoaderConfig {
        read_ahead_batches,
        ..LoaderConfig::new(LENGTH, BATCH, 1)
    };
    let mut loader = Loader::new(index, live, config).expect("fits");
    let mut waits: Vec<Duration> = (0..STEPS)
        .map(|_| {
            std::thread::sleep(TRAINING);
            let start = Instant::now();
            std::hint::black_box(loader.next_batch().expect("a good index"));
            start.elapsed()
        })
        .collect();
    waits.sort_unstable();
    Some(waits)
}

fn main() {
    let files = index();
    println!("time in next_batch, cold, {STEPS} batches of {BATCH} x {LENGTH}");
    println!("access  ahead     median        p90        sum");
    for round in 0..2 {
        for access in [Access::Map, Access::Read] {
            for ahead in [0, 2, 8] {
                let Some(waits) = measure(files.path(), access, ahead) else {
                    println!("skipped: no dd, find or sync to empty the page cache with");
                    return;
                };
                let sum: Duration = waits.iter().sum();
                let (median, p90) = (waits[STEPS / 2], waits[STEPS * 9 / 10]);
                println!(
                    "{access:?}\t{ahead}\t{median:>10.1?} {p90:>10.1?} {sum:>10.1?}  round {round}"
                );
            }
        }
    }
}
