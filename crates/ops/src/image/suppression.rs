//! Non-maximum suppression.

use std::collections::BinaryHeap;

use half::f16;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::pixels::as_floats;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        NON_MAX_SUPPRESSION.without_gradient(),
        NON_MAX_SUPPRESSION_V2.without_gradient(),
        NON_MAX_SUPPRESSION_V3,
        NON_MAX_SUPPRESSION_V4,
        OpDef::new("NonMaxSuppressionV5", selected_shape).with_work(Work::serial::<20>),
        NON_MAX_SUPPRESSION_WITH_OVERLAPS.without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "NonMaxSuppression", create: suppress, ..KernelSpec::CPU },
        boxes_kernel("NonMaxSuppressionV2"),
        boxes_kernel("NonMaxSuppressionV3"),
        boxes_kernel("NonMaxSuppressionV4"),
        boxes_kernel("NonMaxSuppressionV5"),
        KernelSpec {
            op: "NonMaxSuppressionWithOverlaps",
            create: suppress_with_overlaps,
            ..KernelSpec::CPU
        },
    ],
};

const fn boxes_kernel(op: &'static str) -> KernelSpec {
    KernelSpec {
        op,
        constraints: &[("T", &[DType::Half, DType::Float])],
        create: suppress,
        ..KernelSpec::CPU
    }
}

const NON_MAX_SUPPRESSION: OpDef =
    OpDef::new("NonMaxSuppression", selected_shape).with_work(Work::serial::<20>);

const NON_MAX_SUPPRESSION_V2: OpDef = OpDef { name: "NonMaxSuppressionV2", ..NON_MAX_SUPPRESSION };

const NON_MAX_SUPPRESSION_V3: OpDef =
    OpDef { name: "NonMaxSuppressionV3", ..NON_MAX_SUPPRESSION_V2 };

const NON_MAX_SUPPRESSION_V4: OpDef =
    OpDef { name: "NonMaxSuppressionV4", ..NON_MAX_SUPPRESSION_V3 };

const NON_MAX_SUPPRESSION_WITH_OVERLAPS: OpDef =
    OpDef::new("NonMaxSuppressionWithOverlaps", overlaps_shape).with_work(Work::serial::<20>);

fn selected_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let boxes = c.with_rank(0, "boxes", 2)?;
    let scores = c.with_rank(1, "scores", 1)?;
    for i in 2..c.num_inputs() {
        c.with_rank(i, "max_output_size and thresholds", 0)?;
    }
    PartialShape::new([boxes.dim(0)]).merge(&scores)?;
    ensure!(
        boxes.dim(1).is_none_or(|n| n == 4),
        InvalidArgument,
        "boxes must have 4 columns, got shape {boxes}"
    );
    let attrs = c.attrs();
    let is_padded =
        attrs.get("pad_to_max_output_size").is_some() && attrs.bool("pad_to_max_output_size")?;
    let padded = if is_padded { c.partial_value(2).and_then(|v| v.first()) } else { None };
    let size = padded.and_then(|n| usize::try_from(n).ok());
    c.set_output(0, PartialShape::new([size]));
    let last = c.num_outputs() - 1;
    if last == 2 {
        c.set_output(1, PartialShape::new([size]));
    }
    if last > 0 {
        c.set_output(last, PartialShape::scalar());
    }
    Ok(())
}

fn overlaps_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let overlaps = c.with_rank(0, "overlaps", 2)?;
    let scores = c.with_rank(1, "scores", 1)?;
    for (i, name) in [(2, "max_output_size"), (3, "overlap_threshold"), (4, "score_threshold")] {
        c.with_rank(i, name, 0)?;
    }
    let rows = PartialShape::new([overlaps.dim(0)]).merge(&scores)?;
    rows.merge(&PartialShape::new([overlaps.dim(1)]))?;
    c.set_output(0, PartialShape::new([None]));
    Ok(())
}

/// Intersection over union of two boxes (y1, x1, y2, x2; any two opposite corners).
pub(crate) fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let sides = |x: &[f32; 4]| [x[0].min(x[2]), x[1].min(x[3]), x[0].max(x[2]), x[1].max(x[3])];
    let (a, b) = (sides(a), sides(b));
    let area = |x: &[f32; 4]| (x[2] - x[0]) * (x[3] - x[1]);
    let (area_a, area_b) = (area(&a), area(&b));
    if area_a <= 0.0 || area_b <= 0.0 {
        return 0.0;
    }
    let height = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let width = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let shared = height * width;
    shared / (area_a + area_b - shared)
}

