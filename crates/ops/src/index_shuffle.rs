//! `RandomIndexShuffle`: one element of a random permutation, computed without storing it.
//!
//! The permutation is format-preserving encryption: the Simon cipher, with words of half the index
//! width and few rounds, with cycle walking.

use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("RandomIndexShuffle", shuffle_shape)
        .with_work(Work::serial::<700>)
        .without_gradient()],
    kernels: &[cpu_kernel!("RandomIndexShuffle", "dtype" in [i32, u32, i64, u64] => shuffle)],
};

fn shuffle_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut count = PartialShape::scalar();
    for (i, scalar_rank) in [(0, 0), (1, 1), (2, 0)] {
        let shape = c.input(i);
        let Some(dims) = shape.dims() else {
            c.set_output(0, PartialShape::unknown());
            return Ok(());
        };
        if dims.len() == scalar_rank {
            continue;
        }
        ensure!(
            dims.len() == scalar_rank + 1,
            InvalidArgument,
            "input {i} must have rank {scalar_rank} or {}, got shape {shape}",
            scalar_rank + 1
        );
        let own = PartialShape::new([dims[0]]);
        count = if count.rank() == Some(0) { own } else { count.merge(&own)? };
    }
    c.set_output(0, count);
    Ok(())
}

/// Index types.
trait Index: Element {
    /// `None` if negative.
    fn to_u64(self) -> Option<u64>;
    fn from_u64(value: u64) -> Self;
}

macro_rules! indices {
    ($($t:ty),+) => { $(
        impl Index for $t {
            fn to_u64(self) -> Option<u64> {
                u64::try_from(self).ok()
            }

            fn from_u64(value: u64) -> Self {
                value as $t
            }
        }
    )+ };
}

indices!(i32, u32, i64, u64);

/// Maximum number of rounds; more would only take time.
const ROUNDS_MAX: usize = 64;

/// A block cipher on numbers of `2 * width` bits.
struct Cipher {
    /// Bits per word.
    width: u32,
    keys: [u64; ROUNDS_MAX],
    rounds: usize,
}

impl Cipher {
    fn new(seed: [u32; 3], max_index: u64, rounds: usize) -> Cipher {
        /// Minimum number of bits; smaller permutations would show patterns.
        const LEAST_BITS: u32 = 16;
        /// The constant sequence of the key schedule.
        const SEQUENCE: u64 = 0x7369_f885_192c_0ef5;
        const CONSTANT: u64 = 0xffff_fffc;
        let bits = (max_index as f64).log2().ceil() as u32;
        let width = (bits + bits % 2).clamp(LEAST_BITS, 64) / 2;
        let mut cipher = Cipher { width, keys: [0; ROUNDS_MAX], rounds };
        let mask = cipher.mask();
        for (key, seed) in cipher.keys.iter_mut().zip(seed) {
            *key = u64::from(seed) & mask;
        }
        let mut sequence = SEQUENCE & mask;
        for i in 3..rounds {
            let last = cipher.keys[i - 1];
            cipher.keys[i] = (CONSTANT & mask)
                ^ (sequence & 1)
                ^ cipher.keys[i - 3]
                ^ cipher.turned(last, width - 3)
                ^ cipher.turned(last, width - 4);
            sequence >>= 1;
        }
        cipher
    }

    fn mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// Rotates a word left.
    fn turned(&self, word: u64, by: u32) -> u64 {
        (word << by | word >> (self.width - by)) & self.mask()
    }

    fn mixed(&self, word: u64) -> u64 {
        self.turned(word, 1) & self.turned(word, 8) ^ self.turned(word, 2)
    }

    fn encrypt(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.width & self.mask(), value & self.mask());
        for pair in self.keys[..self.rounds].chunks_exact(2) {
            left ^= self.mixed(right) ^ pair[0];
            right ^= self.mixed(left) ^ pair[1];
        }
        left << self.width | right
    }

    /// The image of `index` among `0..=max_index`.
    fn shuffle(&self, index: u64, max_index: u64) -> u64 {
        let mut index = index;
        // Cycle walking: values that are too large are encrypted again.
        loop {
            index = self.encrypt(index);
            if index <= max_index {
                return index;
            }
        }
    }
}

/// Three seeds for each index, or for all.
fn seeds(tensor: &Tensor) -> Result<Vec<[u32; 3]>> {
    let shape = tensor.shape();
    ensure!(
        matches!(shape.dims(), [3] | [_, 3]),
        InvalidArgument,
        "Seed must be a vector of size [3] or a matrix of size [n, 3] but got {shape}."
    );
    let mut found = Vec::new();
    found
        .try_reserve_exact(shape.num_elements() / 3)
        .map_err(|_| thalweg_tensor::err!(ResourceExhausted, "out of memory for {shape} seeds"))?;
    macro_rules! collect {
        ($t:ty) => {
            found.extend(
                tensor
                    .as_slice::<$t>()?
                    .chunks_exact(3)
                    .map(|s| [s[0] as u32, s[1] as u32, s[2] as u32]),
            )
        };
    }
    match tensor.dtype() {
        DType::Int32 => collect!(i32),
        DType::UInt32 => collect!(u32),
        DType::Int64 => collect!(i64),
        DType::UInt64 => collect!(u64),
        other => bail!(InvalidArgument, "seeds cannot be {other}"),
    }
    Ok(found)
}

