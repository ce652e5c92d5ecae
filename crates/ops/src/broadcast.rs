//! Broadcasting under NumPy's rules.
//!
//! A [`Plan`] is made once per call, independently of dtypes. Adjacent dimensions in which all
//! operands have contiguous or constant strides are merged, so that the inner loop runs over long
//! rows in which each operand has stride 1 or 0.

use std::ops::Range;

use smallvec::SmallVec;
use thalweg_tensor::{Result, Shape, bail};

type Sizes = SmallVec<[usize; 4]>;

/// The shape to which all of these shapes broadcast.
pub(crate) fn broadcast_shape(shapes: &[&Shape]) -> Result<Shape> {
    let rank = shapes.iter().map(|s| s.rank()).max().unwrap_or(0);
    let mut sizes = Sizes::from_elem(1, rank);
    for shape in shapes {
        for (size, &own) in sizes[rank - shape.rank()..].iter_mut().zip(shape.iter()) {
            if *size == 1 {
                *size = own;
            } else if own != 1 && own != *size {
                let all: Vec<String> = shapes.iter().map(ToString::to_string).collect();
                bail!(InvalidArgument, "shapes {} do not broadcast together", all.join(" and "));
            }
        }
    }
    Shape::new(&sizes)
}

/// The iteration of `N` operands over one output.
pub(crate) struct Plan<const N: usize> {
    sizes: Sizes,
    /// Stride of each operand in each dimension, in elements; 0 where it is broadcast.
    strides: [Sizes; N],
}

impl<const N: usize> Plan<N> {
    /// `out` is the [`broadcast_shape`] of `operands`.
    pub(crate) fn new(out: &Shape, operands: [&Shape; N]) -> Self {
        let mut plan = Plan { sizes: Sizes::new(), strides: std::array::from_fn(|_| Sizes::new()) };
        let mut lens = [1usize; N];
        // From the innermost dimension outwards; `reverse` below restores the order.
        for d in (0..out.rank()).rev() {
            let size = out[d];
            if size == 1 {
                continue;
            }
            let from_end = out.rank() - d;
            let strides: [usize; N] = std::array::from_fn(|k| {
                let own = operands[k];
                let is_stretched = from_end > own.rank() || own[own.rank() - from_end] == 1;
                if is_stretched { 0 } else { lens[k] }
            });
            for (len, stride) in lens.iter_mut().zip(&strides) {
                if *stride != 0 {
                    *len *= size;
                }
            }
            plan.push(size, &strides);
        }
        if plan.sizes.is_empty() {
            plan.push(1, &[1; N]);
        }
        plan.sizes.reverse();
        plan.strides.iter_mut().for_each(|s| s.reverse());
        plan
    }

    /// Adds the next outer dimension, or merges it with the one before.
    fn push(&mut self, size: usize, strides: &[usize; N]) {
        if let Some(inner) = self.sizes.last_mut() {
            let merges = strides.iter().zip(&self.strides).all(|(&stride, own)| {
                own.last().is_some_and(|&inner_stride| stride == inner_stride * *inner)
            });
            if merges {
                *inner *= size;
                return;
            }
        }
        self.sizes.push(size);
        self.strides.iter_mut().zip(strides).for_each(|(own, &stride)| own.push(stride));
    }

