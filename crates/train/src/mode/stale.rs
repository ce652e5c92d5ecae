//! Stale synchronous parallel (SSP): workers may be ahead of each other by a bounded number of
//! steps.
//!
//! Each worker has a staleness clock that counts its steps; all clocks are on one device. After a
//! step a worker increments its clock, notifies all workers, and waits on its own queue until it is
//! within the bound. At each notification it reads the clocks again, so it does not matter which
//! worker notified, how often, or whether that worker still lives. A worker that restarts continues
//! with its clock.

use thalweg_graph::{Adjoint, NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use super::sync::element;
use super::tokens::Tokens;
use super::{Coordinated, Ledger, Replica, home};
use crate::{ModelScope, Optimizer, Variable};

/// The clock of a worker that has left: greater than all others, so that no worker waits for it.
const LEFT: i64 = i64::MAX / 2;

pub(super) fn apply(
    model: &mut ModelScope,
    optimizer: &Optimizer,
    gradients: &[(Variable, Adjoint)],
    replica: Replica,
    (bound, ledger): (usize, Option<&Ledger>),
) -> Result<Coordinated> {
    let clocks = Clocks::new(model, replica)?;
    let trained = match ledger {
        Some(ledger) => ledger.apply(model, optimizer, gradients)?,
        None => optimizer.clip_and_apply(model, gradients)?,
    };
    let ticked = clocks.tick(trained)?;
    let go_on = clocks.wait(&ticked, bound)?;
    let step = model.op("NoOp").name("step").after(&[go_on]).build_node()?;
    let (start_worker, leave) = (clocks.start()?, clocks.leave()?);
    Ok(Coordinated {
        start_worker: Some(model.node_name(start_worker)),
        leave: Some(model.node_name(leave)),
        ..Coordinated::of(model, step)?
    })
}

struct Clocks {
    /// The device of the clocks.
    scope: Scope,
    index: usize,
    clocks: Output,
    signals: Vec<Tokens>,
}

impl Clocks {
    fn new(model: &ModelScope, replica: Replica) -> Result<Clocks> {
        let device = home(model)?;
        let shape = PartialShape::from(&Shape::new(&[replica.count])?);
        let zeros = vec![0i64; replica.count];
        let first = |scope: &mut Scope| scope.constant(&Tensor::vector(&zeros)?);
        let name = "coordination/clocks";
        let clocks = model.local(name, &device, DType::Int64, &shape, Some(&first))?;
        let mut scope = model.on_device(&device).child("coordination");
        let mut signals = Vec::with_capacity(replica.count);
        for index in 0..replica.count {
            signals.push(Tokens::new(&mut scope, "coordination/signal", index)?.signal());
        }
        Ok(Clocks { scope, index: replica.index, clocks, signals })
    }

    /// Increments the worker's clock and notifies all workers.
    fn tick(&self, trained: NodeId) -> Result<Vec<NodeId>> {
        let mut scope = self.scope.child("tick").after(&[trained]);
        let position = self.position(&mut scope)?;
        let one = scope.constant(&Tensor::scalar(1i64))?;
        let node = scope.op("ResourceScatterAdd").inputs(&[self.clocks, position, one]);
        let ticked = node.build_node()?;
        self.ring(&mut scope.after(&[ticked]))
    }

    /// Waits until one more step is within the bound.
    fn wait(&self, ticked: &[NodeId], bound: usize) -> Result<NodeId> {
        let mut scope = self.scope.child("wait");
        let lead = self.lead(&mut scope.after(ticked))?;
        let most = scope.constant(&Tensor::scalar(i64::try_from(bound).unwrap_or(i64::MAX)))?;
        let signal = self.signals[self.index];
        let condition =
            |scope: &mut Scope, lead: &[Output]| scope.add("GreaterEqual", &[lead[0], most]);
        let body = |scope: &mut Scope, _: &[Output]| {
            let signalled = signal.wait(scope)?;
            Ok(vec![self.lead(&mut scope.after(&[signalled.node]))?])
        };
        let lead = scope.while_loop(&[lead], condition, body)?[0];
        Ok(lead.node)
    }

    /// How many steps this worker is ahead of the slowest.
    fn lead(&self, scope: &mut Scope) -> Result<Output> {
        let clocks = self.read(scope)?;
        let position = self.position(scope)?;
        let axis = scope.constant(&Tensor::scalar(0i32))?;
        let own = scope.add("GatherV2", &[clocks, position, axis])?;
        let last = scope.add("Min", &[clocks, axis])?;
        scope.add("Sub", &[own, last])
    }

    /// Sets the clock of a worker that had left to that of the slowest worker.
    fn start(&self) -> Result<NodeId> {
        let mut scope = self.scope.child("start_worker");
        let old = self.signals[self.index].take_all(&mut scope)?;
        let mut scope = scope.after(&[old.node]);
        let clocks = self.read(&mut scope)?;
        let axis = scope.constant(&Tensor::scalar(0i32))?;
        let last = scope.add("Min", &[clocks, axis])?;
        let left = scope.constant(&Tensor::scalar(LEFT))?;
        let zero = scope.constant(&Tensor::scalar(0i64))?;
        let nobody = scope.add("GreaterEqual", &[last, left])?;
        let last = scope.add("SelectV2", &[nobody, zero, last])?;
        let position = self.position(&mut scope)?;
        let own = element(&mut scope, self.clocks, position)?;
        let had_left = scope.add("GreaterEqual", &[own, left])?;
        let own = scope.add("SelectV2", &[had_left, last, own])?;
        self.set(&mut scope, own, "start_worker")
    }

    fn leave(&self) -> Result<NodeId> {
        let mut scope = self.scope.child("leave");
        let left = scope.constant(&Tensor::scalar(LEFT))?;
        self.set(&mut scope, left, "leave")
    }

    /// Sets the worker's clock and notifies all workers.
    fn set(&self, scope: &mut Scope, clock: Output, name: &str) -> Result<NodeId> {
        let position = self.position(scope)?;
        let node = scope.op("ResourceScatterUpdate").inputs(&[self.clocks, position, clock]);
        let set = node.build_node()?;
        let signalled = self.ring(&mut scope.after(&[set]))?;
        scope.op("NoOp").name(name).after(&signalled).build_node()
    }

    fn ring(&self, scope: &mut Scope) -> Result<Vec<NodeId>> {
        let zero = scope.constant(&Tensor::scalar(0i64))?;
        self.signals.iter().map(|signal| signal.write(scope, zero)).collect()
    }

    fn position(&self, scope: &mut Scope) -> Result<Output> {
        scope.constant(&Tensor::scalar(self.index as i64))
    }

    fn read(&self, scope: &mut Scope) -> Result<Output> {
        scope.op("ReadVariableOp").input(self.clocks).attr("dtype", DType::Int64).build()
    }
}
