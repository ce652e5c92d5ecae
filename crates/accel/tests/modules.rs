//! StableHLO modules that JAX exported (`testdata/xla`): read, called with shapes, compiled and run;
//! `XlaCallModule` in sessions; damaged modules.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/arrays.rs"]
mod arrays;
mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use thalweg_accel::pjrt::{Buffer, CompileOptions};
use thalweg_graph::{AttrValue, Output, Scope};
use thalweg_hlo::{Argument, Module, ModuleCall, Program};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor};

struct Case {
    name: String,
    module: Vec<u8>,
    args: Vec<Tensor>,
    results: Vec<Json>,
}

fn cases() -> Vec<Case> {
    let all = |json: &Json, name: &str| json[name].as_array().unwrap().clone();
    let case = |json: Json| Case {
        name: json["name"].as_str().unwrap().to_owned(),
        module: STANDARD.decode(json["module"].as_str().unwrap()).unwrap(),
        args: all(&json, "args").iter().map(arrays::tensor).collect(),
        results: all(&json, "results"),
    };
    arrays::lines("modules.jsonl.gz").into_iter().map(case).collect()
}

/// The program that calls a module with arguments of these shapes.
fn program(module: &[u8], args: &[Tensor]) -> Result<String> {
    let types: Vec<Argument> =
        args.iter().map(|t| Argument::new(t.dtype(), t.shape().dims())).collect();
    let (program, values) = Program::new(&types);
    let results = program.call_module(&Module::read(module)?, &ModuleCall::default(), &values)?;
    program.finish(&results)
}

#[test]
fn every_module_becomes_a_static_program() {
    for case in cases() {
        let text = program(&case.module, &case.args);
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert!(!text.contains("tensor<?") && !text.contains("x?"), "{}:\n{text}", case.name);
    }
}

#[test]
fn modules_compute_what_jax_computes() {
    let Some(accelerator) = support::accelerator("modules_compute_what_jax_computes") else {
        return;
    };
    let client = accelerator.client();
    for case in cases() {
        let run = || -> Result<Vec<Tensor>> {
            let text = program(&case.module, &case.args)?;
            let program = client.compile(&text, &CompileOptions::default())?;
            let args: Vec<Buffer> =
                case.args.iter().map(|t| client.upload(t, 0)).collect::<Result<_>>()?;
            let args: Vec<&Buffer> = args.iter().collect();
            program.execute(&args, &[])?.iter().map(Buffer::read).collect()
        };
        let got = run().unwrap_or_else(|e| panic!("{}: {e}", case.name));
        // XLA may keep more bits than the module asks for.
        let tolerance = if case.name.starts_with("bfloat16") { 1e-2 } else { 2e-5 };
        let difference = arrays::difference(&got, &case.results, tolerance);
        assert_eq!(difference, None, "{}", case.name);
    }
}

/// Damaged modules give errors, whatever the damage; a few are still modules.
#[test]
fn damaged_modules() {
    let mut errors = 0;
    for (number, case) in cases().iter().enumerate() {
        for at in (0..case.module.len()).step_by(1 + case.module.len() / 20) {
            let mut cut = case.module.clone();
            cut.truncate(at);
            assert!(program(&cut, &case.args).is_err(), "{} cut at {at}", case.name);
        }
        let mut state = number as u64 + 1;
        for _ in 0..50 {
            let mut damaged = case.module.clone();
            for _ in 0..1 + state % 3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % damaged.len();
                damaged[at] = (state >> 25) as u8;
            }
            if let Err(e) = program(&damaged, &case.args) {
                assert_ne!(e.code(), Code::Internal, "{}: {e}", case.name);
                errors += 1;
            }
        }
    }
    assert!(errors > 500, "only {errors} of the damaged modules are refused");
}

/// What an `XlaCallModule` node has beside its inputs.
struct Call {
    version: i64,
    platforms: &'static [&'static str],
    module: Vec<u8>,
    dtype: DType,
    outputs: usize,
}

impl Call {
    fn of(name: &str) -> Call {
        let case = cases().into_iter().find(|case| case.name == name).unwrap();
        let outputs = case.results.len();
        let platforms = &["CPU"];
        Call { version: 10, platforms, module: case.module, dtype: DType::Float, outputs }
    }

