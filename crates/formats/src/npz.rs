//! NumPy's `.npz` files: zip archives of `.npy` files.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_tensor::{Budget, Charge, Context, Result, Tensor, ensure, err, npy};

use crate::Storage;
use crate::storage::WriteFile;
use crate::zip::{Archive, ArchiveWriter, Member};

/// The suffix of an array's member name.
const SUFFIX: &str = ".npy";
/// The maximum size of an array's header.
const HEADER_BYTES_MAX: u64 = 1 << 16;

/// The arrays of an npz file, by name.
pub struct NpzReader {
    path: String,
    archive: Archive,
    /// The indices of the members by array name; of duplicates the first counts.
    by_name: BTreeMap<String, usize>,
}

impl NpzReader {
    /// Reads the directory of a file.
    pub fn open(storage: &dyn Storage, path: &str) -> Result<NpzReader> {
        let archive = Archive::open(storage.open(path)?)?;
        let mut by_name = BTreeMap::new();
        for (i, member) in archive.members().iter().enumerate() {
            if let Some(name) = member.name.strip_suffix(SUFFIX) {
                by_name.entry(name.to_owned()).or_insert(i);
            }
        }
        Ok(NpzReader { path: path.to_owned(), archive, by_name })
    }

    /// The names of all arrays, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.members().iter().filter_map(|member| member.name.strip_suffix(SUFFIX))
    }

    fn member(&self, name: &str) -> Result<&Member> {
        let found = self.by_name.get(name).map(|&i| &self.archive.members()[i]);
        found.ok_or_else(|| err!(NotFound, "{}: there is no array '{name}'", self.path))
    }

    /// The dtype, shape and size of an array; only its header is read.
    pub fn info(&self, name: &str) -> Result<npy::Info> {
        let member = self.member(name)?;
        let begin = self.archive.read_start(member, HEADER_BYTES_MAX)?;
        let info = npy::info(&begin).context(|| format!("{}: array '{name}'", self.path))?;
        let expected = (info.data_start as u64).checked_add(info.data_bytes);
        ensure!(
            expected == Some(member.bytes),
            DataLoss,
            "{}: array '{name}' should have {} bytes and has {}",
            self.path,
            expected.unwrap_or(u64::MAX),
            member.bytes
        );
        Ok(info)
    }

    /// Reads an array and verifies its checksum.
    pub fn read(&self, name: &str, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let member = self.member(name)?;
        // The header is checked before the array is decompressed.
        self.info(name)?;
        let bytes = usize::try_from(member.bytes).unwrap_or(usize::MAX);
        let _unpacked = budget.map(|budget| Charge::new(budget, bytes)).transpose()?;
        let content = self.archive.read(member, u64::MAX)?;
        npy::read(content, budget).context(|| format!("{}: array '{name}'", self.path))
    }
}

/// An npz file that is written.
pub struct NpzWriter(ArchiveWriter);

impl NpzWriter {
    /// Writes to a new file.
    pub fn new(file: Box<dyn WriteFile>) -> NpzWriter {
        NpzWriter(ArchiveWriter::new(file))
    }

    /// Adds an array.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.0.add(&format!("{name}{SUFFIX}"), &npy::write(tensor)?)
    }

    /// Ends the file.
    pub fn finish(self) -> Result<()> {
        self.0.finish()
    }
}