    /// Elements per row.
    pub(crate) fn row_len(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    /// Stride of each operand within a row: 0 or 1.
    pub(crate) fn row_strides(&self) -> [usize; N] {
        std::array::from_fn(|k| self.strides[k][self.sizes.len() - 1])
    }

    /// Calls `body(offsets, position, len)` for the rows, or parts of rows, that make up the
    /// elements `range` of the output: the offset of each operand, the offset in the output, and
    /// the number of elements.
    #[inline]
    pub(crate) fn for_each_row(
        &self,
        range: Range<usize>,
        mut body: impl FnMut([usize; N], usize, usize),
    ) {
        let (row_len, row_strides) = (self.row_len(), self.row_strides());
        if range.is_empty() {
            return;
        }
        let outer = &self.sizes[..self.sizes.len() - 1];
        let mut index = Sizes::from_elem(0, outer.len());
        let mut rest = range.start / row_len;
        let mut base = [0usize; N];
        for d in (0..outer.len()).rev() {
            index[d] = rest % outer[d];
            rest /= outer[d];
            for (base, strides) in base.iter_mut().zip(&self.strides) {
                *base += index[d] * strides[d];
            }
        }
        let (mut position, mut column) = (range.start, range.start % row_len);
        loop {
            let len = (row_len - column).min(range.end - position);
            body(std::array::from_fn(|k| base[k] + column * row_strides[k]), position, len);
            position += len;
            if position == range.end {
                return;
            }
            column = 0;
            for d in (0..outer.len()).rev() {
                index[d] += 1;
                for (base, strides) in base.iter_mut().zip(&self.strides) {
                    *base += strides[d];
                }
                if index[d] < outer[d] {
                    break;
                }
                index[d] = 0;
                for (base, strides) in base.iter_mut().zip(&self.strides) {
                    *base -= outer[d] * strides[d];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn shape(text: &str) -> Shape {
        let sizes: Vec<usize> =
            text.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
        Shape::new(&sizes).unwrap()
    }

    #[test]
    fn shapes() {
        for (a, b, expected) in [
            ("2,3", "3", "[2,3]"),
            ("2,1", "1,3", "[2,3]"),
            ("", "4", "[4]"),
            ("0", "1", "[0]"),
            ("0", "", "[0]"),
            ("5,1,4", "7,1", "[5,7,4]"),
        ] {
            let (a, b) = (shape(a), shape(b));
            assert_eq!(broadcast_shape(&[&a, &b]).unwrap().to_string(), expected);
            assert_eq!(broadcast_shape(&[&b, &a]).unwrap().to_string(), expected);
        }
        assert_eq!(
            code(broadcast_shape(&[&shape("2,3"), &shape("2")])),
            Some(Code::InvalidArgument)
        );
        assert_eq!(code(broadcast_shape(&[&shape("0"), &shape("2")])), Some(Code::InvalidArgument));
        let large = shape("4294967296,1");
        assert_eq!(
            code(broadcast_shape(&[&large, &shape("1,4294967296")])),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn plans_merge_what_is_walked_alike() {
        for (a, b, sizes, rows) in [
            ("2,3,4", "2,3,4", "[24]", [1, 1]),
            ("2,3,4", "4", "[6, 4]", [1, 1]),
            ("2,3,4", "2,1,1", "[2, 12]", [1, 0]),
            ("2,3,4", "", "[24]", [1, 0]),
            ("1,1", "1", "[1]", [1, 1]),
            ("2,1,4", "1,3,1", "[2, 3, 4]", [1, 0]),
        ] {
            let (a, b) = (shape(a), shape(b));
            let out = broadcast_shape(&[&a, &b]).unwrap();
            let plan = Plan::new(&out, [&a, &b]);
            assert_eq!(format!("{:?}", plan.sizes), sizes);
            assert_eq!(plan.row_strides(), rows);
        }
    }

    /// Offset in an operand of the element of `out` at `position`, by definition.
    fn offset(out: &Shape, operand: &Shape, mut position: usize) -> usize {
        let (mut offset, mut len) = (0, 1);
        for d in (0..out.rank()).rev() {
            let i = position % out[d];
            position /= out[d];
            if let Some(own) = (d + operand.rank()).checked_sub(out.rank()) {
                offset += if operand[own] == 1 { 0 } else { i * len };
                len *= operand[own];
            }
        }
        offset
    }

    #[test]
    fn walks_agree_with_the_definition() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % below) as usize
        };
        for _ in 0..300 {
            let rank = random(6);
            let sizes: Vec<usize> = (0..rank).map(|_| 1 + random(3)).collect();
            let mut operand = || {
                let kept = random(rank as u64 + 1);
                let own: Vec<usize> = sizes[rank - kept..]
                    .iter()
                    .map(|&s| if random(3) == 0 { 1 } else { s })
                    .collect();
                Shape::new(&own).unwrap()
            };
            let (a, b) = (operand(), operand());
            let out = broadcast_shape(&[&a, &b]).unwrap();
            let plan = Plan::new(&out, [&a, &b]);
            let total = out.num_elements();
            let start = random(total as u64);
            let range = start..start + 1 + random((total - start) as u64);
            let mut next = range.start;
            plan.for_each_row(range.clone(), |offsets, position, len| {
                assert_eq!(position, next);
                for i in 0..len {
                    for (k, operand) in [&a, &b].iter().enumerate() {
                        let walked = offsets[k] + i * plan.row_strides()[k];
                        assert_eq!(walked, offset(&out, operand, position + i), "{a} {b}");
                    }
                }
                next += len;
            });
            assert_eq!(next, range.end);
        }
    }
}
