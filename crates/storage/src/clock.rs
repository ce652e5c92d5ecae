//! The time, which requests are signed with and waits are bounded by.
#![expect(clippy::disallowed_methods, reason = "stores elsewhere have clocks of their own")]

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Now, on a clock that never goes back.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Since 1970, as the machine believes.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
