//! Slices, splitting and concatenation.

use thalweg_tensor::*;

use crate::array::Array;
use crate::harness::*;

#[test]
fn slices() {
    check("Slice", 100, |random| {
        let dims = random.dims(0, 5, 4);
        let array = Array::counting(&dims);
        let begin: Vec<usize> = dims.iter().map(|&d| random.size(0, d)).collect();
        let size: Vec<usize> =
            dims.iter().zip(&begin).map(|(&d, &b)| random.size(0, d - b)).collect();
        let mut written = signed(&size);
        for (i, w) in written.iter_mut().enumerate() {
            // A size of -1 extends to the end.
            if begin[i] + size[i] == dims[i] && random.flag() {
                *w = -1;
            }
        }
        let expected = Array::from_fn(&size, |index| {
            let at: Vec<usize> = index.iter().zip(&begin).map(|(i, b)| i + b).collect();
            array.at(&at)
        });
        let index_type = random.pick(INDICES);
        let call = Call::new("Slice").array(&array, random.pick(MOVABLE));
        call.sizes(&begin, index_type).ints(&written, index_type).gives(&expected)
    });
}

/// A strided slice specification.
#[derive(Default)]
struct Strided {
    begin: Vec<i64>,
    end: Vec<i64>,
    strides: Vec<i64>,
    begin_mask: i64,
    end_mask: i64,
    ellipsis_mask: i64,
    new_axis_mask: i64,
    shrink_axis_mask: i64,
    /// For each dimension of the input, the selected indices.
    taken: Vec<Vec<usize>>,
    /// Dimensions of the result.
    dims: Vec<usize>,
}

impl Strided {
    fn random(random: &mut Random, dims: &[usize]) -> Strided {
        let mut spec = Strided::default();
        // An ellipsis may cover any run of dimensions.
        let covered = random.size(0, dims.len());
        let explicit = dims.len() - covered;
        let ellipsis_at = random.flag().then(|| random.size(0, explicit));
        for i in 0..=explicit {
            while random.once_in(5) {
                spec.new_axis(random);
            }
            if ellipsis_at == Some(i) {
                spec.ellipsis(random, &dims[i..i + covered]);
            }
            if i < explicit {
                let skipped = if ellipsis_at.is_some_and(|at| at <= i) { covered } else { 0 };
                spec.dimension(random, dims[i + skipped]);
            }
        }
        if ellipsis_at.is_none() {
            spec.whole(&dims[explicit..]);
        }
        spec
    }

    /// The mask bit of the next entry.
    fn bit(&self) -> i64 {
        1 << self.begin.len()
    }

    fn place(&mut self, begin: i64, end: i64, stride: i64) {
        self.begin.push(begin);
        self.end.push(end);
        self.strides.push(stride);
    }

    /// An entry whose numbers are ignored.
    fn meaningless(&mut self, random: &mut Random) {
        let stride = random.pick(&[-2, -1, 1, 3]);
        self.idle_masks(random);
        self.place(random.between(-9, 9), random.between(-9, 9), stride);
    }

    /// Sets mask bits that have no effect.
    fn idle_masks(&mut self, random: &mut Random) {
        self.begin_mask |= if random.flag() { self.bit() } else { 0 };
        self.end_mask |= if random.flag() { self.bit() } else { 0 };
    }

    fn new_axis(&mut self, random: &mut Random) {
        self.new_axis_mask |= self.bit();
        self.shrink_axis_mask |= if random.flag() { self.bit() } else { 0 };
        self.meaningless(random);
        self.dims.push(1);
    }

    fn ellipsis(&mut self, random: &mut Random, dims: &[usize]) {
        self.ellipsis_mask |= self.bit();
        // If several mask bits are set, the ellipsis has precedence, then the new axis.
        self.new_axis_mask |= if random.flag() { self.bit() } else { 0 };
        self.shrink_axis_mask |= if random.flag() { self.bit() } else { 0 };
        self.meaningless(random);
        self.whole(dims);
    }

    fn whole(&mut self, dims: &[usize]) {
        self.dims.extend(dims);
        self.taken.extend(dims.iter().map(|&d| (0..d).collect::<Vec<_>>()));
    }

    fn dimension(&mut self, random: &mut Random, dim: usize) {
        let d = dim as i64;
        if dim > 0 && random.once_in(4) {
            self.shrink_axis_mask |= self.bit();
            let index = random.below(dim);
            self.idle_masks(random);
            self.place(random.signed(index, dim), random.between(-9, 9), 1);
            self.taken.push(vec![index]);
            return;
        }
        let stride = random.pick(&[-3, -2, -1, 1, 1, 2, 3]);
        let (begin, end) = (random.between(-d - 2, d + 2), random.between(-d - 2, d + 2));
        let (open_begin, open_end) = (random.once_in(3), random.once_in(3));
        self.begin_mask |= if open_begin { self.bit() } else { 0 };
        self.end_mask |= if open_end { self.bit() } else { 0 };
        self.place(begin, end, stride);
        let taken = sequence(d, (!open_begin).then_some(begin), (!open_end).then_some(end), stride);
        self.dims.push(taken.len());
        self.taken.push(taken);
    }
}

