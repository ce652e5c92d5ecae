//! Zero-copy lookup and decoding of features in serialized `Example` messages.
//!
//! [`find`] scans each message once and records offset and length of the requested features, so
//! that every output is allocated once and filled in parallel. No message object is built.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_formats::wire::{Content, Fields, varint};
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Budget, Bytes, DType, Result, Tensor, bail, copy_string, ensure, err};

use crate::split::{Disjoint, for_each_rows};
use crate::strings::text::{FirstError, part};

/// A list of values found in a message: its bytes, and its number of values.
#[derive(Clone, Copy, Default)]
pub(super) struct List<'a> {
    /// The content of a `BytesList`, `FloatList` or `Int64List`.
    pub(super) body: &'a [u8],
    pub(super) count: usize,
    pub(super) is_present: bool,
}

/// A requested feature: its name and its required dtype.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) key: Bytes,
    pub(super) dtype: DType,
}

/// Maps keys to the indices of the requested features.
pub(super) struct Index<'a> {
    wanted: &'a [Wanted],
    /// Empty for few features, for which a linear search is faster.
    by_key: FxHashMap<&'a [u8], SmallVec<[usize; 2]>>,
}

/// Number of features up to which a linear search is faster than hashing.
const FEW: usize = 8;

pub(super) fn index(wanted: &[Wanted]) -> Index<'_> {
    let mut index = Index { wanted, by_key: FxHashMap::default() };
    if wanted.len() > FEW {
        for (i, one) in wanted.iter().enumerate() {
            index.by_key.entry(&one.key[..]).or_default().push(i);
        }
    }
    index
}

impl Index<'_> {
    /// Calls `each` with the index of every requested feature of name `key`.
    #[inline]
    pub(super) fn for_each(&self, key: &[u8], mut each: impl FnMut(usize)) {
        if self.wanted.len() > FEW {
            self.by_key.get(key).into_iter().flatten().for_each(|&i| each(i));
            return;
        }
        for (i, one) in self.wanted.iter().enumerate() {
            if one.key == key {
                each(i);
            }
        }
    }
}

/// Names of the examples for error messages.
pub(super) struct Names<'a>(pub(super) &'a [Bytes]);

impl Names<'_> {
    pub(super) fn of(&self, example: usize) -> String {
        match self.0.get(example) {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => "<unknown>".into(),
        }
    }
}

/// The requested lists of every example: those of example `i` are the `i`th row of `wanted.len()`
/// entries.
pub(super) fn find<'a>(
    ctx: &KernelContext<'_>,
    examples: &'a [Bytes],
    wanted: &[Wanted],
    names: &Names<'_>,
) -> Result<Vec<List<'a>>> {
    let mut found: Vec<List<'a>> = table(ctx, examples.len(), wanted.len())?;
    let (index, failure) = (index(wanted), FirstError::new());
    let nanoseconds = 100.0 * wanted.len() as f64;
    for_each_rows(ctx, &mut found, wanted.len(), nanoseconds, |first, rows| {
        for (i, row) in rows.chunks_exact_mut(wanted.len()).enumerate() {
            if let Err(e) = find_one(&examples[first + i], wanted, &index, row) {
                let name = names.of(first + i);
                failure.note(first + i, e.map_message(|m| format!("Name: {name}, {m}")));
            }
        }
    })?;
    failure.check()?;
    Ok(found)
}

/// A table of empty entries, charged to the session.
pub(super) fn table<T: Clone + Default>(
    ctx: &KernelContext<'_>,
    rows: usize,
    columns: usize,
) -> Result<Vec<T>> {
    let entries = rows.saturating_mul(columns);
    ctx.budget().check(entries.saturating_mul(size_of::<T>()))?;
    let mut table = Vec::new();
    table
        .try_reserve_exact(entries)
        .map_err(|_| err!(ResourceExhausted, "no memory for {rows} examples"))?;
    table.resize(entries, T::default());
    Ok(table)
}

fn find_one<'a>(
    example: &'a [u8],
    wanted: &[Wanted],
    index: &Index<'_>,
    row: &mut [List<'a>],
) -> Result<()> {
    for_each_entry(example, 1, |key, feature| {
        // For duplicate keys the last entry applies, as in any protobuf map.
        index.for_each(key, |i| row[i] = List { body: feature, count: 0, is_present: true });
        Ok(())
    })?;
    for (list, wanted) in row.iter_mut().zip(wanted).filter(|(list, _)| list.is_present) {
        *list = read_list(list.body, wanted.dtype).map_err(|e| {
            let key = String::from_utf8_lossy(&wanted.key);
            e.map_message(|m| format!("Key: {key}. {m}"))
        })?;
    }
    Ok(())
}

