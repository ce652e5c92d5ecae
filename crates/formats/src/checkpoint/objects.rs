//! Encoding of string and variant tensors in data files.
//!
//! Strings: every length as a varint, the masked CRC-32C of the lengths (each as four bytes, or
//! eight if it does not fit), then every string. Variants: for each the length of its message as a
//! varint, the message, and the masked CRC-32C of everything so far, with lengths as eight bytes.
//! The entry's own checksum covers all of it, with lengths in these fixed sizes.

use std::sync::Arc;

use prost::Message;
use thalweg_proto::VariantTensorDataProto;
use thalweg_tensor::{Budget, Bytes, DType, Result, Shape, Tensor, ensure, err};

use super::block::put_varint;
use super::digest::Digest;
use crate::wire::varint;

/// An encoded tensor in pieces, and its checksum.
pub(super) struct Encoded {
    pub(super) pieces: Vec<Bytes>,
    pub(super) sum: u32,
}

/// Adds the length of a string to a checksum.
fn add_length(digest: &mut Digest, length: usize) {
    match u32::try_from(length) {
        Ok(short) => digest.update(&short.to_le_bytes()),
        Err(_) => digest.update(&(length as u64).to_le_bytes()),
    }
}

/// Encodes a tensor of strings or variants.
pub(super) fn encode(tensor: &Tensor) -> Result<Encoded> {
    match tensor.dtype() {
        DType::String => encode_strings(tensor),
        DType::Variant => encode_variants(tensor),
        dtype => Err(err!(InvalidArgument, "a checkpoint cannot hold {dtype} tensors")),
    }
}

fn encode_strings(tensor: &Tensor) -> Result<Encoded> {
    let strings = tensor.strings()?;
    let (mut digest, mut head) = (Digest::new(), Vec::new());
    head.try_reserve(strings.len() + 4)
        .map_err(|_| err!(ResourceExhausted, "out of memory for {} lengths", strings.len()))?;
    for string in strings {
        put_varint(&mut head, string.len() as u64);
        add_length(&mut digest, string.len());
    }
    let sum = digest.masked().to_le_bytes();
    head.extend_from_slice(&sum);
    digest.update(&sum);
    let mut pieces = Vec::with_capacity(1 + strings.len());
    pieces.push(head.into());
    for string in strings {
        digest.update(string);
        pieces.push(string.clone());
    }
    Ok(Encoded { pieces, sum: digest.masked() })
}

fn encode_variants(tensor: &Tensor) -> Result<Encoded> {
    let mut digest = Digest::new();
    let mut pieces = Vec::new();
    for message in tensor.to_proto()?.variant_val {
        let content = message.encode_to_vec();
        digest.update(&(content.len() as u64).to_le_bytes());
        digest.update(&content);
        let sum = digest.masked().to_le_bytes();
        digest.update(&sum);
        let mut piece = Vec::with_capacity(content.len() + 14);
        put_varint(&mut piece, content.len() as u64);
        piece.extend_from_slice(&content);
        piece.extend_from_slice(&sum);
        pieces.push(piece.into());
    }
    Ok(Encoded { pieces, sum: digest.masked() })
}

/// Decodes a tensor; returns it with the checksum of its bytes.
pub(super) fn decode(
    dtype: DType,
    shape: &Shape,
    content: &Bytes,
    budget: Option<&Arc<Budget>>,
) -> Result<(Tensor, u32)> {
    match dtype {
        DType::String => decode_strings(shape, content, budget),
        _ => decode_variants(shape, content, budget),
    }
}

/// Splits a varint length off.
fn take_length(content: &mut Bytes) -> Result<usize> {
    let (length, bytes) = varint(content)
        .map_err(|_| err!(DataLoss, "the length of an element is an invalid varint"))?;
    *content = content.split_off(bytes);
    usize::try_from(length).map_err(|_| err!(DataLoss, "an element has {length} bytes"))
}

fn take(content: &mut Bytes, length: usize) -> Result<Bytes> {
    ensure!(
        length <= content.len(),
        DataLoss,
        "an element of {length} bytes does not fit the {} that are left",
        content.len()
    );
    Ok(content.split_to(length))
}

fn decode_strings(
    shape: &Shape,
    content: &Bytes,
    budget: Option<&Arc<Budget>>,
) -> Result<(Tensor, u32)> {
    let mut rest = content.clone();
    let mut digest = Digest::new();
    // `Entry::check` has checked that the content has at least one byte per element.
    let mut tensor = Tensor::zeros_in(DType::String, shape.clone(), budget)?;
    let mut lengths = Vec::new();
    lengths
        .try_reserve_exact(shape.num_elements())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {shape} lengths"))?;
    for _ in 0..shape.num_elements() {
        let length = take_length(&mut rest)?;
        add_length(&mut digest, length);
        lengths.push(length);
    }
    let expected = digest.masked().to_le_bytes();
    let sum = take(&mut rest, 4)?;
    ensure!(sum[..] == expected, DataLoss, "the checksum of the strings' lengths is wrong");
    digest.update(&sum);
    for (string, length) in tensor.strings_mut()?.iter_mut().zip(lengths) {
        *string = take(&mut rest, length)?;
        digest.update(string);
    }
    ensure!(rest.is_empty(), DataLoss, "{} bytes follow the last string", rest.len());
    Ok((tensor, digest.masked()))
}

fn decode_variants(
    shape: &Shape,
    content: &Bytes,
    budget: Option<&Arc<Budget>>,
) -> Result<(Tensor, u32)> {
    let mut rest = content.clone();
    let mut digest = Digest::new();
    let mut messages = Vec::new();
    for _ in 0..shape.num_elements() {
        let length = take_length(&mut rest)?;
        digest.update(&(length as u64).to_le_bytes());
        let message = take(&mut rest, length)?;
        digest.update(&message);
        let expected = digest.masked().to_le_bytes();
        let sum = take(&mut rest, 4)?;
        ensure!(sum[..] == expected, DataLoss, "the checksum of a variant is wrong");
        digest.update(&sum);
        let message = VariantTensorDataProto::decode(message)
            .map_err(|e| err!(DataLoss, "a variant is no VariantTensorDataProto: {e}"))?;
        messages.push(message);
    }
    ensure!(rest.is_empty(), DataLoss, "{} bytes follow the last variant", rest.len());
    let proto = thalweg_proto::TensorProto {
        dtype: DType::Variant.to_proto(),
        tensor_shape: Some(shape.to_proto()),
        variant_val: messages,
        ..Default::default()
    };
    Ok((Tensor::from_proto(&proto, budget)?, digest.masked()))
}
