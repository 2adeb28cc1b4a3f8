//! The arrays of a batch, side by side in one piece of memory. The only module with `unsafe`.
//!
//! In: a batch of the loader. Out: NumPy arrays that are views of that memory, and where each lies in it, so
//! that a worker process can send all of them as one.
//! Always holds: the memory is Rust's, lives as long as any view of it, and is used for a later batch only
//! after the last view is gone. Legend: R rows, L tokens of a row, 8-byte words.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use hds_loader::{Batch, LoaderError};
use numpy::ndarray::{ArrayView, Dim};
use numpy::{Element, PyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{ArrayOptions, KEYS, Labels};

/// Pieces of memory that wait for the next batch; more are given back to the system.
const KEPT: usize = 8;

/// Memory of batches that nobody looks at any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    free: Arc<Mutex<Vec<Vec<i64>>>>,
}

impl Pool {
    pub(crate) fn take(&self) -> Vec<i64> {
        // A poisoned lock: the list is whole, as it is only pushed to and popped from.
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        free.pop().unwrap_or_default()
    }

    fn give(&self, words: Vec<i64>) {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        if free.len() < KEPT {
            free.push(words);
        }
    }
}

/// Owner of the memory that the arrays of a batch are views of.
#[pyclass(frozen)]
struct Memory {
    words: Vec<i64>,
    pool: Pool,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.words));
    }
}

/// A type that an array can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    I64,
    I32,
    F32,
    Bool,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::I64, Self::I32, Self::F32, Self::Bool];

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::I32 | Self::F32 => 4,
            Self::Bool => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::I64 => "int64",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::Bool => "bool",
        }
    }
}

/// Where an array lies.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) words: Range<usize>,
    /// One or two extents.
    pub(crate) shape: Vec<usize>,
}

/// Arrays of a batch, filled and not yet Python's.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) words: Vec<i64>,
    pub(crate) parts: Vec<Part>,
    pub(crate) pool: Pool,
}

/// Puts the wanted arrays of a batch side by side.
///
/// # Errors
/// [`LoaderError::Memory`].
pub(crate) fn fill(
    batch: &Batch,
    options: &ArrayOptions,
    pool: &Pool,
) -> Result<Filled, LoaderError> {
    let (rows, length) = (batch.rows(), batch.sequence_length);
    let mut boundaries = Vec::new();
    if options.wants("cu_seqlens") {
        batch.cu_seqlens(0..rows, &mut boundaries);
    }
    let mut parts = Vec::with_capacity(KEYS.len());
    let mut end = 0;
    for key in KEYS.into_iter().filter(|key| options.wants(key)) {
        let (kind, shape) = match key {
            "input_ids" | "labels" | "position_ids" => (Kind::I64, vec![rows, length]),
            "domain_ids" => (Kind::I64, vec![rows]),
            "sample_ids" => (Kind::I64, vec![rows, 2]),
            "cu_seqlens" => (Kind::I32, vec![boundaries.len()]),
            "mtld" => (Kind::F32, vec![rows]),
            _ => (Kind::Bool, vec![rows, length]),
        };
        let bytes = shape.iter().product::<usize>() * kind.bytes();
        let words = end..end + bytes.div_ceil(8);
        end = words.end;
        parts.push(Part {
            key,
            kind,
            words,
            shape,
        });
    }
    let mut words = pool.take();
    let more = end.saturating_sub(words.len());
    let room = words.try_reserve_exact(more);
    room.map_err(|_| LoaderError::Memory {
        bytes: more.saturating_mul(size_of::<i64>()),
    })?;
    words.resize(end, 0);
    for part in &parts {
        let out = &mut words[part.words.clone()];
        let count: usize = part.shape.iter().product();
        match part.key {
            "input_ids" => batch.inputs_i64(0..rows, out),
            "labels" => labels(batch, options, out),
            "position_ids" if options.reset_position_ids => batch.position_ids(0..rows, out),
            "position_ids" => {
                for row in out.chunks_mut(length) {
                    (0i64..)
                        .zip(row)
                        .for_each(|(position, place)| *place = position);
                }
            }
            "domain_ids" => {
                for (place, domain) in out.iter_mut().zip(&batch.domains) {
                    *place = i64::from(domain.0);
                }
            }
            "sample_ids" => {
                for (place, sample) in out.chunks_mut(2).zip(&batch.samples) {
                    // Below 2^63: neither epochs nor windows come near.
                    place.copy_from_slice(&[sample.epoch as i64, sample.window as i64]);
                }
            }
            "cu_seqlens" => bytemuck::cast_slice_mut(out)[..count].copy_from_slice(&boundaries),
            "mtld" => bytemuck::cast_slice_mut(out)[..count].copy_from_slice(&batch.mtld),
            _ => {
                let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(out)[..count];
                loss_mask(batch, bytes);
            }
        }
    }
    Ok(Filled {
        words,
        parts,
        pool: pool.clone(),
    })
}

