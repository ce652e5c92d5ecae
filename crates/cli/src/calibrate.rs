//! `thalweg calibrate`: measures devices and the links between them, for the cost model.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_cluster::Connect;
use thalweg_graph::{Output, Scope};
use thalweg_kernel::{ACCELERATORS, DeviceName};
use thalweg_runtime::{RunOptions, Session, SessionOptions, system_environment};
use thalweg_sim::units::time_text;
use thalweg_tensor::{Context, DType, Result, Tensor, ensure, err};

use crate::accelerator::AcceleratorFlags;
use crate::step::AnySession;
use crate::{Failure, Registry, files};

/// Rows and columns of the matrices that are multiplied: on a CPU, and on an accelerator.
const MATRIX: (i32, i32) = (768, 4096);
/// Products that are timed, beyond one.
const PRODUCTS: usize = 6;
/// Elements of the vector that is negated to measure memory.
const ELEMENTS: i32 = 8 << 20;
/// Passes over it, beyond one.
const PASSES: usize = 4;
/// Kernels that do nothing of note, to measure what starting one takes.
const SMALL_KERNELS: usize = 512;
/// Elements of the large tensor that is sent to and fro, and how often.
const SENT: i32 = 2 << 20;
const HOPS: usize = 8;
/// Most pairs of tasks whose links are measured one by one.
const PAIRS_MAX: usize = 120;
/// Each time is the shortest of this many.
const REPETITIONS: usize = 5;
/// The deadline of a step.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Measure devices and links, for placement by the cost model and for simulations.
///
/// Writes a file for --devices of server, run and simulate: operations and bytes per second of each
/// device, the time to start a kernel, and latency and bandwidth between each two tasks. Nothing
/// else should run meanwhile.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// Measure the cluster that this task belongs to instead of this machine
    #[arg(long, value_name = "HOST:PORT", help_heading = "Execution")]
    server: Option<String>,

    /// File to write [default: standard output]
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    output: Option<PathBuf>,

    #[command(flatten)]
    accelerators: AcceleratorFlags,
}

/// Measures and writes the file.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        files::check_writable(path).context(|| "--output")?;
    }
    let text = match &args.server {
        Some(server) => {
            let target = match server.contains("://") {
                true => server.clone(),
                false => format!("grpc://{server}"),
            };
            let first = Session::connect(&target, &scope(registry).to_graph())?;
            let devices = first.list_devices()?;
            let mut found = Vec::new();
            for device in &devices {
                let name: DeviceName = device.name.parse().context(|| "ListDevices")?;
                found.push((name, device.memory_limit.max(0) as u64));
            }
            first.close()?;
            let (scope, probes) = probes(registry, &found)?;
            let session = Session::connect(&target, &scope.to_graph())?;
            let text = measure(&AnySession::Remote(&session), &found, &probes)?;
            session.close()?;
            text
        }
        None => {
            let options = args.accelerators.apply(None, SessionOptions::default())?;
            let mut found: Vec<(DeviceName, u64)> = Vec::new();
            for device in &options.devices {
                found.push((device.description().name.clone(), device.description().memory_bytes));
            }
            if found.is_empty() {
                let memory = options.memory_limit_bytes as u64;
                found.push((DeviceName::cpu("localhost", 0, 0), memory));
            }
            let (scope, probes) = probes(registry, &found)?;
            let session = Session::new(scope.to_graph(), registry.kernels.clone(), options)?;
            measure(&AnySession::Local(&session), &found, &probes)?
        }
    };
    match &args.output {
        Some(path) => files::write(path, text.as_bytes())?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(())
}

fn scope(registry: &Registry) -> Scope {
    Scope::new(registry.ops.clone())
}

/// Two fetches that differ in `work`: the second does that much more.
struct Probe {
    less: String,
    more: String,
    work: f64,
}

/// What is measured of each device.
struct DeviceProbes {
    flops: Probe,
    memory: Probe,
    start: Probe,
}

/// What is measured of the link between the tasks of two devices.
struct LinkProbes {
    from: usize,
    to: usize,
    small: Probe,
    large: Probe,
}

struct Probes {
    devices: Vec<DeviceProbes>,
    links: Vec<LinkProbes>,
}

