//! Slices of variables at given coordinates: gather without a snapshot, and scatter updates.

use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, Result, ensure};

use crate::gather::{gather_points as gather_from, ignores_bad_indices};
use crate::gather_gradients;
use crate::scatter::{Update, check_scatter_shapes, scatter};
use crate::variable::{change, forward_ref, variable_input};
use crate::variable_lowering::{ORDERED, gather_points, scatter_points};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RESOURCE_GATHER_ND.with_gradient(gather_gradients::resource_gather_nd),
        SCATTER_ND_UPDATE.without_gradient(),
        SCATTER_ND_ADD.without_gradient(),
        OpDef { name: "ScatterNdSub", ..SCATTER_ND_ADD }.without_gradient(),
        OpDef { name: "ScatterNdMin", ..SCATTER_ND_ADD },
        OpDef { name: "ScatterNdMax", ..SCATTER_ND_ADD },
        RESOURCE_SCATTER_ND_UPDATE,
        OpDef { name: "ResourceScatterNdAdd", ..RESOURCE_SCATTER_ND_UPDATE },
        OpDef { name: "ResourceScatterNdSub", ..RESOURCE_SCATTER_ND_UPDATE },
        OpDef { name: "ResourceScatterNdMin", ..RESOURCE_SCATTER_ND_UPDATE },
        OpDef { name: "ResourceScatterNdMax", ..RESOURCE_SCATTER_ND_UPDATE },
    ],
    kernels: &[
        KernelSpec { op: "ResourceGatherNd", create: gather_nd, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdUpdate", create: assign, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdAdd", create: add, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdSub", create: sub, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdMin", create: min, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdMax", create: max, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterNdUpdate", create: assign, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterNdAdd", create: add, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterNdSub", create: sub, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterNdMin", create: min, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterNdMax", create: max, ..KernelSpec::CPU },
        KernelSpec::lowering("ResourceGatherNd", gather_points),
        KernelSpec::lowering("ScatterNdUpdate", |l| scatter_points(l, Update::Assign)),
        KernelSpec::lowering("ScatterNdAdd", |l| scatter_points(l, Update::Add)),
        KernelSpec::lowering("ScatterNdSub", |l| scatter_points(l, Update::Sub)),
        KernelSpec::lowering("ScatterNdMin", |l| scatter_points(l, Update::Min))
            .for_dtypes(ORDERED),
        KernelSpec::lowering("ScatterNdMax", |l| scatter_points(l, Update::Max))
            .for_dtypes(ORDERED),
        KernelSpec::lowering("ResourceScatterNdUpdate", |l| scatter_points(l, Update::Assign)),
        KernelSpec::lowering("ResourceScatterNdAdd", |l| scatter_points(l, Update::Add)),
        KernelSpec::lowering("ResourceScatterNdSub", |l| scatter_points(l, Update::Sub)),
        KernelSpec::lowering("ResourceScatterNdMin", |l| scatter_points(l, Update::Min))
            .for_dtypes(ORDERED),
        KernelSpec::lowering("ResourceScatterNdMax", |l| scatter_points(l, Update::Max))
            .for_dtypes(ORDERED),
    ],
};

const RESOURCE_GATHER_ND: OpDef =
    OpDef::new("ResourceGatherNd", gather_nd_shape).with_work(|c| work::gather(c, 400.0));

const SCATTER_ND_UPDATE: OpDef =
    OpDef::new("ScatterNdUpdate", scatter_shape).with_work(|c| work::scatter(c, 1));

const SCATTER_ND_ADD: OpDef = OpDef { name: "ScatterNdAdd", ..SCATTER_ND_UPDATE };

const RESOURCE_SCATTER_ND_UPDATE: OpDef =
    OpDef { name: "ResourceScatterNdUpdate", shape: resource_scatter_shape, ..SCATTER_ND_UPDATE };

fn gather_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let variable = c.variable_shape(0);
    let indices = c.with_rank_at_least(1, "indices", 1)?;
    let (Some(dims), Some(indices)) = (variable.dims(), indices.dims()) else { return Ok(()) };
    let Some((&Some(depth), outer)) = indices.split_last() else { return Ok(()) };
    ensure!(
        depth <= dims.len(),
        InvalidArgument,
        "indices of {depth} coordinates are too many for a variable of shape {variable}"
    );
    c.set_output(0, PartialShape::new(outer.iter().chain(&dims[depth..]).copied()));
    Ok(())
}

fn scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_scatter_shapes(c.input(0), c.input(1), c.input(2))?;
    c.set_output(0, c.input(0).clone());
    Ok(())
}

fn resource_scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_scatter_shapes(&c.variable_shape(0), c.input(1), c.input(2))
}

fn gather_nd(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let variable = variable_input(ctx, 0)?;
        let out = variable.with_value(|value| gather_from(ctx, value, ctx.input(1)?, false))?;
        ctx.set_output(0, out)
    })
}

fn assign(init: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter_nd(init, Update::Assign)
}

fn add(init: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter_nd(init, Update::Add)
}

fn sub(init: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter_nd(init, Update::Sub)
}

fn min(init: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter_nd(init, Update::Min)
}

fn max(init: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter_nd(init, Update::Max)
}

fn scatter_nd(init: &KernelInit<'_>, update: Update) -> Result<AnyKernel> {
    let ignores = ignores_bad_indices(init)?;
    AnyKernel::new(move |ctx| {
        let variable = variable_input(ctx, 0)?;
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        change(ctx, &variable, |target| {
            ensure!(
                target.dtype() == updates.dtype(),
                InvalidArgument,
                "the variable is {}, the updates {}",
                target.dtype(),
                updates.dtype()
            );
            scatter(ctx, target, indices, updates, update, ignores)
        })?;
        forward_ref(ctx, variable)
    })
}
