//! Random cases, and single ops run on them.

use std::collections::HashMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use thalweg_graph::{AttrValue, Endpoint, IntoAttr, OpRegistry, Scope};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_tensor::*;

use crate::array::Array;
use crate::support::Interpreter;

/// All definitions, parsed once for all cases.
static OPS: LazyLock<Arc<OpRegistry>> = LazyLock::new(|| op_registry(FAMILIES).unwrap());

static KERNELS: LazyLock<Arc<KernelRegistry>> = LazyLock::new(|| kernel_registry(FAMILIES));

/// Types that hold every small integer, the narrow ones only up to 127.
pub(crate) const NUMBERS: &[DType] = &[
    DType::Float,
    DType::Double,
    DType::Half,
    DType::BFloat16,
    DType::Int32,
    DType::Int64,
    DType::Int16,
    DType::Int8,
];

/// Types whose arithmetic rounds.
pub(crate) const FLOATS: &[DType] = &[DType::Float, DType::Double, DType::Half, DType::BFloat16];

/// Types of every size that elements come in.
pub(crate) const MOVABLE: &[DType] = &[
    DType::UInt8,
    DType::Int16,
    DType::Half,
    DType::Float,
    DType::Int32,
    DType::Int64,
    DType::Complex64,
    DType::Complex128,
    DType::String,
];

/// The types that most ops take indices in.
pub(crate) const INDICES: &[DType] = &[DType::Int32, DType::Int64];

/// Elements of a tensor that is large.
const LARGE: usize = 100_000;

/// SplitMix64: every seed gives a good sequence, and a sequence is its seed.
pub(crate) struct Random {
    state: u64,
    /// Whether the next [`Random::dims`] are of a tensor that kernels work on in several blocks.
    large: bool,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed, large: seed % 64 == 63 }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    /// As [`Random::between`], for sizes.
    pub(crate) fn size(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `0..n` in any order.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }

    /// As [`Random::few_dims`], but one case in 64 has a hundred thousand elements or more.
    pub(crate) fn dims(&mut self, rank_min: usize, rank_max: usize, dim_max: usize) -> Vec<usize> {
        let mut dims = self.few_dims(rank_min, rank_max, dim_max);
        let can_grow = !dims.is_empty() && !dims.contains(&0);
        if std::mem::take(&mut self.large) && can_grow {
            while dims.iter().product::<usize>() < LARGE {
                let any = self.below(dims.len());
                dims[any] = dims[any] * 2 + 1;
            }
        }
        dims
    }

    /// Dimensions for a rank within the limits; now and then one of them is zero, or so long that
    /// loops over whole vectors and blocks have something to do.
    pub(crate) fn few_dims(
        &mut self,
        rank_min: usize,
        rank_max: usize,
        dim_max: usize,
    ) -> Vec<usize> {
        let rank = self.size(rank_min, rank_max);
        let mut dims: Vec<usize> = (0..rank).map(|_| self.size(1, dim_max)).collect();
        if rank > 0 && self.once_in(8) {
            let odd = self.below(rank);
            dims[odd] = if self.flag() { 0 } else { self.size(17, 70) };
        }
        dims
    }

    /// Whole numbers from `low` to `high`.
    pub(crate) fn array(&mut self, dims: &[usize], low: i64, high: i64) -> Array {
        Array::from_fn(dims, |_| self.between(low, high) as f64)
    }

    /// An axis of `rank` and how it may be written: counted from either end.
    pub(crate) fn axis(&mut self, rank: usize) -> (usize, i64) {
        let axis = self.below(rank);
        (axis, self.signed(axis, rank))
    }

    /// An axis as it may be written.
    pub(crate) fn signed(&mut self, axis: usize, rank: usize) -> i64 {
        if self.flag() { axis as i64 } else { axis as i64 - rank as i64 }
    }
}

/// Runs a property on `cases` random cases, `PROPERTY_TIMES` times as many if that is set, or on the
/// one whose seed `PROPERTY_SEED` gives.
pub(crate) fn check(name: &str, cases: u64, property: impl Fn(&mut Random) -> Result<()>) {
    let start = name.bytes().fold(0u64, |h, b| Random::new(h ^ u64::from(b)).bits());
    let times = std::env::var("PROPERTY_TIMES").map_or(1, |times| times.parse().unwrap());
    let seeds: Vec<u64> = match std::env::var("PROPERTY_SEED") {
        Ok(seed) => vec![u64::from_str_radix(seed.trim_start_matches("0x"), 16).unwrap()],
        Err(_) => (0..cases * times).map(|i| start.wrapping_add(i)).collect(),
    };
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| property(&mut Random::new(seed)))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("{name}, PROPERTY_SEED={seed:#x}: {error}"),
            Err(_) => panic!("{name}, PROPERTY_SEED={seed:#x} panicked"),
        }
    }
}

/// One op with constant inputs.
#[derive(Clone)]
pub(crate) struct Call {
    op: &'static str,
    inputs: Vec<Tensor>,
    attrs: Vec<(&'static str, AttrValue)>,
}

impl Call {
    pub(crate) fn new(op: &'static str) -> Call {
        Call { op, inputs: Vec::new(), attrs: Vec::new() }
    }

    pub(crate) fn tensor(mut self, tensor: Tensor) -> Call {
        self.inputs.push(tensor);
        self
    }

    pub(crate) fn tensors(mut self, tensors: &[Tensor]) -> Call {
        self.inputs.extend_from_slice(tensors);
        self
    }

    pub(crate) fn array(self, array: &Array, dtype: DType) -> Call {
        self.tensor(array.to_tensor(dtype))
    }

