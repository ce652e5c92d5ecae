//! `SpaceToBatch`, `BatchToSpace` and their N-D forms.

use smallvec::SmallVec;
use thalweg_graph::{Gradient, GradientContext, OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::strided::{Dim, StridedCopy, strides};

pub(crate) static FAMILY: Family = Family {
    ops: &[SPACE_TO_BATCH, SPACE_TO_BATCH_ND, BATCH_TO_SPACE, BATCH_TO_SPACE_ND],
    kernels: &[
        kernel("SpaceToBatch", space_to_batch, &["paddings"]),
        kernel("SpaceToBatchND", space_to_batch, &["block_shape", "paddings"]),
        kernel("BatchToSpace", batch_to_space, &["crops"]),
        kernel("BatchToSpaceND", batch_to_space, &["block_shape", "crops"]),
        KernelSpec::lowering("SpaceToBatch", lower_to_batch).with_host_inputs(&["paddings"]),
        KernelSpec::lowering("SpaceToBatchND", lower_to_batch)
            .with_host_inputs(&["block_shape", "paddings"]),
        KernelSpec::lowering("BatchToSpace", lower_to_space).with_host_inputs(&["crops"]),
        KernelSpec::lowering("BatchToSpaceND", lower_to_space)
            .with_host_inputs(&["block_shape", "crops"]),
    ],
};

const fn kernel(
    op: &'static str,
    create: fn(&KernelInit<'_>) -> Result<AnyKernel>,
    host_inputs: &'static [&'static str],
) -> KernelSpec {
    KernelSpec { op, create, host_inputs, constraints: &[("T", REAL)], ..KernelSpec::CPU }
}

/// Dtypes of TensorFlow's kernels.
const REAL: &[DType] = &[
    DType::Double,
    DType::Float,
    DType::BFloat16,
    DType::Half,
    DType::Int32,
    DType::Int8,
    DType::UInt8,
    DType::Int16,
    DType::UInt16,
    DType::UInt32,
    DType::Int64,
    DType::UInt64,
];

const SPACE_TO_BATCH: OpDef = OpDef::new("SpaceToBatch", space_to_batch_shape)
    .with_work(Work::moves)
    .with_gradient(|g| by_inverse(g, "BatchToSpace"));

/// The gradient is the inverse op, with padding and crops exchanged.
fn by_inverse(g: &mut GradientContext<'_>, inverse: &str) -> Result<()> {
    let mut inputs: SmallVec<[_; 3]> = g.inputs().iter().copied().collect();
    inputs[0] = g.grad(0)?;
    let moved = g.op_like(inverse, &["block_size"]).inputs(&inputs).build()?;
    g.set(0, moved)
}

const SPACE_TO_BATCH_ND: OpDef = OpDef {
    name: "SpaceToBatchND",
    gradient: Gradient::By(|g| by_inverse(g, "BatchToSpaceND")),
    ..SPACE_TO_BATCH
};

const BATCH_TO_SPACE: OpDef = OpDef {
    name: "BatchToSpace",
    shape: batch_to_space_shape,
    gradient: Gradient::By(|g| by_inverse(g, "SpaceToBatch")),
    ..SPACE_TO_BATCH
};

const BATCH_TO_SPACE_ND: OpDef = OpDef {
    name: "BatchToSpaceND",
    gradient: Gradient::By(|g| by_inverse(g, "SpaceToBatchND")),
    ..BATCH_TO_SPACE
};

/// A size that may be unknown.
type MaybeSize = Option<i64>;

fn space_to_batch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    infer(c, "paddings", |size, block, [before, after]| {
        let padded = sum(size, before, after)?;
        ensure!(
            padded % block == 0,
            InvalidArgument,
            "padded size {padded} is not divisible by block size {block}"
        );
        Ok(padded / block)
    })
}

fn batch_to_space_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    infer(c, "crops", |size, block, [before, after]| {
        let whole = size.checked_mul(block).ok_or_else(too_large)?;
        let left = whole.checked_sub(sum(0, before, after)?).filter(|&left| left >= 0);
        left.ok_or_else(|| {
            err!(InvalidArgument, "cropping {before} and {after} of {whole} leaves nothing")
        })
    })
}