fn shuffle<T: Index>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let rounds = init.attrs().int("rounds")?;
    // TensorFlow reads uninitialized keys with fewer rounds, and may not end with an odd number of
    // rounds.
    ensure!(
        rounds >= 4 && rounds % 2 == 0 && rounds <= ROUNDS_MAX as i64,
        InvalidArgument,
        "rounds must be even and from 4 to {ROUNDS_MAX}, got {rounds}"
    );
    AnyKernel::new(move |ctx| {
        let (index, max_index) = (ctx.input(0)?, ctx.input(2)?);
        for (name, tensor) in [("Index", index), ("max_index", max_index)] {
            ensure!(
                tensor.rank() <= 1 && tensor.num_elements() > 0,
                InvalidArgument,
                "{name} must be a scalar or vector, got shape {}",
                tensor.shape()
            );
        }
        let seeds = seeds(ctx.input(1)?)?;
        let (indices, most) = (index.as_slice::<T>()?, max_index.as_slice::<T>()?);
        let is_vector = index.rank() + max_index.rank() > 0 || ctx.input(1)?.rank() > 1;
        let count = indices.len().max(most.len()).max(seeds.len());
        for (name, len) in
            [("index", indices.len()), ("max_index", most.len()), ("seed", seeds.len())]
        {
            ensure!(
                len == 1 || len == count,
                InvalidArgument,
                "{name} has {len} entries, where others have {count}"
            );
        }
        let at = |i: usize, len: usize| if len == 1 { 0 } else { i };
        for i in 0..count {
            let (index, most) = (indices[at(i, indices.len())], most[at(i, most.len())]);
            let (Some(index), Some(most)) = (index.to_u64(), most.to_u64()) else {
                bail!(InvalidArgument, "index and max_index must be >= 0, got {index:?}, {most:?}");
            };
            ensure!(
                index <= most,
                InvalidArgument,
                "max_index must be >= index, but {most} < {index}"
            );
        }
        let shape = if is_vector { Shape::new(&[count])? } else { Shape::scalar() };
        let mut out = ctx.allocate_output(0, shape)?;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 200.0, |first, out| {
            for (i, out) in (first..).zip(out) {
                let index = indices[at(i, indices.len())].to_u64().unwrap_or(0);
                let most = most[at(i, most.len())].to_u64().unwrap_or(0);
                let seed = seeds[at(i, seeds.len())];
                *out = T::from_u64(match most {
                    0 => 0,
                    _ => Cipher::new(seed, most, rounds as usize).shuffle(index, most),
                });
            }
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    /// Permutations recorded from TensorFlow.
    #[test]
    fn known_permutations() {
        let run = |index: &[i32], seed: &[i32], most: i32, rounds: i64| {
            let call = call("RandomIndexShuffle").input(Tensor::vector(index).unwrap());
            let call = call.input(Tensor::vector(seed).unwrap()).input(Tensor::scalar(most));
            call.attr("rounds", rounds).run().unwrap().as_slice::<i32>().unwrap().to_vec()
        };
        let all: Vec<i32> = (0..10).collect();
        assert_eq!(run(&all, &[1, 2, 3], 9, 4), [2, 0, 6, 4, 8, 1, 7, 9, 5, 3]);
        assert_eq!(run(&[3], &[1, 2, 3], 99, 6), [19]);
        for (most, expected) in [
            (0, [0, 0, 0]),
            (1, [1, 1, 0]),
            (3, [1, 0, 3]),
            (256, [149, 162, 44]),
            (65535, [19027, 48322, 46708]),
            (65536, [19027, 50918, 19027]),
            (1_000_000, [80002, 360_870, 266_804]),
            (i32::MAX - 1, [4_878_018, 548_085_769, 2_048_383_089]),
        ] {
            assert_eq!(run(&[0, most / 2, most], &[5, 6, 7], most, 4), expected, "{most}");
        }
    }

    #[test]
    fn hostile_inputs() {
        let run = |index: Tensor, seed: &[i64], most: u64, rounds: i64| {
            let call = call("RandomIndexShuffle").input(index).input(Tensor::vector(seed).unwrap());
            call.input(Tensor::scalar(most)).attr("rounds", rounds).run()
        };
        assert!(run(Tensor::scalar(u64::MAX), &[1, 2, 3], u64::MAX, 4).is_ok());
        assert_eq!(code(run(Tensor::scalar(2u64), &[1, 2, 3], 1, 4)), Some(Code::InvalidArgument));
        assert_eq!(code(run(Tensor::scalar(0u64), &[1, 2], 1, 4)), Some(Code::InvalidArgument));
        for rounds in [0, 3, 5, 2, -4, i64::MAX, 66] {
            assert_eq!(
                code(run(Tensor::scalar(0u64), &[1, 2, 3], 1, rounds)),
                Some(Code::InvalidArgument)
            );
        }
        assert_eq!(
            code(run(Tensor::vector::<u64>(&[]).unwrap(), &[1, 2, 3], 1, 4)),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn shapes() {
        let infer = |index, seed, most| {
            let call = call("RandomIndexShuffle").shape(DType::Int32, index);
            call.shape(DType::Int32, seed).shape(DType::Int32, most).infer()
        };
        assert_eq!(infer("", "3", ""), "[]");
        assert_eq!(infer("", "5,3", ""), "[5]");
        assert_eq!(infer("?", "5,3", ""), "[5]");
        assert!(infer("4", "5,3", "").starts_with("INVALID_ARGUMENT"));
    }
}
