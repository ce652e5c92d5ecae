//! Calls of a module: its functions become operations of the caller's program.
//!
//! Functions are inlined, with the shapes of the arguments. What a module computes of dimensions is
//! evaluated, so operations whose shapes were open when the model was exported have static ones here.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_tensor::{DType, Result, Shape, bail, ensure, err};

use super::attributes;
use super::dims::{describe, is_plain, result_dims};
use super::known::{Known, evaluate, integer};
use super::module::{Module, Operation, Region};
use super::tables::{Attr, Element, Type};
use crate::program::{Body, Program};
use crate::value::{Dims, Value};

/// How deep calls and regions nest.
const DEPTH_MAX: usize = 96;
/// Most operations and values that one call of a module has, with those of functions as often as they
/// are called; constants count by their size.
const STEPS_MAX: usize = 1_000_000;
/// Bytes of a constant that count as one operation.
const BYTES_PER_STEP: usize = 128;

/// How a module is called.
#[derive(Clone, Debug, Default)]
pub struct ModuleCall {
    /// The first arguments: of a module for several platforms, which of them this is; then dimensions,
    /// in old modules.
    pub leading: Vec<i64>,
    /// Whether assertions about shapes are left out.
    pub ignores_assertions: bool,
}

/// A value while a module is called.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Program(Value),
    Known(Known),
    Token,
}

/// The values of a function, by their numbers.
pub(super) type Frame = Vec<Option<Val>>;

impl Program {
    /// The results of a module's function `main`, except for tokens.
    pub fn call_module(
        &self,
        module: &Module,
        call: &ModuleCall,
        arguments: &[Value],
    ) -> Result<Vec<Value>> {
        let mut caller = Caller {
            module,
            body: self.body().clone(),
            call,
            sums: HashMap::new(),
            steps: 0,
            depth: 0,
        };
        let main = caller.main_arguments(arguments)?;
        let results = caller.function("main", main)?;
        let values = results.into_iter().filter(|v| !matches!(v, Val::Token));
        values.map(|v| caller.value(v)).collect()
    }
}

pub(super) struct Caller<'a> {
    module: &'a Module,
    pub(super) body: Rc<Body>,
    pub(super) call: &'a ModuleCall,
    /// For each sum of a value and a known tensor, by their numbers: the value, and the tensor.
    pub(super) sums: HashMap<u32, (u32, Known)>,
    steps: usize,
    depth: usize,
}

