//! Partitioning of a placed graph by device; a cut edge becomes a `_Send` and a `_Recv`.
//!
//! A loop that is split over devices runs on each of them. A device without the loop's `LoopCond` gets a
//! control loop (TensorFlow's term): a small loop that receives the condition in every iteration. Each
//! `_Recv` in the loop has a control edge from the `Merge` of its device's control loop, so that it runs
//! once per iteration.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use thalweg_graph::{
    AttrValue, Attrs, Endpoint, Graph, IntoAttr, Node, NodeId, Op, OutputInfo, Role, tensor_bytes,
};
use thalweg_kernel::DeviceDescription;
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, err};

use crate::aliases::{FETCHED_ALIAS, fetches_alias};
use crate::late_receives::{Received, receive_late};
use crate::{Frame, Frames, Partition, Placement, Target};

/// The attr of a `_Recv` in a graph without control flow: its tensor is never dead. TensorFlow ignores
/// it.
pub const NEVER_DEAD: &str = "_never_dead";

/// The attr of a node whose 32-bit float outputs are sent between tasks as bfloat16, as all are with
/// [`Options::bfloat16_transfers`](crate::Options). TensorFlow's masters ignore it.
pub const BFLOAT16_SENDS: &str = "_thalweg_bfloat16_sends";

/// One graph for each device that has nodes.
pub fn partition(
    graph: Graph,
    placement: &Placement,
    target: &Target<'_>,
) -> Result<Vec<Partition>> {
    if target.devices.len() == 1 {
        return Ok(vec![Partition { device: target.devices[0].name.clone(), graph }]);
    }
    Partitioner::new(&graph, placement, target)?.run()
}

struct Partitioner<'a> {
    graph: &'a Graph,
    placement: &'a Placement,
    target: &'a Target<'a>,
    parts: Vec<Vec<Node>>,
    /// Position of each node in its partition.
    position: Vec<NodeId>,
    /// The node on another device that has a tensor, or that stands for a control edge (`true`).
    arrived: FxHashMap<(Endpoint, bool, u32), NodeId>,
    send: Arc<Op>,
    recv: Arc<Op>,
    constant: Arc<Op>,
    identity: Arc<Op>,
    next_edge: usize,
    has_control_flow: bool,
    frames: Frames,
    /// For each frame, its `LoopCond` and the device of it.
    conditions: Vec<Option<(NodeId, u32)>>,
    /// For each frame, whether it has nodes on several devices.
    is_split: Vec<bool>,
    /// For each frame and device, the `Merge` of the control loop.
    control_loops: FxHashMap<(u32, u32), NodeId>,
    /// For each device, the tensors that it receives.
    receives: Vec<Vec<Received>>,
}

impl<'a> Partitioner<'a> {
    fn new(graph: &'a Graph, placement: &'a Placement, target: &'a Target<'a>) -> Result<Self> {
        let op = |name: &str| graph.registry().get(name).cloned();
        let mut parts: Vec<Vec<Node>> = vec![Vec::new(); target.devices.len()];
        let mut position = Vec::with_capacity(graph.len());
        for (node, &device) in graph.nodes().iter().zip(&placement.devices) {
            let part = &mut parts[device as usize];
            position.push(NodeId(part.len() as u32));
            part.push(node.clone());
        }
        let frames = Frames::of(graph)?;
        let mut conditions = vec![None; frames.all.len()];
        let mut first_device: Vec<Option<u32>> = vec![None; frames.all.len()];
        let mut is_split = vec![false; frames.all.len()];
        for id in graph.ids() {
            let (frame, device) = (frames.of[id.index()] as usize, placement.devices[id.index()]);
            is_split[frame] |= *first_device[frame].get_or_insert(device) != device;
            if graph.node(id).role() == Role::LoopCond {
                conditions[frame].get_or_insert((id, device));
            }
        }
        Ok(Partitioner {
            graph,
            placement,
            target,
            parts,
            position,
            arrived: FxHashMap::default(),
            send: op("_Send")?,
            recv: op("_Recv")?,
            constant: op("Const")?,
            identity: op("Identity")?,
            next_edge: 0,
            has_control_flow: graph.has_control_flow(),
            frames,
            conditions,
            is_split,
            control_loops: FxHashMap::default(),
            receives: vec![Vec::new(); target.devices.len()],
        })
    }

