//! Reductions over any axes, and sums along one.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

/// A random set of axes, in random order.
fn axes(random: &mut Random, rank: usize) -> Vec<usize> {
    let count = random.size(0, rank);
    random.permutation(rank)[..count].to_vec()
}

/// The elements that each element of the result is reduced from, with reduced axes kept with size
/// one.
fn groups(array: &Array, axes: &[usize]) -> (Vec<usize>, Vec<Vec<f64>>) {
    let one = |(axis, &dim): (usize, &usize)| if axes.contains(&axis) { 1 } else { dim };
    let kept: Vec<usize> = array.dims.iter().enumerate().map(one).collect();
    let shape = Array::filled(&kept, 0.0);
    let mut groups = vec![Vec::new(); shape.values.len()];
    for index in indices(&array.dims) {
        let target: Vec<usize> =
            index.iter().zip(&kept).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect();
        groups[shape.place(&target)].push(array.at(&index));
    }
    (kept, groups)
}

/// Runs a reduction on random axes and compares with `function` of each group.
fn reduces(
    random: &mut Random,
    op: &'static str,
    array: &Array,
    dtype: DType,
    function: impl Fn(&[f64]) -> f64,
) -> Result<()> {
    let axes = axes(random, array.rank());
    let keep = random.flag();
    let (kept, groups) = groups(array, &axes);
    let values = groups.iter().map(|g| function(g)).collect();
    let mut dims = kept.clone();
    if !keep {
        dims = (0..kept.len()).filter(|a| !axes.contains(a)).map(|a| kept[a]).collect();
    }
    let written: Vec<i64> = axes.iter().map(|&a| random.signed(a, array.rank())).collect();
    let call = Call::new(op).array(array, dtype).ints(&written, random.pick(INDICES));
    call.attr("keep_dims", keep).gives(&Array { dims, values })
}

fn product(group: &[f64]) -> f64 {
    group.iter().product()
}

fn sum(group: &[f64]) -> f64 {
    group.iter().sum()
}

#[test]
fn sums() {
    check("Sum", 100, |random| {
        let dims = random.dims(0, 5, 4);
        let dtype = random.pick(NUMBERS);
        let array = exact(random, &dims, dtype);
        reduces(random, "Sum", &array, dtype, sum)
    });
    check("Mean", 80, |random| {
        let dims = random.dims(0, 4, 4);
        let dtype = random.pick(FLOATS);
        let array = exact(random, &dims, dtype);
        reduces(random, "Mean", &array, dtype, |g| sum(g) / g.len() as f64)
    });
    check("Mean of integers", 40, |random| {
        let dims: Vec<usize> = random.dims(0, 4, 4).iter().map(|&d| d.max(1)).collect();
        let array = random.array(&dims, -9, 9);
        let dtype = random.pick(&[DType::Int32, DType::Int64]);
        reduces(random, "Mean", &array, dtype, |g| (sum(g) / g.len() as f64).trunc())
    });
    check("EuclideanNorm", 60, |random| {
        let dims = random.dims(0, 4, 4);
        let dtype = random.pick(FLOATS);
        let array = random.array(&dims, -3, 3);
        let norm = |g: &[f64]| g.iter().map(|v| v * v).sum::<f64>().sqrt();
        reduces(random, "EuclideanNorm", &array, dtype, norm)
    });
}

/// Values whose sums are exact in the dtype.
fn exact(random: &mut Random, dims: &[usize], dtype: DType) -> Array {
    let limit = if dtype == DType::BFloat16 { 1 } else { 3 };
    random.array(dims, -limit, limit)
}

#[test]
fn products() {
    check("Prod", 80, |random| {
        let dims = random.dims(0, 4, 4);
        let dtype = random.pick(NUMBERS);
        let wide = matches!(dtype, DType::Float | DType::Double) && dims.len() < 4;
        let mut array = random.array(&dims, 0, 30);
        let factor = if wide { 2.0 } else { 1.0 };
        array.values.iter_mut().for_each(|v| *v = [factor, -1.0, 1.0][*v as usize % 3]);
        reduces(random, "Prod", &array, dtype, product)
    });
}

