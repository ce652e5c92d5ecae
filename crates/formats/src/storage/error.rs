//! I/O errors with TensorFlow's codes.

use std::io;

use thalweg_tensor::{Code, Error};

/// The error of `doing` something with `path`.
pub(crate) fn failed(doing: &str, path: &str, error: &io::Error) -> Error {
    Error::new(code(error.kind()), format!("{path}: cannot {doing}: {error}"))
}

fn code(kind: io::ErrorKind) -> Code {
    use io::ErrorKind as Kind;
    match kind {
        Kind::NotFound => Code::NotFound,
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Code::PermissionDenied,
        Kind::AlreadyExists => Code::AlreadyExists,
        Kind::IsADirectory | Kind::NotADirectory | Kind::DirectoryNotEmpty => {
            Code::FailedPrecondition
        }
        Kind::InvalidInput | Kind::InvalidFilename | Kind::CrossesDevices => Code::InvalidArgument,
        Kind::OutOfMemory | Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
            Code::ResourceExhausted
        }
        Kind::TimedOut | Kind::WouldBlock | Kind::ResourceBusy | Kind::ExecutableFileBusy => {
            Code::Unavailable
        }
        Kind::Unsupported => Code::Unimplemented,
        _ => Code::Unknown,
    }
}
