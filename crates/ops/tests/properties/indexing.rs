//! Gathering, scattering and one-hot vectors.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

#[test]
fn gathers() {
    check("GatherV2", 100, |random| {
        let mut dims = random.dims(1, 4, 4);
        let axis = random.below(dims.len());
        dims[axis] = dims[axis].max(1);
        let batch_dims = random.size(0, axis);
        let own = random.dims(0, 2, 3);
        let index_dims = [&dims[..batch_dims], &own[..]].concat();
        let picks = random.array(&index_dims, 0, dims[axis] as i64 - 1);
        let array = Array::counting(&dims);
        let result = [&dims[..axis], &own[..], &dims[axis + 1..]].concat();
        let expected = Array::from_fn(&result, |index| {
            let (outer, rest) = index.split_at(axis);
            let (inner, rest) = rest.split_at(own.len());
            let pick = picks.at(&[&outer[..batch_dims], inner].concat()) as usize;
            array.at(&[outer, &[pick], rest].concat())
        });
        let call = Call::new("GatherV2").array(&array, random.pick(MOVABLE));
        let call = call.array(&picks, random.pick(INDICES));
        let call = call.scalar(random.signed(axis, dims.len()), random.pick(INDICES));
        let batch = if random.flag() && batch_dims > 0 {
            batch_dims as i64 - index_dims.len() as i64
        } else {
            batch_dims as i64
        };
        // A negative `batch_dims` counts from the rank of the indices and cannot be zero.
        let batch = if batch == 0 { batch_dims as i64 } else { batch };
        call.attr("batch_dims", batch).gives(&expected)
    });
}

/// The combination of an element and its update.
type Join = fn(f64, f64) -> f64;

/// Nonzero dimensions, the number of them that an index covers, and an array of such indices.
struct Points {
    dims: Vec<usize>,
    depth: usize,
    outer: Vec<usize>,
    points: Array,
}

impl Points {
    fn random(random: &mut Random) -> Points {
        let dims: Vec<usize> = (0..random.size(1, 4)).map(|_| random.size(1, 4)).collect();
        let depth = random.size(1, dims.len());
        let outer = random.few_dims(1, 2, 4);
        let index_dims = [&outer[..], &[depth]].concat();
        let points =
            Array::from_fn(&index_dims, |index| random.below(dims[index[outer.len()]]) as f64);
        Points { dims, depth, outer, points }
    }

    /// Distinct points.
    fn distinct(random: &mut Random) -> Points {
        let mut points = Points::random(random);
        let mut all = indices(&points.dims[..points.depth]);
        random.shuffle(&mut all);
        all.truncate(random.size(0, all.len()));
        points.outer = vec![all.len()];
        points.points = Array::vector(&signed(&all.concat())).reshaped(&[all.len(), points.depth]);
        points
    }

    /// Dimensions of the slices at the points.
    fn slices(&self) -> Vec<usize> {
        [&self.outer[..], &self.dims[self.depth..]].concat()
    }

    /// The index in the whole array of an element of the slices.
    fn target(&self, index: &[usize]) -> Vec<usize> {
        let (outer, rest) = index.split_at(self.outer.len());
        let coordinate = |i| self.points.at(&[outer, &[i]].concat()) as usize;
        let point: Vec<usize> = (0..self.depth).map(coordinate).collect();
        [&point[..], rest].concat()
    }

    /// `whole` with every update combined with its element.
    fn scatter(&self, whole: &Array, updates: &Array, join: Join) -> Array {
        let mut result = whole.clone();
        for index in indices(&updates.dims) {
            let there = result.at_mut(&self.target(&index));
            *there = join(*there, updates.at(&index));
        }
        result
    }
}

#[test]
fn gathers_points() {
    check("GatherNd", 80, |random| {
        let points = Points::random(random);
        let array = Array::counting(&points.dims);
        let expected = Array::from_fn(&points.slices(), |index| array.at(&points.target(index)));
        let call = Call::new("GatherNd").array(&array, random.pick(MOVABLE));
        call.array(&points.points, random.pick(INDICES)).gives(&expected)
    });
}

#[test]
fn scatters_into_zeros() {
    check("ScatterNd", 80, |random| {
        let points = Points::random(random);
        let updates = random.array(&points.slices(), -3, 3);
        let zeros = Array::filled(&points.dims, 0.0);
        let expected = points.scatter(&zeros, &updates, |a, b| a + b);
        let index_type = random.pick(INDICES);
        let call = Call::new("ScatterNd").array(&points.points, index_type);
        let call = call.array(&updates, random.pick(NUMBERS));
        call.sizes(&points.dims, index_type).gives(&expected)
    });
}

#[test]
fn scatters_into_a_tensor() {
    let joins: [(&str, Join); 4] = [
        ("TensorScatterAdd", |a, b| a + b),
        ("TensorScatterSub", |a, b| a - b),
        ("TensorScatterMax", f64::max),
        ("TensorScatterMin", f64::min),
    ];
    for (op, join) in joins {
        check(op, 50, |random| {
            let points = Points::random(random);
            let whole = random.array(&points.dims, -9, 9);
            let updates = random.array(&points.slices(), -3, 3);
            let dtype = random.pick(NUMBERS);
            let call = Call::new(op).array(&whole, dtype);
            let call = call.array(&points.points, random.pick(INDICES)).array(&updates, dtype);
            call.gives(&points.scatter(&whole, &updates, join))
        });
    }
}

/// Gathering distinct points after a scatter returns the updates; other elements are unchanged.
#[test]
fn gathers_what_it_scattered() {
    check("GatherNd of TensorScatterUpdate", 60, |random| {
        let points = Points::distinct(random);
        let whole = Array::counting(&points.dims);
        let updates = random.array(&points.slices(), 100, 120);
        let (dtype, index_type) = (random.pick(MOVABLE), random.pick(INDICES));
        let given = updates.to_tensor(dtype);
        let call = Call::new("TensorScatterUpdate").array(&whole, dtype);
        let call = call.array(&points.points, index_type).tensor(given.clone());
        call.gives(&points.scatter(&whole, &updates, |_, b| b))?;
        let call = Call::new("GatherNd").tensor(call.output()?);
        call.array(&points.points, index_type).gives_back(&given)
    });
}

#[test]
fn one_hot() {
    check("OneHot", 60, |random| {
        let dims = random.dims(0, 3, 4);
        let depth = random.size(0, 5);
        // Indices out of range give rows without a one.
        let hot = random.array(&dims, -1, 5);
        let axis = random.size(0, dims.len());
        let mut result = dims.clone();
        result.insert(axis, depth);
        let expected = Array::from_fn(&result, |index| {
            let mut at = index.to_vec();
            let place = at.remove(axis);
            if hot.at(&at) == place as f64 { 3.0 } else { 1.0 }
        });
        let written = if axis == dims.len() && random.flag() { -1 } else { axis as i64 };
        let dtype = random.pick(MOVABLE);
        let call = Call::new("OneHot").array(&hot, random.pick(INDICES));
        let call = call.scalar(depth as i64, DType::Int32);
        call.scalar(3, dtype).scalar(1, dtype).attr("axis", written).gives(&expected)
    });
}
