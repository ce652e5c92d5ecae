//! Lowerings of pooling and its gradients.
//!
//! As in the CPU kernels NaN is never a maximum, and of equal maxima the first gets the gradient.

use thalweg_hlo::{Comparison, Reduction, Value, Window};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, Shape, ensure};

use crate::pool::{Images, Pooling};
use crate::window::{Axis, Format};

/// Cells of a window up to which a loop over them is unrolled.
const UNROLLED_CELLS: usize = 32;

/// The pooling of a node whose window is an attr, or in the inputs from `first_input` on.
fn pooling(l: &Lowering<'_>, first_input: usize) -> Result<Pooling> {
    let spatial = if l.node().op.name.contains("3D") { 3 } else { 2 };
    match l.attrs().get("ksize") {
        Some(_) => Pooling::from_attrs(l.attrs(), spatial),
        None => {
            let (ksize, strides) = (l.ints(first_input)?, l.ints(first_input + 1)?);
            Pooling::new(l.attrs(), spatial, &ksize, &strides)
        }
    }
}

/// As [`pooling`], over space only.
fn spatial_pooling(l: &Lowering<'_>, first_input: usize) -> Result<Pooling> {
    let pooling = pooling(l, first_input)?;
    ensure!(
        pooling.channel_window == 1,
        Unimplemented,
        "{} does not pool the depth dimension",
        l.node().op.name
    );
    Ok(pooling)
}

/// Windows on a batch of images in some format.
struct Windows {
    format: Format,
    images: Images,
}

impl Windows {
    fn new(pooling: &Pooling, shape: &Shape) -> Result<Windows> {
        Ok(Windows { format: pooling.sliding.format, images: pooling.images(shape)? })
    }

    fn axes(&self) -> [Axis; 3] {
        self.images.grid.axes
    }

    /// A number for each dimension of the images: `f` of its axis, `other` for batch and channels.
    fn each<T: Copy>(&self, other: T, f: impl Fn(&Axis) -> T) -> Vec<T> {
        let [a, b, c] = self.axes();
        self.format.join(other, [f(&a), f(&b), f(&c)], other).to_vec()
    }

    fn image_dims(&self) -> Vec<usize> {
        let sizes = self.axes().map(|a| a.input);
        self.format.join(self.images.batch, sizes, self.images.channels).to_vec()
    }

    fn pooled_dims(&self) -> Vec<usize> {
        let Images { batch, channels, grid } = self.images;
        self.format.join(batch, grid.output(), channels).to_vec()
    }

    fn is_empty(&self) -> bool {
        self.image_dims().contains(&0) || self.pooled_dims().contains(&0)
    }

    fn window(&self) -> Window {
        Window {
            size: self.each(1, |a| a.window),
            strides: self.each(1, |a| a.stride),
            dilations: self.each(1, |_| 1),
            padding: self.each((0, 0), Axis::padding),
        }
    }

    /// The number of pixels in each window, with dimensions that broadcast to those of the result.
    fn counts(&self, like: &Value) -> Value {
        let mut counts = like.splat(like.dtype(), &vec![1; self.format.rank()], 1.0);
        for (i, dim) in (3 - self.format.spatial..3).zip(self.format.spatial_dims()) {
            let axis = self.axes()[i];
            let along = match axis.padding() {
                (0, 0) => counts.scalar_like(axis.window as f64),
                padding => {
                    let mut dims = vec![1; self.format.rank()];
                    dims[dim] = axis.input;
                    let mut window = Window {
                        size: vec![1; dims.len()],
                        strides: vec![1; dims.len()],
                        dilations: vec![1; dims.len()],
                        padding: vec![(0, 0); dims.len()],
                    };
                    window.size[dim] = axis.window;
                    window.strides[dim] = axis.stride;
                    window.padding[dim] = padding;
                    like.splat(like.dtype(), &dims, 1.0).reduce_window(Reduction::Sum, &window)
                }
            };
            counts = counts * along;
        }
        counts
    }

    /// Sums, for each pixel, over the windows that contain it.
    fn sum_of_windows(&self, values: &Value) -> Value {
        let before = |a: &Axis| a.window as i64 - 1 - a.before as i64;
        let after = |a: &Axis| (a.input + a.window) as i64 - 1 - a.spread() as i64 - before(a);
        let padded = values.pad(
            &values.scalar_like(0.0),
            &self.each(0, before),
            &self.each(0, after),
            &self.each(0, |a| a.stride as i64 - 1),
        );
        let window = Window {
            size: self.each(1, |a| a.window),
            strides: self.each(1, |_| 1),
            dilations: self.each(1, |_| 1),
            padding: self.each((0, 0), |_| (0, 0)),
        };
        padded.reduce_window(Reduction::Sum, &window)
    }

