//! Compilation of a region for inputs of certain shapes: from nodes to the text of a program.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::{Attrs, Endpoint, Graph, Node, NodeId, OutputInfo, Role};
use thalweg_hlo::{Argument, Program};
use thalweg_kernel::{
    KernelOrigin, KernelRegistry, Lowering, MakeWords, Operand, RegionVariable, StepWords, Value,
};
use thalweg_plan::{Evaluator, Region, VariableName, variable_name};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::attention::Attentions;
use crate::device::Precision;
use crate::results::finish;
use crate::trips::EVALUATIONS_MAX;

/// Most bytes of inputs and outputs of a node that is evaluated on the host.
const KNOWN_BYTES_MAX: usize = 1 << 20;

/// Most nodes of functions that are lowered for one program: branches and loops inline what they call.
const FUNCTION_NODES_MAX: usize = 1 << 19;

/// Deepest nesting of functions in a program.
const FUNCTION_DEPTH_MAX: usize = 32;

/// The outputs of a node.
pub(crate) type Operands = SmallVec<[Operand; 1]>;

/// What the handles are that functions of a region make.
pub(crate) type Handles = BTreeMap<VariableName, Option<Operand>>;

/// What an input of a region is when it is compiled.
pub(crate) enum InputKind {
    /// Known.
    Known(Tensor),
    /// In the device's memory.
    Buffer(DType, Shape),
    /// A reference or handle of the variable at this position.
    Variable(usize),
}

/// What a variable of a region is when it is compiled.
pub(crate) struct VariableKind {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// The shape it was declared with.
    pub(crate) declared: PartialShape,
    /// The shape of its value, if it has one.
    pub(crate) shape: Option<Shape>,
}

/// Where an output or a new value of a variable comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The result of the program at this position.
    Result(usize),
    /// The argument of the program at this position.
    Argument(usize),
    /// Known at compilation.
    Known(Tensor),
}

/// What an argument of the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentSource {
    Input(usize),
    Variable(usize),
    /// What the host makes in each step.
    StepWords,
}

/// A region in StableHLO.
pub(crate) struct LoweredRegion {
    pub(crate) text: String,
    pub(crate) arguments: Vec<ArgumentSource>,
    pub(crate) num_results: usize,
    pub(crate) outputs: Vec<Source>,
    /// For each argument, whether the program may take its memory for a result.
    pub(crate) is_donated: Vec<bool>,
    /// Sizes of the results in bytes.
    pub(crate) result_bytes: Vec<usize>,
    /// For each result, the argument that donates its memory: the value of the same size that it replaces.
    pub(crate) donors: Vec<Option<usize>>,
    /// The variables that the region assigns, and their new values.
    pub(crate) assigned: Vec<(usize, Source)>,
    /// What makes the words of a step, and how many there are.
    pub(crate) word_makers: Vec<MakeWords>,
    pub(crate) num_words: usize,
    /// Whether parts of it became calls of the plugin's fused attention.
    pub(crate) has_fused_attention: bool,
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The plugin's name of the platform.
    pub(crate) platform: &'a str,
    pub(crate) device_type: &'a str,
    pub(crate) precision: Precision,
    /// Whether the plugin's fused attention may be called.
    pub(crate) fuses_attention: bool,
}

impl LoweredRegion {
    /// The words that the nodes get from the host in a step that begins now.
    pub(crate) fn step_words(&self) -> Result<Vec<u64>> {
        let mut words = Vec::with_capacity(self.num_words);
        self.word_makers.iter().for_each(|make| make(&mut words));
        ensure!(
            words.len() <= self.num_words,
            Internal,
            "a node makes more words than it declares"
        );
        words.resize(self.num_words, 0);
        Ok(words)
    }
}

