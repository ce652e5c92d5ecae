//! `StridedSliceAssign` on variables.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Result, Shape, Tensor, ensure};

use crate::slice::{Masks, StridedSlice};
use crate::slice_lowering;
use crate::variable::{change, forward_ref, variable_input};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        STRIDED_SLICE_ASSIGN,
        RESOURCE_STRIDED_SLICE_ASSIGN,
        OpDef::new("DisableCopyOnRead", shape::unknown),
    ],
    kernels: &[
        KernelSpec {
            op: "StridedSliceAssign",
            host_inputs: &["begin", "end", "strides"],
            create: strided_slice_assign,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ResourceStridedSliceAssign",
            host_inputs: &["ref", "begin", "end", "strides"],
            create: strided_slice_assign,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("StridedSliceAssign", lower_strided_slice_assign)
            .with_host_inputs(&["begin", "end", "strides"]),
        KernelSpec::lowering("ResourceStridedSliceAssign", lower_strided_slice_assign)
            .with_host_inputs(&["begin", "end", "strides"]),
        KernelSpec {
            op: "DisableCopyOnRead",
            is_cheap: true,
            create: disable_copy_on_read,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "DisableCopyOnRead",
            is_cheap: true,
            create: disable_copy_on_read,
            ..KernelSpec::ACCELERATOR
        },
    ],
};

const STRIDED_SLICE_ASSIGN: OpDef =
    OpDef::new("StridedSliceAssign", same_variable).with_work(Work::moves);

const RESOURCE_STRIDED_SLICE_ASSIGN: OpDef =
    OpDef { name: "ResourceStridedSliceAssign", ..STRIDED_SLICE_ASSIGN };

fn same_variable(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.num_outputs() > 0 {
        c.set_output(0, c.input(0).clone());
    }
    Ok(())
}

fn strided_slice_assign(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let masks = Masks::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let variable = variable_input(ctx, 0)?;
        let value = ctx.input(4)?;
        change(ctx, &variable, |target| {
            ensure!(
                target.dtype() == value.dtype(),
                InvalidArgument,
                "the variable is {}, the value {}",
                target.dtype(),
                value.dtype()
            );
            let slice = StridedSlice::from_inputs(ctx, masks, 1, target.shape())?;
            slice.put(ctx, &without_extra_ones(value, slice.shape()?.rank())?, target)
        })?;
        forward_ref(ctx, variable)
    })
}

fn lower_strided_slice_assign(l: &mut Lowering<'_>) -> Result<()> {
    let (old, value) = (l.read_variable(0)?, l.input(4)?);
    ensure!(
        old.dtype() == value.dtype(),
        InvalidArgument,
        "the variable is {}, the value {}",
        old.dtype(),
        value.dtype()
    );
    let new = slice_lowering::updated(l, &old, &value)?;
    l.assign_variable(0, new)?;
    if l.node().outputs.is_empty() { Ok(()) } else { l.forward(0, 0) }
}

/// The value without leading dimensions of size 1 that the slice does not have.
fn without_extra_ones(value: &Tensor, rank: usize) -> Result<Tensor> {
    let extra = value.rank().saturating_sub(rank);
    let (front, rest) = value.shape().split_at(extra);
    if extra == 0 || front.iter().any(|&size| size != 1) {
        return Ok(value.clone());
    }
    value.clone().reshaped(Shape::new(rest)?)
}

/// Does nothing: reads share the variable's memory until it is changed, so they never copy.
fn disable_copy_on_read(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| variable_input(ctx, 0).map(drop))
}
