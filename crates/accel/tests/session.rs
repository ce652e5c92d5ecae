//! Sessions on an accelerator: variables, training, loops, several devices, failures.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_accel::{Accelerator, AcceleratorOptions, ProgramCache};
use thalweg_graph::{NodeId, Output, Scope};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::Session;
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn session(s: &Scope, accelerator: &Arc<Accelerator>) -> Session {
    let options = support::options(accelerator);
    Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap()
}

fn node(s: &mut Scope, op: &str, name: &str, inputs: &[Output]) -> Output {
    s.op(op).name(name).inputs(inputs).build().unwrap()
}

fn placeholder(s: &mut Scope, name: &str, dtype: DType) -> Output {
    s.op("Placeholder").name(name).attr("dtype", dtype).build().unwrap()
}

/// A reference variable of 32-bit floats.
fn variable(s: &mut Scope, name: &str, shape: &[usize]) -> Output {
    let op = s.op("VariableV2").name(name).attr("dtype", DType::Float);
    op.attr("shape", &Shape::new(shape).unwrap()).build().unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.as_slice::<f32>().unwrap().to_vec()
}

/// Two nodes of one session count as one program each time it runs.
#[test]
fn a_chain_is_one_program() {
    let Some(accelerator) = support::accelerator("a_chain_is_one_program") else { return };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let mut y = x;
    for i in 0..50 {
        y = node(&mut s, "AddV2", &format!("y{i}"), &[y, x]);
    }
    let session = session(&s, &accelerator);
    let before = accelerator.counts();
    for n in 1..=3 {
        let fed = Tensor::vector(&[n as f32, 2.0]).unwrap();
        let got = session.run(&[("x:0", fed)], &["y49:0"], &[]).unwrap();
        assert_eq!(floats(&got[0]), [51.0 * n as f32, 102.0]);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 3));
    // Another shape is another program.
    let fed = Tensor::vector(&[1f32; 3]).unwrap();
    assert_eq!(floats(&session.run(&[("x:0", fed)], &["y49:0"], &[]).unwrap()[0]), [51.0; 3]);
    assert_eq!(accelerator.counts().0 - before.0, 2);
}

