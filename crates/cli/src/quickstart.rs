//! `thalweg quickstart`: trains an MNIST classifier on a cluster of processes, kills one of them,
//! and exports, runs and serves the model.

mod digits;
mod paste;
mod process;
mod served;
mod tasks;
mod watched;

use std::fs;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_api::Output;
use thalweg_cluster::grpc::{TaskState, status_of};
use thalweg_cluster::{ClusterSpec, ConnectOptions};
use thalweg_kernel::Environment;
use thalweg_runtime::{LoadOptions, SavedModel, system_environment};
use thalweg_storage::ByUrl;
use thalweg_tensor::{Context, Result, Tensor, ensure, err};
use thalweg_train::mnist::{self, Digits};
use thalweg_train::trainer::{Outcome, Screen};
use thalweg_train::{
    Adam, Cluster, Conv2d, Dense, Flatten, Layer, MaxPool2d, Mode, Model, Net, Rate, Sequential,
    Served, TrainOptions, Trainer, losses, metrics,
};

use crate::accelerator::{AcceleratorFlags, NO_ACCELERATOR, wants_accelerator};
use crate::{Failure, Registry};
use paste::quoted;
use served::ServedPredictions;
use tasks::{FaultInjector, Tasks};
use watched::Watched;

/// The size of a shard in batches.
const BATCHES_PER_SHARD: usize = 5;
/// The number of digits that are classified by the exported model, and by its server.
const SHOWN: usize = 10;

/// Train an MNIST classifier on a local cluster, kill a worker, and serve the model.
///
/// Starts a parameter server and two workers on this machine, trains a convolutional network on
/// MNIST (which is compiled in), kills a worker during training, exports a SavedModel, loads it,
/// classifies all test images, and sends ten of them to a model server over REST. Nothing outside
/// this machine is contacted. The last line is JSON.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Number of training images, at most 60000
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(100..=60_000), help_heading = "Training")]
    images: u32,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Training")]
    epochs: u32,

    /// Batch size
    #[arg(long, alias = "batch", value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Training")]
    batch_size: u32,

    /// Filters of the first layer; the second has twice as many
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Training")]
    filters: u32,

    /// Number of test images, at most 10000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=10_000), help_heading = "Training")]
    test_images: u32,

    /// Maximum number of updates between checkpoints, which can be lost with the parameter server
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(3..), help_heading = "Failures")]
    checkpoint_every: u32,

    /// Task to kill during training: ps/0, worker/0 or worker/1; several are killed one after the
    /// other
    #[arg(
        long = "kill",
        value_name = "TASK",
        default_value = "worker/1",
        help_heading = "Failures"
    )]
    kills: Vec<String>,

    /// Kill no task
    #[arg(long, alias = "undisturbed", conflicts_with = "kills", help_heading = "Failures")]
    no_kill: bool,

    /// Device of workers, evaluation and the model server: cpu, or gpu for whatever accelerator there
    /// is [default: the accelerator, if --accelerator gives one]
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "gpu"], ignore_case = true,
          help_heading = "Accelerators")]
    device: Option<String>,

    #[command(flatten)]
    accelerators: AcceleratorFlags,

    /// Serve a dashboard of the tasks and of the training on this machine until the training ends; its
    /// address is printed first
    #[arg(long, help_heading = "Output")]
    dashboard: bool,

    /// Folder for checkpoints, event files, logs and the model [default: a new folder]
    #[arg(long, alias = "folder", value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,
}

