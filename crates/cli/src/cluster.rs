//! `thalweg cluster`: starts and supervises the tasks of a cluster file on this machine.

mod file;
mod state;
mod status;
pub(crate) mod trace;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use clap::Subcommand;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use thalweg_cluster::{ClusterSpec, TaskName};
use thalweg_tensor::{Result as Answer, err};
use tracing::warn;

use crate::server::{Transport, parse_cluster};
use crate::supervise::{self, PrefixedOutput, Program, RestartPolicy};
use crate::{Failure, descriptors, logging};
use file::ClusterFile;
use state::{Started, StateFolder};
use status::Form;

/// How long `up` waits for the tasks to listen, and `down` for them to end.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The prefix of the first line that a task prints.
const LISTENING: &str = "listening on ";
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Start and supervise the tasks of a cluster file on this machine.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,

    /// Folder for logs and state of clusters [default: $XDG_STATE_HOME/thalweg or
    /// ~/.local/state/thalweg]
    #[arg(long, alias = "state", global = true, value_name = "DIR", help_heading = "Files")]
    state_dir: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Start all tasks, wait until they listen, and leave them running in the background
    Up {
        /// The cluster file
        #[arg(default_value = "cluster.toml")]
        file: PathBuf,
        /// Run in the foreground: show the output of the tasks, and end them when this command ends
        #[arg(long, help_heading = "Tasks")]
        foreground: bool,
        /// How tensors are sent between tasks: see `thalweg server --help`; overrides the file
        #[arg(long, value_name = "PROTOCOL", value_enum, help_heading = "Tasks")]
        transport: Option<Transport>,
        /// Run quietly as the supervisor that `up` starts
        #[arg(long, hide = true)]
        supervise: bool,
    },
    /// Show the state of each task: alive, silent or dead, its sessions, steps, memory and
    /// variables
    ///
    /// The exit code is 0 if all tasks answer, else 1.
    Status {
        /// The cluster file
        #[arg(default_value = "cluster.toml")]
        file: PathBuf,
        /// Any cluster instead, wherever its tasks run: see `thalweg server --cluster`
        #[arg(long, value_name = "SPEC", help_heading = "Cluster")]
        cluster: Option<String>,
        /// Also show which step waits for which tensor of which task, and since when
        #[arg(long, help_heading = "Output")]
        waits: bool,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Trace the next step that a client runs, and show what its time went into: kernels, links
    /// between tasks, waiting and queueing
    Trace(trace::Args),
    /// Show the output of a task
    Logs {
        /// A task, such as ps/0
        task: String,
        /// The cluster file
        #[arg(default_value = "cluster.toml")]
        file: PathBuf,
        /// Keep printing new output
        #[arg(long, short, help_heading = "Output")]
        follow: bool,
    },
    /// Stop all tasks
    Down {
        /// The cluster file
        #[arg(default_value = "cluster.toml")]
        file: PathBuf,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Command::Status { cluster: Some(text), waits, json, .. } = &args.command {
        let cluster = parse_cluster(text).map_err(|e| Failure::Usage(e.to_string()))?;
        return status::show(&cluster, Form { waits: *waits, json: *json }, out);
    }
    let path = match &args.command {
        Command::Trace(args) => return trace::run(args, out),
        Command::Up { file, .. }
        | Command::Status { file, .. }
        | Command::Logs { file, .. }
        | Command::Down { file } => file,
    };
    let mut file = ClusterFile::read(path)?;
    let state = StateFolder::of(&file.name, args.state_dir.as_deref())?;
    match &args.command {
        Command::Up { foreground, supervise, transport, .. } => {
            file.transport = transport.or(file.transport);
            // A container ends with PID 1, so `up` must stay in the foreground.
            match *foreground || *supervise || std::process::id() == 1 {
                true => supervise_tasks(&file, &state, *supervise),
                false => up(path, args.state_dir.as_deref(), &file, &state, out),
            }
        }
        Command::Status { waits, json, .. } => {
            let cluster = cluster_of(&file, &state)?;
            status::show(&cluster, Form { waits: *waits, json: *json }, out)
        }
        Command::Logs { task, follow, .. } => logs(&state, task, *follow, out),
        Command::Down { .. } => down(&file, &state, out),
        Command::Trace(args) => trace::run(args, out),
    }
}

/// The tasks of a cluster file, if it gives every address.
pub(crate) fn parse_file(text: &str) -> Answer<ClusterSpec> {
    ClusterFile::cluster(text)
}

/// Starts a supervisor that outlives this process, and waits until its tasks listen.
fn up(
    path: &Path,
    parent: Option<&Path>,
    file: &ClusterFile,
    state: &StateFolder,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = &file.name;
    if state.lock()?.is_none() {
        let error =
            err!(AlreadyExists, "cluster '{name}' is already up; `thalweg cluster down` stops it");
        return Err(error.into());
    }
    let log = state.path().join("supervisor.log");
    let supervisor_log = File::create(&log)?;
    let mut command = Process::new(std::env::current_exe()?);
    command.args(["cluster", "up", "--supervise"]).arg(path).envs(logging::variables());
    if let Some(parent) = parent {
        command.arg("--state-dir").arg(parent);
    }
    if let Some(transport) = file.transport {
        command.args(["--transport", transport.word()]);
    }
    let mut supervisor = command
        .stdin(Stdio::null())
        .stdout(supervisor_log.try_clone()?)
        .stderr(supervisor_log)
        .process_group(0)
        .spawn()?;
    match until_listening(&mut supervisor, state, &log) {
        Ok(started) => {
            for (task, address) in &started.tasks {
                writeln!(out, "{task} listens on {address}")?;
            }
            writeln!(out, "cluster '{name}' is up; its logs are in {}", state.path().display())?;
            Ok(())
        }
        Err(error) => {
            send_signal(supervisor.id(), Signal::TERM);
            let _ = supervisor.wait();
            let supervisor_log = fs::read_to_string(&log).unwrap_or_default();
            Err(err!(Unavailable, "cluster '{name}' did not start: {error}\n{supervisor_log}")
                .into())
        }
    }
}

/// The state of the cluster, once every task listens.
fn until_listening(
    supervisor: &mut Child,
    state: &StateFolder,
    supervisor_log: &Path,
) -> Answer<Started> {
    let mut silent = Vec::new();
    let mut why = "not all tasks listen".to_owned();
    for _ in 0..TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        let ended = supervisor.try_wait().ok().flatten();
        let started = state.started().filter(|started| started.supervisor == supervisor.id());
        if let Some(started) = started {
            let names = started.tasks.iter().map(|(name, _)| name);
            silent =
                names.filter(|name| !state.output(name).contains(LISTENING)).cloned().collect();
            if silent.is_empty() && ended.is_none() {
                return Ok(started);
            }
        }
        if let Some(status) = ended {
            why = format!("its supervisor ended ({status})");
            break;
        }
        if fs::read_to_string(supervisor_log)
            .is_ok_and(|supervisor_log| supervisor_log.contains(supervise::ENDED))
        {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let tasks = silent.iter().map(|name| format!("\n{name}: {}", state.output(name).trim_end()));
    Err(err!(Unavailable, "{why}{}", tasks.collect::<String>()))
}

/// Runs all tasks until they end or this process gets a signal.
fn supervise_tasks(file: &ClusterFile, state: &StateFolder, quiet: bool) -> Result<(), Failure> {
    let Some(_lock) = state.lock()? else {
        return Err(err!(AlreadyExists, "cluster '{}' is up", file.name).into());
    };
    descriptors::raise_limit();
    if let Some(shortage) = descriptors::shortage_of_supervisor(file.task_count()) {
        warn!(target: "thalweg::cluster_command", "{shortage}");
    }
    let addresses = file.addresses()?;
    let programs = programs(file, &addresses, state)?;
    for program in &programs {
        // Readers of the state folder must not see the previous start.
        File::create(&program.log)?;
    }
    let tasks = addresses.iter().flat_map(|(job, addresses)| {
        let name = move |(index, at): (usize, &String)| (format!("{job}/{index}"), at.clone());
        addresses.iter().enumerate().map(name)
    });
    state.save(&Started { supervisor: std::process::id(), tasks: tasks.collect() })?;
    let output = PrefixedOutput::new(Box::new(io::stdout()));
    let output = if quiet { output.without_output() } else { output };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let restarts = RestartPolicy::new(file.restarts, true);
    runtime.block_on(supervise::run_all(programs, restarts, output, |_, _| false))?;
    Ok(())
}

/// The process of each task.
fn programs(
    file: &ClusterFile,
    addresses: &BTreeMap<String, Vec<String>>,
    state: &StateFolder,
) -> Result<Vec<Program>, Failure> {
    let thalweg = std::env::current_exe()?.display().to_string();
    let spec = json!(addresses).to_string();
    let mut programs = Vec::new();
    for (job, addresses) in addresses {
        for (index, address) in addresses.iter().enumerate() {
            let name = format!("{job}/{index}");
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            let task = index.to_string();
            let mut command: Vec<String> =
                [&thalweg, "server", "--with-parent", "--cluster", &spec]
                    .iter()
                    .chain(&[
                        "--job-name",
                        job,
                        "--task-index",
                        &task,
                        "--host",
                        host.trim_matches(['[', ']']),
                    ])
                    .map(|part| (*part).to_owned())
                    .collect();
            let limits = &file.jobs[job];
            for (flag, value) in
                [("--memory-limit", limits.memory_mb), ("--threads", limits.threads)]
            {
                if let Some(value) = value {
                    command.extend([flag.to_owned(), value.to_string()]);
                }
            }
            command.extend(limits.accelerators.to_args());
            if let Some(transport) = file.transport {
                command.extend(["--transport".to_owned(), transport.word().to_owned()]);
            }
            let log = state.log(&name);
            programs.push(Program { name, command, variables: Vec::new(), log, with_parent: true });
        }
    }
    Ok(programs)
}

/// The cluster as it was started.
fn cluster_of(file: &ClusterFile, state: &StateFolder) -> Result<ClusterSpec, Failure> {
    let Some(started) = state.started().filter(|_| state.lock().is_ok_and(|lock| lock.is_none()))
    else {
        return Err(err!(Unavailable, "cluster '{}' is not up", file.name).into());
    };
    let mut cluster = ClusterSpec::default();
    for (name, address) in &started.tasks {
        let (job, index) = name.rsplit_once('/').unwrap_or((name, "0"));
        cluster.add(TaskName::new(job, index.parse().unwrap_or(0)), address)?;
    }
    Ok(cluster)
}

fn logs(state: &StateFolder, task: &str, follow: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let tasks = state.started().map(|started| started.tasks).unwrap_or_default();
    if !tasks.iter().any(|(name, _)| name == task) {
        let names: Vec<&str> = tasks.iter().map(|(name, _)| name.as_str()).collect();
        let known =
            if names.is_empty() { "none, it was never started".into() } else { names.join(", ") };
        return Err(err!(NotFound, "there is no task '{task}'; the tasks are {known}").into());
    }
    let path = state.log(task);
    let open = || {
        File::open(&path)
            .map_err(|e| err!(NotFound, "{task} has no output yet ({}: {e})", path.display()))
    };
    let supervisor = || state.started().map(|started| started.supervisor);
    let (mut of, mut is_down) = (supervisor(), false);
    let mut file = open()?;
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut bytes)?;
        // Checked after reading: another supervisor truncates the logs before its tasks print.
        let now = supervisor();
        if follow && now != of {
            (file, of, is_down) = (open()?, now, false);
            continue;
        }
        match read {
            0 if !follow => return Ok(()),
            0 => {
                if !is_down && !now.is_some_and(is_running) {
                    eprintln!("the cluster is down; waiting for it to be up again");
                    is_down = true;
                }
                std::thread::sleep(POLL_INTERVAL * 4);
            }
            read => {
                out.write_all(&bytes[..read])?;
                out.flush()?;
            }
        }
    }
}