#[test]
fn variables_live_there_and_their_memory_is_used_again() {
    let Some(accelerator) = support::accelerator("variables_live_there") else { return };
    let mut s = scope();
    let v = variable(&mut s, "v", &[1 << 16]);
    let x = placeholder(&mut s, "x", DType::Float);
    node(&mut s, "Assign", "init", &[v, x]);
    node(&mut s, "AssignAdd", "step", &[v, x]);
    node(&mut s, "Identity", "read", &[v]);
    let session = session(&s, &accelerator);
    let e = session.run(&[], &["read:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::FailedPrecondition, "{e}");
    let ones = Tensor::vector(&vec![1f32; 1 << 16]).unwrap();
    session.run(&[("x:0", ones.clone())], &[], &["init"]).unwrap();
    for _ in 0..100 {
        session.run(&[("x:0", ones.clone())], &[], &["step"]).unwrap();
    }
    let got = session.run(&[], &["read:0"], &[]).unwrap();
    assert!(floats(&got[0]).iter().all(|&x| x == 101.0));
    // The variable, and what a few steps had in flight.
    let used = accelerator.used_bytes();
    assert!(used <= 4 * ones.size_bytes(), "{used} bytes are in use");
    // A fetched value stays what it was when the variable changes.
    let before = session.run(&[], &["read:0"], &[]).unwrap();
    session.run(&[("x:0", ones)], &[], &["step"]).unwrap();
    assert_eq!(floats(&before[0])[0], 101.0);
}

/// What a step donates is not charged a second time: state may take more than half of the memory.
#[test]
fn an_update_needs_no_second_charge() {
    let Some(accelerator) = support::accelerator("an_update_needs_no_second_charge") else {
        return;
    };
    let mut s = scope();
    let v = variable(&mut s, "v", &[1 << 20]);
    let x = placeholder(&mut s, "x", DType::Float);
    node(&mut s, "Assign", "init", &[v, x]);
    let twice = s.constant(&Tensor::scalar(2f32)).unwrap();
    let product = node(&mut s, "Mul", "product", &[v, twice]);
    node(&mut s, "Assign", "step", &[v, product]);
    let axis = s.constant(&Tensor::scalar(0i32)).unwrap();
    node(&mut s, "Max", "greatest", &[v, axis]);
    let session = session(&s, &accelerator);
    let ones = Tensor::vector(&vec![1f32; 1 << 20]).unwrap();
    session.run(&[("x:0", ones.clone())], &[], &["init"]).unwrap();
    for _ in 0..5 {
        session.run(&[], &[], &["step"]).unwrap();
    }
    assert_eq!(floats(&session.run(&[], &["greatest:0"], &[]).unwrap()[0]), [32.0]);
    let peak = accelerator.peak_bytes();
    assert!(peak < ones.size_bytes() + 1024, "{peak} bytes were in use at once");
}

/// A step that outputs a value and updates the variable keeps the value's memory.
#[test]
fn a_value_that_is_read_and_updated_is_kept() {
    let Some(accelerator) = support::accelerator("a_value_that_is_read_and_updated") else {
        return;
    };
    let mut s = scope();
    let handle = s.op("VarHandleOp").attr("dtype", DType::Float);
    let handle = handle.attr("shape", &Shape::new(&[4]).unwrap()).build().unwrap();
    let one = s.constant(&Tensor::vector(&[1f32; 4]).unwrap()).unwrap();
    let add = |s: &mut Scope, op: &str, name: &str, after: &[NodeId]| {
        s.op(op).name(name).inputs(&[handle, one]).after(after).build_node().unwrap()
    };
    add(&mut s, "AssignVariableOp", "init", &[]);
    let read = s.op("ReadVariableOp").name("read").input(handle);
    let read = read.attr("dtype", DType::Float).build().unwrap();
    add(&mut s, "AssignAddVariableOp", "step", &[read.node]);
    let session = session(&s, &accelerator);
    session.run(&[], &[], &["init"]).unwrap();
    let mut kept = Vec::new();
    for n in 1..=5 {
        kept.push(session.run(&[], &["read:0"], &["step"]).unwrap().remove(0));
        assert_eq!(floats(&kept[n - 1]), [n as f32; 4]);
    }
    assert_eq!(floats(&kept[0]), [1.0; 4]);
}

/// Steps that run at once each count.
#[test]
fn concurrent_updates_all_count() {
    let Some(accelerator) = support::accelerator("concurrent_updates_all_count") else { return };
    let mut s = scope();
    let v = variable(&mut s, "v", &[4]);
    let zero = s.constant(&Tensor::vector(&[0f32; 4]).unwrap()).unwrap();
    let one = s.constant(&Tensor::vector(&[1f32; 4]).unwrap()).unwrap();
    node(&mut s, "Assign", "init", &[v, zero]);
    node(&mut s, "AssignAdd", "step", &[v, one]);
    node(&mut s, "Identity", "read", &[v]);
    let session = session(&s, &accelerator);
    session.run(&[], &[], &["init"]).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..100 {
                    session.run(&[], &[], &["step"]).unwrap();
                }
            });
        }
    });
    assert_eq!(floats(&session.run(&[], &["read:0"], &[]).unwrap()[0]), [400.0; 4]);
}

/// Another step may read a variable while its value changes size: the old one stays until then.
#[test]
fn a_variable_that_changes_size_is_always_readable() {
    let Some(accelerator) = support::accelerator("a_variable_that_changes_size") else { return };
    let mut s = scope();
    let v = variable(&mut s, "v", &[4]);
    let four = s.constant(&Tensor::vector(&[1f32; 4]).unwrap()).unwrap();
    let (zero, two) = (Tensor::vector(&[0i32]).unwrap(), Tensor::vector(&[2i32]).unwrap());
    let (zero, two) = (s.constant(&zero).unwrap(), s.constant(&two).unwrap());
    let size = s.constant(&Tensor::vector(&[4i32]).unwrap()).unwrap();
    let longer = node(&mut s, "Tile", "longer", &[v, two]);
    let shorter = node(&mut s, "Slice", "shorter", &[v, zero, size]);
    let read = s.op("Neg").name("read").inputs(&[v]).build_node().unwrap();
    for (name, value) in [("init", four), ("grow", longer), ("shrink", shorter)] {
        let op = s.op("Assign").name(name).inputs(&[v, value]).attr("validate_shape", false);
        // What is read has the old size: its memory could be that of the old value.
        let after = if name == "init" { &[][..] } else { &[read] };
        op.after(after).build().unwrap();
    }
    let session = session(&s, &accelerator);
    session.run(&[], &[], &["init"]).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let read = || {
            while !is_done.load(Ordering::Relaxed) {
                let got = floats(&session.run(&[], &["read:0"], &[])?[0]);
                assert!(matches!(got.len(), 4 | 8) && got.iter().all(|&x| x == -1.0), "{got:?}");
            }
            Ok(())
        };
        let readers: Vec<_> = (0..3).map(|_| threads.spawn(read)).collect();
        for _ in 0..300 {
            session.run(&[], &["read:0"], &["grow"]).unwrap();
            session.run(&[], &["read:0"], &["shrink"]).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            let outcome: Result<()> = reader.join().unwrap();
            outcome.unwrap();
        }
    });
}

