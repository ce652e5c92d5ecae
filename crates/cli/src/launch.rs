//! `thalweg launch`: runs an unmodified TensorFlow program once per task of a cluster of Thalweg
//! servers.

mod layout;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use thalweg_tensor::err;
use tracing::warn;

use crate::accelerator::AcceleratorFlags;
use crate::server::Transport;
use crate::supervise::{self, ExitReason, PrefixedOutput, Program, RestartPolicy};
use crate::{Failure, descriptors};
use layout::{LaunchTask, Layout};

/// The `sitecustomize` module, which Python imports at startup.
const SITE: &str = include_str!("launch/sitecustomize.py");

/// Run an unmodified TensorFlow program once per task of a cluster on this machine.
///
/// Each copy gets its task by TF_CONFIG and, if its command line has them, by --job_name,
/// --task_index, --ps_hosts and --worker_hosts. Its tf.train.Server (tf.distribute.Server) is a
/// thalweg server process. Parameter servers are stopped when the workers have ended; the first
/// task that fails stops all others, and its exit code is that of the command. Accelerators are for
/// workers and the chief; parameter servers stay on CPUs.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Number of parameter servers
    #[arg(long, help_heading = "Tasks", value_name = "N", default_value_t = 1, value_parser = count())]
    ps: u16,

    /// Number of workers
    #[arg(long, help_heading = "Tasks", value_name = "N", default_value_t = 1, value_parser = count())]
    workers: u16,

    /// Add a task of job 'chief'; without it worker 0 is the chief
    #[arg(long, help_heading = "Tasks")]
    chief: bool,

    /// How often a task that was killed by a signal is restarted; the count is reset after five
    /// minutes without a failure
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Failures")]
    restarts: u32,

    /// Also restart a task that failed with an exit code
    #[arg(long, help_heading = "Failures")]
    restart_failed: bool,

    /// Keep the other tasks running when one has failed
    #[arg(long, help_heading = "Failures")]
    keep_going: bool,

    /// How tensors are sent between tasks: see `thalweg server --help`
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value_t, help_heading = "Servers")]
    transport: Transport,

    /// Memory limit for tensors, strings, lists, state and received messages of each task, in
    /// megabytes [default: 80 % of the machine's or container's memory]
    #[arg(long, value_name = "MB", help_heading = "Servers")]
    memory_limit: Option<usize>,

    #[command(flatten)]
    accelerators: AcceleratorFlags,

    /// Which flags to pass to the program
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Flags::Known,
          help_heading = "Program")]
    flags: Flags,

    /// Folder for the output of each task [default: a new folder]
    #[arg(long, alias = "logs", value_name = "DIR", help_heading = "Output")]
    log_dir: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(0..=1000)
}

/// Which of --job_name, --task_index, --ps_hosts, --worker_hosts are passed to a program.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Flags {
    /// Those that occur in the text of its Python file
    Known,
    /// All four
    All,
    /// None: TF_CONFIG suffices
    None,
}

/// Runs the program as all tasks, to the end.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if args.workers == 0 && !args.chief {
        return Err(Failure::Usage(
            "a cluster without workers and chief runs nothing: --workers N, or --chief".into(),
        ));
    }
    let counts = [
        ("chief", usize::from(args.chief)),
        ("ps", usize::from(args.ps)),
        ("worker", usize::from(args.workers)),
    ];
    descriptors::raise_limit();
    let tasks = counts.iter().map(|(_, count)| count).sum();
    if let Some(shortage) = descriptors::shortage_of_supervisor(tasks) {
        warn!(target: "thalweg::launch", "{shortage}");
    }
    let layout = Layout::on_free_ports(&counts)?;
    let folder = log_folder(args)?;
    let programs = programs(args, &layout, &folder)?;
    writeln!(out, "{} tasks; their logs are in {}", programs.len(), folder.display())?;
    for (task, _) in &programs {
        writeln!(out, "  {} at {}", task.name(), layout.address(task))?;
    }
    out.flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(supervise_all(args, programs))? {
        0 => Ok(()),
        code => Err(Failure::Exit(code)),
    }
}