/// Stops the supervisor, which stops its tasks; they have ended when it has.
fn down(file: &ClusterFile, state: &StateFolder, out: &mut dyn Write) -> Result<(), Failure> {
    let name = &file.name;
    let Some(started) = state.started().filter(|_| state.lock().is_ok_and(|lock| lock.is_none()))
    else {
        writeln!(out, "cluster '{name}' is not up")?;
        return Ok(());
    };
    for (signal, timeout) in [(Signal::TERM, TIMEOUT), (Signal::KILL, TIMEOUT)] {
        send_signal(started.supervisor, signal);
        for _ in 0..timeout.as_millis() / POLL_INTERVAL.as_millis() {
            if state.lock()?.is_some() {
                writeln!(out, "cluster '{name}' is down")?;
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    let id = started.supervisor;
    Err(err!(DeadlineExceeded, "the supervisor of '{name}', process {id}, does not end").into())
}

/// Whether a process runs. An ended process may remain as a zombie until it is reaped.
fn is_running(id: u32) -> bool {
    let is_known = i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|id| test_kill_process(id).is_ok());
    let has_ended = || {
        let stat = fs::read(format!("/proc/{id}/stat")).unwrap_or_default();
        String::from_utf8_lossy(&stat)
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    is_known && !has_ended()
}

fn send_signal(id: u32, signal: Signal) {
    // An error means that the process has already ended.
    let _ = i32::try_from(id).ok().and_then(Pid::from_raw).map(|id| kill_process(id, signal));
}
