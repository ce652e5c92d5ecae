//! `CombinedNonMaxSuppression`: per class and image, then over all classes.

use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Error, PartialShape, Result, Shape, bail, ensure};

use super::pixels::table;
use super::suppression::{Rules, SelectedBox, check_overlap_threshold, choose, overlap, threshold};
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("CombinedNonMaxSuppression", combined_shape).with_work(Work::serial::<20>)],
    kernels: &[KernelSpec {
        op: "CombinedNonMaxSuppression",
        create: combined_suppression,
        ..KernelSpec::CPU
    }],
};

fn combined_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let boxes = c.with_rank(0, "boxes", 4)?;
    let scores = c.with_rank(1, "scores", 3)?;
    for i in 2..6 {
        c.with_rank(i, "sizes and thresholds", 0)?;
    }
    let batch = PartialShape::new([boxes.dim(0), boxes.dim(1)])
        .merge(&PartialShape::new([scores.dim(0), scores.dim(1)]))?
        .dim(0);
    ensure!(
        boxes.dim(3).is_none_or(|n| n == 4),
        InvalidArgument,
        "boxes must have 4 columns, got shape {boxes}"
    );
    let value = |i: usize| c.partial_value(i).and_then(|v| v.first());
    let classes = scores.dim(2).map(|n| n as i64);
    let size = if c.attrs().bool("pad_per_class")? {
        let per_class = value(2).zip(classes).map(|(n, classes)| n.saturating_mul(classes));
        value(3).zip(per_class).map(|(total, all)| total.min(all))
    } else {
        value(3)
    };
    let size = size.and_then(|n| usize::try_from(n).ok());
    c.set_output(0, PartialShape::new([batch, size, Some(4)]));
    c.set_output(1, PartialShape::new([batch, size]));
    c.set_output(2, PartialShape::new([batch, size]));
    c.set_output(3, PartialShape::new([batch]));
    Ok(())
}

/// Sizes of the op's inputs and outputs.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    boxes: usize,
    /// Number of box sets: one for all classes, or one for each.
    sets: usize,
    classes: usize,
    per_class: usize,
    total: usize,
}

fn sizes_of(ctx: &KernelContext<'_>, is_padded_per_class: bool) -> Result<Sizes> {
    let (boxes, scores) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
    let [batch, count, sets, columns] = *boxes.dims() else {
        bail!(InvalidArgument, "boxes must be 4-D, got shape {boxes}");
    };
    let [score_batch, score_count, classes] = *scores.dims() else {
        bail!(InvalidArgument, "scores must be 3-D, got shape {scores}");
    };
    ensure!(
        batch == score_batch,
        InvalidArgument,
        "boxes and scores must have same batch size, got {batch} and {score_batch}"
    );
    ensure!(columns == 4, InvalidArgument, "boxes must have 4 columns, got {columns}");
    ensure!(
        count == score_count && u32::try_from(count).is_ok(),
        InvalidArgument,
        "boxes and scores must be for equally many boxes, got {count} and {score_count}"
    );
    ensure!(
        sets == 1 || sets == classes,
        InvalidArgument,
        "third dimension of boxes must be 1 or the number of classes, {classes}; it is {sets}"
    );
    let per_class = ctx.scalar_int(2, "max_size_per_class")?;
    ensure!(per_class > 0, InvalidArgument, "max_size_per_class must be positive, is {per_class}");
    let total = ctx.scalar_int(3, "max_total_size")?;
    ensure!(total > 0, InvalidArgument, "max_total_size must be > 0, is {total}");
    let (per_class, mut total) = (per_class as usize, total as usize);
    if is_padded_per_class {
        total = total.min(per_class.saturating_mul(classes));
    }
    Ok(Sizes { batch, boxes: count, sets, classes, per_class, total })
}

fn combined_suppression(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_padded = init.attrs().bool("pad_per_class")?;
    let is_clipped = init.attrs().bool("clip_boxes")?;
    AnyKernel::new(move |ctx| {
        let sizes = sizes_of(ctx, is_padded)?;
        let similarity_max = threshold(ctx, 4, "iou_threshold")?;
        check_overlap_threshold(similarity_max)?;
        let score_min = threshold(ctx, 5, "score_threshold")?;
        let count_max = sizes.per_class.min(sizes.boxes);
        let rules = Rules { count_max, similarity_max, score_min, sigma: 0.0, round: |x| x };
        let Sizes { batch, total, .. } = sizes;
        let mut boxes = ctx.zeros(DType::Float, Shape::new(&[batch, total, 4])?)?;
        let mut scores = ctx.zeros(DType::Float, Shape::new(&[batch, total])?)?;
        let mut classes = ctx.zeros(DType::Float, Shape::new(&[batch, total])?)?;
        let mut valid = ctx.zeros(DType::Int32, Shape::new(&[batch])?)?;
        let best = detect(ctx, sizes, &rules)?;
        let source = ctx.slice::<f32>(0)?.as_chunks::<4>().0;
        let out_boxes = boxes.as_mut_slice::<f32>()?.as_chunks_mut::<4>().0;
        let out_scores = scores.as_mut_slice::<f32>()?;
        let out_classes = classes.as_mut_slice::<f32>()?;
        for (image, best) in best.iter().enumerate() {
            valid.as_mut_slice::<i32>()?[image] = best.len() as i32;
            for (i, (class, chosen)) in best.iter().enumerate() {
                let set = if sizes.sets == 1 { 0 } else { *class };
                let row = (image * sizes.boxes + chosen.index as usize) * sizes.sets + set;
                let at = image * total + i;
                out_boxes[at] = if is_clipped { source[row].map(clip) } else { source[row] };
                out_scores[at] = chosen.score;
                out_classes[at] = *class as f32;
            }
        }
        ctx.set_output(0, boxes)?;
        ctx.set_output(1, scores)?;
        ctx.set_output(2, classes)?;
        ctx.set_output(3, valid)
    })
}

