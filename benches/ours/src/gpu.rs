//! Our peer of the benchmarks on an accelerator (`benches/gpu`): training steps whose variables and samples
//! lie in the device's memory, and an empty program.
//!
//!     thalweg-bench-gpu [--fast] [--graphs FOLDER] [--log-placement] [--version]
//!
//! `THALWEG_ACCELERATOR` names the plugin; without it, it is looked for as `--accelerator auto` does. A row
//! `gpu/mlp` is a model of `thalweg::train`, `gpu/mlp/tf` the graph of TensorFlow's client that `tf_models.py`
//! wrote into FOLDER; `/small` at the end has either at a size for CPUs.

mod gpu_models;
mod protocol;
#[cfg(test)]
#[path = "../../../tests/support/skips.rs"]
mod skips;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use gpu_models::{Scale, Training};
use thalweg_accel::{Accelerator, AcceleratorOptions, Choice, Precision};
use thalweg_api::{Output, Session, Step, session_options};
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice, PhysicalDevice, name_devices};
use thalweg_runtime::SessionOptions;
use thalweg_tensor::{Result, bail, ensure, err};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Steps before a row is measured.
const WARM_UP: u64 = 5;
/// Bytes of tensors in the host's memory.
const HOST_BYTES: usize = 64 << 30;

fn main() -> Result<()> {
    let flags = Flags::parse(std::env::args().skip(1))?;
    if flags.asks_version {
        println!("{}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let precision = if flags.is_fast { Precision::Fast } else { Precision::Full };
    let options = AcceleratorOptions { precision, ..AcceleratorOptions::default() };
    let found = thalweg_accel::open(&Choice::Auto, &options)?.into_iter().next();
    let accelerator = found.ok_or_else(|| err!(NotFound, "there is no accelerator"))?;
    protocol::serve(
        |name| {
            let training = training_of(name, &flags)?;
            let units = training.units;
            Ok((units, Row::new(&training, &accelerator, &flags)?))
        },
        Row::run,
        Row::report,
    );
    Ok(())
}

/// The program's flags.
#[derive(Default)]
struct Flags {
    /// Whether products of 32-bit floats may be rounded.
    is_fast: bool,
    /// Where the graphs of the `/tf` rows are.
    graphs: PathBuf,
    /// Whether the device of each node is printed.
    logs_placement: bool,
    asks_version: bool,
}

impl Flags {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Flags> {
        let mut flags = Flags::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--fast" => flags.is_fast = true,
                "--log-placement" => flags.logs_placement = true,
                "--version" => flags.asks_version = true,
                "--graphs" => {
                    let folder = args.next();
                    flags.graphs =
                        folder.ok_or_else(|| err!(InvalidArgument, "--graphs FOLDER"))?.into();
                }
                _ => bail!(InvalidArgument, "unknown flag {arg}"),
            }
        }
        Ok(flags)
    }
}

fn training_of(row: &str, flags: &Flags) -> Result<Training> {
    let (base, scale) = match row.strip_suffix("/small") {
        Some(base) => (base, Scale::Small),
        None => (row, Scale::Full),
    };
    match base.strip_suffix("/tf") {
        Some(base) => gpu_models::read(base, scale, &flags.graphs),
        None => gpu_models::build(base, scale),
    }
}

/// Options of a session with a CPU and, as the device for whatever can run there, an accelerator.
fn options(accelerator: Option<&Arc<Accelerator>>) -> SessionOptions {
    let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), HOST_BYTES as u64);
    let physical: Vec<Arc<dyn PhysicalDevice>> =
        accelerator.into_iter().map(|a| a.clone() as Arc<dyn PhysicalDevice>).collect();
    let devices = std::iter::once(HostDevice::shared(cpu))
        .chain(name_devices(&physical, "localhost", 0, 1))
        .collect();
    let mut options =
        SessionOptions { devices, memory_limit_bytes: HOST_BYTES, ..session_options() };
    options.plan.allow_soft_placement = true;
    options.plan.choice = thalweg_plan::Choice::Default;
    options
}

/// A row with a session on the accelerator.
struct Row {
    /// Runs a step; it returns when its programs are enqueued.
    step: Step<(), ()>,
    /// Runs a step and reads the loss, which ends when all programs have run.
    last: Step<(), Output<f32>>,
    accelerator: Arc<Accelerator>,
    losses: Vec<f32>,
    /// Seconds that enqueuing a step took, on average over the last run.
    enqueue_seconds: f64,
    /// Programs of a step, over the last run.
    programs_per_step: f64,
}

