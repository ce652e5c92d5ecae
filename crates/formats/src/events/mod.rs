//! Event files: what a run tells the dashboard, one event per record.
//!
//! [`EventWriter`] writes them, [`EventReader`] reads them back; [`summary`] makes the values that
//! the dashboard shows, [`Scalars`] picks the numbers out of a file without decoding the rest.

mod histogram;
mod hparams;
mod reader;
mod scalars;
pub mod summary;
mod writer;

pub use histogram::Histogram;
pub use hparams::{HParam, session_end, session_start};
pub use reader::{EventReader, event_files};
pub use scalars::{Scalar, Scalars, TagKind, Tags};
pub use writer::{EventWriter, file_name};

/// What the first event of a file says.
pub const FILE_VERSION: &str = "brain.Event:2";