/// A box that may be selected, ordered by score, then by index.
#[derive(Clone, Copy)]
struct Candidate {
    score: f32,
    index: u32,
    /// Number of selected boxes that the score takes into account.
    seen: u32,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // -0.0 and 0.0 are equal scores; no score is NaN, since each passed a comparison.
        (self.score + 0.0).total_cmp(&(other.score + 0.0)).then(other.index.cmp(&self.index))
    }
}

/// Parameters of the suppression.
pub(crate) struct Rules {
    /// Maximum number of selected boxes (`max_output_size`).
    pub(crate) count_max: usize,
    /// Boxes with a larger overlap with a selected box are suppressed (`iou_threshold`).
    pub(crate) similarity_max: f32,
    /// Boxes with a score not above this are dropped (`score_threshold`).
    pub(crate) score_min: f32,
    /// Above zero: soft suppression, which reduces the scores of overlapping boxes
    /// (`soft_nms_sigma`).
    pub(crate) sigma: f32,
    /// Rounds to the precision of the scores.
    pub(crate) round: fn(f32) -> f32,
}

/// A selected box and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SelectedBox {
    pub(crate) index: u32,
    pub(crate) score: f32,
}

/// The selected boxes, best first. `cancelled` is polled regularly.
pub(crate) fn choose(
    scores: impl ExactSizeIterator<Item = f32>,
    rules: &Rules,
    similarity: impl Fn(u32, u32) -> f32,
    cancelled: impl Fn() -> Result<()>,
) -> Result<Vec<SelectedBox>> {
    let out_of_memory = |_| err!(ResourceExhausted, "out of memory for the candidates");
    let mut candidates = Vec::new();
    candidates.try_reserve_exact(scores.len()).map_err(out_of_memory)?;
    let numbered = (0..).zip(scores).filter(|&(_, score)| score > rules.score_min);
    candidates.extend(numbered.map(|(index, score)| Candidate { score, index, seen: 0 }));
    let mut queue = BinaryHeap::from(candidates);
    let mut chosen: Vec<SelectedBox> = Vec::new();
    let is_soft = rules.sigma > 0.0;
    let round = rules.round;
    let scale = if is_soft { round(-0.5 / rules.sigma) } else { 0.0 };
    let weight = |alike: f32| round(round(round(scale * alike) * alike).exp());
    let mut compared = 0usize;
    while chosen.len() < rules.count_max
        && let Some(mut next) = queue.pop()
    {
        let original = next.score;
        let mut is_out = false;
        for other in chosen[next.seen as usize..].iter().rev() {
            compared += 1;
            let alike = round(similarity(next.index, other.index));
            if !is_soft && alike > rules.similarity_max {
                is_out = true;
                break;
            }
            let counts = is_soft || alike <= rules.similarity_max;
            next.score = round(next.score * if counts { weight(alike) } else { 0.0 });
            if next.score <= rules.score_min {
                break;
            }
        }
        if compared >= 1 << 20 {
            compared = 0;
            cancelled()?;
        }
        next.seen = chosen.len() as u32;
        if is_out {
            continue;
        }
        if next.score == original {
            chosen.try_reserve(1).map_err(out_of_memory)?;
            chosen.push(SelectedBox { index: next.index, score: next.score });
        } else if next.score > rules.score_min {
            queue.push(next);
        }
    }
    Ok(chosen)
}

/// The scalar in input `i`, of either float type.
pub(crate) fn threshold(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<f32> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be 0-D, got shape {}",
        tensor.shape()
    );
    match tensor.dtype() {
        DType::Half => Ok(tensor.scalar_value::<f16>()?.to_f32()),
        _ => tensor.scalar_value(),
    }
}

pub(crate) fn check_overlap_threshold(threshold: f32) -> Result<()> {
    ensure!(
        (0.0..=1.0).contains(&threshold),
        InvalidArgument,
        "iou_threshold must be in [0, 1], is {threshold}"
    );
    Ok(())
}

fn count_max(ctx: &KernelContext<'_>) -> Result<usize> {
    let count = ctx.scalar_int(2, "max_output_size")?;
    usize::try_from(count)
        .map_err(|_| err!(InvalidArgument, "output size must be non-negative, is {count}"))
}