    fn run(mut self) -> Result<Vec<Partition>> {
        for id in self.graph.ids() {
            let here = self.placement.devices[id.index()];
            let frame = self.frames.of[id.index()];
            if frame != 0 && self.is_split[frame as usize] {
                self.follow(frame, here)?;
            }
            let node = self.graph.node(id);
            let mut inputs = node.inputs.clone();
            for input in &mut inputs {
                let from = self.placement.devices[input.node.index()];
                *input = if from == here {
                    Endpoint { node: self.position[input.node.index()], index: input.index }
                } else if fetches_alias(node) {
                    Endpoint { node: self.cut_fetch(*input, from, here)?, index: 0 }
                } else {
                    Endpoint { node: self.cut_data(*input, from, here, frame)?, index: 0 }
                };
            }
            let mut control_inputs = node.control_inputs.clone();
            for control in &mut control_inputs {
                let from = self.placement.devices[control.index()];
                *control = if from == here {
                    self.position[control.index()]
                } else {
                    self.cut_control(*control, from, here, frame)?
                };
            }
            let moved = &mut self.parts[here as usize][self.position[id.index()].index()];
            moved.inputs = inputs;
            moved.control_inputs = control_inputs;
        }
        let (whole, target, has_control_flow) = (self.graph, self.target, self.has_control_flow);
        let part =
            |((nodes, device), receives): ((Vec<Node>, &DeviceDescription), Vec<Received>)| {
                let graph = Graph::from_nodes(whole, nodes);
                let seconds = |graph: &Graph, id| target.costs.cost(graph, id, device).seconds;
                let graph = match has_control_flow {
                    true => graph,
                    false => receive_late(graph, &receives, seconds),
                };
                Partition { device: device.name.clone(), graph }
            };
        let parts = self.parts.into_iter().zip(target.devices).zip(self.receives);
        Ok(parts.filter(|((nodes, _), _)| !nodes.is_empty()).map(part).collect())
    }

    /// The node on device `to` that has `tensor`; consumers there share it.
    fn cut_data(&mut self, tensor: Endpoint, from: u32, to: u32, frame: u32) -> Result<NodeId> {
        let key = (tensor, false, to);
        if let Some(&arrived) = self.arrived.get(&key) {
            return Ok(arrived);
        }
        let source = self.graph.node(tensor.node);
        let output = OutputInfo { is_ref: false, ..self.graph.output(tensor).clone() };
        let input = Endpoint { node: self.position[tensor.node.index()], index: tensor.index };
        let name = source.name.clone();
        let received = match self.is_narrowed(source, &output, from, to) {
            true => self.narrowed(&name, input, &output, (from, to), frame)?,
            false => self.transfer(&name, input, output, from, to, frame)?,
        };
        self.arrived.insert(key, received);
        Ok(received)
    }

    /// The node on the client's device that receives a fetch of what may be an alias, and nothing else:
    /// other readers there do not wait for the end of what the sending task does.
    fn cut_fetch(&mut self, tensor: Endpoint, from: u32, to: u32) -> Result<NodeId> {
        let output = OutputInfo { is_ref: false, ..self.graph.output(tensor).clone() };
        let input = Endpoint { node: self.position[tensor.node.index()], index: tensor.index };
        let name = self.graph.node(tensor.node).name.clone();
        let received = self.transfer(&name, input, output, from, to, 0)?;
        let send = self.parts[from as usize].len() - 1;
        for (part, node) in [(from, send), (to, received.index())] {
            self.parts[part as usize][node].attrs.set(FETCHED_ALIAS, true.into_attr());
        }
        Ok(received)
    }

    /// Whether a tensor is sent as bfloat16.
    fn is_narrowed(&self, source: &Node, output: &OutputInfo, from: u32, to: u32) -> bool {
        let task = |device: u32| {
            let name = &self.target.devices[device as usize].name;
            (&name.job, name.replica, name.task)
        };
        let is_chosen = matches!(source.attrs.get(BFLOAT16_SENDS), Some(AttrValue::Bool(true)));
        (is_chosen || self.target.options.bfloat16_transfers)
            && output.dtype == DType::Float
            && task(from) != task(to)
    }

