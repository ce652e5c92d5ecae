//! A CPU beside a device whose memory host code cannot read.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::*;
use thalweg_graph::{OpDef, Scope, shape};
use thalweg_kernel::{
    AnyKernel, Device, DeviceDescription, DeviceName, Family, HostDevice, KernelContext, KernelSpec,
};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{PlacedNode, RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, DType, DeviceMemory, Result, Tensor, ensure, err};

/// Memory of the test device: only this file's device and kernels can read it.
struct DeviceBytes(Tensor);

impl DeviceMemory for DeviceBytes {
    fn space(&self) -> &str {
        "TEST memory"
    }

    fn len_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn read(&self) -> Result<Tensor> {
        Ok(self.0.clone())
    }
}

fn copy_to_device(tensor: &Tensor) -> Result<Tensor> {
    ensure!(tensor.device_memory().is_none(), Internal, "it is on the device already");
    let memory = Arc::new(DeviceBytes(tensor.clone()));
    Tensor::from_device(tensor.dtype(), tensor.shape().clone(), memory)
}

fn copy_to_host(tensor: &Tensor) -> Result<Tensor> {
    let memory = tensor.device_memory().ok_or_else(|| err!(Internal, "it is on the host"))?;
    let any: &dyn Any = &**memory;
    let walled =
        any.downcast_ref::<DeviceBytes>().ok_or_else(|| err!(Internal, "another's memory"))?;
    Ok(walled.0.clone())
}

struct TestDevice(DeviceDescription);

impl Device for TestDevice {
    fn description(&self) -> &DeviceDescription {
        &self.0
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        copy_to_host(tensor)
    }

    fn upload(&self, tensor: &Tensor) -> Result<Tensor> {
        copy_to_device(tensor)
    }
}

static DEVICE_TOYS: Family = Family {
    ops: &[
        OpDef::new("ToyScale", shape::unknown)
            .with_interface("x: float; by: float | y: float; where: string"),
        OpDef::new("ToyPeek", shape::unknown).with_interface("x: float | y: float"),
    ],
    kernels: &[
        KernelSpec {
            op: "ToyScale",
            device: "TEST",
            host_inputs: &["by"],
            create: |_| AnyKernel::new(|ctx| scale(ctx, true)),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ToyScale",
            create: |_| AnyKernel::new(|ctx| scale(ctx, false)),
            ..KernelSpec::CPU
        },
        // Forgets where it is.
        KernelSpec {
            op: "ToyPeek",
            device: "TEST",
            create: |_| {
                AnyKernel::new(|ctx| {
                    ctx.slice::<f32>(0)?;
                    Ok(())
                })
            },
            ..KernelSpec::CPU
        },
    ],
};

fn scale(ctx: &mut KernelContext<'_>, is_device: bool) -> Result<()> {
    let by = ctx.input(1)?.scalar_value::<f32>()?;
    let x = if is_device { copy_to_host(ctx.input(0)?)? } else { ctx.input(0)?.clone() };
    let y = Tensor::scalar(x.scalar_value::<f32>()? * by);
    ctx.set_output(0, if is_device { copy_to_device(&y)? } else { y })?;
    ctx.set_output(1, Tensor::scalar_string(if is_device { "TEST" } else { "CPU" }))
}

fn families() -> Vec<&'static Family> {
    FAMILIES.iter().copied().chain([&TOYS, &DEVICE_TOYS]).collect()
}

fn two_device_session(s: &Scope) -> Session {
    let mut options = options(2);
    let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), 1 << 30);
    let name: DeviceName = "/job:localhost/replica:0/task:0/device:TEST:0".parse().unwrap();
    let test =
        DeviceDescription { shares_host_memory: false, ..DeviceDescription::cpu(name, 1 << 30) };
    options.devices = vec![HostDevice::shared(cpu), Arc::new(TestDevice(test))];
    options.plan.optimize = false;
    Session::new(s.to_graph(), kernel_registry(&families()), options).unwrap()
}

fn device_scope() -> Scope {
    Scope::new(op_registry(&families()).unwrap())
}

const CPU: &str = "/device:CPU:0";
const TEST: &str = "/device:TEST:0";