/// Runs all steps.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let clock = system_environment().clock;
    let begin = clock.monotonic();
    let folder = folder(args)?;
    let accelerators = shared(args);
    let tasks = Arc::new(Tasks::start(&folder, &accelerators.to_args())?);
    writeln!(out, "1. A cluster on this machine, each task a process:")?;
    for (name, address) in tasks.addresses() {
        writeln!(out, "     {name} at {address}, process {}", tasks.id(&name))?;
    }
    report_devices(args, &tasks, out)?;
    let watched = match args.dashboard {
        true => Some(Watched::start(tasks.spec().parse()?, &folder, registry, out)?),
        false => None,
    };
    let digits = mnist::train()?.first(args.images as usize);
    writeln!(out, "\n2. Training: {} images, {} epochs.", digits.len(), args.epochs)?;
    out.flush()?;
    let faults = faults(args, &tasks, digits.len())?;
    let outcome = train(args, registry, (&folder, &tasks), &faults, &digits)?;
    report_training(&outcome, &faults, out)?;
    drop(watched);
    // The parameter server and the workers are no longer needed.
    tasks.end();

    let checkpoint = outcome.checkpoint.clone();
    let checkpoint = checkpoint.ok_or_else(|| err!(Internal, "training left no checkpoint"))?;
    let filters = args.filters as usize;
    let models = format!("{folder}/model");
    let served = |model: &Model| served(model, filters);
    let saved_model = thalweg_train::export_with(registry, &checkpoint, &models, served)?;
    let model = load(&saved_model, registry, &accelerators)?;
    let test = mnist::test()?.first(args.test_images as usize);
    let accuracy = test_accuracy(&model, &test)?;
    writeln!(out, "\n3. Exported, loaded again and evaluated on {} test images:", test.len())?;
    writeln!(out, "     accuracy {:.2} %", accuracy * 100.0)?;
    writeln!(out, "\n4. Ten of them, with predicted classes and probabilities:\n")?;
    let shown: Vec<usize> = (0..SHOWN).collect();
    let predictions = classify(&model, &test, &shown)?;
    digits::show(&test, &shown.into_iter().zip(predictions).collect::<Vec<_>>(), out)?;
    let served = serve(&folder, &accelerators.to_args(), out)?;
    print_next_steps(&folder, &checkpoint, &saved_model, &outcome.events, out)?;
    let detection = faults.detection().map(|time| time.as_secs_f64());
    let summary = serde_json::json!({
        "test_accuracy": accuracy,
        "train_seconds": outcome.took.as_secs_f64(),
        "detection_seconds": detection,
        "updates_lost": outcome.updates_lost,
        "checkpoint": checkpoint,
        "saved_model": saved_model,
        "events": outcome.events,
        "request": served.request,
        "served_classes": served.predictions.iter().map(|(class, _)| class).collect::<Vec<_>>(),
        "seconds": clock.monotonic().saturating_sub(begin).as_secs_f64(),
    });
    writeln!(out, "{summary}")?;
    Ok(())
}

/// The accelerators of each process. Both workers and this process share a GPU.
fn shared(args: &Args) -> AcceleratorFlags {
    let flags = args.accelerators.for_device(args.device.as_deref());
    let share = flags.accelerator_memory.or(flags.accelerator.is_some().then_some(0.3));
    AcceleratorFlags { accelerator_memory: share, ..flags }
}

/// Says which accelerators the workers have; without any, `--device gpu` is an error.
fn report_devices(args: &Args, tasks: &Tasks, out: &mut dyn Write) -> Result<(), Failure> {
    let is_accelerator = |name: &&String| !name.contains("/device:CPU:");
    let mut found = Vec::new();
    for report in status_of(&tasks.spec().parse()?, 0, Duration::from_secs(10))? {
        if let TaskState::Alive(status) = report.state {
            found.extend(status.devices.iter().filter(is_accelerator).cloned());
        }
    }
    for name in &found {
        writeln!(out, "     {name}")?;
    }
    let wants = wants_accelerator(args.device.as_deref());
    if wants && found.is_empty() {
        return Err(err!(NotFound, "{NO_ACCELERATOR}").into());
    }
    Ok(())
}