    /// A session whose nodes `y` are the call, of inputs `x0`, `x1`...
    fn session(self, inputs: usize, options: SessionOptions) -> Session {
        let mut s = Scope::new(op_registry(FAMILIES).unwrap());
        let inputs: Vec<Output> = (0..inputs)
            .map(|i| {
                let x = s.op("Placeholder").name(&format!("x{i}")).attr("dtype", DType::Float);
                x.build().unwrap()
            })
            .collect();
        let shapes = vec![PartialShape::unknown(); self.outputs];
        let y = s.op("XlaCallModule").name("y").inputs(&inputs);
        let y = y.attr("version", self.version).attr("platforms", self.platforms);
        let y = y.attr("module", AttrValue::String(self.module.into()));
        let y = y.attr("Tout", &vec![self.dtype; self.outputs][..]).attr("Sout", &shapes[..]);
        y.build_all().unwrap();
        Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap()
    }
}

fn matrix(rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * 8).map(|i| i as f32 / 8.0 - 1.0).collect();
    Tensor::from_slice(Shape::new(&[rows, 8]).unwrap(), &values).unwrap()
}

#[test]
fn a_node_takes_batches_of_any_size() {
    let Some(accelerator) = support::accelerator("a_node_takes_batches_of_any_size") else {
        return;
    };
    let session = Call::of("product_open").session(1, support::options(&accelerator));
    let before = accelerator.counts();
    for rows in [1, 4, 7, 4] {
        let got = session.run(&[("x0:0", matrix(rows))], &["y:0", "y:1"], &[]).unwrap();
        assert_eq!(got[0].shape().dims(), [rows, 3]);
        let sums = got[0].as_slice::<f32>().unwrap().chunks(3).map(|row| row.iter().sum::<f32>());
        sums.for_each(|sum| assert!((sum - 1.0).abs() < 1e-5, "probabilities add up to {sum}"));
        let column: f32 = (0..rows).map(|row| row as f32 - 1.0).sum();
        assert!((got[1].as_slice::<f32>().unwrap()[0] - column).abs() < 1e-5);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (3, 4), "a program for each size");
}

#[test]
fn mistakes_are_told() {
    let Some(accelerator) = support::accelerator("mistakes_are_told") else { return };
    let call = || Call::of("product_open");
    let refused = |call: Call, feeds: &[Tensor], code: Code, words: &str| {
        let session = call.session(feeds.len(), support::options(&accelerator));
        let names: Vec<String> = (0..feeds.len()).map(|i| format!("x{i}:0")).collect();
        let feeds: Vec<(&str, Tensor)> =
            names.iter().map(String::as_str).zip(feeds.iter().cloned()).collect();
        let e = session.run(&feeds, &["y:0"], &[]).unwrap_err();
        assert_eq!(e.code(), code, "{e}");
        assert!(e.to_string().contains(words), "{e}");
    };
    let one = [matrix(2)];
    for version in [3, 11] {
        refused(Call { version, ..call() }, &one, Code::InvalidArgument, "4 to 10");
    }
    refused(Call { platforms: &["CUDA"], ..call() }, &one, Code::NotFound, "is for CUDA");
    refused(Call { platforms: &[], ..call() }, &one, Code::InvalidArgument, "platforms");
    let garbage = b"this is no module".to_vec();
    refused(Call { module: garbage, ..call() }, &one, Code::InvalidArgument, "MLIR bytecode");
    let cut = call().module[..500].to_vec();
    refused(Call { module: cut, ..call() }, &one, Code::InvalidArgument, "ends in the middle");
    let two = [matrix(2), matrix(2)];
    refused(call(), &two, Code::InvalidArgument, "takes 1 arguments, the node has 2");
    let narrow = [Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[0f32; 4]).unwrap()];
    refused(call(), &narrow, Code::InvalidArgument, "argument 0 of the module");
    refused(call(), &[matrix(0)], Code::InvalidArgument, "Expected value >= 1");
    refused(Call { outputs: 1, ..call() }, &one, Code::InvalidArgument, "makes 2 results");
    refused(Call { dtype: DType::Int32, ..call() }, &one, Code::InvalidArgument, "Tout has int32");
}

/// Without an accelerator the step says what to do.
#[test]
fn a_cpu_alone_cannot() {
    let session = Call::of("product_open").session(1, SessionOptions::default());
    let e = session.run(&[("x0:0", matrix(2))], &["y:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::Unimplemented, "{e}");
    assert!(e.to_string().contains("--accelerator"), "{e}");
}
