//! `MutableDenseHashTable`: open addressing in two tensors, with reserved keys for "empty" and
//! "deleted".
//!
//! Exports and checkpoints contain the buckets, so hash function, probing and growth are
//! TensorFlow's.

use std::sync::Arc;

use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, bail, ensure};

use super::ledger::Ledger;
use super::table_rows::{Keys, copy_row, text_bytes};
use crate::cells::Cell;
use crate::strings::hash::hash64;

/// Minimum number of buckets of a new table.
const BUCKETS_MIN: i64 = 4;

/// Attrs of a dense table.
pub(super) struct Layout {
    /// Reserved keys that mark a free bucket and a bucket with a removed entry.
    pub(super) empty_key: Tensor,
    pub(super) deleted_key: Tensor,
    pub(super) value_dtype: DType,
    /// Elements per key and per value.
    pub(super) key_width: usize,
    pub(super) value_width: usize,
    pub(super) max_load_factor: f32,
    pub(super) initial_buckets: i64,
}

impl Layout {
    pub(super) fn check(&self) -> Result<()> {
        let shape = self.empty_key.shape();
        ensure!(
            shape.rank() <= 1,
            InvalidArgument,
            "Empty key must be a scalar or a vector, got shape {shape}"
        );
        let deleted = &self.deleted_key;
        ensure!(
            deleted.shape() == shape,
            InvalidArgument,
            "Empty and deleted keys must have same shape, got shapes: {shape} and {}",
            deleted.shape()
        );
        ensure!(
            !self.is_key(&self.empty_key, 0, deleted, 0)?,
            InvalidArgument,
            "Empty and deleted keys cannot be equal"
        );
        let buckets = self.initial_buckets;
        ensure!(
            buckets >= BUCKETS_MIN && buckets.cast_unsigned().is_power_of_two(),
            InvalidArgument,
            "Number of buckets must be at least 4 and a power of 2, got: {buckets}"
        );
        ensure!(
            self.max_load_factor > 0.0 && self.max_load_factor < 1.0,
            InvalidArgument,
            "max_load_factor must be between 0 and 1, got: {}",
            self.max_load_factor
        );
        Ok(())
    }

    /// Whether key `i` of `a` is key `j` of `b`.
    fn is_key(&self, a: &Tensor, i: usize, b: &Tensor, j: usize) -> Result<bool> {
        let width = self.key_width;
        let (left, right) = (i * width..(i + 1) * width, j * width..(j + 1) * width);
        Ok(match (Keys::of(a)?, Keys::of(b)?) {
            (Keys::Int32(a), Keys::Int32(b)) => a[left] == b[right],
            (Keys::Int64(a), Keys::Int64(b)) => a[left] == b[right],
            (Keys::Strings(a), Keys::Strings(b)) => a[left] == b[right],
            _ => bail!(InvalidArgument, "{} keys are not {} keys", a.dtype(), b.dtype()),
        })
    }

    fn is_empty(&self, keys: &Tensor, i: usize) -> Result<bool> {
        self.is_key(keys, i, &self.empty_key, 0)
    }

    fn is_deleted(&self, keys: &Tensor, i: usize) -> Result<bool> {
        self.is_key(keys, i, &self.deleted_key, 0)
    }

    /// Rejects reserved keys.
    pub(super) fn check_key(&self, keys: &Tensor, i: usize) -> Result<()> {
        ensure!(
            !self.is_empty(keys, i)?,
            InvalidArgument,
            "Using the empty_key as a table key is not allowed"
        );
        ensure!(
            !self.is_deleted(keys, i)?,
            InvalidArgument,
            "Using the deleted_key as a table key is not allowed"
        );
        Ok(())
    }

    fn check_keys(&self, keys: &Tensor, n: usize) -> Result<()> {
        (0..n).try_for_each(|i| self.check_key(keys, i))
    }

    fn hash(&self, keys: Keys<'_>, i: usize) -> u64 {
        let at = |j: usize| match keys {
            Keys::Int32(keys) => i64::from(keys[j]).cast_unsigned(),
            Keys::Int64(keys) => keys[j].cast_unsigned(),
            Keys::Strings(keys) => hash64(&keys[j]),
        };
        if self.key_width == 1 {
            return at(i);
        }
        (i * self.key_width..(i + 1) * self.key_width).fold(0, |hash: u64, j| {
            let mixed = at(j).wrapping_add(0x9e37_79b9_7f4a_7800);
            hash ^ mixed.wrapping_add(hash << 10).wrapping_add(hash >> 4)
        })
    }
}

