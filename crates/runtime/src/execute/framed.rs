//! The executable form of graphs with control flow: slots and pending counts of each frame.
//!
//! Slots and counts are numbered within their frame, so an iteration is as large as its loop. A value
//! has its slot in the frame of its readers: an `Enter`'s output inside the loop, an `Exit`'s outside.
//!
//! # Pending counts
//!
//! An ordinary node's count is the number of edges into it, without those from values that enter
//! once (all of them are set before the first iteration begins); [`DEAD`] is set when one of them is
//! dead. A merge's count has the control edges in the lower half ([`CONTROLS`]) and in the
//! upper half the inputs that are not known to be dead. When an input arrives alive, [`ARRIVED`] is
//! raised and the upper half becomes that input's position.

use thalweg_graph::{Endpoint, Graph, Node, Role};
use thalweg_plan::Frames;
use thalweg_tensor::{Result, ensure};

pub(crate) use crate::execute::counts::{ARRIVED, CONTROLS, DEAD, INPUTS_SHIFT};

/// Most inputs of a merge.
const INPUTS_MAX: usize = (1 << 15) - 1;

/// `Edge::output` of a control edge.
pub(crate) const CONTROL: u32 = u32::MAX;

/// Most bytes of the concurrent iterations of one loop: a graph may ask for any `parallel_iterations`.
const ITERATIONS_BYTES_MAX: usize = 64 << 20;
/// Concurrent iterations that are allowed whatever their size.
const ITERATIONS_ALWAYS: usize = 32;

/// A graph's frames, flattened.
pub(crate) struct Framed {
    pub(crate) frames: Box<[FrameInfo]>,
    /// Outgoing edges of all nodes, by the ranges in the nodes.
    pub(crate) edges: Box<[Edge]>,
}

/// An edge, as its source sees it.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) node: u32,
    /// Position of the node's count in its frame.
    pub(crate) pending: u32,
    /// Which output of the source, or [`CONTROL`].
    pub(crate) output: u32,
    pub(crate) kind: EdgeKind,
}

/// How an edge counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// The node's only incoming edge.
    Only,
    /// The node's only incoming edge; a dead value ends there.
    End,
    Counted,
    /// A control edge into a merge.
    MergeControl,
    /// Into this input of a merge.
    Merge(u16),
}

/// A loop, or the graph outside of loops.
#[derive(Default)]
pub(crate) struct FrameInfo {
    pub(crate) name_hash: u64,
    /// Its position among the loops of the enclosing frame.
    pub(crate) child: u32,
    /// Number of loops directly inside.
    pub(crate) num_children: u32,
    pub(crate) num_values: usize,
    pub(crate) num_constants: usize,
    /// For each output that several inputs read, how many.
    pub(crate) readers: Vec<u32>,
    /// For each node, its initial pending count.
    pub(crate) pending: Vec<u32>,
    /// Nodes whose inputs are all loop constants.
    pub(crate) roots: Vec<Root>,
    /// Nodes that enter.
    pub(crate) enters: Vec<EnterNode>,
    /// Nodes that leave.
    pub(crate) exits: Vec<u32>,
    /// Most concurrent iterations.
    pub(crate) iterations_max: u32,
}

/// A node without counted edges.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    pub(crate) node: u32,
    /// Position of its count.
    pub(crate) pending: u32,
}

/// An `Enter` node of a loop.
#[derive(Clone, Copy)]
pub(crate) struct EnterNode {
    pub(crate) node: u32,
    pub(crate) is_constant: bool,
}

/// What an `Enter` node does.
#[derive(Clone, Copy)]
pub(crate) struct EnterKind {
    /// The loop.
    pub(crate) frame: u32,
    /// Position among the nodes that enter it.
    pub(crate) position: u32,
    pub(crate) is_constant: bool,
}

/// The slots of all values by frame, from which the executable's nodes and inputs are made.
pub(crate) struct Layout {
    pub(crate) frames: Frames,
    /// For each node, the frame of its outputs' slots.
    pub(crate) outputs_in: Vec<u32>,
    /// For each node, whether its outputs entered once.
    pub(crate) is_constant: Vec<bool>,
    /// For each node, the first slot of its outputs in that frame, or among its constants.
    pub(crate) first_output: Vec<u32>,
    /// For each node, the position of its count in its frame.
    pub(crate) pending: Vec<u32>,
    pub(crate) statics: Vec<FrameInfo>,
    /// For each node that enters a loop, how.
    pub(crate) enters: Vec<Option<EnterKind>>,
    /// For each node that leaves a loop, its position among those.
    pub(crate) exit_position: Vec<u32>,
}