/// A node without a lowering runs on the CPU between two programs.
#[test]
fn a_cpu_node_between_two_regions() {
    let Some(accelerator) = support::accelerator("a_cpu_node_between_two_regions") else { return };
    let mut s = scope();
    let mut cpu = s.on_device(support::CPU);
    let x = placeholder(&mut s, "x", DType::Float);
    let a = node(&mut s, "AddV2", "a", &[x, x]);
    let b = node(&mut cpu, "Mul", "b", &[a, a]);
    let c = node(&mut s, "AddV2", "c", &[a, b]);
    node(&mut s, "Sub", "d", &[c, x]);
    let session = session(&s, &accelerator);
    let before = accelerator.counts().1;
    for n in [1f32, 3.0] {
        let got = session.run(&[("x:0", Tensor::scalar(n))], &["d:0", "a:0"], &[]).unwrap();
        assert_eq!((floats(&got[0]), floats(&got[1])), (vec![4.0 * n * n + n], vec![2.0 * n]));
    }
    assert_eq!(accelerator.counts().1 - before, 4, "two programs a step");
}

/// A constant that waits for something belongs to the region of its readers.
#[test]
fn constants_with_control_inputs_cut_nothing() {
    let Some(accelerator) = support::accelerator("constants_with_control_inputs") else { return };
    let mut s = scope();
    let (v, w) = (variable(&mut s, "v", &[2]), variable(&mut s, "w", &[2]));
    let x = placeholder(&mut s, "x", DType::Float);
    let init =
        [("init_v", v), ("init_w", w)].map(|(name, v)| node(&mut s, "Assign", name, &[v, x]));
    let first = node(&mut s, "AssignAdd", "first", &[v, x]);
    let one = Tensor::vector(&[1f32, 2.0]).unwrap();
    let mut late = s.after(&[first.node]);
    let axes = late.constant(&Tensor::scalar(0i32)).unwrap();
    let late = late.constant(&one).unwrap();
    let second = node(&mut s, "AssignAdd", "second", &[w, late]);
    node(&mut s, "Sum", "sum", &[second, axes]);
    let session = session(&s, &accelerator);
    let fed = Tensor::vector(&[1f32, 1.0]).unwrap();
    let init = init.map(|output| s.name_of(output));
    session.run(&[("x:0", fed.clone())], &[], &[&*init[0], &*init[1]]).unwrap();
    let before = accelerator.counts().1;
    let got = session.run(&[("x:0", fed)], &["sum:0"], &[]).unwrap();
    assert_eq!(floats(&got[0]), [5.0]);
    assert_eq!(accelerator.counts().1 - before, 1, "one program a step");
}