/// Calls `each(key, value)` for the map entries in field 1 of the messages in field `number` of an
/// example, in order.
#[inline]
pub(super) fn for_each_entry<'a>(
    example: &'a [u8],
    number: u32,
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Result<()>,
) -> Result<()> {
    for field in Fields::new(example) {
        let (n, content) = field.map_err(|e| broken(&e))?;
        let Content::Bytes(map) = content else { continue };
        if n != number {
            continue;
        }
        for field in Fields::new(map) {
            let (n, content) = field.map_err(|e| broken(&e))?;
            if let (1, Content::Bytes(entry)) = (n, content) {
                let (key, value) = read_entry(entry).map_err(|e| broken(&e))?;
                each(key, value)?;
            }
        }
    }
    Ok(())
}

fn broken(cause: &thalweg_tensor::Error) -> thalweg_tensor::Error {
    err!(InvalidArgument, "Could not parse example input: {}", cause.message())
}

/// A map entry has a key and a value, in either order.
fn read_entry(entry: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut fields = Fields::new(entry);
    let (mut key, mut value) = (None, None);
    for _ in 0..2 {
        match fields.next().transpose()? {
            Some((1, Content::Bytes(bytes))) => key = Some(bytes),
            Some((2, Content::Bytes(bytes))) => value = Some(bytes),
            _ => bail!(InvalidArgument, "a map entry has no key or no value"),
        }
    }
    match (key, value, fields.next()) {
        (Some(key), Some(value), None) => Ok((key, value)),
        _ => bail!(InvalidArgument, "a map entry has fields other than key and value"),
    }
}

/// The list in a `Feature`, which must have this dtype; an empty feature counts as missing.
pub(super) fn read_list(feature: &[u8], dtype: DType) -> Result<List<'_>> {
    let Some(field) = Fields::new(feature).next() else { return Ok(List::default()) };
    let (number, content) = field?;
    let found = match number {
        1 => DType::String,
        2 => DType::Float,
        3 => DType::Int64,
        _ => bail!(InvalidArgument, "Unsupported datatype: a feature holds field {number}"),
    };
    let Content::Bytes(body) = content else {
        bail!(InvalidArgument, "Can't parse serialized Example: a feature holds no list")
    };
    ensure!(
        found == dtype,
        InvalidArgument,
        "Data types don't match. Expected type: {dtype}, data type: {found}"
    );
    let count = match dtype {
        DType::String => count_values(body, 0, |_| Ok(0))?,
        DType::Float => count_values(body, 5, |packed| {
            ensure!(
                packed.len().is_multiple_of(4),
                InvalidArgument,
                "a list of floats is truncated"
            );
            Ok(packed.len() / 4)
        })?,
        _ => count_values(body, 1, |packed| Ok(packed.iter().filter(|&&b| b < 0x80).count()))?,
    };
    Ok(List { body, count, is_present: true })
}

/// Counts the values of a list, packed or not.
fn count_values(
    body: &[u8],
    own_field: usize,
    in_packed: fn(&[u8]) -> Result<usize>,
) -> Result<usize> {
    // The first tag determines the encoding; a list uses one encoding only.
    let Some(&first) = body.first() else { return Ok(0) };
    let mut count = 0;
    if first == PACKED && own_field != 0 {
        for field in Fields::new(body) {
            let (1, Content::Bytes(packed)) = field? else { return Err(not_a_list()) };
            count += in_packed(packed)?;
        }
        return Ok(count);
    }
    for field in Fields::new(body) {
        count += match (own_field, field?) {
            (0, (1, Content::Bytes(_))) => 1,
            (5, (1, Content::Fixed32(_))) => 1,
            (1, (1, Content::Varint(_))) => 1,
            _ => return Err(not_a_list()),
        };
    }
    Ok(count)
}

/// Tag of field 1 with length-delimited content.
const PACKED: u8 = 0x0a;

fn not_a_list() -> thalweg_tensor::Error {
    err!(InvalidArgument, "Can't parse serialized Example: a list holds something else")
}

/// Element types of features.
pub(super) trait Value: Clone + Send + Sync {
    /// Decodes a list of `out.len()` values from `body`; strings are slices of `source`.
    fn decode(body: &[u8], source: &Bytes, budget: &Arc<Budget>, out: &mut [Self]) -> Result<()>;
    /// The elements of a tensor.
    fn elements(tensor: &Tensor) -> Result<&[Self]>;
    /// Mutable elements of a tensor.
    fn elements_mut(tensor: &mut Tensor) -> Result<&mut [Self]>;
}

