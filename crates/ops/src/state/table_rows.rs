//! Hash tables: static and mutable, with a row of values per key.
//!
//! Keys and values are stored in row order, which is the order of insertion as long as no entry is
//! removed; exports are in this order, so they do not depend on hashes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use thalweg_tensor::{Budget, Bytes, DType, Result, Shape, Tensor, bail, ensure};

use super::ledger::Ledger;
use crate::cells::Cell;

/// Estimated bytes of a map entry besides the row.
const ENTRY_BYTES: usize = 48;

/// Maps a key to its row.
enum Index {
    Integers(HashMap<i64, usize>),
    Strings(HashMap<Bytes, usize>),
}

/// What to do with keys that exist already.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Duplicates {
    /// Replace the value.
    Replace,
    /// Fail unless the values are equal.
    MustAgree,
}

/// Keys and values in rows.
pub(super) struct Rows {
    index: Index,
    /// Keys by row; rows beyond the length are unused.
    keys: Tensor,
    values: Tensor,
    /// Elements per row of values.
    width: usize,
    ledger: Ledger,
}

/// The keys of an operation.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Strings(&'a [Bytes]),
}

impl<'a> Keys<'a> {
    pub(super) fn of(tensor: &'a Tensor) -> Result<Keys<'a>> {
        Ok(match tensor.dtype() {
            DType::Int32 => Keys::Int32(tensor.as_slice()?),
            DType::Int64 => Keys::Int64(tensor.as_slice()?),
            DType::String => Keys::Strings(tensor.strings()?),
            other => bail!(InvalidArgument, "keys cannot be {other}"),
        })
    }

    /// A copy of key `i`, since a string may be a small slice of a large message.
    fn key(&self, i: usize) -> Key {
        match self {
            Keys::Int32(keys) => Key::Integer(keys[i].into()),
            Keys::Int64(keys) => Key::Integer(keys[i]),
            Keys::Strings(keys) => Key::Text(Bytes::copy_from_slice(&keys[i])),
        }
    }
}

/// A key in its own memory.
enum Key {
    Integer(i64),
    Text(Bytes),
}

impl Key {
    /// Bytes of the key in the map.
    fn size_bytes(&self) -> usize {
        ENTRY_BYTES + if let Key::Text(text) = self { text.len() } else { 0 }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Integer(key) => write!(f, "{key}"),
            Key::Text(key) => f.write_str(&String::from_utf8_lossy(key)),
        }
    }
}

impl Rows {
    pub(super) fn new(
        key_dtype: DType,
        value_dtype: DType,
        width: usize,
        ledger: Ledger,
    ) -> Result<Rows> {
        let index = match key_dtype {
            DType::String => Index::Strings(HashMap::new()),
            _ => Index::Integers(HashMap::new()),
        };
        let budget = Some(ledger.budget());
        let keys = Tensor::blank_in(key_dtype, Shape::new(&[0])?, budget)?;
        let values = Tensor::blank_in(value_dtype, Shape::new(&[0, width])?, budget)?;
        Ok(Rows { index, keys, values, width, ledger })
    }

    pub(super) fn len(&self) -> usize {
        match &self.index {
            Index::Integers(map) => map.len(),
            Index::Strings(map) => map.len(),
        }
    }

    /// The values by row, with unused capacity at the end.
    pub(super) fn values(&self) -> &Tensor {
        &self.values
    }

    /// The row of key `i`.
    pub(super) fn find(&self, keys: Keys<'_>, i: usize) -> Option<usize> {
        match (&self.index, keys) {
            (Index::Integers(map), Keys::Int32(keys)) => map.get(&keys[i].into()),
            (Index::Integers(map), Keys::Int64(keys)) => map.get(&keys[i]),
            (Index::Strings(map), Keys::Strings(keys)) => map.get(&keys[i]),
            _ => None,
        }
        .copied()
    }

