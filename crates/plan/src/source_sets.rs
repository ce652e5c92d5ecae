//! Sets of the sources that nodes of a partition wait for.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Most bytes that the sets of sources of one partition take; beyond, nodes stay alone.
const SET_BYTES_MAX: usize = 64 << 20;

/// Sets of sources, each stored once.
#[derive(Default)]
pub(crate) struct Sets {
    pub(crate) all: Vec<Arc<[u64]>>,
    by_bits: FxHashMap<Arc<[u64]>, u32>,
    bytes: usize,
}

impl Sets {
    pub(crate) fn intern(&mut self, bits: &[u64]) -> u32 {
        let end = bits.iter().rposition(|&word| word != 0).map_or(0, |i| i + 1);
        if let Some(&id) = self.by_bits.get(&bits[..end]) {
            return id;
        }
        let set: Arc<[u64]> = bits[..end].into();
        let id = self.all.len() as u32;
        self.bytes += 8 * end + 64;
        self.all.push(set.clone());
        self.by_bits.insert(set, id);
        id
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > SET_BYTES_MAX
    }

    pub(crate) fn union_into(&self, bits: &mut Vec<u64>, id: u32) {
        let other = &self.all[id as usize];
        if bits.len() < other.len() {
            bits.resize(other.len(), 0);
        }
        bits.iter_mut().zip(other.iter()).for_each(|(a, b)| *a |= b);
    }

    pub(crate) fn intersect_into(&self, bits: &mut Vec<u64>, id: u32) {
        let other = &self.all[id as usize];
        bits.truncate(other.len());
        bits.iter_mut().zip(other.iter()).for_each(|(a, b)| *a &= b);
    }
}

/// Sets a bit of a set that grows.
pub(crate) fn set_bit(bits: &mut Vec<u64>, position: usize) {
    if bits.len() <= position / 64 {
        bits.resize(position / 64 + 1, 0);
    }
    bits[position / 64] |= 1 << (position % 64);
}
