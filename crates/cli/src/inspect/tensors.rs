//! Checkpoints and other files of tensors.

use std::path::Path;

use serde_json::json;
use thalweg_formats::checkpoint::{CheckpointState, data_path, index_path, object_graph};
use thalweg_tensor::{DType, Result, npy};

use super::{Finding, bytes_text, count};
use crate::checkpoint::source::{Source, Tensors, prefixes_in, storage};
use crate::files;

/// The maximum number of tensors in text output; JSON output has all.
const SHOWN_MAX: usize = 20;

/// A checkpoint, V1 or V2.
pub(super) fn checkpoint(path: &str, verify: bool) -> Result<Finding> {
    let source = Source::open(path)?;
    let kind = match source.tensors() {
        Tensors::First(_) => "checkpoint of the first format",
        _ => "checkpoint",
    };
    let mut finding = Finding::new(kind);
    finding.note.clone_from(&source.note);
    describe(&mut finding, &source, verify)?;
    Ok(finding)
}

/// Counts, sizes and totals of named tensors.
fn describe(finding: &mut Finding, source: &Source, verify: bool) -> Result<()> {
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
            finding.lines.push(format!("{name}: {} {}{cut}", info.dtype, info.shape));
        }
        listed.push(json!({
            "name": name, "dtype": info.dtype.name(), "shape": info.shape.dims(),
            "bytes": info.bytes, "slices": info.slices,
        }));
    }
    if listed.len() > SHOWN_MAX {
        finding.lines.push(format!("and {} more", listed.len() - SHOWN_MAX));
    }
    finding.summary = format!("{}, {}", count(listed.len(), "tensor"), bytes_text(bytes));
    finding.fact("bytes", bytes);
    finding.fact("floating_elements", parameters);
    finding.fact("tensors", listed);
    if let Tensors::Bundle(reader) = source.tensors() {
        let shards = reader.shards() as usize;
        finding.summary += &format!(" in {}", count(shards, "data file"));
        finding.fact("prefix", reader.prefix());
        finding.fact("data_files", shards);
        if let Err(e) = reader.check_sizes() {
            finding.problem(&e);
        } else if let Some(graph) = object_graph::read(reader).unwrap_or_else(|e| {
            finding.problem(&e);
            None
        }) {
            finding.summary += &format!(", {} of a program", count(graph.nodes.len(), "object"));
            finding.fact("objects", graph.nodes.len());
        }
    }
    if verify && finding.problems.is_empty() {
        let report = source.verify();
        report.problems.iter().for_each(|e| finding.problem(e));
        finding.is_verified = true;
    }
    Ok(())
}

/// The index or a data file of a checkpoint.
pub(super) fn file_of_checkpoint(path: &str, prefix: &str, verify: bool) -> Result<Finding> {
    let is_index = path == index_path(prefix);
    let kind = if is_index { "index of a checkpoint" } else { "data file of a checkpoint" };
    let mut finding = match checkpoint(prefix, verify) {
        Ok(finding) => finding,
        Err(e) => {
            let mut finding = Finding::new(kind);
            finding.summary = format!("of {prefix}");
            finding.problem(&e);
            return Ok(finding);
        }
    };
    finding.kind = kind;
    finding.summary = format!("of the checkpoint {prefix}: {}", finding.summary);
    finding.note = Some(format!("commands take the checkpoint's path: {prefix}"));
    let shards = finding.facts.get("data_files").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let shards = u32::try_from(shards).unwrap_or(0);
    let is_used = is_index || (0..shards).any(|shard| data_path(prefix, shard, shards) == path);
    if !is_used {
        let files = count(shards as usize, "data file");
        finding.problems.push(format!(
            "{path} is left from another checkpoint: the index of {prefix} speaks of {files}"
        ));
    }
    Ok(finding)
}