    /// Inserts a row of `values` for each of `keys`. After an error, some rows may have been
    /// inserted.
    pub(super) fn insert(
        &mut self,
        keys: &Tensor,
        values: &Tensor,
        duplicates: Duplicates,
    ) -> Result<()> {
        let cells = Keys::of(keys)?;
        for i in 0..keys.num_elements() {
            match self.find(cells, i) {
                Some(row) if duplicates == Duplicates::MustAgree => ensure!(
                    is_same_row(&self.values, row, values, i, self.width)?,
                    FailedPrecondition,
                    "HashTable has different value for same key. Key {}",
                    cells.key(i)
                ),
                Some(row) => self.put(row, values, i)?,
                None => self.push(cells.key(i), values, i)?,
            }
        }
        Ok(())
    }

    fn put(&mut self, row: usize, values: &Tensor, i: usize) -> Result<()> {
        let before = text_bytes(&self.values, row * self.width..(row + 1) * self.width);
        self.ledger.take(text_bytes(values, i * self.width..(i + 1) * self.width))?;
        self.ledger.give(before);
        copy_row(values, i, &mut self.values, row, self.width)
    }

    fn push(&mut self, key: Key, values: &Tensor, i: usize) -> Result<()> {
        let row = self.len();
        self.reserve(row + 1)?;
        self.ledger.take(key.size_bytes())?;
        if let Err(e) = self.put(row, values, i) {
            self.ledger.give(key.size_bytes());
            return Err(e);
        }
        match &key {
            Key::Text(text) => self.keys.strings_mut()?[row] = text.clone(),
            Key::Integer(key) if self.keys.dtype() == DType::Int32 => {
                self.keys.as_mut_slice::<i32>()?[row] = *key as i32;
            }
            Key::Integer(key) => self.keys.as_mut_slice::<i64>()?[row] = *key,
        }
        self.set_row(key, row)
    }

    /// Maps a key to a row.
    fn set_row(&mut self, key: Key, row: usize) -> Result<()> {
        match (&mut self.index, key) {
            (Index::Strings(map), Key::Text(key)) => map.insert(key, row),
            (Index::Integers(map), Key::Integer(key)) => map.insert(key, row),
            _ => bail!(Internal, "the keys have another type than the table's"),
        };
        Ok(())
    }

    /// Reserves capacity for `rows` rows; doubles it, so that repeated insertions take linear time.
    fn reserve(&mut self, rows: usize) -> Result<()> {
        let room = self.keys.num_elements();
        if rows <= room {
            return Ok(());
        }
        let room = rows.max(room.saturating_mul(2)).max(8);
        self.keys = grown(&self.keys, &[room], self.ledger.budget())?;
        self.values = grown(&self.values, &[room, self.width], self.ledger.budget())?;
        Ok(())
    }

