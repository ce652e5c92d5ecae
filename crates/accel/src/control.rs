//! Calls, branches and loops of a region: their functions become part of its program.
//!
//! The functions of a call are inlined. A branch is a conditional of the program and a loop a loop of it, both
//! with the values that their functions give and the variables that they assign as results. Inputs that a loop
//! passes on unchanged stay what they are outside of it: values, handles, or tensors that are known.

use std::collections::BTreeSet;
use std::mem;

use smallvec::SmallVec;
use thalweg_graph::{AttrValue, Attrs, Graph, Node, NodeId, Role};
use thalweg_hlo::{Block, Comparison, Value};
use thalweg_kernel::{Operand, RegionVariable};
use thalweg_plan::{forwarded_arguments, nodes_that_run};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};

use crate::compile::{Body, Operands};

/// A function that a node calls.
struct Callee {
    name: String,
    attrs: Attrs,
}

/// The truth of a condition.
enum Truth {
    Known(bool),
    Value(Value),
}

/// What selects a branch.
enum Selector {
    /// The first branch if it holds, else the second.
    Condition(Value),
    /// The branch at this position, else the last.
    Index(Value),
}

/// A branch under construction.
struct Side {
    block: Block,
    results: Vec<Operand>,
    variables: Vec<RegionVariable>,
    /// What the block returns.
    returned: Vec<Value>,
}

