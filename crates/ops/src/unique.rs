//! `Unique` and `ListDiff`, by hashing.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, err, f16,
};

use crate::cells::{Bits, Cell};
use crate::gather::gather;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("Unique", unique_shape).with_work(Work::serial::<15>),
        OpDef::new("UniqueV2", unique_v2_shape).with_work(Work::serial::<15>),
        OpDef::new("UniqueWithCounts", unique_shape).with_work(Work::serial::<15>),
        OpDef::new("UniqueWithCountsV2", unique_v2_shape).with_work(Work::serial::<15>),
        OpDef::new("ListDiff", list_diff_shape).with_work(Work::serial::<15>),
    ],
    kernels: &[
        KernelSpec { op: "Unique", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "UniqueV2", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "UniqueWithCounts", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "UniqueWithCountsV2", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "ListDiff", create: list_diff, ..KernelSpec::CPU },
    ],
};

fn unique_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, "x", 1)?;
    c.set_output(0, PartialShape::of_rank(1));
    c.set_output(1, shape);
    c.set_output(2, PartialShape::of_rank(1));
    Ok(())
}

fn unique_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(1, PartialShape::of_rank(1));
    c.set_output(2, PartialShape::of_rank(1));
    let (Some(dims), Some(axis)) = (c.input(0).dims(), c.partial_value(1)) else { return Ok(()) };
    let Some(axis) = axis.known() else { return Ok(()) };
    let axis = unique_axis(&axis, dims.len())?;
    let mut result: SmallVec<[Option<usize>; 4]> = dims.into();
    result[axis] = None;
    c.set_output(0, PartialShape::new(result));
    c.set_output(1, PartialShape::new([dims[axis]]));
    Ok(())
}

/// The axis in a vector of at most one element; an empty vector means the only axis.
fn unique_axis(axis: &[i64], rank: usize) -> Result<usize> {
    match axis {
        [] => {
            ensure!(rank == 1, InvalidArgument, "unique expects a 1D vector.");
            Ok(0)
        }
        [axis] => {
            let from_end = if *axis < 0 { axis.wrapping_add(rank as i64) } else { *axis };
            usize::try_from(from_end)
                .ok()
                .filter(|&a| a < rank)
                .ok_or_else(|| err!(InvalidArgument, "axis has to be between [0, {rank})"))
        }
        _ => bail!(InvalidArgument, "axis does not support input tensors larger than 1 elements"),
    }
}

/// Element types that can be hashed.
trait Key: PartialEq + Send + Sync {
    /// Mixes the element at `position` into `hash`. Equal elements give equal hashes.
    fn mix(&self, hash: u64, position: usize) -> u64;
}

/// One step of a hash: a product in which every bit of the operands affects the result.
fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0xF39C_C060_5CED_C835;
    (product as u64 ^ (product >> 64) as u64).rotate_left(23)
}

impl<const N: usize> Key for Bits<N> {
    fn mix(&self, hash: u64, _: usize) -> u64 {
        mix_bytes(self.bytes(), hash)
    }
}

fn mix_bytes(bytes: &[u8], mut hash: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash, u64::from_le_bytes(last))
}

impl Key for Bytes {
    fn mix(&self, hash: u64, _: usize) -> u64 {
        fold(mix_bytes(self, hash), self.len() as u64)
    }
}

macro_rules! float_keys {
    ($($t:ty),+) => { $(
        impl Key for $t {
            fn mix(&self, hash: u64, position: usize) -> u64 {
                let x = f64::from(*self);
                if x.is_nan() {
                    // NaN equals nothing, so the position is hashed, to avoid collisions of many
                    // NaN.
                    fold(hash, position as u64)
                } else {
                    // Adding zero makes -0.0 and 0.0 equal.
                    fold(hash, (x + 0.0).to_bits())
                }
            }
        }
    )+ };
}

float_keys!(f16, bf16, f32, f64);

/// Elements as `[outer, rows, inner]`; a row consists of all elements with its index.
struct Rows<'a, K> {
    elements: &'a [K],
    rows: usize,
    inner: usize,
    /// A random hash seed, so that clients cannot construct collisions.
    seed: u64,
}

