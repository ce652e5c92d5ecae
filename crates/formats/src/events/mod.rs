//! Event files, as TensorBoard reads them: one `Event` per record.
//!
//! [`EventWriter`] writes them, [`EventReader`] reads them; [`summary`] makes summary values for
//! TensorBoard's plugins, [`Scalars`] extracts the scalars of a file without decoding the rest.

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

/// The file version in the first event of a file.
pub const FILE_VERSION: &str = "brain.Event:2";
