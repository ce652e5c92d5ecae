//! Process supervision: start, output by process, restarts, shutdown.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use thalweg_tensor::err;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::orphans::{self, Children, RegisteredChild};
use crate::{Failure, logging};

/// How long a process may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// How long the remaining processes of its group may take after that.
const GROUP_GRACE: Duration = Duration::from_secs(1);
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The first backoff before a restart; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// After this uptime a process counts as healthy, and its restart count and backoff are reset.
const HEALTHY_UPTIME: Duration = Duration::from_secs(300);
/// Longer lines of a process are split.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The prefix of the line that reports the final end of a process.
pub(crate) const ENDED: &str = "thalweg: ended ";

/// A process: its name, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// `worker/0`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables in addition to those of this process.
    pub variables: Vec<(String, String)>,
    /// The log file of its output.
    pub log: PathBuf,
    /// Whether its standard input is a pipe that closes when this process ends; otherwise it has
    /// none.
    pub with_parent: bool,
}

/// When an ended process is restarted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartPolicy {
    /// The maximum number of restarts.
    pub restarts_max: u32,
    /// Whether to restart after a failure exit code, not only after a signal.
    pub on_failure: bool,
    /// The uptime after which the count is reset.
    healthy_after: Duration,
}

impl RestartPolicy {
    pub(crate) fn new(restarts_max: u32, on_failure: bool) -> RestartPolicy {
        RestartPolicy { restarts_max, on_failure, healthy_after: HEALTHY_UPTIME }
    }
}

/// How a process ended for good.
#[derive(Debug)]
pub(crate) enum ExitReason {
    /// It exited.
    Exit(ExitStatus),
    /// It was stopped.
    Stopped,
    /// It could not be started.
    NotStarted,
}

impl ExitReason {
    /// The exit code that a shell would report.
    pub(crate) fn code(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt;
        match self {
            ExitReason::Stopped => 0,
            ExitReason::NotStarted => 127,
            ExitReason::Exit(status) => match (status.code(), status.signal()) {
                (Some(code), _) => u8::try_from(code).unwrap_or(1),
                (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
                (None, None) => 1,
            },
        }
    }
}

/// The output of all processes, each line with the name of its process.
#[derive(Clone)]
pub(crate) struct PrefixedOutput {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    shows_output: bool,
}

impl PrefixedOutput {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> PrefixedOutput {
        PrefixedOutput { out: Arc::new(Mutex::new(out)), shows_output: true }
    }

    /// The same for messages about processes only, without their output.
    pub(crate) fn without_output(self) -> PrefixedOutput {
        PrefixedOutput { shows_output: false, ..self }
    }

    /// Reports how a process ended by itself. A failure to start has been reported before.
    pub(crate) fn ended(&self, name: &str, end: &ExitReason) {
        if let ExitReason::Exit(status) = end {
            self.line(name, format!("{ENDED}({status})").as_bytes());
        }
    }

    fn message(&self, name: &str, text: &str) {
        self.line(name, format!("thalweg: {text}").as_bytes());
    }

    fn output(&self, name: &str, text: &[u8]) {
        if self.shows_output {
            self.line(name, text);
        }
    }

    /// Writes one line. Errors are ignored: a closed terminal must not end the processes.
    fn line(&self, name: &str, text: &[u8]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write!(out, "[{name}] ");
        let _ = out.write_all(text.strip_suffix(b"\n").unwrap_or(text));
        let _ = out.write_all(b"\n");
        let _ = out.flush();
    }
}

/// Runs programs concurrently, each until it ends for good. `ended` is called for each and returns
/// whether all others are to be stopped. A signal stops all of them, and its exit code is returned.
pub(crate) async fn run_all(
    programs: Vec<Program>,
    restarts: RestartPolicy,
    output: PrefixedOutput,
    mut ended: impl FnMut(usize, &ExitReason) -> bool,
) -> Result<Option<u8>, Failure> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let own = Children::default();
    orphans::reap(&own)?;
    let (stop, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    for (index, program) in programs.into_iter().enumerate() {
        let name = program.name.clone();
        let end = run(program, restarts, output.clone(), stopped.clone(), own.clone());
        running.spawn(async move { (index, name, end.await) });
    }
    let mut signal_code = None;
    loop {
        let (index, name, end) = tokio::select! {
            next = running.join_next() => match next {
                Some(next) => next.map_err(|e| err!(Internal, "a supervising task panicked: {e}"))?,
                None => return Ok(signal_code),
            },
            _ = terminate.recv() => { signal_code = Some(143); let _ = stop.send(true); continue }
            _ = interrupt.recv() => { signal_code = Some(130); let _ = stop.send(true); continue }
        };
        output.ended(&name, &end);
        if ended(index, &end) {
            let _ = stop.send(true);
        }
    }
}

/// Runs `program`, one of our `own` children, until it ends for good or `stop` becomes true.
async fn run(
    program: Program,
    restarts: RestartPolicy,
    output: PrefixedOutput,
    mut stop: watch::Receiver<bool>,
    own: Children,
) -> ExitReason {
    let (mut pause, mut left) = (BACKOFF_MIN, restarts.restarts_max);
    loop {
        let child = match start(&program, &own) {
            Ok(child) => child,
            Err(error) => {
                output.message(
                    &program.name,
                    &format!("{} did not start: {error}", program.command[0]),
                );
                return ExitReason::NotStarted;
            }
        };
        let healthy = tokio::spawn(tokio::time::sleep(restarts.healthy_after));
        let ended = until_end(child, &program, &output, &mut stop).await;
        if healthy.is_finished() {
            (pause, left) = (BACKOFF_MIN, restarts.restarts_max);
        }
        healthy.abort();
        let Some(status) = ended else { return ExitReason::Stopped };
        let again = !status.success() && (restarts.on_failure || status.code().is_none());
        let log = Log::open(&program.log);
        if !again || left == 0 {
            log.write(format!("{ENDED}({status})\n").as_bytes());
            return ExitReason::Exit(status);
        }
        left -= 1;
        let seconds = pause.as_secs_f32();
        let message = format!("ended ({status}); restarts in {seconds} s, {left} restarts left");
        output.message(&program.name, &message);
        // The log of the process alone must also show why the process starts again.
        log.write(format!("thalweg: {message}\n").as_bytes());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return ExitReason::Stopped,
        }
        pause = (pause * 2).min(BACKOFF_MAX);
    }
}

