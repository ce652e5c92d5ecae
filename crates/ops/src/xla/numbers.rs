//! Dimension numbers: serialized messages of XLA that attrs hold.

use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, err};

/// Most numbers of one message.
const NUMBERS_MAX: usize = 1024;

/// The fields of a message that holds integers alone.
pub(super) struct Numbers(Vec<(u64, i64)>);

impl Numbers {
    /// Reads the attr `dimension_numbers` of a node.
    pub(super) fn of(l: &Lowering<'_>) -> Result<Numbers> {
        let bytes = l.attrs().bytes("dimension_numbers")?;
        read(bytes).ok_or_else(|| {
            err!(InvalidArgument, "Error parsing {} dimension numbers", l.node().op.name)
        })
    }

    /// The values of a repeated field, as dimensions.
    pub(super) fn all(&self, field: u64) -> Result<Vec<usize>> {
        let values = self.0.iter().filter(|(f, _)| *f == field);
        values.map(|(_, value)| to_dimension(*value)).collect()
    }

    /// The value of a field, 0 if it is not set.
    pub(super) fn one(&self, field: u64) -> Result<usize> {
        let last = self.0.iter().rev().find(|(f, _)| *f == field);
        to_dimension(last.map_or(0, |(_, value)| *value))
    }
}

fn to_dimension(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| err!(InvalidArgument, "a dimension number is {value}"))
}

/// Fields and values; repeated ones may be packed.
fn read(bytes: &[u8]) -> Option<Numbers> {
    let (mut rest, mut numbers) = (bytes, Vec::new());
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 => numbers.push((key >> 3, varint(&mut rest)? as i64)),
            2 => {
                let size = usize::try_from(varint(&mut rest)?).ok()?;
                let mut packed = rest.get(..size)?;
                rest = &rest[size..];
                while !packed.is_empty() && numbers.len() <= NUMBERS_MAX {
                    numbers.push((key >> 3, varint(&mut packed)? as i64));
                }
            }
            _ => return None,
        }
        if numbers.len() > NUMBERS_MAX {
            return None;
        }
    }
    Some(Numbers(numbers))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_packed_and_not() {
        // 1: [3], 2: [1, 2] packed, 4: 300.
        let numbers = read(&[0x08, 3, 0x12, 2, 1, 2, 0x20, 0xac, 0x02]).unwrap();
        assert_eq!(numbers.all(1).unwrap(), [3]);
        assert_eq!(numbers.all(2).unwrap(), [1, 2]);
        assert_eq!((numbers.one(4).unwrap(), numbers.one(3).unwrap()), (300, 0));
    }

    #[test]
    fn damage() {
        for bytes in [&[0x08][..], &[0x12, 5, 1], &[0x0d, 0, 0, 0, 0], &[0xff; 12]] {
            assert!(read(bytes).is_none(), "{bytes:?}");
        }
        let negative = read(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert!(negative.unwrap().one(1).is_err());
    }
}
