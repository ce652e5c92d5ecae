//! Optional values (`OptionalFromValue` and the like).

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, DType, Result, Shape, Tensor, Variant, VariantValue, bail, check_nesting, ensure,
};

use super::element::{Element, Spec};
use crate::lists::values::zero_element;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("OptionalFromValue", shape::scalar)
            .with_work(Work::none)
            .with_gradient(from_value_grad),
        OpDef::new("OptionalNone", shape::scalar).with_work(Work::none),
        OpDef::new("OptionalHasValue", shape::scalar).with_work(Work::none),
        OpDef::new("OptionalGetValue", declared_shapes)
            .with_work(Work::none)
            .with_gradient(get_value_grad),
    ],
    kernels: &[
        KernelSpec { op: "OptionalFromValue", create: from_value, ..CHEAP },
        KernelSpec { op: "OptionalNone", create: none, ..CHEAP },
        KernelSpec { op: "OptionalHasValue", create: has_value, ..CHEAP },
        KernelSpec { op: "OptionalGetValue", create: get_value, ..CHEAP },
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

fn from_value_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let inputs = g.inputs().to_vec();
    let dtypes: Vec<DType> = inputs.iter().map(|&x| g.dtype(x)).collect();
    let shapes: Vec<_> = inputs.iter().map(|&x| g.shape(x)).collect();
    let node = g.op("OptionalGetValue").input(grad).attr("output_types", &dtypes[..]);
    let values = node.attr("output_shapes", &shapes[..]).build_all()?;
    values.into_iter().enumerate().try_for_each(|(i, value)| g.set(i, value))
}

fn get_value_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grads = (0..g.num_outputs()).map(|i| g.grad(i)).collect::<Result<Vec<_>>>()?;
    let wrapped = g.add("OptionalFromValue", &grads)?;
    g.set(0, wrapped)
}

/// Output shapes from the attr `output_shapes`.
pub(crate) fn declared_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs().shapes("output_shapes")?;
    ensure!(
        shapes.len() == c.num_outputs(),
        InvalidArgument,
        "`output_shapes` must be the same length as `output_types` ({} vs. {})",
        shapes.len(),
        c.num_outputs()
    );
    for (i, shape) in shapes.into_iter().enumerate() {
        c.set_output(i, shape);
    }
    Ok(())
}

/// TensorFlow's type name of the variant.
pub(crate) const OPTIONAL_TYPE: &str = "tensorflow::data::Optional";

/// An element or none.
#[derive(Debug)]
struct Optional(Option<Element>);

impl Variant for Optional {
    fn type_name(&self) -> &str {
        OPTIONAL_TYPE
    }

    fn depth(&self) -> usize {
        let depths = self.0.iter().flatten().map(|tensor| check_nesting(tensor).unwrap_or(0));
        depths.max().unwrap_or(0)
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        let tensors = self.0.as_ref().map_or_else(Vec::new, |element| element.to_vec());
        Some((Bytes::copy_from_slice(&[u8::from(self.0.is_some())]), tensors))
    }
}

/// A scalar variant that holds an optional element.
pub(crate) fn optional(element: Option<Element>) -> Result<Tensor> {
    element.iter().flatten().try_for_each(|tensor| check_nesting(tensor).map(drop))?;
    Tensor::from_variants(Shape::scalar(), vec![Some(Arc::new(Optional(element)))])
}

/// The optional in a variant, which may have been decoded from another process.
fn value_of(tensor: &Tensor) -> Result<Option<Element>> {
    let [value] = tensor.variants()? else {
        bail!(InvalidArgument, "Input to an optional op must be a scalar, got {}", tensor.shape());
    };
    decoded(value)
}

fn decoded(value: &VariantValue) -> Result<Option<Element>> {
    let Some(value) = value else {
        bail!(InvalidArgument, "Input is not an optional: the variant is empty");
    };
    let any: &dyn Any = &**value;
    if let Some(Optional(element)) = any.downcast_ref() {
        return Ok(element.clone());
    }
    match value.encode() {
        Some((flag, tensors)) if value.type_name() == OPTIONAL_TYPE => {
            Ok((flag.first() == Some(&1)).then(|| SmallVec::from_vec(tensors)))
        }
        _ => bail!(InvalidArgument, "Input is not an optional but a {}", value.type_name()),
    }
}

/// An optional with zeros in place of each component; none stays none.
pub(crate) fn zeros(ctx: &KernelContext<'_>, like: &VariantValue) -> Result<Tensor> {
    let zero = |tensor: &Tensor| zero_element(ctx, tensor);
    let element = decoded(like)?.map(|e| e.iter().map(zero).collect::<Result<Element>>());
    optional(element.transpose()?)
}

fn from_value(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let element = (0..ctx.num_inputs()).map(|i| ctx.take_input(i)).collect::<Result<_>>()?;
        ctx.set_output(0, optional(Some(element))?)
    })
}

fn none(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| ctx.set_output(0, optional(None)?))
}

fn has_value(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let has_value = value_of(ctx.input(0)?)?.is_some();
        ctx.set_output(0, Tensor::scalar(has_value))
    })
}

fn get_value(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let Some(element) = value_of(ctx.input(0)?)? else {
            bail!(InvalidArgument, "The given optional does not have a value.");
        };
        spec.check(&element)?;
        for (i, tensor) in element.into_iter().enumerate() {
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;

    #[test]
    fn a_value_travels_as_bytes_and_tensors() {
        let full = optional(Some(Element::from_iter([Tensor::scalar(7)]))).unwrap();
        let wire = Tensor::from_proto(&full.to_proto().unwrap(), None).unwrap();
        let element = value_of(&wire).unwrap().unwrap();
        assert_eq!(element[0].scalar_value::<i32>().unwrap(), 7);
        let empty = optional(None).unwrap();
        let wire = Tensor::from_proto(&empty.to_proto().unwrap(), None).unwrap();
        assert!(value_of(&wire).unwrap().is_none());
        assert!(
            !call("OptionalHasValue").input(wire).run().unwrap().scalar_value::<bool>().unwrap()
        );
    }
}