/// The lowest value of a dtype: the maximum of no elements.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::Int8 => i8::MIN.into(),
        DType::Int16 => i16::MIN.into(),
        DType::Int32 => i32::MIN.into(),
        DType::Int64 => i64::MIN as f64,
        _ => f64::NEG_INFINITY,
    }
}

#[test]
fn extremes() {
    check("Max", 80, |random| {
        let dims = random.dims(0, 5, 4);
        let dtype = random.pick(NUMBERS);
        let array = random.array(&dims, -90, 90);
        let max = |g: &[f64]| g.iter().copied().fold(lowest(dtype), f64::max);
        reduces(random, "Max", &array, dtype, max)
    });
    check("Min", 80, |random| {
        let dims = random.dims(0, 5, 4);
        let dtype = random.pick(NUMBERS);
        let array = random.array(&dims, -90, 90);
        let highest = if dtype.is_floating() { f64::INFINITY } else { -1.0 - lowest(dtype) };
        let min = |g: &[f64]| g.iter().copied().fold(highest, f64::min);
        reduces(random, "Min", &array, dtype, min)
    });
}

#[test]
fn any_and_all() {
    check("Any", 60, |random| {
        let dims = random.dims(0, 4, 3);
        let array = random.array(&dims, 0, 3).map(|v| f64::from(v == 0.0));
        let any = |g: &[f64]| f64::from(g.contains(&1.0));
        reduces(random, "Any", &array, DType::Bool, any)
    });
    check("All", 60, |random| {
        let dims = random.dims(0, 4, 3);
        let array = random.array(&dims, 0, 3).map(|v| f64::from(v != 0.0));
        let all = |g: &[f64]| f64::from(!g.contains(&0.0));
        reduces(random, "All", &array, DType::Bool, all)
    });
}

#[test]
fn places_of_extremes() {
    for (op, sign) in [("ArgMax", 1.0), ("ArgMin", -1.0)] {
        check(op, 60, |random| {
            let mut dims = random.dims(1, 4, 5);
            let (axis, written) = random.axis(dims.len());
            dims[axis] = dims[axis].max(1);
            let array = random.array(&dims, -4, 4);
            let (_, groups) = groups(&array, &[axis]);
            // The first of equal elements.
            let first = |g: &[f64]| {
                (0..g.len()).fold(0, |best, i| if sign * g[i] > sign * g[best] { i } else { best })
            };
            let values = groups.iter().map(|g| first(g) as f64).collect();
            dims.remove(axis);
            let call = Call::new(op).array(&array, random.pick(NUMBERS));
            let call = call.scalar(written, random.pick(INDICES));
            call.attr("output_type", random.pick(INDICES)).gives(&Array { dims, values })
        });
    }
}

#[test]
fn running_sums_and_products() {
    for (op, start) in [("Cumsum", 0.0), ("Cumprod", 1.0)] {
        check(op, 80, |random| {
            let mut dims = random.dims(1, 4, 5);
            let (axis, written) = random.axis(dims.len());
            dims[axis] = dims[axis].min(100);
            let (exclusive, reverse) = (random.flag(), random.flag());
            // A long product of numbers other than one would overflow.
            let limit = if dims[axis] > 5 { 1 } else { 2 };
            let array = random.array(&dims, -limit, limit);
            let expected = Array::from_fn(&dims, |index| {
                let here = index[axis];
                let counts = |i: usize| {
                    (i == here && !exclusive) || if reverse { i > here } else { i < here }
                };
                (0..dims[axis]).filter(|&i| counts(i)).fold(start, |total, i| {
                    let mut at = index.to_vec();
                    at[axis] = i;
                    if start == 0.0 { total + array.at(&at) } else { total * array.at(&at) }
                })
            });
            let call = Call::new(op).array(&array, random.pick(NUMBERS));
            let call = call.scalar(written, random.pick(INDICES));
            call.attr("exclusive", exclusive).attr("reverse", reverse).gives(&expected)
        });
    }
}
