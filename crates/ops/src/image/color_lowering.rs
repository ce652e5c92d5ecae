//! Lowering of color ops: the formulas of `color` on whole tensors.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use crate::lowering::{set_narrow, wide};

/// The images in input 0.
fn images(l: &Lowering<'_>) -> Result<Value> {
    let images = l.input(0)?;
    ensure!(
        images.rank() >= 3,
        InvalidArgument,
        "input must be at least 3-D, got shape {:?}",
        images.dims()
    );
    Ok(images.convert(DType::Float))
}

/// The scalar in input `i`.
fn number(l: &Lowering<'_>, i: usize, name: &str) -> Result<Value> {
    let number = l.input(i)?;
    ensure!(
        number.rank() == 0,
        InvalidArgument,
        "{name} must be scalar, got shape {:?}",
        number.dims()
    );
    Ok(number)
}

/// The three channels, each with a last dimension of size 1.
fn channels(images: &Value) -> Result<[Value; 3]> {
    let count = images.dims().last().copied().unwrap_or(0);
    ensure!(
        count == 3,
        InvalidArgument,
        "input must have 3 channels but instead has {count} channels"
    );
    Ok([0, 1, 2].map(|c| images.slice_dim(images.rank() - 1, c, c + 1)))
}

fn joined([a, b, c]: [Value; 3]) -> Value {
    let last = a.rank() - 1;
    a.concatenate(&[b, c], last)
}

fn greatest([r, g, b]: &[Value; 3]) -> Value {
    r.maximum(g).maximum(b)
}

fn least([r, g, b]: &[Value; 3]) -> Value {
    r.minimum(g).minimum(b)
}

pub(crate) fn adjust_contrast(l: &mut Lowering<'_>) -> Result<()> {
    let x = images(l)?;
    let factor = number(l, 1, "contrast_factor")?;
    let axes = [x.rank() - 3, x.rank() - 2];
    let pixels = x.dims()[axes[0]] * x.dims()[axes[1]];
    let mean = (x.sum(&axes) / pixels.max(1) as f64).keep_dims(x.dims(), &axes);
    let mut adjusted = (&x - &mean) * factor + &mean;
    if l.num_inputs() == 4 {
        let (min, max) = (number(l, 2, "min_value")?, number(l, 3, "max_value")?);
        adjusted = adjusted.maximum(&min).minimum(&max);
    }
    set_narrow(l, 0, &adjusted)
}

/// `yes` where the sextant is one of two.
fn in_sextants(sextant: &Value, which: [f64; 2], yes: &Value, no: &Value) -> Value {
    let is = |n: f64| sextant.compare_to(Comparison::Equal, n);
    is(which[0]).or(&is(which[1])).select(yes, no)
}

/// The pixels whose largest, middle and smallest channels have these values, by sextant of the hue.
fn arranged(sextant: &Value, max: &Value, mid: &Value, min: &Value) -> Value {
    let channel = |largest: [f64; 2], middle: [f64; 2]| {
        in_sextants(sextant, largest, max, &in_sextants(sextant, middle, mid, min))
    };
    joined([
        channel([0.0, 5.0], [1.0, 4.0]),
        channel([1.0, 2.0], [0.0, 3.0]),
        channel([3.0, 4.0], [2.0, 5.0]),
    ])
}

/// `x` reduced to [0, modulus).
fn reduced(x: &Value, modulus: f64) -> Value {
    let rest = x - (x / modulus).floor() * modulus;
    rest.compare_to(Comparison::GreaterEqual, modulus).select(&rest.scalar_like(0.0), &rest)
}

/// The ratio in an even sextant, its complement in an odd one.
fn mirrored(sextant: &Value, ratio: &Value) -> Value {
    let is_even = reduced(sextant, 2.0).compare_to(Comparison::Equal, 0.0);
    is_even.select(ratio, &(ratio.negate() + 1.0))
}

