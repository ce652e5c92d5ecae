//! The file `checkpoint` of a folder: which checkpoints it holds, and which is the latest.

use thalweg_proto as pb;
use thalweg_tensor::{Code, Result, err};

use crate::Storage;
use crate::storage::join;

/// The name of the file.
pub const STATE_FILE: &str = "checkpoint";
/// The message's name in the text format.
const MESSAGE: &str = "tensorflow.CheckpointState";
/// Largest file that is read.
const BYTES_MAX: usize = 64 << 20;

/// Which checkpoints a folder holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointState {
    /// Prefix of the latest.
    pub latest: String,
    /// Prefixes of all that are kept, the oldest first.
    pub all: Vec<String>,
    /// When each of [`CheckpointState::all`] was written, in seconds since 1970; may be empty.
    pub timestamps: Vec<f64>,
    /// When the last one was written that is to be kept for ever.
    pub last_preserved: f64,
}

impl CheckpointState {
    /// What the file in `folder` says, if there is one. Prefixes that it has relative to the folder
    /// come with the folder before them.
    pub fn read(storage: &dyn Storage, folder: &str) -> Result<Option<CheckpointState>> {
        let path = join(folder, STATE_FILE);
        let content = match storage.read(&path, BYTES_MAX) {
            Ok(content) => content,
            Err(e) if e.code() == Code::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let broken = |what: String| err!(DataLoss, "{path}: it is no CheckpointState: {what}");
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

    /// Replaces the file in `folder`. Prefixes in the folder become relative to it, so that the
    /// folder can be moved.
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

/// Whether a path says by itself where it leads.
fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || path.contains("://")
}