fn clip(x: f32) -> f32 {
    x.clamp(0.0, 1.0)
}

type Detections = Vec<(usize, SelectedBox)>;

/// The selected boxes of each image with their classes, best first, limited to the output size.
fn detect(ctx: &KernelContext<'_>, sizes: Sizes, rules: &Rules) -> Result<Vec<Detections>> {
    let Sizes { batch, boxes, classes, .. } = sizes;
    let mut found: Vec<Result<Vec<SelectedBox>>> = table(batch * classes, |_| Ok(Vec::new()))?;
    let slots = Disjoint::new(&mut found);
    let (corners, scores) = (ctx.slice::<f32>(0)?.as_chunks::<4>().0, ctx.slice::<f32>(1)?);
    ctx.parallel_for(batch * classes, 50.0 * boxes as f64 + 100.0, |range| {
        for i in range {
            let (image, class) = (i / classes, i % classes);
            let set = if sizes.sets == 1 { 0 } else { class };
            let corner = |index: u32| &corners[(image * boxes + index as usize) * sizes.sets + set];
            let of_class = (0..boxes).map(|b| scores[(image * boxes + b) * classes + class]);
            // SAFETY: `parallel_for` hands out every slot once.
            let slot = unsafe { slots.part(i..i + 1) };
            slot[0] = choose(
                of_class,
                rules,
                |a, b| overlap(corner(a), corner(b)),
                || ctx.check_cancelled(),
            );
        }
    })?;
    let mut images = table(batch, |_| Detections::new())?;
    for (i, chosen) in found.into_iter().enumerate() {
        let (chosen, image) = (chosen?, &mut images[i / classes]);
        let out_of_memory =
            |_| Error::new(thalweg_tensor::Code::ResourceExhausted, "out of memory");
        image.try_reserve(chosen.len()).map_err(out_of_memory)?;
        image.extend(chosen.into_iter().map(|chosen| (i % classes, chosen)));
    }
    for image in &mut images {
        image.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
        image.truncate(sizes.total);
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::{Code, Tensor};

    fn run(per_class: i32, total: i32) -> Result<Vec<Tensor>> {
        let boxes = [[0.0, 0.0, 0.5, 0.5], [0.0, 0.01, 0.5, 0.51], [0.5, 0.5, 1.5, 0.9f32]];
        let boxes = Tensor::from_slice(Shape::new(&[1, 3, 1, 4])?, boxes.as_flattened())?;
        let scores =
            Tensor::from_slice(Shape::new(&[1, 3, 2])?, &[0.9, 0.2, 0.8, 0.6, 0.3, 0.0f32])?;
        call("CombinedNonMaxSuppression")
            .input(boxes)
            .input(scores)
            .input(Tensor::scalar(per_class))
            .input(Tensor::scalar(total))
            .input(Tensor::scalar(0.5f32))
            .input(Tensor::scalar(0.1f32))
            .run_all()
    }

    #[test]
    fn the_best_of_all_classes() {
        let got = run(5, 4).unwrap();
        assert_eq!(got[1].as_slice::<f32>().unwrap(), [0.9, 0.6, 0.3, 0.0]);
        assert_eq!(got[2].as_slice::<f32>().unwrap(), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(got[3].as_slice::<i32>().unwrap(), [3]);
        assert_eq!(got[0].as_slice::<f32>().unwrap()[8..12], [0.5, 0.5, 1.0, 0.9]);
        assert_eq!(run(1, 1).unwrap()[3].as_slice::<i32>().unwrap(), [1]);
    }

    #[test]
    fn hostile_sizes() {
        for (per_class, total) in [(0, 1), (1, 0), (-1, 5), (5, -1)] {
            assert_eq!(run(per_class, total).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(run(5, i32::MAX).unwrap_err().code(), Code::ResourceExhausted);
    }
}
