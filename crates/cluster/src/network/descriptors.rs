//! When the process has as many files and sockets open as it may.

use std::io;
use std::sync::Once;

use thalweg_tensor::{Error, err};

/// What the system says when the process, or the machine, has too many files open.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// What to do about it.
const HOW: &str = "raise the limit on open files (ulimit -n, LimitNOFILE= of systemd, --ulimit \
                   nofile= of docker)";

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Says, the first time, that connections wait because no more can be taken.
pub(crate) fn report_refusal(error: &io::Error) {
    static SAID: Once = Once::new();
    if is_exhausted(error) {
        SAID.call_once(|| eprintln!("connections wait, as no more can be taken: {error}; {HOW}"));
    }
}

/// Why a task could not be reached. It is not lost if that is our own fault.
pub(crate) fn not_reached(address: &str, error: &io::Error) -> Error {
    match is_exhausted(error) {
        true => err!(ResourceExhausted, "no connection to {address} can be made: {error}; {HOW}"),
        false => err!(Unavailable, "{address} cannot be reached: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn a_task_is_not_lost_because_we_have_no_descriptor_left() {
        for (number, code) in [
            (EMFILE, Code::ResourceExhausted),
            (ENFILE, Code::ResourceExhausted),
            (111, Code::Unavailable),
        ] {
            let error = not_reached("h:1", &io::Error::from_raw_os_error(number));
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.message().contains("ulimit -n"), code == Code::ResourceExhausted);
        }
    }
}
