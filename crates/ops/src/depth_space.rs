//! `SpaceToDepth` and `DepthToSpace`.

use smallvec::SmallVec;
use thalweg_graph::{Gradient, GradientContext, NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{PartialShape, Result, Shape, bail, ensure, err};

use crate::cells::blank;
use crate::strided::{StridedCopy, strides};

pub(crate) static FAMILY: Family = Family {
    ops: &[SPACE_TO_DEPTH, DEPTH_TO_SPACE],
    kernels: &[
        KernelSpec { op: "SpaceToDepth", create: space_to_depth, ..KernelSpec::CPU },
        KernelSpec { op: "DepthToSpace", create: depth_to_space, ..KernelSpec::CPU },
        KernelSpec::lowering("SpaceToDepth", lower_to_depth),
        KernelSpec::lowering("DepthToSpace", lower_to_space),
    ],
};

const SPACE_TO_DEPTH: OpDef = OpDef::new("SpaceToDepth", space_to_depth_shape)
    .with_work(Work::moves)
    .with_gradient(|g| by_inverse(g, "DepthToSpace"));

const DEPTH_TO_SPACE: OpDef = OpDef {
    name: "DepthToSpace",
    shape: depth_to_space_shape,
    gradient: Gradient::By(|g| by_inverse(g, "SpaceToDepth")),
    ..SPACE_TO_DEPTH
};

fn by_inverse(g: &mut GradientContext<'_>, inverse: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let moved = g.op_like(inverse, &["block_size", "data_format"]).input(grad).build()?;
    g.set(0, moved)
}

/// Data format: position of the channels.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Last,
    First,
    /// NCHW_VECT_C: channels first, in vectors of four in the last dimension.
    FirstInFours,
}

/// The attrs of both ops.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    size: usize,
    order: Order,
}

impl Blocks {
    fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Blocks> {
        let size = attrs.int("block_size")?;
        let is_sensible = (2..=i64::from(i32::MAX)).contains(&size);
        ensure!(is_sensible, InvalidArgument, "Block size should be > 1, but was: {size}");
        let order = match attrs.string("data_format")? {
            "NHWC" => Order::Last,
            "NCHW" => Order::First,
            "NCHW_VECT_C" => Order::FirstInFours,
            other => bail!(InvalidArgument, "Invalid data format string: {other}"),
        };
        Ok(Blocks { size: size as usize, order })
    }

    fn rank(self) -> usize {
        if self.order == Order::FirstInFours { 5 } else { 4 }
    }

    /// Dimensions of height, width and channels.
    fn image_axes(self) -> [usize; 3] {
        if self.order == Order::Last { [1, 2, 3] } else { [2, 3, 1] }
    }

    fn check_rank(self, rank: usize) -> Result<()> {
        ensure!(
            rank == self.rank(),
            InvalidArgument,
            "Input rank should be: {} instead of: {rank}",
            self.rank()
        );
        Ok(())
    }

    /// Sizes of the `SpaceToDepth` output for input sizes `dims`.
    fn to_depth<D: Size>(self, dims: &[D]) -> Result<SmallVec<[D; 5]>> {
        let [h, w, c] = self.image_axes();
        let mut out: SmallVec<[D; 5]> = dims.iter().copied().collect();
        let (height, width) = (dims[h].divided(self.size), dims[w].divided(self.size));
        let (Some(height), Some(width)) = (height, width) else {
            bail!(
                InvalidArgument,
                "Image width and height should be divisible by block_size: {}, got {dims:?}",
                self.size
            );
        };
        (out[h], out[w]) = (height, width);
        out[c] = dims[c].times(self.size).and_then(|d| d.times(self.size)).ok_or_else(too_large)?;
        Ok(out)
    }

