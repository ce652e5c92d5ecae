//! Operations whose shapes are operands, and calls of what StableHLO has no operation for.

use thalweg_tensor::{DType, Error, Result, Shape, bail, ensure, err};

use super::attributes;
use super::call::{Caller, Val, symbol};
use super::dims::{convolved, gathered, padded_by};
use super::known::{Known, required};
use super::module::Operation;
use crate::value::{Dims, Value, array};

/// Custom calls that return their operands: they speak to the partitioner and the layout assignment.
const IDENTITIES: &[&str] = &[
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
];

impl Caller<'_> {
    /// An operation with a shape among its operands, as the one whose shape is static.
    pub(super) fn dynamic(&mut self, op: &Operation, operands: &[Val]) -> Result<Vec<Val>> {
        let known = |i: usize| known_operand(op, operands, i);
        let value = |i: usize| self.operand_value(op, operands, i);
        match op.name.as_str() {
            "dynamic_broadcast_in_dim" => {
                let dims = only_dims(known(1)?.to_dims()?.into())?;
                let places = array(&required(op, "broadcast_dimensions")?);
                let attrs = format!("broadcast_dimensions = {places}");
                self.append("broadcast_in_dim", op, &[value(0)?], &[], &attrs, &dims)
            }
            "dynamic_reshape" => {
                let dims = only_dims(known(1)?.to_dims()?.into())?;
                self.append("reshape", op, &[value(0)?], &[], "", &dims)
            }
            "dynamic_iota" => {
                let dims = only_dims(known(0)?.to_dims()?.into())?;
                let attrs = attributes::text(op, &self.body, DType::Int32)?;
                self.append("iota", op, &[], &[], &attrs, &dims)
            }
            "dynamic_pad" => {
                let (x, padding) = (value(0)?, value(1)?);
                let [low, high, interior] =
                    [known(2)?, known(3)?, known(4)?].map(|k| k.elements.clone());
                let dims = only_dims(padded_by(&x.dims, &low, &high, &interior)?)?;
                let attrs = format!(
                    "edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                    array(&low),
                    array(&high),
                    array(&interior)
                );
                self.append("pad", op, &[x, padding], &[], &attrs, &dims)
            }
            "real_dynamic_slice" if matches!(operands.get(1), Some(Val::Program(_))) => {
                self.dynamic_slice(op, operands)
            }
            "real_dynamic_slice" => self.static_slice(op, operands),
            "dynamic_gather" => {
                let (x, indices, sizes) = (value(0)?, value(1)?, known(2)?);
                let dims = only_dims(gathered(op, &indices.dims, &sizes.to_dims()?)?)?;
                let attrs = attributes::gather(op, &sizes.elements)?;
                self.append("gather", op, &[x, indices], &[], &attrs, &dims)
            }
            "dynamic_conv" => {
                let (x, kernel, padding) = (value(0)?, value(1)?, &known(2)?.elements);
                let dims = only_dims(convolved(op, &x.dims, &kernel.dims, padding)?)?;
                let attrs = attributes::convolution(op, &self.body, x.dtype, padding)?;
                self.append("convolution", op, &[x, kernel], &[], &attrs, &dims)
            }
            name => {
                bail!(Unimplemented, "the module uses stablehlo.{name}, which is not supported")
            }
        }
    }

    /// A `real_dynamic_slice` whose start is computed by the program and whose sizes are known, as a
    /// `dynamic_slice`.
    fn dynamic_slice(&self, op: &Operation, operands: &[Val]) -> Result<Vec<Val>> {
        let sizes = self.sizes(operands).ok_or_else(|| not_known(op, 2))?;
        let starts = self.scalars(&self.operand_value(op, operands, 1)?)?;
        let attrs = format!("slice_sizes = {}", array(&sizes.elements));
        let operands = [vec![self.operand_value(op, operands, 0)?], starts].concat();
        let dims = only_dims(sizes.to_dims()?.into())?;
        self.append("dynamic_slice", op, &operands, &[], &attrs, &dims)
    }

    /// A `real_dynamic_slice` whose start, limit and strides are known, as a `slice`.
    fn static_slice(&self, op: &Operation, operands: &[Val]) -> Result<Vec<Val>> {
        let known = |i: usize| known_operand(op, operands, i);
        let all = [known(1)?, known(2)?, known(3)?];
        let [start, limit, stride] = all.map(Known::to_dims);
        let (start, limit, stride) = (start?, limit?, stride?);
        let dims: Option<Dims> = (0..start.len())
            .map(|i| {
                let step = stride.get(i).filter(|s| **s > 0)?;
                Some(limit.get(i)?.checked_sub(start[i])?.div_ceil(*step))
            })
            .collect();
        let dims = dims.ok_or_else(|| err!(InvalidArgument, "slice {start:?} to {limit:?}"))?;
        let [start, limit, stride] = all.map(|k| array(&k.elements));
        let attrs = format!("start_indices = {start}, limit_indices = {limit}, strides = {stride}");
        let x = self.operand_value(op, operands, 0)?;
        self.append("slice", op, &[x], &[], &attrs, &only_dims(dims)?)
    }

    /// Operand `i` of an operation as a value of the program.
    fn operand_value(&self, op: &Operation, operands: &[Val], i: usize) -> Result<Value> {
        match operands.get(i) {
            Some(operand) => self.value(operand.clone()),
            None => Err(err!(InvalidArgument, "{} has no operand {i}", op.name)),
        }
    }

    /// The sizes of a slice of `x`, `start`, `limit`, `strides` whose limit is its start plus what is known.
    fn sizes(&self, operands: &[Val]) -> Option<Known> {
        let [_, Val::Program(start), Val::Program(limit), Val::Known(strides)] = operands else {
            return None;
        };
        let (from, sizes) = self.sums.get(&limit.id)?;
        let is_dense = strides.elements.iter().all(|&stride| stride == 1);
        (*from == start.id && is_dense).then(|| sizes.clone())
    }

    /// The elements of a vector as scalars.
    fn scalars(&self, vector: &Value) -> Result<Vec<Value>> {
        let &[count] = vector.dims() else {
            bail!(InvalidArgument, "a slice starts at {vector:?}, which is no vector");
        };
        Ok((0..count).map(|i| vector.slice_dim(0, i, i + 1).reshape(&[])).collect())
    }

    pub(super) fn custom_call(&mut self, op: &Operation, operands: Vec<Val>) -> Result<Vec<Val>> {
        let target = symbol(op, "call_target_name")?;
        match target {
            "shape_assertion" => {
                self.check_assertion(op, &operands)?;
                Ok(Vec::new())
            }
            _ if IDENTITIES.contains(&target) => Ok(operands),
            "tf.call_tf_function" => bail!(
                Unimplemented,
                "the module calls back into TensorFlow (jax2tf.call_tf with call_tf_graph=True), which a \
                 program of an accelerator cannot; export the model without"
            ),
            _ => bail!(
                Unimplemented,
                "the module calls '{target}', code of the system that exported it, which is not here; \
                 export the model without (linear algebra and callbacks of JAX are such calls)"
            ),
        }
    }

    /// Fails with the message of an assertion that does not hold.
    fn check_assertion(&self, op: &Operation, operands: &[Val]) -> Result<()> {
        if self.call.ignores_assertions {
            return Ok(());
        }
        let Some(Val::Known(holds)) = operands.first() else {
            bail!(Unimplemented, "an assertion of the module depends on values of its arguments");
        };
        if holds.elements.iter().all(|&x| x != 0) {
            return Ok(());
        }
        let mut message = symbol(op, "error_message").unwrap_or("shapes do not fit").to_owned();
        for (i, operand) in operands.iter().skip(1).take(16).enumerate() {
            if let Val::Known(Known { elements, .. }) = operand {
                let text = elements.first().map_or(String::new(), i64::to_string);
                message = message.replace(&format!("{{{i}}}"), &text);
            }
        }
        ensure!(false, InvalidArgument, "{message}");
        Ok(())
    }
}

/// Operand `i` of an operation, which must be known.
fn known_operand<'a>(op: &Operation, operands: &'a [Val], i: usize) -> Result<&'a Known> {
    match operands.get(i) {
        Some(Val::Known(known)) => Ok(known),
        _ => Err(not_known(op, i)),
    }
}

/// The dimensions of the results of an operation with one result; an error if they are too large for a shape.
fn only_dims(dims: Dims) -> Result<Vec<Dims>> {
    Shape::new(&dims)?;
    Ok(vec![dims])
}

fn not_known(op: &Operation, operand: usize) -> Error {
    err!(
        Unimplemented,
        "a shape in the module depends on values of its arguments (operand {operand} of {})",
        op.name
    )
}