impl Body<'_> {
    /// Lowers a node that calls functions.
    pub(crate) fn call(&mut self, node: &Node, inputs: &[Operand]) -> Result<Operands> {
        let first =
            || inputs.first().ok_or_else(|| err!(InvalidArgument, "{} has no input", node.op.name));
        let outputs = match node.role() {
            Role::Function => {
                let attrs = node.attrs.clone();
                self.function(&Callee { name: node.op.name.clone(), attrs }, inputs)?
            }
            Role::PartitionedCall => self.function(&callee(node, "f")?, inputs)?,
            Role::If => {
                let branches = [callee(node, "then_branch")?, callee(node, "else_branch")?];
                match truth(first()?)? {
                    Truth::Known(is_true) => {
                        self.function(&branches[usize::from(!is_true)], &inputs[1..])?
                    }
                    Truth::Value(condition) => {
                        self.choose(&Selector::Condition(condition), &branches, &inputs[1..])?
                    }
                }
            }
            Role::Case => {
                let branches = callees(node.attrs().value("branches")?);
                ensure!(!branches.is_empty(), InvalidArgument, "a case without branches");
                match first()? {
                    Operand::Value(index) => {
                        let index = Selector::Index(index.clone());
                        self.choose(&index, &branches, &inputs[1..])?
                    }
                    Operand::Host(index) => {
                        let index = index.as_slice::<i32>()?.first().copied().unwrap_or(-1);
                        let last = branches.len() - 1;
                        let index = usize::try_from(index).map_or(last, |i| i.min(last));
                        self.function(&branches[index], &inputs[1..])?
                    }
                    Operand::Variable(_) => bail!(Internal, "a variable selects a branch"),
                }
            }
            Role::While => self.repeat(&callee(node, "cond")?, &callee(node, "body")?, inputs)?,
            role => bail!(Unimplemented, "a program has no {role:?}"),
        };
        ensure!(
            outputs.len() == node.outputs.len(),
            InvalidArgument,
            "its function has {} results, the node {} outputs",
            outputs.len(),
            node.outputs.len()
        );
        Ok(SmallVec::from_vec(outputs))
    }

    /// Lowers the nodes of a function; its results.
    fn function(&mut self, callee: &Callee, args: &[Operand]) -> Result<Vec<Operand>> {
        let Callee { name, attrs } = callee;
        let function = self.graph.function_body(name, attrs)?;
        ensure!(
            function.args.len() == args.len(),
            InvalidArgument,
            "function '{name}' takes {} arguments, got {}",
            function.args.len(),
            args.len()
        );
        let order = nodes_that_run(&function)
            .ok_or_else(|| err!(Unimplemented, "function '{name}' has a cycle"))?;
        let mut inner = self.inside(function.graph)?;
        for (&id, arg) in function.args.iter().zip(args) {
            inner.set_argument(id, arg)?;
        }
        let is_inner = |id: &NodeId, graph: &Graph| {
            !matches!(graph.node(*id).role(), Role::Arg | Role::Retval)
                && !function.args.contains(id)
        };
        for id in order {
            if is_inner(&id, &inner.graph) {
                inner.visit(id).map_err(|e| e.in_function(name))?;
            }
        }
        let result = |id: &NodeId| inner.operand(inner.graph.node(*id).inputs[0]);
        let results = function.results.iter().map(result).collect();
        self.take_back(inner);
        Ok(results)
    }

    /// Lowers functions of which the selector chooses one.
    fn choose(
        &mut self,
        selector: &Selector,
        functions: &[Callee],
        args: &[Operand],
    ) -> Result<Vec<Operand>> {
        let program = self.program;
        let before = self.variables.clone();
        let mut sides: Vec<Side> = Vec::with_capacity(functions.len());
        for function in functions {
            let mut block = program.block(&[]);
            let results = program.within(&mut block, || self.function(function, args))?;
            let variables = mem::replace(&mut self.variables, before.clone());
            sides.push(Side { block, results, variables, returned: Vec::new() });
        }
        let num_results = sides[0].results.len();
        ensure!(
            sides.iter().all(|side| side.results.len() == num_results),
            InvalidArgument,
            "the branches have different numbers of results"
        );
        // For each result, what it is in all branches, or its position among those of the conditional.
        let mut joined: Vec<std::result::Result<Operand, usize>> = Vec::with_capacity(num_results);
        for i in 0..num_results {
            joined.push(match common(&sides, i) {
                Some(operand) => Ok(operand),
                None => {
                    for side in &mut sides {
                        let value = self.value_in(&mut side.block, &side.results[i])?;
                        side.returned.push(value);
                    }
                    Err(sides[0].returned.len() - 1)
                }
            });
        }
        let mut assigned: Vec<usize> = Vec::new();
        for (position, variable) in before.iter().enumerate() {
            let values = || sides.iter().map(|side| &side.variables[position].value);
            if values().all(|value| is_same(value, &variable.value)) {
                continue;
            }
            let values: Option<Vec<Value>> = values().cloned().collect();
            let values = values.ok_or_else(|| {
                err!(Unimplemented, "a branch assigns '{}' for the first time", variable.name)
            })?;
            sides.iter_mut().zip(values).for_each(|(side, value)| side.returned.push(value));
            assigned.push(position);
        }
        for side in &sides[1..] {
            check_types(&sides[0].returned, &side.returned, "branches of different shapes")?;
        }
        let blocks: Vec<(Block, Vec<Value>)> =
            sides.into_iter().map(|side| (side.block, side.returned)).collect();
        let mut results = match (selector, <[_; 2]>::try_from(blocks)) {
            (_, Ok([(_, first), _])) if first.is_empty() => Vec::new(),
            (Selector::Condition(condition), Ok(both)) => program.branch(condition, &both),
            (Selector::Condition(_), Err(_)) => bail!(Internal, "a condition of two branches"),
            (Selector::Index(index), Ok(both)) => program.case(index, &both),
            (Selector::Index(_), Err(all)) if all[0].1.is_empty() => Vec::new(),
            (Selector::Index(index), Err(all)) => program.case(index, &all),
        };
        let of_variables = results.split_off(results.len() - assigned.len());
        for (position, value) in assigned.into_iter().zip(of_variables) {
            self.assign(position, value);
        }
        let operand = |joined: std::result::Result<Operand, usize>| match joined {
            Ok(operand) => operand,
            Err(position) => Operand::Value(results[position].clone()),
        };
        Ok(joined.into_iter().map(operand).collect())
    }

    /// Lowers a loop.
    fn repeat(&mut self, cond: &Callee, body: &Callee, inputs: &[Operand]) -> Result<Vec<Operand>> {
        let program = self.program;
        let function = self.graph.function_body(&body.name, &body.attrs)?;
        let forwarded = forwarded_arguments(&function);
        // The inputs that change from one iteration to the next.
        let carried: Vec<usize> =
            (0..inputs.len()).filter(|&i| forwarded.get(i) != Some(&Some(i))).collect();
        let mut initial: Vec<Value> = Vec::with_capacity(carried.len());
        for &i in &carried {
            initial.push(self.value(&inputs[i])?);
        }
        let held = self.held_variables(inputs);
        initial.extend(held.iter().filter_map(|&p| self.variables[p].value.clone()));
        ensure!(!initial.is_empty(), Unimplemented, "a loop in which nothing changes");
        let before = self.variables.clone();

        let mut cond_block = program.block(&initial);
        let args = self.enter(&cond_block, inputs, &carried, &held);
        let goes_on = program.within(&mut cond_block, || {
            let results = self.function(cond, &args)?;
            let [result] = &results[..] else {
                bail!(InvalidArgument, "a condition has one result")
            };
            Ok(match truth(result)? {
                Truth::Known(is_true) => program.constant(&Tensor::scalar(is_true)),
                Truth::Value(value) => value,
            })
        })?;
        let of_held = &cond_block.arguments()[carried.len()..];
        ensure!(
            self.changed(&before, &held, of_held).is_empty(),
            Unimplemented,
            "the condition of a loop assigns a variable"
        );

        let mut body_block = program.block(&initial);
        let args = self.enter(&body_block, inputs, &carried, &held);
        let results = program.within(&mut body_block, || self.function(body, &args))?;
        ensure!(
            results.len() == inputs.len(),
            InvalidArgument,
            "the body of a loop over {} values has {} results",
            inputs.len(),
            results.len()
        );
        let mut returned: Vec<Value> = Vec::with_capacity(initial.len());
        for &i in &carried {
            returned.push(self.value_in(&mut body_block, &results[i])?);
        }
        returned.extend(held.iter().filter_map(|&p| self.variables[p].value.clone()));
        check_types(&initial, &returned, "a loop whose values change their shapes")?;
        let of_held = &body_block.arguments()[carried.len()..];
        let assigned = self.changed(&before, &held, of_held);
        let first = assigned.iter().find(|p| !held.contains(p));
        if let Some(&position) = first {
            let name = &before[position].name;
            bail!(Unimplemented, "a loop assigns '{name}' for the first time");
        }
        let mut values =
            program.repeat(&initial, (&cond_block, &goes_on), (&body_block, &returned));
        let of_held = values.split_off(carried.len());
        self.variables = before;
        for (&position, value) in held.iter().zip(of_held) {
            if assigned.contains(&position) {
                self.assign(position, value);
            }
        }
        let mut outputs = inputs.to_vec();
        for (i, value) in carried.into_iter().zip(values) {
            outputs[i] = Operand::Value(value);
        }
        Ok(outputs)
    }

    /// The variables that functions with these arguments can assign, if they have values.
    fn held_variables(&self, args: &[Operand]) -> Vec<usize> {
        let position = |operand: &Operand| match operand {
            Operand::Variable(position) => Some(*position),
            _ => None,
        };
        let made = self.handles.values().flatten();
        let all: BTreeSet<usize> = args.iter().chain(made).filter_map(position).collect();
        all.into_iter().filter(|&p| self.variables[p].value.is_some()).collect()
    }

    /// Sets the variables to what they are in a block of a loop; the arguments of its function.
    fn enter(
        &mut self,
        block: &Block,
        inputs: &[Operand],
        carried: &[usize],
        held: &[usize],
    ) -> Vec<Operand> {
        let (values, of_held) = block.arguments().split_at(carried.len());
        for (&position, value) in held.iter().zip(of_held) {
            self.variables[position].value = Some(value.clone());
        }
        let mut args = inputs.to_vec();
        for (&i, value) in carried.iter().zip(values) {
            args[i] = Operand::Value(value.clone());
        }
        args
    }

    /// The variables that a block of a loop assigned, where those that are held began as `of_held`.
    fn changed(&self, before: &[RegionVariable], held: &[usize], of_held: &[Value]) -> Vec<usize> {
        let began = |position: usize| match held.iter().position(|&p| p == position) {
            Some(i) => Some(of_held[i].clone()),
            None => before[position].value.clone(),
        };
        let differs = |p: &usize| !is_same(&self.variables[*p].value, &began(*p));
        (0..before.len()).filter(differs).collect()
    }

    fn assign(&mut self, position: usize, value: Value) {
        self.variables[position].value = Some(value);
        self.variables[position].is_assigned = true;
    }

    /// An operand as a value of the program.
    fn value(&self, operand: &Operand) -> Result<Value> {
        match operand {
            Operand::Value(value) => Ok(value.clone()),
            Operand::Host(tensor) => Ok(self.program.constant(tensor)),
            Operand::Variable(_) => bail!(Unimplemented, "a handle that depends on values"),
        }
    }

    /// An operand as a value in a block.
    fn value_in(&self, block: &mut Block, operand: &Operand) -> Result<Value> {
        self.program.within(block, || self.value(operand))
    }
}

