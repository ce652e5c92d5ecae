//! Gradients of batch normalization and of its gradient op.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result};

/// Gradient of `FusedBatchNorm`.
pub(crate) fn fused(g: &mut GradientContext<'_>) -> Result<()> {
    of_norm(g, "FusedBatchNormGrad")
}

/// Gradient of `FusedBatchNormV2`.
pub(crate) fn fused_v2(g: &mut GradientContext<'_>) -> Result<()> {
    of_norm(g, "FusedBatchNormGradV2")
}

/// Gradient of `FusedBatchNormV3`.
pub(crate) fn fused_v3(g: &mut GradientContext<'_>) -> Result<()> {
    of_norm(g, "FusedBatchNormGradV3")
}

/// In training, the moments are those of the batch, else the given ones.
fn of_norm(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let [mean, variance] = if g.attrs().bool("is_training")? {
        [g.output(3), g.output(4)]
    } else {
        [g.input(3), g.input(4)]
    };
    let mut inputs = vec![grad, g.input(0), g.input(1), mean, variance];
    inputs.extend((g.num_outputs() > 5).then(|| g.output(5)));
    let node = g.op_like(op, &["epsilon", "data_format", "is_training"]);
    let adjoints = node.inputs(&inputs).build_all()?;
    (0..3).try_for_each(|i| g.set(i, adjoints[i]))
}

/// Arithmetic on images and on vectors with one number per channel, which broadcast against each
/// other.
struct Channels<'a, 'b> {
    g: &'a mut GradientContext<'b>,
    /// All axes but the channels.
    axes: Output,
    /// Shape of a vector of channels for broadcasting.
    shape: Output,
}

impl<'a, 'b> Channels<'a, 'b> {
    fn new(g: &'a mut GradientContext<'b>) -> Result<Self> {
        let format = g.attrs().string("data_format")?.to_owned();
        let rank = format.len() as i32;
        let channel = if format.starts_with("NC") { 1 } else { rank - 1 };
        let axes: Vec<i32> = (0..rank).filter(|&axis| axis != channel).collect();
        let shape: Vec<i32> = (0..rank).map(|axis| if axis == channel { -1 } else { 1 }).collect();
        let (axes, shape) = (g.ints(&axes)?, g.ints(&shape)?);
        Ok(Channels { g, axes, shape })
    }

    /// A vector of channels, reshaped for broadcasting.
    fn numbers(&mut self, vector: Output) -> Result<Output> {
        let wide = self.g.cast(vector, DType::Float)?;
        self.g.add("Reshape", &[wide, self.shape])
    }

    fn mean(&mut self, x: Output) -> Result<Output> {
        self.g.op("Mean").inputs(&[x, self.axes]).attr("keep_dims", true).build()
    }

    fn sum(&mut self, x: Output) -> Result<Output> {
        self.g.op("Sum").inputs(&[x, self.axes]).attr("keep_dims", true).build()
    }

    fn mul(&mut self, x: Output, y: Output) -> Result<Output> {
        self.g.add("Mul", &[x, y])
    }

    fn add(&mut self, x: Output, y: Output) -> Result<Output> {
        self.g.add("AddV2", &[x, y])
    }

    fn sub(&mut self, x: Output, y: Output) -> Result<Output> {
        self.g.add("Sub", &[x, y])
    }

    fn div(&mut self, x: Output, y: Output) -> Result<Output> {
        self.g.add("RealDiv", &[x, y])
    }

    /// `x` minus its mean.
    fn centered(&mut self, x: Output) -> Result<Output> {
        let mean = self.mean(x)?;
        self.sub(x, mean)
    }

    fn mean_product(&mut self, x: Output, y: Output) -> Result<Output> {
        let product = self.mul(x, y)?;
        self.mean(product)
    }

    fn with_epsilon(&mut self, variance: Output) -> Result<Output> {
        let epsilon = self.g.attrs().float("epsilon")?;
        let epsilon = self.g.number(DType::Float, epsilon.into())?;
        self.add(variance, epsilon)
    }
}

/// Inputs of `FusedBatchNormGrad`, and the adjoints of its outputs.
struct Backward {
    dy: Output,
    x: Output,
    scale: Output,
    of_dx: Output,
    of_dscale: Output,
    of_doffset: Output,
}