/// A folder with the file `checkpoint`.
pub(super) fn state(folder: &str, verify: bool) -> Result<Finding> {
    let storage = storage();
    let mut finding = Finding::new("folder of checkpoints");
    let state = CheckpointState::read(&*storage, folder)?.unwrap_or_default();
    finding.fact("latest", state.latest.clone());
    finding.fact("all", state.all.clone());
    finding.summary = format!("{} listed", count(state.all.len(), "checkpoint"));
    if state.latest.is_empty() {
        finding.problems.push(format!("{folder}/checkpoint names no latest checkpoint"));
        return Ok(finding);
    }
    finding.note = Some(format!("the latest checkpoint is {}", state.latest));
    match checkpoint(&state.latest, verify) {
        Ok(latest) => {
            finding.summary += &format!(", the latest has {}", latest.summary);
            finding.lines = latest.lines;
            finding.problems = latest.problems;
            finding.is_verified = latest.is_verified;
            finding.facts.extend(latest.facts);
        }
        Err(e) => finding.problem(&e),
    }
    for prefix in state.all.iter().filter(|prefix| **prefix != state.latest) {
        if !storage.exists(&index_path(prefix))? && !storage.exists(prefix)? {
            finding.problems.push(format!("the checkpoint {prefix} is listed and not there"));
        }
    }
    Ok(finding)
}

/// A folder with checkpoints but without the state file `checkpoint`.
pub(super) fn checkpoints(folder: &str, verify: bool) -> Result<Finding> {
    let prefixes = prefixes_in(&*storage(), folder)?;
    if let [only] = &prefixes[..] {
        let mut finding = checkpoint(only, verify)?;
        finding.note = Some(format!("the checkpoint is {only}"));
        return Ok(finding);
    }
    let mut finding = Finding::new("folder of checkpoints");
    finding.summary = count(prefixes.len(), "checkpoint");
    finding.is_verified = verify;
    for prefix in &prefixes {
        match checkpoint(prefix, verify) {
            Ok(one) => {
                finding.lines.push(format!("{prefix}: {}", one.summary));
                finding.problems.extend(one.problems);
            }
            Err(e) => finding.problem(&e),
        }
    }
    finding.fact("all", prefixes);
    Ok(finding)
}

/// An npy file.
pub(super) fn npy(path: &str, size: u64, verify: bool) -> Result<Finding> {
    const HEADER_BYTES_MAX: usize = 1 << 16;
    let file = storage().open(path)?;
    let mut head = vec![0; HEADER_BYTES_MAX.min(usize::try_from(size).unwrap_or(HEADER_BYTES_MAX))];
    let read = file.read_at(0, &mut head)?;
    let info = npy::info(&head[..read])?;
    let mut finding = Finding::new("NumPy array");
    finding.summary = format!("{} {}, {}", info.dtype, info.shape, bytes_text(info.data_bytes));
    finding.fact("dtype", info.dtype.name());
    finding.fact("shape", info.shape.dims());
    finding.fact("bytes", info.data_bytes);
    let expected = info.data_bytes.saturating_add(info.data_start as u64);
    if expected != size {
        finding.problems.push(format!("{path} should have {expected} bytes and has {size}"));
    }
    if verify && finding.problems.is_empty() && info.dtype != DType::String {
        finding.is_verified = true;
    } else if verify && finding.problems.is_empty() {
        match npy::read(files::read(Path::new(path), usize::MAX - 1)?, None) {
            Ok(_) => finding.is_verified = true,
            Err(e) => finding.problem(&e),
        }
    }
    Ok(finding)
}

/// A zip archive: an npz file, or another kind.
pub(super) fn archive(path: &str, verify: bool) -> Result<Finding> {
    use thalweg_formats::npz::NpzReader;
    let reader = NpzReader::open(&*storage(), path)?;
    if reader.names().next().is_none() {
        let mut finding = Finding::new("zip archive");
        finding.summary = "without NumPy arrays in it".to_owned();
        return Ok(finding);
    }
    let mut finding = Finding::new("archive of NumPy arrays");
    let source = Source::of_npz(path, reader);
    describe(&mut finding, &source, verify)?;
    Ok(finding)
}

/// A safetensors file.
pub(super) fn safetensors(path: &str, verify: bool) -> Result<Finding> {
    use thalweg_formats::safetensors::SafetensorsReader;
    let reader = SafetensorsReader::open(&*storage(), path)?;
    let mut finding = Finding::new("safetensors file");
    let metadata = json!(reader.metadata());
    describe(&mut finding, &Source::of_safetensors(path, reader), verify)?;
    finding.fact("metadata", metadata);
    Ok(finding)
}
