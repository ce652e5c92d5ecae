//! `ReadFile`, `WriteFile` and `MatchingFiles`.

use thalweg_graph::{OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, Charge, PartialShape, Result, Shape, Tensor, charge_string, ensure, with_charge,
};

use super::{path_of, read_file};

use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        READ_FILE.without_gradient(),
        WRITE_FILE.without_gradient(),
        MATCHING_FILES.without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "ReadFile", create: read, ..KernelSpec::CPU },
        KernelSpec { op: "WriteFile", create: write, ..KernelSpec::CPU },
        KernelSpec { op: "MatchingFiles", create: matching, ..KernelSpec::CPU },
    ],
};

const READ_FILE: OpDef = OpDef::new("ReadFile", scalar_of_scalar).with_work(work::file);

const WRITE_FILE: OpDef = OpDef::new("WriteFile", two_scalars).with_work(work::file);

const MATCHING_FILES: OpDef = OpDef::new("MatchingFiles", unknown_vector).with_work(work::file);

fn scalar_of_scalar(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "filename", 0)?;
    shape::scalar(c)
}

fn two_scalars(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "filename", 0)?;
    c.with_rank(1, "contents", 0)?;
    Ok(())
}

fn unknown_vector(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new([None]));
    Ok(())
}

/// The only string of the tensor `name`.
fn only<'a>(tensor: &'a Tensor, name: &str) -> Result<&'a Bytes> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "Input {name} tensor must be scalar, but had shape: {}",
        tensor.shape()
    );
    Ok(&tensor.strings()?[0])
}

fn read(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let content = read_file(ctx, path_of(only(ctx.input(0)?, "filename")?)?)?;
        // Charged after reading; the read itself is bounded by the rest of the budget.
        let charge = Charge::new(ctx.budget(), content.len())?;
        ctx.set_output(0, Tensor::scalar_string(with_charge(content, charge)))
    })
}

fn write(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let path = path_of(only(ctx.input(0)?, "filename")?)?;
        let content = only(ctx.input(1)?, "contents")?;
        ctx.step().environment().storage.write(path, content)
    })
}

fn matching(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let patterns = ctx.input(0)?;
        ensure!(
            patterns.rank() <= 1,
            InvalidArgument,
            "Input patterns tensor must be scalar or vector, but had shape: {}",
            patterns.shape()
        );
        let mut paths: Vec<String> = Vec::new();
        for pattern in patterns.strings()? {
            ctx.check_cancelled()?;
            paths.extend(ctx.step().environment().storage.matching(path_of(pattern)?)?);
        }
        paths.sort();
        let shape = Shape::new(&[paths.len()])?;
        let charged = |path: String| charge_string(path.into_bytes(), ctx.budget());
        let paths = paths.into_iter().map(charged).collect::<Result<_>>()?;
        ctx.set_output(0, Tensor::from_strings_in(shape, paths, ctx.budget())?)
    })
}
