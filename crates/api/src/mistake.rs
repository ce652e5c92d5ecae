//! Mistakes: what a program built wrongly, with the line that did.

use std::cell::Cell;
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

thread_local! {
    /// The line that calls a library function which adds nodes on this thread.
    static ORIGIN: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// Calls `add`; mistakes in it, and the nodes that it adds, are those of the line `caller`, unless a
/// caller of it said so before: for functions of a library whose users know nothing of its lines.
///
/// ```
/// use thalweg_api::{Graph, Output, on_behalf_of};
///
/// #[track_caller]
/// fn normalized(x: &Output<f32>) -> Output<f32> {
///     on_behalf_of(std::panic::Location::caller(), || x / x.square().sum().sqrt())
/// }
///
/// let g = Graph::new();
/// let y = normalized(&g.constant([3.0, 4.0]));
/// assert_eq!(g.session().unwrap().run::<_, Vec<f32>>(&y, (), &[]).unwrap(), [0.6, 0.8]);
/// ```
pub fn on_behalf_of<R>(caller: Caller, add: impl FnOnce() -> R) -> R {
    /// Restores what was there before, also on a panic.
    struct Restore(Option<Caller>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ORIGIN.set(self.0);
        }
    }
    let before = ORIGIN.get();
    let _restore = Restore(before);
    ORIGIN.set(before.or(Some(caller)));
    add()
}

/// The line that a mistake of the line `caller` is reported for.
pub(crate) fn origin(caller: Caller) -> Caller {
    ORIGIN.get().unwrap_or(caller)
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
