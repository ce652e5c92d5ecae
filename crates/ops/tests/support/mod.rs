//! A reference interpreter: runs one node after another, on one thread. The golden cases run on it,
//! and the executor is compared with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use thalweg_graph::{Attrs, Endpoint, Flag, FunctionBody, Graph, NodeId, TensorName, instantiate};
use thalweg_kernel::*;
use thalweg_tensor::*;

/// A graph with its kernels and state.
pub(crate) struct Interpreter {
    pub(crate) graph: Graph,
    kernels: Arc<KernelRegistry>,
    made: HashMap<NodeId, AnyKernel>,
    states: NodeStates,
    step: Arc<StepContext>,
    /// The functions, which the step refers to weakly; a function body has none of its own.
    _functions: Option<Arc<Functions>>,
}

impl Interpreter {
    #[allow(dead_code, reason = "each test that includes this file uses some of it")]
    pub(crate) fn new(graph: Graph, kernels: Arc<KernelRegistry>) -> Self {
        Self::with_environment(graph, kernels, Environment::frozen())
    }

    pub(crate) fn with_environment(
        graph: Graph,
        kernels: Arc<KernelRegistry>,
        environment: Environment,
    ) -> Self {
        let budget = Budget::new(1 << 30);
        let functions = Functions::shared(&graph, &kernels);
        let runner: Arc<dyn FunctionRunner> = functions.clone();
        let session = SessionContext {
            functions: Some(Arc::downgrade(&runner)),
            ..SessionContext::isolated(&budget, environment)
        };
        let name = DeviceName::cpu("localhost", 0, 0);
        let device = HostDevice::shared(DeviceDescription::cpu(name, 1 << 30));
        let id = StepId { number: 1, request: 0 };
        let step = StepContext::new(Arc::new(session), device, id, Cancellation::default());
        Interpreter {
            graph,
            kernels,
            made: HashMap::new(),
            states: NodeStates::default(),
            step: Arc::new(step),
            _functions: Some(functions),
        }
    }

    pub(crate) fn run(
        &mut self,
        feeds: &HashMap<String, Tensor>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>> {
        let mut values: HashMap<Endpoint, Value> = HashMap::new();
        for (name, tensor) in feeds {
            values.insert(self.endpoint(name)?, Value::Tensor(tensor.clone()));
        }
        let mut done = vec![false; self.graph.len()];
        for fetch in fetches {
            let endpoint = self.endpoint(fetch)?;
            if !values.contains_key(&endpoint) {
                self.evaluate(endpoint.node, &mut values, &mut done)?;
            }
        }
        for target in targets {
            let node = self.graph.find(target).ok_or_else(|| err!(NotFound, "{target}"))?;
            self.evaluate(node, &mut values, &mut done)?;
        }
        fetches
            .iter()
            .map(|f| match &values[&self.endpoint(f)?] {
                Value::Tensor(t) => Ok(t.clone()),
                Value::Ref(v) => v.read(),
                _ => Err(err!(InvalidArgument, "{f} is dead")),
            })
            .collect()
    }

    fn endpoint(&self, name: &str) -> Result<Endpoint> {
        let name = TensorName::parse(name)?;
        let node = self.graph.find(name.node).ok_or_else(|| err!(NotFound, "{}", name.node))?;
        Ok(Endpoint { node, index: name.index })
    }

    fn evaluate(
        &mut self,
        root: NodeId,
        values: &mut HashMap<Endpoint, Value>,
        done: &mut [bool],
    ) -> Result<()> {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if done[id.index()] {
                stack.pop();
                continue;
            }
            let node = self.graph.node(id);
            let data = node.inputs.iter().filter(|e| !values.contains_key(e)).map(|e| e.node);
            let before: Vec<NodeId> = data
                .chain(node.control_inputs.iter().copied())
                .filter(|n| !done[n.index()])
                .collect();
            if !before.is_empty() {
                stack.extend(before);
                continue;
            }
            stack.pop();
            self.compute(id, values)?;
            done[id.index()] = true;
        }
        Ok(())
    }

    fn compute(&mut self, id: NodeId, values: &mut HashMap<Endpoint, Value>) -> Result<()> {
        let node = self.graph.node(id).clone();
        let mut inputs: SmallVec<[Value; 4]> = SmallVec::new();
        let mut is_ref = Vec::new();
        for arg in &node.op.inputs {
            is_ref.extend(node.input_range(&arg.name)?.map(|_| arg.is_ref));
        }
        for (endpoint, by_ref) in node.inputs.iter().zip(is_ref) {
            inputs.push(match values.get(endpoint).cloned().unwrap_or_default() {
                Value::Ref(v) if !by_ref => Value::Tensor(v.read()?),
                other => other,
            });
        }
        let mut outputs: Vec<Value> = vec![Value::Empty; node.outputs.len()];
        match node.op.name.as_str() {
            "NoOp" => {}
            "Identity" => outputs[0] = std::mem::take(&mut inputs[0]),
            "Const" => outputs[0] = node.attrs().tensor("value", Some(self.step.budget()))?.into(),
            _ => {
                let dtypes: Vec<DType> = node.outputs.iter().map(|o| o.dtype).collect();
                let _flush = FlushDenormals::enter();
                match self.kernel(id)? {
                    AnyKernel::Sync(kernel) => {
                        let step = &self.step;
                        let mut ctx =
                            KernelContext::new(&node, &dtypes, step, &mut inputs, &mut outputs);
                        kernel.compute(&mut ctx)
                    }
                    AnyKernel::Async(kernel) => self.start(&*kernel, inputs, &mut outputs),
                }
                .context(|| format!("node '{}'", node.name))?;
            }
        }
        for (index, value) in outputs.into_iter().enumerate() {
            let endpoint = Endpoint { node: id, index: index as u32 };
            values.entry(endpoint).or_insert(value);
        }
        Ok(())
    }

