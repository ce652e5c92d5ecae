//! Segment reductions, partitions and stitching.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

/// Ascending segment ids with gaps.
fn rising(random: &mut Random, count: usize) -> Vec<usize> {
    let mut id = 0;
    let mut ids = Vec::new();
    for _ in 0..count {
        id += random.pick(&[0, 0, 0, 1, 1, 2]);
        ids.push(id);
    }
    ids
}

/// `function` of the elements of each segment, by column, for rows with segment ids `ids`; `empty`
/// for segments without rows.
fn by_segment(
    rows: &Array,
    ids: &[Option<usize>],
    segments: usize,
    empty: f64,
    function: impl Fn(&[f64]) -> f64,
) -> Array {
    let dims = [&[segments], &rows.dims[1..]].concat();
    Array::from_fn(&dims, |index| {
        let mine = (0..rows.dims[0]).filter(|&row| ids[row] == Some(index[0]));
        let elements: Vec<f64> = mine.map(|row| rows.at(&[&[row], &index[1..]].concat())).collect();
        if elements.is_empty() { empty } else { function(&elements) }
    })
}

fn sum(elements: &[f64]) -> f64 {
    elements.iter().sum()
}

fn mean(elements: &[f64]) -> f64 {
    sum(elements) / elements.len() as f64
}

fn sqrt_n(elements: &[f64]) -> f64 {
    sum(elements) / (elements.len() as f64).sqrt()
}

