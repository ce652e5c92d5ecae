//! Toy ops that do what real ones must not, and helpers to build sessions over them.
#![allow(dead_code, reason = "each test binary uses a part")]
#![expect(clippy::disallowed_methods, reason = "tests have threads and clocks of their own")]

pub(crate) mod flow;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_graph::{Graph, OpDef, OpRegistry, Output, Scope, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelRegistry, KernelSpec,
    Registration, Value,
};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{DType, Result, Shape, Tensor, bail, ensure, err};

const UNARY: OpDef = OpDef::new("", shape::unchanged).with_interface("x: float | y: float");

pub(crate) static TOYS: Family = Family {
    ops: &[
        OpDef::new("ToyAdd", shape::unchanged).with_interface("a: float; b: float | y: float"),
        OpDef { name: "ToyFail", ..UNARY },
        OpDef { name: "ToyPanic", ..UNARY },
        OpDef { name: "ToyNothing", ..UNARY },
        OpDef { name: "ToyWrong", ..UNARY },
        OpDef { name: "ToyExpensive", ..UNARY },
        OpDef { name: "ToyLoop", ..UNARY },
        OpDef::new("ToyUnique", shape::unknown).with_interface("x: float | y: bool"),
        OpDef::new("ToyAsync", shape::unchanged)
            .with_interface("x: float | y: float | mode: string | stateful"),
        OpDef::new("ToyTwo", shape::unknown).with_interface("x: float | y: float; z: float"),
        OpDef { name: "ToyNoKernel", ..UNARY },
    ],
    kernels: &[
        KernelSpec { op: "ToyAdd", create: add, ..KernelSpec::CPU },
        KernelSpec {
            op: "ToyFail",
            create: |_| AnyKernel::new(|_| bail!(OutOfRange, "the toy is broken")),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ToyPanic",
            create: |_| AnyKernel::new(|_| panic!("on purpose")),
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ToyNothing", create: |_| AnyKernel::new(|_| Ok(())), ..KernelSpec::CPU },
        KernelSpec {
            op: "ToyWrong",
            create: |_| AnyKernel::new(|ctx| ctx.set_output(0, Tensor::scalar(1i32))),
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ToyExpensive", create: expensive, ..KernelSpec::CPU },
        KernelSpec { op: "ToyLoop", create: long_loop, ..KernelSpec::CPU },
        KernelSpec { op: "ToyUnique", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "ToyAsync", create: later, ..KernelSpec::CPU },
        KernelSpec { op: "ToyTwo", create: two, ..KernelSpec::CPU },
    ],
};

fn add(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (a, b) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        ensure!(a.shape() == b.shape(), InvalidArgument, "a is {}, b {}", a.shape(), b.shape());
        let mut sum = ctx.allocate_output(0, a.shape().clone())?;
        let (x, y) = (a.as_slice::<f32>()?, b.as_slice::<f32>()?);
        for (s, (x, y)) in sum.as_mut_slice::<f32>()?.iter_mut().zip(x.iter().zip(y)) {
            *s = x + y;
        }
        ctx.set_output(0, sum)
    })
}

/// Adds one, slowly enough to be worth another thread.
fn expensive(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
        let x = ctx.input(0)?.scalar_value::<f32>()?;
        ctx.set_output(0, Tensor::scalar(x + 1.0))
    })
}

/// Would take minutes.
fn long_loop(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        ctx.parallel_for(1_000_000, 1e6, |_| std::thread::sleep(Duration::from_millis(1)))?;
        let x = ctx.take_input(0)?;
        ctx.set_output(0, x)
    })
}

fn unique(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let is_unique = ctx.take_input(0)?.is_unique();
        ctx.set_output(0, Tensor::scalar(is_unique))
    })
}

fn two(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let x = ctx.input(0)?.scalar_value::<f32>()?;
        ctx.set_output(0, Tensor::scalar(x + 1.0))?;
        ctx.set_output(1, Tensor::scalar(x + 2.0))
    })
}

/// Adds one, at a time and on a thread that `mode` says.
struct Later {
    mode: String,
    /// Of the calls that wait for the end of their steps.
    registrations: Mutex<Vec<Registration>>,
}

