//! The checkpoint state file `checkpoint` of a folder: its checkpoints, and which is the latest.

use thalweg_proto as pb;
use thalweg_tensor::{Code, Result, err};

use crate::Storage;
use crate::storage::join;

/// The name of the file.
pub const STATE_FILE: &str = "checkpoint";
/// The message's name in the text format.
const MESSAGE: &str = "tensorflow.CheckpointState";
/// The maximum size of the file.
const BYTES_MAX: usize = 64 << 20;

/// The checkpoints of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointState {
    /// The prefix of the latest checkpoint.
    pub latest: String,
    /// The prefixes of all checkpoints that are kept, oldest first.
    pub all: Vec<String>,
    /// When each of [`CheckpointState::all`] was written, in seconds since 1970; may be empty.
    pub timestamps: Vec<f64>,
    /// When the last checkpoint that is kept for ever was written.
    pub last_preserved: f64,
}

impl CheckpointState {
    /// Reads the state file of `folder`, if there is one. Relative prefixes are joined with the
    /// folder.
    pub fn read(storage: &dyn Storage, folder: &str) -> Result<Option<CheckpointState>> {
        let path = join(folder, STATE_FILE);
        let content = match storage.read(&path, BYTES_MAX) {
            Ok(content) => content,
            Err(e) if e.code() == Code::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let broken = |what: String| err!(DataLoss, "{path}: not a CheckpointState: {what}");
        let text = std::str::from_utf8(&content)
            .map_err(|e| broken(format!("byte {} is not UTF-8", e.valid_up_to())))?;
        let state: pb::CheckpointState =
            pb::text::decode(MESSAGE, text).map_err(|e| broken(e.to_string()))?;
        let resolve = |prefix: String| match is_absolute(&prefix) {
            true => prefix,
            false => join(folder, &prefix),
        };
        Ok(Some(CheckpointState {
            latest: match state.model_checkpoint_path {
                none if none.is_empty() => none,
                prefix => resolve(prefix),
            },
            all: state.all_model_checkpoint_paths.into_iter().map(resolve).collect(),
            timestamps: state.all_model_checkpoint_timestamps,
            last_preserved: state.last_preserved_timestamp,
        }))
    }

    /// Replaces the state file of `folder`. Prefixes within the folder are made relative, so that
    /// the folder can be moved.
    pub fn write(&self, storage: &dyn Storage, folder: &str) -> Result<()> {
        let relative = |prefix: &String| {
            let inside = prefix.strip_prefix(&join(folder, ""));
            inside
                .filter(|rest| !rest.is_empty() && !is_absolute(rest))
                .unwrap_or(prefix)
                .to_owned()
        };
        let state = pb::CheckpointState {
            model_checkpoint_path: relative(&self.latest),
            all_model_checkpoint_paths: self.all.iter().map(relative).collect(),
            all_model_checkpoint_timestamps: self.timestamps.clone(),
            last_preserved_timestamp: self.last_preserved,
        };
        let text = pb::text::encode(MESSAGE, &state);
        storage.write(&join(folder, STATE_FILE), text.as_bytes())
    }
}

/// Whether a path is absolute or a URL.
fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || path.contains("://")
}