fn sum(a: i64, b: i64, c: i64) -> Result<i64> {
    a.checked_add(b).and_then(|sum| sum.checked_add(c)).ok_or_else(too_large)
}

fn too_large() -> thalweg_tensor::Error {
    err!(InvalidArgument, "the sizes of blocks and borders are too large")
}

/// Infers the shape; `resize` computes one spatial dimension.
fn infer(
    c: &mut ShapeContext<'_>,
    borders_name: &str,
    resize: impl Fn(i64, i64, [i64; 2]) -> Result<i64>,
) -> Result<()> {
    let has_block_shape = c.num_inputs() == 3;
    let to_batch = borders_name == "paddings";
    let (spatial, blocks): (Option<usize>, SmallVec<[MaybeSize; 4]>) = if has_block_shape {
        let shape = c.with_rank(1, "block_shape", 1)?;
        let known = c.partial_value(1).map(|value| value.elements);
        let blocks = known.map(|k| k.iter().copied().collect()).unwrap_or_default();
        (shape.dim(0), blocks)
    } else {
        c.with_rank(0, "input", 4)?;
        let size = Some(c.attrs().int("block_size")?);
        (Some(2), SmallVec::from_slice(&[size, size]))
    };
    let last = c.num_inputs() - 1;
    let borders = c.with_rank(last, borders_name, 2)?;
    let expected = PartialShape::new([spatial, Some(2)]);
    borders.merge(&expected)?;
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let Some(spatial) = spatial else {
        c.set_output(0, PartialShape::of_rank(dims.len()));
        return Ok(());
    };
    ensure!(
        dims.len() > spatial,
        InvalidArgument,
        "input rank should be >= {} instead of {}",
        spatial + 1,
        dims.len()
    );
    let borders = c.constant(last).map(|t| int_elements(&t)).transpose()?;
    let block = |i: usize| blocks.get(i).copied().flatten();
    let mut out: SmallVec<[Option<usize>; 5]> = dims.iter().copied().collect();
    let mut batch = dims[0].map(|d| d as i64);
    for i in 0..spatial {
        let Some(size) = block(i) else {
            batch = None;
            out[i + 1] = None;
            continue;
        };
        ensure!(size >= 1, InvalidArgument, "block_shape must be positive, got {size}");
        batch = batch.map(|b| resize_batch(b, size, to_batch)).transpose()?;
        out[i + 1] = match (dims[i + 1], &borders) {
            (Some(d), Some(borders)) => {
                let border = [borders[2 * i], borders[2 * i + 1]];
                ensure!(
                    border.iter().all(|&b| b >= 0),
                    InvalidArgument,
                    "{borders_name} cannot be negative, got {border:?}"
                );
                Some(resize(d as i64, size, border)? as usize)
            }
            _ => None,
        };
    }
    out[0] = batch.map(|b| b as usize);
    c.set_output(0, PartialShape::new(out));
    Ok(())
}

fn resize_batch(batch: i64, block: i64, to_batch: bool) -> Result<i64> {
    if to_batch {
        return batch.checked_mul(block).ok_or_else(too_large);
    }
    ensure!(
        batch % block == 0,
        InvalidArgument,
        "Input batch dimension is not divisible by product of block sizes"
    );
    Ok(batch / block)
}

fn int_elements(tensor: &Tensor) -> Result<SmallVec<[i64; 8]>> {
    let indices = crate::indices::Indices::of(tensor)?;
    Ok((0..tensor.num_elements()).map(|i| indices.at(i)).collect())
}

/// Correspondence of blocks between the spatial and the batched tensor.
struct Blocks {
    /// Block sizes.
    sizes: SmallVec<[usize; 4]>,
    /// Padding or crops of the spatial dimensions: before and after.
    borders: SmallVec<[[usize; 2]; 4]>,
    /// Product of the block sizes.
    count: usize,
}

