//! Lowerings of batch normalization and its gradients.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use crate::batch_norm::Settings;

/// How a batch of images is divided into channels.
struct Channels {
    dims: Vec<usize>,
    dim: usize,
}

impl Channels {
    fn new(images: &Value, settings: Settings) -> Result<Channels> {
        let rank = images.rank();
        ensure!(
            rank == 4 || rank == 5,
            InvalidArgument,
            "input must be 4 or 5-dimensional, got shape {:?}",
            images.dims()
        );
        let dim = if settings.channels_first { 1 } else { rank - 1 };
        Ok(Channels { dims: images.dims().to_vec(), dim })
    }

    /// Input `i`, a vector with one number per channel.
    fn vector(&self, l: &Lowering<'_>, i: usize, name: &str) -> Result<Value> {
        let (vector, count) = (l.input(i)?, self.dims[self.dim]);
        ensure!(
            vector.dims() == [count],
            InvalidArgument,
            "{name} must have the same number of elements as the channels of x, got shape {:?} and {count}",
            vector.dims()
        );
        Ok(vector)
    }

    /// A vector with one number per channel, broadcast to the images.
    fn spread(&self, vector: &Value) -> Value {
        vector.broadcast_in(&self.dims, &[self.dim])
    }

    /// Sums over all dimensions but the channels.
    fn sum(&self, images: &Value) -> Value {
        let others: Vec<usize> = (0..self.dims.len()).filter(|&i| i != self.dim).collect();
        images.sum(&others)
    }

    /// Elements of one channel.
    fn count(&self) -> f64 {
        let others = self.dims.iter().enumerate().filter(|&(i, _)| i != self.dim);
        others.map(|(_, &d)| d).product::<usize>() as f64
    }
}

/// `FusedBatchNorm`, V2 and V3.
pub(crate) fn normalize(l: &mut Lowering<'_>) -> Result<()> {
    let settings = Settings::new(l.node())?;
    let images = l.input(0)?;
    let channels = Channels::new(&images, settings)?;
    let (scale, offset) = (channels.vector(l, 1, "scale")?, channels.vector(l, 2, "offset")?);
    let x = images.widened();
    let is_running = settings.is_training && settings.factor != 1.0;
    let given = match !settings.is_training || is_running {
        true => Some((channels.vector(l, 3, "mean")?, channels.vector(l, 4, "variance")?)),
        false => None,
    };
    let (mean, variance, distance) = match &given {
        Some((mean, variance)) if !settings.is_training => {
            (mean.clone(), variance.clone(), &x - channels.spread(mean))
        }
        _ => {
            let mean = channels.sum(&x) / channels.count();
            let distance = &x - channels.spread(&mean);
            let variance = channels.sum(&distance.square()) / channels.count();
            (mean, variance, distance)
        }
    };
    let factor = scale / (&variance + f64::from(settings.epsilon)).sqrt();
    let y = distance * channels.spread(&factor) + channels.spread(&offset);
    l.set(0, y.convert(images.dtype()))?;
    let (mut batch_mean, mut batch_variance) = (mean.clone(), variance.clone());
    if settings.is_training {
        // Bessel's correction: the running variance is unbiased.
        let correction = channels.count() / (channels.count() - 1.0).max(1.0);
        batch_variance = batch_variance * correction;
        if let (true, Some((old_mean, old_variance))) = (is_running, &given) {
            let factor = f64::from(settings.factor);
            let mixed = |old: &Value, new: Value| old * (1.0 - factor) + new * factor;
            batch_mean = mixed(old_mean, batch_mean);
            batch_variance = mixed(old_variance, batch_variance);
        }
    }
    for (i, moment) in [batch_mean, batch_variance, mean, variance].into_iter().enumerate() {
        l.set(i + 1, moment)?;
    }
    if l.node().outputs.len() > 5 {
        l.set(5, x.splat(DType::Float, &[], 0.0))?;
    }
    Ok(())
}

/// `FusedBatchNormGrad`, V2 and V3.
pub(crate) fn gradient(l: &mut Lowering<'_>) -> Result<()> {
    let settings = Settings::new(l.node())?;
    let (dy, images) = (l.input(0)?, l.input(1)?);
    ensure!(
        dy.dims() == images.dims(),
        InvalidArgument,
        "x and y_backprop must have same shape, got {:?} and {:?}",
        images.dims(),
        dy.dims()
    );
    let channels = Channels::new(&images, settings)?;
    let scale = channels.vector(l, 2, "scale")?;
    let mean = channels.vector(l, 3, "reserve_space_1")?;
    let variance = channels.vector(l, 4, "reserve_space_2")?;
    let (dy, x) = (dy.widened(), images.widened());
    let distance = x - channels.spread(&mean);
    let offset_backprop = channels.sum(&dy);
    let products = channels.sum(&(&dy * &distance));
    let inverse = (&variance + f64::from(settings.epsilon)).rsqrt();
    let scale_backprop = &products * &inverse;
    let factor = channels.spread(&(&scale * &inverse));
    let dx = match settings.is_training {
        false => &dy * factor,
        true => {
            let shift = channels.spread(&(&offset_backprop / channels.count()));
            let slope = &products / channels.count() * inverse.square();
            (dy - shift - distance * channels.spread(&slope)) * factor
        }
    };
    l.set(0, dx.convert(images.dtype()))?;
    for i in 3..5 {
        l.set(i, offset_backprop.splat(DType::Float, &[0], 0.0))?;
    }
    l.set(1, scale_backprop)?;
    l.set(2, offset_backprop)
}
