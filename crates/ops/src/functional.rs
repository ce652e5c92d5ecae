//! Auxiliary ops of functional control flow: device index, fake parameters.

use thalweg_graph::shape;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, Shape, Tensor};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("FakeParam", shape::from_attr).with_work(Work::none).without_gradient(),
        OpDef::new("DeviceIndex", shape::scalar).with_work(Work::none).without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "FakeParam", create: fake_param, ..CHEAP },
        KernelSpec::beside_regions(
            "FakeParam",
            |l| {
                l.set_unread(0);
                Ok(())
            },
            fake_param,
        ),
        KernelSpec { op: "DeviceIndex", create: device_index, ..CHEAP },
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

/// `FakeParam`: a placeholder in one branch for a tensor that only another branch computes; its
/// value is never read.
fn fake_param(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let shape = init.attrs().shape("shape")?;
    let known = shape.dims().unwrap_or_default().iter().map(|d| d.unwrap_or(0));
    let shape = Shape::new(&known.collect::<Vec<_>>())?;
    let value = Tensor::blank_in(init.attrs().dtype("dtype")?, shape, Some(init.budget))?;
    AnyKernel::new(move |ctx| ctx.set_output(0, value.clone()))
}

/// `DeviceIndex`: index of the device's type in `device_names`, or their number if it is missing.
fn device_index(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let names = init.attrs().strings("device_names")?;
    let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    AnyKernel::new(move |ctx| {
        let own = ctx.step().device().description().name.device_type.as_bytes();
        let index = names.iter().position(|name| name == own).unwrap_or(names.len());
        ctx.set_output(0, Tensor::scalar(index as i32))
    })
}
