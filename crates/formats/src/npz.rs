//! NumPy's `.npz` files: zip archives of `.npy` files.

use std::sync::Arc;

use thalweg_tensor::{Budget, Context, Result, Tensor, ensure, err, npy};

use crate::Storage;
use crate::storage::WriteFile;
use crate::zip::{Archive, ArchiveWriter, Member};

/// What the name of an array's member ends in.
const SUFFIX: &str = ".npy";
/// More than any header of an array takes.
const HEADER_BYTES_MAX: u64 = 1 << 16;

/// Arrays by name.
pub struct NpzReader {
    path: String,
    archive: Archive,
}

impl NpzReader {
    /// Reads the directory of a file.
    pub fn open(storage: &dyn Storage, path: &str) -> Result<NpzReader> {
        Ok(NpzReader { path: path.to_owned(), archive: Archive::open(storage.open(path)?)? })
    }

    fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        let named = |m: &'_ Member| m.name.ends_with(SUFFIX);
        let stem = |m: &'_ Member| m.name.len() - SUFFIX.len();
        let arrays = self.archive.members().iter().filter(move |m| named(m));
        arrays.map(move |m| (&m.name[..stem(m)], m))
    }

    /// The names of all arrays, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members().map(|(name, _)| name)
    }

    fn member(&self, name: &str) -> Result<&Member> {
        let found = self.members().find(|(other, _)| *other == name);
        let found = found.map(|(_, member)| member);
        found.ok_or_else(|| err!(NotFound, "{}: there is no array '{name}'", self.path))
    }

    /// Type, shape and size of an array; only its header is read.
    pub fn info(&self, name: &str) -> Result<npy::Info> {
        let member = self.member(name)?;
        let begin = self.archive.beginning(member, HEADER_BYTES_MAX)?;
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

    /// An array, checked.
    pub fn read(&self, name: &str, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let member = self.member(name)?;
        // The header says what is there before it is unpacked.
        self.info(name)?;
        let content = self.archive.read(member, u64::MAX)?;
        npy::read(content, budget).context(|| format!("{}: array '{name}'", self.path))
    }
}

/// Arrays that are being written.
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
