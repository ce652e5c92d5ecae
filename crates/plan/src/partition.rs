//! Cut a placed graph by device; a cut edge becomes `_Send` and `_Recv`.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use thalweg_graph::{AttrValue, Attrs, Endpoint, Graph, IntoAttr, Node, NodeId, Op, OutputInfo};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use crate::{Partition, Placement, Target};

/// One graph for each device that has nodes.
pub fn partition(
    graph: Graph,
    placement: &Placement,
    target: &Target<'_>,
) -> Result<Vec<Partition>> {
    if target.devices.len() == 1 {
        return Ok(vec![Partition { device: target.devices[0].name.clone(), graph }]);
    }
    Cut::new(&graph, placement, target)?.run()
}

struct Cut<'a> {
    graph: &'a Graph,
    placement: &'a Placement,
    target: &'a Target<'a>,
    parts: Vec<Vec<Node>>,
    /// Position of each node in its part.
    position: Vec<NodeId>,
    /// What a tensor (or, for control edges, a node) is called on another device.
    arrived: FxHashMap<(Endpoint, bool, u32), NodeId>,
    send: Arc<Op>,
    recv: Arc<Op>,
    constant: Arc<Op>,
    identity: Arc<Op>,
    next_edge: usize,
}

impl<'a> Cut<'a> {
    fn new(graph: &'a Graph, placement: &'a Placement, target: &'a Target<'a>) -> Result<Self> {
        let op = |name: &str| graph.registry().get(name).cloned();
        let mut parts: Vec<Vec<Node>> = vec![Vec::new(); target.devices.len()];
        let mut position = Vec::with_capacity(graph.len());
        for (node, &device) in graph.nodes().iter().zip(&placement.devices) {
            let part = &mut parts[device as usize];
            position.push(NodeId(part.len() as u32));
            part.push(node.clone());
        }
        Ok(Cut {
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
        })
    }

    fn run(mut self) -> Result<Vec<Partition>> {
        for id in self.graph.ids() {
            let here = self.placement.devices[id.index()];
            let node = self.graph.node(id);
            let mut inputs = node.inputs.clone();
            for input in &mut inputs {
                let from = self.placement.devices[input.node.index()];
                *input = if from == here {
                    Endpoint { node: self.position[input.node.index()], index: input.index }
                } else {
                    Endpoint { node: self.cut_data(*input, from, here), index: 0 }
                };
            }
            let mut control_inputs = node.control_inputs.clone();
            for control in &mut control_inputs {
                let from = self.placement.devices[control.index()];
                *control = if from == here {
                    self.position[control.index()]
                } else {
                    self.cut_control(*control, from, here)?
                };
            }
            let moved = &mut self.parts[here as usize][self.position[id.index()].index()];
            moved.inputs = inputs;
            moved.control_inputs = control_inputs;
        }
        let (graph, target) = (self.graph, self.target);
        let parts = self.parts.into_iter().zip(target.devices);
        Ok(parts
            .filter(|(nodes, _)| !nodes.is_empty())
            .map(|(nodes, device)| Partition {
                device: device.name.clone(),
                graph: Graph::from_nodes(graph, nodes),
            })
            .collect())
    }

    /// The node on device `to` that receives `tensor`; consumers there share it.
    fn cut_data(&mut self, tensor: Endpoint, from: u32, to: u32) -> NodeId {
        let key = (tensor, false, to);
        if let Some(&arrived) = self.arrived.get(&key) {
            return arrived;
        }
        let source = self.graph.node(tensor.node);
        let output = OutputInfo { is_ref: false, ..self.graph.output(tensor).clone() };
        let input = Endpoint { node: self.position[tensor.node.index()], index: tensor.index };
        let name = source.name.clone();
        let received = self.transfer(&name, input, output, from, to);
        self.arrived.insert(key, received);
        received
    }

    /// A control edge travels as an empty tensor: a constant after the source, and an identity
    /// that consumers wait for.
    fn cut_control(&mut self, source: NodeId, from: u32, to: u32) -> Result<NodeId> {
        let key = (Endpoint { node: source, index: 0 }, true, to);
        if let Some(&arrived) = self.arrived.get(&key) {
            return Ok(arrived);
        }
        let name = self.graph.node(source).name.clone();
        let empty = Tensor::zeros(DType::Float, Shape::new(&[0])?)?;
        let output = OutputInfo {
            dtype: DType::Float,
            is_ref: false,
            shape: PartialShape::from(empty.shape()),
        };
        let mut signal =
            Node::bare(format!("{name}/ctrl_S{}", self.next_edge), self.constant.clone());
        signal.attrs = [
            ("dtype".into(), DType::Float.into_attr()),
            ("value".into(), AttrValue::Tensor(Arc::new(empty.to_proto()?))),
        ]
        .into_iter()
        .collect();
        signal.control_inputs = smallvec![self.position[source.index()]];
        signal.outputs = smallvec![output.clone()];
        let signal = Endpoint { node: self.push(from, signal), index: 0 };
        let received = self.transfer(&name, signal, output.clone(), from, to);
        let mut arrived =
            Node::bare(format!("{name}/ctrl_R{}", self.next_edge), self.identity.clone());
        arrived.inputs = smallvec![Endpoint { node: received, index: 0 }];
        arrived.attrs = [("T".into(), DType::Float.into_attr())].into_iter().collect();
        arrived.outputs = smallvec![output];
        let arrived = self.push(to, arrived);
        self.arrived.insert(key, arrived);
        Ok(arrived)
    }

    /// Adds a `_Send` of `input` on `from` and its `_Recv` on `to`; returns the latter.
    fn transfer(
        &mut self,
        name: &str,
        input: Endpoint,
        output: OutputInfo,
        from: u32,
        to: u32,
    ) -> NodeId {
        let edge = self.next_edge;
        self.next_edge += 1;
        let tensor_name = format!("edge_{edge}_{name}");
        let mut send = Node::bare(format!("{name}_S{edge}"), self.send.clone());
        send.inputs = smallvec![input];
        send.attrs = self.transfer_attrs("T", output.dtype, &tensor_name, from, to);
        self.push(from, send);
        let mut recv = Node::bare(format!("{name}_R{edge}"), self.recv.clone());
        recv.attrs = self.transfer_attrs("tensor_type", output.dtype, &tensor_name, from, to);
        recv.outputs = smallvec![output];
        self.push(to, recv)
    }

    fn transfer_attrs(
        &self,
        type_attr: &str,
        dtype: DType,
        name: &str,
        from: u32,
        to: u32,
    ) -> Attrs {
        let (from, to) = (&self.target.devices[from as usize], &self.target.devices[to as usize]);
        [
            (type_attr.into(), dtype.into_attr()),
            ("tensor_name".into(), name.into_attr()),
            ("send_device".into(), from.name.to_string().as_str().into_attr()),
            ("send_device_incarnation".into(), AttrValue::Int(from.incarnation as i64)),
            ("recv_device".into(), to.name.to_string().as_str().into_attr()),
        ]
        .into_iter()
        .collect()
    }

    fn push(&mut self, device: u32, mut node: Node) -> NodeId {
        node.device = self.target.devices[device as usize].name.to_string().into();
        let part = &mut self.parts[device as usize];
        part.push(node);
        NodeId(part.len() as u32 - 1)
    }
}