fn folder(args: &Args) -> Result<String> {
    let folder = args.output.clone().unwrap_or_else(|| {
        let now = system_environment().clock.wall();
        std::env::temp_dir().join(format!("thalweg-quickstart-{}", now.as_millis()))
    });
    let failed = |e: io::Error| err!(Unavailable, "{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    // Absolute, because tasks may have another working directory.
    let folder = fs::canonicalize(&folder).map_err(failed)?;
    Ok(folder.display().to_string())
}

/// The tasks to kill, and when.
fn faults(args: &Args, tasks: &Arc<Tasks>, digits: usize) -> Result<Arc<FaultInjector>, Failure> {
    let kills = if args.no_kill { Vec::new() } else { args.kills.clone() };
    if let Some(unknown) = kills.iter().find(|name| !tasks.has(name)) {
        return Err(Failure::Usage(format!(
            "--kill {unknown}: there is no such task; there are ps/0, worker/0 and worker/1"
        )));
    }
    let updates = digits.div_ceil(args.batch_size as usize) as u64 * u64::from(args.epochs);
    Ok(Arc::new(FaultInjector::new(tasks.clone(), kills, updates)))
}

fn train(
    args: &Args,
    registry: &Registry,
    (folder, tasks): (&str, &Tasks),
    drill: &Arc<FaultInjector>,
    digits: &Digits,
) -> Result<Outcome> {
    let spec: ClusterSpec = tasks.spec().parse()?;
    // Short: the trainer tries again, and the loss of a task is to be detected soon.
    let options = ConnectOptions { connect_timeout: Duration::from_secs(1), ..Default::default() };
    let cluster = Cluster::of(spec)?.options(options).with_registry(registry.clone());
    let options = TrainOptions {
        folder: folder.to_owned(),
        mode: Mode::Async,
        batch: args.batch_size as usize,
        epochs: args.epochs.into(),
        batches_per_shard: BATCHES_PER_SHARD,
        updates_lost_max: args.checkpoint_every.into(),
        ..TrainOptions::default()
    };
    let updates = digits.len().div_ceil(args.batch_size as usize) as f64 * f64::from(args.epochs);
    let rate = Rate::Cosine { initial: 2e-3, steps: updates, alpha: 0.02 };
    let trainer = Trainer::new(&cluster, options).screen(screen()?).callback(drill.clone());
    let outcome = trainer
        .run(digits, Adam::new(rate), |model| net(model, args.filters as usize))
        .context(|| "training")?;
    Ok(outcome)
}

/// Standard output for all threads: the command's own handle to it is locked.
fn screen() -> Result<Screen> {
    let stdout = io::stdout();
    let copy = stdout.as_fd().try_clone_to_owned();
    let copy = copy.map_err(|e| err!(Unavailable, "standard output: {e}"))?;
    Ok(Screen::new(stdout.is_terminal(), Box::new(File::from(copy))))
}

fn report_training(
    outcome: &Outcome,
    faults: &FaultInjector,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "     {} updates in {:.1} s, with checkpoints written concurrently",
        outcome.updates,
        outcome.took.as_secs_f64()
    )?;
    for (name, detected, _) in faults.kills() {
        match detected {
            Some(time) => writeln!(
                out,
                "     {name} was killed; detected after {:.3} s and restarted",
                time.as_secs_f64()
            )?,
            None => writeln!(out, "     {name} was killed; no worker needed it afterwards")?,
        }
    }
    match outcome.updates_lost {
        0 => writeln!(out, "     no update was lost: every image was used exactly once per epoch"),
        lost => writeln!(
            out,
            "     {lost} updates since the last checkpoint were lost; their images were used again"
        ),
    }
}

/// Serves the exported model, requests predictions, and prints the commands and the answer.
fn serve(
    folder: &str,
    accelerators: &[String],
    out: &mut dyn Write,
) -> Result<ServedPredictions, Failure> {
    writeln!(out, "5. Served over REST, as TensorFlow Serving does, by a process of its own:")?;
    out.flush()?;
    let digits = mnist::test()?;
    let asked: Vec<usize> = (SHOWN..2 * SHOWN).collect();
    let served = served::predict(folder, accelerators, &digits, &asked)?;
    writeln!(out, "     {}", served.serve)?;
    writeln!(out, "   Ten more images, requested with\n     {}\n", served.curl)?;
    let predictions = served.predictions.iter().copied();
    digits::show(&digits, &asked.into_iter().zip(predictions).collect::<Vec<_>>(), out)?;
    writeln!(out, "   That server has ended; these two commands start it and request again.")?;
    Ok(served)
}

