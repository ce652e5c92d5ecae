//! Indexing and slicing: positions, ranges, new axes and an ellipsis.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::dtype::TensorType;
use crate::output::Output;
use crate::tf;

/// What to take along one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The slice at this position, counted from the end if it is negative; the dimension goes.
    At(i64),
    /// The elements from `begin` to `end`, every `step`-th; `None` is the border.
    Range {
        /// The first position.
        begin: Option<i64>,
        /// The position at which the range ends.
        end: Option<i64>,
        /// Whether the element at `end` belongs to the range.
        is_inclusive: bool,
        /// The distance of two elements; negative steps go backward.
        step: i64,
    },
    /// A new dimension of size 1.
    NewAxis,
    /// All dimensions that no other part is for.
    Ellipsis,
}

/// A new dimension of size 1 in an index.
pub fn new_axis() -> Part {
    Part::NewAxis
}

/// All dimensions of an index that no other part is for.
pub fn ellipsis() -> Part {
    Part::Ellipsis
}

/// Every `step`-th element of a range: `stepped(.., -1)` reverses, and `stepped(5..=2, -1)` are the
/// elements 5, 4, 3 and 2.
pub fn stepped(range: impl Into<Part>, step: i64) -> Part {
    match range.into() {
        Part::Range { begin, end, is_inclusive, .. } => {
            Part::Range { begin, end, is_inclusive, step }
        }
        other => other,
    }
}

/// Positions as signed numbers.
macro_rules! parts {
    ($($t:ty),+) => { $(
        impl From<$t> for Part {
            fn from(at: $t) -> Part {
                Part::At(position(at))
            }
        }

        impl From<Range<$t>> for Part {
            fn from(range: Range<$t>) -> Part {
                between(Some(position(range.start)), Some(position(range.end)))
            }
        }

        impl From<RangeFrom<$t>> for Part {
            fn from(range: RangeFrom<$t>) -> Part {
                between(Some(position(range.start)), None)
            }
        }

        impl From<RangeTo<$t>> for Part {
            fn from(range: RangeTo<$t>) -> Part {
                between(None, Some(position(range.end)))
            }
        }

        impl From<RangeInclusive<$t>> for Part {
            fn from(range: RangeInclusive<$t>) -> Part {
                through(Some(position(*range.start())), position(*range.end()))
            }
        }

        impl From<RangeToInclusive<$t>> for Part {
            fn from(range: RangeToInclusive<$t>) -> Part {
                through(None, position(range.end))
            }
        }
    )+ };
}

parts!(i32, i64, usize);

impl From<RangeFull> for Part {
    fn from(_: RangeFull) -> Part {
        between(None, None)
    }
}

/// A position that `i64` cannot hold is behind the end of any tensor.
fn position(at: impl TryInto<i64>) -> i64 {
    at.try_into().unwrap_or(i64::MAX)
}

fn between(begin: Option<i64>, end: Option<i64>) -> Part {
    Part::Range { begin, end, is_inclusive: false, step: 1 }
}

fn through(begin: Option<i64>, last: i64) -> Part {
    Part::Range { begin, end: Some(last), is_inclusive: true, step: 1 }
}

/// The position behind `last` in the direction of `step`; behind the border there is none.
fn after(last: i64, step: i64) -> Option<i64> {
    let border = if step < 0 { 0 } else { -1 };
    (last != border).then(|| last.saturating_add(if step < 0 { -1 } else { 1 }))
}

/// An index: one part, a tuple of them, or a list.
pub trait Index {
    /// The parts, in the order of the dimensions.
    fn into_parts(self) -> Vec<Part>;
}

impl Index for Vec<Part> {
    fn into_parts(self) -> Vec<Part> {
        self
    }
}

impl Index for &[Part] {
    fn into_parts(self) -> Vec<Part> {
        self.to_vec()
    }
}

macro_rules! single {
    ($($t:ty),+) => { $(
        impl Index for $t {
            fn into_parts(self) -> Vec<Part> {
                vec![self.into()]
            }
        }
    )+ };
}

single!(
    Part,
    RangeFull,
    i32,
    i64,
    usize,
    Range<i32>,
    Range<i64>,
    Range<usize>,
    RangeFrom<i32>,
    RangeFrom<i64>,
    RangeFrom<usize>,
    RangeTo<i32>,
    RangeTo<i64>,
    RangeTo<usize>,
    RangeInclusive<i32>,
    RangeInclusive<usize>,
    RangeToInclusive<i32>,
    RangeToInclusive<usize>
);

macro_rules! tuple {
    ($($p:ident $_p:ident $i:tt),+) => {
        impl<$($p: Into<Part>),+> Index for ($($p,)+) {
            fn into_parts(self) -> Vec<Part> {
                vec![$(self.$i.into()),+]
            }
        }
    };
}

for_tuples!(tuple);

impl<T: TensorType> Output<T> {
    /// A part of the tensor (a strided slice): positions, ranges, [`new_axis`], [`ellipsis`] and
    /// [`stepped`] ranges. Dimensions without a part are taken whole.
    ///
    /// ```
    /// use thalweg_api::{Graph, ellipsis, stepped};
    /// # fn main() -> thalweg_api::Result<()> {
    /// let g = Graph::new();
    /// let x = g.constant([[1, 2, 3], [4, 5, 6]]);
    /// let (row, corner) = (x.index(-1), x.index((.., 1..)));
    /// let (column, backward) = (x.index((ellipsis(), 0)), x.index((0, stepped(.., -1))));
    /// let session = g.session()?;
    /// let parts: ([i32; 3], [[i32; 2]; 2], [i32; 2], [i32; 3]) =
    ///     session.run((&row, &corner, &column, &backward), (), &[])?;
    /// assert_eq!(parts, ([4, 5, 6], [[2, 3], [5, 6]], [1, 4], [3, 2, 1]));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[must_use]
    pub fn index(&self, index: impl Index) -> Output<T> {
        let parts = index.into_parts();
        let (mut begin, mut end, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut begin_mask, mut end_mask, mut new, mut shrink, mut dots) = (0, 0, 0, 0, 0);
        for (i, part) in parts.iter().enumerate() {
            // More parts than a mask has bits are more than a tensor has dimensions.
            let bit = 1i64.checked_shl(i as u32).unwrap_or(0);
            let (first, last, step) = match *part {
                Part::At(at) => {
                    shrink |= bit;
                    // After the last element there is no position 0.
                    end_mask |= if at == -1 { bit } else { 0 };
                    (at, at.saturating_add(1), 1)
                }
                Part::Range { begin, end, is_inclusive, step } => {
                    let end =
                        if is_inclusive { end.and_then(|last| after(last, step)) } else { end };
                    begin_mask |= if begin.is_none() { bit } else { 0 };
                    end_mask |= if end.is_none() { bit } else { 0 };
                    (begin.unwrap_or(0), end.unwrap_or(0), step)
                }
                Part::NewAxis => {
                    new |= bit;
                    (0, 0, 1)
                }
                Part::Ellipsis => {
                    dots |= bit;
                    (0, 0, 1)
                }
            };
            begin.push(first);
            end.push(last);
            steps.push(step);
        }
        tf::StridedSlice::new()
            .begin_mask(begin_mask)
            .end_mask(end_mask)
            .new_axis_mask(new)
            .shrink_axis_mask(shrink)
            .ellipsis_mask(dots)
            .build(self, begin, end, steps)
    }
}