    /// Starts an asynchronous kernel. Nothing else runs in the interpreter, so a kernel that waits
    /// never completes.
    fn start(
        &self,
        kernel: &dyn AsyncKernel,
        inputs: SmallVec<[Value; 4]>,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let (send, receive) = std::sync::mpsc::channel();
        let done = Box::new(move |result| send.send(result).unwrap_or_default());
        kernel.start(AsyncCall::new(inputs, self.step.clone(), outputs.len(), done));
        match receive.try_recv() {
            Ok(result) => *outputs = result?.into_vec(),
            Err(_) => bail!(Unimplemented, "the kernel waits, but nothing else runs"),
        }
        Ok(())
    }

    fn kernel(&mut self, id: NodeId) -> Result<AnyKernel> {
        if let Some(kernel) = self.made.get(&id) {
            return Ok(kernel.clone());
        }
        let node = self.graph.node(id);
        let spec = self.kernels.find(node, "CPU")?;
        let init = KernelInit {
            node,
            budget: self.step.budget(),
            environment: self.step.environment(),
            states: &self.states,
        };
        let kernel = (spec.create)(&init)?;
        self.made.insert(id, kernel.clone());
        Ok(kernel)
    }
}

/// Runs functions by interpreters.
struct Functions {
    /// A graph without nodes that has the library.
    graph: Graph,
    kernels: Arc<KernelRegistry>,
}

/// A function's body with its kernels.
struct Instance {
    body: Interpreter,
    args: Vec<NodeId>,
    results: Vec<NodeId>,
    effects: Vec<NodeId>,
}

impl Functions {
    fn shared(graph: &Graph, kernels: &Arc<KernelRegistry>) -> Arc<Functions> {
        Arc::new(Functions { graph: Graph::new_like(graph), kernels: kernels.clone() })
    }

    fn instance(&self, name: &str, attrs: &Attrs, step: &Arc<StepContext>) -> Result<Instance> {
        let function = self.graph.library().get(name);
        let function = function.ok_or_else(|| err!(NotFound, "there is no function {name}"))?;
        let FunctionBody { graph, args, results, control_results } =
            instantiate(function, attrs, &self.graph)?;
        let mut effects = control_results;
        effects.extend(graph.ids().filter(|&id| {
            !args.contains(&id) && !results.contains(&id) && graph.node(id).op.has(Flag::Stateful)
        }));
        let (kernels, step) = (self.kernels.clone(), step.clone());
        let body = Interpreter {
            graph,
            kernels,
            made: HashMap::new(),
            states: NodeStates::default(),
            step,
            _functions: None,
        };
        Ok(Instance { body, args, results, effects })
    }
}

impl Instance {
    fn call(&mut self, args: Vec<Tensor>, step: &Arc<StepContext>) -> Result<Vec<Tensor>> {
        self.body.step = step.clone();
        let mut values: HashMap<Endpoint, Value> = HashMap::new();
        ensure!(args.len() == self.args.len(), InvalidArgument, "wrong number of arguments");
        for (&node, arg) in self.args.iter().zip(args) {
            values.insert(Endpoint { node, index: 0 }, Value::Tensor(arg));
        }
        let mut done = vec![false; self.body.graph.len()];
        self.args.iter().for_each(|id| done[id.index()] = true);
        for &node in &self.effects {
            self.body.evaluate(node, &mut values, &mut done)?;
        }
        let mut results = Vec::new();
        for result in self.results.clone() {
            let endpoint = self.body.graph.node(result).inputs[0];
            if !values.contains_key(&endpoint) {
                self.body.evaluate(endpoint.node, &mut values, &mut done)?;
            }
            match &values[&endpoint] {
                Value::Tensor(tensor) => results.push(tensor.clone()),
                _ => bail!(InvalidArgument, "a result is not a tensor"),
            }
        }
        Ok(results)
    }
}

impl FunctionRunner for Functions {
    fn call(
        &self,
        name: &str,
        attrs: &Attrs,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        done(self.instance(name, attrs, step).and_then(|mut made| made.call(args, step)));
    }

    fn call_kept(
        &self,
        function: &KeptFunction,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let KeptFunction { name, attrs, kept } = function;
        let kept = kept.get_or_init(|| Box::new(Mutex::new(None::<Instance>)));
        let kept: &Mutex<Option<Instance>> = kept.downcast_ref().unwrap();
        // Taken out while it runs, since it may be recursive.
        let known = kept.lock().unwrap().take();
        let made = known.map_or_else(|| self.instance(name, attrs, step), Ok);
        done(made.and_then(|mut made| {
            let results = made.call(args, step);
            *kept.lock().unwrap() = Some(made);
            results
        }));
    }
}