impl Caller<'_> {
    /// The arguments of `main`: the platform, tokens and those of the caller.
    fn main_arguments(&self, arguments: &[Value]) -> Result<Vec<Val>> {
        let main = self.module.functions.get("main");
        let main = main.ok_or_else(|| err!(InvalidArgument, "the module has no 'main'"))?;
        let mut rest = arguments.iter();
        let mut all = Vec::with_capacity(main.body.arguments.len());
        for (i, (_, ty)) in main.body.arguments.iter().enumerate() {
            if let Some(&leading) = self.call.leading.get(i) {
                let Type::Tensor(Element::Known(dtype @ (DType::Int32 | DType::Int64)), dims) =
                    &**ty
                else {
                    bail!(
                        InvalidArgument,
                        "argument {i} of the module must be an integer, is {}",
                        describe(ty)
                    );
                };
                ensure!(
                    dims.is_empty(),
                    InvalidArgument,
                    "argument {i} of the module must be a scalar"
                );
                all.push(Val::Known(Known::scalar(*dtype, leading)));
                continue;
            }
            if **ty == Type::Token {
                all.push(Val::Token);
                continue;
            }
            let value = rest.next().ok_or_else(|| self.wrong_count(arguments.len()))?;
            check_argument(arguments.len() - rest.len() - 1, ty, value)?;
            all.push(Val::Program(value.clone()));
        }
        ensure!(
            rest.len() == 0,
            InvalidArgument,
            "{}",
            self.wrong_count(arguments.len()).message()
        );
        Ok(all)
    }

    fn wrong_count(&self, count: usize) -> thalweg_tensor::Error {
        let main = self.module.functions.get("main");
        let all = main.map_or(&[][..], |main| &main.body.arguments);
        let tokens = all.iter().filter(|(_, ty)| **ty == Type::Token).count();
        let expected = all.len().saturating_sub(tokens + self.call.leading.len());
        err!(InvalidArgument, "the module takes {expected} arguments, the node has {count}")
    }

    fn spend(&mut self, steps: usize) -> Result<()> {
        self.steps += steps;
        ensure!(
            self.steps <= STEPS_MAX,
            ResourceExhausted,
            "the module has more than {STEPS_MAX} operations when its functions are inlined"
        );
        Ok(())
    }

    /// The results of a function.
    pub(super) fn function(&mut self, name: &str, arguments: Vec<Val>) -> Result<Vec<Val>> {
        let module = self.module;
        let function = module.functions.get(name);
        let function = function.ok_or_else(|| err!(InvalidArgument, "there is no @{name}"))?;
        self.spend(1 + function.num_values)?;
        let mut frame = vec![None; function.num_values];
        self.region(&function.body, &mut frame, arguments).map_err(|e| match name {
            "main" => e,
            _ => e.map_message(|m| format!("in @{name}: {m}")),
        })
    }

    /// The results of a region with these arguments.
    pub(super) fn region(
        &mut self,
        region: &Region,
        frame: &mut Frame,
        arguments: Vec<Val>,
    ) -> Result<Vec<Val>> {
        ensure!(self.depth < DEPTH_MAX, InvalidArgument, "calls of the module nest too deep");
        ensure!(
            region.arguments.len() == arguments.len(),
            InvalidArgument,
            "{} arguments instead of {}",
            arguments.len(),
            region.arguments.len()
        );
        self.depth += 1;
        for ((value, _), argument) in region.arguments.iter().zip(arguments) {
            frame[*value as usize] = Some(argument);
        }
        let results = self.operations(&region.operations, frame);
        self.depth -= 1;
        results
    }

    fn operations(&mut self, operations: &[Operation], frame: &mut Frame) -> Result<Vec<Val>> {
        for op in operations {
            self.spend(1 + op.results.len() + op.operands.len())?;
            let mut operands = Vec::with_capacity(op.operands.len());
            for &value in &op.operands {
                let operand = frame.get(value as usize).cloned().flatten();
                operands.push(operand.ok_or_else(|| err!(InvalidArgument, "a value is missing"))?);
            }
            if op.name == "return" {
                return Ok(operands);
            }
            let results = self.operation(op, operands, frame)?;
            ensure!(
                results.len() == op.results.len(),
                InvalidArgument,
                "{} makes {} results, not {}",
                op.name,
                results.len(),
                op.results.len()
            );
            for ((value, _), result) in op.results.iter().zip(results) {
                frame[*value as usize] = Some(result);
            }
        }
        bail!(InvalidArgument, "a region of the module does not return")
    }

    fn operation(
        &mut self,
        op: &Operation,
        operands: Vec<Val>,
        frame: &mut Frame,
    ) -> Result<Vec<Val>> {
        match op.name.as_str() {
            "constant" => return self.constant(op),
            "call" => return self.function(symbol(op, "callee")?, operands),
            "composite" => return self.function(symbol(op, "decomposition")?, operands),
            "custom_call" => return self.custom_call(op, operands),
            "create_token" | "after_all" => return Ok(vec![Val::Token]),
            "optimization_barrier" => return Ok(barrier(operands)),
            "get_dimension_size" => return dimension_size(op, &operands),
            "if" | "case" => return self.branches(op, operands, frame),
            "while" => return self.repeat(op, operands, frame),
            _ => {}
        }
        let known = operands.iter().map(|v| match v {
            Val::Known(known) => Some(known),
            _ => None,
        });
        if let Some(known) = known.collect::<Option<Vec<&Known>>>()
            && let Some(result) = evaluate(op, &known)
        {
            return Ok(vec![Val::Known(result)]);
        }
        if op.name.contains("dynamic_")
            && op.name != "dynamic_slice"
            && op.name != "dynamic_update_slice"
        {
            return self.dynamic(op, &operands);
        }
        ensure!(
            is_plain(&op.name),
            Unimplemented,
            "the module uses stablehlo.{}, which is not supported",
            op.name
        );
        let known = match &operands[..] {
            [_, Val::Known(known)] if op.name == "add" => Some(known.clone()),
            _ => None,
        };
        let operands: Vec<Value> =
            operands.into_iter().map(|v| self.value(v)).collect::<Result<_>>()?;
        let dims = result_dims(op, &operands)?;
        let mut regions = Vec::with_capacity(op.regions.len());
        for region in &op.regions {
            let types = region.arguments.iter().map(|(_, ty)| static_type(ty));
            let types: Vec<(DType, Dims)> = types.collect::<Result<_>>()?;
            regions.push(self.region_text(region, frame, &types, as_arguments)?.0);
        }
        let dtype = operands.first().map_or(DType::Float, |operand| operand.dtype);
        let attrs = attributes::text(op, &self.body, dtype)?;
        let results = self.append(&op.name, op, &operands, &regions, &attrs, &dims)?;
        if let (Some(known), [Val::Program(sum)]) = (known, &results[..]) {
            self.sums.insert(sum.id, (operands[0].id, known));
        }
        Ok(results)
    }

    /// Appends an operation whose results have these dimensions and the dtypes that the module says.
    pub(super) fn append(
        &self,
        name: &str,
        op: &Operation,
        operands: &[Value],
        regions: &[String],
        attrs: &str,
        dims: &[Dims],
    ) -> Result<Vec<Val>> {
        let mut types = Vec::with_capacity(dims.len());
        for ((_, ty), dims) in op.results.iter().zip(dims) {
            let Type::Tensor(element, _) = &**ty else {
                bail!(Unimplemented, "{} makes {}", op.name, describe(ty));
            };
            types.push((dtype_of(element)?, dims.clone()));
        }
        let operands: Vec<&Value> = operands.iter().collect();
        let regions =
            if regions.is_empty() { String::new() } else { format!(" ({})", regions.join(", ")) };
        let attrs = if attrs.is_empty() { String::new() } else { format!(" {{{attrs}}}") };
        let values = self.body.append_all(name, &operands, &regions, &attrs, &types);
        Ok(values.into_iter().map(Val::Program).collect())
    }

    /// The text of a region with arguments of these types, and its results; `bind` makes the region's
    /// arguments of those of the text.
    pub(super) fn region_text(
        &mut self,
        region: &Region,
        frame: &mut Frame,
        types: &[(DType, Dims)],
        bind: impl FnOnce(&[Value]) -> Vec<Val>,
    ) -> Result<(String, Vec<(DType, Dims)>)> {
        self.region_of(region, frame, types, bind, |_, results| results)
    }

    /// The same with a choice of the results.
    pub(super) fn region_of(
        &mut self,
        region: &Region,
        frame: &mut Frame,
        types: &[(DType, Dims)],
        bind: impl FnOnce(&[Value]) -> Vec<Val>,
        choose: impl FnOnce(&mut Self, Vec<Val>) -> Vec<Val>,
    ) -> Result<(String, Vec<(DType, Dims)>)> {
        let body = self.body.clone();
        let mut failure = None;
        let text = body.region(types, |arguments| {
            let results = self.region(region, frame, bind(arguments)).and_then(|results| {
                let results = choose(self, results).into_iter();
                let results = results.filter(|v| !matches!(v, Val::Token));
                results.map(|v| self.value(v)).collect::<Result<Vec<Value>>>()
            });
            results.unwrap_or_else(|e| {
                failure = Some(e);
                Vec::new()
            })
        });
        failure.map_or(Ok(text), Err)
    }

    /// A value of the program.
    pub(super) fn value(&self, value: Val) -> Result<Value> {
        match value {
            Val::Program(value) => Ok(value),
            Val::Known(known) => Ok(self.body.raw(known.dtype, &known.dims, &known.to_bytes())),
            Val::Token => bail!(Unimplemented, "the module computes with tokens"),
        }
    }

    fn constant(&mut self, op: &Operation) -> Result<Vec<Val>> {
        let Some(Attr::Tensor(ty, bytes)) = op.attr("value") else {
            bail!(InvalidArgument, "a constant of the module has no value");
        };
        self.spend(bytes.len() / BYTES_PER_STEP)?;
        let (dtype, dims) = static_type(ty)?;
        let count = Shape::new(&dims)?.num_elements();
        let is_whole = Some(bytes.len()) == count.checked_mul(dtype.size());
        ensure!(
            is_whole || bytes.len() == dtype.size(),
            InvalidArgument,
            "a constant of shape {dims:?} has {} bytes",
            bytes.len()
        );
        Ok(vec![match Known::of_bytes(dtype, &dims, bytes) {
            Some(known) => Val::Known(known),
            None => Val::Program(self.body.raw(dtype, &dims, bytes)),
        }])
    }

    /// `if` and `case`; of a known condition, the branch alone.
    fn branches(
        &mut self,
        op: &Operation,
        operands: Vec<Val>,
        frame: &mut Frame,
    ) -> Result<Vec<Val>> {
        let [condition] = <[Val; 1]>::try_from(operands)
            .map_err(|_| err!(InvalidArgument, "{} takes one operand", op.name))?;
        ensure!(!op.regions.is_empty(), InvalidArgument, "{} has no branches", op.name);
        if let Val::Known(known) = &condition {
            let last = op.regions.len() - 1;
            let x = known.elements.first().copied().unwrap_or(0);
            let branch = match op.name.as_str() {
                "if" => usize::from(x == 0).min(last),
                _ => usize::try_from(x).map_or(last, |x| x.min(last)),
            };
            return self.region(&op.regions[branch], frame, Vec::new());
        }
        let condition = self.value(condition)?;
        let mut texts = Vec::with_capacity(op.regions.len());
        let mut types = Vec::new();
        for (i, region) in op.regions.iter().enumerate() {
            let (text, results) = self.region_text(region, frame, &[], |_| Vec::new())?;
            ensure!(
                i == 0 || results == types,
                InvalidArgument,
                "the branches of a conditional have results of different types"
            );
            types = results;
            texts.push(text);
        }
        let regions = format!(" ({})", texts.join(", "));
        let values = self.body.append_all(&op.name, &[&condition], &regions, "", &types);
        with_tokens(op, values)
    }

    /// Loops. A known value that the loop does not change is known inside as well.
    fn repeat(
        &mut self,
        op: &Operation,
        operands: Vec<Val>,
        frame: &mut Frame,
    ) -> Result<Vec<Val>> {
        let [condition, body] = &op.regions[..] else {
            bail!(InvalidArgument, "while has {} regions", op.regions.len());
        };
        let returned = body.operations.last().filter(|last| last.name == "return");
        let is_kept = |i: usize| {
            let argument = body.arguments.get(i).map(|(value, _)| *value);
            argument.is_some() && returned.and_then(|r| r.operands.get(i)).copied() == argument
        };
        let mut fixed = Vec::with_capacity(operands.len());
        let mut initial = Vec::new();
        for (i, operand) in operands.into_iter().enumerate() {
            match operand {
                Val::Token => fixed.push(Some(Val::Token)),
                Val::Known(known) if is_kept(i) => fixed.push(Some(Val::Known(known))),
                other => {
                    initial.push(self.value(other)?);
                    fixed.push(None);
                }
            }
        }
        let types: Vec<(DType, Dims)> = initial.iter().map(|v| (v.dtype, v.dims.clone())).collect();
        let bind = |values: &[Value]| {
            let mut values = values.iter().cloned().map(Val::Program);
            fixed
                .iter()
                .map(|f| f.clone().or_else(|| values.next()).unwrap_or(Val::Token))
                .collect()
        };
        let (condition, _) = self.region_text(condition, frame, &types, bind)?;
        let choose = |_: &mut Self, results: Vec<Val>| {
            let changing = results.into_iter().zip(&fixed).filter(|(_, fixed)| fixed.is_none());
            changing.map(|(result, _)| result).collect()
        };
        let (body, results) = self.region_of(body, frame, &types, bind, choose)?;
        ensure!(
            results == types,
            Unimplemented,
            "a loop of the module changes the shapes of its values"
        );
        if types.is_empty() {
            bail!(Unimplemented, "a loop of the module has no values");
        }
        let operands: Vec<&Value> = initial.iter().collect();
        let regions = format!(" ({condition}, {body})");
        let values = self.body.append_all("while", &operands, &regions, "", &types);
        Ok(bind(&values))
    }
}

