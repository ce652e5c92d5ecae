//! A rope: a message as the data frames it came in.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// A sequence of byte slices that is read from the front.
#[derive(Clone, Default)]
pub struct Rope {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, mut count: usize) {
        self.len = self.len.checked_sub(count).expect("the count is at most `remaining`");
        while count > 0 {
            let Some(first) = self.pieces.front_mut() else { return };
            if first.len() > count {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }

    /// Shares the bytes if they lie in one piece, else copies them.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.len, "the count is at most `remaining`");
        if let Some(first) = self.pieces.front_mut()
            && first.len() >= count
        {
            let taken = first.split_to(count);
            if first.is_empty() {
                self.pieces.pop_front();
            }
            self.len -= count;
            return taken;
        }
        let mut joined = BytesMut::with_capacity(count);
        while joined.len() < count {
            let piece = &self.chunk()[..self.chunk().len().min(count - joined.len())];
            joined.extend_from_slice(piece);
            let taken = piece.len();
            self.advance(taken);
        }
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(pieces: &[&'static [u8]]) -> Rope {
        let mut rope = Rope::default();
        pieces.iter().for_each(|p| rope.push(Bytes::from_static(p)));
        rope
    }

    #[test]
    fn reads_across_pieces() {
        let mut r = rope(&[b"ab", b"", b"cdef", b"g"]);
        assert_eq!(r.remaining(), 7);
        assert_eq!(r.copy_to_bytes(1), "a");
        assert_eq!(r.copy_to_bytes(3), "bcd");
        r.advance(1);
        assert_eq!((r.remaining(), r.chunk()), (2, &b"f"[..]));
        assert_eq!(r.copy_to_bytes(2), "fg");
        assert_eq!((r.remaining(), r.chunk().len()), (0, 0));
    }

    #[test]
    fn bytes_in_one_piece_are_shared() {
        let piece = Bytes::from_static(b"0123456789");
        let mut r = Rope::default();
        r.push(piece.clone());
        r.advance(2);
        let taken = r.copy_to_bytes(4);
        assert_eq!(taken.as_ptr(), piece[2..].as_ptr());
    }
}