/// Starts it as the leader of a process group, so that its children can be stopped with it.
fn start(program: &Program, own: &Children) -> io::Result<(Child, RegisteredChild)> {
    let mut command = Command::new(&program.command[0]);
    command
        .args(&program.command[1..])
        .envs(logging::variables())
        .envs(program.variables.iter().map(|(name, value)| (name, value)))
        .stdin(if program.with_parent { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    own.start(&mut command)
}

/// The exit status; `None` if it was stopped.
async fn until_end(
    (mut child, _own): (Child, RegisteredChild),
    program: &Program,
    output: &PrefixedOutput,
    stop: &mut watch::Receiver<bool>,
) -> Option<ExitStatus> {
    let log = Log::open(&program.log);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Held here, because waiting for the child closes its standard input.
    let _input = child.stdin.take();
    let copies = [
        out.map(|pipe| tokio::spawn(copy(pipe, program.name.clone(), log.clone(), output.clone()))),
        err.map(|pipe| tokio::spawn(copy(pipe, program.name.clone(), log.clone(), output.clone()))),
    ];
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let status = tokio::select! {
        status = child.wait() => Some(status),
        _ = stop.wait_for(|stop| *stop) => None,
    };
    if status.is_none() {
        send(group, Signal::TERM);
        let _ = tokio::time::timeout(TERM_GRACE, child.wait()).await;
        // What it started was signal_code too, and may have a last word.
        let _ = tokio::time::timeout(GROUP_GRACE, until_gone(group)).await;
    }
    // Its remaining children end with it.
    send(group, Signal::KILL);
    let ended = child.wait().await;
    for copy in copies.into_iter().flatten() {
        // A grandchild that left the group may hold the pipe: its output is not waited for.
        let _ = tokio::time::timeout(Duration::from_secs(1), copy).await;
    }
    status.map(|status| status.or(ended).unwrap_or_default())
}

fn send(group: Option<Pid>, signal: Signal) {
    // An error means that the process group has already ended.
    let _ = group.map(|group| kill_process_group(group, signal));
}

/// Completes when the process group is empty.
async fn until_gone(group: Option<Pid>) {
    while group.is_some_and(|group| test_kill_process_group(group).is_ok()) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A log file, shared by stdout and stderr of a process.
#[derive(Clone)]
struct Log(Arc<Mutex<Option<File>>>);

impl Log {
    fn open(path: &Path) -> Log {
        let file = File::options().create(true).append(true).open(path).ok();
        Log(Arc::new(Mutex::new(file)))
    }

    fn write(&self, line: &[u8]) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = file.as_mut() {
            let _ = file.write_all(line);
        }
    }
}

async fn copy(pipe: impl AsyncRead + Unpin, name: String, log: Log, output: PrefixedOutput) {
    let mut reader = BufReader::with_capacity(LINE_BYTES_MAX, pipe);
    let mut line = Vec::new();
    loop {
        let Ok(bytes) = reader.fill_buf().await else { return };
        if bytes.is_empty() {
            break;
        }
        let end = bytes.iter().position(|b| *b == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        line.extend_from_slice(&bytes[..taken]);
        reader.consume(taken);
        if end.is_some() || line.len() >= LINE_BYTES_MAX {
            log.write(&line);
            output.output(&name, &line);
            line.clear();
        }
    }
    if !line.is_empty() {
        log.write(&line);
        output.output(&name, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A output whose lines can be looked at.
    fn output() -> (PrefixedOutput, mpsc::Receiver<String>) {
        struct Lines(mpsc::Sender<String>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, receiver) = mpsc::channel();
        (PrefixedOutput::new(Box::new(Lines(sender))), receiver)
    }

    /// A folder of one test; gone when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("thalweg-supervise-{test}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn text(receiver: &mpsc::Receiver<String>) -> String {
        receiver.try_iter().collect()
    }

    fn shell(script: &str, log: &Path) -> Program {
        Program {
            name: "t/0".into(),
            command: vec!["sh".into(), "-c".into(), script.into()],
            variables: vec![("GREETING".into(), "hello".into())],
            log: log.to_owned(),
            with_parent: false,
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn output_is_named_and_kept() {
        let folder = Folder::new("output");
        let log = folder.0.join("log");
        let (output, lines) = output();
        let (_keep, stop) = watch::channel(false);
        let program = shell("echo $GREETING; echo oops >&2; printf open; exit 3", &log);
        let end =
            block_on(run(program, RestartPolicy::new(2, false), output, stop, Children::default()));
        assert_eq!(end.code(), 3);
        let shown = text(&lines);
        for line in ["[t/0] hello\n", "[t/0] oops\n", "[t/0] open\n"] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(std::fs::read_to_string(&log).unwrap().contains("hello\n"));
    }

    #[test]
    fn the_killed_start_again() {
        let folder = Folder::new("killed");
        let mark = folder.0.join("mark");
        let script = format!(
            "if [ -e {0} ]; then echo second; else touch {0}; kill -9 $$; fi",
            mark.display()
        );
        let (output, lines) = output();
        let (_keep, stop) = watch::channel(false);
        let program = shell(&script, &folder.0.join("log"));
        let end =
            block_on(run(program, RestartPolicy::new(1, false), output, stop, Children::default()));
        assert_eq!(end.code(), 0);
        let shown = text(&lines);
        assert!(shown.contains("restarts in 0.5 s, 0 restarts left"), "{shown}");
        assert!(shown.contains("[t/0] second\n"), "{shown}");
        let kept = std::fs::read_to_string(folder.0.join("log")).unwrap();
        assert!(kept.contains("restarts in 0.5 s, 0 restarts left\nsecond\n"), "{kept}");
    }

    #[test]
    fn restarts_count_until_a_process_is_healthy() {
        let folder = Folder::new("healthy");
        let runs = folder.0.join("runs");
        // The second of its runs is a long one.
        let script =
            format!("echo x >> {0}; [ $(wc -l < {0}) = 2 ] && sleep 2; exit 3", runs.display());
        let (output, lines) = output();
        let (_keep, stop) = watch::channel(false);
        let program = shell(&script, &folder.0.join("log"));
        let healthy_after = Duration::from_millis(1500);
        let restarts = RestartPolicy { healthy_after, ..RestartPolicy::new(1, true) };
        let end = block_on(run(program, restarts, output, stop, Children::default()));
        assert_eq!(end.code(), 3);
        assert_eq!(std::fs::read_to_string(runs).unwrap(), "x\nx\nx\n");
        let shown = text(&lines);
        assert_eq!(shown.matches("restarts in 0.5 s, 0 restarts left").count(), 2, "{shown}");
    }

    #[test]
    fn a_stop_ends_the_whole_group() {
        let folder = Folder::new("stop");
        let (output, lines) = output();
        let (stopper, stop) = watch::channel(false);
        let program =
            shell("sleep 1000 & echo $!; trap '' TERM; wait; wait", &folder.0.join("log"));
        let end = block_on(async {
            let running = tokio::spawn(run(
                program,
                RestartPolicy::new(0, true),
                output,
                stop,
                Children::default(),
            ));
            tokio::time::sleep(Duration::from_millis(300)).await;
            stopper.send(true).unwrap();
            running.await.unwrap()
        });
        assert!(matches!(end, ExitReason::Stopped));
        let shown = text(&lines);
        let sleeper = shown.trim().strip_prefix("[t/0] ").unwrap().to_owned();
        let alive = std::fs::read_to_string(format!("/proc/{sleeper}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "));
        assert!(!alive, "process {sleeper} outlives its group");
    }

    #[test]
    fn what_is_not_there_does_not_start() {
        let (output, _lines) = output();
        let (_keep, stop) = watch::channel(false);
        let mut program = shell("", Path::new("/dev/null"));
        program.command = vec!["/nonexistent/program".into()];
        let end =
            block_on(run(program, RestartPolicy::new(3, true), output, stop, Children::default()));
        assert_eq!(end.code(), 127);
    }
}
