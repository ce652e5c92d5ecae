//! Random test cases, and execution of single ops.

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

/// All op definitions, shared by all cases.
static OPS: LazyLock<Arc<OpRegistry>> = LazyLock::new(|| op_registry(FAMILIES).unwrap());

static KERNELS: LazyLock<Arc<KernelRegistry>> = LazyLock::new(|| kernel_registry(FAMILIES));

/// Dtypes that represent small integers exactly, narrow ones up to 127.
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

/// Floating-point dtypes.
pub(crate) const FLOATS: &[DType] = &[DType::Float, DType::Double, DType::Half, DType::BFloat16];

/// Dtypes of every element size.
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

/// Dtypes of indices.
pub(crate) const INDICES: &[DType] = &[DType::Int32, DType::Int64];

/// Elements of a large tensor.
const LARGE: usize = 100_000;

/// SplitMix64, a pseudo-random generator determined by its seed.
pub(crate) struct Random {
    state: u64,
    /// Whether the next [`Random::dims`] are large enough for kernels to divide the work into
    /// blocks.
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

    /// True with probability `1/n`.
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

    /// A random permutation of `0..n`.
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

    /// Dimensions for a rank within the limits; sometimes one of them is zero, or long enough for
    /// vectorized and blocked loops.
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

    /// An array of random integers from `low` to `high`.
    pub(crate) fn array(&mut self, dims: &[usize], low: i64, high: i64) -> Array {
        Array::from_fn(dims, |_| self.between(low, high) as f64)
    }

    /// An axis of `rank`, and its random form: counted from either end.
    pub(crate) fn axis(&mut self, rank: usize) -> (usize, i64) {
        let axis = self.below(rank);
        (axis, self.signed(axis, rank))
    }

    /// A random form of an axis: counted from either end.
    pub(crate) fn signed(&mut self, axis: usize, rank: usize) -> i64 {
        if self.flag() { axis as i64 } else { axis as i64 - rank as i64 }
    }
}

/// Runs a property on `cases` random cases, times `PROPERTY_TIMES` if that is set, or on the single
/// case of seed `PROPERTY_SEED`.
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

    /// Adds a vector of integers.
    pub(crate) fn ints(self, values: &[i64], dtype: DType) -> Call {
        self.array(&Array::vector(values), dtype)
    }

    /// Adds a vector of sizes.
    pub(crate) fn sizes(self, values: &[usize], dtype: DType) -> Call {
        self.ints(&signed(values), dtype)
    }

    /// Adds a scalar.
    pub(crate) fn scalar(self, value: i64, dtype: DType) -> Call {
        self.array(&Array::scalar(value as f64), dtype)
    }

    pub(crate) fn attr(mut self, name: &'static str, value: impl IntoAttr) -> Call {
        self.attrs.push((name, value.into_attr()));
        self
    }

    /// The op's attrs and inputs for the failure report.
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

    /// Runs the op and checks the outputs against the inferred shapes.
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

    /// Runs the op and returns its first output.
    pub(crate) fn output(&self) -> Result<Tensor> {
        Ok(self.run()?.swap_remove(0))
    }

    /// Runs the op and returns its outputs as arrays.
    pub(crate) fn arrays(&self) -> Result<Vec<Array>> {
        Ok(self.run()?.iter().map(Array::of).collect())
    }

    /// Asserts that the op's first output equals `expected`, up to the rounding of its dtype.
    pub(crate) fn gives(&self, expected: &Array) -> Result<()> {
        self.all_give(std::slice::from_ref(expected))
    }

    /// Asserts that the op's first outputs equal these.
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

    /// Asserts that the op's first output equals this tensor, bit by bit.
    pub(crate) fn gives_back(&self, expected: &Tensor) -> Result<()> {
        let output = self.output()?;
        identical(&output, expected).context(|| self.describe())
    }
}

/// Asserts that a tensor has the dimensions of `expected` and, up to the rounding of its dtype, its
/// values.
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

/// Asserts that two tensors are equal in dtype, shape and bits.
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
