//! Assembly of tensors from stored slices.

use std::ops::Range;
use std::sync::Arc;

use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, ensure};

use super::slice::{for_each_run, overlap, volume};

/// The maximum number of slice comparisons, against hostile indexes.
const COMPARISONS_MAX: usize = 4_000_000;

/// The extent of a slice: a range per dimension.
pub(super) type Ranges = Vec<Range<usize>>;

/// Fails if slices overlap: it would be undefined which value counts.
pub(super) fn check_disjoint(pieces: &[Ranges]) -> Result<()> {
    let Some(first) = pieces.first() else { return Ok(()) };
    // Sorted along a dimension in which slices differ, few pairs need a comparison.
    let is_cut = |axis: &usize| pieces.iter().any(|ranges| ranges[*axis] != first[*axis]);
    let axis = (0..first.len()).find(is_cut);
    let mut sorted: Vec<&Ranges> = pieces.iter().collect();
    if let Some(axis) = axis {
        sorted.sort_by_key(|ranges| ranges[axis].start);
    }
    let mut comparisons = 0;
    for (i, a) in sorted.iter().enumerate() {
        for b in &sorted[i + 1..] {
            if axis.is_some_and(|axis| b[axis].start >= a[axis].end) {
                break;
            }
            comparisons += 1;
            ensure!(
                comparisons < COMPARISONS_MAX,
                ResourceExhausted,
                "it has too many slices to compare"
            );
            ensure!(!have_common(a, b), DataLoss, "two of its slices overlap");
        }
    }
    Ok(())
}

fn have_common(a: &Ranges, b: &Ranges) -> bool {
    a.iter().zip(b).all(|(a, b)| a.start.max(b.start) < a.end.min(b.end))
}

/// The slices, which do not overlap, that intersect the requested part; fails if they do not cover
/// it.
pub(super) fn covering(pieces: &[Ranges], wanted: &Ranges) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    let mut covered = 0;
    for (i, ranges) in pieces.iter().enumerate() {
        if let Some(common) = overlap(ranges, wanted) {
            covered += volume(&common);
            found.push(i);
        }
    }
    ensure!(
        covered == volume(wanted),
        InvalidArgument,
        "its slices in the checkpoint cover only {covered} of the {} requested elements",
        volume(wanted)
    );
    Ok(found)
}

/// The shape of a slice.
pub(super) fn shape_of(ranges: &Ranges) -> Result<Shape> {
    Shape::new(&ranges.iter().map(Range::len).collect::<Vec<_>>())
}

/// Assembles the part `wanted` of a tensor from `pieces` that cover it; `read(i)` reads the i-th of
/// them.
pub(super) fn assemble(
    dtype: DType,
    wanted: &Ranges,
    pieces: &[&Ranges],
    budget: Option<&Arc<Budget>>,
    read: &dyn Fn(usize) -> Result<Tensor>,
) -> Result<Tensor> {
    let shape = shape_of(wanted)?;
    match dtype {
        DType::String => {
            let mut tensor = Tensor::zeros_in(dtype, shape, budget)?;
            for (i, ranges) in pieces.iter().enumerate() {
                copy(ranges, wanted, read(i)?.strings()?, tensor.strings_mut()?, 1);
            }
            Ok(tensor)
        }
        DType::Variant => {
            let mut tensor = Tensor::zeros_in(dtype, shape, budget)?;
            for (i, ranges) in pieces.iter().enumerate() {
                copy(ranges, wanted, read(i)?.variants()?, tensor.variants_mut()?, 1);
            }
            Ok(tensor)
        }
        _ => Tensor::filled_with(dtype, shape, budget, |target| {
            for (i, ranges) in pieces.iter().enumerate() {
                copy(ranges, wanted, read(i)?.as_bytes()?, target, dtype.size());
            }
            Ok(())
        }),
    }
}

/// Copies the elements, of `size` bytes each, in the intersection of two slices.
pub(super) fn copy<T: Clone>(
    source_ranges: &Ranges,
    target_ranges: &Ranges,
    source: &[T],
    target: &mut [T],
    size: usize,
) {
    let Some(common) = overlap(source_ranges, target_ranges) else { return };
    for_each_run(source_ranges, target_ranges, &common, |from, to, count| {
        target[to * size..(to + count) * size]
            .clone_from_slice(&source[from * size..(from + count) * size]);
    });
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn overlaps_are_seen() {
        let [a, b, c] = [vec![0..2, 0..3], vec![2..4, 0..3], vec![1..3, 1..2]];
        assert!(check_disjoint(&[b.clone(), a.clone()]).is_ok());
        assert_eq!(
            check_disjoint(&[a.clone(), c.clone(), b.clone()]).err().map(|e| e.code()),
            Some(Code::DataLoss)
        );
        assert_eq!(
            check_disjoint(&[a.clone(), a.clone()]).err().map(|e| e.code()),
            Some(Code::DataLoss)
        );
        assert_eq!(check_disjoint(&[vec![], vec![]]).err().map(|e| e.code()), Some(Code::DataLoss));
        assert!(check_disjoint(&[]).is_ok());
        let whole = vec![0..4, 0..3];
        assert_eq!(covering(&[a.clone(), b.clone()], &whole).unwrap(), [0, 1]);
        assert_eq!(covering(&[a.clone(), b], &vec![3..4, 1..2]).unwrap(), [1]);
        assert_eq!(covering(&[a], &whole).err().map(|e| e.code()), Some(Code::InvalidArgument));
    }

    #[test]
    fn many_slices_along_one_dimension_are_quick() {
        let rows: Vec<Ranges> = (0..200_000).map(|i| vec![i..i + 1, 0..3]).collect();
        check_disjoint(&rows).unwrap();
        let grid: Vec<Ranges> =
            (0..40_000).map(|i| vec![0..3, i % 7..i % 7 + 1, i..i + 1]).collect();
        let refused = check_disjoint(&grid).map_err(|e| e.code());
        assert_eq!(refused, Err(Code::ResourceExhausted));
    }
}