    /// Removes these keys; the last row is moved to the place of each.
    pub(super) fn remove(&mut self, keys: &Tensor) -> Result<()> {
        let cells = Keys::of(keys)?;
        for i in 0..keys.num_elements() {
            let Some(row) = self.find(cells, i) else { continue };
            let last = self.len() - 1;
            let (key, moved) = (cells.key(i), Keys::of(&self.keys)?.key(last));
            self.set_row(moved, row)?;
            match (&mut self.index, &key) {
                (Index::Strings(map), Key::Text(key)) => map.remove(key),
                (Index::Integers(map), Key::Integer(key)) => map.remove(key),
                _ => bail!(Internal, "the keys have another type than the table's"),
            };
            let texts = text_bytes(&self.values, row * self.width..(row + 1) * self.width);
            self.ledger.give(key.size_bytes() + texts);
            move_row(&mut self.keys, last, row, 1)?;
            move_row(&mut self.values, last, row, self.width)?;
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) -> Result<()> {
        let fresh = Rows::new(
            self.keys.dtype(),
            self.values.dtype(),
            self.width,
            Ledger::new(self.ledger.budget().clone()),
        )?;
        *self = fresh;
        Ok(())
    }

    /// Copies of all keys and values.
    pub(super) fn export(
        &self,
        budget: &Arc<Budget>,
        value_shape: &[usize],
    ) -> Result<(Tensor, Tensor)> {
        let rows = self.len();
        let dims: Vec<usize> = [rows].iter().chain(value_shape).copied().collect();
        Ok((head(&self.keys, &[rows], budget)?, head(&self.values, &dims, budget)?))
    }
}

/// The first elements of a tensor, in the shape `dims`.
fn head(tensor: &Tensor, dims: &[usize], budget: &Arc<Budget>) -> Result<Tensor> {
    let mut part = Tensor::blank_in(tensor.dtype(), Shape::new(dims)?, Some(budget))?;
    let n = part.num_elements();
    with_cell!(tensor.dtype(), C => {
        C::view_mut(&mut part)?.clone_from_slice(&C::view(tensor)?[..n]);
    });
    Ok(part)
}

/// The same elements with a larger capacity, in the shape `dims`.
fn grown(tensor: &Tensor, dims: &[usize], budget: &Arc<Budget>) -> Result<Tensor> {
    let mut larger = Tensor::blank_in(tensor.dtype(), Shape::new(dims)?, Some(budget))?;
    with_cell!(tensor.dtype(), C => {
        let from = C::view(tensor)?;
        C::view_mut(&mut larger)?[..from.len()].clone_from_slice(from);
    });
    Ok(larger)
}

/// Total length of the strings in a range of elements; 0 for other dtypes.
pub(super) fn text_bytes(tensor: &Tensor, range: std::ops::Range<usize>) -> usize {
    tensor.strings().ok().and_then(|s| s.get(range)).map_or(0, |s| s.iter().map(Bytes::len).sum())
}

/// Copies row `i` of `source` to row `row` of `target`, with rows of `width` elements.
pub(super) fn copy_row(
    source: &Tensor,
    i: usize,
    target: &mut Tensor,
    row: usize,
    width: usize,
) -> Result<()> {
    let (from, to) = (i * width..(i + 1) * width, row * width..(row + 1) * width);
    if let (DType::String, Ok(strings)) = (source.dtype(), source.strings()) {
        // Copied: the strings may be small slices of a large message.
        let copies = strings[from].iter().map(|s| Bytes::copy_from_slice(s));
        for (target, copy) in target.strings_mut()?[to].iter_mut().zip(copies) {
            *target = copy;
        }
        return Ok(());
    }
    with_cell!(source.dtype(), C => {
        C::view_mut(target)?[to].clone_from_slice(&C::view(source)?[from]);
    });
    Ok(())
}

/// Moves row `from` to row `to`, leaving default values.
fn move_row(tensor: &mut Tensor, from: usize, to: usize, width: usize) -> Result<()> {
    with_cell!(tensor.dtype(), C => {
        let cells = C::view_mut(tensor)?;
        for i in 0..width {
            let cell = std::mem::take(&mut cells[from * width + i]);
            if from != to {
                cells[to * width + i] = cell;
            }
        }
    });
    Ok(())
}

/// Whether two rows are equal by numeric comparison: NaN differs from itself.
fn is_same_row(a: &Tensor, i: usize, b: &Tensor, j: usize, width: usize) -> Result<bool> {
    let (left, right) = (i * width..(i + 1) * width, j * width..(j + 1) * width);
    Ok(match a.dtype() {
        DType::Float => a.as_slice::<f32>()?[left] == b.as_slice::<f32>()?[right],
        DType::Double => a.as_slice::<f64>()?[left] == b.as_slice::<f64>()?[right],
        DType::String => a.strings()?[left] == b.strings()?[right],
        dtype => {
            let size = dtype.size();
            let scaled = |r: std::ops::Range<usize>| r.start * size..r.end * size;
            a.as_bytes()?[scaled(left)] == b.as_bytes()?[scaled(right)]
        }
    })
}
