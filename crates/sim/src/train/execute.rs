//! Executing single nodes.

use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_kernel::{AsyncCall, AsyncKernel, Kernel, KernelContext, Outputs, Value};
use thalweg_tensor::{Error, Result, Tensor, err};

use super::program::{Input, Kind, Preset, Program};
use super::world::{Act, Caller, Completed, Id, Notice, Payload, World, is_ghost};

/// Where a node runs.
#[derive(Clone, Copy)]
struct At {
    id: Id,
    node: u32,
    time: u64,
}

impl World {
    /// Executes what takes no time, and what kernels have completed meanwhile.
    pub(super) fn settle(&mut self, time: u64) {
        loop {
            while let Some((id, node)) = self.light.pop_front() {
                self.execute(id, node, time);
            }
            let completed = std::mem::take(&mut *self.completed.lock());
            if completed.is_empty() {
                return;
            }
            for Completed { act, node, result } in completed {
                let at = At { id: act, node, time };
                if self.parts(act).is_some() {
                    match result {
                        Ok(outputs) => self.completed_with(at, outputs),
                        Err(e) => self.failed(at, e),
                    }
                }
            }
        }
    }

    /// Executes a node whose time has passed.
    pub(super) fn execute(&mut self, id: Id, node: u32, time: u64) {
        let Some((act, ..)) = self.parts(id) else { return };
        let program = act.program.clone();
        let at = At { id, node, time };
        if let Err(e) = self.execute_node(at, &program) {
            self.failed(at, e);
        }
    }

    fn execute_node(&mut self, at: At, program: &Arc<Program>) -> Result<()> {
        let node = &program.nodes[at.node as usize];
        match &node.kind {
            Kind::NoOp | Kind::Recv => {}
            Kind::Ghosts => self.set_ghosts(at, program),
            Kind::Identity => {
                let value = self.input(at, node.inputs[0])?;
                self.set(at, program, 0, value);
            }
            Kind::Kernel(kernel) => {
                let inputs = self.inputs(at, program)?;
                if node.makes_ghosts || inputs.iter().any(is_ghost) {
                    self.set_ghosts(at, program);
                } else {
                    let kernel = kernel.clone();
                    self.compute(at, program, &*kernel, inputs)?;
                }
            }
            Kind::Accumulate(kernel, stand_ins) => {
                let mut inputs = self.inputs(at, program)?;
                for (i, stand_in) in stand_ins {
                    if let Some(input) = inputs.get_mut(*i) {
                        *input = Value::Tensor(stand_in.clone());
                    }
                }
                let kernel = kernel.clone();
                self.compute(at, program, &*kernel, inputs)?;
            }
            Kind::Async(kernel) => {
                let inputs = self.inputs(at, program)?;
                if !inputs.iter().any(is_ghost) {
                    let kernel = kernel.clone();
                    self.start_kernel(at, program, &*kernel, inputs)?;
                    return Ok(());
                }
                self.set_ghosts(at, program);
            }
            Kind::Send { partition, node: receiver, bytes } => {
                let value = self.input(at, node.inputs[0])?;
                let (run, task) = self.act(at)?;
                if let Some((to, receiver_task)) = self.partition_of(run, *partition) {
                    let payload = Payload::Tensor { to, node: *receiver, value };
                    self.send(task, receiver_task, *bytes, at.time, payload);
                }
            }
            Kind::Fetch(i) => {
                let value = self.input(at, node.inputs[0])?;
                let (run, _) = self.act(at)?;
                self.fetched(run, *i, value);
            }
            Kind::Arg(i) => {
                let (act, ..) = self.parts(at.id).ok_or_else(gone)?;
                let value = act.args.get(*i as usize).cloned().unwrap_or_default();
                self.set(at, program, 0, value);
            }
            Kind::Loop { cond, .. } => {
                let vars = self.inputs(at, program)?.into_vec();
                self.call(at, cond.clone(), vars, true)?;
                return Ok(());
            }
        }
        if node.counts_update {
            self.notices.push_back(Notice::Updated);
        }
        self.release(at, program);
        Ok(())
    }

    fn act(&mut self, at: At) -> Result<(Id, u32)> {
        let (act, ..) = self.parts(at.id).ok_or_else(gone)?;
        Ok((act.run, act.task))
    }

    fn input(&mut self, at: At, input: Input) -> Result<Value> {
        let (act, _, slots) = self.parts(at.id).ok_or_else(gone)?;
        let Input::Preset(i) = input else {
            return Ok(input.of_slots(slots).unwrap_or_default());
        };
        let node = match act.instance.preset(&act.program, i) {
            Preset::Value(value) => return Ok(Value::Tensor(value.clone())),
            Preset::Ghost => return Ok(Value::Dead),
            Preset::Handle(node) => node.clone(),
        };
        let (task, context) = (act.task, act.context.clone());
        self.handle(task, &node, &context)
    }

    fn inputs(&mut self, at: At, program: &Program) -> Result<SmallVec<[Value; 4]>> {
        let inputs = &program.nodes[at.node as usize].inputs;
        inputs.iter().map(|&input| self.input(at, input)).collect()
    }

