//! Rows of a table as the workers see them: the text and, where wanted, the domain of each.
//!
//! In: batches of columns of any kind of string, possibly inside structures, plain or by dictionary. Out: [`RowBlock`]s. Always holds: a row
//! is null where it, its entry in a dictionary, or a structure around it is. Encodings are checked by who takes the bytes.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use crate::record::Fault;

/// A file of rows, read in order.
pub(super) trait RowSource: Send {
    /// Whether the file has the domain's column and it is read.
    fn has_domain(&self) -> bool;

    /// Rows behind the reader.
    fn next_row(&self) -> u64;

    /// The next rows, or `None` at the end. After an error nothing more is asked of it.
    fn next_block(&mut self) -> Result<Option<RowBlock>, Fault>;
}

/// A column of strings, possibly inside others.
#[derive(Debug)]
struct Column {
    /// The column and the structures around it, from the outside in.
    levels: Vec<ArrayRef>,
    /// For a dictionary, the place of each row's value.
    keys: Option<Vec<usize>>,
    /// The strings.
    values: ArrayRef,
}

pub(super) fn is_string(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(
        kind,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

impl Column {
    fn find(batch: &RecordBatch, path: &[String]) -> Option<Self> {
        let (first, rest) = path.split_first()?;
        let mut levels = vec![batch.column_by_name(first)?.clone()];
        for name in rest {
            let inner = levels
                .last()?
                .as_struct_opt()?
                .column_by_name(name)?
                .clone();
            levels.push(inner);
        }
        let leaf = levels.last()?;
        let (keys, values) = match leaf.as_any_dictionary_opt() {
            None => (None, leaf.clone()),
            Some(dictionary) => {
                let values = dictionary.values().clone();
                // Without values every row is null.
                let keys = if values.is_empty() {
                    Vec::new()
                } else {
                    dictionary.normalized_keys()
                };
                (Some(keys), values)
            }
        };
        is_string(values.data_type()).then_some(Self {
            levels,
            keys,
            values,
        })
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        if self.levels.iter().any(|level| level.is_null(row)) {
            return None;
        }
        let place = match &self.keys {
            None => row,
            Some(keys) => *keys.get(row)?,
        };
        if self.values.is_null(place) {
            return None;
        }
        let values = &self.values;
        Some(match values.data_type() {
            DataType::Utf8 => values.as_string::<i32>().value(place).as_bytes(),
            DataType::LargeUtf8 => values.as_string::<i64>().value(place).as_bytes(),
            DataType::Utf8View => values.as_string_view().value(place).as_bytes(),
            DataType::Binary => values.as_binary::<i32>().value(place),
            DataType::LargeBinary => values.as_binary::<i64>().value(place),
            DataType::BinaryView => values.as_binary_view().value(place),
            _ => return None,
        })
    }
}

/// Rows in order.
#[derive(Debug)]
pub struct RowBlock {
    /// Number of the first row in the file, from 0.
    pub first_row: u64,
    /// Number of rows.
    pub rows: usize,
    text: Column,
    domain: Option<Column>,
    weight: usize,
}

impl RowBlock {
    /// Takes the columns of a batch.
    ///
    /// # Errors
    /// If a column is not there, or of no kind of string.
    pub(super) fn new(
        batch: &RecordBatch,
        first_row: u64,
        text: &[String],
        domain: Option<&[String]>,
    ) -> Result<Self, Fault> {
        let column = |path: &[String]| {
            Column::find(batch, path).ok_or_else(|| Fault::FieldType {
                field: path.join("."),
                got: "no column of strings",
            })
        };
        let (text, domain) = (column(text)?, domain.map(column).transpose()?);
        // What the batch shares with others is not counted: a slice of a large one weighs little. Every value is looked at here: one that
        // cannot be taken out of a damaged batch is met while the file is read, not by the thread that works on the block.
        let bytes_of = |column: &Column, row| column.get(row).map_or(0, <[u8]>::len);
        let of_row = |row| {
            let domain = domain.as_ref().map_or(0, |column| bytes_of(column, row));
            64 + bytes_of(&text, row) + domain
        };
        let weight = (0..batch.num_rows()).map(of_row).sum();
        Ok(Self {
            first_row,
            rows: batch.num_rows(),
            text,
            domain,
            weight,
        })
    }

    /// The text of a row, unless it is null.
    pub fn text(&self, row: usize) -> Option<&[u8]> {
        self.text.get(row)
    }

    /// The domain of a row, unless it is null or not wanted.
    pub fn domain(&self, row: usize) -> Option<&[u8]> {
        self.domain.as_ref()?.get(row)
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}
