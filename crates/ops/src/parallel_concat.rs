//! `ParallelConcat`: rows concatenated into a tensor of declared shape.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, Result, Tensor, bail, ensure, err};

use crate::concat::joined;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("ParallelConcat", parallel_concat_shape).with_work(Work::moves)],
    kernels: &[
        KernelSpec { op: "ParallelConcat", create: parallel_concat, ..KernelSpec::CPU },
        KernelSpec::lowering("ParallelConcat", |l| {
            let values = l.inputs_from(0)?;
            l.set(0, values[0].concatenate(&values[1..], 0))
        }),
    ],
};

/// The shape is an attr, and each input is one row of it.
fn parallel_concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let declared = c.attrs().shape("shape")?;
    let Some(shape) = declared.to_shape() else {
        bail!(InvalidArgument, "shape attr must be fully defined.");
    };
    let Some(row) = shape.get(1..) else {
        bail!(InvalidArgument, "shape attr must have at least one dimension, is {shape}");
    };
    let row = PartialShape::new([Some(1)].into_iter().chain(row.iter().map(|&d| Some(d))));
    for i in 0..c.num_inputs() {
        row.merge(c.input(i))?;
    }
    c.set_output(0, declared);
    Ok(())
}

fn parallel_concat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = init.attrs().shape("shape")?;
    let shape = declared
        .to_shape()
        .ok_or_else(|| err!(InvalidArgument, "shape attr must be fully defined."))?;
    AnyKernel::new(move |ctx| {
        let elements: usize = (0..ctx.num_inputs())
            .map(|i| ctx.input(i).map(Tensor::num_elements))
            .sum::<Result<usize>>()?;
        ensure!(
            elements == shape.num_elements(),
            InvalidArgument,
            "the inputs have {elements} elements, which do not fill shape {shape}"
        );
        let output = joined(ctx, 0..ctx.num_inputs(), &[], shape.clone())?;
        ctx.set_output(0, output)
    })
}
