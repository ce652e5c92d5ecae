//! Tensor contraction of two einsum operands as a batched matrix product.

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Result, Shape, Tensor, err};

use super::einsum::View;
use super::equation::Label;
use crate::broadcast::Plan;
use crate::math::gemm::{MatMut, MatRef, Write};
use crate::math::widen::Widen;
use crate::number::Number;
use crate::product::{Factor, is_small, multiply_here, multiply_weights};
use crate::split::for_each_rows;

/// Element types of Einstein sums.
pub(crate) trait Term: Factor + Widen<Wide: Number> {}

impl<T: Factor + Widen<Wide: Number>> Term for T {}

/// Labels with their sizes.
type Group = SmallVec<[(Label, usize); 4]>;

fn count(group: &Group) -> usize {
    group.iter().map(|&(_, len)| len).product()
}

/// The roles of labels in a product.
struct Roles {
    /// Labels of both operands and the output.
    batch: Group,
    /// Labels of the first operand and the output.
    rows: Group,
    /// Labels of the second operand and the output.
    columns: Group,
    /// Labels of both operands only, which are summed.
    inner: Group,
}

impl Roles {
    fn new(a: &View, b: &View, output: &[Label]) -> Roles {
        let (mut batch, mut rows, mut columns) = (Group::new(), Group::new(), Group::new());
        let firsts = output.iter().enumerate().filter(|&(i, label)| !output[..i].contains(label));
        for (_, &label) in firsts {
            match (a.axis(label), b.axis(label)) {
                (Some(axis), Some(_)) => batch.push((label, axis.len)),
                (Some(axis), None) => rows.push((label, axis.len)),
                (None, Some(axis)) => columns.push((label, axis.len)),
                (None, None) => {}
            }
        }
        let mut shared: SmallVec<[_; 8]> =
            a.axes.iter().filter(|x| b.has(x.label) && !output.contains(&x.label)).collect();
        shared.sort_by_key(|axis| std::cmp::Reverse(axis.stride));
        let inner = shared.iter().map(|axis| (axis.label, axis.len)).collect();
        Roles { batch, rows, columns, inner }
    }
}

/// The product of two views; every label is in both operands or in the output.
pub(crate) fn contract<T: Term>(
    ctx: &KernelContext<'_>,
    a: View,
    b: View,
    output: &[Label],
) -> Result<View> {
    let roles = Roles::new(&a, &b, output);
    let place = |group: &Group| group.first().map(|&(l, _)| output.iter().position(|&x| x == l));
    // The operand whose labels come first in the output supplies the rows.
    if let (Some(rows), Some(columns)) = (place(&roles.rows), place(&roles.columns))
        && rows > columns
    {
        return contract::<T>(ctx, b, a, output);
    }
    let Roles { batch, rows, columns, inner } = &roles;
    let sizes: Group = batch.iter().chain(rows).chain(columns).copied().collect();
    let dims = [count(batch), count(rows), count(columns)];
    let mut out = ctx.allocate(T::DTYPE, Shape::new(&dims)?)?;
    if inner.is_empty() {
        let a = a.arranged(ctx, labels(&[batch, rows]))?.tensor;
        let b = b.arranged(ctx, labels(&[batch, columns]))?.tensor;
        multiply_elements::<T>(ctx, &a, &b, dims, &mut out)?;
    } else {
        let a = Matrices::new(ctx, a, [batch, rows, inner])?;
        let b = Matrices::new(ctx, b, [batch, inner, columns])?;
        let lens = batch.iter().map(|&(_, len)| len).collect();
        Batch { a, b, lens }.multiply::<T>(ctx, &mut out)?;
    }
    Ok(View::compact(out, &sizes))
}

fn labels<'a>(groups: &'a [&'a Group]) -> impl Iterator<Item = Label> + 'a {
    groups.iter().flat_map(|group| group.iter().map(|&(label, _)| label))
}

/// No label is summed: every element of the result is one product.
fn multiply_elements<T: Term>(
    ctx: &KernelContext<'_>,
    a: &Tensor,
    b: &Tensor,
    [batch, rows, columns]: [usize; 3],
    out: &mut Tensor,
) -> Result<()> {
    let shapes = [Shape::new(&[batch, rows, 1])?, Shape::new(&[batch, 1, columns])?];
    let plan = Plan::new(out.shape(), [&shapes[0], &shapes[1]]);
    let [a_step, b_step] = plan.row_strides();
    let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 0.5, |first, out| {
        plan.for_each_row(first..first + out.len(), |[at_a, at_b], position, len| {
            let out = &mut out[position - first..][..len];
            let a = &a[at_a..][..if a_step == 0 { 1 } else { len }];
            let b = &b[at_b..][..if b_step == 0 { 1 } else { len }];
            multiply_row::<T>(a, b, out);
        });
    })
}

/// Element-wise product; an operand of one element is broadcast.
fn multiply_row<T: Term>(a: &[T], b: &[T], out: &mut [T]) {
    let step = T::CHUNK.min(out.len()).max(1);
    for (i, out) in out.chunks_mut(step).enumerate() {
        let part = |x: &'_ [T]| if x.len() == 1 { 0..1 } else { i * step..i * step + out.len() };
        let (a, b) = (&a[part(a)], &b[part(b)]);
        T::with_wide(a, |a| {
            T::with_wide(b, |b| T::with_wide_mut(out, |out| multiply_wide(a, b, out)));
        });
    }
}

