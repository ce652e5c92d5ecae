//! Calls, branches and loops of a region: their functions become part of its program.
//!
//! The functions of a call are inlined. A branch is a conditional of the program and a loop a loop of it, both
//! with the values that their functions give and the variables that they assign as results. Inputs that a loop
//! passes on unchanged stay what they are outside of it: values, handles, or tensors that are known.

use std::collections::BTreeSet;
use std::mem;

use smallvec::SmallVec;
use thalweg_graph::{AttrValue, Attrs, Graph, Node, NodeId, Role};
use thalweg_hlo::{Block, Comparison, Program, Value};
use thalweg_kernel::{Functions, List, Lower, Lowering, Operand, RegionVariable};
use thalweg_plan::nodes_that_run;
use thalweg_tensor::{DType, Result, Shape, Tensor, bail, ensure, err};

use crate::compile::{Body, Operands};

/// A function that a node calls.
pub(crate) struct Callee {
    pub(crate) name: String,
    pub(crate) attrs: Attrs,
}

/// The truth of a condition.
pub(crate) enum Truth {
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

/// What a result of several branches is.
enum Joined {
    /// The same in all of them.
    Same(Operand),
    /// A result of the conditional.
    Value(usize),
    /// A list whose rows and length are results of the conditional.
    List { list: Box<List>, rows: Option<usize>, length: Option<usize> },
}

/// The functions of a node that is being lowered.
struct Computations<'b, 'a> {
    body: &'b mut Body<'a>,
    node: &'b Node,
}

impl Functions for Computations<'_, '_> {
    fn call(&mut self, attr: &str, args: &[Value]) -> Result<Vec<Value>> {
        let args: Vec<Operand> = args.iter().cloned().map(Operand::Value).collect();
        let results = self.body.function(&callee(self.node, attr)?, &args)?;
        results.iter().map(|result| self.body.value(result)).collect()
    }
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
                    _ => bail!(Internal, "this does not select a branch"),
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

    /// Lowers a node whose lowering calls functions: reducers and comparators, which have no variables.
    pub(crate) fn lower_with_functions(
        &mut self,
        node: &Node,
        inputs: &[Operand],
        lower: Lower,
    ) -> Result<Operands> {
        let program = self.program;
        let mut variables = mem::take(&mut self.variables);
        let mut functions = Computations { body: self, node };
        let mut lowering =
            Lowering::new(node, program, inputs, &mut variables).with_functions(&mut functions);
        let lowered = lower(&mut lowering).and_then(|()| lowering.finish());
        self.variables = variables;
        lowered.map(SmallVec::from_vec)
    }

    /// Lowers the nodes of a function; its results.
    pub(crate) fn function(&mut self, callee: &Callee, args: &[Operand]) -> Result<Vec<Operand>> {
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
        let joined = self.join_results(&mut sides)?;
        let assigned = return_assigned(&before, &mut sides)?;
        for side in &sides[1..] {
            check_types(&sides[0].returned, &side.returned, "branches of different shapes")?;
        }
        let mut results = conditional(program, selector, sides)?;
        let of_variables = results.split_off(results.len() - assigned.len());
        for (position, value) in assigned.into_iter().zip(of_variables) {
            self.assign(position, value);
        }
        Ok(joined.into_iter().map(|joined| joined.operand(&results)).collect())
    }

    /// Joins the results of the branches, and lets each branch return the values of those that differ.
    fn join_results(&self, sides: &mut [Side]) -> Result<Vec<Joined>> {
        let num_results = sides[0].results.len();
        ensure!(
            sides.iter().all(|side| side.results.len() == num_results),
            InvalidArgument,
            "the branches have different numbers of results"
        );
        let mut joined: Vec<Joined> = Vec::with_capacity(num_results);
        for i in 0..num_results {
            fill_unread(self.program, sides, i)?;
            if let Some(operand) = common(sides, i) {
                joined.push(Joined::Same(operand));
            } else if matches!(sides[0].results[i], Operand::List(_)) {
                joined.push(join_lists(self.program, sides, i)?);
            } else {
                for side in &mut *sides {
                    let value = self.value_in(&mut side.block, &side.results[i])?;
                    side.returned.push(value);
                }
                joined.push(Joined::Value(sides[0].returned.len() - 1));
            }
        }
        Ok(joined)
    }

