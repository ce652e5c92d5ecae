//! The PJRT caller against a plugin, which `THALWEG_TEST_PJRT_PLUGIN` names: XLA's CPU backend, or
//! another with at least one device.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use thalweg_accel::pjrt::{Buffer, Client, CompileOptions, OptionValue, Plugin};
use thalweg_tensor::{Budget, Code, DType, DeviceMemory, Element, Error, Shape, Tensor};

#[path = "../../../tests/support/skips.rs"]
mod skips;

/// The plugin, or a record that `test` is skipped.
fn plugin_for(test: &str) -> Option<PathBuf> {
    let plugin = std::env::var_os("THALWEG_TEST_PJRT_PLUGIN").filter(|path| !path.is_empty());
    if plugin.is_none() {
        skips::skipped(test, "THALWEG_TEST_PJRT_PLUGIN names no plugin");
    }
    plugin.map(PathBuf::from)
}

/// A client with two devices.
fn client(path: &Path) -> Arc<Client> {
    let plugin = Plugin::load(path).unwrap();
    Client::create(&plugin, &[("cpu_device_count", OptionValue::Int(2))]).unwrap()
}

fn tensor<T: Element>(dims: &[usize], values: &[T]) -> Tensor {
    Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
}

fn on_device(device: usize) -> CompileOptions {
    CompileOptions { device, ..CompileOptions::default() }
}

/// The first output of a program on the first device.
fn run(client: &Client, program: &str, inputs: &[&Tensor]) -> Tensor {
    let program = client.compile(program, &CompileOptions::default()).unwrap();
    let inputs: Vec<Buffer> = inputs.iter().map(|t| client.upload(t, 0).unwrap()).collect();
    let outputs = program.execute(&inputs.iter().collect::<Vec<_>>(), &[]).unwrap();
    outputs[0].read().unwrap()
}

/// What a callback received, within a minute.
fn within_a_minute<T>(receiver: &mpsc::Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(60)).unwrap()
}

const DOT: &str = "
    func.func public @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        return %0 : tensor<2x2xf32>
    }";

const DOUBLE: &str = "
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = stablehlo.add %x, %x : tensor<4xf32>
        return %0 : tensor<4xf32>
    }";

/// As `DOUBLE`, in the memory of its argument.
const DOUBLE_IN_PLACE: &str = "
    func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
        %0 = stablehlo.add %x, %x : tensor<4xf32>
        return %0 : tensor<4xf32>
    }";

const INCREMENT: &str = "
    func.func public @main(%x: tensor<i32>) -> tensor<i32> {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %0 = stablehlo.add %x, %one : tensor<i32>
        return %0 : tensor<i32>
    }";

/// Takes a while: products of matrices, and their sum.
const SLOW: &str = "
    func.func public @main(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
        %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
            : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
        %1 = stablehlo.dot_general %0, %x, contracting_dims = [1] x [0]
            : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
        %2 = stablehlo.dot_general %1, %x, contracting_dims = [1] x [0]
            : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
        return %2 : tensor<512x512xf32>
    }";

fn assert_error(error: &Error, code: Code, part: &str) {
    assert!(error.code() == code && error.message().contains(part), "{error}");
}

#[test]
fn what_is_no_plugin_is_refused() {
    let missing = Plugin::load(Path::new("no/such/plugin.so")).unwrap_err();
    assert_error(&missing, Code::NotFound, "no/such/plugin.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert_error(&Plugin::load(&source).unwrap_err(), Code::InvalidArgument, "cannot load");
    // A library that every program has.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libraries = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = libraries.into_iter().find(|path| path.contains("libc.so")).unwrap();
    let e = Plugin::load(Path::new(library)).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "it has no function GetPjrtApi");
}

