//! Models, batches and numbers of domains that are measured.

/// A model, its batch, and K domains.
pub struct Size {
    pub name: &'static str,
    pub hidden: i64,
    pub blocks: i64,
    pub vocabulary: i64,
    pub length: i64,
    /// Sequences of a micro-batch.
    pub rows: i64,
    pub micro_batches: usize,
    pub domains: usize,
    /// Transitions of an update.
    pub minibatch: u64,
}

pub const SIZES: [Size; 5] = [
    Size {
        name: "small",
        hidden: 128,
        blocks: 4,
        vocabulary: 512,
        length: 128,
        rows: 16,
        micro_batches: 1,
        domains: 6,
        minibatch: 64,
    },
    Size {
        name: "demo",
        hidden: 256,
        blocks: 6,
        vocabulary: 512,
        length: 256,
        rows: 16,
        micro_batches: 1,
        domains: 6,
        minibatch: 64,
    },
    Size {
        name: "minipile",
        hidden: 256,
        blocks: 6,
        vocabulary: 4096,
        length: 256,
        rows: 16,
        micro_batches: 2,
        domains: 20,
        minibatch: 64,
    },
    Size {
        name: "wider",
        hidden: 512,
        blocks: 8,
        vocabulary: 8192,
        length: 512,
        rows: 4,
        micro_batches: 2,
        domains: 20,
        minibatch: 64,
    },
    // Pythia-70m: its shape and vocabulary.
    Size {
        name: "70m",
        hidden: 512,
        blocks: 6,
        vocabulary: 50_304,
        length: 512,
        rows: 4,
        micro_batches: 3,
        domains: 22,
        minibatch: 64,
    },
];