impl Value for f32 {
    fn decode(body: &[u8], _: &Bytes, _: &Arc<Budget>, out: &mut [f32]) -> Result<()> {
        let mut slots = out.iter_mut();
        for field in Fields::new(body) {
            match field?.1 {
                Content::Bytes(packed) => {
                    for (chunk, slot) in packed.chunks_exact(4).zip(&mut slots) {
                        let bytes = chunk.try_into().expect("chunks have four bytes");
                        *slot = f32::from_le_bytes(bytes);
                    }
                }
                Content::Fixed32(bits) => put(&mut slots, f32::from_bits(bits)),
                _ => return Err(not_a_list()),
            }
        }
        filled(slots.len())
    }

    fn elements(tensor: &Tensor) -> Result<&[f32]> {
        tensor.as_slice()
    }

    fn elements_mut(tensor: &mut Tensor) -> Result<&mut [f32]> {
        tensor.as_mut_slice()
    }
}

impl Value for i64 {
    fn decode(body: &[u8], _: &Bytes, _: &Arc<Budget>, out: &mut [i64]) -> Result<()> {
        let mut slots = out.iter_mut();
        for field in Fields::new(body) {
            match field?.1 {
                Content::Bytes(mut packed) => {
                    while !packed.is_empty() {
                        let (value, length) = varint(packed)?;
                        put(&mut slots, value.cast_signed());
                        packed = &packed[length..];
                    }
                }
                Content::Varint(value) => put(&mut slots, value.cast_signed()),
                _ => return Err(not_a_list()),
            }
        }
        filled(slots.len())
    }

    fn elements(tensor: &Tensor) -> Result<&[i64]> {
        tensor.as_slice()
    }

    fn elements_mut(tensor: &mut Tensor) -> Result<&mut [i64]> {
        tensor.as_mut_slice()
    }
}

impl Value for Bytes {
    fn decode(body: &[u8], source: &Bytes, budget: &Arc<Budget>, out: &mut [Bytes]) -> Result<()> {
        let mut slots = out.iter_mut();
        for field in Fields::new(body) {
            let Content::Bytes(value) = field?.1 else { return Err(not_a_list()) };
            // Empty values may point anywhere; others are slices of the source.
            let start = value.as_ptr().addr().wrapping_sub(source.as_ptr().addr());
            let is_inside = start.checked_add(value.len()).is_some_and(|end| end <= source.len());
            put(
                &mut slots,
                match is_inside {
                    true => part(source, start..start + value.len(), budget)?,
                    false => copy_string(value, budget)?,
                },
            );
        }
        filled(slots.len())
    }

    fn elements(tensor: &Tensor) -> Result<&[Bytes]> {
        tensor.strings()
    }

    fn elements_mut(tensor: &mut Tensor) -> Result<&mut [Bytes]> {
        tensor.strings_mut()
    }
}

fn put<T>(slots: &mut std::slice::IterMut<'_, T>, value: T) {
    if let Some(slot) = slots.next() {
        *slot = value;
    }
}

fn filled(left: usize) -> Result<()> {
    ensure!(left == 0, InvalidArgument, "a list is truncated: {left} values are missing");
    Ok(())
}

