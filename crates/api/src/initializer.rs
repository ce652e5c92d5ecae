//! Initializers of variables.

use thalweg_graph::{Output, Scope};
use thalweg_tensor::{DType, Result, Shape, Tensor};

use crate::variable_info::Part;

/// How the initial value of a variable is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// One constant for every element.
    Constant(f64),
    /// These elements.
    Value(Vec<f32>),
    /// Uniform distribution between a minimum and a maximum.
    Uniform(f64, f64),
    /// Normal distribution with mean 0 and this standard deviation.
    Normal(f64),
    /// Truncated normal distribution: samples beyond two standard deviations are drawn again.
    TruncatedNormal(f64),
    /// Glorot (Xavier) uniform: variance `2 / (fan_in + fan_out)`. The default of layers.
    GlorotUniform,
    /// Glorot (Xavier) normal: truncated normal with variance `2 / (fan_in + fan_out)`.
    GlorotNormal,
    /// He uniform: variance `2 / fan_in`, for ReLU layers.
    HeUniform,
    /// He normal: truncated normal with variance `2 / fan_in`.
    HeNormal,
    /// A random orthogonal matrix.
    Orthogonal,
}

/// Standard deviation of a standard normal distribution truncated at two standard deviations.
const TRUNCATED: f64 = 0.879_625_661_034_239_8;

impl Initializer {
    /// Adds the nodes that compute the initial value.
    pub fn build(
        &self,
        scope: &mut Scope,
        dtype: DType,
        shape: &Shape,
        seeds: (i64, i64),
    ) -> Result<Output> {
        self.build_of(scope, dtype, shape, shape, seeds)
    }

    /// Whether a partition of the value can only be computed by slicing the whole value.
    pub fn needs_whole(&self) -> bool {
        matches!(self, Initializer::Value(_) | Initializer::Orthogonal)
    }

    /// Adds the nodes that compute one partition of the value. Each partition draws its own
    /// numbers, with the variance of the whole variable, so that no device ever holds the whole
    /// value.
    pub fn build_part(
        &self,
        scope: &mut Scope,
        dtype: DType,
        (part, shape): (&Part, &Shape),
        seeds: (i64, i64),
    ) -> Result<Output> {
        if !self.needs_whole() {
            return self.build_of(scope, dtype, shape, &part.whole, seeds);
        }
        let whole = self.build(scope, dtype, &part.whole, seeds)?;
        let mut begin = vec![0i64; shape.rank()];
        begin[part.axis] = part.begin as i64;
        let begin = scope.constant(&Tensor::vector(&begin)?)?;
        let size = dims(scope, shape)?;
        scope.add("Slice", &[whole, begin, size])
    }

    /// Adds the nodes that compute a value of this shape, with the variance for a variable of shape
    /// `whole`.
    fn build_of(
        &self,
        scope: &mut Scope,
        dtype: DType,
        shape: &Shape,
        whole: &Shape,
        seeds: (i64, i64),
    ) -> Result<Output> {
        let (inputs, outputs) = fans(whole);
        let glorot = 2.0 / (inputs + outputs);
        let he = 2.0 / inputs;
        match self {
            Initializer::Zeros => filled(scope, dtype, shape, 0.0),
            Initializer::Ones => filled(scope, dtype, shape, 1.0),
            Initializer::Constant(value) => filled(scope, dtype, shape, *value),
            Initializer::Value(values) => {
                let value = scope.constant(&Tensor::from_slice(shape.clone(), values)?)?;
                scope.cast(value, dtype)
            }
            Initializer::Uniform(low, high) => uniform(scope, dtype, shape, seeds, *low, *high),
            Initializer::Normal(deviation) => {
                random(scope, "RandomStandardNormal", dtype, shape, seeds, *deviation)
            }
            Initializer::TruncatedNormal(deviation) => {
                random(scope, "TruncatedNormal", dtype, shape, seeds, *deviation)
            }
            Initializer::GlorotUniform => symmetric(scope, dtype, shape, seeds, glorot),
            Initializer::HeUniform => symmetric(scope, dtype, shape, seeds, he),
            Initializer::GlorotNormal => {
                random(scope, "TruncatedNormal", dtype, shape, seeds, glorot.sqrt() / TRUNCATED)
            }
            Initializer::HeNormal => {
                random(scope, "TruncatedNormal", dtype, shape, seeds, he.sqrt() / TRUNCATED)
            }
            Initializer::Orthogonal => orthogonal(scope, dtype, shape, seeds),
        }
    }
}

/// Fan-in and fan-out of a weight of this shape.
fn fans(shape: &Shape) -> (f64, f64) {
    match *shape.dims() {
        [] => (1.0, 1.0),
        [n] => (n as f64, n as f64),
        [ref window @ .., inputs, outputs] => {
            let window: usize = window.iter().product();
            ((window * inputs).max(1) as f64, (window * outputs).max(1) as f64)
        }
    }
}

fn dims(scope: &mut Scope, shape: &Shape) -> Result<Output> {
    scope.constant(&Tensor::vector(&shape.to_i64())?)
}

fn filled(scope: &mut Scope, dtype: DType, shape: &Shape, value: f64) -> Result<Output> {
    let value = scope.number(dtype, value)?;
    if shape.rank() == 0 {
        return Ok(value);
    }
    let dims = dims(scope, shape)?;
    scope.add("Fill", &[dims, value])
}

fn random(
    scope: &mut Scope,
    op: &str,
    dtype: DType,
    shape: &Shape,
    (seed, seed2): (i64, i64),
    scale: f64,
) -> Result<Output> {
    let dims = dims(scope, shape)?;
    let node = scope.op(op).input(dims).attr("dtype", dtype);
    let numbers = node.attr("seed", seed).attr("seed2", seed2).build()?;
    let scale = scope.number(dtype, scale)?;
    scope.add("Mul", &[numbers, scale])
}

fn uniform(
    scope: &mut Scope,
    dtype: DType,
    shape: &Shape,
    seeds: (i64, i64),
    low: f64,
    high: f64,
) -> Result<Output> {
    let spread = random(scope, "RandomUniform", dtype, shape, seeds, high - low)?;
    let low = scope.number(dtype, low)?;
    scope.add("AddV2", &[spread, low])
}

/// Uniform distribution with mean 0 and this variance.
fn symmetric(
    scope: &mut Scope,
    dtype: DType,
    shape: &Shape,
    seeds: (i64, i64),
    variance: f64,
) -> Result<Output> {
    let limit = (3.0 * variance).sqrt();
    uniform(scope, dtype, shape, seeds, -limit, limit)
}

fn orthogonal(scope: &mut Scope, dtype: DType, shape: &Shape, seeds: (i64, i64)) -> Result<Output> {
    let columns = shape.dims().last().copied().unwrap_or(1).max(1);
    let rows = (shape.num_elements() / columns).max(1);
    let tall = Shape::new(&[rows.max(columns), rows.min(columns)])?;
    let noise = random(scope, "RandomStandardNormal", dtype, &tall, seeds, 1.0)?;
    let factors = scope.op("Qr").input(noise).attr("full_matrices", false).build_all()?;
    // The signs of R's diagonal make the distribution uniform.
    let diagonal = scope.add("MatrixDiagPart", &[factors[1]])?;
    let signs = scope.add("Sign", &[diagonal])?;
    let mut value = scope.add("Mul", &[factors[0], signs])?;
    if rows < columns {
        let swap = scope.constant(&Tensor::vector(&[1i32, 0])?)?;
        value = scope.add("Transpose", &[value, swap])?;
    }
    let dims = dims(scope, shape)?;
    scope.add("Reshape", &[value, dims])
}