#[test]
fn tensors_and_control_edges_cross() {
    watched("two devices", || {
        let s = device_scope();
        let mut cpu = s.on_device(CPU);
        let mut test = s.on_device(TEST);
        let x = feed(&mut cpu, "x");
        let by = test.constant(&number(3.0)).unwrap();
        let a = test.op("ToyScale").name("a").inputs(&[x, by]).build_all().unwrap();
        let b = test.op("Identity").name("b").input(a[0]).build().unwrap();
        let c = cpu.op("ToyScale").name("c").inputs(&[b, b]).build_all().unwrap();
        let before = cpu.op("NoOp").name("before").after(&[c[0].node]).build_node().unwrap();
        test.op("ToyScale").name("d").inputs(&[b, by]).after(&[before]).build_all().unwrap();
        test.op("Identity").name("named").input(a[1]).build().unwrap();
        let s = two_device_session(&s);
        for i in 0..20 {
            let x = i as f32;
            let out = s.run(&[("x", number(x))], &["b", "c", "d", "x", "a"], &[]).unwrap();
            assert_eq!(numbers(&out), [3.0 * x, 9.0 * x * x, 9.0 * x, x, 3.0 * x]);
            let places = s.run(&[("x", number(x))], &["a:1", "c:1", "named"], &[]).unwrap();
            let places: Vec<_> = places.iter().map(|t| t.strings().unwrap()[0].clone()).collect();
            assert_eq!(places, ["TEST", "CPU", "TEST"]);
        }
        // Fed in the middle, as a host tensor.
        let out = s.run(&[("a", number(5.0))], &["b"], &["before"]).unwrap();
        assert_eq!(numbers(&out), [5.0]);
    });
}

#[test]
fn host_kernels_cannot_read_device_memory() {
    let s = device_scope();
    let mut test = s.on_device(TEST);
    let x = test.constant(&number(3.0)).unwrap();
    toy(&mut test, "ToyPeek", "peek", &[x]);
    let s = two_device_session(&s);
    let e = s.run(&[], &["peek"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::Internal);
    assert!(e.message().contains("host code cannot read a tensor in TEST memory"), "{e}");
    assert!(e.message().contains("[[{{node peek}}]]"), "{e}");
}

#[test]
fn a_cancelled_step_ends_on_both_sides() {
    watched("a step on two devices", || {
        let s = device_scope();
        let mut cpu = s.on_device(CPU);
        let mut test = s.on_device(TEST);
        let x = feed(&mut cpu, "x");
        let slow = toy(&mut cpu, "ToyLoop", "loop", &[x]);
        let fail = toy(&mut cpu, "ToyFail", "fail", &[x]);
        for (name, source) in [("a", slow), ("b", fail)] {
            test.op("Identity").name(name).input(source).build().unwrap();
        }
        let s = two_device_session(&s);
        let options = RunOptions { timeout: Some(Duration::from_millis(20)), ..Default::default() };
        let e = s.run_with(&options, &[("x", number(1.0))], &["a"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
        let e = s.run(&[("x", number(1.0))], &["b"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange, "{e}");
        assert!(e.message().ends_with("[[{{node fail}}]]"), "{e}");
    });
}

/// The report names all nodes of the client's graph, those that were folded included, and no others.
#[test]
fn placement_is_reported_for_the_clients_nodes() {
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let (one, two) = (
        s.constant(&Tensor::scalar(1.0f32)).unwrap(),
        s.constant(&Tensor::scalar(2.0f32)).unwrap(),
    );
    let folded = s.op("AddV2").name("folded").inputs(&[one, two]).build().unwrap();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    let mut there = s.on_device("/job:localhost/replica:0/task:0/cpu:1");
    let y = there.op("Mul").name("y").inputs(&[folded, x]).build().unwrap();
    s.op("Neg").name("unused").input(y).build().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (log, cpu) = (lines.clone(), |i| {
        HostDevice::shared(DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30))
    });
    let options = SessionOptions {
        devices: vec![cpu(0), cpu(1)],
        placement_log: Some(Arc::new(move |placed: &PlacedNode<'_>| {
            let PlacedNode { node, op, device, .. } = placed;
            log.lock().unwrap().push(format!("{node}: ({op}): {device}"));
        })),
        ..Default::default()
    };
    let session = Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap();
    for _ in 0..2 {
        let got = session.run(&[("x", Tensor::scalar(7.0f32))], &["y:0"], &[]).unwrap();
        assert_eq!(got[0].as_slice::<f32>().unwrap(), [21.0]);
    }
    let mut lines = lines.lock().unwrap().clone();
    lines.sort();
    let nodes: Vec<&str> = lines.iter().map(|l| l.split(':').next().unwrap()).collect();
    assert_eq!(nodes, ["Const", "Const_1", "folded", "y"], "{lines:?}");
    assert_eq!(lines[3], "y: (Mul): /job:localhost/replica:0/task:0/device:CPU:1");
}