/// Lowers a region for these inputs.
pub(crate) fn lower_region(
    region: &Region,
    inputs: &[InputKind],
    variables: &[VariableKind],
    origin: &KernelOrigin,
    target: Target<'_>,
) -> Result<LoweredRegion> {
    let num_words = num_step_words(&region.body, origin, target.device_type);
    let (sources, arguments) = arguments_of(inputs, variables, num_words);
    let (mut program, values) = Program::new(&arguments);
    program.set_platform(target.platform);
    if target.precision != Precision::Full {
        program.allow_rounded_products();
    }
    let mut cells: Vec<RegionVariable> = variables
        .iter()
        .map(|v| RegionVariable {
            name: v.name.clone(),
            shape: v.declared.clone(),
            value: None,
            is_assigned: false,
        })
        .collect();
    let mut operands = vec![Operands::new(); region.body.len()];
    for (i, input) in inputs.iter().enumerate() {
        operands[i] = SmallVec::from_elem(input_operand(i, input, &sources, &values)?, 1);
    }
    for (source, value) in sources.iter().zip(&values) {
        if let ArgumentSource::Variable(position) = source {
            cells[*position].value = Some(value.clone());
        }
    }
    let handles: Handles = region
        .handles
        .iter()
        .map(|(name, &input)| (name.clone(), operands[input].first().cloned()))
        .collect();
    let argument = values.last().filter(|_| num_words > 0).cloned();
    let mut body = Body {
        graph: region.body.clone(),
        program: &program,
        origin,
        evaluator: &Evaluator::new(&origin.kernels, 8 * KNOWN_BYTES_MAX),
        device_type: target.device_type,
        operands,
        attentions: Attentions::new(target.fuses_attention),
        variables: cells,
        handles: &handles,
        function_nodes_left: FUNCTION_NODES_MAX,
        evaluations_left: EVALUATIONS_MAX,
        depth: 0,
        step_words: StepWords { argument, ..StepWords::default() },
        has_fused_attention: false,
    };
    body.set_input_shapes(inputs, variables)?;
    for id in body.graph.ids().skip(inputs.len()) {
        body.visit(id)?;
    }
    let Body { operands, variables: cells, step_words, has_fused_attention, .. } = body;
    let lowered = finish(region, program, (sources, &values), &operands, &cells)?;
    let word_makers = step_words.makers;
    Ok(LoweredRegion { word_makers, num_words, has_fused_attention, ..lowered })
}

/// Number of words that the nodes get from the host in each step.
fn num_step_words(body: &Graph, origin: &KernelOrigin, device_type: &str) -> usize {
    let specs = body.nodes().iter().filter_map(|n| origin.kernels.find(n, device_type).ok());
    specs.map(|spec| spec.step_words).sum()
}

/// The program's arguments: inputs in device memory, then variables that have a value, then the words of
/// a step if there are any.
fn arguments_of(
    inputs: &[InputKind],
    variables: &[VariableKind],
    num_words: usize,
) -> (Vec<ArgumentSource>, Vec<Argument>) {
    let of_inputs = inputs.iter().enumerate().filter_map(|(i, input)| match input {
        InputKind::Buffer(dtype, shape) => {
            Some((ArgumentSource::Input(i), Argument::new(*dtype, shape.dims())))
        }
        _ => None,
    });
    let of_variables = variables.iter().enumerate().filter_map(|(i, variable)| {
        let shape = variable.shape.as_ref()?;
        Some((ArgumentSource::Variable(i), Argument::new(variable.dtype, shape.dims())))
    });
    let words = (ArgumentSource::StepWords, Argument::new(DType::UInt64, &[num_words]));
    of_inputs.chain(of_variables).chain((num_words > 0).then_some(words)).unzip()
}

/// Input `i` of a region as an operand; `values` are the program's arguments, which come from `sources`.
fn input_operand(
    i: usize,
    input: &InputKind,
    sources: &[ArgumentSource],
    values: &[thalweg_hlo::Value],
) -> Result<Operand> {
    Ok(match input {
        InputKind::Known(tensor) => Operand::Host(tensor.clone()),
        InputKind::Variable(position) => Operand::Variable(*position),
        InputKind::Buffer(..) => {
            let position = sources.iter().position(|s| *s == ArgumentSource::Input(i));
            let position = position.ok_or_else(|| err!(Internal, "input {i} is missing"))?;
            Operand::Value(values[position].clone())
        }
    })
}

/// The nodes of a region, or of a function that it calls, while they are lowered.
pub(crate) struct Body<'a> {
    pub(crate) graph: Graph,
    pub(crate) program: &'a Program,
    origin: &'a KernelOrigin,
    pub(crate) evaluator: &'a Evaluator,
    device_type: &'a str,
    /// The operands that the nodes so far output.
    operands: Vec<Operands>,
    pub(crate) attentions: Attentions,
    /// In this body, or in a function that it has called.
    pub(crate) has_fused_attention: bool,
    pub(crate) variables: Vec<RegionVariable>,
    pub(crate) handles: &'a Handles,
    function_nodes_left: usize,
    /// How many nodes may be evaluated to count iterations.
    pub(crate) evaluations_left: usize,
    /// How deep functions nest.
    depth: usize,
    /// Functions have none: regions leave out those with nodes that have state of their own.
    step_words: StepWords,
}