    /// The variables that functions with these arguments can assign, if they have values.
    pub(crate) fn held_variables(&self, args: &[Operand]) -> Vec<usize> {
        let position = |operand: &Operand| match operand {
            Operand::Variable(position) => Some(*position),
            _ => None,
        };
        let made = self.handles.values().flatten();
        let all: BTreeSet<usize> = args.iter().chain(made).filter_map(position).collect();
        all.into_iter().filter(|&p| self.variables[p].value.is_some()).collect()
    }

    /// The variables that a block of a loop assigned, where those that are held began as `of_held`.
    pub(crate) fn changed(
        &self,
        before: &[RegionVariable],
        held: &[usize],
        of_held: &[Value],
    ) -> Vec<usize> {
        let began = |position: usize| match held.iter().position(|&p| p == position) {
            Some(i) => Some(of_held[i].clone()),
            None => before[position].value.clone(),
        };
        let differs = |p: &usize| !is_same(&self.variables[*p].value, &began(*p));
        (0..before.len()).filter(differs).collect()
    }

    pub(crate) fn assign(&mut self, position: usize, value: Value) {
        self.variables[position].value = Some(value);
        self.variables[position].is_assigned = true;
    }

    /// An operand as a value of the program.
    pub(crate) fn value(&self, operand: &Operand) -> Result<Value> {
        match operand {
            Operand::Value(value) => Ok(value.clone()),
            Operand::Host(tensor) => Ok(self.program.constant(tensor)),
            Operand::Variable(_) => bail!(Unimplemented, "a handle that depends on values"),
            Operand::List(_) => bail!(Unimplemented, "a list that depends on values"),
            Operand::Unread(_) => bail!(Unimplemented, "a value that no branch computes"),
        }
    }

    /// An operand as a value in a block.
    pub(crate) fn value_in(&self, block: &mut Block, operand: &Operand) -> Result<Value> {
        self.program.within(block, || self.value(operand))
    }
}

impl Joined {
    /// The operand, given the results of the conditional.
    fn operand(self, results: &[Value]) -> Operand {
        match self {
            Joined::Same(operand) => operand,
            Joined::Value(position) => Operand::Value(results[position].clone()),
            Joined::List { mut list, rows, length } => {
                list.rows = rows.map(|position| results[position].clone());
                if let Some(position) = length {
                    list.base = Some(results[position].clone());
                }
                Operand::List(list)
            }
        }
    }
}

/// Lets each branch return its values of the variables that any branch assigns, and gives the positions of
/// these variables.
fn return_assigned(before: &[RegionVariable], sides: &mut [Side]) -> Result<Vec<usize>> {
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
    Ok(assigned)
}

/// Appends the conditional of these branches to the program, and gives its results.
fn conditional(program: &Program, selector: &Selector, sides: Vec<Side>) -> Result<Vec<Value>> {
    let blocks: Vec<(Block, Vec<Value>)> =
        sides.into_iter().map(|side| (side.block, side.returned)).collect();
    Ok(match (selector, <[_; 2]>::try_from(blocks)) {
        (_, Ok([(_, first), _])) if first.is_empty() => Vec::new(),
        (Selector::Condition(condition), Ok(both)) => program.branch(condition, &both),
        (Selector::Condition(_), Err(_)) => bail!(Internal, "a condition of two branches"),
        (Selector::Index(index), Ok(both)) => program.case(index, &both),
        (Selector::Index(_), Err(all)) if all[0].1.is_empty() => Vec::new(),
        (Selector::Index(index), Err(all)) => program.case(index, &all),
    })
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
        (Operand::Unread(a), Operand::Unread(b)) => a == b,
        (Operand::List(a), Operand::List(b)) => {
            sides.len() > 1 && is_same(&a.rows, &b.rows) && has_length_of(a, b)
        }
        _ => false,
    };
    sides.iter().all(is_equal).then(|| first.clone())
}

