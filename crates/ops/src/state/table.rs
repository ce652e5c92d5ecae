//! Lookup tables of all kinds.

use std::ops::Range;

use parking_lot::RwLock;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Resource, Result, Shape, Tensor, bail, ensure};

use super::table_buckets::Buckets;
use super::table_rows::{Duplicates, Keys, Rows};
use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::indices::FirstBad;
use crate::split::for_each_rows;

/// Nanoseconds per lookup.
const FIND_NANOSECONDS: f64 = 40.0;

/// A lookup table: values of one shape for keys of one shape.
pub(super) struct Table {
    pub(super) key_dtype: DType,
    pub(super) value_dtype: DType,
    key_shape: Shape,
    value_shape: Shape,
    content: RwLock<Content>,
}

/// The kinds of table.
pub(super) enum Content {
    /// Initialized once; empty until then.
    Static { rows: Rows, is_initialized: bool },
    /// `MutableHashTable`.
    Mutable(Rows),
    /// `MutableDenseHashTable`.
    Dense(Box<Buckets>),
}

impl Resource for Table {
    fn kind(&self) -> &'static str {
        "LookupTable"
    }
}

impl Table {
    pub(super) fn new(
        key_dtype: DType,
        value_dtype: DType,
        key_shape: Shape,
        value_shape: Shape,
        content: Content,
    ) -> Table {
        Table { key_dtype, value_dtype, key_shape, value_shape, content: RwLock::new(content) }
    }

    pub(super) fn len(&self) -> usize {
        match &*self.content.read() {
            Content::Static { is_initialized: false, .. } => 0,
            Content::Static { rows, .. } | Content::Mutable(rows) => rows.len(),
            Content::Dense(buckets) => buckets.len(),
        }
    }

    /// The number of keys in a tensor of keys, and the shape of the corresponding values.
    fn entries(&self, keys: &Tensor) -> Result<(usize, Shape)> {
        let outer = keys.shape().strip_suffix(self.key_shape.dims());
        let Some(outer) = outer else {
            bail!(
                InvalidArgument,
                "Input key shape {} must end with the table's key shape {}",
                keys.shape(),
                self.key_shape
            );
        };
        let dims: Vec<usize> = outer.iter().chain(self.value_shape.iter()).copied().collect();
        Ok((outer.iter().product(), Shape::new(&dims)?))
    }

    fn check_keys_dtype(&self, keys: &Tensor) -> Result<()> {
        ensure!(
            keys.dtype() == self.key_dtype,
            InvalidArgument,
            "Signature mismatch: the keys are {}, the table's are {}",
            keys.dtype(),
            self.key_dtype
        );
        Ok(())
    }

    fn check_dtypes(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_keys_dtype(keys)?;
        ensure!(
            values.dtype() == self.value_dtype,
            InvalidArgument,
            "Signature mismatch: the values are {}, the table's are {}",
            values.dtype(),
            self.value_dtype
        );
        Ok(())
    }

    /// Checks that the keys for a dense table have the supported rank.
    fn check_dense(&self, keys: &Tensor) -> Result<usize> {
        let n = keys.shape().first().copied().unwrap_or(1);
        let width = self.key_shape.num_elements();
        ensure!(
            n.checked_mul(width) == Some(keys.num_elements()),
            InvalidArgument,
            "Expected key shape [{n}] followed by {}, got {}",
            self.key_shape,
            keys.shape()
        );
        Ok(n)
    }

    /// The values for these keys, with `default` for missing ones.
    pub(super) fn find(
        &self,
        ctx: &KernelContext<'_>,
        keys: &Tensor,
        default: &Tensor,
    ) -> Result<Tensor> {
        self.check_dtypes(keys, default)?;
        let (n, shape) = self.entries(keys)?;
        ensure!(
            *default.shape() == self.value_shape || *default.shape() == shape,
            InvalidArgument,
            "Expected shape {} or {shape} for default value, got {}",
            self.value_shape,
            default.shape()
        );
        let width = self.value_shape.num_elements();
        let mut out = blank(ctx, self.value_dtype, shape)?;
        let content = self.content.read();
        match &*content {
            Content::Static { rows, is_initialized } => {
                ensure!(*is_initialized, FailedPrecondition, "Table not initialized.");
                let keys = Keys::of(keys)?;
                // One default for all, even if its size would match one per key.
                let default = Default { values: default, is_full: false, width };
                gather(ctx, rows.values(), &default, &mut out, |i| rows.find(keys, i))?;
            }
            Content::Mutable(rows) => {
                let keys = Keys::of(keys)?;
                let is_full = default.num_elements() == n.saturating_mul(width);
                let default = Default { values: default, is_full, width };
                gather(ctx, rows.values(), &default, &mut out, |i| rows.find(keys, i))?;
            }
            Content::Dense(buckets) => {
                let n = self.check_dense(keys)?;
                self.check_reserved(ctx, buckets, keys, n)?;
                let default = Default { values: default, is_full: false, width };
                let find = |i| buckets.find(keys, i).ok().flatten();
                gather(ctx, buckets.values(), &default, &mut out, find)?;
            }
        }
        Ok(out)
    }