impl AsyncKernel for Later {
    fn start(&self, mut call: AsyncCall) {
        let step = call.step.clone();
        let add = move |call: &mut AsyncCall| -> Result<_> {
            let x = call.input(0)?.scalar_value::<f32>()?;
            Ok(smallvec::smallvec![Value::Tensor(Tensor::scalar(x + 1.0))])
        };
        match self.mode.as_str() {
            "inline" => {
                let result = add(&mut call);
                call.complete(result);
            }
            "thread" => {
                std::thread::spawn(move || {
                    let result = add(&mut call);
                    call.complete(result);
                });
            }
            "slow" => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    let result = add(&mut call);
                    call.complete(result);
                });
            }
            // Waits for the end of its step, as a dequeue from an empty queue does.
            "forever" => {
                let registration = step
                    .cancellation()
                    .on_cancel(move |_| call.complete(Err(err!(Cancelled, "derived"))));
                self.registrations.lock().push(registration);
            }
            "dropped" => drop(call),
            "empty" => call.complete(Ok(smallvec::smallvec![Value::Empty])),
            "wrong" => call.complete(Ok(smallvec::smallvec![Tensor::scalar(1i32).into()])),
            "many" => call.complete(Ok(smallvec::smallvec![Value::Dead, Value::Dead])),
            _ => panic!("on purpose"),
        }
    }
}

fn later(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let mode = init.attrs().string("mode")?.to_owned();
    Ok(AnyKernel::Async(Arc::new(Later { mode, registrations: Mutex::default() })))
}

pub(crate) fn registries() -> (Arc<OpRegistry>, Arc<KernelRegistry>) {
    let families: Vec<&Family> = FAMILIES.iter().copied().chain([&TOYS]).collect();
    (op_registry(&families).unwrap(), kernel_registry(&families))
}

/// The registries, made once.
pub(crate) fn shared_registries() -> &'static (Arc<OpRegistry>, Arc<KernelRegistry>) {
    static SHARED: std::sync::OnceLock<(Arc<OpRegistry>, Arc<KernelRegistry>)> =
        std::sync::OnceLock::new();
    SHARED.get_or_init(registries)
}

pub(crate) fn scope() -> Scope {
    Scope::new(registries().0)
}

pub(crate) fn options(threads: usize) -> SessionOptions {
    SessionOptions {
        inter_threads: threads,
        intra_threads: threads,
        memory_limit_bytes: 1 << 30,
        ..Default::default()
    }
}

pub(crate) fn session(graph: Graph, threads: usize) -> Session {
    Session::new(graph, registries().1, options(threads)).unwrap()
}

/// A session over a GraphDef in text format.
pub(crate) fn text_session(text: &str, threads: usize) -> Result<Session> {
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let graph = Graph::from_def(registries().0, def)?;
    Session::new(graph, registries().1, options(threads))
}

pub(crate) fn feed(scope: &mut Scope, name: &str) -> Output {
    scope.op("Placeholder").name(name).attr("dtype", DType::Float).build().unwrap()
}

pub(crate) fn toy(scope: &mut Scope, op: &str, name: &str, inputs: &[Output]) -> Output {
    scope.op(op).name(name).inputs(inputs).build().unwrap()
}

pub(crate) fn toy_async(scope: &mut Scope, mode: &str, name: &str, input: Output) -> Output {
    scope.op("ToyAsync").name(name).attr("mode", mode).input(input).build().unwrap()
}

pub(crate) fn number(x: f32) -> Tensor {
    Tensor::scalar(x)
}

pub(crate) fn numbers(tensors: &[Tensor]) -> Vec<f32> {
    tensors.iter().map(|t| t.as_slice::<f32>().unwrap()[0]).collect()
}

pub(crate) fn four(x: f32) -> Tensor {
    Tensor::from_slice(Shape::new(&[4]).unwrap(), &[x; 4]).unwrap()
}

/// Fails the test instead of letting it hang.
pub(crate) fn watched(what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(120)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        _ => thread.join().unwrap(),
    }
}