#[test]
fn a_plugin_is_loaded_once() {
    let Some(path) = plugin_for("a_plugin_is_loaded_once") else { return };
    let plugin = Plugin::load(&path).unwrap();
    assert!(plugin.api_version() >= (0, 60));
    let version = plugin.attribute("stablehlo_current_version").unwrap();
    assert_eq!(version.split('.').filter(|n| n.parse::<u32>().is_ok()).count(), 3, "{version}");
    assert!(Arc::ptr_eq(&plugin, &Plugin::load(&path).unwrap()));
    let folder = std::env::temp_dir().join(format!("thalweg-pjrt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("link.so");
    std::os::unix::fs::symlink(std::fs::canonicalize(&path).unwrap(), &link).unwrap();
    let linked = Plugin::load(&link);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(Arc::ptr_eq(&plugin, &linked.unwrap()));
}

#[test]
fn devices_describe_themselves() {
    let Some(path) = plugin_for("devices_describe_themselves") else { return };
    let client = client(&path);
    assert_eq!((client.platform_name(), client.devices().len()), ("cpu", 2));
    assert!(!client.platform_version().is_empty());
    for (i, device) in client.devices().iter().enumerate() {
        assert_eq!((device.ordinal(), device.id()), (i, i as i32));
        assert!(!device.kind().is_empty() && !device.debug_string().is_empty(), "{device:?}");
        assert_eq!(device.space(), format!("CPU:{i} memory"));
        // Only devices with memory of their own know its state.
        if let Err(e) = device.memory_stats() {
            assert_eq!(e.code(), Code::Unimplemented, "{e}");
        }
    }
    let plugin = client.plugin();
    let options = [
        ("no_such_option", OptionValue::Str("x".into())),
        ("another", OptionValue::IntList(vec![1, 2])),
    ];
    // Whether unknown options are errors is the plugin's affair.
    let _ = Client::create(plugin, &options);
    let wrong = Client::create(plugin, &[("cpu_device_count", OptionValue::Bool(true))]);
    assert_error(&wrong.unwrap_err(), Code::InvalidArgument, "cpu_device_count");
}

#[test]
fn matrices_are_multiplied() {
    let Some(path) = plugin_for("matrices_are_multiplied") else { return };
    let client = client(&path);
    let a = tensor(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    let b = tensor(&[2, 2], &[5.0f32, 6.0, 7.0, 8.0]);
    let product = run(&client, DOT, &[&a, &b]);
    assert_eq!(product.as_slice::<f32>().unwrap(), [19.0, 22.0, 43.0, 50.0]);
}

/// Every dtype that is memory, with its name in StableHLO; quantized ones have none of their own.
const DTYPES: &[(DType, &str)] = &[
    (DType::Bool, "i1"),
    (DType::Int8, "i8"),
    (DType::Int16, "i16"),
    (DType::Int32, "i32"),
    (DType::Int64, "i64"),
    (DType::UInt8, "ui8"),
    (DType::UInt16, "ui16"),
    (DType::UInt32, "ui32"),
    (DType::UInt64, "ui64"),
    (DType::Half, "f16"),
    (DType::Float, "f32"),
    (DType::Double, "f64"),
    (DType::BFloat16, "bf16"),
    (DType::Complex64, "complex<f32>"),
    (DType::Complex128, "complex<f64>"),
    (DType::Float8E5m2, "f8E5M2"),
    (DType::Float8E4m3fn, "f8E4M3FN"),
    (DType::Float8E4m3b11fnuz, "f8E4M3B11FNUZ"),
    (DType::Float8E5m2fnuz, "f8E5M2FNUZ"),
    (DType::Float8E4m3fnuz, "f8E4M3FNUZ"),
    (DType::QInt8, ""),
    (DType::QUInt8, ""),
    (DType::QInt16, ""),
    (DType::QUInt16, ""),
    (DType::QInt32, ""),
];

/// A tensor with a different byte at each place: 0 and 1 for bools.
fn patterned(dtype: DType, dims: &[usize]) -> Tensor {
    Tensor::filled_with(dtype, Shape::new(dims).unwrap(), None, |bytes| {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte =
                if dtype == DType::Bool { (i % 3 == 0).into() } else { (i * 37 + i / 256) as u8 };
        }
        Ok(())
    })
    .unwrap()
}

#[test]
fn every_dtype_goes_up_and_down() {
    let Some(path) = plugin_for("every_dtype_goes_up_and_down") else { return };
    let client = client(&path);
    for &(dtype, name) in DTYPES {
        for dims in [&[][..], &[7], &[3, 5], &[0], &[4, 0, 2], &[2, 3, 4, 5], &[300, 1001]] {
            let sent = patterned(dtype, dims);
            let buffer = client.upload(&sent, 1).unwrap();
            assert_eq!((buffer.dtype(), buffer.dims(), buffer.device()), (dtype, dims, 1));
            assert_eq!(buffer.size_bytes(), sent.size_bytes());
            assert!(buffer.size_on_device().unwrap() >= sent.size_bytes());
            let back = buffer.read().unwrap_or_else(|e| panic!("{dtype} {dims:?}: {e}"));
            assert_eq!((back.dtype(), back.shape()), (dtype, sent.shape()));
            assert_eq!(back.as_bytes().unwrap(), sent.as_bytes().unwrap(), "{dtype} {dims:?}");
        }
        if name.is_empty() {
            continue;
        }
        // The program names the type, so its number is right.
        let program = format!(
            "func.func public @main(%x: tensor<2x3x{name}>) -> tensor<3x2x{name}> {{
                %0 = stablehlo.transpose %x, dims = [1, 0]
                    : (tensor<2x3x{name}>) -> tensor<3x2x{name}>
                return %0 : tensor<3x2x{name}>
            }}"
        );
        let sent = patterned(dtype, &[2, 3]);
        let back = run(&client, &program, &[&sent]);
        assert_eq!((back.dtype(), back.shape().dims()), (dtype, &[3, 2][..]), "{name}");
        let of = |t: &Tensor, i: usize| {
            let size = dtype.size();
            t.as_bytes().unwrap()[i * size..][..size].to_vec()
        };
        for (row, column) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            assert_eq!(of(&sent, row * 3 + column), of(&back, column * 2 + row), "{name}");
        }
    }
}

