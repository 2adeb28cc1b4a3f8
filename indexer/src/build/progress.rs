//! What a build tells while it runs.

/// How far a build is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Bytes read from the inputs, as they lie on disk.
    pub input_bytes: u64,
    /// Documents indexed by this run of the program.
    pub documents: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
}

/// Hears how far a build is; called by one thread at a time.
pub trait Progress: Sync {
    /// The build begins; `input_bytes` is what there is to read, as far as it is known.
    fn begins(&self, input_bytes: u64) {
        let _ = input_bytes;
    }
    /// A block is behind.
    fn advances(&self, advance: Advance) {
        let _ = advance;
    }
    /// Everything is read; the tables are written.
    fn finishes(&self) {}
    /// Something a user should know.
    fn note(&self, message: &str) {
        let _ = message;
    }
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
