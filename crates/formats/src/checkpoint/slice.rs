//! Tensor slices: a start and a length per dimension.

use std::fmt;
use std::ops::Range;

use thalweg_proto::{TensorSliceProto, tensor_slice_proto};
use thalweg_tensor::{RANK_MAX, Result, Shape, bail, ensure, err};

/// The extent of a slice in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// The start.
    pub start: usize,
    /// The length; `None` for the whole dimension.
    pub length: Option<usize>,
}

impl Extent {
    /// The whole dimension.
    pub const FULL: Extent = Extent { start: 0, length: None };
}

/// A slice of a tensor: an [`Extent`] per dimension. As text, `0,2:-` is rows 0 and 1 and all
/// columns of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slice {
    extents: Vec<Extent>,
}

impl Slice {
    /// A slice with these extents.
    pub fn new(extents: Vec<Extent>) -> Slice {
        Slice { extents }
    }

    /// The full slice of this rank.
    pub fn full(rank: usize) -> Slice {
        Slice { extents: vec![Extent::FULL; rank] }
    }

    /// One extent per dimension.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.extents.len()
    }

    /// Whether every extent is the whole dimension.
    pub fn is_full(&self) -> bool {
        self.extents.iter().all(|extent| extent.length.is_none())
    }

    /// Parses a slice: `-` or `start,length` per dimension, separated by `:`.
    pub fn parse(text: &str) -> Result<Slice> {
        let mut extents = Vec::new();
        if text.is_empty() {
            return Ok(Slice { extents });
        }
        for part in text.split(':') {
            ensure!(
                extents.len() < RANK_MAX,
                InvalidArgument,
                "slice '{}' has more than {RANK_MAX} dimensions",
                shown(text)
            );
            extents.push(parse_extent(part, text)?);
        }
        Ok(Slice { extents })
    }

    /// Parses a `shape_and_slice` argument: the shape of the whole tensor and the slice, for
    /// instance `4 5 0,2:-`. The caller handles the empty text, which means a whole tensor.
    pub fn parse_spec(spec: &str) -> Result<(Shape, Slice)> {
        let Some((sizes, slice)) = spec.trim_end_matches(' ').rsplit_once(' ') else {
            bail!(
                InvalidArgument,
                "'{}' must be sizes and a slice, as in '4 5 0,2:-'",
                shown(spec)
            );
        };
        let mut dims = Vec::new();
        for size in sizes.split(' ').filter(|size| !size.is_empty()) {
            let size: i64 = size.parse().map_err(|_| {
                err!(InvalidArgument, "'{}' is not a dimension, in '{}'", shown(size), shown(spec))
            })?;
            dims.push(size);
        }
        let (shape, slice) = (Shape::from_i64(&dims)?, Slice::parse(slice)?);
        slice.ranges(&shape)?;
        Ok((shape, slice))
    }

    /// The index range of each dimension. A slice that does not fit is an internal error in
    /// TensorFlow.
    pub fn ranges(&self, shape: &Shape) -> Result<Vec<Range<usize>>> {
        ensure!(
            self.rank() == shape.rank(),
            Internal,
            "A slice is outside its shape: '{self}' and {shape} differ in rank"
        );
        let mut ranges = Vec::with_capacity(self.rank());
        for (extent, &size) in self.extents.iter().zip(shape.dims()) {
            let range = match extent.length {
                None => Some(0..size),
                Some(length) => extent
                    .start
                    .checked_add(length)
                    .filter(|&end| end <= size)
                    .map(|end| extent.start..end),
            };
            let Some(range) = range else {
                bail!(Internal, "A slice is outside its shape: '{self}' of {shape}");
            };
            ranges.push(range);
        }
        Ok(ranges)
    }

    /// The shape of this slice of a tensor of this shape.
    pub fn shape_in(&self, shape: &Shape) -> Result<Shape> {
        Shape::new(&self.ranges(shape)?.iter().map(Range::len).collect::<Vec<_>>())
    }

    /// The slice of a message.
    pub fn from_proto(proto: &TensorSliceProto) -> Result<Slice> {
        use tensor_slice_proto::extent::HasLengthHack::Length;
        let mut extents = Vec::with_capacity(proto.extent.len());
        for extent in &proto.extent {
            let length = extent.has_length_hack.map(|Length(length)| usize::try_from(length));
            let (Ok(start), Ok(length)) = (usize::try_from(extent.start), length.transpose())
            else {
                bail!(InvalidArgument, "a slice begins or ends before its tensor");
            };
            extents.push(Extent { start: if length.is_some() { start } else { 0 }, length });
        }
        Ok(Slice { extents })
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> TensorSliceProto {
        use tensor_slice_proto::{Extent as Proto, extent::HasLengthHack::Length};
        let extent = |e: &Extent| Proto {
            start: e.length.map_or(0, |_| i64::try_from(e.start).unwrap_or(i64::MAX)),
            has_length_hack: e.length.map(|n| Length(i64::try_from(n).unwrap_or(i64::MAX))),
        };
        TensorSliceProto { extent: self.extents.iter().map(extent).collect() }
    }
}

/// The beginning of a text, for error messages.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