    /// Sizes of the `DepthToSpace` output for input sizes `dims`.
    fn to_space<D: Size>(self, dims: &[D]) -> Result<SmallVec<[D; 5]>> {
        let [h, w, c] = self.image_axes();
        let mut out: SmallVec<[D; 5]> = dims.iter().copied().collect();
        let depth = self.size.checked_mul(self.size).and_then(|s| dims[c].divided(s));
        let Some(depth) = depth else {
            bail!(
                InvalidArgument,
                "Input depth dimension should be divisible by {} squared, got {dims:?}",
                self.size
            );
        };
        out[c] = depth;
        out[h] = dims[h].times(self.size).ok_or_else(too_large)?;
        out[w] = dims[w].times(self.size).ok_or_else(too_large)?;
        Ok(out)
    }

    /// The tensor with the small image reshaped to one dimension for each factor of its channels:
    /// the sizes, and the permutation that gives the tensor with the large image.
    fn split(self, small: &[usize]) -> Result<(Shape, &'static [usize])> {
        let b = self.size;
        let depth = |channels: usize| channels / b / b;
        let (dims, axes): (SmallVec<[usize; 8]>, &'static [usize]) = match (self.order, small) {
            (Order::Last, &[n, h, w, c]) => {
                (SmallVec::from_slice(&[n, h, w, b, b, depth(c)]), &[0, 1, 3, 2, 4, 5])
            }
            (Order::First, &[n, c, h, w]) => {
                (SmallVec::from_slice(&[n, b, b, depth(c), h, w]), &[0, 3, 4, 1, 5, 2])
            }
            (_, &[n, c, h, w, four]) => {
                (SmallVec::from_slice(&[n, b, b, depth(c), h, w, four]), &[0, 3, 4, 1, 5, 2, 6])
            }
            _ => bail!(Internal, "images of shape {small:?} have another rank"),
        };
        Ok((Shape::new(&dims)?, axes))
    }
}

fn too_large() -> thalweg_tensor::Error {
    err!(InvalidArgument, "the image has too many elements in blocks")
}

/// A size that may be unknown.
trait Size: Copy + std::fmt::Debug {
    fn times(self, factor: usize) -> Option<Self>;
    /// The quotient, or `None` if there is a remainder.
    fn divided(self, divisor: usize) -> Option<Self>;
}

impl Size for usize {
    fn times(self, factor: usize) -> Option<usize> {
        self.checked_mul(factor)
    }

    fn divided(self, divisor: usize) -> Option<usize> {
        self.is_multiple_of(divisor).then(|| self / divisor)
    }
}

impl Size for Option<usize> {
    fn times(self, factor: usize) -> Option<Self> {
        self.map_or(Some(None), |d| d.times(factor).map(Some))
    }

    fn divided(self, divisor: usize) -> Option<Self> {
        self.map_or(Some(None), |d| d.divided(divisor).map(Some))
    }
}

fn space_to_depth_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let blocks = Blocks::from_attrs(c.attrs())?;
    let input = c.with_rank(0, "input", blocks.rank())?;
    let dims = blocks.to_depth(input.dims().unwrap_or_default())?;
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

fn depth_to_space_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let blocks = Blocks::from_attrs(c.attrs())?;
    let input = c.with_rank(0, "input", blocks.rank())?;
    let dims = blocks.to_space(input.dims().unwrap_or_default())?;
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

fn space_to_depth(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let blocks = Blocks::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        blocks.check_rank(input.rank())?;
        let dims = blocks.to_depth(input.shape())?;
        let (split, axes) = blocks.split(&dims)?;
        let mut out = blank(ctx, input.dtype(), Shape::new(&dims)?)?;
        // Iterates over the large image in memory order and computes each element's position in the
        // small one.
        let large: SmallVec<[usize; 8]> = axes.iter().map(|&a| split[a]).collect();
        let from = strides(&large);
        let mut source: SmallVec<[isize; 8]> = smallvec::smallvec![0; axes.len()];
        axes.iter().zip(from).for_each(|(&axis, stride)| source[axis] = stride as isize);
        StridedCopy::filling(&split, &source, 0).run(ctx, input, &mut out)?;
        ctx.set_output(0, out)
    })
}

fn lower_to_depth(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?, l.output_dims(0)?);
    let (split, axes) = Blocks::from_attrs(l.attrs())?.split(&dims)?;
    let large: SmallVec<[usize; 8]> = axes.iter().map(|&a| split[a]).collect();
    let mut back: SmallVec<[usize; 8]> = smallvec::smallvec![0; axes.len()];
    axes.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
    l.set(0, x.reshape(&large).transpose(&back).reshape(&dims))
}