/// The elements of Python's `range(dim)[begin:end:stride]`.
fn sequence(dim: i64, begin: Option<i64>, end: Option<i64>, stride: i64) -> Vec<usize> {
    let (low, high) = if stride > 0 { (0, dim) } else { (-1, dim - 1) };
    let clamp = |i: i64| if i < 0 { i + dim } else { i }.clamp(low, high.max(low));
    let first = begin.map_or(if stride > 0 { low } else { high }, clamp);
    let end = end.map_or(if stride > 0 { high } else { low }, clamp);
    let mut taken = Vec::new();
    let mut i = first;
    while if stride > 0 { i < end } else { i > end } {
        taken.push(i as usize);
        i += stride;
    }
    taken
}

#[test]
fn strided_slices() {
    check("StridedSlice", 300, |random| {
        let dims = random.dims(0, 4, 5);
        let array = Array::counting(&dims);
        let spec = Strided::random(random, &dims);
        let counts: Vec<usize> = spec.taken.iter().map(Vec::len).collect();
        let expected = Array::from_fn(&counts, |index| {
            let at: Vec<usize> = index.iter().zip(&spec.taken).map(|(&i, t)| t[i]).collect();
            array.at(&at)
        });
        let index_type = random.pick(INDICES);
        let call = Call::new("StridedSlice").array(&array, random.pick(MOVABLE));
        let call = call.ints(&spec.begin, index_type).ints(&spec.end, index_type);
        let call = call.ints(&spec.strides, index_type);
        let call = call.attr("begin_mask", spec.begin_mask).attr("end_mask", spec.end_mask);
        let call = call.attr("ellipsis_mask", spec.ellipsis_mask);
        let call = call.attr("new_axis_mask", spec.new_axis_mask);
        let call = call.attr("shrink_axis_mask", spec.shrink_axis_mask);
        call.gives(&expected.reshaped(&spec.dims))
    });
}

#[test]
fn split_and_concat() {
    check("ConcatV2 of SplitV", 80, |random| {
        let mut dims = random.dims(1, 4, 4);
        let (axis, written) = random.axis(dims.len());
        let sizes: Vec<usize> = (0..random.size(2, 4)).map(|_| random.size(0, 3)).collect();
        dims[axis] = sizes.iter().sum();
        let whole = Array::counting(&dims);
        let mut asked = signed(&sizes);
        if random.flag() {
            let any = random.below(asked.len());
            asked[any] = -1;
        }
        let whole = whole.to_tensor(random.pick(MOVABLE));
        let call = Call::new("SplitV").tensor(whole.clone()).ints(&asked, random.pick(INDICES));
        let call = call.scalar(written, DType::Int32).attr("num_split", sizes.len() as i64);
        let parts = call.run()?;
        ensure!(parts.len() == sizes.len(), Internal, "{} parts, {}", parts.len(), call.describe());
        for (part, &size) in parts.iter().zip(&sizes) {
            dims[axis] = size;
            ensure!(part.shape().dims() == dims, Internal, "{part:?}, {}", call.describe());
        }
        let call = Call::new("ConcatV2").tensors(&parts).scalar(written, random.pick(INDICES));
        call.attr("N", sizes.len() as i64).gives_back(&whole)
    });
}

#[test]
fn concat() {
    check("ConcatV2", 60, |random| {
        let dims = random.dims(1, 4, 3);
        let (axis, written) = random.axis(dims.len());
        let dtype = random.pick(MOVABLE);
        let mut call = Call::new("ConcatV2");
        // The input index of each slice of the result.
        let (mut parts, mut origin) = (Vec::new(), Vec::new());
        for part in 0..random.size(2, 4) {
            let mut own = dims.clone();
            own[axis] = random.size(0, 3);
            origin.extend((0..own[axis]).map(|i| (part, i)));
            parts.push(random.array(&own, 0, 99));
            call = call.array(&parts[part], dtype);
        }
        let mut whole = dims.clone();
        whole[axis] = origin.len();
        let expected = Array::from_fn(&whole, |index| {
            let (part, i) = origin[index[axis]];
            let mut at = index.to_vec();
            at[axis] = i;
            parts[part].at(&at)
        });
        let call = call.scalar(written, random.pick(INDICES)).attr("N", parts.len() as i64);
        call.gives(&expected)
    });
}

#[test]
fn unpack_and_pack() {
    check("Pack of Unpack", 60, |random| {
        let mut dims = random.dims(1, 4, 4);
        let (axis, written) = random.axis(dims.len());
        dims[axis] = dims[axis].max(1);
        let array = Array::counting(&dims);
        let count = dims[axis] as i64;
        let whole = array.to_tensor(random.pick(MOVABLE));
        let call = Call::new("Unpack").tensor(whole.clone());
        let call = call.attr("num", count).attr("axis", written);
        let mut rest = dims.clone();
        rest.remove(axis);
        let slice = |i| {
            Array::from_fn(&rest, |index| {
                let mut at = index.to_vec();
                at.insert(axis, i);
                array.at(&at)
            })
        };
        call.all_give(&(0..dims[axis]).map(slice).collect::<Vec<_>>())?;
        let call = Call::new("Pack").tensors(&call.run()?).attr("N", count).attr("axis", written);
        call.gives_back(&whole)
    });
}
