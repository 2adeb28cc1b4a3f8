//! Asks the system for the windows of the next batches before they are needed.
//!
//! In: after each batch, where the loader stands and the weights in force. Out: nothing but file pages
//! on their way into memory. Always holds: batches do not depend on it; it never makes the loader wait
//! (where it cannot keep up, it is told less). Errors are left to the loader, which meets them itself.
//!
//! What is asked for are this rank's slots of the next batches as the weights now in force would draw
//! them. Weights that change a little change few slots, and those take windows that come a little later
//! or sooner in the order of their domain: most guesses stay right. Our choice over each domain's next
//! windows on every rank, which would read the whole global batch on every machine.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hds::index::Split;
use hds::{DomainId, VersionedMixture};

use crate::config::LoaderConfig;
use crate::draw::Drawer;
use crate::error::make_room;
use crate::index::Index;
use crate::order::WindowOrder;
use crate::token_stream::StreamRange;

/// Reports that may wait for the thread; more are dropped.
const WAITING: usize = 2;

/// Where the loader stands after a batch.
#[derive(Debug)]
struct Report {
    /// Number of the next batch.
    step: u64,
    /// Samples taken of each domain, length K.
    samples: Vec<u64>,
    weights: Arc<VersionedMixture>,
}

/// A thread that reads ahead; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    reports: SyncSender<Report>,
}

impl ReadAhead {
    /// Starts the thread, if the configuration asks for it and the system allows.
    pub(crate) fn start(index: &Index, config: &LoaderConfig, order: &WindowOrder) -> Option<Self> {
        if config.read_ahead_batches == 0 {
            return None;
        }
        let (reports, inbox) = sync_channel(WAITING);
        let mut slots = Vec::new();
        make_room(&mut slots, config.batch_size).ok()?;
        slots.resize(config.batch_size, DomainId(0));
        let worker = Worker {
            index: index.clone(),
            drawer: Drawer::new(config),
            order: order.clone(),
            slots,
            config: config.clone(),
            asked: HashSet::new(),
        };
        std::thread::Builder::new()
            .name("hds-read-ahead".into())
            .spawn(move || worker.run(&inbox))
            .ok()
            .map(|_| Self { reports })
    }

    /// Tells where the loader stands before batch `step`.
    pub(crate) fn report(&self, step: u64, samples: &[u64], weights: &Arc<VersionedMixture>) {
        // A full inbox drops the report: a later one says more.
        let _ = self.reports.try_send(Report {
            step,
            samples: samples.to_vec(),
            weights: Arc::clone(weights),
        });
    }
}

struct Worker {
    index: Index,
    drawer: Drawer,
    order: WindowOrder,
    config: LoaderConfig,
    slots: Vec<DomainId>,
    /// Samples asked for and not yet taken.
    asked: HashSet<(DomainId, u64)>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Report>) {
        while let Ok(mut report) = inbox.recv() {
            // Only the newest report matters.
            while let Ok(newer) = inbox.try_recv() {
                report = newer;
            }
            self.ask(report);
        }
    }

    fn ask(&mut self, report: Report) {
        let mut samples = report.samples;
        let taken = |domain: DomainId| samples.get(domain.index()).copied().unwrap_or(0);
        self.asked.retain(|&(domain, count)| count >= taken(domain));
        let own = self.config.slots();
        let mut new = Vec::new();
        for step in report.step..report.step + self.config.read_ahead_batches as u64 {
            let mixture = &report.weights.mixture;
            if self.drawer.draw(mixture, step, &mut self.slots).is_err() {
                return;
            }
            for slot in 0..self.slots.len() {
                let domain = self.slots[slot];
                let Some(count) = samples.get_mut(domain.index()) else {
                    return;
                };
                let sample = (domain, *count);
                *count += 1;
                if own.contains(&slot) && self.asked.insert(sample) {
                    if self.index.is_remote() {
                        new.push(sample);
                    } else {
                        self.fetch(sample, |range| range.will_need());
                    }
                }
            }
        }
        // A search may wait for a server: what all of them need first is asked for together.
        for &sample in &new {
            self.fetch(sample, |range| range.announce());
        }
        for sample in new {
            self.fetch(sample, |range| range.will_need());
        }
    }

    fn fetch(&mut self, (domain, count): (DomainId, u64), ask: impl Fn(&StreamRange<'_>)) {
        let (packing, length) = (self.config.packing, self.config.sequence_length);
        let stream = self.index.split(domain, Split::Train);
        if let Some(place) = self.order.place(domain, count)
            && let Ok(range) = stream.sample(packing, length, place.window)
        {
            ask(&range);
        }
    }
}