fn check_scores(ctx: &KernelContext<'_>, boxes: usize) -> Result<()> {
    let shape = ctx.input(1)?.shape();
    ensure!(
        shape.dims() == [boxes],
        InvalidArgument,
        "scores must have shape [{boxes}], as there are boxes, got {shape}"
    );
    ensure!(u32::try_from(boxes).is_ok(), InvalidArgument, "there are too many boxes: {boxes}");
    Ok(())
}

fn suppress(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let fixed_threshold = attrs.get("iou_threshold").map(|_| attrs.float("iou_threshold"));
    let fixed_threshold = fixed_threshold.transpose()?;
    if let Some(threshold) = fixed_threshold {
        check_overlap_threshold(threshold)?;
    }
    let is_padded =
        attrs.get("pad_to_max_output_size").is_some() && attrs.bool("pad_to_max_output_size")?;
    AnyKernel::new(move |ctx| {
        let rules = rules_from(ctx, fixed_threshold)?;
        let boxes = ctx.input(0)?;
        let [count, columns] = *boxes.shape().dims() else {
            bail!(InvalidArgument, "boxes must be 2-D, got shape {}", boxes.shape());
        };
        if count > 0 || columns > 0 {
            ensure!(columns == 4, InvalidArgument, "boxes must have 4 columns, got {columns}");
        }
        check_scores(ctx, count)?;
        let (boxes, scores) = (as_floats(ctx, 0)?, as_floats(ctx, 1)?);
        let corners = boxes.as_slice::<f32>()?.as_chunks::<4>().0;
        let chosen = choose(
            scores.as_slice::<f32>()?.iter().copied(),
            &rules,
            |a, b| overlap(&corners[a as usize], &corners[b as usize]),
            || ctx.check_cancelled(),
        )?;
        let size = if is_padded { rules.count_max } else { chosen.len() };
        set_outputs(ctx, &chosen, size)
    })
}

fn rules_from(ctx: &KernelContext<'_>, fixed_threshold: Option<f32>) -> Result<Rules> {
    let count_max = count_max(ctx)?;
    let similarity_max = match fixed_threshold {
        Some(threshold) => threshold,
        None => threshold(ctx, 3, "iou_threshold")?,
    };
    check_overlap_threshold(similarity_max)?;
    let has = |i: usize| ctx.num_inputs() > i;
    let score_min = if has(4) { threshold(ctx, 4, "score_threshold")? } else { f32::MIN };
    let sigma = if has(5) { threshold(ctx, 5, "soft_nms_sigma")? } else { 0.0 };
    ensure!(sigma >= 0.0, InvalidArgument, "soft_nms_sigma must be at least 0, is {sigma}");
    let is_half = ctx.input(1)?.dtype() == DType::Half;
    let round: fn(f32) -> f32 = if is_half { |x| f16::from_f32(x).to_f32() } else { |x| x };
    Ok(Rules { count_max, similarity_max, score_min, sigma, round })
}

/// Sets the outputs: indices; scores if there are three outputs; the number of valid entries if
/// there are two or three.
fn set_outputs(ctx: &mut KernelContext<'_>, chosen: &[SelectedBox], size: usize) -> Result<()> {
    let shape = Shape::new(&[size])?;
    let mut indices = ctx.zeros(DType::Int32, shape.clone())?;
    for (out, chosen) in indices.as_mut_slice::<i32>()?.iter_mut().zip(chosen) {
        *out = chosen.index as i32;
    }
    ctx.set_output(0, indices)?;
    let last = ctx.num_outputs() - 1;
    if last == 2 {
        let mut scores: Tensor = ctx.zeros(ctx.output_dtype(1)?, shape)?;
        match scores.dtype() {
            DType::Half => {
                for (out, chosen) in scores.as_mut_slice::<f16>()?.iter_mut().zip(chosen) {
                    *out = f16::from_f32(chosen.score);
                }
            }
            _ => {
                for (out, chosen) in scores.as_mut_slice::<f32>()?.iter_mut().zip(chosen) {
                    *out = chosen.score;
                }
            }
        }
        ctx.set_output(1, scores)?;
    }
    if last > 0 {
        ctx.set_output(last, Tensor::scalar(chosen.len() as i32))?;
    }
    Ok(())
}