impl<'a> Body<'a> {
    /// The nodes of a function that this body calls; it has the variables until they are taken back.
    pub(crate) fn inside(&mut self, graph: Graph) -> Result<Body<'a>> {
        ensure!(self.depth < FUNCTION_DEPTH_MAX, InvalidArgument, "functions nest too deep");
        let left = self.function_nodes_left.checked_sub(graph.len()).ok_or_else(|| {
            err!(ResourceExhausted, "functions of more than {FUNCTION_NODES_MAX} nodes are inlined")
        })?;
        Ok(Body {
            operands: vec![Operands::new(); graph.len()],
            attentions: Attentions::new(self.attentions.is_enabled),
            graph,
            variables: std::mem::take(&mut self.variables),
            function_nodes_left: left,
            depth: self.depth + 1,
            step_words: StepWords::default(),
            ..*self
        })
    }

    /// Goes on after a function.
    pub(crate) fn take_back(&mut self, inner: Body<'a>) {
        self.variables = inner.variables;
        self.function_nodes_left = inner.function_nodes_left;
        self.evaluations_left = inner.evaluations_left;
        self.has_fused_attention |= inner.has_fused_attention;
    }

    /// Sets what an argument of a function is.
    pub(crate) fn set_argument(&mut self, id: NodeId, operand: &Operand) -> Result<()> {
        match operand {
            Operand::Host(tensor) => self.make_constant(id, tensor)?,
            Operand::Value(value) => self.set_shape(id, 0, value.dims())?,
            Operand::Variable(_) | Operand::List(_) | Operand::Unread(_) => {}
        }
        self.operands[id.index()] = SmallVec::from_elem(operand.clone(), 1);
        Ok(())
    }

    fn set_input_shapes(&mut self, inputs: &[InputKind], variables: &[VariableKind]) -> Result<()> {
        let ids: Vec<NodeId> = self.graph.ids().take(inputs.len()).collect();
        for (id, input) in ids.into_iter().zip(inputs) {
            match input {
                InputKind::Known(tensor) => self.make_constant(id, tensor)?,
                InputKind::Buffer(_, shape) => self.set_shape(id, 0, shape.dims())?,
                InputKind::Variable(position) => {
                    let variable = &variables[*position];
                    let is_handle = self.graph.node(id).outputs[0].dtype == DType::Resource;
                    if let (false, Some(shape)) = (is_handle, &variable.shape) {
                        self.set_shape(id, 0, shape.dims())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn set_shape(&mut self, id: NodeId, output: usize, dims: &[usize]) -> Result<()> {
        let shape = PartialShape::from(&Shape::new(dims)?);
        if self.graph.node(id).outputs[output].shape != shape {
            let mut node = self.graph.node(id).clone();
            node.outputs[output].shape = shape;
            self.graph.replace(id, node);
        }
        Ok(())
    }

    fn forget_shapes(&mut self, id: NodeId) {
        let mut node = self.graph.node(id).clone();
        node.outputs.iter_mut().for_each(|output| output.shape = PartialShape::unknown());
        self.graph.replace(id, node);
    }

    /// Replaces a node of one output, which is known, so that shape functions see its value.
    fn make_constant(&mut self, id: NodeId, value: &Tensor) -> Result<()> {
        let old = self.graph.node(id);
        if old.outputs.len() != 1 || old.role() == Role::Const {
            return Ok(());
        }
        let mut node = Node::bare(old.name.clone(), self.graph.registry().get("Const")?.clone());
        node.attrs = Attrs::of_const(value)?;
        let shape = PartialShape::from(value.shape());
        node.outputs.push(OutputInfo { dtype: value.dtype(), is_ref: false, shape });
        self.graph.replace(id, node);
        Ok(())
    }

    /// Lowers a node whose inputs are lowered.
    pub(crate) fn visit(&mut self, id: NodeId) -> Result<()> {
        let name = self.graph.node(id).name.clone();
        let outputs = self.lower(id).map_err(|e| e.at_node(&name))?;
        for (i, output) in outputs.iter().enumerate() {
            match output {
                Operand::Value(value) => self.set_shape(id, i, value.dims())?,
                Operand::Host(tensor) => self.set_shape(id, i, tensor.shape().dims())?,
                Operand::Variable(_) | Operand::List(_) | Operand::Unread(_) => {}
            }
        }
        if let [Operand::Host(tensor)] = &outputs[..] {
            self.make_constant(id, &tensor.clone())?;
        }
        self.operands[id.index()] = outputs;
        Ok(())
    }

    fn lower(&mut self, id: NodeId) -> Result<Operands> {
        let node = self.graph.node(id);
        let inputs: Vec<Operand> = node.inputs.iter().map(|e| self.operand(*e)).collect();
        match node.role() {
            Role::NoOp => return Ok(SmallVec::new()),
            Role::Const => {
                let value = node.attrs().tensor("value", None)?;
                return Ok(SmallVec::from_elem(Operand::Host(value), 1));
            }
            Role::Identity => {
                if let Some(Operand::Variable(position)) = inputs.first()
                    && node.outputs[0].dtype != DType::Resource
                {
                    initialized(&self.variables[*position])?;
                }
                return Ok(inputs.into_iter().take(1).collect());
            }
            Role::VarHandle => {
                let handle = self.handles.get(&variable_name(node)?).cloned().flatten();
                let handle = handle.ok_or_else(|| {
                    err!(Unimplemented, "the variable of '{}' is not an input", node.name)
                })?;
                return Ok(SmallVec::from_elem(handle, 1));
            }
            role if role.is_call() => {
                let node = node.clone();
                return self.call(&node, &inputs);
            }
            _ => {}
        }
        if self.graph.refine(id).is_err() {
            // The shapes that were declared do not hold in this step, as in a loop that changes them.
            self.forget_shapes(id);
            self.graph.refine(id)?;
        }
        let node = self.graph.node(id);
        let spec = self.origin.kernels.find(node, self.device_type)?;
        let lower = spec.lower.ok_or_else(|| err!(Internal, "{} has no lowering", node.op.name))?;
        if let Some(known) = self.known(node, &inputs) {
            return Ok(known);
        }
        if let Some(value) = self.fused_attention(id) {
            self.has_fused_attention = true;
            return Ok(SmallVec::from_elem(Operand::Value(value), 1));
        }
        let node = self.graph.node(id);
        self.check_host_inputs(node, spec.host_inputs, &inputs)?;
        if node.attrs.iter().any(|(_, value)| !value.functions().is_empty()) {
            return self.lower_with_functions(&node.clone(), &inputs, lower);
        }
        let mut lowering = Lowering::new(node, self.program, &inputs, &mut self.variables)
            .with_step_words(self.origin, &mut self.step_words);
        lower(&mut lowering)?;
        lowering.finish().map(SmallVec::from_vec)
    }

    /// Fails if an input that the lowering of a node reads on the host is not known.
    fn check_host_inputs(
        &self,
        node: &Node,
        host_inputs: &[&str],
        inputs: &[Operand],
    ) -> Result<()> {
        for name in host_inputs {
            for i in node.input_range(name)? {
                if !matches!(inputs[i], Operand::Host(_)) {
                    let source = self.graph.node(node.inputs[i].node);
                    bail!(
                        Unimplemented,
                        "'{name}' of {} must be known when its region is compiled, but '{}' ({}) \
                         computes it in each step",
                        node.op.name,
                        source.name,
                        source.op.name
                    );
                }
            }
        }
        Ok(())
    }

    pub(crate) fn operand(&self, e: Endpoint) -> Operand {
        self.operands[e.node.index()][e.index as usize].clone()
    }

    /// The outputs of a node that is lowered; none of another one.
    pub(crate) fn operands_of(&self, id: NodeId) -> &[Operand] {
        &self.operands[id.index()]
    }

    pub(crate) fn kernels(&self) -> &'a Arc<KernelRegistry> {
        &self.origin.kernels
    }

    /// The outputs of a pure node whose inputs are all known, if they are small.
    fn known(&self, node: &Node, inputs: &[Operand]) -> Option<Operands> {
        let has_lists = node.outputs.iter().any(|output| output.dtype.is_object());
        if inputs.is_empty() || has_lists || !self.graph.is_pure(node) {
            return None;
        }
        let is_large = |output: &OutputInfo| {
            let size = output.shape.to_shape().map_or(0, |shape| shape.num_elements());
            size.saturating_mul(output.dtype.size()) > KNOWN_BYTES_MAX
        };
        if node.outputs.iter().any(is_large) {
            return None;
        }
        let mut values: SmallVec<[Value; 4]> = SmallVec::new();
        for input in inputs {
            match input {
                Operand::Host(tensor) if tensor.size_bytes() <= KNOWN_BYTES_MAX => {
                    values.push(Value::Tensor(tensor.clone()));
                }
                _ => return None,
            }
        }
        let outputs = self.evaluator.evaluate(node, &mut values)?;
        Some(outputs.into_iter().map(Operand::Host).collect())
    }
}

/// The value of a variable, which must have one.
pub(crate) fn initialized(variable: &RegionVariable) -> Result<&thalweg_hlo::Value> {
    variable.value.as_ref().ok_or_else(|| {
        err!(FailedPrecondition, "Attempting to use uninitialized value {}", variable.name)
    })
}
