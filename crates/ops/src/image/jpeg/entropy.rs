//! Huffman decoding of a JPEG scan.

use thalweg_tensor::{Result, ensure, err};

/// Bits that index the lookup table.
const LOOKUP_BITS: u32 = 9;

/// A Huffman code.
pub(super) struct Huffman {
    /// For each pattern of the first bits: symbol and length; length 0 marks longer codes.
    lookup: Vec<(u8, u8)>,
    /// For each length, the first code beyond it, left-aligned to 16 bits.
    limits: [u32; 17],
    /// For each length, the difference between a code and the index of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    /// The code with `counts[i]` codes of length `i + 1`, and symbols in order.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Huffman> {
        let mut huffman = Huffman {
            lookup: vec![(0, 0); 1 << LOOKUP_BITS],
            limits: [0; 17],
            offsets: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut index) = (0u32, 0usize);
        for len in 1..=16u32 {
            let count = u32::from(counts[len as usize - 1]);
            huffman.offsets[len as usize] = index as i32 - code as i32;
            for _ in 0..count {
                let symbol = symbols.get(index).copied();
                let symbol =
                    symbol.ok_or_else(|| err!(InvalidArgument, "Invalid JPEG data: a code"))?;
                ensure!(code < 1 << len, InvalidArgument, "Invalid JPEG data: a code is full");
                if len <= LOOKUP_BITS {
                    let start = (code << (LOOKUP_BITS - len)) as usize;
                    let entries = 1usize << (LOOKUP_BITS - len);
                    huffman.lookup[start..start + entries].fill((symbol, len as u8));
                }
                code += 1;
                index += 1;
            }
            huffman.limits[len as usize] = code << (16 - len);
            code <<= 1;
        }
        Ok(huffman)
    }
}

/// Bit reader up to the next marker, followed by zeros.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    /// Position of the next byte.
    at: usize,
    buffer: u64,
    len: u32,
    /// Number of bits read beyond the end.
    missing: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8], at: usize) -> Bits<'a> {
        Bits { data, at, buffer: 0, len: 0, missing: 0 }
    }

    /// Position of the end of the scan's data: a marker, or the end of the file.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Whether bits beyond the end were read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.missing > 0
    }

    #[inline]
    fn fill(&mut self) {
        while self.len <= 48 {
            let byte = match (self.data.get(self.at), self.data.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(0xff), _) | (None, _) => break,
                (Some(&byte), _) => {
                    self.at += 1;
                    byte
                }
            };
            self.buffer = self.buffer << 8 | u64::from(byte);
            self.len += 8;
        }
    }

    /// The next `count` bits, at most 16, without consuming them.
    #[inline]
    fn peek(&mut self, count: u32) -> u32 {
        if self.len < count {
            self.fill();
            if self.len < count {
                let lacking = count - self.len;
                return ((self.buffer << lacking) as u32) & ((1 << count) - 1);
            }
        }
        (self.buffer >> (self.len - count)) as u32 & ((1 << count) - 1)
    }

    #[inline]
    fn take(&mut self, count: u32) {
        if count > self.len {
            self.missing += count - self.len;
            self.len = 0;
        } else {
            self.len -= count;
        }
        self.buffer &= (1u64 << self.len) - 1;
    }

    /// The next `count` bits, at most 16.
    #[inline]
    pub(super) fn read(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        let bits = self.peek(count);
        self.take(count);
        bits
    }

    /// The next symbol.
    #[inline]
    pub(super) fn symbol(&mut self, code: &Huffman) -> u8 {
        let (symbol, len) = code.lookup[self.peek(LOOKUP_BITS) as usize];
        if len > 0 {
            self.take(u32::from(len));
            return symbol;
        }
        self.long_symbol(code)
    }

    fn long_symbol(&mut self, code: &Huffman) -> u8 {
        let bits = self.peek(16);
        for len in LOOKUP_BITS + 1..=16 {
            if bits < code.limits[len as usize] {
                self.take(len);
                let index = (bits >> (16 - len)) as i32 + code.offsets[len as usize];
                return usize::try_from(index)
                    .ok()
                    .and_then(|i| code.symbols.get(i).copied())
                    .unwrap_or(0);
            }
        }
        // No code has this prefix: damaged data.
        self.take(16);
        0
    }

    /// A signed number of `size` bits, at most 16.
    #[inline]
    pub(super) fn number(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let size = size.min(16);
        let bits = self.read(size) as i32;
        if bits < 1 << (size - 1) { bits - (1 << size) + 1 } else { bits }
    }

    /// Skips the next restart marker; returns false if another marker comes first.
    pub(super) fn restart(&mut self) -> bool {
        (self.buffer, self.len, self.missing) = (0, 0, 0);
        while let Some(&byte) = self.data.get(self.at) {
            match (byte, self.data.get(self.at + 1)) {
                (0xff, Some(0xd0..=0xd7)) => {
                    self.at += 2;
                    return true;
                }
                (0xff, Some(0 | 0xff)) => self.at += 1,
                (0xff, _) => return false,
                _ => self.at += 1,
            }
        }
        false
    }
}