/// The function that an attr of a node names.
fn callee(node: &Node, attr: &str) -> Result<Callee> {
    let mut functions = callees(node.attrs().value(attr)?);
    ensure!(functions.len() == 1, InvalidArgument, "attr '{attr}' must be a function");
    Ok(functions.remove(0))
}

fn callees(value: &AttrValue) -> Vec<Callee> {
    let functions = value.functions().iter();
    functions.map(|f| Callee { name: f.name.clone(), attrs: Attrs::from_proto(&f.attr) }).collect()
}

/// What a result of all branches is, if it is the same in all of them.
fn common(sides: &[Side], i: usize) -> Option<Operand> {
    let first = &sides[0].results[i];
    let is_equal = |side: &Side| match (&side.results[i], first) {
        // A value of two blocks comes from the program around them.
        (Operand::Value(a), Operand::Value(b)) => sides.len() > 1 && a.is(b),
        (Operand::Variable(a), Operand::Variable(b)) => a == b,
        (Operand::Host(a), Operand::Host(b)) => {
            a.dtype() == b.dtype()
                && a.shape() == b.shape()
                && matches!((a.as_bytes(), b.as_bytes()), (Ok(a), Ok(b)) if a == b)
        }
        _ => false,
    };
    sides.iter().all(is_equal).then(|| first.clone())
}

