//! Reductions.

use thalweg_tensor::DType;

use crate::elementwise::Comparison;
use crate::value::{Dims, Value, positions};

/// A reduction by a common operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Reduction {
    Sum,
    Product,
    Minimum,
    Maximum,
    And,
    Or,
}

impl Reduction {
    /// The result of reducing nothing, a scalar of the dtype of `like`.
    pub fn identity(self, like: &Value) -> Value {
        match self {
            Reduction::Sum => like.scalar_like(0.0),
            Reduction::Product => like.scalar_like(1.0),
            Reduction::Minimum => like.highest_like(),
            Reduction::Maximum => like.lowest_like(),
            // Of integers, all bits.
            Reduction::And if like.dtype() != DType::Bool => like.scalar_like(0.0).not(),
            Reduction::And => like.scalar_like(1.0),
            Reduction::Or => like.scalar_like(0.0),
        }
    }

    /// Combines two values.
    pub fn combine(self, a: &Value, b: &Value) -> Value {
        match self {
            Reduction::Sum => a.plus(b),
            Reduction::Product => a.times(b),
            Reduction::Minimum => a.minimum(b),
            Reduction::Maximum => a.maximum(b),
            Reduction::And => a.and(b),
            Reduction::Or => a.or(b),
        }
    }
}

impl Value {
    /// Reduces some dimensions, which the result lacks.
    pub fn reduce(&self, reduction: Reduction, dims: &[usize]) -> Value {
        if dims.is_empty() {
            return self.clone();
        }
        let initial = reduction.identity(self);
        let combine = |a: &[Value], b: &[Value]| vec![reduction.combine(&a[0], &b[0])];
        Value::reduce_together(std::slice::from_ref(self), &[initial], dims, combine).remove(0)
    }

    /// Reduces several values of the same dimensions together; `combine` gets two tuples of scalars.
    pub fn reduce_together(
        values: &[Value],
        initial: &[Value],
        dims: &[usize],
        combine: impl FnOnce(&[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let first = &values[0];
        if dims.iter().any(|&d| d >= first.rank()) {
            let sentence = format!("cannot reduce dimensions {dims:?} of {:?}", first.dims);
            return vec![first.mistake(&sentence, first.dtype, &[]); values.len()];
        }
        let kept: Dims =
            (0..first.rank()).filter(|i| !dims.contains(i)).map(|i| first.dims[i]).collect();
        let scalars: Vec<(DType, Dims)> =
            values.iter().chain(values).map(|v| (v.dtype, Dims::new())).collect();
        let (region, _) = first.body.region(&scalars, |args| {
            let (a, b) = args.split_at(values.len());
            combine(a, b)
        });
        let operands: Vec<&Value> = values.iter().chain(initial).collect();
        let results: Vec<(DType, Dims)> = values.iter().map(|v| (v.dtype, kept.clone())).collect();
        let attrs = format!(" {{dimensions = {}}}", positions(dims));
        first.body.append_all("reduce", &operands, &format!(" ({region})"), &attrs, &results)
    }

    /// Sums some dimensions.
    pub fn sum(&self, dims: &[usize]) -> Value {
        self.reduce(Reduction::Sum, dims)
    }

    /// Sums some dimensions in another dtype.
    pub fn sum_in(&self, dtype: DType, dims: &[usize]) -> Value {
        self.convert(dtype).sum(dims).convert(self.dtype)
    }

    /// The greatest elements along some dimensions.
    pub fn max_of(&self, dims: &[usize]) -> Value {
        self.reduce(Reduction::Maximum, dims)
    }

    /// The result of a reduction with the reduced dimensions kept as 1.
    pub fn keep_dims(&self, original: &[usize], dims: &[usize]) -> Value {
        let kept: Dims =
            (0..original.len()).map(|i| if dims.contains(&i) { 1 } else { original[i] }).collect();
        self.reshape(&kept)
    }

    /// The position of the greatest (or least) element along a dimension, in `dtype`; of equal ones the
    /// first. NaN counts as the extreme.
    pub fn arg_extreme(&self, dim: usize, is_max: bool, dtype: DType) -> Value {
        let positions = self.iota(dtype, &self.dims, dim);
        let initial = if is_max { self.lowest_like() } else { self.highest_like() };
        let none = self.splat_integer(dtype, &[], i128::MAX);
        let better = if is_max { Comparison::Greater } else { Comparison::Less };
        let combine = |a: &[Value], b: &[Value]| {
            let is_better = a[0].compare(better, &b[0]).or(&a[0].is_nan());
            let is_first =
                a[0].compare(Comparison::Equal, &b[0]).and(&a[1].compare(Comparison::Less, &b[1]));
            let takes_a = is_better.or(&is_first);
            vec![takes_a.select(&a[0], &b[0]), takes_a.select(&a[1], &b[1])]
        };
        let values = [self.clone(), positions];
        Value::reduce_together(&values, &[initial, none], &[dim], combine).remove(1)
    }
}