/// Maximum block dimensions of TensorFlow's kernels, not counting those of size 1 without padding.
const BLOCK_DIMS_MAX: usize = 4;

impl Blocks {
    /// Blocks from the inputs after the first, or from the attr `block_size` of the 2-D ops.
    fn new(ctx: &KernelContext<'_>, block_size: Option<i64>, borders_name: &str) -> Result<Blocks> {
        let rank = ctx.input(0)?.rank();
        let sizes: SmallVec<[i64; 4]> = match block_size {
            Some(size) => {
                ensure!(rank == 4, InvalidArgument, "Input rank should be: 4 instead of: {rank}");
                SmallVec::from_slice(&[size, size])
            }
            None => {
                let shape = ctx.input(1)?.shape();
                ensure!(
                    shape.rank() == 1,
                    InvalidArgument,
                    "block_shape rank should be 1 instead of {}",
                    shape.rank()
                );
                ctx.ints(1, "block_shape")?
            }
        };
        ensure!(
            rank > sizes.len(),
            InvalidArgument,
            "input rank should be >= {} instead of {rank}",
            sizes.len() + 1
        );
        let last = ctx.num_inputs() - 1;
        let shape = ctx.input(last)?.shape();
        ensure!(
            shape.dims() == [sizes.len(), 2],
            InvalidArgument,
            "{borders_name} should have shape [{}, 2] instead of {shape}",
            sizes.len()
        );
        Self::checked(&sizes, &ctx.ints(last, borders_name)?, borders_name)
    }

    fn checked(sizes: &[i64], borders: &[i64], borders_name: &str) -> Result<Blocks> {
        let mut blocks = Blocks { sizes: SmallVec::new(), borders: SmallVec::new(), count: 1 };
        for (i, &size) in sizes.iter().enumerate() {
            ensure!(
                size >= 1,
                InvalidArgument,
                "All values in block_shape must be positive, got value, {size} at index {i}."
            );
            blocks.sizes.push(size as usize);
            let count = blocks.count.checked_mul(size as usize);
            blocks.count = count.filter(|&c| c <= i64::MAX as usize).ok_or_else(too_large)?;
        }
        for border in borders.chunks_exact(2) {
            ensure!(
                border.iter().all(|&b| (0..=i64::from(i32::MAX)).contains(&b)),
                InvalidArgument,
                "{borders_name} must be non-negative and fit 32 bits, got {border:?}"
            );
            blocks.borders.push([border[0] as usize, border[1] as usize]);
        }
        let is_plain = |(&size, border): (&usize, &[usize; 2])| size == 1 && *border == [0, 0];
        let kept: SmallVec<[bool; 4]> =
            blocks.sizes.iter().zip(&blocks.borders).map(|pair| !is_plain(pair)).collect();
        let first = kept.iter().position(|&k| k);
        let last = kept.iter().rposition(|&k| k);
        let dims = first.zip(last).map_or(0, |(first, last)| last + 1 - first);
        ensure!(
            dims <= BLOCK_DIMS_MAX,
            InvalidArgument,
            "Maximum number of non-combined block dimensions is {dims} but must not exceed {BLOCK_DIMS_MAX}"
        );
        Ok(blocks)
    }

    /// Copies every block from `source` to `target`; `is_to_batch` says which of the two has the
    /// blocks in its batch.
    fn copy(
        &self,
        ctx: &KernelContext<'_>,
        source: &Tensor,
        target: &mut Tensor,
        is_to_batch: bool,
    ) -> Result<()> {
        if source.num_elements() == 0 || target.num_elements() == 0 {
            return Ok(());
        }
        let (from, to) = (source.shape().clone(), target.shape().clone());
        let (space, batch) = if is_to_batch { (&from, &to) } else { (&to, &from) };
        let mut place: SmallVec<[usize; 4]> = smallvec::smallvec![0; self.sizes.len()];
        for block in 0..self.count {
            if let Some(copy) = self.block_copy(block, &place, space, batch, is_to_batch) {
                copy.run(ctx, source, target)?;
            }
            for (place, &size) in place.iter_mut().zip(&self.sizes).rev() {
                *place += 1;
                if *place < size {
                    break;
                }
                *place = 0;
            }
            ctx.check_cancelled()?;
        }
        Ok(())
    }