fn is_same(a: &Option<Value>, b: &Option<Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is(b),
        (None, None) => true,
        _ => false,
    }
}

fn check_types(wanted: &[Value], given: &[Value], what: &str) -> Result<()> {
    for (wanted, given) in wanted.iter().zip(given) {
        ensure!(
            wanted.dtype() == given.dtype() && wanted.dims() == given.dims(),
            Unimplemented,
            "{what}: {wanted:?} and {given:?}"
        );
    }
    Ok(())
}

/// A condition's truth: a scalar is true if it is not zero, another tensor if it has elements.
fn truth(operand: &Operand) -> Result<Truth> {
    Ok(match operand {
        Operand::Value(value) if value.rank() > 0 => Truth::Known(value.num_elements() > 0),
        Operand::Host(tensor) if tensor.rank() > 0 => Truth::Known(tensor.num_elements() > 0),
        Operand::Value(value) => match value.dtype() {
            DType::Bool => Truth::Value(value.clone()),
            DType::Float | DType::Double | DType::Int32 | DType::Int64 => {
                Truth::Value(value.compare_to(Comparison::NotEqual, 0.0))
            }
            DType::Int8 | DType::Int16 | DType::UInt8 => {
                Truth::Value(value.compare_to(Comparison::NotEqual, 0.0))
            }
            other => bail!(Unimplemented, "{other} cannot be converted to a boolean"),
        },
        Operand::Host(tensor) => Truth::Known(match tensor.dtype() {
            DType::Float => tensor.as_slice::<f32>()?[0] != 0.0,
            DType::Double => tensor.as_slice::<f64>()?[0] != 0.0,
            DType::Bool
            | DType::Int8
            | DType::Int16
            | DType::Int32
            | DType::Int64
            | DType::UInt8 => tensor.as_bytes()?.iter().any(|&byte| byte != 0),
            other => bail!(Unimplemented, "{other} cannot be converted to a boolean"),
        }),
        Operand::Variable(_) => bail!(Internal, "a variable is no condition"),
    })
}