    /// Adds a transfer of 32-bit floats as bfloat16; the node that has them again as 32-bit floats.
    fn narrowed(
        &mut self,
        name: &str,
        input: Endpoint,
        output: &OutputInfo,
        (from, to): (u32, u32),
        frame: u32,
    ) -> Result<NodeId> {
        let cast = self.graph.registry().get("Cast")?.clone();
        let narrow = OutputInfo { dtype: DType::BFloat16, ..output.clone() };
        let edge = self.next_edge;
        let node = |end: &str, input: Endpoint, from: DType, output: &OutputInfo| {
            let mut node = Node::bare(format!("{name}/cast_{end}{edge}"), cast.clone());
            node.inputs = smallvec![input];
            node.attrs = [
                ("SrcT".into(), from.into_attr()),
                ("DstT".into(), output.dtype.into_attr()),
                ("Truncate".into(), true.into_attr()),
            ]
            .into_iter()
            .collect();
            node.outputs = smallvec![output.clone()];
            node
        };
        let sent = node("S", input, DType::Float, &narrow);
        let sent = Endpoint { node: self.push(from, sent), index: 0 };
        let received = self.transfer(name, sent, narrow, from, to, frame)?;
        let received = Endpoint { node: received, index: 0 };
        let widened = node("R", received, DType::BFloat16, output);
        Ok(self.push(to, widened))
    }

    /// A control edge becomes the transfer of an empty constant with a control edge from `source`, and
    /// an `Identity` from which the consumers have control edges.
    fn cut_control(&mut self, source: NodeId, from: u32, to: u32, frame: u32) -> Result<NodeId> {
        let key = (Endpoint { node: source, index: 0 }, true, to);
        if let Some(&arrived) = self.arrived.get(&key) {
            return Ok(arrived);
        }
        let name = self.graph.node(source).name.clone();
        let signal = format!("{name}/ctrl_S{}", self.next_edge);
        let after = self.position[source.index()];
        let (signal, output) = self.signal(from, signal, Some(after))?;
        let received = self.transfer(&name, signal, output.clone(), from, to, frame)?;
        let mut arrived =
            Node::bare(format!("{name}/ctrl_R{}", self.next_edge), self.identity.clone());
        arrived.inputs = smallvec![Endpoint { node: received, index: 0 }];
        arrived.attrs = [("T".into(), DType::Float.into_attr())].into_iter().collect();
        arrived.outputs = smallvec![output];
        let arrived = self.push(to, arrived);
        self.arrived.insert(key, arrived);
        Ok(arrived)
    }

    /// Adds an empty constant with a control edge from `after`.
    fn signal(
        &mut self,
        device: u32,
        name: String,
        after: Option<NodeId>,
    ) -> Result<(Endpoint, OutputInfo)> {
        let empty = Tensor::zeros(DType::Float, Shape::new(&[0])?)?;
        let shape = PartialShape::from(empty.shape());
        let output = OutputInfo { dtype: DType::Float, is_ref: false, shape };
        let mut signal = Node::bare(name, self.constant.clone());
        signal.attrs = Attrs::of_const(&empty)?;
        signal.control_inputs.extend(after);
        signal.outputs = smallvec![output.clone()];
        Ok((Endpoint { node: self.push(device, signal), index: 0 }, output))
    }

    /// Adds the control loop of a frame on a device without its `LoopCond`.
    fn follow(&mut self, frame: u32, device: u32) -> Result<()> {
        if self.condition(frame)?.1 != device {
            self.control_loop(frame, device)?;
        }
        Ok(())
    }

    fn condition(&self, frame: u32) -> Result<(NodeId, u32)> {
        self.conditions[frame as usize].ok_or_else(|| {
            let name = &self.frames.all[frame as usize].name;
            err!(
                Unimplemented,
                "the loop '{name}' has no LoopCond, so it cannot be split over devices"
            )
        })
    }

