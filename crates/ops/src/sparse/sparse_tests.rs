//! Randomized tests of all sparse ops: invalid inputs, and invariants of valid ones.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use thalweg_graph::{ArgType, AttrKind, Op};
use thalweg_kernel::Family;
use thalweg_tensor::{Bytes, Code, DType, Shape, Tensor};

use crate::testing::{Call, call, pairs};

static AREA: &[&Family] = &[
    &super::add::FAMILY,
    &super::counts::FAMILY,
    &super::cross::FAMILY,
    &super::dense::FAMILY,
    &super::empty_rows::FAMILY,
    &super::layout::FAMILY,
    &super::matmul::FAMILY,
    &super::pieces::FAMILY,
    &super::ragged::FAMILY,
    &super::ragged_dense::FAMILY,
    &super::ragged_variant::FAMILY,
    &super::reduction::FAMILY,
    &super::serialize::FAMILY,
    &super::sets::FAMILY,
];

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Mostly a small number, sometimes an invalid index.
    fn index(&mut self) -> i64 {
        match self.below(40) {
            0 => -1,
            1 => i64::MAX,
            2 => i64::MIN,
            3 => 1 << 40,
            _ => self.below(4) as i64,
        }
    }

    fn dims(&mut self) -> Vec<usize> {
        let rank = *self.pick(&[0, 1, 1, 1, 2, 2, 2, 3]);
        (0..rank).map(|_| self.below(4)).collect()
    }

    fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let n = shape.num_elements();
        let numbers: Vec<i64> = (0..n).map(|_| self.index()).collect();
        match dtype {
            DType::Int64 => Tensor::from_slice(shape, &numbers),
            DType::Int32 => {
                let narrow: Vec<i32> = numbers.iter().map(|&x| x as i32).collect();
                Tensor::from_slice(shape, &narrow)
            }
            DType::Float => {
                let floats: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
                Tensor::from_slice(shape, &floats)
            }
            DType::Bool => {
                let flags: Vec<bool> = numbers.iter().map(|&x| x > 1).collect();
                Tensor::from_slice(shape, &flags)
            }
            DType::String => {
                let texts = numbers.iter().map(|x| Bytes::from(x.to_string())).collect();
                Tensor::from_strings(shape, texts)
            }
            DType::Variant => Tensor::from_variants(shape, vec![None; n]),
            _ => Tensor::zeros(dtype, shape),
        }
        .unwrap()
    }
}

/// Sizes that the inputs of one node may agree on.
struct Sizes {
    count: usize,
    rank: usize,
    rows: usize,
}

impl Sizes {
    /// A shape that is valid for an argument of this name.
    fn fitting(&self, name: &str) -> Vec<usize> {
        match name {
            _ if name.contains("indices") && name != "indices_or_sections" => {
                vec![self.count, self.rank]
            }
            "start" | "size" | "input_start" => vec![self.rank],
            "thresh" | "default_value" | "split_dim" | "nrows" | "sep" | "num_buckets" => vec![],
            "salt" => vec![2],
            _ if name.contains("splits") => vec![self.rows + 1],
            _ if name.contains("shape") => vec![self.rank],
            "dense" | "b" | "dense_inputs" | "set1" | "set2" => vec![3; self.rank],
            "serialized_sparse" => vec![2, 3],
            _ => vec![self.count],
        }
    }

    /// Row splits that end with the number of values.
    fn splits(&self, dtype: DType) -> Tensor {
        let mut ends: Vec<i64> = (0..self.rows as i64).map(|i| i.min(self.count as i64)).collect();
        ends.push(self.count as i64);
        match dtype {
            DType::Int32 => {
                Tensor::vector(&ends.iter().map(|&x| x as i32).collect::<Vec<_>>()).unwrap()
            }
            _ => Tensor::vector(&ends).unwrap(),
        }
    }
}

const DTYPES: [DType; 5] = [DType::Float, DType::Int64, DType::Int32, DType::String, DType::Bool];

/// The name for the rest of the process, in which it is kept once.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.into());
    names.insert(leaked);
    leaked
}