impl<K: Key> Rows<'_, K> {
    fn positions(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let block = (self.rows * self.inner).max(1);
        (0..self.elements.len() / block)
            .flat_map(move |o| (0..self.inner).map(move |i| o * block + row * self.inner + i))
    }

    fn hash(&self, row: usize) -> u64 {
        if self.elements.len() == self.rows {
            return self.elements[row].mix(self.seed, row);
        }
        self.positions(row).fold(self.seed, |hash, p| self.elements[p].mix(hash, p))
    }

    fn equal(&self, a: usize, b: usize) -> bool {
        if self.elements.len() == self.rows {
            return self.elements[a] == self.elements[b];
        }
        self.positions(a).zip(self.positions(b)).all(|(a, b)| self.elements[a] == self.elements[b])
    }
}

/// A hash table of row indices with open addressing, at most half full.
struct Table {
    slots: Tensor,
}

const FREE: i64 = -1;

impl Table {
    fn new(ctx: &KernelContext<'_>, rows: usize) -> Result<Table> {
        let size = rows.checked_mul(2).and_then(usize::checked_next_power_of_two).unwrap_or(0);
        let mut slots = ctx.allocate(DType::Int64, Shape::new(&[size.max(2)])?)?;
        slots.as_mut_slice::<i64>()?.fill(FREE);
        Ok(Table { slots })
    }

    /// The slot of the entry for which `is_same` holds, or the free slot to insert it.
    fn find(&mut self, hash: u64, is_same: impl Fn(i64) -> bool) -> Result<&mut i64> {
        let slots = self.slots.as_mut_slice::<i64>()?;
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        while slots[at] != FREE && !is_same(slots[at]) {
            at = (at + 1) & mask;
        }
        Ok(&mut slots[at])
    }
}

/// The distinct rows of a tensor.
struct Distinct {
    /// For each distinct row, the index of its first occurrence.
    firsts: Tensor,
    /// Number of distinct rows.
    count: usize,
}

/// Numbers the distinct rows in the order of their first occurrence; `number` receives the number
/// of each row.
fn number_rows<K: Key>(
    ctx: &KernelContext<'_>,
    rows: &Rows<'_, K>,
    mut number: impl FnMut(usize, usize),
) -> Result<Distinct> {
    let mut firsts = ctx.allocate(DType::Int64, Shape::new(&[rows.rows])?)?;
    let first = firsts.as_mut_slice::<i64>()?;
    let mut table = Table::new(ctx, rows.rows)?;
    let mut count = 0;
    for row in 0..rows.rows {
        if row.is_multiple_of(1 << 16) {
            ctx.check_cancelled()?;
        }
        let slot = table.find(rows.hash(row), |n| rows.equal(first[n as usize] as usize, row))?;
        if *slot == FREE {
            *slot = count as i64;
            first[count] = row as i64;
            count += 1;
        }
        number(row, *slot as usize);
    }
    Ok(Distinct { firsts, count })
}

/// `with_key!(dtype, K => expression)` evaluates the expression with `K` as the key of `dtype` and
/// `view` as the function that returns a tensor's keys.
macro_rules! with_key {
    ($dtype:expr, $view:ident => $body:expr) => {
        match $dtype {
            DType::Float => {
                let $view = Tensor::as_slice::<f32>;
                $body
            }
            DType::Double => {
                let $view = Tensor::as_slice::<f64>;
                $body
            }
            DType::Half => {
                let $view = Tensor::as_slice::<f16>;
                $body
            }
            DType::BFloat16 => {
                let $view = Tensor::as_slice::<bf16>;
                $body
            }
            DType::String => {
                let $view = Tensor::strings;
                $body
            }
            other => match other.size() {
                1 => {
                    let $view = Bits::<1>::view;
                    $body
                }
                2 => {
                    let $view = Bits::<2>::view;
                    $body
                }
                4 => {
                    let $view = Bits::<4>::view;
                    $body
                }
                8 if !other.is_complex() => {
                    let $view = Bits::<8>::view;
                    $body
                }
                _ => bail!(Unimplemented, "Unique does not support dtype {other}"),
            },
        }
    };
}

