//! `Stage` and `Unstage`: a FIFO between steps, bounded by number or by bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{
    AnyKernel, Family, KernelInit, KernelSpec, Outputs, ResourceManager, StepContext, Value,
};
use thalweg_tensor::{Error, Resource, Result, Tensor, bail, ensure, err};

use super::access::size_of_state;
use super::gate::{self, Answer, Gate, Gated, Lane, Machine, Progress, tensors, update};
use super::store::{Components, Element};
use crate::CHEAP;
use crate::state::handle::ResourceName;

pub(crate) static FAMILY: Family = Family {
    ops: &[STAGE, UNSTAGE, STAGE_PEEK, STAGE_SIZE, STAGE_CLEAR],
    kernels: &[
        KernelSpec { op: "Stage", create: stage, ..KernelSpec::CPU },
        KernelSpec { op: "Unstage", create: unstage, ..KernelSpec::CPU },
        KernelSpec { op: "StagePeek", create: peek, ..KernelSpec::CPU },
        KernelSpec { op: "StageSize", create: size, ..CHEAP },
        KernelSpec { op: "StageClear", create: clear, ..KernelSpec::CPU },
    ],
};

const STAGE: OpDef = OpDef::new("Stage", shape::unknown).with_work(Work::none);

const UNSTAGE: OpDef = OpDef { name: "Unstage", shape: shape::unknown, ..STAGE };

const STAGE_PEEK: OpDef = OpDef { name: "StagePeek", shape: peek_shape, ..UNSTAGE };

fn peek_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "index", 0)?;
    Ok(())
}

const STAGE_SIZE: OpDef = OpDef { name: "StageSize", shape: shape::scalar, ..UNSTAGE };

const STAGE_CLEAR: OpDef = OpDef { name: "StageClear", shape: shape::unknown, ..STAGE_SIZE };

/// Limits of a staging area; zero means unlimited.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    capacity: usize,
    memory_bytes: usize,
}

impl Limits {
    pub(crate) fn new(init: &KernelInit<'_>) -> Result<Limits> {
        let attrs = init.attrs();
        Ok(Limits { capacity: attrs.size("capacity")?, memory_bytes: attrs.size("memory_limit")? })
    }

    /// Rejects an element that exceeds the whole area, which would wait forever.
    pub(crate) fn check(&self, bytes: usize) -> Result<()> {
        let limit = self.memory_bytes;
        ensure!(
            limit == 0 || bytes <= limit,
            ResourceExhausted,
            "Attempted to insert tensors with combined size of '{bytes}' bytes into Staging Area with a memory limit of '{limit}'."
        );
        Ok(())
    }

    pub(crate) fn allow_count(&self, count: usize) -> bool {
        self.capacity == 0 || count <= self.capacity
    }

    pub(crate) fn allow_bytes(&self, bytes: usize) -> bool {
        self.memory_bytes == 0 || bytes <= self.memory_bytes
    }
}

/// Total bytes of tensors.
pub(crate) fn total_bytes<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> usize {
    tensors.into_iter().fold(0, |sum, tensor| sum.saturating_add(tensor.size_bytes()))
}

const PUTS: usize = 0;
const GETS: usize = 1;
const PEEKS: usize = 2;

struct Staging {
    limits: Limits,
    gate: Arc<Gate<Staged>>,
}

impl Resource for Staging {
    fn kind(&self) -> &'static str {
        "StagingArea"
    }

    fn has_handle(&self) -> bool {
        false
    }
}

impl Gated for Staging {
    type Machine = Staged;

    fn gate(&self) -> &Gate<Staged> {
        &self.gate
    }
}

struct Staged {
    limits: Limits,
    elements: VecDeque<Element>,
    bytes: usize,
}

enum Request {
    Put(Components),
    /// Takes the first element, for this many outputs.
    Get(usize),
    /// Reads the element at an index, for this many outputs.
    Peek(usize, usize),
}

