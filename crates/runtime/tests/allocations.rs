//! A warm step's heap allocations do not grow with the number of nodes, nor with the iterations of its loops.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::*;
use thalweg_graph::{Output, Scope};
use thalweg_tensor::{Shape, Tensor};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed, and the peak of that.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn change(bytes: isize) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
        change(layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        change(-(layout.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
        change(size as isize - layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Build = fn(&mut Scope, Output, usize) -> Output;

/// Allocations on this thread of one warm step. One thread runs it all, so none is missed.
fn allocations(build: Build, nodes: usize, x: &Tensor) -> usize {
    let mut s = scope();
    let input = feed(&mut s, "x");
    let last = build(&mut s, input, nodes);
    let name = s.name_of(last);
    let mut options = options(1);
    options.plan.optimize = false;
    let s = thalweg_runtime::Session::new(s.to_graph(), registries().1, options).unwrap();
    assert!(s.planned_nodes(&["x"], &[&name], &[]).unwrap() >= nodes / 2);
    let run = || s.run(&[("x", x.clone())], &[&name], &[]).unwrap();
    for _ in 0..70 {
        run();
    }
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

fn chain(s: &mut Scope, x: Output, nodes: usize, op: &str, inputs: usize) -> Output {
    (0..nodes).fold(x, |last, _| s.add(op, &[last, x][..inputs]).unwrap())
}

fn no_ops(s: &mut Scope, x: Output, nodes: usize) -> Output {
    let mut last = s.op("NoOp").after(&[x.node]).build_node().unwrap();
    for _ in 1..nodes {
        last = s.op("NoOp").after(&[last]).build_node().unwrap();
    }
    s.op("Identity").input(x).after(&[last]).build().unwrap()
}

fn layers(s: &mut Scope, x: Output, nodes: usize) -> Output {
    let mut layer = vec![x; 10];
    for _ in 0..nodes / 10 {
        let next = (0..10).map(|i| s.add("AddV2", &[layer[i], layer[(i + 1) % 10]]).unwrap());
        layer = next.collect();
    }
    layer[0]
}

#[test]
fn do_not_grow_with_the_nodes() {
    let matrix = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1.0f32; 4]).unwrap();
    let cases: [(&str, Build, Tensor); 5] = [
        ("Identity", |s, x, n| chain(s, x, n, "Identity", 1), four(1.0)),
        ("NoOp", no_ops, four(1.0)),
        ("AddV2", |s, x, n| chain(s, x, n, "AddV2", 2), four(1.0)),
        ("layers", layers, four(1.0)),
        ("MatMul", |s, x, n| chain(s, x, n, "MatMul", 2), matrix),
    ];
    for (name, build, x) in cases {
        let (few, many) = (allocations(build, 100, &x), allocations(build, 10_000, &x));
        println!("{name}: {few} allocations for 100 nodes, {many} for 10,000");
        assert!(many <= few + 8, "{name}: {few} for 100 nodes, {many} for 10,000");
    }
}

/// Peak of the bytes that a loop of so many iterations allocates, and its number of allocations; as
/// frames, and as functions.
fn bytes_in_loop(iterations: i32, parallel: i64, is_function: bool) -> (isize, usize) {
    let session = if is_function {
        let mut s = scope();
        let limit = s.constant(&Tensor::scalar(iterations)).unwrap();
        let one = s.constant(&Tensor::scalar(1i32)).unwrap();
        let zero = s.constant(&Tensor::scalar(0i32)).unwrap();
        let end = s
            .while_loop(
                &[zero],
                |s, vars| s.add("Less", &[vars[0], limit]),
                |s, vars| Ok(vec![s.add("AddV2", &[vars[0], one])?]),
            )
            .unwrap();
        s.op("Identity").name("exit").input(end[0]).build().unwrap();
        thalweg_runtime::Session::new(s.to_graph(), registries().1, options(1)).unwrap()
    } else {
        let mut flow = flow::Flow::default();
        flow.constant("zero", Tensor::scalar(0i32), &[]);
        flow.count("", "zero", iterations, parallel);
        flow.session(1).unwrap()
    };
    let run = || {
        let out = session.run(&[], &["exit"], &[]).unwrap();
        assert_eq!(out[0].scalar_value::<i32>().unwrap(), iterations);
    };
    run();
    let (live, count) = (LIVE.get(), COUNT.get());
    PEAK.set(live);
    run();
    (PEAK.get() - live, COUNT.get() - count)
}

#[test]
fn do_not_grow_with_the_iterations() {
    for (parallel, is_function) in [(1, false), (10, false), (1, true)] {
        let (few, asked_few) = bytes_in_loop(100, parallel, is_function);
        let (many, asked_many) = bytes_in_loop(5_000, parallel, is_function);
        println!(
            "{parallel} {is_function}: {few} and {many} bytes, {asked_few} and {asked_many} times"
        );
        assert!(many <= few + 256, "{parallel} {is_function}: {few} bytes, {many} for more");
        // A closure, dropped after its call, reports a function's end.
        let by_iteration = if is_function { 2 * 5_000 } else { 0 };
        assert!(
            asked_many <= asked_few + 8 + by_iteration,
            "{parallel}: {asked_few}, {asked_many}"
        );
    }
}