    /// The copy of the elements at offset `place`, number `block`, within their blocks; `None` if
    /// there are no such elements.
    fn block_copy(
        &self,
        block: usize,
        place: &[usize],
        space: &[usize],
        batch: &[usize],
        is_to_batch: bool,
    ) -> Option<StridedCopy> {
        let (space_strides, batch_strides) = (strides(space), strides(batch));
        let mut copy = StridedCopy::default();
        let mut push = |len: usize, in_space: usize, in_batch: usize| {
            let (from, to) = if is_to_batch { (in_space, in_batch) } else { (in_batch, in_space) };
            copy.dims.push(Dim { len, source: from as isize, target: to });
        };
        push(space[0], space_strides[0], batch_strides[0]);
        let (mut space_start, mut batch_start) = (0, block * space[0] * batch_strides[0]);
        for (i, (&size, &place)) in self.sizes.iter().zip(place).enumerate() {
            let (dim, before) = (i + 1, self.borders[i][0]);
            let first = before.saturating_sub(place).div_ceil(size);
            let end = (space[dim] + before).saturating_sub(place).div_ceil(size).min(batch[dim]);
            if first >= end {
                return None;
            }
            push(end - first, space_strides[dim] * size, batch_strides[dim]);
            space_start += (first * size + place - before) * space_strides[dim];
            batch_start += first * batch_strides[dim];
        }
        push(space[self.sizes.len() + 1..].iter().product(), 1, 1);
        (copy.source_start, copy.target_start) =
            if is_to_batch { (space_start, batch_start) } else { (batch_start, space_start) };
        Some(copy)
    }
}

/// The input and its blocks, on an accelerator; the shape function has checked the ranks.
fn lowered_blocks(l: &Lowering<'_>, borders_name: &str) -> Result<(Value, Blocks)> {
    let x = l.input(0)?;
    let sizes = match l.attrs().get("block_size") {
        Some(_) => vec![l.attrs().int("block_size")?; 2],
        None => l.ints(1)?,
    };
    let borders = l.ints(l.num_inputs() - 1)?;
    ensure!(
        x.rank() > sizes.len() && borders.len() == 2 * sizes.len(),
        InvalidArgument,
        "blocks of {} dimensions with {} {borders_name} do not fit an input of rank {}",
        sizes.len(),
        borders.len(),
        x.rank()
    );
    Ok((x, Blocks::checked(&sizes, &borders, borders_name)?))
}

/// Pads, splits each spatial dimension into blocks, and moves the places in a block to the front.
fn lower_to_batch(l: &mut Lowering<'_>) -> Result<()> {
    let (x, blocks) = lowered_blocks(l, "paddings")?;
    let (dims, n) = (l.output_dims(0)?, blocks.sizes.len());
    let side = |i: usize| -> Vec<i64> {
        let inner = blocks.borders.iter().map(|border| border[i] as i64);
        let after = std::iter::repeat_n(0, x.rank() - 1 - n);
        std::iter::once(0).chain(inner).chain(after).collect()
    };
    let padded = x.pad(&x.scalar_like(0.0), &side(0), &side(1), &vec![0; x.rank()]);
    let mut split = vec![x.dims()[0]];
    blocks.sizes.iter().zip(&dims[1..]).for_each(|(&size, &count)| split.extend([count, size]));
    split.extend(&x.dims()[n + 1..]);
    let places = (0..n).map(|i| 2 * i + 2);
    let counts = (0..n).map(|i| 2 * i + 1);
    let rest = 2 * n + 1..split.len();
    let order: Vec<usize> = places.chain([0]).chain(counts).chain(rest).collect();
    l.set(0, padded.reshape(&split).transpose(&order).reshape(&dims))
}

