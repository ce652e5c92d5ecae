//! Checkpoints and other files of tensors.

use std::path::Path;

use serde_json::json;
use thalweg_formats::checkpoint::{CheckpointState, data_path, index_path, object_graph};
use thalweg_tensor::{DType, Result, npy};

use super::{Description, bytes_text, count};
use crate::checkpoint::source::{Source, Tensors, prefixes_in, storage};
use crate::files;

/// The maximum number of tensors in text output; JSON output has all.
const SHOWN_MAX: usize = 20;

/// A checkpoint, V1 or V2.
pub(super) fn checkpoint(path: &str, verify: bool) -> Result<Description> {
    let source = Source::open(path)?;
    let kind = match source.tensors() {
        Tensors::V1(_) => "V1 checkpoint",
        _ => "checkpoint",
    };
    let mut description = Description::new(kind);
    description.note.clone_from(&source.note);
    describe(&mut description, &source, verify)?;
    Ok(description)
}

/// Counts, sizes and totals of named tensors.
fn describe(description: &mut Description, source: &Source, verify: bool) -> Result<()> {
    let (mut bytes, mut parameters) = (0u64, 0u64);
    let mut listed = Vec::new();
    for name in source.names() {
        let info = source.info(&name)?;
        bytes += info.bytes;
        if info.dtype.is_floating() || info.dtype.is_complex() {
            parameters += info.shape.num_elements() as u64;
        }
        let cut = match info.slices.len() {
            0 => String::new(),
            n => format!(" in {n} slices"),
        };
        if listed.len() < SHOWN_MAX {
            description.lines.push(format!("{name}: {} {}{cut}", info.dtype, info.shape));
        }
        listed.push(json!({
            "name": name, "dtype": info.dtype.name(), "shape": info.shape.dims(),
            "bytes": info.bytes, "slices": info.slices,
        }));
    }
    if listed.len() > SHOWN_MAX {
        description.lines.push(format!("and {} more", listed.len() - SHOWN_MAX));
    }
    description.summary = format!("{}, {}", count(listed.len(), "tensor"), bytes_text(bytes));
    description.fact("bytes", bytes);
    description.fact("floating_elements", parameters);
    description.fact("tensors", listed);
    if let Tensors::Bundle(reader) = source.tensors() {
        let shards = reader.shards() as usize;
        description.summary += &format!(" in {}", count(shards, "data file"));
        description.fact("prefix", reader.prefix());
        description.fact("data_files", shards);
        if let Err(e) = reader.check_sizes() {
            description.problem(&e);
        } else if let Some(graph) = object_graph::read(reader).unwrap_or_else(|e| {
            description.problem(&e);
            None
        }) {
            description.summary +=
                &format!(", {} of a program", count(graph.nodes.len(), "object"));
            description.fact("objects", graph.nodes.len());
        }
    }
    if verify && description.problems.is_empty() {
        let report = source.verify();
        report.problems.iter().for_each(|e| description.problem(e));
        description.is_verified = true;
    }
    Ok(())
}

/// The index or a data file of a checkpoint.
pub(super) fn file_of_checkpoint(path: &str, prefix: &str, verify: bool) -> Result<Description> {
    let is_index = path == index_path(prefix);
    let kind = if is_index { "index of a checkpoint" } else { "data file of a checkpoint" };
    let mut description = match checkpoint(prefix, verify) {
        Ok(description) => description,
        Err(e) => {
            let mut description = Description::new(kind);
            description.summary = format!("of {prefix}");
            description.problem(&e);
            return Ok(description);
        }
    };
    description.kind = kind;
    description.summary = format!("of the checkpoint {prefix}: {}", description.summary);
    description.note = Some(format!("commands take the checkpoint's prefix: {prefix}"));
    let shards =
        description.facts.get("data_files").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let shards = u32::try_from(shards).unwrap_or(0);
    let is_used = is_index || (0..shards).any(|shard| data_path(prefix, shard, shards) == path);
    if !is_used {
        let files = count(shards as usize, "data file");
        description.problems.push(format!(
            "{path} belongs to another checkpoint: the index of {prefix} lists {files}"
        ));
    }
    Ok(description)
}