/// The labels of the rows, with `ignore_index` where no loss is wanted.
fn labels(batch: &Batch, options: &ArrayOptions, out: &mut [i64]) {
    let (rows, length) = (batch.rows(), batch.sequence_length);
    let ignore = options.ignore_index;
    // Of the token that each label is: the row's place of the first label.
    let first = match options.labels {
        Labels::Next => 1,
        Labels::Same => 0,
    };
    match options.labels {
        Labels::Next => batch.targets_i64(0..rows, out),
        Labels::Same => batch.inputs_i64(0..rows, out),
    }
    for (row, labels) in out.chunks_mut(length).enumerate() {
        if options.mask_boundaries {
            for span in batch.spans(row).iter().skip(1) {
                if let Some(label) = labels.get_mut(span.start as usize - first) {
                    *label = ignore;
                }
            }
        }
        if let Some(padding) = labels.get_mut(batch.filled(row).saturating_sub(first)..) {
            padding.fill(ignore);
        }
    }
}

fn loss_mask(batch: &Batch, out: &mut [u8]) {
    let length = batch.sequence_length;
    out.fill(1);
    for (row, mask) in out.chunks_mut(length).enumerate() {
        for span in batch.spans(row).iter().skip(1) {
            if let Some(place) = mask.get_mut(span.start as usize - 1) {
                *place = 0;
            }
        }
        if let Some(padding) = mask.get_mut(batch.filled(row).saturating_sub(1)..) {
            padding.fill(0);
        }
    }
}

/// Where each array lies in a batch's memory: key, type, first word and shape.
pub(crate) type Layout = Vec<(&'static str, &'static str, usize, Vec<usize>)>;

/// A batch's arrays by key, and the whole memory with its layout where that was asked for.
pub(crate) type Arrays<'py> = (Bound<'py, PyDict>, Option<(Bound<'py, PyAny>, Layout)>);

impl Filled {
    /// Makes Python's arrays; with `packed` also one array of the whole memory, and the layout.
    pub(crate) fn into_arrays<'py>(self, py: Python<'py>, packed: bool) -> PyResult<Arrays<'py>> {
        let parts = self.parts;
        let memory = Memory {
            words: self.words,
            pool: self.pool,
        };
        let memory = Bound::new(py, memory)?;
        let arrays = PyDict::new(py);
        for part in &parts {
            let array = match part.kind {
                Kind::I64 => view::<i64>(&memory, part),
                Kind::I32 => view::<i32>(&memory, part),
                Kind::F32 => view::<f32>(&memory, part),
                Kind::Bool => view::<bool>(&memory, part),
            };
            arrays.set_item(part.key, array)?;
        }
        if !packed {
            return Ok((arrays, None));
        }
        let whole = Part {
            key: "",
            kind: Kind::I64,
            words: 0..memory.get().words.len(),
            shape: vec![memory.get().words.len()],
        };
        let layout = parts
            .into_iter()
            .map(|part| (part.key, part.kind.name(), part.words.start, part.shape))
            .collect();
        Ok((arrays, Some((view::<i64>(&memory, &whole), layout))))
    }
}

/// An array that is a part of a memory, which it keeps alive.
#[allow(unsafe_code)]
fn view<'py, T: Element>(memory: &Bound<'py, Memory>, part: &Part) -> Bound<'py, PyAny> {
    let words = &memory.get().words[part.words.clone()];
    let count: usize = part.shape.iter().product();
    assert!(
        count * size_of::<T>() <= size_of_val(words),
        "a part holds its array"
    );
    let data = words.as_ptr().cast::<T>();
    let owner = memory.clone().into_any();
    // SAFETY: `data` is aligned to 8 bytes and holds `count` values of T (checked above): integers and floats
    // of any bits, or bytes 0 and 1 where T is bool, which `fill` wrote. The memory is never resized
    // while `Memory` lives, and the array holds a reference to it. Rust reads it no more, so Python may write.
    unsafe {
        match part.shape[..] {
            [rows, columns] => {
                let view = ArrayView::from_shape_ptr(Dim([rows, columns]), data);
                PyArray::borrow_from_array(&view, owner).into_any()
            }
            _ => {
                let view = ArrayView::from_shape_ptr(Dim([count]), data);
                PyArray::borrow_from_array(&view, owner).into_any()
            }
        }
    }
}
