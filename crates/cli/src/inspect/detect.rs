//! Detection of file kinds.

use thalweg_formats::Storage;
use thalweg_formats::checkpoint::{STATE_FILE, index_path, prefix_of};
use thalweg_formats::record::{Compression, HEADER_BYTES};
use thalweg_formats::storage::{folder_of, join};
use thalweg_tensor::{Result, bail};

use super::{Description, graphs, records, tensors};
use crate::checkpoint::source::{is_table, prefixes_in, storage};

/// The number of bytes at the start of a file that determine its kind.
const HEAD_BYTES: usize = 64;

/// Inspects a path.
pub(super) fn inspect(path: &str, verify: bool) -> Result<Description> {
    let storage = storage();
    let found = storage.metadata(path);
    if found.as_ref().is_ok_and(|found| found.is_folder) {
        let folder = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        return in_folder(&*storage, folder, verify);
    }
    if storage.exists(&index_path(path))? {
        return tensors::checkpoint(path, verify);
    }
    if found.is_err() {
        return tensors::checkpoint(path, verify);
    }
    if let Some(prefix) = prefix_of(path) {
        return tensors::file_of_checkpoint(path, prefix, verify);
    }
    if path.rsplit('/').next() == Some(STATE_FILE) {
        return tensors::state(folder_of(path), verify);
    }
    look_at_file(&*storage, path, verify)
}

fn in_folder(storage: &dyn Storage, folder: &str, verify: bool) -> Result<Description> {
    for model in ["saved_model.pb", "saved_model.pbtxt"] {
        if storage.exists(&join(folder, model))? {
            return graphs::saved_model(folder, &join(folder, model), verify);
        }
    }
    if storage.exists(&join(folder, STATE_FILE))? {
        return tensors::state(folder, verify);
    }
    if !prefixes_in(storage, folder)?.is_empty() {
        return tensors::checkpoints(folder, verify);
    }
    let mut names = storage.list(folder)?;
    names.sort();
    let is_version = |name: &&String| {
        name.bytes().all(|b| b.is_ascii_digit())
            && storage.exists(&join(&join(folder, name), "saved_model.pb")).unwrap_or(false)
    };
    let versions: Vec<&String> = names.iter().filter(is_version).collect();
    if !versions.is_empty() {
        return graphs::versions(folder, &versions, verify);
    }
    if names.iter().any(|name| name.contains("tfevents")) {
        return records::event_folder(folder, &names, verify);
    }
    bail!(
        InvalidArgument,
        "{folder} is a folder with neither a SavedModel nor checkpoints nor event files in it"
    )
}

fn look_at_file(storage: &dyn Storage, path: &str, verify: bool) -> Result<Description> {
    let file = storage.open(path)?;
    let size = file.size()?;
    let mut head = [0; HEAD_BYTES];
    let read = file.read_at(0, &mut head)?;
    let head = &head[..read];
    if head.starts_with(b"\x93NUMPY") {
        return tensors::npy(path, size, verify);
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return tensors::archive(path, verify);
    }
    if let Some((length, rest)) = head.split_first_chunk::<8>()
        && rest.starts_with(b"{")
        && u64::from_le_bytes(*length) < size
    {
        return tensors::safetensors(path, verify);
    }
    if is_table(storage, path)? {
        return tensors::checkpoint(path, verify);
    }
    let is_record = head.len() >= HEADER_BYTES && records::is_header(head);
    let compression = Compression::detect(head);
    if is_record || compression != Compression::None {
        return records::file(path, size, verify);
    }
    graphs::file(path)
}