    /// Folds the cells of all windows at once, in their order: `step` gets the state and the position
    /// of a cell in its window, and returns the new state.
    fn fold_cells(
        &self,
        initial: &[Value],
        step: impl Fn(&[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let sizes = self.each(1, |a| a.window);
        let cells = self.images.grid.cells();
        let first = &initial[0];
        if cells <= UNROLLED_CELLS {
            let mut state = initial.to_vec();
            for cell in 0..cells {
                let mut rest = cell;
                let mut position = vec![0; sizes.len()];
                for (place, size) in position.iter_mut().zip(&sizes).rev() {
                    (*place, rest) = (rest % size, rest / size);
                }
                let constant = |&p: &usize| first.splat(DType::Int32, &[], p as f64);
                let position: Vec<Value> = position.iter().map(constant).collect();
                state = step(&state, &position);
            }
            return state;
        }
        let counter = first.splat(DType::Int64, &[], 0.0);
        let all: Vec<Value> = initial.iter().cloned().chain([counter]).collect();
        let mut last = Value::repeat_while(
            &all,
            |v| v[v.len() - 1].compare_to(Comparison::Less, cells as f64),
            |v| {
                let (state, counter) = v.split_at(v.len() - 1);
                let mut rest = counter[0].clone();
                let mut position = Vec::with_capacity(sizes.len());
                for &size in sizes.iter().rev() {
                    let size = rest.scalar_like(size as f64);
                    position.push(rest.remainder(&size).convert(DType::Int32));
                    rest = rest.divided_by(&size);
                }
                position.reverse();
                let mut next = step(state, &position);
                next.push(&counter[0] + 1.0);
                next
            },
        );
        last.pop();
        last
    }

    /// The images with padding, so that every window has all its cells.
    fn padded(&self, images: &Value, padding: &Value) -> Value {
        let low = self.each(0, |a| a.padding().0);
        let high = self.each(0, |a| a.padding().1);
        images.pad(padding, &low, &high, &self.each(0, |_| 0))
    }

    /// The sizes of a padded image's part that has one cell of each window.
    fn spread(&self) -> Vec<usize> {
        let [a, b, c] = self.axes().map(|a| a.spread());
        self.format.join(self.images.batch, [a, b, c], self.images.channels).to_vec()
    }

    /// For each window its cell at this position, of padded images.
    fn cells(&self, padded: &Value, position: &[Value]) -> Value {
        let spread = self.spread();
        let starts = vec![0; spread.len()];
        padded.dynamic_slice(position, &spread).slice(&starts, &spread, &self.each(1, |a| a.stride))
    }

    /// For each window, whether its cell at this position is a pixel.
    fn is_pixel(&self, like: &Value) -> Value {
        let ones = like.splat(DType::Bool, &self.image_dims(), 1.0);
        self.padded(&ones, &ones.scalar_like(0.0))
    }
}

/// The values in which NaN is replaced by the lowest one.
fn without_nan(x: &Value) -> Value {
    match x.dtype().is_floating() {
        true => x.is_nan().select(&x.lowest_like(), x),
        false => x.clone(),
    }
}

/// `MaxPool`, `MaxPoolV2` and `MaxPool3D`.
pub(crate) fn max_pool(l: &mut Lowering<'_>) -> Result<()> {
    let pooling = pooling(l, 1)?;
    let windows = Windows::new(&pooling, &l.input_shape(0)?)?;
    let x = without_nan(&l.input(0)?);
    if pooling.channel_window == 1 {
        return l.set(0, x.reduce_window(Reduction::Maximum, &windows.window()));
    }
    let (channels, window) = (windows.images.channels, pooling.channel_window);
    ensure!(
        channels % window == 0,
        Unimplemented,
        "Depthwise max pooling requires the depth window to evenly divide the input depth"
    );
    ensure!(!windows.format.channels_first, Unimplemented, "Depthwise max pooling takes NHWC only");
    let mut dims = windows.image_dims();
    dims.pop();
    dims.extend([channels / window, window]);
    l.set(0, x.reshape(&dims).max_of(&[dims.len() - 1]))
}

/// `AvgPool` and `AvgPool3D`.
pub(crate) fn avg_pool(l: &mut Lowering<'_>) -> Result<()> {
    let windows = Windows::new(&spatial_pooling(l, 1)?, &l.input_shape(0)?)?;
    let x = l.input(0)?;
    let wide = x.widened();
    let sums = wide.reduce_window(Reduction::Sum, &windows.window());
    l.set(0, (sums / windows.counts(&wide)).convert(x.dtype()))
}

/// `AvgPoolGrad` and `AvgPool3DGrad`.
pub(crate) fn avg_pool_grad(l: &mut Lowering<'_>) -> Result<()> {
    let pooling = spatial_pooling(l, 2)?;
    let shape = l.shape_input(0, "orig_input_shape")?;
    let windows = Windows::new(&pooling, &shape)?;
    check_shape(l, 1, "grad", &windows.pooled_dims())?;
    let grad = l.input(1)?;
    if windows.is_empty() {
        return l.set(0, grad.splat(grad.dtype(), shape.dims(), 0.0));
    }
    let wide = grad.widened();
    let shares = &wide / windows.counts(&wide);
    l.set(0, windows.sum_of_windows(&shares).convert(grad.dtype()))
}

fn check_shape(l: &Lowering<'_>, i: usize, name: &str, expected: &[usize]) -> Result<()> {
    let got = l.input_shape(i)?;
    ensure!(
        got.dims() == expected,
        InvalidArgument,
        "Expected {name} to have shape {expected:?}, but got {got}"
    );
    Ok(())
}

/// The windows of a gradient op with the inputs image, pooled image and gradient.
fn gradient_windows(l: &Lowering<'_>, grad_is_pooled: bool) -> Result<Windows> {
    let windows = Windows::new(&spatial_pooling(l, 3)?, &l.input_shape(0)?)?;
    let pooled = windows.pooled_dims();
    check_shape(l, 1, "orig_output", &pooled)?;
    let expected = if grad_is_pooled { pooled } else { windows.image_dims() };
    check_shape(l, 2, "grad", &expected)?;
    Ok(windows)
}

/// `MaxPoolGrad` and `MaxPoolGradV2`.
pub(crate) fn max_pool_grad(l: &mut Lowering<'_>) -> Result<()> {
    let windows = gradient_windows(l, true)?;
    let (x, grad) = (l.input(0)?, l.input(2)?);
    if windows.is_empty() {
        return l.set(0, x.zeros_like());
    }
    let wide = without_nan(&x.widened());
    l.set(0, wide.scatter_to_greatest(&grad.widened(), &windows.window()).convert(x.dtype()))
}

/// `MaxPool3DGrad`: all pixels equal to the window's maximum get its gradient.
pub(crate) fn max_pool_3d_grad(l: &mut Lowering<'_>) -> Result<()> {
    ensure!(
        l.attrs().dtype("TInput")? == l.attrs().dtype("T")?,
        Unimplemented,
        "MaxPool3DGrad takes input and gradient of one type"
    );
    let windows = gradient_windows(l, true)?;
    let (x, y, grad) = (l.input(0)?, l.input(1)?, l.input(2)?);
    if windows.is_empty() {
        return l.set(0, x.zeros_like());
    }
    let grad = grad.widened();
    let padded = windows.padded(&x, &x.scalar_like(0.0));
    let zero = grad.scalar_like(0.0);
    let (none, interior) = (windows.each(0, |_| 0), windows.each(0, |a| a.stride as i64 - 1));
    let initial = grad.splat(grad.dtype(), padded.dims(), 0.0);
    let sums = windows.fold_cells(&[initial], |state, position| {
        let is_greatest = windows.cells(&padded, position).compare(Comparison::Equal, &y);
        let given = is_greatest.select(&grad, &zero).pad(&zero, &none, &none, &interior);
        let sums = state[0].dynamic_slice(position, given.dims()) + given;
        vec![state[0].dynamic_update_slice(&sums, position)]
    });
    let starts = windows.each(0, |a| a.before);
    let limits: Vec<usize> = starts.iter().zip(x.dims()).map(|(s, d)| s + d).collect();
    let sums = sums[0].slice(&starts, &limits, &windows.each(1, |_| 1));
    l.set(0, sums.convert(x.dtype()))
}

/// `MaxPoolGradGrad`, `MaxPoolGradGradV2` and `MaxPool3DGradGrad`: for each window, the gradient at
/// the first pixel equal to the window's maximum.
pub(crate) fn max_pool_grad_grad(l: &mut Lowering<'_>) -> Result<()> {
    let windows = gradient_windows(l, false)?;
    let (x, y, grad) = (l.input(0)?, l.input(1)?, l.input(2)?);
    if windows.is_empty() {
        return l.set(0, y.zeros_like());
    }
    let zero = grad.scalar_like(0.0);
    let (padded, grads) = (windows.padded(&x, &x.scalar_like(0.0)), windows.padded(&grad, &zero));
    let pixels = windows.is_pixel(&x);
    let initial = [y.zeros_like(), y.splat(DType::Bool, y.dims(), 0.0)];
    let mut found = windows.fold_cells(&initial, |state, position| {
        let is_greatest = windows.cells(&padded, position).compare(Comparison::Equal, &y);
        let is_here = is_greatest.and(&windows.cells(&pixels, position)).and(&state[1].not());
        let taken = is_here.select(&windows.cells(&grads, position), &state[0]);
        vec![taken, state[1].or(&is_here)]
    });
    l.set(0, found.remove(0))
}

/// `MaxPoolWithArgmax`.
pub(crate) fn max_pool_with_argmax(l: &mut Lowering<'_>) -> Result<()> {
    let includes_batch = l.attrs().bool("include_batch_in_index")?;
    let windows = Windows::new(&spatial_pooling(l, 1)?, &l.input_shape(0)?)?;
    let x = l.input(0)?;
    let (dims, indices) = (windows.image_dims(), l.output_dtype(1));
    if windows.is_empty() {
        let pooled = windows.pooled_dims();
        l.set(0, x.splat(x.dtype(), &pooled, 0.0))?;
        return l.set(1, x.splat(indices, &pooled, 0.0));
    }
    let counted = if includes_batch { &dims[..] } else { &dims[1..] };
    let count = counted.iter().product::<usize>();
    let numbers = x.iota(DType::Int64, &[count], 0).reshape(counted).broadcast_to(&dims);
    let values = windows.padded(&without_nan(&x), &x.lowest_like());
    let numbers = windows.padded(&numbers, &numbers.scalar_like(0.0));
    let pixels = windows.is_pixel(&x);
    let pooled = windows.pooled_dims();
    let initial = [x.lowest_like().broadcast_to(&pooled), x.splat(DType::Int64, &pooled, -1.0)];
    let found = windows.fold_cells(&initial, |state, position| {
        let value = windows.cells(&values, position);
        let is_first = state[1].compare_to(Comparison::Less, 0.0);
        let is_greater = value.compare(Comparison::Greater, &state[0]);
        let is_taken = is_greater.or(&is_first).and(&windows.cells(&pixels, position));
        let number = windows.cells(&numbers, position);
        vec![is_taken.select(&value, &state[0]), is_taken.select(&number, &state[1])]
    });
    l.set(0, found[0].clone())?;
    l.set(1, found[1].convert(indices))
}

/// The windows of a gradient op with the inputs image, gradient and positions, and the positions as
/// indices of the flattened image.
fn positions(l: &Lowering<'_>, grad_is_pooled: bool) -> Result<Value> {
    let windows = Windows::new(&spatial_pooling(l, 3)?, &l.input_shape(0)?)?;
    let (image, pooled) = (windows.image_dims(), windows.pooled_dims());
    check_shape(l, 1, "grad", if grad_is_pooled { &pooled } else { &image })?;
    check_shape(l, 2, "argmax", &pooled)?;
    let argmax = l.input(2)?.convert(DType::Int64);
    if l.attrs().bool("include_batch_in_index")? {
        return Ok(argmax.flatten());
    }
    let len: usize = image[1..].iter().product();
    let images = argmax.iota(DType::Int64, &pooled, 0) * len as f64;
    let is_inside = argmax
        .compare_to(Comparison::GreaterEqual, 0.0)
        .and(&argmax.compare_to(Comparison::Less, len as f64));
    Ok(is_inside.select(&(&argmax + &images), &images.scalar_like(-1.0)).flatten())
}

/// `MaxPoolGradWithArgmax`; positions outside the image are left out.
pub(crate) fn max_pool_grad_with_argmax(l: &mut Lowering<'_>) -> Result<()> {
    let positions = positions(l, true)?;
    let (x, grad) = (l.input(0)?, l.input(1)?);
    let grad = grad.widened();
    let dims = thalweg_hlo::ScatterDims {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..Default::default()
    };
    let sums = grad.splat(grad.dtype(), &[x.num_elements()], 0.0);
    let indices = positions.expand(1);
    let sums = sums.scatter(&indices, &grad.flatten(), &dims, false, Value::plus);
    l.set(0, sums.reshape(x.dims()).convert(x.dtype()))
}

/// `MaxPoolGradGradWithArgmax`; at positions outside the image the gradient is 0.
pub(crate) fn max_pool_grad_grad_with_argmax(l: &mut Lowering<'_>) -> Result<()> {
    let positions = positions(l, false)?;
    let grad = l.input(1)?;
    let pooled = l.input_shape(2)?;
    if grad.num_elements() == 0 {
        return l.set(0, grad.splat(grad.dtype(), pooled.dims(), 0.0));
    }
    let dims = thalweg_hlo::GatherDims {
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        ..Default::default()
    };
    let count = positions.num_elements();
    let taken = grad.flatten().gather(&positions.expand(1), &dims, &[1], &[count]);
    let is_inside = positions
        .compare_to(Comparison::GreaterEqual, 0.0)
        .and(&positions.compare_to(Comparison::Less, grad.num_elements() as f64));
    l.set(0, is_inside.select(&taken, &grad.scalar_like(0.0)).reshape(pooled.dims()))
}
