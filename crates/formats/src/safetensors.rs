//! The safetensors format: a JSON header that describes all tensors, then their elements.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use thalweg_tensor::{Budget, DType, Error, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

use crate::Storage;
use crate::storage::{ReadAt, WriteFile};

/// The maximum size of the header, as in the reference implementation.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The header entry that is not a tensor.
const METADATA: &str = "__metadata__";

/// The name of a dtype in the format, if there is one.
pub fn dtype_name(dtype: DType) -> Option<&'static str> {
    NAMES.iter().find(|(_, other)| *other == dtype).map(|(name, _)| *name)
}

const NAMES: [(&str, DType); 16] = [
    ("BOOL", DType::Bool),
    ("U8", DType::UInt8),
    ("I8", DType::Int8),
    ("F8_E5M2", DType::Float8E5m2),
    ("F8_E4M3", DType::Float8E4m3fn),
    ("I16", DType::Int16),
    ("U16", DType::UInt16),
    ("F16", DType::Half),
    ("BF16", DType::BFloat16),
    ("I32", DType::Int32),
    ("U32", DType::UInt32),
    ("F32", DType::Float),
    ("F64", DType::Double),
    ("I64", DType::Int64),
    ("U64", DType::UInt64),
    ("C64", DType::Complex64),
];

