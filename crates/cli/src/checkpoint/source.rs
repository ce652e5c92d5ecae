//! Files of named tensors, in any supported format.

use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::checkpoint::{
    BundleReader, CheckpointState, VerifyReport, index_path, prefix_of, v1,
};
use thalweg_formats::npz::NpzReader;
use thalweg_formats::safetensors::SafetensorsReader;
use thalweg_formats::storage::{folder_of, join};
use thalweg_tensor::{Code, DType, Result, Shape, Tensor, bail, err};

use crate::files;

/// The metadata of a tensor.
pub(crate) struct Info {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Its size in the file, in bytes.
    pub(crate) bytes: u64,
    /// The slices that it is stored in, if it is partitioned.
    pub(crate) slices: Vec<String>,
}

/// Named tensors.
pub(crate) struct Source {
    /// The path of the intact: for a checkpoint its prefix.
    pub(crate) path: String,
    /// A message for a user who gave another path.
    pub(crate) note: Option<String>,
    tensors: Tensors,
}

pub(crate) enum Tensors {
    Bundle(BundleReader),
    V1(v1::Reader),
    Npz(NpzReader),
    Safetensors(SafetensorsReader),
}

/// The storage that commands use.
pub(crate) fn storage() -> Arc<dyn Storage> {
    files::storage().clone()
}

/// The magic number at the end of a table file.
const TABLE_MAGIC: u64 = 0xdb47_7524_8b80_fb57;

impl Source {
    /// Opens a checkpoint's prefix, one of its files, a V1 checkpoint file, a folder with the file
    /// `checkpoint` or a SavedModel's variables, a .npz or a .safetensors file.
    pub(crate) fn open(path: &str) -> Result<Source> {
        let storage = storage();
        let (meant, note) = meant(&*storage, path)?;
        let tensors = if storage.exists(&index_path(&meant))? {
            Tensors::Bundle(BundleReader::open(&storage, &meant)?)
        } else if meant.ends_with(".npz") {
            Tensors::Npz(NpzReader::open(&*storage, &meant)?)
        } else if meant.ends_with(".safetensors") {
            Tensors::Safetensors(SafetensorsReader::open(&*storage, &meant)?)
        } else if prefix_of(&meant).is_some() {
            return Err(missing(&*storage, path, &meant));
        } else if storage.exists(&meant)? {
            if !is_table(&*storage, &meant)? {
                bail!(
                    InvalidArgument,
                    "{meant} is not a checkpoint: {meant}.index does not exist, and the file itself is \
                     not a V1 checkpoint; 'thalweg inspect' identifies files"
                );
            }
            Tensors::V1(v1::Reader::open(&*storage, &meant)?)
        } else if meant.contains(['*', '?', '[']) {
            Tensors::V1(v1::Reader::open(&*storage, &meant)?)
        } else {
            return Err(missing(&*storage, path, &meant));
        };
        Ok(Source { path: meant, note, tensors })
    }

    /// The arrays of an open npz file, whatever its name.
    pub(crate) fn of_npz(path: &str, reader: NpzReader) -> Source {
        Source { path: path.to_owned(), note: None, tensors: Tensors::Npz(reader) }
    }

    /// The tensors of an open safetensors file, whatever its name.
    pub(crate) fn of_safetensors(path: &str, reader: SafetensorsReader) -> Source {
        Source { path: path.to_owned(), note: None, tensors: Tensors::Safetensors(reader) }
    }

    /// The file format.
    pub(crate) fn kind(&self) -> &'static str {
        match self.tensors {
            Tensors::Bundle(_) => "checkpoint",
            Tensors::V1(_) => "V1 checkpoint",
            Tensors::Npz(_) => "npz",
            Tensors::Safetensors(_) => "safetensors",
        }
    }

    /// The reader of the tensors.
    pub(crate) fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let owned = |name: &str| name.to_owned();
        let mut names: Vec<String> = match &self.tensors {
            Tensors::Bundle(reader) => reader.names().map(owned).collect(),
            Tensors::V1(reader) => reader.names().map(owned).collect(),
            Tensors::Npz(reader) => reader.names().map(owned).collect(),
            Tensors::Safetensors(reader) => reader.entries().map(|(n, _)| n.to_owned()).collect(),
        };
        names.sort();
        names
    }

    /// The number of tensors.
    pub(crate) fn len(&self) -> usize {
        match &self.tensors {
            Tensors::Bundle(reader) => reader.len(),
            Tensors::V1(reader) => reader.names().count(),
            Tensors::Npz(reader) => reader.names().count(),
            Tensors::Safetensors(reader) => reader.entries().count(),
        }
    }

    /// The metadata of a tensor.
    pub(crate) fn info(&self, name: &str) -> Result<Info> {
        let missing = || err!(NotFound, "{}: there is no tensor '{name}'", self.path);
        match &self.tensors {
            Tensors::Bundle(reader) => {
                let entry = reader.entry(name).ok_or_else(missing)?;
                Ok(Info {
                    dtype: entry.dtype,
                    shape: entry.shape.clone(),
                    bytes: reader.stored_bytes(name),
                    slices: entry.slices.iter().map(ToString::to_string).collect(),
                })
            }
            Tensors::V1(reader) => {
                let saved = reader.entry(name).ok_or_else(missing)?;
                let is_cut = saved.slices.iter().any(|slice| !slice.is_full());
                let slices = saved.slices.iter().filter(|_| is_cut);
                Ok(Info {
                    dtype: saved.dtype,
                    shape: saved.shape.clone(),
                    bytes: (saved.shape.num_elements() as u64)
                        .saturating_mul(saved.dtype.size() as u64),
                    slices: slices.map(ToString::to_string).collect(),
                })
            }
            Tensors::Npz(reader) => {
                let info = reader.info(name)?;
                let (dtype, shape, bytes) = (info.dtype, info.shape, info.data_bytes);
                Ok(Info { dtype, shape, bytes, slices: Vec::new() })
            }
            Tensors::Safetensors(reader) => {
                let info = reader.entry(name).ok_or_else(missing)?;
                let (dtype, shape, bytes) = (info.dtype, info.shape.clone(), info.bytes);
                Ok(Info { dtype, shape, bytes, slices: Vec::new() })
            }
        }
    }

    /// A tensor.
    pub(crate) fn read(&self, name: &str) -> Result<Tensor> {
        match &self.tensors {
            Tensors::Bundle(reader) => reader.read(name),
            Tensors::V1(reader) => reader.read(name),
            Tensors::Npz(reader) => reader.read(name, None),
            Tensors::Safetensors(reader) => reader.read(name, None),
        }
    }

    /// Reads everything and verifies checksums.
    pub(crate) fn verify(&self) -> VerifyReport {
        match &self.tensors {
            Tensors::Bundle(reader) => reader.verify(),
            Tensors::V1(reader) => reader.verify(),
            _ => {
                let mut report = VerifyReport::default();
                for name in self.names() {
                    match self.read(&name) {
                        Ok(tensor) => {
                            report.intact += 1;
                            report.bytes += tensor.size_bytes() as u64;
                        }
                        Err(e) => report.problems.push(e),
                    }
                }
                report
            }
        }
    }
}