fn max(elements: &[f64]) -> f64 {
    elements.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn min(elements: &[f64]) -> f64 {
    elements.iter().copied().fold(f64::INFINITY, f64::min)
}

fn product(elements: &[f64]) -> f64 {
    elements.iter().product()
}

/// An op and its reduction of a segment's elements.
type Reduction = (&'static str, fn(&[f64]) -> f64);

#[test]
fn sorted_segments() {
    let ops: [Reduction; 5] = [
        ("SegmentSum", sum),
        ("SegmentMean", mean),
        ("SegmentMax", max),
        ("SegmentMin", min),
        ("SegmentProd", product),
    ];
    for (op, function) in ops {
        check(op, 50, |random| {
            let mut dims = random.dims(1, 3, 4);
            dims[0] = random.size(0, 8);
            let data = random.array(&dims, -2, 2);
            let ids = rising(random, dims[0]);
            let segments = ids.last().map_or(0, |last| last + 1);
            // The result for an empty segment is the identity element: one for products, else zero.
            let empty = if op == "SegmentProd" { 1.0 } else { 0.0 };
            let owners: Vec<Option<usize>> = ids.iter().copied().map(Some).collect();
            let expected = by_segment(&data, &owners, segments, empty, function);
            let types = if op == "SegmentMean" { FLOATS } else { NUMBERS };
            let call = Call::new(op).array(&data, random.pick(types));
            call.sizes(&ids, random.pick(INDICES)).gives(&expected)
        });
    }
}

#[test]
fn unsorted_segments() {
    let ops: [Reduction; 4] = [
        ("UnsortedSegmentSum", sum),
        ("UnsortedSegmentMax", max),
        ("UnsortedSegmentMin", min),
        ("UnsortedSegmentProd", product),
    ];
    for (op, function) in ops {
        check(op, 50, |random| {
            let dims = random.dims(1, 4, 3);
            let segments = random.size(1, 5);
            let data = random.array(&dims, -2, 2);
            let ids_rank = random.size(1, dims.len());
            // Rows with a negative id are dropped.
            let ids = random.array(&dims[..ids_rank], -1, segments as i64 - 1);
            let owners: Vec<Option<usize>> =
                ids.values.iter().map(|&id| (id >= 0.0).then_some(id as usize)).collect();
            let flat = [&[owners.len()], &dims[ids_rank..]].concat();
            let dtype = random.pick(&[DType::Float, DType::Double]);
            let least = if dtype == DType::Float { f64::from(f32::MIN) } else { f64::MIN };
            let empty = match op {
                "UnsortedSegmentSum" => 0.0,
                "UnsortedSegmentMax" => least,
                "UnsortedSegmentMin" => -least,
                _ => 1.0,
            };
            let rows = data.reshaped(&flat);
            let expected = by_segment(&rows, &owners, segments, empty, function);
            let call = Call::new(op).array(&data, dtype).array(&ids, random.pick(INDICES));
            call.scalar(segments as i64, random.pick(INDICES)).gives(&expected)
        });
    }
}

#[test]
fn sparse_segments() {
    let ops: [Reduction; 3] =
        [("SparseSegmentSum", sum), ("SparseSegmentMean", mean), ("SparseSegmentSqrtN", sqrt_n)];
    for (op, function) in ops {
        check(op, 60, |random| {
            let mut dims = random.dims(1, 3, 4);
            dims[0] = random.size(1, 6);
            let data = random.array(&dims, -2, 2);
            let picks: Vec<usize> = (0..random.size(0, 8)).map(|_| random.below(dims[0])).collect();
            let ids = rising(random, picks.len());
            let segments = ids.last().map_or(0, |last| last + 1);
            let mut chosen = dims.clone();
            chosen[0] = picks.len();
            let rows = Array::from_fn(&chosen, |index| {
                data.at(&[&[picks[index[0]]], &index[1..]].concat())
            });
            let owners: Vec<Option<usize>> = ids.iter().copied().map(Some).collect();
            let expected = by_segment(&rows, &owners, segments, 0.0, function);
            let call = Call::new(op).array(&data, random.pick(FLOATS));
            let call = call.sizes(&picks, random.pick(INDICES));
            call.sizes(&ids, random.pick(INDICES)).gives(&expected)
        });
    }
}

#[test]
fn partition_and_stitch() {
    check("DynamicStitch of DynamicPartition", 60, |random| {
        let dims = random.dims(1, 4, 3);
        let keys_rank = random.size(1, dims.len());
        let parts = random.size(1, 4);
        let keys = random.array(&dims[..keys_rank], 0, parts as i64 - 1);
        let given = Array::counting(&dims).to_tensor(random.pick(MOVABLE));
        let count = keys.values.len();
        let places = Array::counting(&[count]).map(|v| v - 1.0).reshaped(&keys.dims);
        let partition = |what: Tensor| {
            let call = Call::new("DynamicPartition").tensor(what).array(&keys, DType::Int32);
            call.attr("num_partitions", parts as i64).run()
        };
        let data = partition(given.clone())?;
        let places = partition(places.to_tensor(DType::Int32))?;
        for (part, rows) in data.iter().enumerate() {
            let size = keys.values.iter().filter(|&&k| k == part as f64).count();
            let expected = [&[size], &dims[keys_rank..]].concat();
            ensure!(rows.shape().dims() == expected, Internal, "{rows:?} for {expected:?}");
        }
        if count == 0 {
            return Ok(());
        }
        let call = Call::new("DynamicStitch").tensors(&places).tensors(&data);
        let merged = call.attr("N", parts as i64).output()?;
        let call = Call::new("Reshape").tensor(merged).sizes(&dims, DType::Int32);
        call.gives_back(&given)
    });
}

#[test]
fn unique_values() {
    for (op, outputs) in [("Unique", 2), ("UniqueWithCounts", 3)] {
        check(op, 60, |random| {
            let count = random.size(0, 20);
            let values = random.array(&[count], 0, 9);
            let mut distinct: Vec<f64> = Vec::new();
            let mut counts = Vec::new();
            let places: Vec<i64> = values
                .values
                .iter()
                .map(|&v| match distinct.iter().position(|&d| d == v) {
                    Some(place) => {
                        counts[place] += 1;
                        place as i64
                    }
                    None => {
                        distinct.push(v);
                        counts.push(1);
                        distinct.len() as i64 - 1
                    }
                })
                .collect();
            let expected = [
                Array { dims: vec![distinct.len()], values: distinct },
                Array::vector(&places),
                Array::vector(&counts),
            ];
            let dtype = random.pick(&[DType::Int32, DType::Int64, DType::Float, DType::String]);
            let call = Call::new(op).array(&values, dtype);
            call.attr("out_idx", random.pick(INDICES)).all_give(&expected[..outputs])
        });
    }
}

/// Gathering the distinct slices by the returned indices restores the input.
#[test]
fn unique_slices() {
    check("UniqueV2", 60, |random| {
        let mut dims = random.dims(1, 3, 3);
        let axis = random.below(dims.len());
        dims[axis] = random.size(1, 8);
        let given = random.array(&dims, 0, 1).to_tensor(random.pick(&[DType::Int32, DType::Float]));
        let call = Call::new("UniqueV2").tensor(given.clone()).sizes(&[axis], DType::Int64);
        let outputs = call.run()?;
        let distinct = Array::of(&outputs[0]);
        let slice = |i: usize| -> Vec<f64> {
            let mine = indices(&distinct.dims).into_iter().filter(|index| index[axis] == i);
            mine.map(|index| distinct.at(&index)).collect()
        };
        let slices: Vec<Vec<f64>> = (0..distinct.dims[axis]).map(slice).collect();
        for i in 0..slices.len() {
            for j in 0..i {
                ensure!(slices[i] != slices[j], Internal, "{i} is {j} of {}", call.describe());
            }
        }
        let back = Call::new("GatherV2").tensor(outputs[0].clone()).tensor(outputs[1].clone());
        back.scalar(axis as i64, DType::Int32).gives_back(&given)
    });
}