/// Calls `body(example, elements)` with the part of `output` that belongs to each example, as
/// `range_of` says: ranges that do not overlap. On several threads if it pays.
pub(super) fn fill<T: Value>(
    ctx: &KernelContext<'_>,
    output: &mut Tensor,
    examples: usize,
    range_of: impl Fn(usize) -> Range<usize> + Sync,
    body: impl Fn(usize, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let elements = T::elements_mut(output)?;
    let mean = elements.len() as f64 / examples.max(1) as f64;
    let (parts, failure) = (Disjoint::new(elements), FirstError::new());
    ctx.parallel_for(examples, 50.0 + 3.0 * mean, |some| {
        for i in some {
            // SAFETY: the ranges of different examples do not overlap, and each is visited once.
            let part = unsafe { parts.part(range_of(i)) };
            if let Err(e) = body(i, part) {
                failure.note(i, e);
            }
        }
    })?;
    failure.check()
}

/// Cumulative offsets of consecutive parts of these sizes, followed by the end of the last.
pub(super) fn offsets(
    ctx: &KernelContext<'_>,
    sizes: impl ExactSizeIterator<Item = usize>,
) -> Result<Vec<usize>> {
    let mut offsets: Vec<usize> = table(ctx, sizes.len() + 1, 1)?;
    let mut end = 0;
    for (offset, size) in offsets[1..].iter_mut().zip(sizes) {
        end += size;
        *offset = end;
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn read(feature: &[u8], dtype: DType) -> Result<usize> {
        Ok(read_list(feature, dtype)?.count)
    }

    #[test]
    fn packed_and_not() {
        let packed = b"\x1a\x05\x0a\x03\x01\xac\x02";
        assert_eq!(read(packed, DType::Int64).unwrap(), 2);
        let mut out = [0i64; 2];
        i64::decode(&packed[2..], &Bytes::new(), &Budget::new(0), &mut out).unwrap();
        assert_eq!(out, [1, 300]);
        assert_eq!(read(b"\x1a\x05\x08\x01\x08\xac\x02", DType::Int64).unwrap(), 2);
        assert_eq!(read(b"\x12\x05\x0d\0\0\x80\x3f", DType::Float).unwrap(), 1);
        assert_eq!(read(b"\x12\x06\x0a\x04\0\0\x80\x3f", DType::Float).unwrap(), 1);
        assert_eq!(read(b"\x0a\x04\x0a\x00\x0a\x00", DType::String).unwrap(), 2);
        assert_eq!(read(b"", DType::String).unwrap(), 0);
        assert!(!read_list(b"", DType::String).unwrap().is_present);
        assert!(read_list(b"\x0a\x00", DType::String).unwrap().is_present);
    }

    #[test]
    fn broken_lists() {
        for (feature, dtype) in [
            (&b"\x1a\x05\x08"[..], DType::Int64),
            (b"\x1a\x02\x08\x01", DType::Float),
            (b"\x1a\x07\x08\x01\x0a\x01\x05\x08\x02", DType::Int64),
            (b"\x28\x01", DType::Int64),
            (b"\x18\x01", DType::Int64),
            (b"\x12\x05\x0a\x03\0\0\0", DType::Float),
        ] {
            assert_eq!(code(read(feature, dtype)), Some(Code::InvalidArgument), "{feature:?}");
        }
        // An unterminated varint is detected when it is decoded.
        let endless = [&[0x0a, 12][..], &[0xff; 11], &[1]].concat();
        let decode =
            |body: &[u8], out: &mut [i64]| i64::decode(body, &Bytes::new(), &Budget::new(0), out);
        assert_eq!(code(decode(&endless, &mut [0])), Some(Code::InvalidArgument));
        assert_eq!(code(decode(b"\x0a\x01\x05", &mut [0; 2])), Some(Code::InvalidArgument));
    }

    #[test]
    fn few_keys_and_many() {
        for count in [1, FEW, FEW + 1, 40] {
            let wanted: Vec<Wanted> = (0..count)
                .map(|i| Wanted { key: format!("{}", i / 2).into(), dtype: DType::Int64 })
                .collect();
            let (index, mut found) = (index(&wanted), Vec::new());
            index.for_each(b"0", |i| found.push(i));
            index.for_each(b"nothing", |i| found.push(i));
            let expected: &[usize] = if count == 1 { &[0] } else { &[0, 1] };
            assert_eq!(found, expected, "{count}");
        }
    }

    #[test]
    fn entries_of_maps() {
        assert!(read_entry(b"\x0a\x01a\x12\x00").is_ok());
        assert!(read_entry(b"\x12\x00\x0a\x01a").is_ok());
        for bad in [&b""[..], b"\x0a\x01a", b"\x12\x00", b"\x0a\x01a\x12\x00\x12\x00"] {
            assert_eq!(code(read_entry(bad)), Some(Code::InvalidArgument), "{bad:?}");
        }
    }

    /// Finds `a`, int64, and `s`, strings, and decodes them.
    fn read_both(message: &Bytes) -> Result<(Vec<i64>, Vec<Bytes>)> {
        let wanted = [("a", DType::Int64), ("s", DType::String)]
            .map(|(key, dtype)| Wanted { key: key.into(), dtype });
        let mut row = [List::default(); 2];
        find_one(message, &wanted, &index(&wanted), &mut row)?;
        let (mut ints, mut strings) = (vec![0; row[0].count], vec![Bytes::new(); row[1].count]);
        i64::decode(row[0].body, message, &Budget::new(0), &mut ints)?;
        Bytes::decode(row[1].body, message, &Budget::new(1 << 20), &mut strings)?;
        Ok((ints, strings))
    }

    #[test]
    fn hostile_messages() {
        let good: &[u8] = b"\x0a\x1c\x0a\x0c\x0a\x01a\x12\x07\x1a\x05\x0a\x03\x01\xac\x02\
            \x0a\x0c\x0a\x01s\x12\x07\x0a\x05\x0a\x00\x0a\x01x";
        let (ints, strings) = read_both(&Bytes::from_static(good)).unwrap();
        assert_eq!((&ints[..], &strings[..]), (&[1, 300][..], &["".into(), "x".into()][..]));
        for at in 0..good.len() {
            let _ = read_both(&Bytes::from_static(&good[..at]));
            for byte in 0..=255 {
                let mut bytes = good.to_vec();
                bytes[at] = byte;
                let length = bytes.len();
                if let Ok((ints, strings)) = read_both(&bytes.into()) {
                    assert!(ints.len() + strings.len() <= length, "byte {at} is {byte}");
                }
            }
        }
    }
}