fn multiply_wide<W: Number>(a: &[W], b: &[W], out: &mut [W]) {
    match (a, b) {
        (&[a], &[b]) => out.fill(a.times(b)),
        (&[a], b) => out.iter_mut().zip(b).for_each(|(out, &b)| *out = a.times(b)),
        (a, &[b]) => out.iter_mut().zip(a).for_each(|(out, &a)| *out = a.times(b)),
        (a, b) => out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = a.times(b)),
    }
}

/// The matrices of one operand: strides of rows, columns and batch.
struct Matrices {
    tensor: Tensor,
    batch_strides: SmallVec<[usize; 4]>,
    lens: [usize; 2],
    strides: [usize; 2],
}

impl Matrices {
    fn new(ctx: &KernelContext<'_>, view: View, groups: [&Group; 3]) -> Result<Matrices> {
        let mut view = view;
        let lens = [count(groups[1]), count(groups[2])];
        let mut strides = [joined_stride(&view, groups[1]), joined_stride(&view, groups[2])];
        let is_near = |i: usize| lens[i] == 1 || strides[i] == Some(1);
        if strides.contains(&None) || !(is_near(0) || is_near(1)) {
            view = view.arranged(ctx, labels(&groups))?;
            strides = [Some(lens[1]), Some(1)];
        }
        let batch = groups[0].iter().filter_map(|&(label, _)| view.axis(label));
        let batch_strides = batch.map(|axis| axis.stride).collect();
        let strides = strides.map(|stride| stride.unwrap_or(1));
        Ok(Matrices { tensor: view.tensor, batch_strides, lens, strides })
    }

    fn at<T: Factor>(&self, offset: usize) -> Result<MatRef<'_, T>> {
        let [rows, columns] = self.lens;
        let [row_stride, column_stride] = self.strides;
        let data = self.tensor.as_slice::<T>()?.get(offset..).unwrap_or(&[]);
        MatRef::new(data, (rows, columns), (row_stride, column_stride))
            .ok_or_else(|| err!(Internal, "a factor of an einsum is out of bounds"))
    }
}

/// The stride of a group of labels that can be traversed as one dimension in this order, if it can.
fn joined_stride(view: &View, group: &Group) -> Option<usize> {
    let mut expected = None;
    let mut innermost = 1;
    for &(label, len) in group.iter().rev() {
        let stride = view.axis(label)?.stride;
        match expected {
            None => innermost = stride,
            Some(expected) if expected != stride => return None,
            Some(_) => {}
        }
        expected = Some(stride * len);
    }
    Some(innermost)
}

/// Two batches of matrices with corresponding members.
struct Batch {
    a: Matrices,
    b: Matrices,
    lens: SmallVec<[usize; 4]>,
}

impl Batch {
    fn factors<T: Factor>(&self, mut index: usize) -> Result<(MatRef<'_, T>, MatRef<'_, T>)> {
        let (mut a, mut b) = (0, 0);
        for (i, len) in self.lens.iter().enumerate().rev() {
            a += index % len * self.a.batch_strides[i];
            b += index % len * self.b.batch_strides[i];
            index /= len;
        }
        Ok((self.a.at(a)?, self.b.at(b)?))
    }

    /// Small products run on one thread each, large ones on all threads.
    fn multiply<T: Factor>(&self, ctx: &KernelContext<'_>, out: &mut Tensor) -> Result<()> {
        let (rows, inner, columns) = (self.a.lens[0], self.a.lens[1], self.b.lens[1]);
        let each = rows * columns;
        let out = out.as_mut_slice::<T>()?;
        let (first_a, first_b) = self.factors::<T>(0)?;
        if out.len() == each || !is_small(first_a, first_b) {
            for (index, out) in out.chunks_exact_mut(each).enumerate() {
                let (a, b) = self.factors::<T>(index)?;
                let (c, weights) = (whole(out, rows, columns)?, &self.b.tensor);
                multiply_weights(ctx, a, (weights, b), c, Write::Overwrite)?;
            }
            return Ok(());
        }
        let failure = Mutex::new(None);
        let nanoseconds = 20.0 + 0.05 * each as f64 * inner as f64;
        for_each_rows(ctx, out, each, nanoseconds, |first, out| {
            for (index, out) in (first..).zip(out.chunks_exact_mut(each)) {
                let result = self.factors::<T>(index).and_then(|(a, b)| {
                    multiply_here(a, b, whole(out, rows, columns)?, Write::Overwrite)
                });
                if let Err(error) = result {
                    *failure.lock() = Some(error);
                }
            }
        })?;
        failure.into_inner().map_or(Ok(()), Err)
    }
}

fn whole<T>(data: &mut [T], rows: usize, columns: usize) -> Result<MatMut<'_, T>> {
    MatMut::row_major(data, rows, columns)
        .ok_or_else(|| err!(Internal, "the matrix product is out of bounds"))
}