fn suppress_with_overlaps(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let overlaps = ctx.input(0)?;
        let [count, columns] = *overlaps.shape().dims() else {
            bail!(InvalidArgument, "overlaps must be 2-D, got shape {}", overlaps.shape());
        };
        ensure!(
            count == columns,
            InvalidArgument,
            "overlaps must be square, got shape {}",
            overlaps.shape()
        );
        check_scores(ctx, count)?;
        let rules = Rules {
            count_max: count_max(ctx)?,
            similarity_max: threshold(ctx, 3, "overlap_threshold")?,
            score_min: threshold(ctx, 4, "score_threshold")?,
            sigma: 0.0,
            round: |x| x,
        };
        let overlaps = overlaps.as_slice::<f32>()?;
        let chosen = choose(
            ctx.slice::<f32>(1)?.iter().copied(),
            &rules,
            |a, b| overlaps[a as usize * count + b as usize],
            || ctx.check_cancelled(),
        )?;
        set_outputs(ctx, &chosen, chosen.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn boxes() -> Tensor {
        let corners = [
            [0.0, 0.0, 1.0, 1.0],
            [0.0, 0.1, 1.0, 1.1],
            [0.0, -0.1, 1.0, 0.9],
            [0.0, 10.0, 1.0, 11.0],
            [0.0, 10.1, 1.0, 11.1],
            [0.0, 100.0, 1.0, 101.0f32],
        ];
        Tensor::from_slice(Shape::new(&[6, 4]).unwrap(), corners.as_flattened()).unwrap()
    }

    fn scores() -> Tensor {
        Tensor::vector(&[0.9, 0.75, 0.6, 0.95, 0.5, 0.3f32]).unwrap()
    }

    fn v2(boxes: Tensor, scores: Tensor, count: i32, threshold: f32) -> Result<Vec<i32>> {
        let got = call("NonMaxSuppressionV2")
            .input(boxes)
            .input(scores)
            .input(Tensor::scalar(count))
            .input(Tensor::scalar(threshold))
            .run()?;
        Ok(got.as_slice::<i32>()?.to_vec())
    }

    #[test]
    fn the_best_of_each_group_stay() {
        assert_eq!(v2(boxes(), scores(), 3, 0.5).unwrap(), [3, 0, 5]);
        assert_eq!(v2(boxes(), scores(), 30, 0.5).unwrap(), [3, 0, 5]);
        assert!(v2(boxes(), scores(), 0, 0.5).unwrap().is_empty());
        let ties = Tensor::vector(&[1.0f32; 6]).unwrap();
        assert_eq!(v2(boxes(), ties, 9, 0.5).unwrap(), [0, 3, 5]);
        let none = Tensor::vector(&[f32::NAN; 6]).unwrap();
        assert!(v2(boxes(), none, 9, 0.5).unwrap().is_empty());
    }

    #[test]
    fn soft_suppression_lowers_scores() {
        let got = call("NonMaxSuppressionV5")
            .input(boxes())
            .input(Tensor::vector(&[1.0f32; 6]).unwrap())
            .input(Tensor::scalar(10))
            .input(Tensor::scalar(0.5f32))
            .input(Tensor::scalar(0.4f32))
            .input(Tensor::scalar(0.5f32))
            .attr("pad_to_max_output_size", true)
            .run_all()
            .unwrap();
        assert_eq!(got[0].as_slice::<i32>().unwrap(), [0, 3, 5, 4, 1, 0, 0, 0, 0, 0]);
        assert_eq!(got[2].scalar_value::<i32>().unwrap(), 5);
        let scores = got[1].as_slice::<f32>().unwrap();
        assert!((scores[3] - 0.512_005_2).abs() < 1e-6, "{scores:?}");
    }

    #[test]
    fn hostile_inputs() {
        let code = |r: Result<Vec<i32>>| r.unwrap_err().code();
        assert_eq!(code(v2(boxes(), scores(), -1, 0.5)), Code::InvalidArgument);
        assert_eq!(code(v2(boxes(), scores(), 3, f32::NAN)), Code::InvalidArgument);
        assert_eq!(code(v2(scores(), scores(), 3, 0.5)), Code::InvalidArgument);
        let few = Tensor::vector(&[0.5f32]).unwrap();
        assert_eq!(code(v2(boxes(), few, 3, 0.5)), Code::InvalidArgument);
        let square = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[0.0f32; 6]).unwrap();
        let error = call("NonMaxSuppressionWithOverlaps")
            .input(square)
            .input(Tensor::vector(&[0.5f32; 2]).unwrap())
            .input(Tensor::scalar(3))
            .input(Tensor::scalar(0.5f32))
            .input(Tensor::scalar(0.5f32))
            .run();
        assert_eq!(error.unwrap_err().code(), Code::InvalidArgument);
    }
}
