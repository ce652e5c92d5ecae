//! Clocks: for request signatures and timeouts.
#![expect(clippy::disallowed_methods, reason = "remote stores measure real time")]

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The monotonic time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall-clock time since 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