/// The prefix of the checkpoint that `path` belongs to, and a message if that is another path.
fn meant(storage: &dyn Storage, path: &str) -> Result<(String, Option<String>)> {
    let trimmed = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    if storage.metadata(path).is_ok_and(|found| found.is_folder) {
        let (prefix, why) = in_folder(storage, trimmed)?;
        return Ok((prefix.clone(), Some(format!("{path} is a folder; {why} is {prefix}"))));
    }
    if !storage.exists(&index_path(path))?
        && let Some(prefix) = prefix_of(path)
        && storage.exists(&index_path(prefix))?
    {
        let note = format!("{path} is one of a checkpoint's files; the checkpoint is {prefix}");
        return Ok((prefix.to_owned(), Some(note)));
    }
    Ok((path.to_owned(), None))
}

/// The checkpoint that a folder refers to, and how.
fn in_folder(storage: &dyn Storage, folder: &str) -> Result<(String, &'static str)> {
    match CheckpointState::read(storage, folder) {
        Ok(Some(state)) if !state.latest.is_empty() => {
            return Ok((state.latest, "its latest checkpoint"));
        }
        Ok(_) => {}
        Err(e) => return Err(e),
    }
    let variables = join(folder, "variables/variables");
    if storage.exists(&index_path(&variables))? {
        return Ok((variables, "the checkpoint of its SavedModel"));
    }
    let prefixes = prefixes_in(storage, folder)?;
    match &prefixes[..] {
        [only] => Ok((only.clone(), "the checkpoint in it")),
        [] => bail!(NotFound, "{folder} is a folder without a checkpoint"),
        many => bail!(
            InvalidArgument,
            "{folder} is a folder with {} checkpoints and no checkpoint state file that names the \
             latest: {}",
            many.len(),
            shown(many)
        ),
    }
}

/// Prefixes of the checkpoints in a folder, sorted.
pub(crate) fn prefixes_in(storage: &dyn Storage, folder: &str) -> Result<Vec<String>> {
    let names = storage.list(folder)?;
    let prefix = |name: &String| Some(join(folder, name.strip_suffix(".index")?));
    let mut prefixes: Vec<String> = names.iter().filter_map(prefix).collect();
    prefixes.sort();
    Ok(prefixes)
}

fn shown(prefixes: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    let mut text = prefixes.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    if prefixes.len() > SHOWN_MAX {
        text += &format!(" and {} more", prefixes.len() - SHOWN_MAX);
    }
    text
}

/// The error for a path without a checkpoint, with suggestions.
fn missing(storage: &dyn Storage, path: &str, meant: &str) -> thalweg_tensor::Error {
    if let Some(prefix) = prefix_of(meant)
        && storage.exists(meant).unwrap_or(false)
    {
        let index = index_path(prefix);
        return err!(
            NotFound,
            "{meant} is a file of the checkpoint {prefix}, whose index {index} is missing"
        );
    }
    let mut message =
        format!("there is no checkpoint {path}: neither {} nor {path} is a file", index_path(path));
    if path != meant {
        message =
            format!("{path} names the checkpoint {meant}, and {} is missing", index_path(meant));
    }
    if let Ok(there) = prefixes_in(storage, folder_of(meant))
        && !there.is_empty()
    {
        message += &format!("; beside it are {}", shown(&there));
    }
    thalweg_tensor::Error::new(Code::NotFound, message)
}

/// Whether a file ends with the magic number of a table.
pub(crate) fn is_table(storage: &dyn Storage, path: &str) -> Result<bool> {
    let file = storage.open(path)?;
    let Some(at) = file.size()?.checked_sub(8) else { return Ok(false) };
    let mut end = [0; 8];
    Ok(file.read_at(at, &mut end)? == 8 && end == TABLE_MAGIC.to_le_bytes())
}