fn unique(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let has_axis = init.node.inputs.len() == 2;
    let has_counts = init.node.outputs.len() == 3;
    let out_idx = init.attrs().dtype("out_idx")?;
    let seed = init.environment.entropy.next_u64();
    AnyKernel::new(move |ctx| {
        let x = ctx.input(0)?;
        let axis = if has_axis {
            ensure!(ctx.input(1)?.rank() == 1, InvalidArgument, "axis expects a 1D vector.");
            unique_axis(&ctx.ints(1, "axis")?, x.rank())?
        } else {
            unique_axis(&[], x.rank())?
        };
        let rows = x.shape()[axis];
        ensure!(
            rows <= i32::MAX as usize || out_idx == DType::Int64,
            InvalidArgument,
            "unique does not support input tensors larger than {} elements",
            i32::MAX
        );
        let inner = x.shape()[axis + 1..].iter().product();
        let mut idx = Counters::new(ctx, out_idx, rows)?;
        let found = with_key!(x.dtype(), view => {
            let rows = Rows { elements: view(x)?, rows, inner, seed };
            number_rows(ctx, &rows, |row, number| idx.set(row, number))?
        });
        let y = gather(ctx, x, &found.firsts.rows(0, found.count, None)?, axis as i64, 0)?;
        if has_counts {
            let mut counts = Counters::new(ctx, out_idx, found.count)?;
            (0..rows).for_each(|row| counts.increment(idx.get(row)));
            ctx.set_output(2, counts.tensor)?;
        }
        ctx.set_output(0, y)?;
        ctx.set_output(1, idx.tensor)
    })
}

/// A vector of int32 or int64, initialized to zero.
struct Counters {
    tensor: Tensor,
}

impl Counters {
    fn new(ctx: &KernelContext<'_>, dtype: DType, len: usize) -> Result<Counters> {
        Ok(Counters { tensor: ctx.zeros(dtype, Shape::new(&[len])?)? })
    }

    fn change(&mut self, i: usize, small: impl Fn(&mut i32), large: impl Fn(&mut i64)) {
        if let Ok(values) = self.tensor.as_mut_slice::<i32>() {
            small(&mut values[i]);
        } else if let Ok(values) = self.tensor.as_mut_slice::<i64>() {
            large(&mut values[i]);
        }
    }

    fn set(&mut self, i: usize, value: usize) {
        self.change(i, |x| *x = value as i32, |x| *x = value as i64);
    }

    fn increment(&mut self, i: usize) {
        self.change(i, |x| *x += 1, |x| *x += 1);
    }

    fn get(&self, i: usize) -> usize {
        match self.tensor.as_slice::<i32>() {
            Ok(values) => values[i] as usize,
            Err(_) => self.tensor.as_slice::<i64>().map_or(0, |values| values[i] as usize),
        }
    }
}

fn list_diff_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "x", 1)?;
    c.with_rank(1, "y", 1)?;
    c.set_output(0, PartialShape::of_rank(1));
    c.set_output(1, PartialShape::of_rank(1));
    Ok(())
}

/// The elements of `x` that are not in `y`, and their indices.
fn list_diff(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let out_idx = init.attrs().dtype("out_idx")?;
    let seed = init.environment.entropy.next_u64();
    AnyKernel::new(move |ctx| {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        for (name, tensor) in [("x", x), ("y", y)] {
            ensure!(tensor.rank() == 1, InvalidArgument, "{name} should be a 1D vector.");
        }
        let (left, count) = with_key!(x.dtype(), view => {
            difference(ctx, view(x)?, view(y)?, seed)?
        });
        ensure!(
            x.num_elements() <= i32::MAX as usize || out_idx == DType::Int64,
            InvalidArgument,
            "x has {} elements, too many for 32-bit indices",
            x.num_elements()
        );
        let left = left.rows(0, count, None)?;
        let out = gather(ctx, x, &left, 0, 0)?;
        let idx = match out_idx {
            DType::Int64 => left,
            _ => {
                let mut idx = ctx.allocate(DType::Int32, left.shape().clone())?;
                let from = left.as_slice::<i64>()?;
                idx.as_mut_slice::<i32>()?.iter_mut().zip(from).for_each(|(t, &i)| *t = i as i32);
                idx
            }
        };
        ctx.set_output(0, out)?;
        ctx.set_output(1, idx)
    })
}

fn difference<K: Key>(
    ctx: &KernelContext<'_>,
    x: &[K],
    y: &[K],
    seed: u64,
) -> Result<(Tensor, usize)> {
    let mut table = Table::new(ctx, y.len())?;
    for (i, key) in y.iter().enumerate() {
        let slot = table.find(key.mix(seed, i), |n| y[n as usize] == *key)?;
        *slot = i as i64;
    }
    let mut left = ctx.allocate(DType::Int64, Shape::new(&[x.len()])?)?;
    let positions = left.as_mut_slice::<i64>()?;
    let mut count = 0;
    for (i, key) in x.iter().enumerate() {
        if *table.find(key.mix(seed, i), |n| y[n as usize] == *key)? == FREE {
            positions[count] = i as i64;
            count += 1;
        }
    }
    Ok((left, count))
}