/// The values of the program behind a barrier; others stay what they are.
fn barrier(operands: Vec<Val>) -> Vec<Val> {
    let values = operands.iter().filter_map(|v| match v {
        Val::Program(value) => Some(value.clone()),
        _ => None,
    });
    let mut behind = Value::barrier(&values.collect::<Vec<Value>>()).into_iter();
    let next = |operand: Val| match operand {
        Val::Program(value) => Val::Program(behind.next().unwrap_or(value)),
        other => other,
    };
    operands.into_iter().map(next).collect()
}

/// The results of an operation, of which the text has those that are no tokens.
fn with_tokens(op: &Operation, values: Vec<Value>) -> Result<Vec<Val>> {
    let mut values = values.into_iter();
    let result = |(_, ty): &(u32, std::sync::Arc<Type>)| match **ty {
        Type::Token => Ok(Val::Token),
        _ => values
            .next()
            .map(Val::Program)
            .ok_or_else(|| err!(InvalidArgument, "{} makes too few results", op.name)),
    };
    op.results.iter().map(result).collect()
}

fn as_arguments(values: &[Value]) -> Vec<Val> {
    values.iter().cloned().map(Val::Program).collect()
}

fn dimension_size(op: &Operation, operands: &[Val]) -> Result<Vec<Val>> {
    let dims: &[usize] = match operands {
        [Val::Program(value)] => value.dims(),
        [Val::Known(known)] => &known.dims,
        _ => bail!(InvalidArgument, "get_dimension_size takes one tensor"),
    };
    let dim = integer(op, "dimension")?;
    let size = usize::try_from(dim).ok().and_then(|dim| dims.get(dim));
    let size = size.ok_or_else(|| err!(InvalidArgument, "{dims:?} has no dimension {dim}"))?;
    let size = i32::try_from(*size)
        .map_err(|_| err!(InvalidArgument, "a dimension of {dims:?} exceeds 32 bits"))?;
    Ok(vec![Val::Known(Known::scalar(DType::Int32, size.into()))])
}

