//! The different words (types) of one document, with the forward reading done on the way.
//!
//! In: the keys of a document's words in order. Out: its word count and MTLD. Each word is looked up once: the table gives it
//! a dense number and says whether the open factor has it; the backward reading then needs only an array.
//! Nothing is cleared between factors or documents: every slot carries the stamp of the factor that last saw its word,
//! and stamps only grow. Memory follows the largest document and is given back after a very large one.

use super::{
    Lexical,
    key::WordKey,
    mtld::{Reading, mean_of_readings},
};

/// Slots of the smallest and of the largest first table, as powers of two: 16 KiB and 1 MiB.
const FIRST_BITS: std::ops::RangeInclusive<u32> = 10..=16;
/// Tables and lists of more entries than this are given back after the document.
const KEPT_ENTRIES: usize = 1 << 18;

/// One place of the table.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: WordKey,
    /// The factor that last saw the word; a stamp of an earlier document marks the slot as free.
    stamp: u32,
    /// The word's number, in the order of first appearance.
    number: u32,
}

impl Slot {
    const FREE: Self = Self {
        key: WordKey::NONE,
        stamp: 0,
        number: 0,
    };
}

/// The types of a document; reused for the next one.
#[derive(Debug)]
pub(super) struct Types {
    /// At least `1 << bits` slots, of which the first `1 << bits` are in use.
    slots: Vec<Slot>,
    bits: u32,
    /// The first stamp of this document.
    first_stamp: u32,
    /// The stamp of the open factor.
    stamp: u32,
    /// Types so far.
    types: u32,
    forward: Reading,
    /// The document's words as numbers of types.
    numbers: Vec<u32>,
    /// By number: the factor of the backward reading that last saw the word.
    seen_backward: Vec<u32>,
}

impl Default for Types {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            bits: *FIRST_BITS.start(),
            first_stamp: 1,
            stamp: 1,
            types: 0,
            forward: Reading::default(),
            numbers: Vec::new(),
            seen_backward: Vec::new(),
        }
    }
}

impl Types {
    /// Forgets the document before and makes ready for one of about `bytes` bytes.
    pub(super) fn start(&mut self, bytes: usize) {
        if self.slots.len() > KEPT_ENTRIES {
            self.slots = Vec::new();
        }
        if self.numbers.capacity() > KEPT_ENTRIES {
            self.numbers = Vec::new();
        }
        if self.seen_backward.capacity() > KEPT_ENTRIES {
            self.seen_backward = Vec::new();
        }
        self.numbers.clear();
        self.forward = Reading::default();
        self.types = 0;
        // About a type for every sixteen bytes is what documents of some kilobytes have; more make the table grow.
        self.bits = (bytes / 8)
            .max(1)
            .ilog2()
            .clamp(*FIRST_BITS.start(), *FIRST_BITS.end());
        if self.slots.len() < 1 << self.bits {
            self.slots.resize(1 << self.bits, Slot::FREE);
        }
        if self.stamp > u32::MAX / 2 {
            self.slots.fill(Slot::FREE);
            self.stamp = 0;
        }
        self.stamp += 1;
        self.first_stamp = self.stamp;
    }

    /// Reads the next words of the document.
    #[inline(always)]
    pub(super) fn read(&mut self, keys: &[WordKey]) {
        while self.types as usize + keys.len() > (1 << self.bits) / 2 {
            self.grow();
        }
        let bits = self.bits;
        let slots = &mut self.slots[..1 << bits];
        let mask = slots.len() - 1;
        let first_stamp = self.first_stamp;
        let (mut stamp, mut types, mut forward) = (self.stamp, self.types, self.forward.clone());
        let read = self.numbers.len();
        self.numbers.resize(read + keys.len(), 0);
        for (&key, number) in keys.iter().zip(&mut self.numbers[read..]) {
            // One branch, taken where another word has the place, and none on whether the word is new: no one can foretell that.
            // Hence masks instead of conditions, which the compiler would make branches.
            let mut at = key.slot(bits) & mask;
            let mut free = is_below(slots[at].stamp, first_stamp);
            while slots[at].key.difference(key) & !free != 0 {
                at = (at + 1) & mask;
                free = is_below(slots[at].stamp, first_stamp);
            }
            let slot = &mut slots[at];
            let new = free;
            let first = is_below(slot.stamp, stamp) & 1;
            *number = slot.number ^ (slot.number ^ types) & new;
            *slot = Slot {
                key,
                stamp,
                number: *number,
            };
            types += new & 1;
            stamp += forward.read(first);
        }
        (self.stamp, self.types, self.forward) = (stamp, types, forward);
    }

    /// Ends the document.
    #[inline(always)]
    pub(super) fn finish(&mut self) -> Lexical {
        self.seen_backward.clear();
        self.seen_backward.resize(self.types as usize, 0);
        let mut backward = Reading::default();
        let mut stamp = 1;
        for &number in self.numbers.iter().rev() {
            let seen = &mut self.seen_backward[number as usize];
            let first = is_below(*seen, stamp) & 1;
            *seen = stamp;
            stamp += backward.read(first);
        }
        let words = self.numbers.len() as u64;
        Lexical {
            words,
            mtld: mean_of_readings(&self.forward, &backward, words),
        }
    }

    /// Makes the table four times as large.
    #[cold]
    fn grow(&mut self) {
        let old: Vec<Slot> = self.slots[..1 << self.bits]
            .iter()
            .filter(|slot| slot.stamp >= self.first_stamp)
            .copied()
            .collect();
        self.bits += 2;
        // The slots beyond the old end may be of earlier documents: free by their stamps. Those below are to be freed.
        self.slots[..1 << (self.bits - 2)].fill(Slot::FREE);
        if self.slots.len() < 1 << self.bits {
            self.slots.resize(1 << self.bits, Slot::FREE);
        }
        let mask = (1 << self.bits) - 1;
        for slot in old {
            let mut at = slot.key.slot(self.bits);
            while self.slots[at & mask].stamp >= self.first_stamp {
                at += 1;
            }
            self.slots[at & mask] = slot;
        }
    }
}

/// All ones where one stamp is below another, else zero; written so that the compiler makes no branch of it.
#[inline(always)]
fn is_below(stamp: u32, other: u32) -> u32 {
    (u64::from(stamp).wrapping_sub(u64::from(other)) >> 32) as u32
}
