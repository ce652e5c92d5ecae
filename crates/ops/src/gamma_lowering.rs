//! Incomplete gamma and beta functions on accelerators: the formulas of `math/gamma.rs` on whole tensors,
//! which are iterated until all elements have converged.

use std::f64::consts::PI;

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use crate::lowering::set_narrow;
use crate::math::gamma::{BERNOULLI, EPSILON, TERMS_MAX};
use crate::special_lowering::{above, any, below, digamma, lgamma, number, polynomial};

/// A value and its derivative by the parameter `a`.
struct Dual {
    value: Value,
    slope: Value,
}

impl Dual {
    fn new(value: Value, slope: Value) -> Dual {
        Dual { value, slope }
    }

    fn plus(&self, other: &Dual) -> Dual {
        Dual::new(&self.value + &other.value, &self.slope + &other.slope)
    }

    fn times(&self, other: &Dual) -> Dual {
        let slope = &self.value * &other.slope + &self.slope * &other.value;
        Dual::new(&self.value * &other.value, slope)
    }

    fn inverse(&self) -> Dual {
        let value = self.value.reciprocal();
        Dual::new(value.clone(), self.slope.negate() * &value * &value)
    }

    /// The value kept away from 0.
    fn bounded(self, tiny: f64) -> Dual {
        Dual::new(bounded(&self.value, tiny), self.slope)
    }
}

fn bounded(x: &Value, tiny: f64) -> Value {
    below(&x.abs(), tiny).select(&number(x, tiny), x)
}

/// Repeats `step` on the values, which gets the number of the iteration, from 1, until `is_done` holds
/// for all elements.
fn iterate(
    start: Vec<Value>,
    is_done: impl FnOnce(&[Value]) -> Value,
    step: impl FnOnce(&Value, &[Value]) -> Vec<Value>,
) -> Vec<Value> {
    let first = start[0].scalar_like(1.0);
    let all: Vec<Value> = [first].into_iter().chain(start).collect();
    let goes_on = |v: &[Value]| {
        let is_open = any(&is_done(&v[1..]).not());
        is_open.and(&below(&v[0], TERMS_MAX as f64))
    };
    let body = |v: &[Value]| {
        let values = step(&v[0], &v[1..]);
        [&v[0] + 1.0].into_iter().chain(values).collect()
    };
    Value::repeat_while(&all, goes_on, body).split_off(1)
}

/// ln(1 + x) - x, for `x` not below -1/2.
fn log1p_less_argument(x: &Value) -> Value {
    // With y = x / (2 + x): ln(1 + x) = 2 (y + y³/3 + ..).
    let y = x / (x + 2.0);
    let square = y.square();
    let coefficients: Vec<f64> = (0..14).rev().map(|k| 1.0 / (2.0 * f64::from(k) + 3.0)).collect();
    let sum = &y * &square * polynomial(&square, &coefficients);
    let near = sum * 2.0 - x * &y;
    above(&x.abs(), 0.3).select(&(x.log_plus_one() - x), &near)
}

/// The remainder of Stirling's formula for ln Γ(a + 1), for large `a`.
fn stirling_rest(a: &Value) -> Value {
    let inverse = a.reciprocal();
    let coefficient = |k: usize| {
        let n = 2.0 * (k as f64 + 1.0);
        BERNOULLI[k] / (n * (n - 1.0))
    };
    let coefficients: Vec<f64> = (0..6).rev().map(coefficient).collect();
    &inverse * polynomial(&inverse.square(), &coefficients)
}

/// ln(x^a e^-x / Γ(a + 1)).
fn log_prefix(a: &Value, x: &Value) -> Value {
    let mu = (x - a) / a;
    let stirling = a * log1p_less_argument(&mu) - (a * (2.0 * PI)).log() * 0.5 - stirling_rest(a);
    let is_near = (x - a).abs().compare(Comparison::Less, &(a * 0.5));
    let direct = a * x.log() - x - lgamma(&(a + 1.0));
    above(a, 100.0).and(&is_near).select(&stirling, &direct)
}

/// Σ xⁿ / ((a+1)..(a+n)).
fn lower_series(a: &Value, x: &Value) -> Dual {
    let (one, zero) = (a.ones_like(), a.zeros_like());
    let start = vec![one.clone(), zero.clone(), one.clone(), zero];
    let done = iterate(
        start,
        |v| {
            let is_small = |term: &Value, sum: &Value| {
                term.abs().compare(Comparison::LessEqual, &(sum.abs() * EPSILON))
            };
            is_small(&v[0], &v[2]).and(&is_small(&v[1], &v[3]))
        },
        |i, v| {
            let (term, sum) =
                (Dual::new(v[0].clone(), v[1].clone()), Dual::new(v[2].clone(), v[3].clone()));
            let factor = Dual::new(a + i, one.clone()).inverse();
            let term = term.times(&factor);
            let term = Dual::new(term.value * x, term.slope * x);
            let sum = sum.plus(&term);
            vec![term.value, term.slope, sum.value, sum.slope]
        },
    );
    Dual::new(done[2].clone(), done[3].clone())
}