pub(super) fn symbol<'a>(op: &'a Operation, name: &str) -> Result<&'a str> {
    match op.attr(name) {
        Some(Attr::Text(symbol)) => Ok(symbol),
        _ => Err(err!(InvalidArgument, "{} has no text '{name}'", op.name)),
    }
}

pub(super) fn dtype_of(element: &Element) -> Result<DType> {
    match element {
        Element::Known(dtype) => Ok(*dtype),
        Element::Unknown(code) => Err(err!(
            Unimplemented,
            "the module uses elements of VHLO's type {code}, which TensorFlow has no dtype for"
        )),
    }
}

/// A type whose dimensions are all known.
fn static_type(ty: &Type) -> Result<(DType, Dims)> {
    let Type::Tensor(element, dims) = ty else {
        bail!(Unimplemented, "the module uses {}", describe(ty));
    };
    let dims: Option<Dims> = dims.iter().copied().collect();
    let dims = dims.ok_or_else(|| err!(Unimplemented, "a region has open shapes"))?;
    Ok((dtype_of(element)?, dims))
}

/// Checks an argument against what `main` takes.
fn check_argument(position: usize, ty: &Type, value: &Value) -> Result<()> {
    let Type::Tensor(element, dims) = ty else {
        bail!(Unimplemented, "argument {position} of the module is {}", describe(ty));
    };
    let dtype = dtype_of(element)?;
    let fits = dims.len() == value.rank()
        && dims.iter().zip(value.dims()).all(|(declared, dim)| declared.is_none_or(|d| d == *dim));
    ensure!(
        fits && dtype == value.dtype(),
        InvalidArgument,
        "argument {position} of the module must be {}, is {value:?}",
        describe(ty)
    );
    Ok(())
}
