//! Threads for work that requests must not notice: loading versions and freeing them, making plans.

use rustix::process::setpriority_process;
use thalweg_tensor::{Result, err};
use tokio::sync::oneshot;

/// How much such threads yield to those that answer requests: a tenth of the time of a core that both
/// want, so that loading ends even on a machine that is always busy.
const NICENESS: i32 = 10;

/// Starts `body` on a thread of its own with a low priority, which threads that it starts inherit (those
/// that read files among them). The thread ends with it, and at the end of a thread the allocator gives
/// back to the system what has been free for a while.
pub(crate) fn start(body: impl FnOnce() + Send + 'static) -> Result<()> {
    let work = move || {
        // Where that is not allowed it has the priority of the others.
        let _ = setpriority_process(None, NICENESS);
        body();
    };
    std::thread::Builder::new()
        .name("thalweg-load".into())
        .spawn(work)
        .map_err(|e| err!(ResourceExhausted, "there is no thread to be had: {e}"))?;
    Ok(())
}

/// As [`start`], and waits for what `body` gives.
pub(crate) async fn run<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (tell, told) = oneshot::channel();
    start(move || {
        // Whoever asked may have gone.
        let _ = tell.send(body());
    })?;
    told.await.map_err(|_| err!(Internal, "it panicked; this is a bug"))
}
