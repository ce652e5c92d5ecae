//! `StringToHashBucket` and `Fingerprint`.

use thalweg_graph::{OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::hash::{fingerprint64, hash64, sip_hash};
use super::text::scalar_string;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        STRING_TO_HASH_BUCKET,
        STRING_TO_HASH_BUCKET_FAST,
        STRING_TO_HASH_BUCKET_STRONG,
        OpDef::new("Fingerprint", fingerprint_shape),
    ],
    kernels: &[
        KernelSpec {
            op: "StringToHashBucket",
            create: |init| buckets(init, |s, _| hash64(s)),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StringToHashBucketFast",
            create: |init| buckets(init, |s, _| fingerprint64(s)),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StringToHashBucketStrong",
            create: |init| buckets(init, |s, key| sip_hash(key, s)),
            ..KernelSpec::CPU
        },
        KernelSpec { op: "Fingerprint", create: fingerprint, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per short string.
const NANOSECONDS: f64 = 20.0;

const STRING_TO_HASH_BUCKET: OpDef =
    OpDef::new("StringToHashBucket", shape::unchanged).without_gradient();

const STRING_TO_HASH_BUCKET_FAST: OpDef =
    OpDef { name: "StringToHashBucketFast", ..STRING_TO_HASH_BUCKET };

const STRING_TO_HASH_BUCKET_STRONG: OpDef =
    OpDef { name: "StringToHashBucketStrong", ..STRING_TO_HASH_BUCKET_FAST };

fn buckets(init: &KernelInit<'_>, hash: fn(&[u8], [u64; 2]) -> u64) -> Result<AnyKernel> {
    let count = init.attrs().int("num_buckets")?;
    ensure!(count >= 1, InvalidArgument, "num_buckets must be at least 1, is {count}");
    let key = match init.attrs().get("key") {
        None => [0, 0],
        Some(_) => match init.attrs().ints("key")? {
            &[first, second] => [first.cast_unsigned(), second.cast_unsigned()],
            other => bail!(InvalidArgument, "key must have 2 elements, has {}", other.len()),
        },
    };
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let mut output = ctx.allocate_output(0, input.shape().clone())?;
        for_each_rows(ctx, output.as_mut_slice::<i64>()?, 1, NANOSECONDS, |first, out| {
            for (bucket, string) in out.iter_mut().zip(&strings[first..]) {
                *bucket = (hash(string, key) % count.cast_unsigned()).cast_signed();
            }
        })?;
        ctx.set_output(0, output)
    })
}

/// Bytes per fingerprint.
const FINGERPRINT_BYTES: usize = 8;

fn fingerprint_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, "data", 1)?;
    c.with_rank(1, "method", 0)?;
    let rows = data.dims().and_then(|d| d.first().copied()).flatten();
    c.set_output(0, PartialShape::new([rows, Some(FINGERPRINT_BYTES)]));
    Ok(())
}

fn fingerprint(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let method = scalar_string(ctx, 1, "method")?;
        ensure!(
            &method[..] == b"farmhash64",
            InvalidArgument,
            "method must be farmhash64, is {method:?}"
        );
        let data = ctx.input(0)?;
        let Some(&rows) = data.shape().first() else {
            bail!(InvalidArgument, "data must have at least one dimension, is a scalar")
        };
        let columns: usize = data.shape()[1..].iter().product();
        let mut output = ctx.zeros(DType::UInt8, Shape::new(&[rows, FINGERPRINT_BYTES])?)?;
        let hash = row_hash(data, columns)?;
        let cost = NANOSECONDS + 0.3 * (columns * data.dtype().size().max(16)) as f64;
        let prints = output.as_mut_slice::<u8>()?;
        for_each_rows(ctx, prints, FINGERPRINT_BYTES, cost, |first, part| {
            for (i, print) in part.chunks_exact_mut(FINGERPRINT_BYTES).enumerate() {
                print.copy_from_slice(&hash(first + i).to_le_bytes());
            }
        })?;
        drop(hash);
        ctx.set_output(0, output)
    })
}