    fn check_reserved(
        &self,
        ctx: &KernelContext<'_>,
        buckets: &Buckets,
        keys: &Tensor,
        n: usize,
    ) -> Result<()> {
        let bad = FirstBad::new();
        ctx.parallel_for(n, 5.0, |range| {
            if let Some(i) = range.into_iter().find(|&i| buckets.layout.check_key(keys, i).is_err())
            {
                bad.note(i);
            }
        })?;
        bad.get().map_or(Ok(()), |i| buckets.layout.check_key(keys, i))
    }

    fn check_values(&self, keys: &Tensor, values: &Tensor) -> Result<usize> {
        self.check_dtypes(keys, values)?;
        let (n, shape) = self.entries(keys)?;
        ensure!(
            *values.shape() == shape,
            InvalidArgument,
            "Expected shape {shape} for value, got {}",
            values.shape()
        );
        Ok(n)
    }

    /// Inserts or replaces values.
    pub(super) fn insert(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_values(keys, values)?;
        match &mut *self.content.write() {
            Content::Static { .. } => {
                bail!(Unimplemented, "a static hash table does not support insertion")
            }
            Content::Mutable(rows) => rows.insert(keys, values, Duplicates::Replace),
            Content::Dense(buckets) => {
                let n = self.check_dense(keys)?;
                buckets.insert(keys, values, n)
            }
        }
    }

    /// Removes keys; missing keys are ignored.
    pub(super) fn remove(&self, keys: &Tensor) -> Result<()> {
        self.check_keys_dtype(keys)?;
        self.entries(keys)?;
        match &mut *self.content.write() {
            Content::Static { .. } => {
                bail!(Unimplemented, "a static hash table does not support removal")
            }
            Content::Mutable(rows) => rows.remove(keys),
            Content::Dense(buckets) => {
                let n = self.check_dense(keys)?;
                buckets.remove(keys, n)
            }
        }
    }

    /// Replaces the content; initializes a static table.
    pub(super) fn import(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if let Content::Dense(buckets) = &mut *self.content.write() {
            self.check_dtypes(keys, values)?;
            let n = self.check_dense(keys)?;
            let expected = n.checked_mul(self.value_shape.num_elements());
            ensure!(
                expected == Some(values.num_elements()),
                InvalidArgument,
                "{n} buckets of values of shape {} are not {}",
                self.value_shape,
                values.shape()
            );
            return buckets.import(keys, values, n);
        }
        self.check_values(keys, values)?;
        if let Content::Mutable(rows) = &mut *self.content.write() {
            rows.clear()?;
            return rows.insert(keys, values, Duplicates::Replace);
        }
        self.initialize(keys, values)
    }

    /// Whether it is a static table.
    pub(super) fn is_static(&self) -> bool {
        matches!(&*self.content.read(), Content::Static { .. })
    }

    /// Whether it has been initialized.
    pub(super) fn is_initialized(&self) -> bool {
        matches!(&*self.content.read(), Content::Static { is_initialized: true, .. })
    }

    /// Initializes a static table; repeating that is an error only if the sizes differ.
    pub(super) fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let Content::Static { rows, is_initialized } = &mut *self.content.write() else {
            bail!(InvalidArgument, "the table is not initializable");
        };
        if *is_initialized {
            ensure!(
                keys.num_elements() == rows.len(),
                FailedPrecondition,
                "Table was already initialized with different data."
            );
            return Ok(());
        }
        if let Err(e) = rows.insert(keys, values, Duplicates::MustAgree) {
            // A failed attempt leaves no entries.
            rows.clear()?;
            return Err(e);
        }
        *is_initialized = true;
        Ok(())
    }

    /// All keys and values.
    pub(super) fn export(&self, ctx: &KernelContext<'_>) -> Result<(Tensor, Tensor)> {
        match &*self.content.read() {
            Content::Static { is_initialized: false, .. } => {
                bail!(Aborted, "HashTable is not initialized.")
            }
            Content::Static { rows, .. } | Content::Mutable(rows) => {
                rows.export(ctx.budget(), &self.value_shape)
            }
            Content::Dense(buckets) => buckets.export(ctx.budget()),
        }
    }
}

/// The default value: one row for all keys, or one for each.
struct Default<'a> {
    values: &'a Tensor,
    is_full: bool,
    width: usize,
}

impl Default<'_> {
    fn row(&self, i: usize) -> Range<usize> {
        let start = if self.is_full { i * self.width } else { 0 };
        start..start + self.width
    }
}

/// Fills `out` with the rows of `values` that `find` returns.
fn gather(
    ctx: &KernelContext<'_>,
    values: &Tensor,
    default: &Default<'_>,
    out: &mut Tensor,
    find: impl Fn(usize) -> Option<usize> + Sync,
) -> Result<()> {
    let width = default.width;
    with_cell!(values.dtype(), C => {
        let (values, missing) = (C::view(values)?, C::view(default.values)?);
        let cost = FIND_NANOSECONDS + nanoseconds_per_cell::<C>() * width as f64;
        for_each_rows(ctx, C::view_mut(out)?, width, cost, |first, part| {
            for (i, target) in part.chunks_exact_mut(width).enumerate() {
                match find(first + i) {
                    Some(row) => target.clone_from_slice(&values[row * width..(row + 1) * width]),
                    None => target.clone_from_slice(&missing[default.row(first + i)]),
                }
            }
        })
    })
}