/// The buckets.
pub(super) struct Buckets {
    pub(super) layout: Layout,
    keys: Tensor,
    values: Tensor,
    count: usize,
    entries: usize,
    /// Number of buckets with removed entries.
    removed: usize,
    ledger: Ledger,
}

/// Result of probing: the bucket with the key, or the bucket to insert it.
enum Slot {
    Found(usize),
    Free(usize),
    Nowhere,
}

impl Buckets {
    pub(super) fn new(layout: Layout, ledger: Ledger) -> Result<Buckets> {
        layout.check()?;
        let count = usize::try_from(layout.initial_buckets).unwrap_or(usize::MAX);
        let (keys, values) = empty_buckets(&layout, count, ledger.budget())?;
        Ok(Buckets { layout, keys, values, count, entries: 0, removed: 0, ledger })
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// The values by bucket.
    pub(super) fn values(&self) -> &Tensor {
        &self.values
    }

    /// The bucket of key `i`.
    pub(super) fn find(&self, keys: &Tensor, i: usize) -> Result<Option<usize>> {
        Ok(match self.slot(keys, i)? {
            Slot::Found(bucket) => Some(bucket),
            _ => None,
        })
    }

    fn slot(&self, keys: &Tensor, i: usize) -> Result<Slot> {
        if self.count == 0 {
            return Ok(Slot::Nowhere);
        }
        let mask = self.count - 1;
        let mut bucket = self.layout.hash(Keys::of(keys)?, i) as usize & mask;
        let mut free = None;
        for probe in 1..=self.count {
            if self.layout.is_key(&self.keys, bucket, keys, i)? {
                return Ok(Slot::Found(bucket));
            }
            if self.layout.is_empty(&self.keys, bucket)? {
                return Ok(Slot::Free(free.unwrap_or(bucket)));
            }
            // The key may still follow; otherwise this bucket is reused.
            if free.is_none() && self.layout.is_deleted(&self.keys, bucket)? {
                free = Some(bucket);
            }
            bucket = (bucket + probe) & mask;
        }
        Ok(free.map_or(Slot::Nowhere, Slot::Free))
    }

    /// Inserts a row of `values` for each of `n` keys.
    pub(super) fn insert(&mut self, keys: &Tensor, values: &Tensor, n: usize) -> Result<()> {
        self.layout.check_keys(keys, n)?;
        self.reserve(n)?;
        for i in 0..n {
            let texts = self.key_texts(keys, i);
            self.put(keys, values, i, texts)?;
        }
        Ok(())
    }

    /// Total length of the strings in key `i`.
    fn key_texts(&self, keys: &Tensor, i: usize) -> usize {
        let width = self.layout.key_width;
        text_bytes(keys, i * width..(i + 1) * width)
    }

    /// Inserts row `i`; a new key is charged for `bytes`.
    fn put(&mut self, keys: &Tensor, values: &Tensor, i: usize, bytes: usize) -> Result<()> {
        let bucket = match self.slot(keys, i)? {
            Slot::Found(bucket) => bucket,
            Slot::Free(bucket) => {
                self.ledger.take(bytes)?;
                if self.layout.is_deleted(&self.keys, bucket)? {
                    self.removed -= 1;
                }
                copy_row(keys, i, &mut self.keys, bucket, self.layout.key_width)?;
                self.entries += 1;
                bucket
            }
            Slot::Nowhere => bail!(Internal, "a dense table has no free bucket left"),
        };
        copy_row(values, i, &mut self.values, bucket, self.layout.value_width)
    }

    /// Reserves buckets for `n` new entries, whether or not their keys exist already.
    fn reserve(&mut self, n: usize) -> Result<()> {
        let pending = self.entries + n;
        let load = self.layout.max_load_factor;
        let is_full = |count: usize| pending as f32 > count as f32 * load;
        let mut count = self.count.max(1);
        while is_full(count) {
            let Some(more) = count.checked_mul(2) else {
                bail!(ResourceExhausted, "a table of {pending} entries is too large")
            };
            count = more;
        }
        // Many buckets of removed entries make probe sequences long, so the table is rehashed.
        let is_worn = self.removed > 0 && pending + self.removed >= count;
        if count != self.count || is_worn { self.rebucket(count) } else { Ok(()) }
    }

    fn rebucket(&mut self, count: usize) -> Result<()> {
        let (keys, values) = empty_buckets(&self.layout, count, self.ledger.budget())?;
        let keys = std::mem::replace(&mut self.keys, keys);
        let values = std::mem::replace(&mut self.values, values);
        let before = std::mem::replace(&mut self.count, count);
        (self.entries, self.removed) = (0, 0);
        for bucket in 0..before {
            if !self.layout.is_empty(&keys, bucket)? && !self.layout.is_deleted(&keys, bucket)? {
                self.put(&keys, &values, bucket, 0)?;
            }
        }
        Ok(())
    }

    /// Removes these keys.
    pub(super) fn remove(&mut self, keys: &Tensor, n: usize) -> Result<()> {
        self.layout.check_keys(keys, n)?;
        let deleted = self.layout.deleted_key.clone();
        for i in 0..n {
            if let Slot::Found(bucket) = self.slot(keys, i)? {
                self.ledger.give(self.key_texts(keys, i));
                copy_row(&deleted, 0, &mut self.keys, bucket, self.layout.key_width)?;
                self.entries -= 1;
                self.removed += 1;
            }
        }
        Ok(())
    }

    /// A copy of the buckets.
    pub(super) fn export(&self, budget: &Arc<Budget>) -> Result<(Tensor, Tensor)> {
        Ok((self.keys.deep_copy(Some(budget))?, self.values.deep_copy(Some(budget))?))
    }

    /// Replaces the content by exported buckets.
    pub(super) fn import(&mut self, keys: &Tensor, values: &Tensor, n: usize) -> Result<()> {
        let (key_width, value_width) = (self.layout.key_width, self.layout.value_width);
        let budget = self.ledger.budget().clone();
        let own = |tensor: &Tensor, width: usize| -> Result<Tensor> {
            tensor.deep_copy(Some(&budget))?.reshaped(Shape::new(&[n, width])?)
        };
        let (keys, values) = (own(keys, key_width)?, own(values, value_width)?);
        if !n.is_power_of_two() {
            // The entries do not form a valid bucket array, so they are inserted one by one.
            let (fresh, blank) = empty_buckets(&self.layout, n.next_power_of_two(), &budget)?;
            (self.keys, self.values) = (fresh, blank);
            self.count = n.next_power_of_two();
            (self.entries, self.removed) = (0, 0);
            self.ledger.clear();
            let mut live = 0..n;
            return live.try_for_each(|i| {
                if self.layout.is_empty(&keys, i)? || self.layout.is_deleted(&keys, i)? {
                    return Ok(());
                }
                self.reserve(1)?;
                self.put(&keys, &values, i, self.key_texts(&keys, i))
            });
        }
        let (mut entries, mut removed) = (0, 0);
        for i in 0..n {
            if self.layout.is_deleted(&keys, i)? {
                removed += 1;
            } else if !self.layout.is_empty(&keys, i)? {
                entries += 1;
            }
        }
        self.ledger.clear();
        self.ledger.take(text_bytes(&keys, 0..n * key_width))?;
        (self.keys, self.values, self.count) = (keys, values, n);
        (self.entries, self.removed) = (entries, removed);
        Ok(())
    }
}

/// A bucket array without entries.
fn empty_buckets(layout: &Layout, count: usize, budget: &Arc<Budget>) -> Result<(Tensor, Tensor)> {
    let shape = |width: usize| Shape::new(&[count, width]);
    let key_dtype = layout.empty_key.dtype();
    let mut keys = Tensor::blank_in(key_dtype, shape(layout.key_width)?, Some(budget))?;
    with_cell!(key_dtype, C => {
        let empty = C::view(&layout.empty_key)?;
        if layout.key_width > 0 {
            for row in C::view_mut(&mut keys)?.chunks_exact_mut(layout.key_width) {
                row.clone_from_slice(empty);
            }
        }
    });
    let dtype = layout.value_dtype;
    let values = if dtype == DType::Resource {
        Tensor::blank_in(dtype, shape(layout.value_width)?, Some(budget))?
    } else {
        Tensor::zeros_in(dtype, shape(layout.value_width)?, Some(budget))?
    };
    Ok((keys, values))
}
