//! Frames: which loop each node belongs to.
//!
//! A frame is a loop, named by its `Enter` nodes. An `Enter` belongs to the parent frame and its
//! readers to the frame; an `Exit` belongs to the frame and its readers to the parent. Every other
//! node belongs to the frame of its inputs, which must agree.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node, NodeId, Role};
use thalweg_tensor::{Result, ensure, err};

/// The frames of a graph. The first is the root frame, outside of all loops.
#[derive(Clone, Debug)]
pub struct Frames {
    /// For each node, the position of its frame in `all`.
    pub of: Vec<u32>,
    /// The frames, each after its parent.
    pub all: Vec<Frame>,
}

/// A frame: one loop, or the root.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The attr `frame_name` of its `Enter` nodes; empty for the root.
    pub name: Arc<str>,
    /// The enclosing frame; of the root, itself.
    pub parent: u32,
    /// The attr `parallel_iterations`: how many iterations may run at once.
    pub parallel_iterations: i64,
}

impl Frames {
    /// Finds the frames of `graph`; an error if they are not well nested.
    pub fn of(graph: &Graph) -> Result<Frames> {
        let outside = Frame { name: "".into(), parent: 0, parallel_iterations: 1 };
        let mut frames = Frames { of: vec![0; graph.len()], all: vec![outside] };
        if !graph.has_control_flow() {
            return Ok(frames);
        }
        let order = graph.topological_order();
        ensure!(
            order.len() == graph.len(),
            InvalidArgument,
            "the graph has a cycle that is not a loop from NextIteration to Merge"
        );
        let mut by_name: FxHashMap<Arc<str>, u32> = FxHashMap::default();
        // For each node, the frame of its readers.
        let mut frame_of_readers = vec![0u32; graph.len()];
        for id in order {
            let node = graph.node(id);
            let frame = frames.of_node(graph, node, &frame_of_readers)?;
            frames.of[id.index()] = frame;
            frame_of_readers[id.index()] = frames.target(node, frame, &mut by_name)?;
        }
        frames.check_back_edges(graph)?;
        Ok(frames)
    }

    /// Whether the graph has loops.
    pub fn has_loops(&self) -> bool {
        self.all.len() > 1
    }

    /// The frame of a node, from the frames of its inputs.
    fn of_node(&self, graph: &Graph, node: &Node, frame_of_readers: &[u32]) -> Result<u32> {
        let mut known: Option<(NodeId, u32)> = None;
        for source in node.predecessors() {
            if graph.is_back_edge(source, node) {
                continue;
            }
            let frame = frame_of_readers[source.index()];
            match known {
                None => known = Some((source, frame)),
                Some((first, expected)) => ensure!(
                    frame == expected,
                    InvalidArgument,
                    "{{{{node {}}}}} has inputs from different frames. The input {{{{node {}}}}} is \
                     in frame '{}'. The input {{{{node {}}}}} is in frame '{}'.",
                    node.name,
                    graph.node(first).name,
                    self.all[expected as usize].name,
                    graph.node(source).name,
                    self.all[frame as usize].name
                ),
            }
        }
        Ok(known.map_or(0, |(_, frame)| frame))
    }

    /// The frame of the readers of a node in `frame`.
    fn target(
        &mut self,
        node: &Node,
        frame: u32,
        by_name: &mut FxHashMap<Arc<str>, u32>,
    ) -> Result<u32> {
        match node.role() {
            Role::Enter => self.entered(node, frame, by_name),
            Role::Exit => {
                if frame == 0 {
                    let what = "Invalid Exit op: Cannot find a corresponding Enter op.";
                    return Err(err!(InvalidArgument, "{what}").at_node(&node.name));
                }
                Ok(self.all[frame as usize].parent)
            }
            Role::NextIteration if frame == 0 => Err(err!(
                InvalidArgument,
                "'{}' ({}) is not in a loop, so there is no next iteration",
                node.name,
                node.op.name
            )
            .at_node(&node.name)),
            _ => Ok(frame),
        }
    }

    fn entered(
        &mut self,
        node: &Node,
        parent: u32,
        by_name: &mut FxHashMap<Arc<str>, u32>,
    ) -> Result<u32> {
        let name = node.attrs().string("frame_name")?;
        if let Some(&known) = by_name.get(name) {
            let other = self.all[known as usize].parent;
            if other != parent {
                let e = err!(
                    Internal,
                    "Invalid loop structure: Mismatched parent frames for \"{name}\": \"{}\" vs \"{}\"",
                    self.all[parent as usize].name,
                    self.all[other as usize].name
                );
                return Err(e.at_node(&node.name));
            }
            return Ok(known);
        }
        let frame = Frame {
            name: name.into(),
            parent,
            parallel_iterations: node.attrs().int("parallel_iterations")?,
        };
        by_name.insert(frame.name.clone(), self.all.len() as u32);
        self.all.push(frame);
        Ok(self.all.len() as u32 - 1)
    }

    /// Back edges must stay in their frame.
    fn check_back_edges(&self, graph: &Graph) -> Result<()> {
        for id in graph.ids() {
            let node = graph.node(id);
            for source in node.predecessors().filter(|&source| graph.is_back_edge(source, node)) {
                let (here, there) = (self.of[id.index()], self.of[source.index()]);
                ensure!(
                    here == there,
                    InvalidArgument,
                    "{{{{node {}}}}} is in frame '{}', but its input {{{{node {}}}}} is in frame '{}'.",
                    node.name,
                    self.all[here as usize].name,
                    graph.node(source).name,
                    self.all[there as usize].name
                );
            }
        }
        Ok(())
    }
}
