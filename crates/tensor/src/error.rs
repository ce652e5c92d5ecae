//! One error type for the workspace: TensorFlow's canonical code, a sentence, and where the error arose.
//!
//! Callers match on the code and on the fields of the origin, never on the text, which is made when
//! a caller asks for it. `Internal` means a bug of ours; everything that a
//! user can cause has another code.

use std::fmt;
use std::sync::OnceLock;

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

/// A canonical code, a sentence and an [`Origin`], one pointer wide.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    sentence: String,
    located: Option<Box<Located>>,
}

/// Where an error arose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The node that failed: of nested nodes (a call and a node of its function) the innermost.
    pub node: Option<String>,
    /// The function that could not be called.
    pub function: Option<String>,
    /// The task on which it failed, `/job:ps/replica:0/task:0`.
    pub task: Option<String>,
}

#[derive(Clone, Default)]
struct Located {
    origin: Origin,
    /// The fields of `origin` that the sentence shows already, as it came from elsewhere.
    shown: Shown,
    /// The sentence with the other fields, once a caller has asked for it.
    text: OnceLock<String>,
}

#[derive(Clone, Copy, Default)]
struct Shown {
    node: bool,
    function: bool,
    task: bool,
}

impl Located {
    /// TensorFlow's text: clients look for the node's name in it.
    fn render(&self, sentence: &str) -> String {
        let Located { origin, shown, .. } = self;
        let mut text = String::with_capacity(sentence.len() + 100);
        if let Some(task) = origin.task.as_ref().filter(|_| !shown.task) {
            text += &format!("From {task}:\n");
        }
        if let Some(function) = origin.function.as_ref().filter(|_| !shown.function) {
            text += &calling(function);
        }
        text += sentence;
        if let Some(node) = origin.node.as_ref().filter(|_| !shown.node) {
            text += &format!("\n\t [[{{{{node {node}}}}}]]");
        }
        text
    }
}

fn calling(function: &str) -> String {
    format!("calling function '{function}': ")
}

/// What everything fallible in the workspace returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this code and sentence.
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        Error(Box::new(Inner { code, sentence: sentence.into(), located: None }))
    }

    /// The canonical code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// TensorFlow's text, without the code: the sentence and where the error arose.
    pub fn message(&self) -> &str {
        match &self.0.located {
            None => &self.0.sentence,
            Some(located) => located.text.get_or_init(|| located.render(&self.0.sentence)),
        }
    }

    /// Where the error arose, if that is known.
    pub fn origin(&self) -> Option<&Origin> {
        self.0.located.as_ref().map(|located| &located.origin)
    }

    /// The node that failed, if it is known.
    pub fn node(&self) -> Option<&str> {
        self.origin()?.node.as_deref()
    }

    /// The task on which it failed, if it is known.
    pub fn task(&self) -> Option<&str> {
        self.origin()?.task.as_deref()
    }

    /// The same error with another code.
    pub fn with_code(mut self, code: Code) -> Self {
        self.0.code = code;
        self
    }

    /// The same error with its sentence rewritten; where it arose stays and is no part of the sentence.
    pub fn map_message(mut self, rewrite: impl FnOnce(String) -> String) -> Self {
        self.0.sentence = rewrite(std::mem::take(&mut self.0.sentence));
        if let Some(located) = &mut self.0.located {
            located.text = OnceLock::new();
        }
        self
    }

    /// Names the node that failed, unless a node within it is named already.
    pub fn at_node(mut self, name: &str) -> Self {
        let located = self.located();
        if located.origin.node.is_none() {
            located.origin.node = Some(name.to_owned());
        }
        self
    }

    /// Names the function that could not be called.
    pub fn in_function(mut self, name: &str) -> Self {
        let located = self.located();
        let inner = located.origin.function.replace(name.to_owned());
        let is_shown = std::mem::take(&mut located.shown.function);
        match inner.filter(|_| !is_shown) {
            Some(inner) => self.map_message(|m| calling(&inner) + &m),
            None => self,
        }
    }

    /// Names the task on which it failed, unless one is named already.
    pub fn from_task(mut self, name: &str) -> Self {
        let located = self.located();
        if located.origin.task.is_none() {
            located.origin.task = Some(name.to_owned());
        }
        self
    }

    /// Says where an error arose whose text shows it already: one that came from another process.
    pub fn with_shown_origin(mut self, origin: Origin) -> Self {
        let located = self.located();
        located.shown = Shown {
            node: origin.node.is_some(),
            function: origin.function.is_some(),
            task: origin.task.is_some(),
        };
        located.origin = origin;
        self
    }

    fn located(&mut self) -> &mut Located {
        let located = self.0.located.get_or_insert_default();
        located.text = OnceLock::new();
        located
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.code(), self.message(), self.origin())
            == (other.code(), other.message(), other.origin())
    }
}

impl Eq for Error {}

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

    /// As [`Error::at_node`].
    fn at_node(self, name: &str) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<S: fmt::Display>(self, describe: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| e.map_message(|message| format!("{}: {message}", describe())))
    }

    fn at_node(self, name: &str) -> Result<T> {
        self.map_err(|e| e.at_node(name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn the_text_shows_where_an_error_arose() {
        let e = err!(NotFound, "no file").in_function("g").at_node("inner").at_node("outer");
        let text = "calling function 'g': no file\n\t [[{{node inner}}]]";
        assert_eq!((e.message(), e.node(), e.task()), (text, Some("inner"), None));
        let e = e.map_message(|m| format!("{m}, at all")).from_task("/job:ps").from_task("/job:w");
        assert_eq!(
            e.message(),
            "From /job:ps:\ncalling function 'g': no file, at all\n\t [[{{node inner}}]]"
        );
        let e = e.in_function("f");
        assert!(
            e.message().starts_with("From /job:ps:\ncalling function 'f': calling function 'g': ")
        );
        assert_ne!(err!(NotFound, "no file").at_node("x"), err!(NotFound, "no file"));
    }

    #[test]
    fn an_error_from_elsewhere_keeps_its_text() {
        let text = "boom [[{{node x}}]] and more";
        let origin = Origin { node: Some("x".into()), ..Origin::default() };
        let e = err!(Internal, "{text}").with_shown_origin(origin).at_node("y");
        assert_eq!((e.message(), e.node()), (text, Some("x")));
        assert_eq!(e.from_task("/job:w").message(), format!("From /job:w:\n{text}"));
    }
}
