//! Child processes of this program.

use std::fs::{self, File};
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thalweg_runtime::system_environment;
use thalweg_tensor::{Result, bail, err};

/// The timeout for a process to print a line, and to end.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// The polling interval.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Environment variables that are removed for child processes.
const NOT_FOR_US: [&str; 3] = ["TF_CONFIG", "MODEL_NAME", "MODEL_BASE_PATH"];

/// A process whose output goes to a file. It is stopped on drop.
pub(super) struct Process {
    name: String,
    child: Child,
    log: String,
}

impl Process {
    /// Runs this program with `args`, one of which makes it end when its standard input closes.
    pub(super) fn start(name: &str, args: &[&str], log: String) -> Result<Process> {
        let failed = |e: io::Error| err!(Unavailable, "{name} cannot be started: {e}");
        let file = File::create(&log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        for variable in NOT_FOR_US {
            command.env_remove(variable);
        }
        let child = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .spawn()
            .map_err(failed)?;
        Ok(Process { name: name.to_owned(), child, log })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it with SIGKILL and waits for its end.
    pub(super) fn kill(&mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|e| err!(Internal, "{} cannot be killed: {e}", self.name))
    }

    /// Waits until it prints `words`; returns the rest of that line.
    pub(super) fn wait_for_line(&mut self, words: &str) -> Result<String> {
        self.wait_until(words, |output| {
            let complete = output.rsplit_once('\n')?.0;
            complete.lines().find_map(|line| Some(line.split_once(words)?.1.trim().to_owned()))
        })
    }

    /// Polls until `done` returns a value; `done` gets the output of the process.
    pub(super) fn wait_until<T>(
        &mut self,
        what: &str,
        done: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let clock = system_environment().clock;
        let begin = clock.monotonic();
        loop {
            // Before the look: what it output at last counts.
            let has_ended = self.has_ended();
            let output = fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(found) = done(&output) {
                return Ok(found);
            }
            if has_ended || clock.monotonic().saturating_sub(begin) > TIMEOUT {
                bail!(
                    Unavailable,
                    "{}: timed out waiting for '{what}'; its output: {}",
                    self.name,
                    output.trim()
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks it to end without waiting.
    pub(super) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask_to_end();
        let clock = system_environment().clock;
        let begin = clock.monotonic();
        while !self.has_ended() {
            if clock.monotonic().saturating_sub(begin) > TIMEOUT {
                let _ = self.child.kill();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