impl Layout {
    /// Assigns frames, slots and counts to the nodes of a graph.
    pub(crate) fn of(graph: &Graph) -> Result<Layout> {
        let frames = Frames::of(graph)?;
        let statics = frames.all.iter().map(|_| FrameInfo::default()).collect();
        let mut layout = Layout {
            outputs_in: frames.of.clone(),
            is_constant: vec![false; graph.len()],
            first_output: vec![0; graph.len()],
            pending: Vec::new(),
            statics,
            enters: vec![None; graph.len()],
            exit_position: vec![0; graph.len()],
            frames,
        };
        layout.name_frames();
        layout.find_targets(graph)?;
        for (i, node) in graph.nodes().iter().enumerate() {
            let frame = &mut layout.statics[layout.outputs_in[i] as usize];
            let len = if layout.is_constant[i] {
                &mut frame.num_constants
            } else {
                &mut frame.num_values
            };
            layout.first_output[i] = *len as u32;
            *len += node.outputs.len();
        }
        layout.number_counts(graph)?;
        Ok(layout)
    }

    fn name_frames(&mut self) {
        for (i, frame) in self.frames.all.iter().enumerate().skip(1) {
            let child = self.statics[frame.parent as usize].num_children;
            self.statics[frame.parent as usize].num_children += 1;
            self.statics[i].child = child;
            self.statics[i].name_hash = name_hash(frame.name.as_bytes());
        }
    }