/// The hash of a row of `columns` elements.
fn row_hash(data: &Tensor, columns: usize) -> Result<Box<dyn Fn(usize) -> u64 + Sync + '_>> {
    if data.dtype() == DType::String {
        let strings = data.strings()?;
        if data.rank() == 1 {
            return Ok(Box::new(move |row| fingerprint64(&strings[row])));
        }
        if columns == 0 {
            return Ok(Box::new(|_| 0));
        }
        // The fingerprint of the concatenated fingerprints.
        return Ok(Box::new(move |row| {
            let row = &strings[row * columns..(row + 1) * columns];
            let prints: Vec<u8> = row.iter().flat_map(|s| fingerprint64(s).to_le_bytes()).collect();
            fingerprint64(&prints)
        }));
    }
    ensure!(
        !data.dtype().is_object(),
        InvalidArgument,
        "Fingerprint does not support dtype {}",
        data.dtype()
    );
    let (bytes, row_bytes) = (data.as_bytes()?, columns * data.dtype().size());
    Ok(Box::new(move |row| fingerprint64(&bytes[row * row_bytes..(row + 1) * row_bytes])))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Bytes, Code};

    use super::*;
    use crate::testing::{call, code};

    fn strings(dims: &[usize], text: &'static str) -> Tensor {
        let items =
            text.split(' ').filter(|s| !s.is_empty()).map(|s| Bytes::from_static(s.as_bytes()));
        Tensor::from_strings(Shape::new(dims).unwrap(), items.collect()).unwrap()
    }

    #[test]
    fn buckets_are_below_their_number() {
        for op in ["StringToHashBucket", "StringToHashBucketFast"] {
            let out = call(op).input(strings(&[3], "a b c")).attr("num_buckets", 7i64).run();
            assert!(out.unwrap().as_slice::<i64>().unwrap().iter().all(|b| (0..7).contains(b)));
            assert_eq!(
                code(call(op).input(strings(&[], "a")).attr("num_buckets", 0i64).run()),
                Some(Code::InvalidArgument)
            );
        }
        let strong = |key: &[i64]| {
            let call = call("StringToHashBucketStrong").input(strings(&[], "a"));
            call.attr("num_buckets", 3i64).attr("key", key).run()
        };
        assert!(strong(&[1, 2]).is_ok());
        assert!(strong(&[1]).is_err() && strong(&[1, 2, 3]).is_err() && strong(&[]).is_err());
    }

    #[test]
    fn fingerprints_of_rows() {
        let run = |data: Tensor, method: &'static str| {
            call("Fingerprint").input(data).input(Tensor::scalar_string(method)).run()
        };
        let print =
            |data: Tensor| run(data, "farmhash64").unwrap().as_slice::<u8>().unwrap().to_vec();
        let pair = print(strings(&[2], "a b"));
        assert_eq!(pair[..8], [227, 117, 223, 182, 101, 66, 69, 179]);
        let grid = print(strings(&[2, 2], "a b c d"));
        assert_eq!(grid[..8], [122, 64, 59, 169, 136, 60, 55, 83]);
        let numbers = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1i32, 2, 3, 4]).unwrap();
        assert_eq!(print(numbers)[..8], [76, 18, 253, 133, 168, 204, 240, 10]);
        let empty = |dtype| Tensor::zeros(dtype, Shape::new(&[1, 0]).unwrap()).unwrap();
        assert_eq!(print(empty(DType::Float)), [79, 64, 144, 47, 59, 106, 225, 154]);
        assert_eq!(print(empty(DType::String)), [0; 8]);
        assert_eq!(code(run(Tensor::scalar(1f32), "farmhash64")), Some(Code::InvalidArgument));
        assert_eq!(code(run(Tensor::vector(&[1f32]).unwrap(), "md5")), Some(Code::InvalidArgument));
        let shapes = call("Fingerprint").shape(DType::Float, "?,3").shape(DType::String, "");
        assert_eq!(shapes.infer(), "[?,8]");
    }
}
