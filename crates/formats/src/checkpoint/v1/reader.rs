//! Reading of V1 checkpoints.

use std::collections::BTreeMap;

use prost::Message;

use thalweg_proto::{SavedSliceMeta, SavedTensorSlices};
use thalweg_tensor::{Bytes, Code, Context, DType, Result, Shape, Tensor, ensure, err};

use super::{VERSION, values};
use crate::Storage;
use crate::checkpoint::ordered::slice_key;
use crate::checkpoint::pieces::{self, Ranges};
use crate::checkpoint::table::Table;
use crate::checkpoint::{ReadContext, Slice, damaged};

/// The maximum number of files that a pattern may match.
const FILES_MAX: usize = 100_000;

/// A V1 checkpoint.
pub struct Reader {
    tables: Vec<Table>,
    tensors: BTreeMap<String, TensorEntry>,
}

/// A tensor of a V1 checkpoint.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// The slices that it is stored in.
    pub slices: Vec<Slice>,
    /// The file of each slice.
    files: Vec<usize>,
}

impl Reader {
    /// Opens the file of this name, or all files that match it as a pattern.
    pub fn open(storage: &dyn Storage, pattern: &str) -> Result<Reader> {
        let paths = match storage.exists(pattern) {
            Ok(true) => vec![pattern.to_owned()],
            _ => storage.matching(pattern)?,
        };
        ensure!(!paths.is_empty(), NotFound, "{pattern}: no such checkpoint");
        ensure!(
            paths.len() <= FILES_MAX,
            InvalidArgument,
            "{pattern}: {} files are too many for a checkpoint",
            paths.len()
        );
        let mut reader = Reader { tables: Vec::new(), tensors: BTreeMap::new() };
        for path in &paths {
            let table = Table::open(storage.open(path)?)?;
            // Errors of the table already name the file.
            let list = table.get(b"")?;
            reader.add_file(list).map_err(|e| match e.code() {
                Code::InvalidArgument => damaged(path, 0, e.message()),
                _ => e.map_message(|m| format!("{path}: {m}")),
            })?;
            reader.tables.push(table);
        }
        Ok(reader)
    }

    /// Adds the tensors of one file, whose list of tensors this is.
    fn add_file(&mut self, list: Option<Bytes>) -> Result<()> {
        let list = list.ok_or_else(|| {
            err!(DataLoss, "byte 0: an SSTable without the list of tensors of a V1 checkpoint")
        })?;
        let list = SavedTensorSlices::decode(list)
            .map_err(|e| err!(DataLoss, "byte 0: the list of tensors is invalid: {e}"))?;
        let list = list.meta.ok_or_else(|| {
            err!(DataLoss, "byte 0: an SSTable without the list of tensors of a V1 checkpoint")
        })?;
        let version = list.versions.unwrap_or_default();
        ensure!(
            version.min_consumer <= VERSION && !version.bad_consumers.contains(&VERSION),
            InvalidArgument,
            "the checkpoint needs a reader of version {} or newer; this reader has version {VERSION}",
            version.min_consumer
        );
        for tensor in list.tensor {
            let name = tensor.name.clone();
            self.add_tensor(tensor).context(|| format!("tensor '{name}'"))?;
        }
        Ok(())
    }

    fn add_tensor(&mut self, meta: SavedSliceMeta) -> Result<()> {
        let dtype = DType::from_proto(meta.r#type)?;
        let shape = meta.shape.as_ref().map_or(Ok(Shape::scalar()), Shape::from_proto)?;
        let file = self.tables.len();
        let saved = self.tensors.entry(meta.name).or_insert_with(|| TensorEntry {
            dtype,
            shape: shape.clone(),
            slices: Vec::new(),
            files: Vec::new(),
        });
        ensure!(
            saved.dtype == dtype && saved.shape == shape,
            DataLoss,
            "it is a {dtype} tensor of shape {shape} here and a {} tensor of shape {} there",
            saved.dtype,
            saved.shape
        );
        for slice in &meta.slice {
            let slice = Slice::from_proto(slice)?;
            slice.ranges(&shape).map_err(|e| err!(DataLoss, "{}", e.message()))?;
            saved.slices.push(slice);
            saved.files.push(file);
        }
        Ok(())
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// All tensors, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.tensors.iter().map(|(name, saved)| (name.as_str(), saved))
    }

    /// The metadata of a tensor.
    pub fn entry(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name)
    }

    /// Reads a whole tensor.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        self.read_with(name, None, ReadContext::default())
    }

    /// Reads a slice of a tensor.
    pub fn read_slice(&self, name: &str, slice: &Slice) -> Result<Tensor> {
        self.read_with(name, Some(slice), ReadContext::default())
    }

    /// Reads a tensor or a slice, with a budget.
    pub fn read_with(
        &self,
        name: &str,
        slice: Option<&Slice>,
        context: ReadContext<'_>,
    ) -> Result<Tensor> {
        let first = self.tables.first().map_or("", |table| table.path());
        let Some(saved) = self.tensors.get(name) else {
            return Err(err!(NotFound, "Tensor name \"{name}\" not found in checkpoint {first}"));
        };
        let full = Slice::full(saved.shape.rank());
        let wanted = slice.unwrap_or(&full).ranges(&saved.shape)?;
        let ranges: Vec<Ranges> =
            saved.slices.iter().map(|slice| slice.ranges(&saved.shape)).collect::<Result<_>>()?;
        let found = pieces::check_disjoint(&ranges)
            .and_then(|()| pieces::covering(&ranges, &wanted))
            .context(|| format!("{first}: tensor '{name}'"))?;
        if let [only] = found[..]
            && ranges[only] == wanted
        {
            return self.read_piece(name, saved, only, context);
        }
        let parts: Vec<&Ranges> = found.iter().map(|&i| &ranges[i]).collect();
        let read = |i: usize| self.read_piece(name, saved, found[i], context);
        pieces::assemble(saved.dtype, &wanted, &parts, context.budget, &read)
    }

    fn read_piece(
        &self,
        name: &str,
        saved: &TensorEntry,
        piece: usize,
        context: ReadContext<'_>,
    ) -> Result<Tensor> {
        let (slice, table) = (&saved.slices[piece], &self.tables[saved.files[piece]]);
        let broken = |what: String| {
            err!(DataLoss, "{}: slice '{slice}' of tensor '{name}': {what}", table.path())
        };
        let value = table.get(&slice_key(name, slice))?;
        let value = value.ok_or_else(|| broken("it is listed and not there".into()))?;
        let message = SavedTensorSlices::decode(value).map_err(|e| broken(e.to_string()))?;
        let data = message.data.and_then(|slice| slice.data);
        let data = data.ok_or_else(|| broken("it has no data".into()))?;
        let shape = slice.shape_in(&saved.shape)?;
        values::decode(data, saved.dtype, &shape, context.budget).map_err(|e| match e.code() {
            Code::ResourceExhausted => e,
            _ => broken(e.message().to_owned()),
        })
    }

    /// Reads everything and reports the errors.
    pub fn verify(&self) -> crate::checkpoint::VerifyReport {
        let mut report = crate::checkpoint::VerifyReport::default();
        for name in self.tensors.keys() {
            match self.read(name) {
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
