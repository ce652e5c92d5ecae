//! scratch
use std::time::Instant;
use thalweg_graph::*;
use thalweg_kernel::*;
use thalweg_runtime::*;
use thalweg_tensor::*;

#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;

static FAMILY: Family = Family {
    ops: &[
        OpDef { name: "AddV2", inputs: &["x: T", "y: T"], outputs: &["z: T"], attrs: &["T: type"], shape: shape::unchanged, ..OpDef::DEFAULT },
        OpDef { name: "Placeholder", outputs: &["output: dtype"], attrs: &["dtype: type", "shape: shape = {unknown_rank: true}"], ..OpDef::DEFAULT },
    ],
    kernels: &[KernelSpec { op: "AddV2", create: |_| AnyKernel::new(|ctx| {
        let shape = ctx.input(0)?.shape().clone();
        let (mut out, took) = ctx.forward_input_or_allocate(&[0, 1], DType::Float, &shape)?;
        match took {
            Some(0) => { let b = ctx.slice::<f32>(1)?; for (o, b) in out.as_mut_slice::<f32>()?.iter_mut().zip(b) { *o += b; } }
            Some(_) => { let b = ctx.slice::<f32>(0)?; for (o, b) in out.as_mut_slice::<f32>()?.iter_mut().zip(b) { *o += b; } }
            None => { let (a, b) = (ctx.slice::<f32>(0)?, ctx.slice::<f32>(1)?); for ((o, a), b) in out.as_mut_slice::<f32>()?.iter_mut().zip(a).zip(b) { *o = a + b; } }
        }
        ctx.set_output(0, out)
    }), ..KernelSpec::CPU }, KernelSpec { op: "Placeholder", ..KernelSpec::CPU }],
};

fn time(name: &str, n: usize, mut f: impl FnMut()) {
    for _ in 0..20 { f(); }
    let mut best = f64::MAX;
    for _ in 0..30 {
        let t = Instant::now();
        for _ in 0..10 { f(); }
        best = best.min(t.elapsed().as_secs_f64() / 10.0);
    }
    println!("{name:30} {:9.2} us  {:7.2} ns/node {:6.1} M/s", best * 1e6, best / n as f64 * 1e9, n as f64 / best / 1e6);
}

fn main() {
    let ops = OpRegistry::new(structural::OPS.iter().chain(FAMILY.ops), "").unwrap();
    let kernels = KernelRegistry::new(FAMILY.kernels);
    for threads in [1, 2] {
        let opts = || SessionOptions { inter_threads: threads, intra_threads: threads, plan: thalweg_plan::Options { optimize: false, allow_soft_placement: false }, ..Default::default() };
        let n = 10_000;
        let x = Tensor::vector(&[1f32, 2., 3., 4.]).unwrap();
        // noop
        let mut s = Scope::new(ops.clone());
        let a = s.op("NoOp").name("a").build_node().unwrap();
        let mut prev = a; for _ in 0..n { prev = s.op("NoOp").after(&[prev]).build_node().unwrap(); }
        let last = s.op("NoOp").name("last").after(&[prev]).build_node().unwrap(); let _ = last;
        let wide: Vec<_> = (0..n).map(|_| s.op("NoOp").build_node().unwrap()).collect();
        s.op("NoOp").name("wide").after(&wide).build_node().unwrap();
        let c = s.constant(&Tensor::scalar(1f32)).unwrap();
        let p = s.op("Placeholder").name("p").attr("dtype", DType::Float).build().unwrap();
        let mut y = p; for _ in 0..n { y = s.add("Identity", &[y]).unwrap(); }
        let ichain = s.op("NoOp").name("ichain").after(&[y.node]).build_node().unwrap(); let _ = ichain;
        let mut layer = vec![p; 100]; for _ in 0..100 { layer = layer.iter().map(|&v| s.add("Identity", &[v]).unwrap()).collect(); }
        s.op("NoOp").name("ilayers").after(&layer.iter().map(|e| e.node).collect::<Vec<_>>()).build_node().unwrap();
        let mut y = p; for _ in 0..n { y = s.add("AddV2", &[y, p]).unwrap(); }
        s.op("NoOp").name("achain").after(&[y.node]).build_node().unwrap();
        let mut layer = vec![p; 100]; for _ in 0..100 { layer = (0..100).map(|i| s.add("AddV2", &[layer[i], layer[(i + 1) % 100]]).unwrap()).collect(); }
        s.op("NoOp").name("alayers").after(&layer.iter().map(|e| e.node).collect::<Vec<_>>()).build_node().unwrap();
        let cname = s.name_of(c);
        let session = Session::new(s.to_graph(), kernels.clone(), opts()).unwrap();
        println!("threads {threads}");
        time("no_op", 1, || { session.run(&[], &[], &["a"]).unwrap(); });
        time("scalar fetch", 1, || { session.run(&[], &[&cname], &[]).unwrap(); });
        let call = session.make_callable(&[], &[&cname], &[]).unwrap();
        time("scalar fetch callable", 1, || { call.call(&[]).unwrap(); });
        time("noop chain", n, || { session.run(&[], &[], &["last"]).unwrap(); });
        time("noop wide", n, || { session.run(&[], &[], &["wide"]).unwrap(); });
        let feeds = [("p:0", x.clone())];
        time("identity chain", n, || { session.run(&feeds, &[], &["ichain"]).unwrap(); });
        time("identity layers", n, || { session.run(&feeds, &[], &["ilayers"]).unwrap(); });
        time("add chain", n, || { session.run(&feeds, &[], &["achain"]).unwrap(); });
        time("add layers", n, || { session.run(&feeds, &[], &["alayers"]).unwrap(); });
    }
}