impl Machine for Staged {
    type Request = Request;
    const LANES: &'static [Lane] = &[Lane::Ordered, Lane::Ordered, Lane::Free];

    fn advance(&mut self, request: &mut Request, step: &StepContext) -> Progress {
        match request {
            Request::Put(components) => self.put(components, step),
            Request::Get(outputs) => match self.elements.pop_front() {
                Some(element) => {
                    self.bytes -= total_bytes(&element.components);
                    Progress::Done(values(element.components, *outputs))
                }
                None => Progress::Waits,
            },
            Request::Peek(index, outputs) => match self.elements.get(*index) {
                Some(element) => Progress::Done(values(element.components.clone(), *outputs)),
                None => Progress::Waits,
            },
        }
    }

    fn withdraw(&mut self, _: Request) -> Error {
        err!(Cancelled, "the staging area was dropped")
    }
}

/// An element as a node's outputs. An element that does not match is dropped, as in TensorFlow: it
/// would block all other calls.
fn values(components: Components, outputs: usize) -> Result<Outputs> {
    ensure!(
        components.len() == outputs,
        InvalidArgument,
        "Mismatch stage/unstage: {} vs. {outputs}",
        components.len()
    );
    Ok(components.into_iter().map(Value::Tensor).collect())
}

impl Staged {
    fn put(&mut self, components: &mut Components, step: &StepContext) -> Progress {
        let bytes = self.bytes.saturating_add(total_bytes(&*components));
        if !self.limits.allow_count(self.elements.len() + 1) || !self.limits.allow_bytes(bytes) {
            return Progress::Waits;
        }
        match Element::new(std::mem::take(components), step.state_budget()) {
            Ok(element) => {
                self.elements.push_back(element);
                self.bytes = bytes;
                Progress::Done(Ok(Outputs::new()))
            }
            Err(e) => Progress::Done(Err(e)),
        }
    }
}

/// Finds or creates the staging area of a node.
struct NodeStagingArea {
    home: ResourceName,
    limits: Limits,
}

impl NodeStagingArea {
    fn new(init: &KernelInit<'_>) -> Result<NodeStagingArea> {
        Ok(NodeStagingArea { home: ResourceName::of(init, true)?, limits: Limits::new(init)? })
    }

    fn find(&self, resources: &ResourceManager) -> Result<Arc<Staging>> {
        let limits = self.limits;
        self.home.find_or_create(resources, || {
            let staged = Staged { limits, elements: VecDeque::new(), bytes: 0 };
            Ok(Staging { limits, gate: Gate::new(staged) })
        })
    }
}

fn stage(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        let area = area.find(call.step.resources())?;
        let components = tensors(call, 0)?;
        area.limits.check(total_bytes(&components))?;
        Ok(Answer::After(area, PUTS, Request::Put(components)))
    })
}

fn unstage(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        Ok(Answer::After(area.find(call.step.resources())?, GETS, Request::Get(call.num_outputs)))
    })
}

fn peek(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        let index = call.input(0)?;
        ensure!(index.rank() == 0, InvalidArgument, "index must be scalar");
        let index: i32 = index.scalar_value()?;
        let Ok(index) = usize::try_from(index) else {
            bail!(InvalidArgument, "index must not be negative, is {index}");
        };
        Ok(Answer::After(
            area.find(call.step.resources())?,
            PEEKS,
            Request::Peek(index, call.num_outputs),
        ))
    })
}

fn size(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    AnyKernel::new(move |ctx| {
        let len = area.find(ctx.resources())?.gate.inspect(|staged| staged.elements.len());
        ctx.set_output(0, Tensor::scalar(size_of_state(len)))
    })
}

fn clear(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    AnyKernel::new(move |ctx| {
        let area = area.find(ctx.resources())?;
        let gone = update(ctx, &*area, || {
            area.gate.change(|staged| {
                staged.bytes = 0;
                std::mem::take(&mut staged.elements)
            })
        })?;
        drop(gone);
        Ok(())
    })
}
