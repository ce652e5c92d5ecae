//! Lowering of a node to StableHLO, for accelerators: what stands beside an op's kernel.

use thalweg_graph::{Node, NodeAttrs};
use thalweg_hlo::{Program, Value};
use thalweg_tensor::{DType, Error, PartialShape, Result, Shape, Tensor, ensure, err};

use crate::List;

use crate::registry::{KernelInit, KernelOrigin};

/// Appends the operations of a node to the program of its region.
pub type Lower = fn(&mut Lowering<'_>) -> Result<()>;

/// The value of an edge while a region is compiled.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A value of the program.
    Value(Value),
    /// A tensor that is known when the region is compiled.
    Host(Tensor),
    /// A variable, by its position among those of the region.
    Variable(usize),
    /// A list of tensors (a variant).
    List(Box<List>),
    /// What nothing reads: the place of a value that only another branch has.
    Unread(DType),
}

/// A variable of a region under compilation.
#[derive(Clone, Debug)]
pub struct RegionVariable {
    /// Its name, for messages.
    pub name: String,
    /// The shape it was declared with.
    pub shape: PartialShape,
    /// Its value at this point of the region; `None` before the first assignment.
    pub value: Option<Value>,
    /// Whether the region has assigned it.
    pub is_assigned: bool,
}

/// Lowers the functions that attrs of a node name.
pub trait Functions {
    /// The results of the function that the attr names.
    fn call(&mut self, attr: &str, args: &[Value]) -> Result<Vec<Value>>;
}

/// Appends the words that one node gets from the host in a step.
pub type MakeWords = Box<dyn Fn(&mut Vec<u64>) + Send + Sync>;

/// The words that the nodes of a region get from the host in each step: where random numbers go on, for
/// example. All of them are one argument of the program.
#[derive(Default)]
pub struct StepWords {
    /// The argument, of dtype uint64; `None` if no node declares words.
    pub argument: Option<Value>,
    /// What makes the words, in their order.
    pub makers: Vec<MakeWords>,
    /// Number of words that have a maker.
    pub len: usize,
}

/// One node that is being lowered, with what its inputs are.
pub struct Lowering<'a> {
    node: &'a Node,
    program: &'a Program,
    inputs: &'a [Operand],
    outputs: Vec<Option<Operand>>,
    variables: &'a mut Vec<RegionVariable>,
    functions: Option<&'a mut dyn Functions>,
    step_words: Option<(&'a KernelOrigin, &'a mut StepWords)>,
}

impl<'a> Lowering<'a> {
    /// `node` has the shapes that are known when the region is compiled.
    pub fn new(
        node: &'a Node,
        program: &'a Program,
        inputs: &'a [Operand],
        variables: &'a mut Vec<RegionVariable>,
    ) -> Self {
        let outputs = vec![None; node.outputs.len()];
        Lowering { node, program, inputs, outputs, variables, functions: None, step_words: None }
    }

    /// The same for a node that may call functions.
    pub fn with_functions(self, functions: &'a mut dyn Functions) -> Self {
        Lowering { functions: Some(functions), ..self }
    }

    /// The results of the function that an attr names.
    pub fn call(&mut self, attr: &str, args: &[Value]) -> Result<Vec<Value>> {
        match &mut self.functions {
            Some(functions) => functions.call(attr, args),
            None => Err(err!(Internal, "{} calls no functions", self.node.op.name)),
        }
    }

    /// The same for a node that runs once in each step and may get words from the host.
    pub fn with_step_words(self, origin: &'a KernelOrigin, words: &'a mut StepWords) -> Self {
        Lowering { step_words: Some((origin, words)), ..self }
    }

    /// Words that the host makes in each step, as a vector of `len` elements of dtype uint64. The node's
    /// kernel spec declares their number. What `maker` returns makes them when the region starts, while
    /// its variables are locked.
    pub fn step_words(
        &mut self,
        len: usize,
        maker: impl FnOnce(&KernelInit<'_>) -> Result<MakeWords>,
    ) -> Result<Value> {
        let name = &self.node.op.name;
        let Some((origin, words)) = &mut self.step_words else {
            return Err(err!(Unimplemented, "{name} cannot run several times in one program"));
        };
        let first = words.len;
        let argument = words.argument.as_ref().filter(|a| first + len <= a.num_elements());
        let argument =
            argument.ok_or_else(|| err!(Internal, "{name} declares too few words of a step"))?;
        let part = argument.slice(&[first], &[first + len], &[1]);
        words.makers.push(maker(&origin.init(self.node))?);
        words.len += len;
        Ok(part)
    }

    /// The node.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The node's attrs.
    pub fn attrs(&self) -> NodeAttrs<'a> {
        self.node.attrs()
    }