#[test]
fn objects_stay_on_the_host() {
    let Some(path) = plugin_for("objects_stay_on_the_host") else { return };
    let client = client(&path);
    let text = Tensor::scalar_string("text");
    assert_error(&client.upload(&text, 0).unwrap_err(), Code::InvalidArgument, "string");
    let number = Tensor::scalar(1.0f32);
    assert_error(&client.upload(&number, 2).unwrap_err(), Code::InvalidArgument, "device 2");
    // A tensor of a device is read from there, or not at all.
    let there = client.upload(&number, 0).unwrap().into_tensor().unwrap();
    assert_error(&client.upload(&there, 0).unwrap_err(), Code::Internal, "CPU:0 memory");
}

#[test]
fn outputs_are_read_in_row_major_order() {
    let Some(path) = plugin_for("outputs_are_read_in_row_major_order") else { return };
    let client = client(&path);
    let program = r#"
        func.func public @main(%x: tensor<2x3xf32>)
            -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
            %0 = stablehlo.add %x, %x : tensor<2x3xf32>
            return %0 : tensor<2x3xf32>
        }"#;
    let x = tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let doubled = run(&client, program, &[&x]);
    assert_eq!(doubled.as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn mistakes_are_explained() {
    let Some(path) = plugin_for("mistakes_are_explained") else { return };
    let client = client(&path);
    let compile = |program: &str| client.compile(program, &CompileOptions::default());
    assert_error(&compile("no program").unwrap_err(), Code::InvalidArgument, "error");
    let mismatch = DOT.replace("-> tensor<2x2xf32>", "-> tensor<3x2xf32>");
    assert_error(&compile(&mismatch).unwrap_err(), Code::InvalidArgument, "tensor<3x2xf32>");
    let long = "x".repeat(100_000);
    assert!(compile(&long).unwrap_err().message().len() < 10_000);
    assert_error(
        &client.compile(DOT, &on_device(2)).unwrap_err(),
        Code::InvalidArgument,
        "there is no device 2",
    );
    let program = compile(DOT).unwrap();
    let square = client.upload(&tensor(&[2, 2], &[1.0f32; 4]), 0).unwrap();
    let vector = client.upload(&tensor(&[3], &[1.0f32; 3]), 0).unwrap();
    let elsewhere = client.upload(&tensor(&[2, 2], &[1.0f32; 4]), 1).unwrap();
    for wrong in [&[][..], &[&square], &[&square, &square, &square], &[&square, &vector]] {
        let e = program.execute(wrong, &[]).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    }
    let e = program.execute(&[&square, &elsewhere], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    let e = program.execute(&[&square, &square], &[2]).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "no argument 2");
    let other = Client::create(client.plugin(), &[]).unwrap();
    let foreign = other.upload(&tensor(&[2, 2], &[1.0f32; 4]), 0).unwrap();
    let e = program.execute(&[&square, &foreign], &[]).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "another client");
    let e = square.copy_to(&other.devices()[1]).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "another client");
}

#[test]
fn nothing_is_read_past_the_end_of_a_program() {
    let Some(path) = plugin_for("nothing_is_read_past_the_end_of_a_program") else { return };
    let client = client(&path);
    let compile = |program: &str| client.compile(program, &CompileOptions::default());
    // What follows in memory would continue the last word, and then be no text at all.
    for program in ["no program", &"x".repeat(100_000)] {
        let memory = format!("{program}xx \u{1} \u{2}");
        let e = compile(&memory[..program.len()]).unwrap_err();
        assert_error(&e, Code::InvalidArgument, "error");
    }
    let memory = format!("{DOUBLE}\u{1}");
    compile(&memory[..DOUBLE.len()]).unwrap();
}