impl Row {
    fn new(training: &Training, accelerator: &Arc<Accelerator>, flags: &Flags) -> Result<Row> {
        let mut options = options(Some(accelerator));
        if flags.logs_placement {
            options.placement_log = Some(Arc::new(|placed: &thalweg_runtime::PlacedNode<'_>| {
                eprintln!("{}: {} {}", placed.device, placed.op, placed.node);
            }));
        }
        let session: Session = training.graph.session_with(options)?;
        let step = session.prepare((), (), &[&training.step])?;
        let last = session.prepare((), &training.loss, &[&training.step])?;
        let mut row = Row {
            step,
            last,
            accelerator: accelerator.clone(),
            losses: Vec::new(),
            enqueue_seconds: 0.0,
            programs_per_step: 0.0,
        };
        row.run(WARM_UP)?;
        row.run(WARM_UP)?;
        Ok(row)
    }

    /// Runs steps, each enqueued while the one before runs, and waits for the last.
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn run(&mut self, count: u64) -> Result<()> {
        ensure!(count > 0, InvalidArgument, "no steps");
        let executed = self.accelerator.counts().1;
        let start = Instant::now();
        for _ in 1..count {
            self.step.run(())?;
        }
        self.enqueue_seconds = start.elapsed().as_secs_f64() / (count - 1).max(1) as f64;
        let loss: f32 = self.last.run(())?;
        ensure!(loss.is_finite(), Internal, "the loss is {loss}");
        self.losses.push(loss);
        let programs = self.accelerator.counts().1 - executed;
        self.programs_per_step = programs as f64 / count as f64;
        Ok(())
    }

    /// What the driver shows beside the times.
    fn report(&self) -> String {
        let stats = self.accelerator.plugin_device().memory_stats().unwrap_or_default();
        let losses: Vec<String> = self.losses.iter().map(|loss| format!("{loss:.4}")).collect();
        let peak = stats.peak_bytes_in_use;
        format!(
            "peak_mib={} tensors_mib={} programs={} enqueue_us={:.1} compilations={} losses={}",
            peak.map_or("?".to_owned(), |bytes| (bytes >> 20).to_string()),
            self.accelerator.peak_bytes() >> 20,
            self.programs_per_step,
            self.enqueue_seconds * 1e6,
            self.accelerator.counts().0,
            losses.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use thalweg_accel::PluginChoice;
    use thalweg_train::LossScale;

    use super::*;

    /// Steps that are compared.
    const STEPS: usize = 6;

    /// The accelerator of a plugin for tests; a record that `test` is skipped if there is none.
    fn accelerator(test: &str) -> Option<Arc<Accelerator>> {
        let Some(path) = std::env::var_os("THALWEG_TEST_PJRT_PLUGIN") else {
            skips::skipped(test, "THALWEG_TEST_PJRT_PLUGIN names no plugin");
            return None;
        };
        let plugin = PluginChoice { path: path.into(), device_type: None, count: None };
        let opened = thalweg_accel::open(&Choice::Plugin(plugin), &AcceleratorOptions::default());
        opened.unwrap().into_iter().next()
    }

    /// The losses of the first steps on a CPU or an accelerator, and the programs of the steps but the first.
    fn losses(training: &Training, accelerator: Option<&Arc<Accelerator>>) -> (Vec<f32>, u64) {
        let session = training.graph.session_with(options(accelerator)).unwrap();
        let step = session.prepare((), &training.loss, &[&training.step]).unwrap();
        let mut losses: Vec<f32> = vec![step.run(()).unwrap()];
        let counts = || accelerator.map_or((0, 0), |a| a.counts());
        let before = counts();
        losses.extend((1..STEPS).map(|_| -> f32 { step.run(()).unwrap() }));
        let after = counts();
        assert_eq!(before.0, after.0, "steps compile nothing after the first");
        (losses, after.1 - before.1)
    }

    /// Compares with a CPU; returns the programs of all steps but the first.
    fn check(training: &Training, accelerator: &Arc<Accelerator>, tolerance: f32) -> u64 {
        let (wanted, _) = losses(training, None);
        let (got, programs) = losses(training, Some(accelerator));
        for (ours, cpus) in got.iter().zip(&wanted) {
            let gap = (ours - cpus).abs() / cpus.abs().max(0.1);
            assert!(gap <= tolerance, "{got:?}, on a CPU {wanted:?}");
        }
        assert!(got[STEPS - 1] < got[0], "it does not learn: {got:?}");
        programs
    }

    fn is_one_program(row: &str, tolerance: f32) {
        let Some(accelerator) = accelerator(row) else { return };
        let training = training_of(row, &Flags::default()).unwrap();
        assert_eq!(check(&training, &accelerator, tolerance), STEPS as u64 - 1, "{row}");
    }

    #[test]
    fn an_mlp_is_one_program() {
        is_one_program("gpu/mlp/small", 1e-4);
    }

    #[test]
    fn a_language_model_is_one_program() {
        is_one_program("gpu/lstm/small", 1e-4);
    }

    #[test]
    fn resnet_is_one_program() {
        is_one_program("gpu/resnet50/small", 5e-2);
    }

    #[test]
    fn gpt2_is_one_program() {
        is_one_program("gpu/gpt2/small", 2e-2);
    }

    #[test]
    fn half_precision_with_a_loss_scale_learns() {
        let Some(accelerator) = accelerator("half_precision_with_a_loss_scale") else { return };
        let training = gpu_models::half_precision(LossScale::dynamic());
        check(&training, &accelerator, 1e-2);
    }

    #[test]
    fn the_null_program_adds_one() {
        let Some(accelerator) = accelerator("the_null_program") else { return };
        let training = gpu_models::build("gpu/null", Scale::Small).unwrap();
        let mut row = Row::new(&training, &accelerator, &Flags::default()).unwrap();
        row.run(10).unwrap();
        assert_eq!(row.losses.last().map(|loss| loss.round() as u64), Some(2 * WARM_UP + 9));
        assert!(row.report().contains("programs=1 "), "{}", row.report());
    }
}