    /// The program, for constants.
    pub fn program(&self) -> &'a Program {
        self.program
    }

    /// Number of flattened inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    fn operand(&self, i: usize) -> Result<&'a Operand> {
        self.inputs.get(i).ok_or_else(|| err!(Internal, "{} has no input {i}", self.node.op.name))
    }

    /// Input `i` as a value of the program; of a variable, what it holds at this point.
    pub fn input(&self, i: usize) -> Result<Value> {
        match self.operand(i)? {
            Operand::Value(value) => Ok(value.clone()),
            Operand::Host(tensor) => Ok(self.program.constant(tensor)),
            Operand::Variable(_) => self.read_variable(i),
            Operand::List(_) | Operand::Unread(_) => Err(self.is_no_value(i)),
        }
    }

    fn is_no_value(&self, i: usize) -> Error {
        err!(Unimplemented, "input {i} of {} is no tensor", self.node.op.name)
    }

    /// Sets output `i` to what nothing reads.
    pub fn set_unread(&mut self, i: usize) {
        self.outputs[i] = Some(Operand::Unread(self.output_dtype(i)));
    }

    /// Input `i`, a list.
    pub fn list(&self, i: usize) -> Result<&'a List> {
        match self.operand(i)? {
            Operand::List(list) => Ok(list),
            _ => Err(err!(Unimplemented, "input {i} of {} is not a list", self.node.op.name)),
        }
    }

    /// Sets output `i` to a list.
    pub fn set_list(&mut self, i: usize, list: List) -> Result<()> {
        self.outputs[i] = Some(Operand::List(Box::new(list)));
        Ok(())
    }

    /// Input `i`, if it is known.
    pub fn known(&self, i: usize) -> Option<&'a Tensor> {
        match self.inputs.get(i)? {
            Operand::Host(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// All inputs from `first` on.
    pub fn inputs_from(&self, first: usize) -> Result<Vec<Value>> {
        (first..self.num_inputs()).map(|i| self.input(i)).collect()
    }

    /// Dimensions of input `i`.
    pub fn input_dims(&self, i: usize) -> Result<Vec<usize>> {
        Ok(match self.operand(i)? {
            Operand::Value(value) => value.dims().to_vec(),
            Operand::Host(tensor) => tensor.shape().to_vec(),
            Operand::Variable(_) => self.read_variable(i)?.dims().to_vec(),
            Operand::List(_) | Operand::Unread(_) => return Err(self.is_no_value(i)),
        })
    }

    /// Input `i`, which the kernel's `host_inputs` names, as a tensor in host memory.
    pub fn host(&self, i: usize) -> Result<&'a Tensor> {
        match self.operand(i)? {
            Operand::Host(tensor) => Ok(tensor),
            _ => Err(err!(
                Internal,
                "input {i} of {} must be known when its region is compiled",
                self.node.op.name
            )),
        }
    }

    /// Input `i` in host memory as integers, in order.
    pub fn ints(&self, i: usize) -> Result<Vec<i64>> {
        let tensor = self.host(i)?;
        Ok(match tensor.dtype() {
            DType::Int8 => tensor.as_slice::<i8>()?.iter().map(|&x| x.into()).collect(),
            DType::Int16 => tensor.as_slice::<i16>()?.iter().map(|&x| x.into()).collect(),
            DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&x| x.into()).collect(),
            DType::Int64 => tensor.as_slice::<i64>()?.to_vec(),
            other => {
                return Err(err!(
                    InvalidArgument,
                    "input {i} of {} must be integers, is {other}",
                    self.node.op.name
                ));
            }
        })
    }

    /// Input `i` in host memory as one integer.
    pub fn int(&self, i: usize) -> Result<i64> {
        let all = self.ints(i)?;
        ensure!(all.len() == 1, InvalidArgument, "input {i} must be one integer");
        Ok(all[0])
    }

    /// Input `i` in host memory, a vector, as a shape.
    pub fn shape_input(&self, i: usize, name: &str) -> Result<Shape> {
        let shape = self.host(i)?.shape();
        ensure!(shape.rank() == 1, InvalidArgument, "{name} must be a vector, got shape {shape}");
        Shape::from_i64(&self.ints(i)?)
    }

    /// The shape of input `i`.
    pub fn input_shape(&self, i: usize) -> Result<Shape> {
        match self.operand(i)? {
            Operand::Value(value) => Shape::new(value.dims()),
            Operand::Host(tensor) => Ok(tensor.shape().clone()),
            Operand::Variable(_) => Shape::new(self.read_variable(i)?.dims()),
            Operand::List(_) | Operand::Unread(_) => Err(self.is_no_value(i)),
        }
    }

    /// Input `i` in host memory as axes of a tensor of this rank: counted from the end if negative,
    /// checked, without repetitions.
    pub fn axes(&self, i: usize, rank: usize) -> Result<Vec<usize>> {
        let mut axes = Vec::new();
        for axis in self.ints(i)? {
            let axis = self.axis(axis, rank)?;
            if !axes.contains(&axis) {
                axes.push(axis);
            }
        }
        Ok(axes)
    }

    /// An axis of a tensor of this rank, counted from the end if it is negative.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let counted = if axis < 0 { axis + rank as i64 } else { axis };
        ensure!(
            (0..rank as i64).contains(&counted),
            InvalidArgument,
            "{}: axis {axis} is not one of a tensor of rank {rank}",
            self.node.op.name
        );
        Ok(counted as usize)
    }

    /// Dtype of output `i`.
    pub fn output_dtype(&self, i: usize) -> DType {
        self.node.outputs[i].dtype
    }

    /// Dimensions of output `i` by the op's shape function; an error if they depend on values that are
    /// not known when the region is compiled.
    pub fn output_dims(&self, i: usize) -> Result<Vec<usize>> {
        let shape: Option<Shape> = self.node.outputs[i].shape.to_shape();
        shape.map(|shape| shape.dims().to_vec()).ok_or_else(|| {
            err!(
                Unimplemented,
                "the shape of output {i} of {} depends on values that are known only in a step",
                self.node.op.name
            )
        })
    }

    /// Sets output `i`.
    pub fn set(&mut self, i: usize, value: Value) -> Result<()> {
        let declared = self.output_dtype(i);
        ensure!(
            value.dtype() == declared,
            Internal,
            "output {i} of {} must be {declared}, the lowering made {}",
            self.node.op.name,
            value.dtype()
        );
        self.outputs[i] = Some(Operand::Value(value));
        Ok(())
    }

    /// Sets output `i` to what is known now.
    pub fn set_host(&mut self, i: usize, tensor: Tensor) -> Result<()> {
        self.outputs[i] = Some(Operand::Host(tensor));
        Ok(())
    }

    /// Sets output `i` to what input `from` is: a value, a known tensor or a variable.
    pub fn forward(&mut self, from: usize, i: usize) -> Result<()> {
        self.outputs[i] = Some(self.operand(from)?.clone());
        Ok(())
    }

    /// Lowers a function of one input.
    pub fn unary(&mut self, f: impl FnOnce(&Value) -> Value) -> Result<()> {
        let x = self.input(0)?;
        self.set(0, f(&x))
    }

    /// Lowers a function of two inputs.
    pub fn binary(&mut self, f: impl FnOnce(&Value, &Value) -> Value) -> Result<()> {
        let (x, y) = (self.input(0)?, self.input(1)?);
        self.set(0, f(&x, &y))
    }

    /// The position of the variable that input `i` is a reference or handle of.
    fn variable(&self, i: usize) -> Result<usize> {
        match self.operand(i)? {
            Operand::Variable(position) => Ok(*position),
            _ => Err(err!(Internal, "input {i} of {} is no variable", self.node.op.name)),
        }
    }

    /// Whether two inputs are of the same variable.
    pub fn is_same_variable(&self, i: usize, j: usize) -> Result<bool> {
        Ok(self.variable(i)? == self.variable(j)?)
    }

    /// What the variable of input `i` holds at this point of the region.
    pub fn read_variable(&self, i: usize) -> Result<Value> {
        let variable = &self.variables[self.variable(i)?];
        variable.value.clone().ok_or_else(|| {
            err!(FailedPrecondition, "Attempting to use uninitialized value {}", variable.name)
        })
    }

    /// The state of the variable of input `i` at this point of the region.
    pub fn variable_state(&self, i: usize) -> Result<&RegionVariable> {
        Ok(&self.variables[self.variable(i)?])
    }

    /// Assigns the variable of input `i`.
    pub fn assign_variable(&mut self, i: usize, value: Value) -> Result<()> {
        let position = self.variable(i)?;
        let variable = &mut self.variables[position];
        variable.value = Some(value);
        variable.is_assigned = true;
        Ok(())
    }

    /// The outputs, all of which must be set.
    pub fn finish(self) -> Result<Vec<Operand>> {
        let name = &self.node.op.name;
        self.outputs
            .into_iter()
            .enumerate()
            .map(|(i, output)| {
                output.ok_or_else(|| err!(Internal, "the lowering of {name} sets no output {i}"))
            })
            .collect()
    }
}
