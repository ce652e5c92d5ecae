//! A `thalweg` with one more op, `SquarePlusOne`.

use thalweg::graph::{OpDef, shape};
use thalweg::kernel::{AnyKernel, Family, KernelSpec};

static FAMILY: Family = Family {
    ops: &[OpDef::new("SquarePlusOne", shape::unchanged).with_interface("x: float | y: float")],
    kernels: &[KernelSpec {
        op: "SquarePlusOne",
        create: |_| {
            AnyKernel::new(|ctx| {
                let mut y = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
                for (y, x) in y.as_mut_slice::<f32>()?.iter_mut().zip(ctx.slice::<f32>(0)?) {
                    *y = x * x + 1.0;
                }
                ctx.set_output(0, y)
            })
        },
        ..KernelSpec::CPU
    }],
};

fn main() -> std::process::ExitCode {
    thalweg::cli::main_with(&[&FAMILY])
}
