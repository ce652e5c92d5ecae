//! One error type for the workspace: TensorFlow's canonical code and a sentence.
//!
//! Callers match on the code, never on the text. `Internal` means a bug of ours; everything that a
//! user can cause has another code.

use std::fmt;

/// TensorFlow's (and gRPC's) canonical codes, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the documentation: they are gRPC's")]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// The name as TensorFlow prints it, `INVALID_ARGUMENT` for instance.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// A canonical code and a message, one pointer wide.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<(Code, String)>);

/// What everything fallible in the workspace returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this code and sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error(Box::new((code, message.into())))
    }

    /// The canonical code.
    pub fn code(&self) -> Code {
        self.0.0
    }

    /// The sentence, without the code.
    pub fn message(&self) -> &str {
        &self.0.1
    }

    /// The same code with the message rewritten.
    pub fn map_message(mut self, rewrite: impl FnOnce(String) -> String) -> Self {
        self.0.1 = rewrite(std::mem::take(&mut self.0.1));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code().name(), self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Adds what was being done to an error's message; the code stays.
pub trait Context<T> {
    /// Prefixes the message with `describe()` and a colon.
    fn context<S: fmt::Display>(self, describe: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<S: fmt::Display>(self, describe: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| e.map_message(|message| format!("{}: {message}", describe())))
    }
}

/// `err!(InvalidArgument, "format", args..)` makes an [`Error`].
#[macro_export]
macro_rules! err {
    ($code:ident, $($message:tt)+) => {
        $crate::Error::new($crate::Code::$code, format!($($message)+))
    };
}

/// `bail!(InvalidArgument, "format", args..)` returns an error.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($message:tt)+) => {
        return Err($crate::err!($code, $($message)+))
    };
}

/// `ensure!(condition, InvalidArgument, "format", args..)` returns an error unless `condition`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $code:ident, $($message:tt)+) => {
        if !$condition {
            $crate::bail!($code, $($message)+);
        }
    };
}