fn print_next_steps(
    folder: &str,
    checkpoint: &str,
    saved_model: &str,
    events: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let thalweg = paste::program();
    writeln!(out, "\n6. All of it is in {folder}:")?;
    writeln!(out, "     checkpoint   {checkpoint}")?;
    writeln!(out, "     event files  {events}")?;
    writeln!(out, "     model        {saved_model}")?;
    writeln!(out, "\nNext:")?;
    let (model, checkpoint, events) = (quoted(saved_model), quoted(checkpoint), quoted(events));
    writeln!(out, "     {thalweg} inspect {model}")?;
    writeln!(out, "     {thalweg} checkpoint list {checkpoint}")?;
    writeln!(out, "     {thalweg} events {events}        (or: tensorboard --logdir {events})")?;
    writeln!(out, "     {thalweg} quickstart --kill ps/0   loses the parameter server instead")?;
    writeln!(
        out,
        "     docs/src/tutorial/own-net.md has such a program, for networks of your own\n"
    )
}

/// The network for training.
fn net(model: &Model, filters: usize) -> Net {
    let images = images(model);
    let labels = model.placeholder::<i64>("labels", [None]);
    let logits = logits(filters).apply(model, &images);
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    Net::new((&images, &labels), &loss).metric("accuracy", metrics::accuracy(&logits, &labels))
}

/// The network for inference.
fn served(model: &Model, filters: usize) -> Served {
    let images = images(model);
    let logits = logits(filters).apply(model, &images);
    Served::new()
        .input("images", &images)
        .output("classes", &logits.argmax(1).named("classes"))
        .output("probabilities", &logits.softmax().named("probabilities"))
}

fn images(model: &Model) -> Output<f32> {
    let side = Some(mnist::SIDE);
    model.placeholder("images", [None, side, side, Some(1)])
}

fn logits(filters: usize) -> Sequential {
    Sequential::new()
        .then(Conv2d::new(filters, [5, 5]).relu())
        .then(MaxPool2d::new(2))
        .then(Conv2d::new(2 * filters, [5, 5]).relu())
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Dense::new(64).relu())
        .then(Dense::new(mnist::CLASSES))
}

fn load(folder: &str, registry: &Registry, flags: &AcceleratorFlags) -> Result<SavedModel> {
    let mut options = LoadOptions::default();
    options.session = flags.apply(None, options.session)?;
    options.session.environment =
        Environment { storage: Arc::new(ByUrl::default()), ..system_environment() };
    SavedModel::load(folder, &[], (registry.ops.clone(), registry.kernels.clone()), options)
}

/// Predicted classes and their probabilities.
fn classify(model: &SavedModel, digits: &Digits, indices: &[usize]) -> Result<Vec<(i64, f32)>> {
    let (images, _) = digits.batch(indices)?;
    let found = model.run("serving_default", &[("images", images)])?;
    let output = |name: &str| -> Result<&Tensor> {
        found.get(name).ok_or_else(|| err!(Internal, "the model has no output '{name}'"))
    };
    let classes = output("classes")?.as_slice::<i64>()?;
    let rows = output("probabilities")?.as_slice::<f32>()?.chunks_exact(mnist::CLASSES);
    let surest = rows.map(|row| row.iter().copied().fold(0.0, f32::max));
    ensure!(
        classes.len() == indices.len(),
        Internal,
        "the model returned {} classes",
        classes.len()
    );
    Ok(classes.iter().copied().zip(surest).collect())
}

fn test_accuracy(model: &SavedModel, digits: &Digits) -> Result<f64> {
    let all: Vec<usize> = (0..digits.len()).collect();
    let mut right = 0;
    for indices in all.chunks(500) {
        for (&index, (class, _)) in indices.iter().zip(classify(model, digits, indices)?) {
            right += usize::from(class == i64::from(digits.label(index)?));
        }
    }
    Ok(right as f64 / digits.len() as f64)
}
