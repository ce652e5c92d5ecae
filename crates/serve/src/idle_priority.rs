//! Background threads with low or idle scheduling priority: for loading and freeing versions, and
//! for planning.

use std::time::Duration;

use rustix::process::setpriority_process;
use thalweg_tensor::{Result, err};
use tokio::sync::oneshot;

/// The niceness of background threads. They get about a tenth of a contended core, so that loading
/// ends even on a machine that is always busy.
const NICENESS: i32 = 10;
/// How long idle cores are measured.
const LOOK: Duration = Duration::from_millis(100);
/// The idle fraction of one core that allows idle priority.
const IDLE_PART: f64 = 0.2;

/// Starts `body` on a thread of its own with a low priority, which threads that it starts inherit
/// (among them those that read files). The thread ends with `body`; when a thread ends, the
/// allocator returns memory to the system that has been free for a while.
pub(crate) fn start(body: impl FnOnce() + Send + 'static) -> Result<()> {
    let work = move || {
        // If that is not permitted the thread keeps the default priority.
        let _ = setpriority_process(None, NICENESS);
        if cores_idle() {
            set_sched_idle();
        }
        body();
    };
    std::thread::Builder::new()
        .name("thalweg-load".into())
        .spawn(work)
        .map_err(|e| err!(ResourceExhausted, "cannot start a background thread: {e}"))?;
    Ok(())
}

/// As [`start`], and returns the result of `body`.
pub(crate) async fn run<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    start(move || {
        // The caller may have dropped the receiver.
        let _ = sender.send(body());
    })?;
    receiver.await.map_err(|_| err!(Internal, "internal error: the background task panicked"))
}

/// Sets the scheduling policy of this thread to `SCHED_IDLE`: it runs only on otherwise idle cores
/// and is preempted at once.
///
/// A thread with a high niceness alone keeps a core to the end of its time slice, which is longer
/// than a request takes. Most processes may not raise the priority again, so the caller checks
/// first that there is idle time.
fn set_sched_idle() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call changes how the calling thread (0) is scheduled and reads the parameters, which
    // outlive it. What it returns does not matter: where it is refused the thread is nice at least.
    // (The C library's function of this name does nothing in some of them.)
    let _ = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const parameters)
    };
}

/// Whether the cores were idle just now, all together for at least `IDLE_PART` of one core.
fn cores_idle() -> bool {
    let Some(before) = idle_ticks() else { return false };
    std::thread::sleep(LOOK);
    let passed = idle_ticks().map_or(0, |now| now.saturating_sub(before));
    passed as f64 >= LOOK.as_secs_f64() * TICKS_A_SECOND * IDLE_PART
}

/// The unit of `/proc/stat`: USER_HZ.
const TICKS_A_SECOND: f64 = 100.0;

/// The idle time of all cores together, in ticks.
fn idle_ticks() -> Option<u64> {
    idle_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The fourth number of the line for all cores.
fn idle_of(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_the_fourth_number() {
        let stat = "cpu  10 20 30 4567 5 6 7\ncpu0 1 2 3 4 5\nctxt 9\n";
        assert_eq!(idle_of(stat), Some(4567));
        for broken in ["", "cpu0 1 2 3 4\n", "cpu 1 2\n", "cpu 1 2 3 x\n"] {
            assert_eq!(idle_of(broken), None, "{broken:?}");
        }
        assert!(idle_ticks().is_some());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it is about threads")]
    fn idle_time_only_is_inherited() {
        let policy = || {
            // SAFETY: it reads how the calling thread is scheduled.
            unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
        };
        let thread = std::thread::spawn(move || {
            set_sched_idle();
            // Threads that it starts inherit it.
            (policy(), std::thread::spawn(policy).join().unwrap())
        });
        let idle = libc::c_long::from(libc::SCHED_IDLE);
        assert_eq!(thread.join().unwrap(), (idle, idle));
    }
}
