//! Mistakes: what a program built wrongly, with the line that did.

use std::fmt;
use std::panic::Location;

use thalweg_tensor::{Code, Error};

/// Where in the program something was built.
pub type Caller = &'static Location<'static>;

/// A node that could not be added, with the source line of the call.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// What is wrong.
    pub error: Error,
    /// The call that would have added the node.
    pub caller: Caller,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.caller.file(), self.caller.line(), self.error.message())
    }
}

/// Most mistakes that one error lists.
const LISTED_MAX: usize = 20;

/// One error for all mistakes of a graph, with the code of the first; `None` if there is none.
pub(crate) fn summary(mistakes: &[Mistake]) -> Option<Error> {
    let first = mistakes.first()?;
    let code: Code = first.error.code();
    if mistakes.len() == 1 {
        return Some(Error::new(code, first.to_string()));
    }
    let mut text = format!("the graph has {} mistakes:", mistakes.len());
    for mistake in mistakes.iter().take(LISTED_MAX) {
        text += &format!("\n  {mistake}");
    }
    if mistakes.len() > LISTED_MAX {
        text += &format!("\n  and {} more", mistakes.len() - LISTED_MAX);
    }
    Some(Error::new(code, text))
}