fn lower_to_space(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?, l.output_dims(0)?);
    let (split, axes) = Blocks::from_attrs(l.attrs())?.split(x.dims())?;
    l.set(0, x.reshape(&split).transpose(axes).reshape(&dims))
}

fn depth_to_space(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let blocks = Blocks::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        blocks.check_rank(input.rank())?;
        let dims = blocks.to_space(input.shape())?;
        let (split, axes) = blocks.split(input.shape())?;
        let mut out = blank(ctx, input.dtype(), Shape::new(&dims)?)?;
        let from = strides(&split);
        let large: SmallVec<[usize; 8]> = axes.iter().map(|&a| split[a]).collect();
        let source: SmallVec<[isize; 8]> = axes.iter().map(|&a| from[a] as isize).collect();
        StridedCopy::filling(&large, &source, 0).run(ctx, input, &mut out)?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, DType, Tensor};

    #[test]
    fn shapes() {
        for (op, input, format, expected) in [
            ("SpaceToDepth", "1,4,?,3", "NHWC", "[1,2,?,12]"),
            ("SpaceToDepth", "1,3,4,6", "NCHW", "[1,12,2,3]"),
            ("DepthToSpace", "1,2,3,?", "NHWC", "[1,4,6,?]"),
            ("DepthToSpace", "?,8,2,3,4", "NCHW_VECT_C", "[?,2,4,6,4]"),
            ("DepthToSpace", "unknown", "NHWC", "[?,?,?,?]"),
        ] {
            let call = call(op).shape(DType::Float, input).attr("block_size", 2);
            assert_eq!(call.attr("data_format", format).infer(), expected, "{op} {input}");
        }
        for (op, input) in
            [("SpaceToDepth", "1,3,2,1"), ("DepthToSpace", "1,1,1,6"), ("DepthToSpace", "1,1,4")]
        {
            let got = call(op).shape(DType::Float, input).attr("block_size", 2).infer();
            assert!(got.starts_with("INVALID_ARGUMENT"), "{op} {input}: {got}");
        }
    }

    #[test]
    fn there_and_back() {
        for (format, dims) in [
            ("NHWC", &[2usize, 2, 3, 18][..]),
            ("NCHW", &[2, 18, 2, 3]),
            ("NCHW_VECT_C", &[1, 9, 2, 1, 4]),
            ("NHWC", &[0, 1, 1, 9]),
        ] {
            let values: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
            let small = Tensor::from_slice(Shape::new(dims).unwrap(), &values).unwrap();
            let attrs = |op| call(op).attr("block_size", 3).attr("data_format", format);
            let large = attrs("DepthToSpace").input(small).run().unwrap();
            let back = attrs("SpaceToDepth").input(large.clone()).run().unwrap();
            assert_eq!(back.as_slice::<i32>().unwrap(), values);
            assert_eq!(back.shape().dims(), dims);
        }
        let small =
            Tensor::from_slice(Shape::new(&[1, 1, 2, 4]).unwrap(), &[1, 2, 3, 4, 5, 6, 7, 8]);
        let large = call("DepthToSpace").input(small.unwrap()).attr("block_size", 2);
        assert_eq!(large.run().unwrap().as_slice::<i32>().unwrap(), [1, 2, 5, 6, 3, 4, 7, 8]);
    }

    #[test]
    fn hostile_inputs() {
        let image = || Tensor::zeros(DType::Float, Shape::new(&[1, 2, 2, 0]).unwrap()).unwrap();
        for op in ["SpaceToDepth", "DepthToSpace"] {
            for size in [1i64, 0, -2, i64::MAX, 1 << 40] {
                assert_eq!(
                    code(call(op).input(image()).attr("block_size", size).run()),
                    Some(Code::InvalidArgument)
                );
            }
            assert_eq!(
                code(call(op).input(Tensor::scalar(1f32)).attr("block_size", 2).run()),
                Some(Code::InvalidArgument)
            );
        }
    }
}
