//! A batch's arrays as few bytes, for the way from a worker process to the training loop.
//!
//! In: the memory of a batch and where each array lies in it. Out: bytes, and from bytes the same arrays, bit for bit, whatever was
//! written into them before. What is regular is left out: labels that are the inputs moved by one, positions that count up,
//! masks that are true; what differs from the rule follows as exceptions, and ids take two or four bytes. A batch of 32 · 1024
//! tokens so takes some 70 KB in place of 800, and its memory in the other process is that of an earlier batch: sending shared
//! memory would cost the system's clearing and mapping of it each time.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays::{Filled, Kind, Part, Pool};
use crate::options::KEYS;

/// Memory of batches that came from worker processes.
static RECEIVED: std::sync::LazyLock<Pool> = std::sync::LazyLock::new(Pool::default);

/// Arrays of a batch as bytes: those of the layout, which lie in its memory.
#[pyfunction]
#[pyo3(name = "pack")]
pub(crate) fn pack_arrays<'py>(
    py: Python<'py>,
    memory: PyReadonlyArray1<'py, i64>,
    layout: Vec<(String, String, usize, Vec<usize>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let words = memory.as_slice()?;
    let mut parts = Vec::with_capacity(layout.len());
    for (key, kind, start, shape) in layout {
        let key = KEYS.into_iter().find(|k| *k == key);
        let kind = Kind::ALL.into_iter().find(|k| k.name() == kind);
        let (Some(key), Some(kind)) = (key, kind) else {
            return Err(PyValueError::new_err("not the layout of a batch"));
        };
        let size = shape.iter().product::<usize>() * kind.bytes();
        parts.push(Part {
            key,
            kind,
            words: start..start + size.div_ceil(8),
            shape,
        });
    }
    if parts.iter().any(|part| part.words.end > words.len()) {
        return Err(PyValueError::new_err("not the memory of a batch"));
    }
    let bytes = py.detach(|| pack(words, &parts));
    Ok(PyBytes::new(py, &bytes))
}

/// The arrays that [`pack_arrays`] made bytes of.
#[pyfunction]
#[pyo3(name = "unpack")]
pub(crate) fn unpack_arrays<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let filled = py.detach(|| unpack(bytes, &RECEIVED));
    let filled = filled.map_err(PyValueError::new_err)?;
    Ok(filled.into_arrays(py, false)?.0)
}

/// How the values of an array are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// As they are, each in this many bytes, little-endian and not negative where fewer than the type's.
    Plain(u8),
    /// One more than the value before; rows are not begun anew.
    Count,
    /// The value behind the same place of an earlier array.
    Next(u8),
    /// The value at the same place of an earlier array.
    Same(u8),
    /// Booleans that are true.
    True,
}

/// Exceptions of a rule beyond this share of the values make it not worth while.
const FEWEST_VALUES_AN_EXCEPTION: usize = 16;

/// Values of an array: a batch has fewer (`LoaderConfig::check`).
const MOST_VALUES: usize = 1 << 31;

/// Where a value differs from its rule.
type Exception = (u32, i64);