pub(crate) fn adjust_hue(l: &mut Lowering<'_>) -> Result<()> {
    let rgb = channels(&images(l)?)?;
    let delta = number(l, 1, "delta")? * 6.0;
    let [r, g, b] = &rgb;
    let less = |x: &Value, y: &Value| x.compare(Comparison::Less, y);
    let choose = |first: &Value, x: f64, second: &Value, y: f64, z: f64| {
        let of = |n: f64| r.full_like(n);
        first.select(&of(x), &second.select(&of(y), &of(z)))
    };
    let above = choose(&less(b, r), 1.0, &less(g, b), 3.0, 2.0);
    let below = choose(&less(b, g), 0.0, &less(r, b), 4.0, 5.0);
    let sextant = less(r, g).select(&above, &below);
    let (max, min) = (greatest(&rgb), least(&rgb));
    let mid = r.minimum(g).maximum(&r.maximum(g).minimum(b));
    let range = &max - &min;
    let ratio = (mid - &min) / &range;
    let is_gray = max.compare(Comparison::Equal, &min);
    let hue = is_gray.select(&max.scalar_like(0.0), &(&sextant + mirrored(&sextant, &ratio)));
    let hue = reduced(&(hue + delta), 6.0);
    let sextant = hue.floor().minimum(&hue.scalar_like(5.0));
    let mid = &min + mirrored(&sextant, &(&hue - &sextant)) * range;
    set_narrow(l, 0, &arranged(&sextant, &max, &mid, &min))
}

/// Hue as a part of the circle, saturation and value; hue and saturation of gray are 0.
fn hsv_of(rgb: &[Value; 3]) -> [Value; 3] {
    let [r, g, b] = rgb;
    let value = greatest(rgb);
    let range = &value - least(rgb);
    let zero = value.scalar_like(0.0);
    let is_positive = |x: &Value| x.compare(Comparison::Greater, &zero);
    let saturation = is_positive(&value).select(&(&range / &value), &zero);
    let norm = range.reciprocal() * (1.0 / 6.0);
    let is_value = |x: &Value| x.compare(Comparison::Equal, &value);
    let others = is_value(g).select(&(&norm * (b - r) + 2.0 / 6.0), &(&norm * (r - g) + 4.0 / 6.0));
    let hue = is_value(r).select(&(&norm * (g - b)), &others);
    let hue = is_positive(&range).select(&hue, &zero);
    let hue = hue.compare(Comparison::Less, &zero).select(&(&hue + 1.0), &hue);
    [hue, saturation, value]
}

pub(crate) fn adjust_saturation(l: &mut Lowering<'_>) -> Result<()> {
    let rgb = channels(&images(l)?)?;
    let scale = number(l, 1, "scale")?;
    let [hue, saturation, value] = hsv_of(&rgb);
    let (zero, one) = (value.scalar_like(0.0), value.scalar_like(1.0));
    let saturation = (saturation * scale).clamp(&zero, &one);
    let chroma = saturation * &value;
    let rest = &value - &chroma;
    let sixths = hue * 6.0;
    let middle = &chroma * ((reduced(&sixths, 2.0) - 1.0).abs().negate() + 1.0);
    let adjusted = arranged(&sixths.floor(), &(&rest + chroma), &(&rest + middle), &rest);
    set_narrow(l, 0, &adjusted)
}

/// Input 0 in the dtype of computation, split into its three channels.
fn colors(l: &Lowering<'_>) -> Result<[Value; 3]> {
    let x = wide(&l.input(0)?);
    ensure!(x.rank() >= 1, InvalidArgument, "input must be at least 1-D, got a scalar");
    channels(&x).map_err(|e| e.with_code(thalweg_tensor::Code::FailedPrecondition))
}

pub(crate) fn rgb_to_hsv(l: &mut Lowering<'_>) -> Result<()> {
    let rgb = colors(l)?;
    set_narrow(l, 0, &joined(hsv_of(&rgb)))
}

pub(crate) fn hsv_to_rgb(l: &mut Lowering<'_>) -> Result<()> {
    let [hue, saturation, value] = colors(l)?;
    let sixths = hue * 6.0;
    let (zero, one) = (value.scalar_like(0.0), value.scalar_like(1.0));
    let distance = |center: f64| (&sixths - center).abs();
    let shares = [distance(3.0) - 1.0, distance(2.0).negate() + 2.0, distance(4.0).negate() + 2.0];
    let rgb = shares.map(|share| {
        let share = share.clamp(&zero, &one);
        (saturation.negate() + 1.0 + &saturation * share) * &value
    });
    set_narrow(l, 0, &joined(rgb))
}