#[test]
fn options_reach_the_compiler() {
    let Some(path) = plugin_for("options_reach_the_compiler") else { return };
    let client = client(&path);
    let compile = |name: &str, value: OptionValue| {
        let overrides = vec![(name.to_owned(), value)];
        client.compile(DOT, &CompileOptions { overrides, ..CompileOptions::default() })
    };
    compile("xla_cpu_enable_fast_math", OptionValue::Bool(true)).unwrap();
    compile("xla_backend_optimization_level", OptionValue::Int(1)).unwrap();
    compile("xla_dump_hlo_pass_re", OptionValue::Str("none".into())).unwrap();
    let e = compile("xla_no_such_option", OptionValue::Bool(true)).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "xla_no_such_option");
    let e = compile("xla_cpu_enable_fast_math", OptionValue::IntList(vec![1])).unwrap_err();
    assert_error(&e, Code::InvalidArgument, "cannot be a list");
}

#[test]
fn donated_buffers_are_gone() {
    let Some(path) = plugin_for("donated_buffers_are_gone") else { return };
    let client = client(&path);
    let program = client.compile(DOUBLE_IN_PLACE, &CompileOptions::default()).unwrap();
    let x = tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0]);
    let kept = client.upload(&x, 0).unwrap();
    let first = program.execute(&[&kept], &[0]).unwrap();
    assert!(!kept.is_donated().unwrap());
    assert_eq!(kept.read().unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(first[0].read().unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    let second = program.execute(&[&kept], &[]).unwrap();
    assert_eq!(second[0].read().unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    assert!(kept.is_donated().unwrap());
    // The host's tensor is not what was overwritten.
    assert_eq!(x.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    program.execute(&[&kept], &[]).unwrap_err();
    kept.read().unwrap_err();
    kept.copy_to(&client.devices()[1]).unwrap_err();
    assert_eq!((kept.dtype(), kept.dims()), (DType::Float, &[4][..]));
    let (sender, receiver) = mpsc::channel();
    kept.on_ready(move |outcome| sender.send(outcome).unwrap());
    within_a_minute(&receiver).unwrap_err();
}

#[test]
fn programs_run_on_their_device() {
    let Some(path) = plugin_for("programs_run_on_their_device") else { return };
    let client = client(&path);
    let x = tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0]);
    for device in [0, 1] {
        let program = client.compile(DOUBLE, &on_device(device)).unwrap();
        assert_eq!(program.device(), device);
        let input = client.upload(&x, device).unwrap();
        let output = program.execute(&[&input], &[]).unwrap().pop().unwrap();
        assert_eq!((output.device(), output.space()), (device, &*format!("CPU:{device} memory")));
        let other = output.copy_to(&client.devices()[1 - device]).unwrap();
        assert_eq!(other.device(), 1 - device);
        drop(output);
        assert_eq!(other.read().unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    }
}

#[test]
fn compiled_programs_are_loaded_again() {
    let Some(path) = plugin_for("compiled_programs_are_loaded_again") else { return };
    let client = client(&path);
    let serialized = {
        let program = client.compile(DOUBLE, &CompileOptions::default()).unwrap();
        program.serialize().unwrap()
    };
    let x = tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0]);
    for device in [0, 1] {
        let program = client.deserialize(&serialized, &on_device(device)).unwrap();
        assert_eq!((program.device(), program.num_outputs()), (device, 1));
        let input = client.upload(&x, device).unwrap();
        let output = program.execute(&[&input], &[]).unwrap();
        assert_eq!(output[0].read().unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    }
    client.deserialize(b"no program", &CompileOptions::default()).unwrap_err();
}

#[test]
fn callbacks_come_once() {
    let Some(path) = plugin_for("callbacks_come_once") else { return };
    let client = client(&path);
    let program = client.compile(SLOW, &CompileOptions::default()).unwrap();
    let input = client.upload(&tensor(&[512, 512], &[1.0f32 / 512.0; 512 * 512]), 0).unwrap();
    let output = program.execute(&[&input], &[]).unwrap().pop().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    // Some before the output is there, some after.
    for i in 0..20 {
        if i == 10 {
            output.read().unwrap();
        }
        let (calls, sender) = (calls.clone(), sender.clone());
        output.on_ready(move |outcome| {
            calls.fetch_add(1, Ordering::SeqCst);
            sender.send(outcome).unwrap();
        });
    }
    output.on_ready(|_| panic!("a panic that a test made"));
    for _ in 0..20 {
        within_a_minute(&receiver).unwrap();
    }
    drop(sender);
    // All callbacks are gone.
    let end = receiver.recv_timeout(Duration::from_secs(60));
    assert_eq!(end.unwrap_err(), mpsc::RecvTimeoutError::Disconnected);
    assert_eq!(calls.load(Ordering::SeqCst), 20);
    let read = output.read().unwrap();
    assert!(read.as_slice::<f32>().unwrap().iter().all(|&x| (x * 512.0 - 1.0).abs() < 1e-3));
}

#[test]
fn a_thousand_executions_queue() {
    let Some(path) = plugin_for("a_thousand_executions_queue") else { return };
    let client = client(&path);
    let program = client.compile(INCREMENT, &CompileOptions::default()).unwrap();
    let mut value = client.upload(&Tensor::scalar(5i32), 0).unwrap();
    for _ in 0..1000 {
        value = program.execute(&[&value], &[]).unwrap().pop().unwrap();
    }
    assert_eq!(value.read().unwrap().as_slice::<i32>().unwrap(), [1005]);
}

#[test]
fn unfinished_work_may_be_forgotten() {
    let Some(path) = plugin_for("unfinished_work_may_be_forgotten") else { return };
    let client = client(&path);
    let program = client.compile(SLOW, &CompileOptions::default()).unwrap();
    for _ in 0..20 {
        let input = {
            let sent = tensor(&[512, 512], &[1.0f32 / 512.0; 512 * 512]);
            client.upload(&sent, 0).unwrap()
        };
        let output = program.execute(&[&input], &[]).unwrap().pop().unwrap();
        output.download(None, |_| ());
        output.on_ready(|_| ());
        drop(input);
        drop(output);
    }
    drop(program);
    drop(client);
}

#[test]
fn buffers_outlive_their_client() {
    let Some(path) = plugin_for("buffers_outlive_their_client") else { return };
    let (program, input) = {
        let client = client(&path);
        let program = client.compile(DOUBLE, &CompileOptions::default()).unwrap();
        (program, client.upload(&tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0]), 0).unwrap())
    };
    let output = program.execute(&[&input], &[]).unwrap().pop().unwrap();
    drop((program, input));
    assert_eq!(output.read().unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn the_last_owner_may_be_a_callback() {
    let Some(path) = plugin_for("the_last_owner_may_be_a_callback") else { return };
    let (sender, receiver) = mpsc::channel();
    for _ in 0..5 {
        let client = client(&path);
        let program = client.compile(SLOW, &CompileOptions::default()).unwrap();
        let input = client.upload(&tensor(&[512, 512], &[0.5f32; 512 * 512]), 0).unwrap();
        let output = Arc::new(program.execute(&[&input], &[]).unwrap().pop().unwrap());
        let (kept, sender) = (output.clone(), sender.clone());
        output.download(None, move |tensor| {
            drop((kept, client, program, input));
            sender.send(tensor).unwrap();
        });
    }
    for _ in 0..5 {
        within_a_minute(&receiver).unwrap();
    }
}

#[test]
fn buffers_are_tensors() {
    let Some(path) = plugin_for("buffers_are_tensors") else { return };
    let plugin = Plugin::load(&path).unwrap();
    let client = Client::create_named(&plugin, &[], "GPU").unwrap();
    let sent = patterned(DType::BFloat16, &[3, 4]);
    let tensor = client.upload(&sent, 0).unwrap().into_tensor().unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (DType::BFloat16, sent.shape()));
    let memory = tensor.device_memory().unwrap();
    assert_eq!((memory.space(), memory.len_bytes()), ("GPU:0 memory", 24));
    assert_error(&tensor.as_bytes().unwrap_err(), Code::Internal, "GPU:0 memory");
    let buffer = Buffer::of(&tensor).unwrap();
    assert_eq!(buffer.read().unwrap().as_bytes().unwrap(), sent.as_bytes().unwrap());
    assert!(Buffer::of(&sent).is_none());
}

#[test]
fn downloads_are_charged() {
    let Some(path) = plugin_for("downloads_are_charged") else { return };
    let client = client(&path);
    let buffer = client.upload(&patterned(DType::Float, &[1000]), 0).unwrap();
    let download = |budget: &Arc<Budget>| {
        let (sender, receiver) = mpsc::channel();
        buffer.download(Some(budget), move |tensor| sender.send(tensor).unwrap());
        within_a_minute(&receiver)
    };
    let small = Budget::new(1000);
    assert_eq!(download(&small).unwrap_err().code(), Code::ResourceExhausted);
    let large = Budget::new(1 << 20);
    let tensor = download(&large).unwrap();
    assert!(large.used_bytes() >= 4000);
    drop(tensor);
    assert_eq!(large.used_bytes(), 0);
}