    /// A vector of integers.
    pub(crate) fn ints(self, values: &[i64], dtype: DType) -> Call {
        self.array(&Array::vector(values), dtype)
    }

    /// A vector of sizes.
    pub(crate) fn sizes(self, values: &[usize], dtype: DType) -> Call {
        self.ints(&signed(values), dtype)
    }

    /// A scalar.
    pub(crate) fn scalar(self, value: i64, dtype: DType) -> Call {
        self.array(&Array::scalar(value as f64), dtype)
    }

    pub(crate) fn attr(mut self, name: &'static str, value: impl IntoAttr) -> Call {
        self.attrs.push((name, value.into_attr()));
        self
    }

    /// What the op is called with, for a person who looks for the fault.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.op.to_owned();
        for (name, value) in &self.attrs {
            write!(text, " {name}={value:?}").unwrap();
        }
        for tensor in &self.inputs {
            write!(text, "\n  {tensor:?}").unwrap();
            if tensor.num_elements() <= 64 {
                match tensor.dtype() {
                    DType::String => write!(text, " {:?}", tensor.strings().unwrap()).unwrap(),
                    _ => write!(text, " {:?}", Array::of(tensor).values).unwrap(),
                }
            }
        }
        text
    }

    /// Runs the op; whatever its shape function promised must hold.
    pub(crate) fn run(&self) -> Result<Vec<Tensor>> {
        self.try_run().context(|| self.describe())
    }

    fn try_run(&self) -> Result<Vec<Tensor>> {
        let mut scope = Scope::new(OPS.clone());
        let inputs: Vec<Endpoint> =
            self.inputs.iter().map(|t| scope.constant(t)).collect::<Result<_>>()?;
        let mut node = scope.op(self.op).inputs(&inputs);
        for (name, value) in &self.attrs {
            node = node.attr(name, value.clone());
        }
        let node = node.build_node()?;
        let promised = scope.with_graph(|g| g.node(node).outputs.clone());
        let names: Vec<String> = (0..promised.len() as u32)
            .map(|index| scope.name_of(Endpoint { node, index }))
            .collect();
        let outputs = Interpreter::new(scope.to_graph(), KERNELS.clone()).run(
            &HashMap::new(),
            &names,
            &[],
        )?;
        ensure!(
            promised.len() == outputs.len(),
            Internal,
            "promised {} outputs, computed {}",
            promised.len(),
            outputs.len()
        );
        for (promise, output) in promised.iter().zip(&outputs) {
            ensure!(
                promise.dtype == output.dtype() && promise.shape.is_compatible_with(output.shape()),
                Internal,
                "promised {} {:?}, computed {output:?}",
                promise.dtype,
                promise.shape
            );
        }
        Ok(outputs)
    }

    /// Runs the op for its first output.
    pub(crate) fn output(&self) -> Result<Tensor> {
        Ok(self.run()?.swap_remove(0))
    }

    /// Runs the op for its outputs as arrays.
    pub(crate) fn arrays(&self) -> Result<Vec<Array>> {
        Ok(self.run()?.iter().map(Array::of).collect())
    }

    /// The op's first output must be `expected`, up to the rounding of its type.
    pub(crate) fn gives(&self, expected: &Array) -> Result<()> {
        self.all_give(std::slice::from_ref(expected))
    }

    /// The op's first outputs must be these.
    pub(crate) fn all_give(&self, expected: &[Array]) -> Result<()> {
        let outputs = self.run()?;
        ensure!(
            outputs.len() >= expected.len(),
            Internal,
            "{} outputs, {} expected: {}",
            outputs.len(),
            expected.len(),
            self.describe()
        );
        for (i, (output, expected)) in outputs.iter().zip(expected).enumerate() {
            same(output, expected).context(|| format!("output {i} of {}", self.describe()))?;
        }
        Ok(())
    }

    /// The op's first output must be this tensor, bit by bit.
    pub(crate) fn gives_back(&self, expected: &Tensor) -> Result<()> {
        let output = self.output()?;
        identical(&output, expected).context(|| self.describe())
    }
}

/// A tensor must have the dimensions and, up to the rounding of its type, the values expected.
pub(crate) fn same(tensor: &Tensor, expected: &Array) -> Result<()> {
    let tolerance = match tensor.dtype() {
        DType::Half => 4e-3,
        DType::BFloat16 => 3e-2,
        DType::Float | DType::Complex64 => 1e-5,
        DType::Double | DType::Complex128 => 1e-12,
        _ => 0.0,
    };
    let actual = Array::of(tensor);
    let wanted = Array::of(&expected.to_tensor(tensor.dtype()));
    let close = |(&a, &b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + b.abs())
    };
    ensure!(
        actual.dims == wanted.dims
            && actual.values.len() == wanted.values.len()
            && actual.values.iter().zip(&wanted.values).all(close),
        Internal,
        "expected {wanted:?}, got {actual:?}"
    );
    Ok(())
}

/// Two tensors must be the same in type, shape and every bit.
pub(crate) fn identical(actual: &Tensor, expected: &Tensor) -> Result<()> {
    let equal = actual.dtype() == expected.dtype()
        && actual.shape() == expected.shape()
        && match actual.dtype() {
            DType::String => actual.strings()? == expected.strings()?,
            _ => actual.as_bytes()? == expected.as_bytes()?,
        };
    ensure!(equal, Internal, "expected {expected:?}, got {actual:?} with other values");
    Ok(())
}

/// Sizes as the integers that inputs and attrs hold.
pub(crate) fn signed(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&v| v as i64).collect()
}
