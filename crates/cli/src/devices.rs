//! `thalweg devices`: the devices of this machine, and what is missing for others.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use thalweg_accel::{
    Accelerator, AcceleratorOptions, Choice, PLUGIN_VARIABLE, Probe, candidates, open,
    searched_folders,
};
use thalweg_runtime::system_environment;
use thalweg_tensor::{DType, Result};

use crate::Failure;
use crate::inspect::bytes_text;

/// List the accelerators of this machine, with plugin, memory and measured speed.
///
/// Where there are none, it says which folders it looked into and what to install.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// Accelerators to list: auto, or PLUGIN.so[=TYPE[:COUNT]] [default: auto]
    #[arg(long, value_name = "WHICH", help_heading = "Accelerators")]
    accelerator: Option<Choice>,

    /// Do not measure speed
    #[arg(long, help_heading = "Output")]
    quick: bool,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Hardware, and a file that the system has where its driver is loaded.
const HARDWARE: &[(&str, &str)] = &[
    ("an NVIDIA GPU", "/proc/driver/nvidia/version"),
    ("an AMD GPU", "/dev/kfd"),
    ("a TPU", "/dev/accel0"),
];

/// What is listed of one accelerator.
struct Row {
    name: String,
    kind: String,
    plugin: String,
    version: String,
    memory_bytes: Option<u64>,
    /// Floating-point operations a second in 32 and in 16 bits, and bytes a second.
    speed: Option<[f64; 3]>,
}

/// Lists the devices.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let choice = args.accelerator.clone().unwrap_or(Choice::Auto);
    let devices = open(&choice, &AcceleratorOptions::default())?;
    let rows: Vec<Row> = devices
        .iter()
        .enumerate()
        .map(|(i, device)| row(i, device, args.quick))
        .collect::<Result<_>>()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if args.json {
        let accelerators: Vec<serde_json::Value> = rows.iter().map(as_json).collect();
        let all = json!({ "cpu_cores": cores, "accelerators": accelerators });
        return Ok(writeln!(out, "{all}")?);
    }
    writeln!(out, "/device:CPU:0  {cores} cores")?;
    for row in &rows {
        print(row, out)?;
    }
    if rows.is_empty() {
        explain(out)?;
    }
    Ok(())
}

fn row(index: usize, device: &Accelerator, is_quick: bool) -> Result<Row> {
    let (client, plugin) = (device.client(), device.client().plugin());
    let (major, minor) = plugin.api_version();
    let mut version = format!(
        "{} {}, PJRT {major}.{minor}",
        client.platform_name(),
        first_line(client.platform_version())
    );
    for (attribute, what) in [("xla_version", "XLA"), ("stablehlo_current_version", "StableHLO")] {
        if let Some(value) = plugin.attribute(attribute) {
            version.push_str(&format!(", {what} {value}"));
        }
    }
    let stats = device.plugin_device().memory_stats().unwrap_or_default();
    Ok(Row {
        name: format!("/device:{}:{index}", device.device_type()),
        kind: device.plugin_device().kind().to_owned(),
        plugin: plugin.path().display().to_string(),
        version,
        memory_bytes: stats.bytes_limit,
        speed: if is_quick { None } else { Some(measure(device)?) },
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

/// Operations a second of products in 32 and 16 bits, and bytes a second of a copy.
fn measure(device: &Accelerator) -> Result<[f64; 3]> {
    // What takes a moment on a processor, and enough to keep a large accelerator busy elsewhere.
    let is_cpu = device.device_type() == "XLA_CPU";
    let (size, elements) = if is_cpu { (1024, 1 << 24) } else { (8192, 1 << 28) };
    Ok([
        rate(&device.product_probe(size, DType::Float)?)?,
        rate(&device.product_probe(size, DType::BFloat16)?)?,
        rate(&device.copy_probe(elements)?)?,
    ])
}

/// Work a second, the best of a few runs.
fn rate(probe: &Probe) -> Result<f64> {
    let clock = system_environment().clock;
    probe.run()?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = clock.monotonic();
        probe.run()?;
        best = best.min(clock.monotonic().saturating_sub(begin).as_secs_f64());
    }
    Ok(probe.work / best)
}

fn print(row: &Row, out: &mut dyn Write) -> Result<(), Failure> {
    let memory =
        row.memory_bytes.map(|b| format!(", {} of memory", bytes_text(b))).unwrap_or_default();
    writeln!(out, "{}  {}{memory}", row.name, row.kind)?;
    if let Some([f32_rate, bf16_rate, copy]) = row.speed {
        writeln!(
            out,
            "    measured: {:.3} TFLOP/s float, {:.3} TFLOP/s bfloat16, {:.1} GB/s memory",
            f32_rate / 1e12,
            bf16_rate / 1e12,
            copy / 1e9
        )?;
    }
    writeln!(out, "    plugin: {} ({})", row.plugin, row.version)?;
    Ok(())
}

fn as_json(row: &Row) -> serde_json::Value {
    let [f32_rate, bf16_rate, copy] = row.speed.map_or([None; 3], |speed| speed.map(Some));
    json!({
        "name": row.name,
        "kind": row.kind,
        "plugin": row.plugin,
        "version": row.version,
        "memory_bytes": row.memory_bytes,
        "float_flops_per_second": f32_rate,
        "bfloat16_flops_per_second": bf16_rate,
        "memory_bytes_per_second": copy,
    })
}

/// What was looked for, and what to install.
fn explain(out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "no accelerator")?;
    for candidate in candidates()? {
        writeln!(out, "    {} cannot be used (see the warnings)", candidate.path.display())?;
    }
    writeln!(out, "looked in ${PLUGIN_VARIABLE} and in")?;
    for folder in searched_folders() {
        writeln!(out, "    {}", folder.display())?;
    }
    for (hardware, path) in HARDWARE {
        if Path::new(path).exists() {
            writeln!(out, "this machine has {hardware} ({path}), for which a plugin is missing")?;
        }
    }
    writeln!(
        out,
        "for an NVIDIA GPU, in a Python environment: pip install \"jax[cuda13]\"\n\
         for a TPU: pip install \"jax[tpu]\"\n\
         for an AMD GPU, with ROCm: pip install jax-rocm7-plugin jax-rocm7-pjrt\n\
         any other PJRT plugin: --accelerator PLUGIN.so=GPU"
    )?;
    Ok(())
}