    /// Runs a kernel.
    fn compute(
        &mut self,
        at: At,
        program: &Arc<Program>,
        kernel: &dyn Kernel,
        mut inputs: SmallVec<[Value; 4]>,
    ) -> Result<()> {
        let (act, ..) = self.parts(at.id).ok_or_else(gone)?;
        let context = act.context.clone();
        let (i, node) = (at.node as usize, &program.nodes[at.node as usize]);
        let mut outputs: SmallVec<[Value; 2]> = SmallVec::new();
        outputs.resize(node.outputs as usize, Value::Empty);
        let mut ctx = KernelContext::new(
            &program.graph[i],
            &program.dtypes[i],
            &context,
            &mut inputs,
            &mut outputs,
        );
        kernel.compute(&mut ctx)?;
        drop(inputs);
        for (output, value) in outputs.into_iter().enumerate() {
            self.set(at, program, output as u32, value);
        }
        Ok(())
    }

    /// Starts a kernel that completes later.
    fn start_kernel(
        &mut self,
        at: At,
        program: &Arc<Program>,
        kernel: &dyn AsyncKernel,
        inputs: SmallVec<[Value; 4]>,
    ) -> Result<()> {
        let (act, ..) = self.parts(at.id).ok_or_else(gone)?;
        let (context, completed) = (act.context.clone(), self.completed.clone());
        let (id, node) = (at.id, at.node);
        let done = move |result: Result<Outputs>| {
            completed.lock().push(Completed { act: id, node, result });
        };
        let outputs = program.nodes[at.node as usize].outputs as usize;
        kernel.start(AsyncCall::new(inputs, context, outputs, Box::new(done)));
        Ok(())
    }

    fn completed_with(&mut self, at: At, outputs: Outputs) {
        let Some((act, ..)) = self.parts(at.id) else { return };
        let program = act.program.clone();
        match program.nodes[at.node as usize].makes_ghosts {
            true => self.set_ghosts(at, &program),
            false => {
                for (i, value) in outputs.into_iter().enumerate() {
                    self.set(at, &program, i as u32, value);
                }
            }
        }
        self.release(at, &program);
    }

    /// A node fails, and with it the step.
    fn failed(&mut self, at: At, error: Error) {
        let Some((act, ..)) = self.parts(at.id) else { return };
        let (run, name) = (act.run, act.program.graph[at.node as usize].name.clone());
        self.fail(run, error.at_node(&name), at.time);
    }

    fn set(&mut self, at: At, program: &Program, output: u32, value: Value) {
        let slot = program.nodes[at.node as usize].first_slot + output;
        if let Some((_, _, slots)) = self.parts(at.id) {
            slots[slot as usize] = value;
        }
    }

    fn set_ghosts(&mut self, at: At, program: &Program) {
        for i in 0..program.nodes[at.node as usize].outputs {
            self.set(at, program, i, Value::Dead);
        }
    }

    /// Counts a node's end down at its successors.
    fn release(&mut self, at: At, program: &Program) {
        let Some((act, pending, _)) = self.parts(at.id) else { return };
        act.remaining -= 1;
        let has_ended = act.remaining == 0;
        let successors = &program.nodes[at.node as usize].successors;
        let mut ready: SmallVec<[u32; 16]> = SmallVec::new();
        for &next in successors {
            pending[next as usize] -= 1;
            if pending[next as usize] == 0 {
                ready.push(next);
            }
        }
        for next in ready {
            self.ready(at.id, next, at.time);
        }
        if has_ended {
            self.ended(at.id, at.time);
        }
    }

    /// Calls the condition or the body of a loop.
    fn call(
        &mut self,
        at: At,
        program: Arc<Program>,
        args: Vec<Value>,
        is_cond: bool,
    ) -> Result<()> {
        let (act, ..) = self.parts(at.id).ok_or_else(gone)?;
        let called = Act {
            run: act.run,
            instance: act.instance.clone(),
            task: act.task,
            remaining: program.nodes.len() as u32,
            has_begun: false,
            context: act.context.clone(),
            caller: Some(Caller { act: at.id, node: at.node, is_cond }),
            args,
            program,
        };
        let called = self.activate(called);
        self.begin(called, at.time);
        Ok(())
    }

    /// A function has ended: the loop that called it goes on.
    pub(super) fn returned(&mut self, id: Id, time: u64) {
        let results = self.parts(id).map(|(act, ..)| act.program.results.clone());
        let own = At { id, node: 0, time };
        let results = results.unwrap_or_default().into_iter().map(|input| self.input(own, input));
        let results: Result<Vec<Value>> = results.collect();
        let Some(act) = self.retire(id) else { return };
        let Some(Caller { act: caller, node, is_cond }) = act.caller else { return };
        let at = At { id: caller, node, time };
        if let Err(e) = results.and_then(|results| self.go_on(at, is_cond, results, act.args)) {
            self.failed(at, e);
        }
    }

    fn go_on(
        &mut self,
        at: At,
        is_cond: bool,
        results: Vec<Value>,
        vars: Vec<Value>,
    ) -> Result<()> {
        let Some((act, ..)) = self.parts(at.id) else { return Ok(()) };
        let program = act.program.clone();
        let Kind::Loop { cond, body } = &program.nodes[at.node as usize].kind else {
            return Err(err!(Internal, "a function was called by no loop"));
        };
        if !is_cond {
            return self.call(at, cond.clone(), results, true);
        }
        let holds = results.first().and_then(Value::tensor).map(Tensor::scalar_value::<bool>);
        let holds = holds.ok_or_else(|| err!(Unimplemented, "a loop depends on a ghost"))??;
        if holds {
            return self.call(at, body.clone(), vars, false);
        }
        for (i, value) in vars.into_iter().enumerate() {
            self.set(at, &program, i as u32, value);
        }
        self.release(at, &program);
        Ok(())
    }
}

fn gone() -> Error {
    err!(Internal, "the step has ended")
}