/// The reverse of [`lower_to_batch`]; borders are cut off.
fn lower_to_space(l: &mut Lowering<'_>) -> Result<()> {
    let (x, blocks) = lowered_blocks(l, "crops")?;
    let (dims, n) = (l.output_dims(0)?, blocks.sizes.len());
    let split = [&blocks.sizes[..], &[dims[0]], &x.dims()[1..]].concat();
    let pairs = (0..n).flat_map(|i| [n + 1 + i, i]);
    let order: Vec<usize> = [n].into_iter().chain(pairs).chain(2 * n + 1..split.len()).collect();
    let mut whole = x.dims().to_vec();
    whole[0] = dims[0];
    whole[1..].iter_mut().zip(&blocks.sizes).for_each(|(d, &size)| *d *= size);
    let mut starts = vec![0; x.rank()];
    starts[1..].iter_mut().zip(&blocks.borders).for_each(|(start, border)| *start = border[0]);
    let limits: Vec<usize> = starts.iter().zip(&dims).map(|(start, size)| start + size).collect();
    let whole = x.reshape(&split).transpose(&order).reshape(&whole);
    l.set(0, whole.slice(&starts, &limits, &vec![1; x.rank()]))
}

/// The attr `block_size` of the 2-D ops.
fn block_size(init: &KernelInit<'_>) -> Result<Option<i64>> {
    init.attrs().get("block_size").map(|_| init.attrs().int("block_size")).transpose()
}

fn space_to_batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let block_size = block_size(init)?;
    AnyKernel::new(move |ctx| {
        let blocks = Blocks::new(ctx, block_size, "paddings")?;
        let input = ctx.input(0)?;
        let mut dims: SmallVec<[usize; 5]> = input.shape().iter().copied().collect();
        dims[0] = dims[0].checked_mul(blocks.count).ok_or_else(too_large)?;
        let mut is_padded = false;
        for (i, (&size, &[before, after])) in blocks.sizes.iter().zip(&blocks.borders).enumerate() {
            let padded = dims[i + 1] + before + after;
            ensure!(
                padded.is_multiple_of(size),
                InvalidArgument,
                "padded_shape[{i}]={padded} is not divisible by block_shape[{i}]={size}"
            );
            dims[i + 1] = padded / size;
            is_padded |= before + after > 0;
        }
        let shape = Shape::new(&dims)?;
        let mut out = if is_padded {
            ctx.zeros(input.dtype(), shape)?
        } else {
            ctx.allocate(input.dtype(), shape)?
        };
        blocks.copy(ctx, input, &mut out, true)?;
        ctx.set_output(0, out)
    })
}

