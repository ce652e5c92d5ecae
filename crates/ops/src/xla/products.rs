//! XLA's products and convolutions.

use thalweg_graph::{OpDef, shape};
use thalweg_hlo::{Convolution, DotDims};
use thalweg_kernel::{Family, KernelSpec, Lowering};
use thalweg_tensor::{Result, ensure, err};

use super::arrays::sizes;
use super::numbers::Numbers;
use crate::linalg::einsum::einsum_shape;
use crate::linalg::einsum_lowering::lower_einsum;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("XlaConv", shape::unknown).with_work(work::convolution),
        OpDef::new("XlaConvV2", shape::unknown).with_work(work::convolution),
        OpDef::new("XlaDot", shape::unknown).with_work(work::contraction),
        OpDef::new("XlaDotV2", shape::unknown).with_work(work::contraction),
        OpDef::new("XlaEinsum", einsum_shape).with_work(work::einsum),
    ],
    kernels: &[
        KernelSpec::lowering("XlaConv", lower_conv).with_host_inputs(WINDOW),
        KernelSpec::lowering("XlaConvV2", lower_conv).with_host_inputs(WINDOW),
        KernelSpec::lowering("XlaDot", lower_dot),
        KernelSpec::lowering("XlaDotV2", lower_dot),
        KernelSpec::lowering("XlaEinsum", lower_einsum),
    ],
};

const WINDOW: &[&str] =
    &["window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count"];

fn lower_dot(l: &mut Lowering<'_>) -> Result<()> {
    let (numbers, dtype) = (Numbers::of(l)?, l.output_dtype(0));
    let dims = DotDims {
        contracting: (numbers.all(1)?, numbers.all(2)?),
        batch: (numbers.all(3)?, numbers.all(4)?),
    };
    l.set(0, l.input(0)?.convert(dtype).dot_general(&l.input(1)?.convert(dtype), &dims, dtype))
}

fn lower_conv(l: &mut Lowering<'_>) -> Result<()> {
    let (numbers, dtype) = (Numbers::of(l)?, l.output_dtype(0));
    let (x, filter) = (l.input(0)?.convert(dtype), l.input(1)?.convert(dtype));
    let padding = l.ints(3)?;
    let groups = match l.attrs().get("batch_group_count") {
        Some(_) => l.attrs().size("batch_group_count")?,
        None => 1,
    };
    let by = Convolution {
        input: (numbers.one(7)?, numbers.one(8)?, numbers.all(11)?),
        filter: (numbers.one(3)?, numbers.one(4)?, numbers.all(6)?),
        output: (numbers.one(9)?, numbers.one(10)?, numbers.all(12)?),
        strides: sizes(l, 2)?,
        padding: padding.chunks(2).map(|pair| (pair[0], pair[pair.len() - 1])).collect(),
        input_dilation: sizes(l, 4)?,
        filter_dilation: sizes(l, 5)?,
        reverses_filter: false,
        feature_groups: usize::try_from(l.int(6)?).unwrap_or(0),
        batch_groups: groups,
    };
    let space = by.input.2.len();
    let fits = x.rank() == space + 2 && filter.rank() == space + 2 && padding.len() == 2 * space;
    ensure!(
        fits,
        InvalidArgument,
        "a convolution of {:?} and {:?} with padding {padding:?} over {space} dimensions",
        x.dims(),
        filter.dims()
    );
    let dims = by.result_dims(x.dims(), filter.dims()).ok_or_else(|| {
        err!(InvalidArgument, "{by:?} does not fit {:?} and {:?}", x.dims(), filter.dims())
    })?;
    l.set(0, x.convolution(&filter, &by, &dims))
}
