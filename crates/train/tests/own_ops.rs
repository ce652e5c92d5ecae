//! A program's own op, with its gradient, is trained on a cluster, exported and loaded again.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_api::{NewOp, Output};
use thalweg_graph::{GradientContext, OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelSpec};
use thalweg_ops::Registry;
use thalweg_runtime::{LoadOptions, SavedModel};
use thalweg_tensor::{Result, Tensor};
use thalweg_train::trainer::Screen;
use thalweg_train::{
    Adam, Cluster, Initializer, Model, Net, Samples, Served, Sgd, TrainOptions, Trainer,
    export_with, losses,
};

/// `y = x^3`, and `dx = 3 x^2 dy`.
static FAMILY: Family = Family {
    ops: &[
        OpDef::new("OwnCube", shape::unchanged)
            .with_interface("x: float | y: float")
            .with_gradient(cube_gradient),
        OpDef::new("OwnCubeGrad", shape::unchanged)
            .with_interface("x: float; dy: float | dx: float"),
    ],
    kernels: &[
        KernelSpec {
            op: "OwnCube",
            create: |_| {
                AnyKernel::new(|ctx| {
                    let mut y = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
                    for (y, x) in y.as_mut_slice::<f32>()?.iter_mut().zip(ctx.slice::<f32>(0)?) {
                        *y = x * x * x;
                    }
                    ctx.set_output(0, y)
                })
            },
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "OwnCubeGrad",
            create: |_| {
                AnyKernel::new(|ctx| {
                    let mut dx = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
                    let (x, dy) = (ctx.slice::<f32>(0)?, ctx.slice::<f32>(1)?);
                    for (dx, (x, dy)) in dx.as_mut_slice::<f32>()?.iter_mut().zip(x.iter().zip(dy))
                    {
                        *dx = 3.0 * x * x * dy;
                    }
                    ctx.set_output(0, dx)
                })
            },
            ..KernelSpec::CPU
        },
    ],
};

fn cube_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (x, dy) = (g.input(0), g.grad(0)?);
    let dx = g.add("OwnCubeGrad", &[x, dy])?;
    g.set(0, dx)
}

/// Points of `y = (2 x)^3`.
struct Points;

impl Samples for Points {
    fn count(&self) -> usize {
        64
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        let x: Vec<f32> = indices.iter().map(|i| 0.5 + *i as f32 / 64.0).collect();
        let y: Vec<f32> = x.iter().map(|x| 8.0 * x * x * x).collect();
        Ok(vec![Tensor::vector(&x)?, Tensor::vector(&y)?])
    }
}

fn cube_of_scaled(model: &Model, x: &Output<f32>) -> Output<f32> {
    let scale = model.parameter("scale", &[], &Initializer::Ones);
    NewOp::new(model, "OwnCube").input(x * scale).output()
}

#[test]
fn a_model_with_an_own_op_trains_on_a_cluster_and_is_exported() {
    let folder = std::env::temp_dir().join(format!("thalweg-own-ops-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.display().to_string();
    let registry = Registry::with_families(&[&FAMILY]).unwrap();
    let cluster = Cluster::local_with(1, 2, registry.clone()).unwrap();
    let options = TrainOptions { folder: path.clone(), batch: 8, epochs: 30, ..Default::default() };
    let trainer = Trainer::new(&cluster, options).screen(Screen::none());
    let outcome = trainer
        .run(&Points, Adam::new(0.05), |model| {
            let x = model.placeholder::<f32>("x", [None]);
            let y = model.placeholder::<f32>("y", [None]);
            let loss = losses::mean_squared_error(&cube_of_scaled(model, &x), &y);
            Net::new((&x, &y), &loss)
        })
        .unwrap();
    assert_eq!(outcome.samples, 64 * 30);

    let checkpoint = outcome.checkpoint.unwrap();
    let model = export_with(&registry, &checkpoint, &format!("{path}/model"), |model| {
        let x = model.placeholder::<f32>("x", [None]);
        Served::new().input("x", &x).output("y", &cube_of_scaled(model, &x))
    })
    .unwrap();
    let Registry { ops, kernels } = registry;
    let model = SavedModel::load(&model, &[], (ops, kernels), LoadOptions::default()).unwrap();
    let x = Tensor::vector(&[1.0f32, -0.5]).unwrap();
    let found = model.run("serving_default", &[("x", x)]).unwrap();
    let found = found["y"].as_slice::<f32>().unwrap();
    assert!((found[0] - 8.0).abs() < 0.1 && (found[1] + 1.0).abs() < 0.05, "{found:?}");
    let _ = std::fs::remove_dir_all(&folder);

    // A cluster that does not have the op says which one is missing.
    let cluster = Cluster::local(0, 1).unwrap();
    let options = TrainOptions { folder: path, ..Default::default() };
    let trainer = Trainer::new(&cluster, options).screen(Screen::none());
    let refused = trainer
        .run(&Points, Sgd::new(0.1), |model| {
            let x = model.placeholder::<f32>("x", [None]);
            Net::new(&x, &cube_of_scaled(model, &x))
        })
        .unwrap_err();
    assert!(refused.to_string().contains("OwnCube"), "{refused}");
}