/// Gradient of `FusedBatchNormGrad` and its later versions.
pub(crate) fn fused_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grads, is_training) =
        ([g.grad(0)?, g.grad(1)?, g.grad(2)?], g.attrs().bool("is_training")?);
    let inputs = [g.input(0), g.input(1), g.input(2), g.input(3), g.input(4)];
    let dtype = g.dtype(inputs[1]);
    // Half precision is too coarse for the sums.
    let [dy, x, of_dx] = [
        g.cast(inputs[0], DType::Float)?,
        g.cast(inputs[1], DType::Float)?,
        g.cast(grads[0], DType::Float)?,
    ];
    let mut c = Channels::new(g)?;
    let b = Backward {
        dy,
        x,
        scale: c.numbers(inputs[2])?,
        of_dx,
        of_dscale: c.numbers(grads[1])?,
        of_doffset: c.numbers(grads[2])?,
    };
    let [of_dy, of_x, of_scale] = if is_training {
        training(&mut c, &b)?
    } else {
        inference(&mut c, &b, inputs[3], inputs[4])?
    };
    let vector = c.g.ints(&[-1])?;
    let of_scale = g.add("Reshape", &[of_scale, vector])?;
    let adjoints =
        [g.cast(of_dy, dtype)?, g.cast(of_x, dtype)?, g.cast(of_scale, g.dtype(inputs[2]))?];
    adjoints.into_iter().enumerate().try_for_each(|(i, adjoint)| g.set(i, adjoint))
}

/// With `u = x - mean(x)`, `v = mean(u²) + epsilon`, `r = 1 / sqrt(v)`, `d = dy - mean(dy)` and
/// `m = mean(d u)`, the op gives `dx = scale r (d - u m / v)`, `dscale = n r m`, `doffset = sum(dy)`.
/// For adjoints `a` of `dx`, `b` of `dscale` and `c` of `doffset`, with `e = a - mean(a)`,
/// `k = mean(e d)` and `p = mean(e u)`, differentiation by dy, x and scale gives
///
/// - `scale r (e - u p / v) + b r u + c`,
/// - `scale r / v ((3 m p / v - k) u - d p - e m) + b r (d - u m / v)`,
/// - `r sum(e (d - u m / v))`.
fn training(c: &mut Channels<'_, '_>, b: &Backward) -> Result<[Output; 3]> {
    let (u, d, e) = (c.centered(b.x)?, c.centered(b.dy)?, c.centered(b.of_dx)?);
    let variance = c.mean_product(u, u)?;
    let v = c.with_epsilon(variance)?;
    let r = c.g.add("Rsqrt", &[v])?;
    let (m, p, k) = (c.mean_product(d, u)?, c.mean_product(e, u)?, c.mean_product(e, d)?);
    let (m_v, p_v) = (c.div(m, v)?, c.div(p, v)?);
    let (u_m, u_p) = (c.mul(u, m_v)?, c.mul(u, p_v)?);
    // The terms of dx and of the adjoint of dy, except for the common factor.
    let (d_only, e_only) = (c.sub(d, u_m)?, c.sub(e, u_p)?);
    let (scale_r, b_r) = (c.mul(b.scale, r)?, c.mul(b.of_dscale, r)?);

    let (first, second) = (c.mul(scale_r, e_only)?, c.mul(b_r, u)?);
    let of_dy = c.add(first, second)?;
    let of_dy = c.add(of_dy, b.of_doffset)?;

    let three = c.g.number(DType::Float, 3.0)?;
    let curve = c.mul(m, p_v)?;
    let curve = c.mul(curve, three)?;
    let curve = c.sub(curve, k)?;
    let (curved, d_p, e_m) = (c.mul(u, curve)?, c.mul(d, p)?, c.mul(e, m)?);
    let inner = c.sub(curved, d_p)?;
    let inner = c.sub(inner, e_m)?;
    let factor = c.div(scale_r, v)?;
    let (first, second) = (c.mul(factor, inner)?, c.mul(b_r, d_only)?);
    let of_x = c.add(first, second)?;

    let product = c.mul(e, d_only)?;
    let sum = c.sum(product)?;
    Ok([of_dy, of_x, c.mul(r, sum)?])
}

/// With fixed moments the op gives `dx = dy scale r`, `dscale = sum(dy (x - mean) r)` and
/// `doffset = sum(dy)`.
fn inference(
    c: &mut Channels<'_, '_>,
    b: &Backward,
    mean: Output,
    variance: Output,
) -> Result<[Output; 3]> {
    let (mean, variance) = (c.numbers(mean)?, c.numbers(variance)?);
    let v = c.with_epsilon(variance)?;
    let r = c.g.add("Rsqrt", &[v])?;
    let (scale_r, b_r, u) = (c.mul(b.scale, r)?, c.mul(b.of_dscale, r)?, c.sub(b.x, mean)?);
    let (first, second) = (c.mul(b.of_dx, scale_r)?, c.mul(u, b_r)?);
    let of_dy = c.add(first, second)?;
    let of_dy = c.add(of_dy, b.of_doffset)?;
    let of_x = c.mul(b.dy, b_r)?;
    let product = c.mul(b.of_dx, b.dy)?;
    let sum = c.sum(product)?;
    Ok([of_dy, of_x, c.mul(sum, r)?])
}