fn parse_extent(part: &str, text: &str) -> Result<Extent> {
    if part == "-" {
        return Ok(Extent::FULL);
    }
    let pair = part.split_once(',').and_then(|(start, length)| {
        Some((start.parse::<i64>().ok()?, length.parse::<i64>().ok()?))
    });
    let Some((start, length)) = pair else {
        bail!(
            InvalidArgument,
            "'{}' must be '-' or a start and a length, in slice '{}'",
            shown(part),
            shown(text)
        );
    };
    match (usize::try_from(start), usize::try_from(length)) {
        (Ok(start), Ok(length)) if length > 0 => Ok(Extent { start, length: Some(length) }),
        _ => bail!(
            InvalidArgument,
            "'{}' must begin at 0 or later and not be empty, in slice '{}'",
            shown(part),
            shown(text)
        ),
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.extents.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ":" })?;
            match extent.length {
                None => f.write_str("-")?,
                Some(length) => write!(f, "{},{length}", extent.start)?,
            }
        }
        Ok(())
    }
}

/// The intersection of two slices of one tensor, if it is not empty.
pub(super) fn overlap(a: &[Range<usize>], b: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
    let both = |(a, b): (&Range<usize>, &Range<usize>)| a.start.max(b.start)..a.end.min(b.end);
    let common: Vec<Range<usize>> = a.iter().zip(b).map(both).collect();
    common.iter().all(|range| !range.is_empty()).then_some(common)
}

/// The number of elements of a slice.
pub(super) fn volume(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).product()
}

/// Calls `copy(source element, target element, count)` for every run of elements of `common` that
/// is contiguous in both the slice `source` and the slice `target` of one tensor.
pub(super) fn for_each_run(
    source: &[Range<usize>],
    target: &[Range<usize>],
    common: &[Range<usize>],
    mut copy: impl FnMut(usize, usize, usize),
) {
    if common.iter().any(Range::is_empty) {
        return;
    }
    // Trailing dimensions that both parts have completely are contiguous.
    let mut inner = common.len();
    let mut run = 1;
    while inner > 0 {
        inner -= 1;
        run *= common[inner].len();
        if common[inner] != source[inner] || common[inner] != target[inner] {
            break;
        }
    }
    let mut index: Vec<usize> = common.iter().map(|range| range.start).collect();
    let place = |part: &[Range<usize>], index: &[usize]| {
        part.iter().zip(index).fold(0, |at, (range, i)| at * range.len() + (i - range.start))
    };
    loop {
        copy(place(source, &index), place(target, &index), run);
        let mut axis = inner;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < common[axis].end {
                break;
            }
            index[axis] = common[axis].start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Code;

    #[test]
    fn specs() {
        let (shape, slice) = Slice::parse_spec("4 5 0,2:-").unwrap();
        assert_eq!((shape.dims(), slice.to_string().as_str()), (&[4, 5][..], "0,2:-"));
        assert_eq!(slice.shape_in(&shape).unwrap().dims(), [2, 5]);
        assert_eq!(Slice::parse_spec("3 - ").unwrap().1, Slice::full(1));
        for (spec, code) in [
            ("x", Code::InvalidArgument),
            ("3 a", Code::InvalidArgument),
            ("a 0,1", Code::InvalidArgument),
            ("-3 0,1", Code::InvalidArgument),
            ("3 -1,2", Code::InvalidArgument),
            ("3 0,0", Code::InvalidArgument),
            ("3 0,1,2", Code::InvalidArgument),
            ("3 2,2", Code::Internal),
            ("3 1,2:-", Code::Internal),
            ("3 9223372036854775807,9223372036854775807", Code::Internal),
        ] {
            assert_eq!(Slice::parse_spec(spec).unwrap_err().code(), code, "{spec}");
        }
    }

    #[test]
    fn messages() {
        for text in ["0,2:-", "-:-", "7,1", ""] {
            let slice = Slice::parse(text).unwrap();
            assert_eq!(Slice::from_proto(&slice.to_proto()).unwrap(), slice);
            assert_eq!(slice.to_string(), text);
        }
        let mut proto = Slice::parse("7,1").unwrap().to_proto();
        proto.extent[0].start = -1;
        assert_eq!(Slice::from_proto(&proto).err().map(|e| e.code()), Some(Code::InvalidArgument));
    }

    #[test]
    fn runs_copy_what_is_common() {
        // Element [r, c, k] of a tensor [4, 3, 2] is 100 r + 10 c + k.
        let shape = Shape::new(&[4, 3, 2]).unwrap();
        let numbers = |ranges: &[Range<usize>]| -> Vec<usize> {
            let mut all = Vec::new();
            for r in ranges[0].clone() {
                for c in ranges[1].clone() {
                    all.extend(ranges[2].clone().map(|k| 100 * r + 10 * c + k));
                }
            }
            all
        };
        let slices = ["-:-:-", "1,2:-:-", "0,4:1,2:-", "2,2:0,1:1,1", "3,1:2,1:0,2", "-:-:1,1"];
        for source in slices {
            for target in slices {
                let [s, t] =
                    [source, target].map(|x| Slice::parse(x).unwrap().ranges(&shape).unwrap());
                let (from, wanted) = (numbers(&s), numbers(&t));
                let mut got = vec![usize::MAX; wanted.len()];
                let mut copied = 0;
                let common = overlap(&s, &t);
                if let Some(common) = &common {
                    for_each_run(&s, &t, common, |a, b, n| {
                        got[b..b + n].copy_from_slice(&from[a..a + n]);
                        copied += n;
                    });
                }
                assert_eq!(copied, common.map_or(0, |c| volume(&c)), "{source} {target}");
                for (got, wanted) in got.iter().zip(&wanted) {
                    let is_there = from.contains(wanted);
                    assert_eq!(*got, if is_there { *wanted } else { usize::MAX });
                }
            }
        }
        let mut copies = 0;
        for_each_run(&[], &[], &[], |a, b, n| copies += usize::from((a, b, n) == (0, 0, 1)));
        assert_eq!(copies, 1);
    }
}
