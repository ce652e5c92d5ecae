//! What the modules under test use of other crates, without what a model does not need.

use std::fmt;

/// A value, by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a branch that was not taken.
    Dead,
    /// A tensor.
    Tensor(u32),
}

/// The name under which a value is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RendezvousKey(pub &'static str);

/// An error, by its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A result with such an error.
pub type Result<T> = std::result::Result<T, Error>;

/// Takes what was received.
pub type Received = Box<dyn FnOnce(Result<Value>) + Send>;

/// As `thalweg_kernel` has it.
pub trait Rendezvous {
    /// Hands a value over.
    fn send(&self, key: &RendezvousKey, value: Value) -> Result<()>;
    /// Asks for a value.
    fn receive(&self, key: &RendezvousKey, received: Received);
    /// Ends all that waits.
    fn abort(&self, cause: &Error);
}

/// Makes an error.
#[macro_export]
macro_rules! err {
    ($code:ident, $($text:tt)*) => { $crate::Error(format!($($text)*)) };
}

/// Returns with an error.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($text:tt)*) => { return Err($crate::err!($code, $($text)*)) };
}
