//! Trainable variables as plain tensors, to be transferred between sessions.

use thalweg_api::{Any, Feed, NewOp, Operation, Output, Target};
use thalweg_tensor::{Result, Tensor, bail, ensure, err};

use crate::Model;

/// The handles that read a model's trainable variables from a session or write them.
///
/// ```
/// # use thalweg_tensor::{Result, Tensor};
/// # use thalweg_train::{Dense, Layer, Model, Weights};
/// # fn main() -> Result<()> {
/// let model = Model::new();
/// let x = model.placeholder::<f32>("x", [None, Some(3)]);
/// let y = Dense::new(2).apply(&model, &x);
/// let weights = Weights::new(&model);
/// let (one, other) = (model.session()?, model.session()?);
/// // The kernel and the bias, copied from one session to the other.
/// let values: Vec<Tensor> = one.run(weights.values(), (), &[])?;
/// other.run((), weights.feeds(&values)?, &[weights.set()])?;
/// # assert_eq!(values.len(), 2);
/// # let _ = y;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Weights {
    values: Vec<Output<Any>>,
    inputs: Vec<Output<Any>>,
    set: Operation,
}

impl Weights {
    /// Adds the nodes for the trainable variables, in the order of [`Model::trainable`].
    pub fn new(model: &Model) -> Weights {
        let (mut values, mut inputs, mut assigns) = (Vec::new(), Vec::new(), Vec::new());
        for info in model.trainable() {
            let beside = model.root().scope("weights").device(&info.device);
            let input = NewOp::new(&beside, "Placeholder").attr("dtype", info.dtype);
            let input: Output<Any> =
                input.attr("shape", &thalweg_tensor::PartialShape::from(&info.shape)).output();
            let variable = beside.existing_variable::<Any>(Some(info));
            assigns.push(variable.assign(&input));
            values.push(variable.value().clone());
            inputs.push(input);
        }
        let targets: Vec<&dyn Target> = assigns.iter().map(|assign| assign as _).collect();
        Weights { values, inputs, set: model.root().group("set_weights", &targets) }
    }

    /// The values of the variables, to fetch.
    pub fn values(&self) -> &[Output<Any>] {
        &self.values
    }

    /// The feeds for [`Weights::set`].
    pub fn feeds(&self, values: &[Tensor]) -> Result<Vec<Feed>> {
        ensure!(
            values.len() == self.inputs.len(),
            InvalidArgument,
            "{} tensors were given for {} variables",
            values.len(),
            self.inputs.len()
        );
        Ok(self.inputs.iter().zip(values).map(|(input, value)| input.feed(value.clone())).collect())
    }

    /// The target that assigns the fed values.
    pub fn set(&self) -> &Operation {
        &self.set
    }
}

/// The mean of several lists of tensors, weighted by the numbers beside them, as in federated
/// averaging; an error if there are none or if they differ in number or shape.
pub fn weighted_mean(lists: &[(f32, Vec<Tensor>)]) -> Result<Vec<Tensor>> {
    let (all, first) = match lists {
        [] => bail!(InvalidArgument, "the mean of no tensors is not defined"),
        [(_, first), ..] => (lists.iter().map(|(weight, _)| weight).sum::<f32>(), first),
    };
    let mean = |(i, like): (usize, &Tensor)| {
        let mut sum = vec![0.0f32; like.num_elements()];
        for (weight, list) in lists {
            let tensor = list.get(i).filter(|tensor| tensor.shape() == like.shape());
            let tensor = tensor.ok_or_else(|| {
                err!(InvalidArgument, "tensor {i} is not there in every list with one shape")
            })?;
            for (sum, value) in sum.iter_mut().zip(tensor.as_slice::<f32>()?) {
                *sum += weight / all * value;
            }
        }
        Tensor::from_slice(like.shape().clone(), &sum)
    };
    first.iter().enumerate().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted() {
        let list = |a: f32, b: f32| vec![Tensor::vector(&[a, b]).unwrap(), Tensor::scalar(b)];
        let mean = weighted_mean(&[(1.0, list(1.0, 2.0)), (3.0, list(5.0, -2.0))]).unwrap();
        assert_eq!(mean[0].as_slice::<f32>().unwrap(), [4.0, -1.0]);
        assert_eq!(mean[1].scalar_value::<f32>().unwrap(), -1.0);
        assert!(weighted_mean(&[]).is_err());
        let short = vec![Tensor::scalar(1.0f32)];
        let error = weighted_mean(&[(1.0, list(1.0, 2.0)), (1.0, short)]).unwrap_err();
        assert!(error.message().contains("tensor 0"), "{error}");
    }
}