    /// Assigns the outputs of `Enter` and `Exit` nodes to the frames of their readers.
    fn find_targets(&mut self, graph: &Graph) -> Result<()> {
        let by_name: rustc_hash::FxHashMap<&str, u32> =
            self.frames.all.iter().enumerate().map(|(i, f)| (&*f.name, i as u32)).collect();
        for (i, node) in graph.nodes().iter().enumerate() {
            match node.role() {
                Role::Enter => {
                    let attrs = node.attrs();
                    let frame = by_name.get(attrs.string("frame_name")?).copied().unwrap_or(0);
                    let is_constant = attrs.bool("is_constant")?;
                    let enters = &mut self.statics[frame as usize].enters;
                    let position = enters.len() as u32;
                    enters.push(EnterNode { node: i as u32, is_constant });
                    self.enters[i] = Some(EnterKind { frame, position, is_constant });
                    self.outputs_in[i] = frame;
                    self.is_constant[i] = is_constant;
                }
                Role::Exit => {
                    let frame = self.frames.of[i];
                    let exits = &mut self.statics[frame as usize].exits;
                    self.exit_position[i] = exits.len() as u32;
                    exits.push(i as u32);
                    self.outputs_in[i] = self.frames.all[frame as usize].parent;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The flattened frames; `ranges` are set to each node's edges.
    pub(crate) fn finish(
        mut self,
        graph: &Graph,
        mut set_range: impl FnMut(usize, (u32, u32)),
    ) -> Framed {
        let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); graph.len()];
        for (i, node) in graph.nodes().iter().enumerate() {
            let to = |output, kind| Edge { node: i as u32, pending: self.pending[i], output, kind };
            let is_merge = node.role() == Role::Merge;
            let plain = self.plain_kind(node);
            for (k, e) in node.inputs.iter().enumerate() {
                let kind = if is_merge { EdgeKind::Merge(k as u16) } else { plain };
                edges[e.node.index()].push(to(e.index, kind));
            }
            let kind = if is_merge { EdgeKind::MergeControl } else { plain };
            for source in &node.control_inputs {
                edges[source.index()].push(to(CONTROL, kind));
            }
        }
        let mut start = 0;
        for (i, of_node) in edges.iter().enumerate() {
            let end = start + of_node.len() as u32;
            set_range(i, (start, end));
            start = end;
        }
        for (frame, info) in self.statics.iter_mut().zip(&self.frames.all) {
            frame.iterations_max = iterations_max(frame, info.parallel_iterations);
        }
        let edges = edges.into_iter().flatten().collect();
        Framed { frames: self.statics.into(), edges }
    }

    /// Gives each node its count: its position in its frame.
    fn number_counts(&mut self, graph: &Graph) -> Result<()> {
        for (i, node) in graph.nodes().iter().enumerate() {
            let waits = node.predecessors().filter(|s| !self.is_constant[s.index()]).count();
            let frame = &mut self.statics[self.frames.of[i] as usize];
            let pending = frame.pending.len() as u32;
            self.pending.push(pending);
            if node.role() == Role::Merge {
                check_merge(graph, node, &self.is_constant)?;
                let controls = waits - node.inputs.len();
                let inputs = (node.inputs.len() as u32) << INPUTS_SHIFT;
                frame.pending.push(inputs | controls as u32);
                continue;
            }
            frame.pending.push(waits as u32);
            if waits == 0 {
                frame.roots.push(Root { node: i as u32, pending });
            }
        }
        Ok(())
    }

    fn plain_kind(&self, node: &Node) -> EdgeKind {
        let waits = node.predecessors().filter(|s| !self.is_constant[s.index()]).count();
        match node.role() {
            _ if waits != 1 => EdgeKind::Counted,
            Role::Exit | Role::NextIteration => EdgeKind::End,
            _ => EdgeKind::Only,
        }
    }
}

fn check_merge(graph: &Graph, node: &Node, is_constant: &[bool]) -> Result<()> {
    ensure!(
        node.inputs.len() <= INPUTS_MAX && node.control_inputs.len() <= CONTROLS as usize,
        ResourceExhausted,
        "'{}' ({}) has {} inputs and {} control inputs; at most {INPUTS_MAX} and {CONTROLS} are run",
        node.name,
        node.op.name,
        node.inputs.len(),
        node.control_inputs.len()
    );
    let entered_once = |e: &&Endpoint| is_constant[e.node.index()];
    if let Some(e) = node.inputs.iter().find(entered_once) {
        let e = thalweg_tensor::err!(
            InvalidArgument,
            "'{}' enters its loop once for all iterations, so '{}' ({}) cannot merge it with another \
             value",
            graph.node(e.node).name,
            node.name,
            node.op.name
        );
        return Err(e.at_node(&node.name));
    }
    Ok(())
}

fn iterations_max(frame: &FrameInfo, wanted: i64) -> u32 {
    let bytes = 128 + 16 * frame.num_values + 4 * (frame.pending.len() + frame.readers.len());
    let most = (ITERATIONS_BYTES_MAX / bytes).max(ITERATIONS_ALWAYS);
    wanted.clamp(1, most as i64) as u32
}

/// TensorFlow's id of a frame, from the ids of its parent frame and iteration.
pub(crate) fn frame_id(parent_id: u64, parent_iteration: u64, name_hash: u64) -> u64 {
    combined(parent_id, combined(parent_iteration, name_hash))
}

fn combined(a: u64, b: u64) -> u64 {
    let mixed = b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4);
    a ^ mixed
}

/// MurmurHash64A with TensorFlow's seed.
fn name_hash(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0x00DE_CAFC_AFFE;
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let mut blocks = bytes.chunks_exact(8);
    for block in &mut blocks {
        let block: [u8; 8] = block.try_into().expect("chunks of 8 bytes have 8 bytes");
        let mut k = u64::from_le_bytes(block).wrapping_mul(M);
        k ^= k >> R;
        hash ^= k.wrapping_mul(M);
        hash = hash.wrapping_mul(M);
    }
    let tail = blocks.remainder();
    if !tail.is_empty() {
        let mut last = [0u8; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash ^= u64::from_le_bytes(last);
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> R)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_numbered_as_in_tensorflow() {
        let id =
            |parent, iteration, name: &str| frame_id(parent, iteration, name_hash(name.as_bytes()));
        assert_eq!(id(0, 0, "wl/while_context"), 5189404682685958103);
        assert_eq!(id(0, 0, "wl"), 11939621890605363248);
        let outer = id(0, 0, "outer/while_context");
        assert_eq!(outer, 16151483404557480959);
        assert_eq!(id(outer, 0, "outer/inner/while_context"), 10647713286725882191);
        assert_eq!(id(outer, 1, "outer/inner/while_context") % 1_000_000, 883216);
    }
}