/// The header entry of a tensor.
#[derive(Clone, Debug)]
pub struct Info {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// The offset in the file.
    pub offset: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// A safetensors file with its header in memory.
pub struct SafetensorsReader {
    file: Arc<dyn ReadAt>,
    tensors: BTreeMap<String, Info>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsReader {
    /// Reads the header of a file.
    pub fn open(storage: &dyn Storage, path: &str) -> Result<SafetensorsReader> {
        let file = storage.open(path)?;
        let size = file.size()?;
        let mut length = [0; 8];
        let read = file.read_at(0, &mut length)?;
        ensure!(
            read == 8,
            DataLoss,
            "{path}: byte {read}: the file ends within the length of its header"
        );
        let length = u64::from_le_bytes(length);
        ensure!(
            length <= HEADER_BYTES_MAX && length <= size - 8,
            DataLoss,
            "{path}: byte 0: a header of {length} bytes in a file of {size}"
        );
        let mut header = vec![0; length as usize];
        let read = file.read_at(8, &mut header)?;
        ensure!(read == header.len(), DataLoss, "{path}: byte {}: the file ends", 8 + read);
        let broken = |what: String| err!(DataLoss, "{path}: byte 8: the header {what}");
        let header: Map<String, Json> = serde_json::from_slice(&header)
            .map_err(|e| broken(format!("is not a JSON object: {e}")))?;
        let mut reader =
            SafetensorsReader { file, tensors: BTreeMap::new(), metadata: BTreeMap::new() };
        for (name, value) in header {
            if name == METADATA {
                let texts = value.as_object().into_iter().flatten();
                let texts = texts.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
                reader.metadata = texts.collect();
                continue;
            }
            let info = info_of(&value, 8 + length).map_err(|e| {
                broken(format!("has an invalid entry for tensor '{name}': {}", e.message()))
            })?;
            reader.tensors.insert(name, info);
        }
        reader.check_places(8 + length, size).map_err(|e| broken(e.message().to_owned()))?;
        Ok(reader)
    }

    /// Checks that the tensors are contiguous and fill the file.
    fn check_places(&self, begin: u64, size: u64) -> Result<()> {
        let mut places: Vec<&Info> = self.tensors.values().collect();
        places.sort_by_key(|info| (info.offset, info.bytes));
        let mut at = begin;
        for info in places {
            ensure!(info.offset == at, DataLoss, "describes tensors that overlap or leave a gap");
            at = at
                .checked_add(info.bytes)
                .ok_or_else(|| err!(DataLoss, "describes more than 2^64 bytes"))?;
        }
        ensure!(at == size, DataLoss, "describes {at} bytes and the file has {size}");
        Ok(())
    }

    /// All tensors, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Info)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// The header entry of a tensor.
    pub fn entry(&self, name: &str) -> Option<&Info> {
        self.tensors.get(name)
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads a tensor. The format has no checksums.
    pub fn read(&self, name: &str, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let path = self.file.path();
        let Some(info) = self.tensors.get(name) else {
            bail!(NotFound, "{path}: there is no tensor '{name}'");
        };
        Tensor::filled_with(info.dtype, info.shape.clone(), budget, |target| {
            let read = self.file.read_at(info.offset, target)?;
            ensure!(
                read == target.len(),
                DataLoss,
                "{path}: byte {}: the file became shorter",
                info.offset + read as u64
            );
            Ok(())
        })
    }
}

/// Parses the header entry of a tensor.
fn info_of(value: &Json, begin: u64) -> Result<Info> {
    let bad = |what: &str| -> Error { err!(DataLoss, "{what}") };
    let name = value["dtype"].as_str().ok_or_else(|| bad("it has no 'dtype'"))?;
    let dtype = NAMES.iter().find(|(other, _)| *other == name).map(|(_, dtype)| *dtype);
    let dtype = dtype.ok_or_else(|| err!(Unimplemented, "dtype '{name}' is not supported"))?;
    let shape = value["shape"].as_array().ok_or_else(|| bad("it has no 'shape'"))?;
    ensure!(shape.len() <= RANK_MAX, DataLoss, "the rank exceeds {RANK_MAX}");
    let dims: Option<Vec<i64>> = shape.iter().map(Json::as_i64).collect();
    let shape = Shape::from_i64(&dims.ok_or_else(|| bad("a dimension is not a number"))?)?;
    let offsets = value["data_offsets"].as_array().map(Vec::as_slice);
    let (Some([from, to]), bytes) =
        (offsets, shape.num_elements().checked_mul(dtype.size()).map(|n| n as u64))
    else {
        bail!(DataLoss, "it has no 'data_offsets'");
    };
    let (Some(from), Some(to)) = (from.as_u64(), to.as_u64()) else {
        bail!(DataLoss, "an offset is not a number");
    };
    ensure!(
        to.checked_sub(from).is_some() && to.checked_sub(from) == bytes,
        DataLoss,
        "bytes {from} to {to} are not a {dtype} tensor of shape {shape}"
    );
    let offset = begin.checked_add(from).ok_or_else(|| bad("its offset overflows 64 bits"))?;
    Ok(Info { dtype, shape, offset, bytes: to - from })
}

/// A safetensors file under construction.
pub struct SafetensorsWriter {
    file: Box<dyn WriteFile>,
    /// The remaining tensors, in reverse order.
    left: Vec<(String, DType, Shape)>,
}

impl SafetensorsWriter {
    /// Begins a file with these tensors; they must be added in the order of
    /// [`SafetensorsWriter::next_name`].
    pub fn new(
        mut file: Box<dyn WriteFile>,
        mut tensors: Vec<(String, DType, Shape)>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<SafetensorsWriter> {
        // Tensors are sorted by decreasing element size, so that all of them are aligned.
        tensors.sort_by(|a, b| (b.1.size(), &a.0).cmp(&(a.1.size(), &b.0)));
        let mut header = Map::new();
        if !metadata.is_empty() {
            header.insert(METADATA.to_owned(), json!(metadata));
        }
        let mut at = 0;
        for (name, dtype, shape) in &tensors {
            let Some(dtype_name) = dtype_name(*dtype) else {
                bail!(
                    InvalidArgument,
                    "tensor '{name}': the safetensors format has no dtype {dtype}"
                );
            };
            let end = shape.num_elements().checked_mul(dtype.size()).map(|n| at + n as u64);
            let end = end.ok_or_else(|| {
                err!(ResourceExhausted, "the end of tensor '{name}' overflows 64 bits")
            })?;
            let value = json!({
                "dtype": dtype_name,
                "shape": shape.dims(),
                "data_offsets": [at, end],
            });
            let before = header.insert(name.clone(), value);
            ensure!(
                before.is_none() && name != METADATA,
                InvalidArgument,
                "two tensors of a safetensors file are called '{name}'"
            );
            at = end;
        }
        let mut text = Json::Object(header).to_string();
        while !text.len().is_multiple_of(8) {
            text.push(' ');
        }
        file.write(&(text.len() as u64).to_le_bytes())?;
        file.write(text.as_bytes())?;
        tensors.reverse();
        Ok(SafetensorsWriter { file, left: tensors })
    }

    /// The name of the next tensor.
    pub fn next_name(&self) -> Option<&str> {
        self.left.last().map(|(name, ..)| name.as_str())
    }

    /// Writes the next tensor.
    pub fn add(&mut self, tensor: &Tensor) -> Result<()> {
        let Some((name, dtype, shape)) = self.left.pop() else {
            bail!(Internal, "a safetensors file was given more tensors than its header lists");
        };
        ensure!(
            (tensor.dtype(), tensor.shape()) == (dtype, &shape),
            Internal,
            "tensor '{name}' differs in dtype or shape from the header of the safetensors file"
        );
        self.file.write(tensor.as_bytes()?)
    }

    /// Ends the file.
    pub fn finish(self) -> Result<()> {
        ensure!(
            self.left.is_empty(),
            Internal,
            "not all tensors of a safetensors file were written"
        );
        self.file.finish()
    }
}
