//! Branches and loops: closures add their bodies, which become functions.

mod branches;
mod loops;
mod structure;

pub use branches::{Branches, Cases, case, cond, switch_case};
pub use loops::{LoopOptions, foldl, map_fn, scan, while_loop};
pub(crate) use structure::endpoints;
pub use structure::{Elems, Outputs};