fn probes(registry: &Registry, devices: &[(DeviceName, u64)]) -> Result<(Scope, Probes)> {
    ensure!(!devices.is_empty(), NotFound, "there is no device");
    let scope = scope(registry);
    let mut of_devices = Vec::with_capacity(devices.len());
    for (i, (name, _)) in devices.iter().enumerate() {
        of_devices.push(device_probes(&scope, i, name)?);
    }
    let mut links = Vec::new();
    for (from, (a, _)) in devices.iter().enumerate() {
        for (to, (b, _)) in devices.iter().enumerate().skip(from + 1) {
            let is_first = |i: usize| !devices[..i].iter().any(|d| d.0.is_same_task(&devices[i].0));
            if a.is_same_task(b) || !is_first(from) || !is_first(to) || links.len() == PAIRS_MAX {
                continue;
            }
            let name = format!("link_{from}_{to}");
            let small = hops(&scope, &format!("{name}_small"), (a, b), 1)?;
            let large = hops(&scope, &format!("{name}_large"), (a, b), SENT)?;
            links.push(LinkProbes { from, to, small, large });
        }
    }
    Ok((scope, Probes { devices: of_devices, links }))
}

fn device_probes(scope: &Scope, i: usize, device: &DeviceName) -> Result<DeviceProbes> {
    let mut s = scope.on_device(&device.to_string());
    let is_accelerator = ACCELERATORS.contains(&device.device_type.as_str());
    let size = if is_accelerator { MATRIX.1 } else { MATRIX.0 };
    let matrix = random(&mut s, &format!("matrix_{i}"), &[size, size])?;
    let product = |s: &mut Scope, x: Output| s.add("MatMul", &[matrix, x]);
    let flops = chain(&mut s, &format!("flops_{i}"), (matrix, &product), PRODUCTS)?;
    let memory = if is_accelerator {
        // Passes over one vector would be fused; a product with a vector reads the whole matrix.
        let vector = random(&mut s, &format!("vector_{i}"), &[size, 1])?;
        let bytes = f64::from(size) * f64::from(size) * 4.0;
        let probe = chain(&mut s, &format!("memory_{i}"), (vector, &product), 8 * PASSES)?;
        Probe { work: bytes * (8 * PASSES) as f64, ..probe }
    } else {
        let vector = random(&mut s, &format!("vector_{i}"), &[ELEMENTS])?;
        let negate = |s: &mut Scope, x: Output| s.add("Neg", &[x]);
        let probe = chain(&mut s, &format!("memory_{i}"), (vector, &negate), PASSES)?;
        Probe { work: f64::from(ELEMENTS) * 8.0 * PASSES as f64, ..probe }
    };
    let scalar = random(&mut s, &format!("scalar_{i}"), &[1])?;
    let negate = |s: &mut Scope, x: Output| s.add("Neg", &[x]);
    let start = chain(&mut s, &format!("start_{i}"), (scalar, &negate), SMALL_KERNELS)?;
    let operations = 2.0 * f64::from(size).powi(3) * PRODUCTS as f64;
    Ok(DeviceProbes {
        flops: Probe { work: operations, ..flops },
        memory,
        start: Probe { work: SMALL_KERNELS as f64, ..start },
    })
}

fn random(s: &mut Scope, name: &str, dims: &[i32]) -> Result<Output> {
    let shape = s.constant(&Tensor::vector(dims)?)?;
    s.op("RandomUniform").name(name).input(shape).attr("dtype", DType::Float).build()
}

type Build<'a> = &'a dyn Fn(&mut Scope, Output) -> Result<Output>;

