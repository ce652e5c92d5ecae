//! Which nodes of a partition run as one program: those that wait for the same sources, as far as no reader is
//! delayed by it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, NodeId, Role, Successors};
use thalweg_tensor::Result;

use crate::Frames;
use crate::region_members::Member;
use crate::source_sets::{Sets, set_bit};

/// Groups nodes into regions.
pub(super) struct Grouping<'a> {
    graph: &'a Graph,
    members: &'a [Member],
    order: &'a [NodeId],
    frames: Frames,
    sets: Sets,
    /// For each node, the sources that it waits for.
    needs: Vec<u32>,
    /// For each node that is a source, its first position among sources, by output.
    first_source: FxHashMap<NodeId, usize>,
    /// Outputs of nodes inside that another node needs when it is compiled, though they are not known
    /// then: they end a region and are a source of the next.
    barriers: FxHashMap<Endpoint, usize>,
    num_sources: usize,
}

impl<'a> Grouping<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        members: &'a [Member],
        order: &'a [NodeId],
        is_known: &[bool],
    ) -> Result<Self> {
        let mut grouping = Grouping {
            graph,
            members,
            order,
            frames: Frames::of(graph)?,
            sets: Sets::default(),
            needs: vec![0; graph.len()],
            first_source: FxHashMap::default(),
            barriers: FxHashMap::default(),
            num_sources: 0,
        };
        grouping.find_barriers(is_known);
        for &id in order {
            let member = &members[id.index()];
            if !member.is_inside() && !member.is_always_there() {
                grouping.first_source.insert(id, grouping.num_sources);
                // The control output is a source of its own.
                grouping.num_sources += graph.node(id).outputs.len() + 1;
            }
        }
        grouping.find_needs();
        Ok(grouping)
    }

    /// Finds outputs that must be known at compilation and are not.
    fn find_barriers(&mut self, is_known: &[bool]) {
        for &id in self.order {
            let node = self.graph.node(id);
            let member = &self.members[id.index()];
            for (i, e) in node.inputs.iter().enumerate() {
                let is_open = self.members[e.node.index()].is_inside() && !is_known[e.node.index()];
                if member.needs_static(i) && is_open {
                    let next = self.num_sources;
                    let position = *self.barriers.entry(*e).or_insert(next);
                    self.num_sources = self.num_sources.max(position + 1);
                }
            }
        }
    }

    /// The set of sources for which a node's input waits.
    fn add_input(&self, bits: &mut Vec<u64>, reader: &Member, input: usize, e: Endpoint) {
        self.sets.union_into(bits, self.needs[e.node.index()]);
        if let Some(first) = self.first_source.get(&e.node) {
            set_bit(bits, first + e.index as usize);
        }
        if reader.needs_static(input)
            && let Some(&barrier) = self.barriers.get(&e)
        {
            set_bit(bits, barrier);
        }
    }

    fn find_needs(&mut self) {
        self.sets.intern(&[]);
        let mut bits = Vec::new();
        for &id in self.order {
            let node = self.graph.node(id);
            bits.clear();
            for (i, e) in node.inputs.iter().enumerate() {
                if self.graph.is_back_edge(e.node, node) {
                    continue;
                }
                self.add_input(&mut bits, &self.members[id.index()], i, *e);
            }
            for control in &node.control_inputs {
                self.sets.union_into(&mut bits, self.needs[control.index()]);
                if let Some(first) = self.first_source.get(control) {
                    set_bit(&mut bits, first + self.graph.node(*control).outputs.len());
                }
            }
            self.needs[id.index()] = self.sets.intern(&bits);
            if self.sets.is_too_large() {
                return;
            }
        }
    }

    /// The nodes of each region, by frame and awaited sources.
    pub(super) fn groups(mut self) -> Vec<Vec<NodeId>> {
        if self.sets.is_too_large() {
            let inside = |id: &&NodeId| self.members[id.index()].is_inside();
            return self.order.iter().filter(inside).map(|&id| vec![id]).collect();
        }
        let successors = Successors::of(self.graph);
        let is_strict = self.graph.has_control_flow();
        let mut waits = self.needs.clone();
        for &id in self.order.iter().rev() {
            let node = self.graph.node(id);
            if !self.members[id.index()].is_inside() {
                continue;
            }
            // A change of state happens whether or not what reads its result is dead.
            if is_strict && !self.graph.is_pure(node) {
                continue;
            }
            let mut bits: Option<Vec<u64>> = None;
            for &reader in successors.after(id) {
                let bound = self.bound(id, reader, &waits);
                match &mut bits {
                    None => bits = Some(self.sets.all[bound as usize].to_vec()),
                    Some(bits) => self.sets.intersect_into(bits, bound),
                }
            }
            if let Some(bits) = bits {
                waits[id.index()] = self.sets.intern(&bits);
            }
        }
        let mut groups: BTreeMap<(u32, u32), Vec<NodeId>> = BTreeMap::new();
        for &id in self.order {
            if self.members[id.index()].is_inside() {
                let key = (self.frames.of[id.index()], waits[id.index()]);
                groups.entry(key).or_default().push(id);
            }
        }
        groups.into_values().collect()
    }

    /// What `id` may wait for without delaying its reader.
    fn bound(&self, id: NodeId, reader: NodeId, waits: &[u32]) -> u32 {
        let node = self.graph.node(reader);
        let member = &self.members[reader.index()];
        let is_barrier =
            node.inputs.iter().enumerate().any(|(i, e)| {
                e.node == id && member.needs_static(i) && self.barriers.contains_key(e)
            });
        let is_other_frame = self.frames.of[id.index()] != self.frames.of[reader.index()];
        match node.role() {
            // It does not wait for all its inputs.
            Role::Merge => self.needs[id.index()],
            _ if is_barrier || is_other_frame => self.needs[id.index()],
            _ if member.is_inside() => waits[reader.index()],
            _ => self.needs[reader.index()],
        }
    }
}

/// For each node, whether all its outputs follow from shapes and constants.
pub(super) fn known_by_shapes(graph: &Graph, members: &[Member], order: &[NodeId]) -> Vec<bool> {
    let mut is_known = vec![false; graph.len()];
    for &id in order {
        let node = graph.node(id);
        is_known[id.index()] = match &members[id.index()] {
            Member::Constant { .. } => true,
            Member::Neutral if node.role() == Role::Const => true,
            Member::Lowered { reads_shapes: true, .. } => true,
            Member::Lowered { .. } | Member::Neutral => {
                graph.is_pure(node)
                    && !node.inputs.is_empty()
                    && node.inputs.iter().all(|e| is_known[e.node.index()])
            }
            _ => false,
        };
    }
    is_known
}
