//! Fourier transforms on accelerators, one axis at a time.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, bail, ensure};

use super::fourier::{Transform, checked_axes, half};

pub(crate) fn lower(l: &mut Lowering<'_>, transform: Transform) -> Result<()> {
    let Transform { rank, is_inverse, is_real } = transform;
    let (mut x, dims) = (l.input(0)?, l.output_dims(0)?);
    let needed = rank.unwrap_or(0);
    ensure!(
        x.rank() >= needed,
        InvalidArgument,
        "Input must have rank of at least {needed} but got: {:?}",
        x.dims()
    );
    let axes: Vec<usize> = match rank {
        Some(count) => (x.rank() - count..x.rank()).collect(),
        None => checked_axes(&l.ints(2)?, x.rank())?.to_vec(),
    };
    let lengths = match is_real || rank.is_none() {
        true => lengths(l, &x, &axes, transform)?,
        false => axes.iter().map(|&axis| x.dims()[axis]).collect(),
    };
    let dtype = l.output_dtype(0);
    if x.num_elements() == 0 || dims.contains(&0) {
        return l.set(0, x.splat(dtype, &dims, 0.0));
    }
    let Some((&last, others)) = axes.split_last() else {
        let result = if is_inverse && is_real { x.real() } else { complex_of(&x) };
        return l.set(0, result);
    };
    for (i, &axis) in axes.iter().enumerate() {
        let is_half = is_real && is_inverse && axis == last;
        x = fitted(&x, axis, if is_half { half(lengths[i]) } else { lengths[i] });
    }
    let length = lengths[axes.len() - 1];
    let kind = if is_inverse { "IFFT" } else { "FFT" };
    if !is_real {
        for (&axis, &length) in axes.iter().zip(&lengths).rev() {
            x = along(&x, axis, kind, length);
        }
        return l.set(0, x);
    }
    if !is_inverse {
        x = along(&x, last, "RFFT", length);
    }
    for (&axis, &length) in others.iter().zip(&lengths).rev() {
        x = along(&x, axis, kind, length);
    }
    if is_inverse {
        x = along(&x, last, "IRFFT", length);
    }
    l.set(0, x)
}

/// The lengths of input 1. For ops with a fixed number of axes, no length may exceed the input's.
fn lengths(
    l: &Lowering<'_>,
    x: &Value,
    axes: &[usize],
    transform: Transform,
) -> Result<Vec<usize>> {
    let given = l.ints(1)?;
    ensure!(
        given.len() == axes.len() && l.host(1)?.rank() == 1,
        InvalidArgument,
        "fft_length must have shape [{}], got {}",
        axes.len(),
        l.host(1)?.shape()
    );
    let mut lengths = Vec::new();
    for (i, length) in given.into_iter().enumerate() {
        let Ok(length) = usize::try_from(length) else {
            bail!(InvalidArgument, "fft_length[{i}] must >= 0, but got: {length}");
        };
        let is_half = transform.is_real && transform.is_inverse && i + 1 == axes.len();
        let (size, needed) = (x.dims()[axes[i]], if is_half { half(length) } else { length });
        ensure!(
            transform.rank.is_none() || size == 0 || size >= needed,
            InvalidArgument,
            "Input dimension {} must have length of at least {needed} but got: {size}",
            axes[i]
        );
        lengths.push(length);
    }
    Ok(lengths)
}

fn complex_of(x: &Value) -> Value {
    if x.dtype().is_complex() { x.clone() } else { x.complex(&x.zeros_like()) }
}

/// The elements with one dimension cropped or padded to a size.
fn fitted(x: &Value, axis: usize, size: usize) -> Value {
    let own = x.dims()[axis];
    if own >= size {
        return x.slice_dim(axis, 0, size);
    }
    let zeros = vec![0i64; x.rank()];
    let mut high = zeros.clone();
    high[axis] = (size - own) as i64;
    x.pad(&x.scalar_like(0.0), &zeros, &high, &zeros)
}

/// A transform of one axis, which is the last one meanwhile.
fn along(x: &Value, axis: usize, kind: &str, length: usize) -> Value {
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order.swap(axis, x.rank() - 1);
    let rows = x.transpose(&order);
    let mut dims = rows.dims().to_vec();
    let (dtype, last) = match (kind, x.dtype()) {
        ("RFFT", DType::Double) => (DType::Complex128, half(length)),
        ("RFFT", _) => (DType::Complex64, half(length)),
        ("IRFFT", DType::Complex128) => (DType::Double, length),
        ("IRFFT", _) => (DType::Float, length),
        (_, dtype) => (dtype, length),
    };
    if let Some(size) = dims.last_mut() {
        *size = last;
    }
    rows.fft(kind, &[length], dtype, &dims).transpose(&order)
}