/// A node of this op with random attrs and inputs of its signature.
fn invent(op: &'static str, signature: &Op, random: &mut Random) -> Call {
    let mut node = call(op);
    let (mut types, mut lists, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for attr in &signature.attrs {
        let name = interned(&attr.name);
        let allowed = if attr.allowed_types.is_empty() { &DTYPES[..] } else { &attr.allowed_types };
        node = match (attr.kind, attr.is_list) {
            (AttrKind::Type, false) => {
                let dtype = *random.pick(allowed);
                types.push((name, dtype));
                node.attr(name, dtype)
            }
            (AttrKind::Type, true) => {
                let all: Vec<DType> = (0..random.below(3)).map(|_| *random.pick(allowed)).collect();
                lists.push((name, all.clone()));
                node.attr(name, &all[..])
            }
            (AttrKind::Int, _) => {
                let number = attr.minimum.unwrap_or(-2).max(-2) + random.below(3) as i64;
                numbers.push((name, number));
                node.attr(name, number)
            }
            (AttrKind::Bool, _) => node.attr(name, random.below(2) == 0),
            (AttrKind::String, true) => {
                let kinds = ["FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS", "ROW_SPLITS"];
                let count = 1 + random.below(2);
                let values: Vec<&str> = (0..count).map(|_| *random.pick(&kinds)).collect();
                node.attr(name, &values[..])
            }
            (AttrKind::String, _) => {
                node.attr(name, *random.pick(&["union", "a-b", "R", "RS", "SD", ""]))
            }
            _ => node,
        };
    }
    let sizes =
        Sizes { count: random.below(4), rank: random.below(3) + 1, rows: random.below(3) + 1 };
    for input in &signature.inputs {
        let times = match &input.number_attr {
            Some(attr) => numbers.iter().find(|(n, _)| n == attr).map_or(1, |(_, n)| (*n).max(0)),
            None => 1,
        };
        let dtypes: Vec<DType> = match &input.ty {
            ArgType::Fixed(dtype) => vec![*dtype; times as usize],
            ArgType::Attr(attr) => {
                let dtype = types.iter().find(|(n, _)| n == attr).map_or(DType::Float, |t| t.1);
                vec![dtype; times as usize]
            }
            ArgType::ListAttr(attr) => {
                lists.iter().find(|(n, _)| n == attr).map(|l| l.1.clone()).unwrap_or_default()
            }
        };
        for dtype in dtypes {
            let is_wild = random.below(8) == 0;
            let dims = if is_wild { random.dims() } else { sizes.fitting(&input.name) };
            let splits = input.name.contains("splits") && !is_wild && random.below(4) > 0;
            node =
                node.input(if splits { sizes.splits(dtype) } else { random.tensor(dtype, &dims) });
        }
    }
    node
}

#[test]
fn no_input_makes_a_kernel_panic() {
    let times = std::env::var("HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let mut random = Random(0x5eed);
    let mut answered = 0;
    let registry = crate::op_registry(crate::FAMILIES).unwrap();
    for def in AREA.iter().flat_map(|family| family.ops) {
        let signature = registry.get(def.name).unwrap();
        for _ in 0..times {
            match invent(def.name, signature, &mut random).run_all() {
                Ok(_) => answered += 1,
                Err(e) => {
                    assert!(e.code() != Code::Unknown, "{}: {e}", def.name);
                }
            }
        }
    }
    assert!(answered > times, "most inventions are refused, but not nearly all: {answered}");
}

#[test]
fn shapes_are_inferred() {
    let int = DType::Int64;
    let sparse = |op, count: &str, rank: &str| {
        call(op).shape(int, &format!("{count},{rank}")).shape(DType::Float, count).shape(int, rank)
    };
    assert_eq!(sparse("SparseReorder", "5", "2").infer(), "[5,2] [5]");
    assert_eq!(sparse("SparseReorder", "?", "?").infer(), "[?,?] [?]");
    assert_eq!(sparse("SparseSoftmax", "7", "3").infer(), "[7]");
    let filled = sparse("SparseFillEmptyRows", "5", "2").shape(DType::Float, "").infer();
    assert_eq!(filled, "[?,2] [?] [?] [5]");
    let slice = sparse("SparseSlice", "5", "?").shape(int, "3").shape(int, "?").infer();
    assert_eq!(slice, "[?,3] [?] [3]");
    let reshaped = call("SparseReshape").shape(int, "5,2").shape(int, "2").shape(int, "3").infer();
    assert_eq!(reshaped, "[5,3] [3]");
    let axes = Tensor::vector(&[1i32]).unwrap();
    let sizes = Tensor::vector(&[4i64, 5, 6]).unwrap();
    let summed = call("SparseReduceSum")
        .shape(int, "?,3")
        .shape(DType::Float, "?")
        .constant(sizes.clone())
        .constant(axes);
    assert_eq!(summed.infer(), "[4,6]");
    let product = call("SparseTensorDenseMatMul")
        .shape(int, "?,2")
        .shape(DType::Float, "?")
        .constant(Tensor::vector(&[4i64, 5]).unwrap())
        .shape(DType::Float, "5,7");
    assert_eq!(product.infer(), "[4,7]");
    let dense = call("SparseToDense")
        .shape(int, "?,3")
        .constant(sizes)
        .shape(DType::Float, "?")
        .shape(DType::Float, "");
    assert_eq!(dense.infer(), "[4,5,6]");
    assert!(sparse("SparseSoftmax", "5", "2").infer().starts_with('['));
    let wrong = call("SparseReorder").shape(int, "5").shape(DType::Float, "5").shape(int, "2");
    assert!(wrong.infer().contains("rank 2"));
}

/// Distinct coordinates in random order, with values.
fn random_sparse(random: &mut Random, sizes: &[i64]) -> (Vec<Vec<i64>>, Vec<f64>) {
    let mut rows: Vec<Vec<i64>> = Vec::new();
    for _ in 0..random.below(12) {
        let row: Vec<i64> = sizes.iter().map(|&s| random.below(s as usize) as i64).collect();
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let values = rows.iter().map(|_| random.below(100) as f64 - 50.0).collect();
    (rows, values)
}

fn parts(rows: &[Vec<i64>], values: &[f64], sizes: &[i64]) -> [Tensor; 3] {
    let shape = Shape::new(&[rows.len(), sizes.len()]).unwrap();
    [
        Tensor::from_slice(shape, &rows.concat()).unwrap(),
        Tensor::vector(values).unwrap(),
        Tensor::vector(sizes).unwrap(),
    ]
}

fn feed(op: &'static str, parts: &[Tensor]) -> Call {
    parts.iter().fold(call(op), |node, part| node.input(part.clone()))
}

fn dense(parts: &[Tensor; 3]) -> Tensor {
    let [indices, values, shape] = parts.clone();
    call("SparseToDense")
        .input(indices)
        .input(shape)
        .input(values)
        .input(Tensor::scalar(0.0f64))
        .attr("validate_indices", false)
        .run()
        .unwrap()
}

#[test]
fn sparse_tensors_mean_what_dense_ones_do() {
    let mut random = Random(7);
    for _ in 0..60 {
        let sizes = [3, 4, 2].map(|limit: usize| 1 + random.below(limit) as i64);
        let (rows, values) = random_sparse(&mut random, &sizes);
        let sparse = parts(&rows, &values, &sizes);
        let whole = dense(&sparse);
        let sorted = feed("SparseReorder", &sparse).run_all().unwrap();
        let sorted = [sorted[0].clone(), sorted[1].clone(), sparse[2].clone()];
        assert_eq!(dense(&sorted).as_slice::<f64>().unwrap(), whole.as_slice::<f64>().unwrap());
        for axes in [vec![0], vec![1, 2], vec![-1], vec![0, 1, 2]] {
            let axes = Tensor::vector::<i32>(&axes).unwrap();
            let sum = feed("SparseReduceSum", &sparse).input(axes.clone()).run().unwrap();
            let expected = call("Sum").input(whole.clone()).input(axes).run().unwrap();
            assert_eq!(sum.shape(), expected.shape());
            assert_eq!(sum.as_slice::<f64>().unwrap(), expected.as_slice::<f64>().unwrap());
        }
        let flat = Tensor::vector(&[-1i64, sizes[2]]).unwrap();
        let reshaped = call("SparseReshape")
            .input(sorted[0].clone())
            .input(sorted[2].clone())
            .input(flat)
            .run_all()
            .unwrap();
        let reshaped = [reshaped[0].clone(), sorted[1].clone(), reshaped[1].clone()];
        assert_eq!(dense(&reshaped).as_slice::<f64>().unwrap(), whole.as_slice::<f64>().unwrap());
    }
}

#[test]
fn pieces_put_together_are_the_whole() {
    let mut random = Random(11);
    for _ in 0..60 {
        let sizes = [1 + random.below(4) as i64, 2 + random.below(5) as i64];
        let (rows, values) = random_sparse(&mut random, &sizes);
        let sorted = feed("SparseReorder", &parts(&rows, &values, &sizes)).run_all().unwrap();
        let count = 2i64;
        let axis = Tensor::scalar(1i64);
        let pieces = call("SparseSplit")
            .input(axis)
            .input(sorted[0].clone())
            .input(sorted[1].clone())
            .input(Tensor::vector(&sizes).unwrap())
            .attr("num_split", count)
            .run_all()
            .unwrap();
        let joined = feed("SparseConcat", &pieces).attr("concat_dim", 1i64).attr("N", count);
        let joined = joined.run_all().unwrap();
        assert_eq!(joined[0].as_slice::<i64>().unwrap(), sorted[0].as_slice::<i64>().unwrap());
        assert_eq!(joined[1].as_slice::<f64>().unwrap(), sorted[1].as_slice::<f64>().unwrap());
        assert_eq!(joined[2].as_slice::<i64>().unwrap(), sizes);
    }
}

#[test]
fn set_operations_agree_with_sets() {
    let mut random = Random(3);
    for _ in 0..60 {
        let (rows, a, b) = (1 + random.below(3), random.below(5), random.below(5));
        let first: Vec<i32> = (0..rows * a).map(|_| random.below(6) as i32).collect();
        let second: Vec<i32> = (0..rows * b).map(|_| random.below(6) as i32).collect();
        for operation in ["a-b", "b-a", "intersection", "union"] {
            let result = call("DenseToDenseSetOperation")
                .input(Tensor::from_slice(Shape::new(&[rows, a]).unwrap(), &first).unwrap())
                .input(Tensor::from_slice(Shape::new(&[rows, b]).unwrap(), &second).unwrap())
                .attr("set_operation", operation)
                .run_all()
                .unwrap();
            let mut expected = Vec::new();
            for row in 0..rows {
                let x: BTreeSet<i32> = first[row * a..(row + 1) * a].iter().copied().collect();
                let y: BTreeSet<i32> = second[row * b..(row + 1) * b].iter().copied().collect();
                expected.extend::<Vec<i32>>(match operation {
                    "a-b" => x.difference(&y).copied().collect(),
                    "b-a" => y.difference(&x).copied().collect(),
                    "intersection" => x.intersection(&y).copied().collect(),
                    _ => x.union(&y).copied().collect(),
                });
            }
            assert_eq!(result[1].as_slice::<i32>().unwrap(), expected);
        }
    }
}

#[test]
fn every_row_is_filled() {
    let mut random = Random(5);
    for _ in 0..60 {
        let sizes = [1 + random.below(6) as i64, 3];
        let (rows, values) = random_sparse(&mut random, &sizes);
        let sparse = parts(&rows, &values, &sizes);
        let filled = feed("SparseFillEmptyRows", &sparse).input(Tensor::scalar(99.0f64));
        let filled = filled.run_all().unwrap();
        let indices = filled[0].as_slice::<i64>().unwrap();
        let found: Vec<i64> = indices.chunks_exact(2).map(|row| row[0]).collect();
        assert!(found.is_sorted());
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len() as i64, sizes[0]);
        let places = filled[3].as_slice::<i64>().unwrap();
        let placed = filled[1].as_slice::<f64>().unwrap();
        for (value, &place) in pairs(&values, places) {
            assert_eq!(*value, placed[place as usize]);
        }
    }
}

#[test]
fn ragged_tensors_become_the_same_dense_ones() {
    let mut random = Random(9);
    for _ in 0..60 {
        let mut splits = vec![0i64];
        for _ in 0..random.below(5) {
            splits.push(splits.last().unwrap() + random.below(4) as i64);
        }
        let count = *splits.last().unwrap();
        let values: Vec<f64> = (0..count).map(|i| i as f64 + 1.0).collect();
        let (splits, values) = (Tensor::vector(&splits).unwrap(), Tensor::vector(&values).unwrap());
        let sparse = call("RaggedTensorToSparse")
            .input(splits.clone())
            .input(values.clone())
            .attr("RAGGED_RANK", 1i64)
            .run_all()
            .unwrap();
        let whole = call("RaggedTensorToTensor")
            .input(Tensor::scalar(-1i64))
            .input(values)
            .input(Tensor::scalar(0.0f64))
            .input(splits)
            .attr("num_row_partition_tensors", 1i64)
            .attr("row_partition_types", &["ROW_SPLITS"][..])
            .run()
            .unwrap();
        let sparse: [Tensor; 3] = sparse.try_into().unwrap();
        let expected = dense(&sparse);
        assert_eq!(whole.shape(), expected.shape());
        assert_eq!(whole.as_slice::<f64>().unwrap(), expected.as_slice::<f64>().unwrap());
    }
}