/// Gives the branches that do not compute result `i` zeros in its place.
fn fill_unread(program: &Program, sides: &mut [Side], i: usize) -> Result<()> {
    let is_unread = |side: &Side| matches!(side.results[i], Operand::Unread(_));
    if !sides.iter().any(is_unread) {
        return Ok(());
    }
    let like = sides.iter().find_map(|side| match &side.results[i] {
        Operand::Value(value) => Some((value.dtype(), value.dims().to_vec())),
        Operand::Host(tensor) => Some((tensor.dtype(), tensor.shape().to_vec())),
        _ => None,
    });
    let Some((dtype, dims)) = like else { return Ok(()) };
    for side in sides.iter_mut().filter(|side| is_unread(side)) {
        let zero = Tensor::zeros(dtype, Shape::scalar())?;
        let zeros = program.within(&mut side.block, || program.constant(&zero).broadcast_to(&dims));
        side.results[i] = Operand::Value(zeros);
    }
    Ok(())
}

/// Whether two lists have the same length in every step.
pub(crate) fn has_length_of(a: &List, b: &List) -> bool {
    is_same(&a.base, &b.base) && a.offset == b.offset
}

/// Joins result `i` of all branches, a list.
fn join_lists(program: &Program, sides: &mut [Side], i: usize) -> Result<Joined> {
    let mut lists: Vec<List> = Vec::with_capacity(sides.len());
    for side in sides.iter() {
        let Operand::List(list) = &side.results[i] else {
            bail!(Unimplemented, "a list in one branch only");
        };
        lists.push((**list).clone());
    }
    let first = &lists[0];
    let mut joined = first.clone();
    let is_typed = |l: &List| {
        l.dtype == first.dtype
            && l.element_shape == first.element_shape
            && l.elements_max == first.elements_max
    };
    ensure!(lists.iter().all(is_typed), Unimplemented, "lists of several types in branches");
    let has_equal_lengths = lists.iter().all(|l| has_length_of(l, first));
    for list in &lists {
        joined.offset_max = joined.offset_max.max(list.offset_max);
        joined.length_max = joined.length_max.max(list.length_max);
        joined.has_unset |= list.has_unset;
        joined.elements = joined.elements.with(&list.elements);
    }
    let capacity = |l: &List| l.rows.as_ref().map_or(0, |rows| rows.dims()[0]);
    let capacity = lists.iter().map(capacity).chain([joined.length_max]).max().unwrap_or(0);
    let dims = lists.iter().find_map(|l| l.rows.as_ref()).map(|rows| rows.dims()[1..].to_vec());
    let (mut rows, mut length) = (None, None);
    if let Some(dims) = dims {
        rows = Some(sides[0].returned.len());
        for (side, list) in sides.iter_mut().zip(&lists) {
            let list =
                program.within(&mut side.block, || list.with_rows(program, &dims, capacity))?;
            side.returned.extend(list.rows);
        }
    }
    if !has_equal_lengths {
        length = Some(sides[0].returned.len());
        for (side, list) in sides.iter_mut().zip(&lists) {
            let value = program.within(&mut side.block, || list.length(program));
            side.returned.push(value);
        }
        (joined.offset, joined.offset_max) = (0, 0);
    }
    Ok(Joined::List { list: Box::new(joined), rows, length })
}

pub(crate) fn is_same(a: &Option<Value>, b: &Option<Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is(b),
        (None, None) => true,
        _ => false,
    }
}

pub(crate) fn check_types(wanted: &[Value], given: &[Value], what: &str) -> Result<()> {
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
pub(crate) fn truth(operand: &Operand) -> Result<Truth> {
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
        Operand::Variable(_) | Operand::List(_) | Operand::Unread(_) => {
            bail!(Unimplemented, "this is no condition")
        }
    })
}