/// A folder with the file `checkpoint`.
pub(super) fn state(folder: &str, verify: bool) -> Result<Description> {
    let storage = storage();
    let mut description = Description::new("folder of checkpoints");
    let state = CheckpointState::read(&*storage, folder)?.unwrap_or_default();
    description.fact("latest", state.latest.clone());
    description.fact("all", state.all.clone());
    description.summary = format!("{} listed", count(state.all.len(), "checkpoint"));
    if state.latest.is_empty() {
        description
            .problems
            .push(format!("{folder}/checkpoint does not name the latest checkpoint"));
        return Ok(description);
    }
    description.note = Some(format!("the latest checkpoint is {}", state.latest));
    match checkpoint(&state.latest, verify) {
        Ok(latest) => {
            description.summary += &format!(", the latest has {}", latest.summary);
            description.lines = latest.lines;
            description.problems = latest.problems;
            description.is_verified = latest.is_verified;
            description.facts.extend(latest.facts);
        }
        Err(e) => description.problem(&e),
    }
    for prefix in state.all.iter().filter(|prefix| **prefix != state.latest) {
        if !storage.exists(&index_path(prefix))? && !storage.exists(prefix)? {
            description.problems.push(format!("the checkpoint {prefix} is listed and missing"));
        }
    }
    Ok(description)
}

/// A folder with checkpoints but without the state file `checkpoint`.
pub(super) fn checkpoints(folder: &str, verify: bool) -> Result<Description> {
    let prefixes = prefixes_in(&*storage(), folder)?;
    if let [only] = &prefixes[..] {
        let mut description = checkpoint(only, verify)?;
        description.note = Some(format!("the checkpoint is {only}"));
        return Ok(description);
    }
    let mut description = Description::new("folder of checkpoints");
    description.summary = count(prefixes.len(), "checkpoint");
    description.is_verified = verify;
    for prefix in &prefixes {
        match checkpoint(prefix, verify) {
            Ok(one) => {
                description.lines.push(format!("{prefix}: {}", one.summary));
                description.problems.extend(one.problems);
            }
            Err(e) => description.problem(&e),
        }
    }
    description.fact("all", prefixes);
    Ok(description)
}

/// An npy file.
pub(super) fn npy(path: &str, size: u64, verify: bool) -> Result<Description> {
    const HEADER_BYTES_MAX: usize = 1 << 16;
    let file = storage().open(path)?;
    let mut head = vec![0; HEADER_BYTES_MAX.min(usize::try_from(size).unwrap_or(HEADER_BYTES_MAX))];
    let read = file.read_at(0, &mut head)?;
    let info = npy::info(&head[..read])?;
    let mut description = Description::new("NumPy array");
    description.summary = format!("{} {}, {}", info.dtype, info.shape, bytes_text(info.data_bytes));
    description.fact("dtype", info.dtype.name());
    description.fact("shape", info.shape.dims());
    description.fact("bytes", info.data_bytes);
    let expected = info.data_bytes.saturating_add(info.data_start as u64);
    if expected != size {
        description.problems.push(format!("{path} should have {expected} bytes and has {size}"));
    }
    if verify && description.problems.is_empty() && info.dtype != DType::String {
        description.is_verified = true;
    } else if verify && description.problems.is_empty() {
        match npy::read(files::read(Path::new(path), usize::MAX - 1)?, None) {
            Ok(_) => description.is_verified = true,
            Err(e) => description.problem(&e),
        }
    }
    Ok(description)
}

/// A zip archive: an npz file, or another kind.
pub(super) fn archive(path: &str, verify: bool) -> Result<Description> {
    use thalweg_formats::npz::NpzReader;
    let reader = NpzReader::open(&*storage(), path)?;
    if reader.names().next().is_none() {
        let mut description = Description::new("zip archive");
        description.summary = "without NumPy arrays".to_owned();
        return Ok(description);
    }
    let mut description = Description::new("archive of NumPy arrays");
    let source = Source::of_npz(path, reader);
    describe(&mut description, &source, verify)?;
    Ok(description)
}

/// A safetensors file.
pub(super) fn safetensors(path: &str, verify: bool) -> Result<Description> {
    use thalweg_formats::safetensors::SafetensorsReader;
    let reader = SafetensorsReader::open(&*storage(), path)?;
    let mut description = Description::new("safetensors file");
    let metadata = json!(reader.metadata());
    describe(&mut description, &Source::of_safetensors(path, reader), verify)?;
    description.fact("metadata", metadata);
    Ok(description)
}
