//! Lowering of simulated quantization: the formulas of `fake` on whole tensors.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, ensure};

use super::fake::Levels;

/// A range in which zero is a level: its ends, the distance of levels, and the index of the level zero.
struct Nudged {
    min: Value,
    max: Value,
    scale: Value,
    zero_level: Value,
    /// Whether both ends are zero: nothing is quantized then.
    is_empty: Value,
}

impl Nudged {
    fn new(levels: Levels, min: &Value, max: &Value) -> Nudged {
        let (lowest, highest) = (f64::from(levels.lowest), f64::from(levels.highest));
        let scale = (max - min) / (highest - lowest);
        let zero = (min / &scale).negate() + lowest;
        let rounded = zero.round_half_away();
        let of = |x: f64| zero.full_like(x);
        // NaN becomes 0.
        let rounded = zero.is_nan().select(&of(0.0), &rounded);
        let is_low = zero.compare_to(Comparison::Less, lowest);
        let is_high = zero.compare_to(Comparison::Greater, highest);
        let zero = is_low.select(&of(lowest), &is_high.select(&of(highest), &rounded));
        let nudged_min = (zero.negate() + lowest) * &scale;
        let zero_level = (nudged_min.negate() * scale.reciprocal() + 0.5).floor();
        let is_zero = |x: &Value| x.compare_to(Comparison::Equal, 0.0);
        Nudged {
            min: nudged_min,
            max: (zero.negate() + highest) * &scale,
            is_empty: is_zero(min).and(&is_zero(max)),
            scale,
            zero_level,
        }
    }

    /// The ends of a range in inputs `first` and `first + 1`: scalars, or one for each channel of `x`.
    fn of(l: &Lowering<'_>, first: usize, x: &Value, per_channel: bool) -> Result<Nudged> {
        let wanted: Vec<usize> = match per_channel {
            true => {
                ensure!(x.rank() >= 1, InvalidArgument, "inputs must have at least one dimension");
                x.dims()[x.rank() - 1..].to_vec()
            }
            false => Vec::new(),
        };
        let (min, max) = (l.input(first)?, l.input(first + 1)?);
        for (end, name) in [(&min, "min"), (&max, "max")] {
            ensure!(
                *end.dims() == wanted,
                InvalidArgument,
                "{name} has incorrect size, expected {wanted:?} was {:?}",
                end.dims()
            );
        }
        Ok(Nudged::new(Levels::from_attrs(l.attrs())?, &min, &max))
    }

    /// Each element rounded to a level, by division by the scale or by multiplication with its inverse.
    fn quantized(&self, x: &Value, by_division: bool) -> Value {
        let capped = x.compare(Comparison::Greater, &self.max).select(&self.max, x);
        let clamped = capped.compare(Comparison::Less, &self.min).select(&self.min, &capped);
        let above = clamped - &self.min;
        let level = match by_division {
            true => above / &self.scale,
            false => above * self.scale.reciprocal(),
        };
        (level - &self.zero_level + 0.5).floor() * &self.scale
    }

    fn is_within(&self, x: &Value) -> Value {
        let is_low = x.compare(Comparison::GreaterEqual, &self.min);
        is_low.and(&x.compare(Comparison::LessEqual, &self.max))
    }
}

/// The range in attrs.
fn attr_range(l: &Lowering<'_>, like: &Value) -> Result<Nudged> {
    let (min, max) = (l.attrs().float("min")?, l.attrs().float("max")?);
    ensure!(min < max, InvalidArgument, "min has to be smaller than max, was: {min} >= {max}");
    let of = |x: f32| like.scalar_like(x.into());
    Ok(Nudged::new(Levels::from_attrs(l.attrs())?, &of(min), &of(max)))
}

pub(crate) fn args(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let range = attr_range(l, &x)?;
    l.set(0, range.quantized(&x, false))
}

pub(crate) fn vars(l: &mut Lowering<'_>, per_channel: bool) -> Result<()> {
    let x = l.input(0)?;
    let range = Nudged::of(l, 1, &x, per_channel)?;
    let quantized = range.quantized(&x, !per_channel);
    l.set(0, range.is_empty.select(&x.scalar_like(0.0), &quantized))
}

/// The gradient in input 0 and the elements in input 1.
fn gradient_inputs(l: &Lowering<'_>) -> Result<(Value, Value)> {
    let (gradient, x) = (l.input(0)?, l.input(1)?);
    ensure!(
        gradient.dims() == x.dims(),
        InvalidArgument,
        "gradient and input must be the same size, are {:?} and {:?}",
        gradient.dims(),
        x.dims()
    );
    Ok((gradient, x))
}

pub(crate) fn args_gradient(l: &mut Lowering<'_>) -> Result<()> {
    let (gradient, x) = gradient_inputs(l)?;
    let range = attr_range(l, &x)?;
    l.set(0, range.is_within(&x).select(&gradient, &gradient.scalar_like(0.0)))
}

pub(crate) fn vars_gradient(l: &mut Lowering<'_>, per_channel: bool) -> Result<()> {
    let (gradient, x) = gradient_inputs(l)?;
    let range = Nudged::of(l, 2, &x, per_channel)?;
    let zero = gradient.scalar_like(0.0);
    let passes = range.is_within(&x).or(&range.is_empty);
    let others: Vec<usize> = (0..x.rank() - usize::from(per_channel)).collect();
    let sum_where = |is_out: Value| {
        let part = range.is_empty.not().and(&is_out).select(&gradient, &zero);
        part.sum(&others)
    };
    l.set(0, passes.select(&gradient, &zero))?;
    l.set(1, sum_where(x.compare(Comparison::Less, &range.min)))?;
    l.set(2, sum_where(x.compare(Comparison::Greater, &range.max)))
}