/// Fetches of one node after `first`, and of `more` further ones; each is reduced to a scalar, so that
/// fetching it takes no time and waits for the device.
fn chain(
    s: &mut Scope,
    name: &str,
    (first, next): (Output, Build<'_>),
    more: usize,
) -> Result<Probe> {
    let mut x = next(s, first)?;
    let less = reduced(s, &format!("{name}_less"), x)?;
    for _ in 0..more {
        x = next(s, x)?;
    }
    Ok(Probe { less, more: reduced(s, &format!("{name}_more"), x)?, work: 1.0 })
}

fn reduced(s: &mut Scope, name: &str, x: Output) -> Result<String> {
    let rank = s.with_graph(|graph| graph.output(x).shape.rank()).unwrap_or(0) as i32;
    let axes = s.constant(&Tensor::vector(&(0..rank).collect::<Vec<_>>())?)?;
    s.op("Max").name(name).input(x).input(axes).build()?;
    Ok(format!("{name}:0"))
}

/// A tensor that goes from one device to the other and back, again and again.
fn hops(
    scope: &Scope,
    name: &str,
    (a, b): (&DeviceName, &DeviceName),
    elements: i32,
) -> Result<Probe> {
    let (mut near, mut far) = (scope.on_device(&a.to_string()), scope.on_device(&b.to_string()));
    let mut x = random(&mut near, name, &[elements])?;
    let less = reduced(&mut near, &format!("{name}_less"), x)?;
    for _ in 0..HOPS / 2 {
        x = far.add("Identity", &[x])?;
        x = near.add("Identity", &[x])?;
    }
    let more = reduced(&mut near, &format!("{name}_more"), x)?;
    Ok(Probe { less, more, work: HOPS as f64 })
}

/// Measures everything; the text of a devices file.
fn measure(
    session: &AnySession<'_>,
    devices: &[(DeviceName, u64)],
    probes: &Probes,
) -> Result<String> {
    let mut text = String::new();
    let failed = |_| err!(Internal, "text could not be written");
    for ((name, memory), probes) in devices.iter().zip(&probes.devices) {
        let flops = probes.flops.work / seconds(session, &probes.flops)?;
        let bandwidth = probes.memory.work / seconds(session, &probes.memory)?;
        let start = seconds(session, &probes.start)? / probes.start.work;
        eprintln!(
            "{name}: {:.1} GFLOP/s, {:.1} GB/s, {} to start a kernel",
            flops / 1e9,
            bandwidth / 1e9,
            time_text(start)
        );
        // Small kernels of an accelerator are one program: what was measured is no time to start one.
        let is_accelerator = ACCELERATORS.contains(&name.device_type.as_str());
        let start = match is_accelerator {
            true => String::new(),
            false => format!("start = \"{:.1} ns\"\n", start * 1e9),
        };
        writeln!(
            text,
            "[[device]]\nname = \"{name}\"\nflops = {flops:.4e}\nmemory_bandwidth = {bandwidth:.4e}\n\
             {start}memory = {memory}\n"
        )
        .map_err(failed)?;
    }
    for link in &probes.links {
        let (from, to) = (&devices[link.from].0, &devices[link.to].0);
        let latency = seconds(session, &link.small)? / HOPS as f64;
        let of_large = seconds(session, &link.large)? / HOPS as f64;
        let bandwidth = f64::from(SENT) * 4.0 / (of_large - latency).max(1e-9);
        let task = |d: &DeviceName| format!("/job:{}/task:{}", d.job, d.task);
        eprintln!(
            "{} and {}: {}, {:.2} GB/s",
            task(from),
            task(to),
            time_text(latency),
            bandwidth / 1e9
        );
        writeln!(
            text,
            "[[link]]\nbetween = [\"{}\", \"{}\"]\nlatency = \"{:.1} us\"\nbandwidth = {bandwidth:.4e}\n",
            task(from),
            task(to),
            latency * 1e6
        )
        .map_err(failed)?;
    }
    Ok(text)
}

/// How much longer the second fetch of a probe takes than the first.
fn seconds(session: &AnySession<'_>, probe: &Probe) -> Result<f64> {
    let (mut less, mut more) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..=REPETITIONS {
        // Taken in turns, so that a change of the machine's speed hits both.
        less = less.min(once(session, &probe.less)?);
        more = more.min(once(session, &probe.more)?);
    }
    Ok((more - less).max(1e-9))
}

fn once(session: &AnySession<'_>, fetch: &str) -> Result<f64> {
    let clock = system_environment().clock;
    let options = RunOptions { timeout: Some(STEP_LIMIT), ..RunOptions::default() };
    let begin = clock.monotonic();
    session.run_with(&options, &[], &[fetch], &[])?;
    Ok(clock.monotonic().saturating_sub(begin).as_secs_f64())
}