fn log_folder(args: &Args) -> Result<PathBuf, Failure> {
    let folder = args.log_dir.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("thalweg-launch-{}", std::process::id()))
    });
    let failed = |e: io::Error| err!(Unavailable, "{}: {e}", folder.display());
    fs::create_dir_all(folder.join("python")).map_err(failed)?;
    fs::write(folder.join("python/sitecustomize.py"), SITE).map_err(failed)?;
    Ok(folder)
}

/// Every task with its program.
fn programs(
    args: &Args,
    layout: &Layout,
    folder: &Path,
) -> Result<Vec<(LaunchTask, Program)>, Failure> {
    let flags = match args.flags {
        Flags::Known => known_flags(&args.command),
        Flags::All => vec!["ps_hosts", "worker_hosts", "job_name", "task_index"],
        Flags::None => Vec::new(),
    };
    let python = search_path(&folder.join("python"));
    let thalweg = std::env::current_exe()?.display().to_string();
    let program = |task: LaunchTask| {
        let mut command = args.command.clone();
        command.extend(layout.arguments(&task, &flags));
        let program = Program {
            name: task.name(),
            command,
            variables: vec![
                ("TF_CONFIG".into(), layout.tf_config(&task)),
                ("PYTHONPATH".into(), python.clone()),
                // Output is not buffered.
                ("PYTHONUNBUFFERED".into(), "1".into()),
                ("THALWEG_PROGRAM".into(), thalweg.clone()),
                ("THALWEG_SERVER_FLAGS".into(), server_flags(args, &task)),
            ],
            log: folder.join(format!("{}-{}.log", task.job, task.index)),
            with_parent: false,
        };
        (task, program)
    };
    Ok(layout.tasks().into_iter().map(program).collect())
}

/// The arguments of a task's server, as JSON.
fn server_flags(args: &Args, task: &LaunchTask) -> String {
    let mut flags = vec!["--transport".to_owned(), args.transport.word().to_owned()];
    if let Some(megabytes) = args.memory_limit {
        flags.extend(["--memory-limit".to_owned(), megabytes.to_string()]);
    }
    if task.is_working() {
        flags.extend(args.accelerators.to_args());
    }
    serde_json::json!(flags).to_string()
}

/// The flags that occur in the first Python file of a command; none if it has no such file.
fn known_flags(command: &[String]) -> Vec<&'static str> {
    let script = command.iter().find(|part| part.ends_with(".py"));
    let text = script.and_then(|script| fs::read_to_string(script).ok());
    text.map_or_else(Vec::new, |text| layout::flags_in(&text))
}

/// PYTHONPATH with the folder of `sitecustomize` first.
fn search_path(ours: &Path) -> String {
    match std::env::var("PYTHONPATH") {
        Ok(theirs) if !theirs.is_empty() => format!("{}:{theirs}", ours.display()),
        _ => ours.display().to_string(),
    }
}

/// Runs all tasks until the workers have ended, then stops the others; returns the exit code.
async fn supervise_all(args: &Args, programs: Vec<(LaunchTask, Program)>) -> Result<u8, Failure> {
    let output = PrefixedOutput::new(Box::new(io::stdout()));
    let restarts = RestartPolicy::new(args.restarts, args.restart_failed);
    let (tasks, programs): (Vec<LaunchTask>, Vec<Program>) = programs.into_iter().unzip();
    let mut working = tasks.iter().filter(|task| task.is_working()).count();
    let mut code = 0;
    let ended = |index: usize, end: &ExitReason| {
        working -= usize::from(tasks[index].is_working());
        if code == 0 {
            code = end.code();
        }
        working == 0 || (code != 0 && !args.keep_going)
    };
    let signal_code = supervise::run_all(programs, restarts, output, ended).await?;
    Ok(signal_code.unwrap_or(code))
}