fn batch_to_space(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let block_size = block_size(init)?;
    AnyKernel::new(move |ctx| {
        let blocks = Blocks::new(ctx, block_size, "crops")?;
        let input = ctx.input(0)?;
        let mut dims: SmallVec<[usize; 5]> = input.shape().iter().copied().collect();
        ensure!(
            dims[0].is_multiple_of(blocks.count),
            InvalidArgument,
            "Input batch dimension ({}) is not divisible by product of block sizes ({})",
            dims[0],
            blocks.count
        );
        dims[0] /= blocks.count;
        for (i, (&size, &[before, after])) in blocks.sizes.iter().zip(&blocks.borders).enumerate() {
            let whole = dims[i + 1].checked_mul(size).ok_or_else(too_large)?;
            let Some(left) = whole.checked_sub(before + after) else {
                bail!(
                    InvalidArgument,
                    "cropped_shape[{i}]={} must be non-negative",
                    whole as i64 - (before + after) as i64
                );
            };
            dims[i + 1] = left;
        }
        let mut out = ctx.allocate(input.dtype(), Shape::new(&dims)?)?;
        blocks.copy(ctx, input, &mut out, false)?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    fn matrix(values: &[i32]) -> Tensor {
        Tensor::from_slice(Shape::new(&[values.len() / 2, 2]).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |op: &'static str, input: &str, blocks: &[i32], borders: &[i32]| {
            let call = call(op).shape(DType::Float, input);
            call.constant(Tensor::vector(blocks).unwrap()).constant(matrix(borders)).infer()
        };
        assert_eq!(infer("SpaceToBatchND", "1,4,?,3", &[2, 2], &[0, 2, 0, 0]), "[4,3,?,3]");
        assert_eq!(infer("BatchToSpaceND", "8,3,2,3", &[2, 2], &[0, 2, 1, 0]), "[2,4,3,3]");
        assert_eq!(infer("BatchToSpaceND", "unknown", &[2], &[0, 0]), "<unknown>");
        for (op, input, blocks, borders) in [
            ("SpaceToBatchND", "1,3,3", &[2, 2][..], &[0, 0, 0, 0][..]),
            ("SpaceToBatchND", "1,4", &[2, 2], &[0, 0, 0, 0]),
            ("SpaceToBatchND", "1,4", &[0], &[0, 0]),
            ("SpaceToBatchND", "1,4", &[2], &[-2, 0]),
            ("BatchToSpaceND", "3,4", &[2], &[0, 0]),
            ("BatchToSpaceND", "2,1", &[2], &[2, 1]),
        ] {
            let got = infer(op, input, blocks, borders);
            assert!(got.starts_with("INVALID_ARGUMENT"), "{op} {input} {blocks:?}: {got}");
        }
    }

    /// `BatchToSpace` inverts `SpaceToBatch` with equal padding and crops.
    #[test]
    fn there_and_back() {
        for (dims, blocks, borders) in [
            (&[2usize, 6][..], &[3][..], &[0, 0][..]),
            (&[1, 3, 5, 2], &[2, 3], &[0, 1, 3, 1]),
            (&[2, 2, 3, 4, 1], &[1, 2, 2], &[0, 0, 1, 0, 0, 0]),
            (&[2, 4], &[], &[]),
            (&[0, 4], &[2], &[0, 0]),
            (&[1, 1], &[4], &[5, 2]),
        ] {
            let values: Vec<f32> = (1..=dims.iter().product::<usize>()).map(|i| i as f32).collect();
            let input = Tensor::from_slice(Shape::new(dims).unwrap(), &values).unwrap();
            let blocks = || Tensor::vector::<i32>(blocks).unwrap();
            let there = call("SpaceToBatchND").input(input).input(blocks()).input(matrix(borders));
            let there = there.backwards().run().unwrap();
            let sum: f32 = there.as_slice::<f32>().unwrap().iter().sum();
            assert_eq!(sum, values.iter().sum::<f32>());
            let back = call("BatchToSpaceND").input(there).input(blocks()).input(matrix(borders));
            let back = back.run().unwrap();
            assert_eq!(back.shape().dims(), dims);
            assert_eq!(back.as_slice::<f32>().unwrap(), values);
        }
    }

    #[test]
    fn hostile_inputs() {
        let image = || Tensor::zeros(DType::Float, Shape::new(&[4, 2, 2, 1]).unwrap()).unwrap();
        for op in ["SpaceToBatchND", "BatchToSpaceND"] {
            for (blocks, borders) in [
                (&[0i64, 2][..], &[0, 0, 0, 0][..]),
                (&[i64::MIN, 2], &[0, 0, 0, 0]),
                (&[i64::MAX, i64::MAX], &[0, 0, 0, 0]),
                (&[2, 2], &[-1, 0, 0, 0]),
                (&[3, 3], &[i32::MAX, i32::MAX, i32::MAX, i32::MAX]),
                (&[2, 2], &[0, 0]),
                (&[2, 2, 2, 2], &[0, 0, 0, 0, 0, 0, 0, 0]),
            ] {
                let call = call(op).input(image()).input(Tensor::vector(blocks).unwrap());
                assert_eq!(
                    code(call.input(matrix(borders)).run()),
                    Some(Code::InvalidArgument),
                    "{op} {blocks:?}"
                );
            }
            let call = call(op).input(image()).input(Tensor::scalar(2));
            assert_eq!(code(call.input(matrix(&[0, 0])).run()), Some(Code::InvalidArgument));
        }
    }
}
