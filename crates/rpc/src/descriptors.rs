//! Errors of connections, and of connections that fail for lack of file descriptors (EMFILE, ENFILE).

use std::io;
use std::sync::Once;

use thalweg_tensor::{Error, err};
use tracing::warn;

const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

const REMEDY: &str = "raise the limit on open files (ulimit -n, LimitNOFILE= of systemd, --ulimit \
                   nofile= of docker)";

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Reports, once per process, that connections stay in the backlog for want of file descriptors.
pub fn report_accept_error(error: &io::Error) {
    static REPORTED: Once = Once::new();
    if is_exhausted(error) {
        REPORTED.call_once(|| {
            warn!(
                target: "thalweg::rpc",
                "new connections wait in the backlog, because accept failed: {error}; {REMEDY}"
            );
        });
    }
}

/// The error of a failed connection to `address`: UNAVAILABLE, or RESOURCE_EXHAUSTED if this process has
/// no file descriptor left: the server may be alive.
pub fn connect_error(address: &str, error: &io::Error) -> Error {
    match is_exhausted(error) {
        true => err!(ResourceExhausted, "cannot connect to {address}: {error}; {REMEDY}"),
        false => err!(Unavailable, "{address} cannot be reached: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn exhausted_descriptors_do_not_mean_a_lost_server() {
        for (number, code) in [
            (EMFILE, Code::ResourceExhausted),
            (ENFILE, Code::ResourceExhausted),
            (111, Code::Unavailable),
        ] {
            let error = connect_error("h:1", &io::Error::from_raw_os_error(number));
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.message().contains("ulimit -n"), code == Code::ResourceExhausted);
        }
    }
}
