//! A tensor that is being received over a stream.

use std::sync::Arc;

use prost::Message;
use thalweg_proto as pb;
use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, err};

use super::frame::{TensorStart, protocol_error};

/// Memory for a tensor's content, and how much of it is filled.
pub(super) struct IncomingTensor {
    memory: Tensor,
    filled: usize,
    start: TensorStart,
}

impl IncomingTensor {
    /// Allocates the memory, charged to `incoming`, before any byte is read.
    pub(super) fn new(start: TensorStart, incoming: &Arc<Budget>) -> Result<IncomingTensor> {
        let memory = match &start.plain {
            // Bytes of bools are validated before they become bools.
            Some((dtype, shape)) if *dtype != DType::Bool => {
                Tensor::allocate(*dtype, shape.clone(), Some(incoming))?
            }
            _ => {
                let bytes = usize::try_from(start.content_bytes)
                    .map_err(|_| err!(ResourceExhausted, "a tensor has too many bytes"))?;
                Tensor::allocate(DType::UInt8, Shape::new(&[bytes])?, Some(incoming))?
            }
        };
        Ok(IncomingTensor { memory, filled: 0, start })
    }

    /// Bytes that have not been received.
    pub(super) fn missing(&self) -> usize {
        (self.start.content_bytes as usize).saturating_sub(self.filled)
    }

    /// Memory for the next `count` bytes, which count as received.
    pub(super) fn unfilled(&mut self, count: usize) -> Result<&mut [u8]> {
        let (begin, end) = (self.filled, self.filled + count);
        self.filled = end;
        // SAFETY: `new` made no bool tensor, and every other number may have any bits.
        let memory = unsafe { self.memory.bytes_mut() }?;
        memory
            .get_mut(begin..end)
            .ok_or_else(|| protocol_error("a tensor has more bytes than its head announced"))
    }

    /// The tensor; the caller has checked that nothing is missing.
    pub(super) fn finish(self, incoming: &Arc<Budget>) -> Result<Tensor> {
        match self.start.plain {
            Some((DType::Bool, shape)) => {
                Tensor::from_bytes(DType::Bool, shape, self.memory.to_bytes()?)
            }
            Some(_) => Ok(self.memory),
            None => {
                let proto = pb::TensorProto::decode(self.memory.to_bytes()?).map_err(|e| {
                    err!(DataLoss, "the content of a tensor cannot be decoded: {e}")
                })?;
                Tensor::from_proto(&proto, Some(incoming))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Code;

    fn start_of(tensor: &Tensor) -> (TensorStart, bytes::Bytes) {
        let (start, content) = TensorStart::of(tensor).unwrap();
        let (fixed, head) = start.split_at(super::super::frame::START_BYTES);
        (TensorStart::decode(fixed.try_into().unwrap(), head).unwrap(), content)
    }

    #[test]
    fn tensors_arrive_in_chunks() {
        let budget = Budget::new(1 << 20);
        let bools = Tensor::from_slice(Shape::new(&[3]).unwrap(), &[true, false, true]).unwrap();
        let words = vec![bytes::Bytes::from_static(b"ab"), bytes::Bytes::new()];
        let strings = Tensor::from_strings(Shape::new(&[2]).unwrap(), words).unwrap();
        let numbers = Tensor::vector(&[1.5f64, -2.0, f64::NAN]).unwrap();
        for tensor in [bools, strings, numbers, Tensor::vector::<i32>(&[]).unwrap()] {
            let (start, content) = start_of(&tensor);
            let mut incoming = IncomingTensor::new(start, &budget).unwrap();
            for chunk in content.chunks(5) {
                assert!(incoming.missing() >= chunk.len());
                incoming.unfilled(chunk.len()).unwrap().copy_from_slice(chunk);
            }
            assert_eq!(incoming.missing(), 0);
            assert!(
                incoming.unfilled(1).is_err_and(|e| e.code() == Code::DataLoss),
                "a byte too many"
            );
            let got = incoming.finish(&budget).unwrap();
            assert_eq!(got.to_proto().unwrap(), tensor.to_proto().unwrap());
        }
        assert_eq!(budget.used_bytes(), 0, "the charges are released");
    }

    #[test]
    fn a_tensor_beyond_the_budget_is_refused_before_it_is_read() {
        let budget = Budget::new(1 << 20);
        let shape = Shape::new(&[1 << 40]).unwrap();
        let plain = Some((DType::Float, shape));
        for start in [
            TensorStart { content_bytes: 4 << 40, plain },
            TensorStart { content_bytes: 1 << 62, plain: None },
        ] {
            let refused = IncomingTensor::new(start, &budget).err().unwrap();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        }
    }
}