/// Writes the parts of a memory.
pub(crate) fn pack(words: &[i64], parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::with_capacity(words.len() + 1024);
    number(&mut out, parts.len() as u64);
    for (place, part) in parts.iter().enumerate() {
        let key = KEYS.iter().position(|key| *key == part.key).unwrap_or(0);
        out.extend_from_slice(&[key as u8, part.kind as u8, part.shape.len() as u8]);
        for extent in &part.shape {
            number(&mut out, *extent as u64);
        }
        let values = &words[part.words.clone()];
        let count: usize = part.shape.iter().product();
        match part.kind {
            Kind::I64 => integers(&mut out, &values[..count], words, &parts[..place]),
            Kind::Bool => booleans(&mut out, &bytemuck::cast_slice(values)[..count]),
            Kind::I32 | Kind::F32 => {
                let bytes: &[u8] = &bytemuck::cast_slice(values)[..count * part.kind.bytes()];
                code(&mut out, Code::Plain(part.kind.bytes() as u8));
                out.extend_from_slice(bytes);
            }
        }
    }
    out
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn code(out: &mut Vec<u8>, code: Code) {
    out.extend_from_slice(&match code {
        Code::Plain(bytes) => [0, bytes],
        Code::Count => [1, 0],
        Code::Next(part) => [2, part],
        Code::Same(part) => [3, part],
        Code::True => [4, 0],
    });
}

fn write_exceptions(out: &mut Vec<u8>, exceptions: &[Exception]) {
    number(out, exceptions.len() as u64);
    for (place, value) in exceptions {
        out.extend_from_slice(&place.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Where values differ from what a rule says; `None` if that is too often.
fn exceptions(
    values: &[i64],
    expected: impl Iterator<Item = Option<i64>>,
) -> Option<Vec<Exception>> {
    let most = values.len() / FEWEST_VALUES_AN_EXCEPTION;
    let mut found = Vec::new();
    for ((place, value), expected) in (0u32..).zip(values).zip(expected) {
        if expected != Some(*value) {
            if found.len() == most {
                return None;
            }
            found.push((place, *value));
        }
    }
    Some(found)
}

fn behind(values: &[i64]) -> impl Iterator<Item = Option<i64>> {
    let behind = values.iter().skip(1).map(|value| Some(*value));
    behind.chain(std::iter::once(None))
}

fn integers(out: &mut Vec<u8>, values: &[i64], words: &[i64], before: &[Part]) {
    let before = (0u8..).zip(before);
    for (number, part) in before.filter(|(_, part)| part.kind == Kind::I64) {
        let Some(other) = words[part.words.clone()].get(..values.len()) else {
            continue;
        };
        let next = || exceptions(values, behind(other)).map(|found| (Code::Next(number), found));
        let same = || {
            let found = exceptions(values, other.iter().map(|value| Some(*value)));
            found.map(|found| (Code::Same(number), found))
        };
        if let Some((rule, found)) = next().or_else(same) {
            code(out, rule);
            write_exceptions(out, &found);
            return;
        }
    }
    let counted = values.iter().map(|value| value.checked_add(1));
    if let Some(found) = exceptions(values, std::iter::once(None).chain(counted)) {
        code(out, Code::Count);
        write_exceptions(out, &found);
        return;
    }
    let all = values.iter().fold(0u64, |all, value| all | *value as u64);
    if all <= u64::from(u16::MAX) {
        code(out, Code::Plain(2));
        out.extend(
            values
                .iter()
                .flat_map(|value| (*value as u16).to_le_bytes()),
        );
    } else if all <= u64::from(u32::MAX) {
        code(out, Code::Plain(4));
        out.extend(
            values
                .iter()
                .flat_map(|value| (*value as u32).to_le_bytes()),
        );
    } else {
        code(out, Code::Plain(8));
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

fn booleans(out: &mut Vec<u8>, values: &[u8]) {
    let falses = falses_of(values);
    if falses <= values.len() / FEWEST_VALUES_AN_EXCEPTION {
        let found: Vec<Exception> = (0u32..)
            .zip(values)
            .filter(|(_, value)| **value == 0)
            .map(|(place, _)| (place, 0))
            .collect();
        code(out, Code::True);
        write_exceptions(out, &found);
    } else {
        code(out, Code::Plain(1));
        out.extend_from_slice(values);
    }
}

fn falses_of(values: &[u8]) -> usize {
    values.iter().filter(|value| **value == 0).count()
}

/// Reads what [`pack`] wrote.
///
/// # Errors
/// Bytes that it did not write.
pub(crate) fn unpack(bytes: &[u8], pool: &Pool) -> Result<Filled, String> {
    let mut input = Input(bytes);
    let mut parts: Vec<Part> = Vec::new();
    let mut words = pool.take();
    let outcome =
        (0..input.number()?).try_for_each(|_| read_part(&mut input, &mut parts, &mut words));
    outcome?;
    words.truncate(parts.last().map_or(0, |part| part.words.end));
    Ok(Filled {
        words,
        parts,
        pool: pool.clone(),
    })
}

fn read_part(
    input: &mut Input<'_>,
    parts: &mut Vec<Part>,
    words: &mut Vec<i64>,
) -> Result<(), String> {
    let &[key, kind, dimensions] = input.take(3)? else {
        return Err(damaged());
    };
    let key = *KEYS.get(usize::from(key)).ok_or_else(damaged)?;
    let kind = Kind::ALL.into_iter().find(|k| *k as u8 == kind);
    let kind = kind.ok_or_else(damaged)?;
    let mut shape = Vec::with_capacity(2);
    for _ in 0..dimensions {
        shape.push(usize::try_from(input.number()?).map_err(|_| damaged())?);
    }
    let count = shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
    let count = count.filter(|n| *n < MOST_VALUES).ok_or_else(damaged)?;
    let start = parts.last().map_or(0, |part| part.words.end);
    let end = start + (count * kind.bytes()).div_ceil(8);
    let room = end.saturating_sub(words.len());
    words.try_reserve(room).map_err(|e| e.to_string())?;
    if room > 0 {
        words.resize(end, 0);
    }
    let (before, here) = words[..end].split_at_mut(start);
    match kind {
        Kind::I64 => read_integers(input, here, before, parts)?,
        Kind::I32 | Kind::F32 => {
            let [0, _] = input.code()? else {
                return Err(damaged());
            };
            let size = count * kind.bytes();
            bytemuck::cast_slice_mut::<i64, u8>(here)[..size].copy_from_slice(input.take(size)?);
        }
        Kind::Bool => {
            let out = &mut bytemuck::cast_slice_mut::<i64, u8>(here)[..count];
            match input.code()? {
                [0, 1] => out.copy_from_slice(input.take(count)?),
                [4, _] => {
                    out.fill(1);
                    for (place, _) in input.exceptions()? {
                        *out.get_mut(place as usize).ok_or_else(damaged)? = 0;
                    }
                }
                _ => return Err(damaged()),
            }
            // Booleans of other values would be none.
            out.iter_mut()
                .for_each(|value| *value = u8::from(*value != 0));
        }
    }
    parts.push(Part {
        key,
        kind,
        words: start..end,
        shape,
    });
    Ok(())
}

fn read_integers(
    input: &mut Input<'_>,
    out: &mut [i64],
    before: &[i64],
    parts: &[Part],
) -> Result<(), String> {
    let other = |number: u8| -> Result<&[i64], String> {
        let part = parts.get(usize::from(number));
        let values = part.and_then(|part| before.get(part.words.clone()));
        values
            .and_then(|values| values.get(..out.len()))
            .ok_or_else(damaged)
    };
    match input.code()? {
        [0, 2] => {
            let bytes = input.take(2 * out.len())?.as_chunks().0;
            let values = bytes.iter().map(|b| i64::from(u16::from_le_bytes(*b)));
            out.iter_mut()
                .zip(values)
                .for_each(|(out, value)| *out = value);
        }
        [0, 4] => {
            let bytes = input.take(4 * out.len())?.as_chunks().0;
            let values = bytes.iter().map(|b| i64::from(u32::from_le_bytes(*b)));
            out.iter_mut()
                .zip(values)
                .for_each(|(out, value)| *out = value);
        }
        [0, 8] => {
            let bytes = input.take(8 * out.len())?.as_chunks().0;
            let values = bytes.iter().map(|b| i64::from_le_bytes(*b));
            out.iter_mut()
                .zip(values)
                .for_each(|(out, value)| *out = value);
        }
        [1, _] => {
            let mut exceptions = input.exceptions()?.peekable();
            let mut start = 0;
            let mut value = 0i64;
            loop {
                let end = exceptions
                    .peek()
                    .map_or(out.len(), |(place, _)| *place as usize);
                let stretch = out.get_mut(start..end).ok_or_else(damaged)?;
                let first = value;
                (first..).zip(stretch).for_each(|(value, out)| *out = value);
                match exceptions.next() {
                    None => break,
                    Some((_, exception)) => (start, value) = (end, exception),
                }
            }
        }
        [2, number] => {
            let other = other(number)?;
            let end = other.len().saturating_sub(1);
            out[..end].copy_from_slice(&other[other.len() - end..]);
            input.correct(out)?;
        }
        [3, number] => {
            out.copy_from_slice(other(number)?);
            input.correct(out)?;
        }
        _ => return Err(damaged()),
    }
    Ok(())
}

fn damaged() -> String {
    "a batch from a worker process is damaged".to_owned()
}

/// Bytes still to be read.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.first_chunk().ok_or_else(damaged)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn code(&mut self) -> Result<[u8; 2], String> {
        self.take(2)?.first_chunk().copied().ok_or_else(damaged)
    }

    fn exceptions(&mut self) -> Result<impl Iterator<Item = Exception> + use<'b>, String> {
        let count = usize::try_from(self.number()?).map_err(|_| damaged())?;
        let bytes = self.take(count.checked_mul(12).ok_or_else(damaged)?)?;
        Ok(bytes.as_chunks::<12>().0.iter().map(|b| {
            let [place @ .., _, _, _, _, _, _, _, _] = *b;
            let [_, _, _, _, value @ ..] = *b;
            (u32::from_le_bytes(place), i64::from_le_bytes(value))
        }))
    }

    fn correct(&mut self, out: &mut [i64]) -> Result<(), String> {
        for (place, value) in self.exceptions()? {
            *out.get_mut(place as usize).ok_or_else(damaged)? = value;
        }
        Ok(())
    }
}