/// The continued fraction of Γ(a, x) x^-a e^x, by Lentz's method.
fn upper_fraction(a: &Value, x: &Value) -> Dual {
    const TINY: f64 = 1e-290;
    let (one, zero) = (a.ones_like(), a.zeros_like());
    let b = Dual::new(x + 1.0 - a, one.negate());
    let d = b.inverse();
    let start = vec![
        number(a, 1.0 / TINY),
        zero.clone(),
        d.value.clone(),
        d.slope.clone(),
        d.value,
        d.slope,
        zero.clone(),
        zero,
    ];
    let done = iterate(
        start,
        |v| {
            let is_one = below(&(&v[6] - 1.0).abs(), EPSILON * 4.0);
            is_one.and(&below(&v[7].abs(), EPSILON * 4.0))
        },
        |i, v| {
            let dual = |k: usize| Dual::new(v[k].clone(), v[k + 1].clone());
            let (c, d, h) = (dual(0), dual(2), dual(4));
            // -i (i - a)
            let an = Dual::new((a - i) * i, i.broadcast_to(a.dims()));
            let b = Dual::new(&b.value + i * 2.0, b.slope.clone());
            let d = an.times(&d).plus(&b).bounded(TINY).inverse();
            let c = b.plus(&an.times(&c.inverse())).bounded(TINY);
            let delta = d.times(&c);
            let h = h.times(&delta);
            vec![c.value, c.slope, d.value, d.slope, h.value, h.slope, delta.value, delta.slope]
        },
    );
    Dual::new(done[4].clone(), done[5].clone())
}

/// What the functions of `a` and `x` have in common.
struct Parts {
    a: Value,
    x: Value,
    /// Whether the series converges faster than the continued fraction.
    prefers_series: Value,
    /// e to the power of [`log_prefix`].
    prefix: Value,
    series: Dual,
    fraction: Dual,
}

impl Parts {
    fn new(a: &Value, x: &Value) -> Parts {
        let (a, x) = (a.plus(&x.zeros_like()), x.plus(&a.zeros_like()));
        let is_inside = above(&a, 0.0)
            .and(&above(&x, 0.0))
            .and(&below(&a, f64::INFINITY))
            .and(&below(&x, f64::INFINITY));
        let prefers_series =
            x.compare_to(Comparison::LessEqual, 1.0).or(&x.compare(Comparison::LessEqual, &a));
        // Elsewhere, arguments for which both end at once.
        let one = number(&a, 1.0);
        let of_series = is_inside.and(&prefers_series);
        let of_fraction = is_inside.and(&prefers_series.not());
        let series =
            lower_series(&of_series.select(&a, &one), &of_series.select(&x, &number(&a, 0.0)));
        let fraction = upper_fraction(
            &of_fraction.select(&a, &one),
            &of_fraction.select(&x, &number(&a, 9.0)),
        );
        let prefix = log_prefix(&is_inside.select(&a, &one), &is_inside.select(&x, &one)).exp();
        Parts { a, x, prefers_series, prefix, series, fraction }
    }

    /// P(a, x), and its complement if `is_upper`.
    fn probability(&self, is_upper: bool) -> Value {
        let lower = &self.prefix * &self.series.value;
        let upper = &self.prefix * &self.a * &self.fraction.value;
        let complement = |x: &Value| x.negate() + 1.0;
        match is_upper {
            true => self.prefers_series.select(&complement(&lower), &upper),
            false => self.prefers_series.select(&lower, &complement(&upper)),
        }
    }

    /// `inside` where the general formulas apply, at the edges of the domain what P is there.
    fn with_edges(&self, inside: &Value, at_zero: f64, at_infinity: f64) -> Value {
        let (a, x) = (&self.a, &self.x);
        let is = |y: &Value, n: f64| y.compare_to(Comparison::Equal, n);
        let of = |n: f64| number(a, n);
        let result = is(x, f64::INFINITY).select(&of(at_infinity), inside);
        let result = is(a, f64::INFINITY).select(&of(at_zero), &result);
        let is_valid = above(a, 0.0).and(&above(x, 0.0));
        let result = is_valid.select(&result, &of(f64::NAN));
        is(x, 0.0).select(&of(at_zero), &result)
    }
}

/// The regularized lower incomplete gamma function P(a, x).
pub(crate) fn igamma(a: &Value, x: &Value) -> Value {
    let parts = Parts::new(a, x);
    parts.with_edges(&parts.probability(false), 0.0, 1.0)
}

/// The regularized upper incomplete gamma function Q(a, x).
pub(crate) fn igammac(a: &Value, x: &Value) -> Value {
    let parts = Parts::new(a, x);
    let result = parts.with_edges(&parts.probability(true), 1.0, 0.0);
    let is = |y: &Value, n: f64| y.compare_to(Comparison::Equal, n);
    let is_nan = is(&parts.x, 0.0).and(&above(&parts.a, 0.0).not());
    let both = is(&parts.a, f64::INFINITY).and(&is(&parts.x, f64::INFINITY));
    let result = both.select(&number(&parts.a, 0.0), &result);
    is_nan.select(&number(&parts.a, f64::NAN), &result)
}