#[test]
fn errors_name_the_node() {
    let Some(accelerator) = support::accelerator("errors_name_the_node") else { return };
    let mut s = scope();
    let (x, y) = (placeholder(&mut s, "x", DType::Float), placeholder(&mut s, "y", DType::Float));
    node(&mut s, "MatMul", "product", &[x, y]);
    let session = session(&s, &accelerator);
    let matrix = |rows, columns| Tensor::zeros(DType::Float, Shape::new(&[rows, columns]).unwrap());
    let feeds = [("x:0", matrix(2, 3).unwrap()), ("y:0", matrix(2, 3).unwrap())];
    let e = session.run(&feeds, &["product:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    assert!(e.to_string().contains("product"), "{e}");
    // The session goes on.
    let feeds = [("x:0", matrix(2, 3).unwrap()), ("y:0", matrix(3, 2).unwrap())];
    session.run(&feeds, &["product:0"], &[]).unwrap();
}

/// Each accelerator opened here stands for a process.
#[test]
fn the_next_process_loads_what_this_one_compiled() {
    let name = format!("thalweg-session-programs-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let program_cache = ProgramCache::Folder(folder.clone());
    let options = AcceleratorOptions { program_cache, ..AcceleratorOptions::default() };
    let open =
        || support::accelerator_with("the_next_process_loads_what_this_one_compiled", &options);
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    node(&mut s, "Mul", "y", &[x, x]);
    let run = |accelerator: &Arc<Accelerator>, fed: &[f32]| {
        let session = session(&s, accelerator);
        let fed = Tensor::vector(fed).unwrap();
        let got = session.run(&[("x:0", fed)], &["y:0"], &[]).unwrap();
        (floats(&got[0]), accelerator.counts().0, accelerator.loads())
    };
    let Some(first) = open() else { return };
    assert_eq!(run(&first, &[2.0, 3.0]), (vec![4.0, 9.0], 1, 0));
    let second = open().unwrap();
    assert_eq!(run(&second, &[4.0, 5.0]), (vec![16.0, 25.0], 0, 1));
    // Another shape is another program.
    assert_eq!(run(&second, &[4.0]), (vec![16.0], 1, 1));
    // What the plugin cannot load is compiled again.
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let third = open().unwrap();
    assert_eq!(run(&third, &[2.0, 3.0]), (vec![4.0, 9.0], 1, 0));
    assert_eq!(run(&open().unwrap(), &[2.0, 3.0]), (vec![4.0, 9.0], 0, 1));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What is fed goes to the device once, whatever reads it there, and what is read on the host comes back
/// once, whatever else reads it.
#[test]
fn nothing_is_copied_twice() {
    let Some(accelerator) = support::accelerator("nothing_is_copied_twice") else { return };
    let mut s = scope();
    let mut cpu = s.on_device(support::CPU);
    let x = placeholder(&mut s, "x", DType::Float);
    let a = node(&mut s, "AddV2", "a", &[x, x]);
    // The CPU's node cuts the graph into two regions, both of which read x; both sides read a.
    let b = node(&mut cpu, "Mul", "b", &[a, a]);
    let c = node(&mut s, "AddV2", "c", &[a, b]);
    node(&mut s, "Sub", "d", &[c, x]);
    let session = session(&s, &accelerator);
    let fed = Tensor::vector(&vec![3f32; 1 << 18]).unwrap();
    let bytes = fed.size_bytes() as u64;
    for _ in 0..3 {
        let before = accelerator.stats();
        let got = session.run(&[("x:0", fed.clone())], &["d:0", "a:0"], &[]).unwrap();
        assert_eq!((floats(&got[0])[0], floats(&got[1])[0]), (39.0, 6.0));
        let after = accelerator.stats();
        let copied = (
            after.bytes_from_host - before.bytes_from_host,
            after.bytes_to_host - before.bytes_to_host,
        );
        // x and b there; a and d back.
        assert_eq!(copied, (2 * bytes, 2 * bytes));
    }
}

/// What does not fit ends its step; the session and what it has there live on.
#[test]
fn memory_that_is_not_there_ends_the_step() {
    // Of 8 GB, about 800 kB.
    let options =
        AcceleratorOptions { memory_fraction: Some(1e-4), ..AcceleratorOptions::default() };
    let test = "memory_that_is_not_there_ends_the_step";
    let Some(accelerator) = support::accelerator_with(test, &options) else { return };
    let mut s = scope();
    let v = variable(&mut s, "v", &[1000]);
    let x = placeholder(&mut s, "x", DType::Float);
    let one = s.constant(&Tensor::vector(&[1f32; 1000]).unwrap()).unwrap();
    node(&mut s, "Assign", "init", &[v, one]);
    node(&mut s, "Identity", "read", &[v]);
    let column = s.constant(&Tensor::scalar(1i32)).unwrap();
    let column = s.op("ExpandDims").name("column").inputs(&[x, column]).build().unwrap();
    node(&mut s, "AddV2", "table", &[column, x]);
    node(&mut s, "Neg", "negative", &[x]);
    let session = session(&s, &accelerator);
    session.run(&[], &[], &["init"]).unwrap();
    let fed = |count: usize| [("x:0", Tensor::vector(&vec![1f32; count]).unwrap())];
    for _ in 0..3 {
        // An argument, then a result that is too large.
        for (count, fetch) in [(300_000, "negative:0"), (1000, "table:0")] {
            let e = session.run(&fed(count), &[fetch], &[]).unwrap_err();
            assert_eq!(e.code(), Code::ResourceExhausted, "{fetch}: {e}");
        }
        let got = session.run(&fed(1000), &["negative:0", "read:0"], &[]).unwrap();
        assert_eq!((floats(&got[0])[999], floats(&got[1])[999]), (-1.0, 1.0));
    }
    let used = accelerator.used_bytes();
    assert!(used < 50_000, "{used} bytes are still charged");
}