    /// The `Merge` of the control loop of a frame on a device, which runs first in every iteration.
    fn control_loop(&mut self, frame: u32, device: u32) -> Result<NodeId> {
        if let Some(&first) = self.control_loops.get(&(frame, device)) {
            return Ok(first);
        }
        let (condition, home) = self.condition(frame)?;
        let Frame { name, parent, parallel_iterations } = self.frames.all[frame as usize].clone();
        let outer = if parent == 0 { None } else { Some(self.control_loop(parent, device)?) };
        let base = format!("{}/lap_{frame}", self.graph.node(condition).name);
        let (begin, output) = self.signal(device, format!("{base}/begin"), outer)?;
        let bare = |this: &Self, op: &str, inputs: &[Endpoint]| -> Result<Node> {
            let op = this.graph.registry().get(op)?.clone();
            let mut node = Node::bare(format!("{base}/{}", op.name.to_lowercase()), op);
            node.inputs = inputs.iter().copied().collect();
            node.attrs.set("T", DType::Float.into_attr());
            node.outputs.push(output.clone());
            Ok(node)
        };
        let mut enter = bare(self, "Enter", &[begin])?;
        enter.attrs.set("frame_name", (&*name).into_attr());
        enter.attrs.set("parallel_iterations", parallel_iterations.into_attr());
        let enter = Endpoint { node: self.push(device, enter), index: 0 };
        // The second input becomes the back edge once `NextIteration` is made.
        let mut merge = bare(self, "Merge", &[enter, enter])?;
        merge.attrs.set("N", 2i64.into_attr());
        let index =
            OutputInfo { dtype: DType::Int32, is_ref: false, shape: PartialShape::scalar() };
        merge.outputs.push(index);
        let merge = self.push(device, merge);
        self.control_loops.insert((frame, device), merge);
        let loop_cond = if home == device {
            self.position[condition.index()]
        } else {
            self.cut_data(Endpoint { node: condition, index: 0 }, home, device, frame)?
        };
        let choice = Endpoint { node: loop_cond, index: 0 };
        let mut switch = bare(self, "Switch", &[Endpoint { node: merge, index: 0 }, choice])?;
        switch.outputs.push(output.clone());
        let switch = self.push(device, switch);
        let next = bare(self, "NextIteration", &[Endpoint { node: switch, index: 1 }])?;
        let next = self.push(device, next);
        self.parts[device as usize][merge.index()].inputs[1] = Endpoint { node: next, index: 0 };
        Ok(merge)
    }

    /// Adds a `_Send` of `input` on `from` and its `_Recv` on `to`; returns the latter.
    fn transfer(
        &mut self,
        name: &str,
        input: Endpoint,
        output: OutputInfo,
        from: u32,
        to: u32,
        frame: u32,
    ) -> Result<NodeId> {
        let devices = self.target.devices;
        let (source, target) = (&devices[from as usize], &devices[to as usize]);
        let edge = self.next_edge;
        self.next_edge += 1;
        let tensor_name = format!("edge_{edge}_{name}");
        let mut send = Node::bare(format!("{name}_S{edge}"), self.send.clone());
        send.inputs = smallvec![input];
        send.attrs = transfer_attrs("T", output.dtype, &tensor_name, source, target);
        self.push(from, send);
        let mut recv = Node::bare(format!("{name}_R{edge}"), self.recv.clone());
        recv.attrs = transfer_attrs("tensor_type", output.dtype, &tensor_name, source, target);
        let bytes = tensor_bytes(&output.shape, output.dtype) as u64;
        recv.outputs = smallvec![output];
        if !self.has_control_flow {
            recv.attrs.set(NEVER_DEAD, true.into_attr());
        }
        if frame != 0 {
            recv.control_inputs.push(self.control_loop(frame, to)?);
        }
        let node = self.push(to, recv);
        let seconds = self.target.links.seconds(&source.name, &target.name, bytes);
        self.receives[to as usize].push(Received { node, bytes, seconds });
        Ok(node)
    }

    fn push(&mut self, device: u32, mut node: Node) -> NodeId {
        node.device = self.target.devices[device as usize].name.to_string().into();
        let part = &mut self.parts[device as usize];
        part.push(node);
        NodeId(part.len() as u32 - 1)
    }
}

/// The attrs of a `_Send` or `_Recv`; `type_attr` is the attr that holds the dtype.
pub(crate) fn transfer_attrs(
    type_attr: &str,
    dtype: DType,
    tensor_name: &str,
    from: &DeviceDescription,
    to: &DeviceDescription,
) -> Attrs {
    [
        (type_attr.into(), dtype.into_attr()),
        ("tensor_name".into(), tensor_name.into_attr()),
        ("send_device".into(), from.name.to_string().as_str().into_attr()),
        ("send_device_incarnation".into(), AttrValue::Int(from.incarnation as i64)),
        ("recv_device".into(), to.name.to_string().as_str().into_attr()),
    ]
    .into_iter()
    .collect()
}
