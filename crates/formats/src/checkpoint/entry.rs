//! Index entries of tensors.

use prost::Message;
use thalweg_proto::BundleEntryProto;
use thalweg_tensor::{DType, Result, Shape, ensure, err};

use super::Slice;

/// The index entry of a tensor or of a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The dtype of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// The slices of a partitioned tensor; empty if it is stored as a whole.
    pub slices: Vec<Slice>,
    /// The number of the data file.
    pub shard: u32,
    /// The offset in the data file.
    pub offset: u64,
    /// The size in the data file, in bytes.
    pub bytes: u64,
    /// The masked CRC-32C of these bytes.
    pub(super) sum: u32,
}

impl Entry {
    /// Decodes the value of an index entry.
    pub(super) fn decode(value: &[u8]) -> Result<Entry> {
        let proto = BundleEntryProto::decode(value)
            .map_err(|e| err!(DataLoss, "not a BundleEntryProto: {e}"))?;
        let bad = |what: &str| err!(DataLoss, "{what} is negative or too large");
        let entry = Entry {
            dtype: DType::from_proto(proto.dtype)?,
            shape: proto.shape.as_ref().map_or(Ok(Shape::scalar()), Shape::from_proto)?,
            slices: proto.slices.iter().map(Slice::from_proto).collect::<Result<_>>()?,
            shard: u32::try_from(proto.shard_id).map_err(|_| bad("its shard id"))?,
            offset: u64::try_from(proto.offset).map_err(|_| bad("its offset"))?,
            bytes: u64::try_from(proto.size).map_err(|_| bad("its size"))?,
            sum: proto.crc32c,
        };
        entry.check()?;
        Ok(entry)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.dtype != DType::Resource,
            DataLoss,
            "its dtype is resource, which cannot be stored in a file"
        );
        for slice in &self.slices {
            slice.ranges(&self.shape).map_err(|e| err!(DataLoss, "{}", e.message()))?;
        }
        let expected = match self.dtype {
            _ if !self.slices.is_empty() => None,
            // An element takes at least one byte, and so do the checksums.
            DType::String | DType::Variant => {
                let elements = self.shape.num_elements() as u64;
                ensure!(
                    self.bytes >= elements,
                    DataLoss,
                    "{} bytes cannot hold {elements} elements of type {}",
                    self.bytes,
                    self.dtype
                );
                None
            }
            dtype => self.shape.num_elements().checked_mul(dtype.size()).map(|n| n as u64),
        };
        ensure!(
            expected.is_none_or(|n| n == self.bytes),
            DataLoss,
            "{} bytes are not a {} tensor of shape {}",
            self.bytes,
            self.dtype,
            self.shape
        );
        self.offset
            .checked_add(self.bytes)
            .ok_or_else(|| err!(DataLoss, "offset plus size overflows 64 bits"))?;
        Ok(())
    }

    /// Encodes the value of an index entry.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let number = |n: u64| {
            i64::try_from(n).map_err(|_| err!(ResourceExhausted, "a data file exceeds 2^63 bytes"))
        };
        let proto = BundleEntryProto {
            dtype: self.dtype.to_proto(),
            shape: Some(self.shape.to_proto()),
            shard_id: self.shard.cast_signed(),
            offset: number(self.offset)?,
            size: number(self.bytes)?,
            crc32c: self.sum,
            slices: self.slices.iter().map(Slice::to_proto).collect(),
        };
        Ok(proto.encode_to_vec())
    }
}
