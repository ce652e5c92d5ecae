//! Order-preserving encoding (TensorFlow's `OrderedCode`) of names and numbers: the keys of slices.

use super::Slice;

/// The table key of a slice.
pub(super) fn slice_key(name: &str, slice: &Slice) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 4 + 4 * slice.rank());
    put_number(&mut key, 0);
    put_string(&mut key, name.as_bytes());
    put_number(&mut key, slice.rank() as u64);
    for extent in slice.extents() {
        let start = i64::try_from(extent.start).unwrap_or(i64::MAX);
        let length = extent.length.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        put_signed(&mut key, start);
        put_signed(&mut key, length);
    }
    key
}

/// The number of bytes, then the number without leading zero bytes.
fn put_number(key: &mut Vec<u8>, number: u64) {
    let zeroes = number.leading_zeros() as usize / 8;
    key.push((8 - zeroes) as u8);
    key.extend_from_slice(&number.to_be_bytes()[zeroes..]);
}

/// A string with 0x00 and 0xff escaped, and a terminator that sorts before everything.
fn put_string(key: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            0 => key.extend_from_slice(b"\x00\xff"),
            0xff => key.extend_from_slice(b"\xff\x00"),
            byte => key.push(byte),
        }
    }
    key.extend_from_slice(b"\x00\x01");
}

/// A signed number: as many leading one bits as there are bytes (zero bits for a negative number),
/// then its bits.
fn put_signed(key: &mut Vec<u8>, number: i64) {
    let magnitude = if number < 0 { !number } else { number };
    let bits = 64 - magnitude.leading_zeros() as usize;
    // A byte holds seven bits; one bit of the first byte is the sign.
    let length = bits / 7 + 1;
    let mut wide = i128::from(number).to_be_bytes();
    let bytes = &mut wide[16 - length..];
    let ones = u16::MAX << (16 - length);
    bytes[0] ^= (ones >> 8) as u8;
    if let Some(second) = bytes.get_mut(1) {
        *second ^= ones as u8;
    }
    key.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(number: i64) -> Vec<u8> {
        let mut key = Vec::new();
        put_signed(&mut key, number);
        key
    }

    #[test]
    fn keys_as_tensorflow_writes_them() {
        let slice = Slice::parse("2,2:-").unwrap();
        assert_eq!(slice_key("a", &slice), b"\x00a\x00\x01\x01\x02\x82\x82\x80\x7f");
        assert_eq!(slice_key("\0", &Slice::full(0)), b"\x00\x00\xff\x00\x01\x00");
    }

    #[test]
    fn numbers_sort_as_their_bytes() {
        assert_eq!(signed(63), [0xbf]);
        assert_eq!(signed(64), [0xc0, 64]);
        assert_eq!(signed(-64), [0x40]);
        assert_eq!(signed(-65), [0x3f, 0xbf]);
        let near = |x: i64| (-2..=2).filter_map(move |d| x.checked_add(d));
        let mut numbers: Vec<i64> = (0..64).flat_map(|bit| near(1 << bit)).collect();
        numbers.extend((0..64).flat_map(|bit| near(i64::MIN >> bit)));
        numbers.sort_unstable();
        numbers.dedup();
        for pair in numbers.windows(2) {
            assert!(signed(pair[0]) < signed(pair[1]), "{pair:?}");
        }
        assert_eq!(signed(i64::MAX).len(), 10);
    }
}