/// ∂P(a, x) / ∂a.
pub(crate) fn igamma_grad_a(a: &Value, x: &Value) -> Value {
    let parts = Parts::new(a, x);
    let (a, log) = (&parts.a, parts.x.log());
    let series = &parts.series.slope + &parts.series.value * (&log - digamma(&(a + 1.0)));
    let fraction = &parts.fraction.slope + &parts.fraction.value * (&log - digamma(a));
    let lower = &parts.prefix * series;
    let upper = parts.prefix.negate() * a * fraction;
    parts.with_edges(&parts.prefers_series.select(&lower, &upper), 0.0, 0.0)
}

/// ln B(a, b).
fn log_beta(a: &Value, b: &Value) -> Value {
    let (small, large) = (a.minimum(b), a.maximum(b));
    let sum = &large + &small;
    let direct = lgamma(a) + lgamma(b) - lgamma(&sum);
    // ln Γ(large) - ln Γ(large + small), by Stirling's formula without cancellation.
    let difference = stirling_rest(&large) - stirling_rest(&sum) + &small
        - (&large - 0.5) * (&small / &large).log_plus_one()
        - &small * sum.log();
    below(&large, 50.0).select(&direct, &(lgamma(&small) + difference))
}

fn beta_fraction(a: &Value, b: &Value, x: &Value) -> Value {
    const TINY: f64 = 1e-300;
    let sum = a + b;
    let one = a.ones_like();
    let d = bounded(&(&one - &sum * x / (a + 1.0)), TINY).reciprocal();
    let start = vec![one, d.clone(), d, a.zeros_like()];
    let done = iterate(
        start,
        |v| below(&(&v[3] - 1.0).abs(), EPSILON * 4.0),
        |m, v| {
            let (c, d, h) = (&v[0], &v[1], &v[2]);
            let twice = a + m * 2.0;
            let even = (b - m) * m * x / ((&twice - 1.0) * &twice);
            let odd = (a + m).negate() * (&sum + m) * x / (&twice * (&twice + 1.0));
            let next = |c: &Value, d: &Value, by: &Value| {
                let d = bounded(&(by * d + 1.0), TINY).reciprocal();
                (bounded(&(by / c + 1.0), TINY), d)
            };
            let (c, d) = next(c, d, &even);
            let h = h * &d * &c;
            let (c, d) = next(&c, &d, &odd);
            let delta = &d * &c;
            vec![c, d, h * &delta, delta]
        },
    );
    done[2].clone()
}

/// The regularized incomplete beta function.
fn betainc(a: &Value, b: &Value, x: &Value) -> Value {
    let is_finite = |y: &Value| above(y, 0.0).and(&below(y, f64::INFINITY));
    let is_inside = is_finite(a).and(&is_finite(b)).and(&above(x, 0.0)).and(&below(x, 1.0));
    let of = |n: f64| number(a, n);
    let [p, q, y] =
        [(a, 1.0), (b, 1.0), (x, 0.5)].map(|(value, safe)| is_inside.select(value, &of(safe)));
    let log_front = &p * y.log() + &q * y.negate().log_plus_one() - log_beta(&p, &q);
    // The continued fraction converges fast on one side of the mean; the other side follows by symmetry.
    let is_left = y.compare(Comparison::Less, &((&p + 1.0) / (&p + &q + 2.0)));
    let (first, second) = (is_left.select(&p, &q), is_left.select(&q, &p));
    let place = is_left.select(&y, &(y.negate() + 1.0));
    let part = log_front.exp() * beta_fraction(&first, &second, &place) / &first;
    let inside = is_left.select(&part, &(part.negate() + 1.0));
    let is_edge = x
        .compare_to(Comparison::Equal, 0.0)
        .or(&x.compare_to(Comparison::Equal, 1.0))
        .and(&a.compare_to(Comparison::LessEqual, 0.0).not())
        .and(&b.compare_to(Comparison::LessEqual, 0.0).not());
    is_edge.select(x, &is_inside.select(&inside, &of(f64::NAN)))
}

/// All inputs have one shape or are scalars.
pub(crate) fn lower_betainc(l: &mut Lowering<'_>) -> Result<()> {
    let inputs = l.inputs_from(0)?;
    let dims = inputs.iter().find(|v| v.rank() > 0).map_or(Vec::new(), |v| v.dims().to_vec());
    for input in &inputs {
        ensure!(
            input.rank() == 0 || *input.dims() == dims,
            InvalidArgument,
            "a, b and x must have one shape or be scalars, got {:?} and {dims:?}",
            input.dims()
        );
    }
    let [a, b, x] = [0, 1, 2].map(|i| inputs[i].convert(DType::Double).broadcast_to(&dims));
    set_narrow(l, 0, &betainc(&a, &b, &x))
}
