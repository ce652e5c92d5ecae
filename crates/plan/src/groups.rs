//! Nodes that must share a device, and the devices that each such group can be on.
//!
//! References and resource handles are only good where their state is, so who takes one stands
//! beside who gives it; where the two ask for different devices the state's wish counts, as in
//! TensorFlow. `_class` binds as well, and there both wishes must be met.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{AttrValue, Graph, Node, NodeId, OutputInfo, Role};
use thalweg_kernel::DeviceDescription;
use thalweg_tensor::{DType, Error, Result, bail};

use crate::place::{Specs, cannot_assign, check_kernel};
use crate::{Frames, Target};

/// Groups of nodes as a union-find forest; the leader of each knows its choices.
pub(crate) struct Groups<'a> {
    graph: &'a Graph,
    target: &'a Target<'a>,
    parent: Vec<u32>,
    choices: Vec<Choices>,
    /// Whether wishes of a loop's nodes may be dropped to keep it together.
    drops_wishes: bool,
}

/// Positions of devices, ascending.
type Devices = Arc<[u32]>;

/// Devices that a node, or a group of nodes, can be on.
#[derive(Clone)]
struct Choices {
    /// Where there are kernels, or where its state is already.
    able: Devices,
    /// Those of them that the client wants; empty only if it may not get what it wants.
    wanted: Devices,
}

/// What joins two nodes.
#[derive(Clone, Copy, PartialEq)]
enum Bond {
    /// `_class`.
    Colocated,
    /// The first gives the second its state.
    State,
    /// They belong to one loop.
    Loop,
}

impl<'a> Groups<'a> {
    /// The groups of `graph`.
    pub(crate) fn of(graph: &'a Graph, frames: &Frames, target: &'a Target<'a>) -> Result<Self> {
        let mut finder = ChoiceFinder::new(target);
        let choices: Result<Vec<Choices>> = graph.nodes().iter().map(|n| finder.of(n)).collect();
        let parent = (0..graph.len() as u32).collect();
        let mut groups = Groups { graph, target, parent, choices: choices?, drops_wishes: false };
        groups.join_state()?;
        groups.join_classes()?;
        if frames.has_loops() {
            groups.join_all_loops(frames)?;
        }
        for i in 0..graph.len() as u32 {
            groups.parent[i as usize] = groups.root(i);
        }
        Ok(groups)
    }

    /// The leader of a node's group.
    pub(crate) fn root_of(&self, id: NodeId) -> u32 {
        self.parent[id.index()]
    }

    /// The devices that a group can be on, by its leader.
    pub(crate) fn devices(&self, root: u32) -> &[u32] {
        let choices = &self.choices[root as usize];
        if choices.wanted.is_empty() { &choices.able } else { &choices.wanted }
    }

    fn join_state(&mut self) -> Result<()> {
        let graph = self.graph;
        for id in graph.ids() {
            let node = graph.node(id);
            for endpoint in &node.inputs {
                if graph.output(*endpoint).dtype == DType::Resource {
                    self.join(endpoint.node, id, Bond::State)?;
                }
            }
            for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
                for endpoint in &node.inputs[node.input_range(&arg.name)?] {
                    self.join(endpoint.node, id, Bond::State)?;
                }
            }
        }
        Ok(())
    }

    fn join_classes(&mut self) -> Result<()> {
        let graph = self.graph;
        // Members may name a node that is not part of this step: that binds them to each other.
        let mut absent: FxHashMap<&str, NodeId> = FxHashMap::default();
        for id in graph.ids() {
            let Some(AttrValue::List(list)) = graph.node(id).attrs.get("_class") else { continue };
            let names = list.s.iter().filter_map(|s| s.strip_prefix(b"loc:@"));
            for name in names.filter_map(|n| std::str::from_utf8(n).ok()) {
                let other = graph.find(name).unwrap_or_else(|| *absent.entry(name).or_insert(id));
                self.join(other, id, Bond::Colocated)?;
            }
        }
        Ok(())
    }

    /// Keeps loops together as far as that is possible.
    fn join_all_loops(&mut self, frames: &Frames) -> Result<()> {
        let mut loops = Loops::new(frames);
        let before = (self.parent.clone(), self.choices.clone());
        loop {
            match self.join_loops(&loops) {
                Ok(()) => return Ok(()),
                Err((blamed, error)) => match loops.next_apart(blamed) {
                    Some(frame) => loops.is_apart[frame as usize] = true,
                    // Soft placement gives up a wish only where nothing else helps.
                    None if self.target.options.allow_soft_placement && !self.drops_wishes => {
                        self.drops_wishes = true;
                    }
                    None => return Err(error),
                },
            }
            (self.parent, self.choices) = before.clone();
        }
    }

    /// A loop is a unit, with what enters it and the loops in it. One that needs several devices is
    /// one too, but for the nodes that say where they are. An error names the loop that does not
    /// fit.
    fn join_loops(&mut self, loops: &Loops<'_>) -> Result<(), (u32, Error)> {
        let (graph, frames) = (self.graph, loops.frames);
        let mut leaders: Vec<Option<NodeId>> = vec![None; frames.all.len()];
        for id in graph.ids() {
            let Some(outermost) = loops.around(id) else { continue };
            let is_apart = loops.is_apart[outermost as usize];
            let goes = |node: &Node| !is_apart || !says_where(graph, node);
            let (node, frame) = (graph.node(id), frames.of[id.index()]);
            for source in node.predecessors().filter(|&s| gives_once(graph.node(s))) {
                self.join(source, id, Bond::Loop).map_err(|e| (outermost, e))?;
            }
            if !goes(node) {
                continue;
            }
            let leader = *leaders[frame as usize].get_or_insert(id);
            let sources = node.predecessors().filter(|s| frames.of[s.index()] != frame);
            let sources = sources.filter(|&s| goes(graph.node(s)));
            for other in std::iter::once(leader).chain(sources) {
                self.join(other, id, Bond::Loop).map_err(|e| (outermost, e))?;
            }
        }
        Ok(())
    }

    /// The leader of a group; paths are halved on the way, so they stay short.
    fn root(&mut self, mut i: u32) -> u32 {
        while self.parent[i as usize] != i {
            self.parent[i as usize] = self.parent[self.parent[i as usize] as usize];
            i = self.parent[i as usize];
        }
        i
    }

    fn join(&mut self, first: NodeId, second: NodeId, bond: Bond) -> Result<()> {
        let (a, b) = (self.root(first.0), self.root(second.0));
        if a == b {
            return Ok(());
        }
        let (of_a, of_b) = (&self.choices[a as usize], &self.choices[b as usize]);
        let able = common(&of_a.able, &of_b.able);
        let mut wanted = common(&of_a.wanted, &of_b.wanted);
        if wanted.is_empty() && bond == Bond::State {
            wanted = common(&of_a.wanted, &able);
        }
        let is_soft = match bond {
            Bond::Loop => self.drops_wishes,
            Bond::Colocated | Bond::State => self.target.options.allow_soft_placement,
        };
        if able.is_empty() || (wanted.is_empty() && !is_soft) {
            return self.refuse(first, second, bond);
        }
        // The smaller id leads, so that equal graphs give equal groups.
        let (lead, other) = (a.min(b), a.max(b));
        self.parent[other as usize] = lead;
        self.choices[lead as usize] = Choices { able, wanted };
        Ok(())
    }

    fn refuse(&self, first: NodeId, second: NodeId, bond: Bond) -> Result<()> {
        let (a, b) = (self.graph.node(first), self.graph.node(second));
        let place = |n: &Node| match n.device.is_empty() {
            true => "no device of its own".to_owned(),
            false => format!("device '{}'", n.device),
        };
        match bond {
            Bond::Loop => bail!(
                InvalidArgument,
                "{{{{node {}}}}} ({}) and {{{{node {}}}}} ({}) belong to a loop that cannot be on \
                 several devices\n\t [[{{{{node {}}}}}]]",
                b.name,
                place(b),
                a.name,
                place(a),
                b.name
            ),
            Bond::State => bail!(
                InvalidArgument,
                "{{{{node {}}}}} ({}) gives its state to {{{{node {}}}}} ({}), so they belong together, \
                 but no device satisfies both groups\n\t [[{{{{node {}}}}}]]",
                a.name,
                place(a),
                b.name,
                place(b),
                b.name
            ),
            Bond::Colocated => bail!(
                InvalidArgument,
                "Cannot colocate nodes {{{{colocation_node {}}}}} ({}) and {{{{colocation_node {}}}}} \
                 ({}): no device satisfies both, and what else is colocated with them\n\t \
                 [[{{{{node {}}}}}]]",
                b.name,
                place(b),
                a.name,
                place(a),
                b.name
            ),
        }
    }
}

/// The loops of a graph, and which of them need more than one device.
struct Loops<'a> {
    frames: &'a Frames,
    /// For each frame, the loop around all others that it stands in.
    outermost: Vec<u32>,
    /// For each outermost loop, whether its nodes go where they must, each by itself.
    is_apart: Vec<bool>,
}

impl<'a> Loops<'a> {
    fn new(frames: &'a Frames) -> Self {
        let mut outermost: Vec<u32> = Vec::with_capacity(frames.all.len());
        for (i, frame) in frames.all.iter().enumerate() {
            let own = i as u32;
            // A frame comes after the one it stands in.
            outermost.push(if frame.parent == 0 { own } else { outermost[frame.parent as usize] });
        }
        Loops { frames, outermost, is_apart: vec![false; frames.all.len()] }
    }

    /// The outermost loop around a node, if it is in one.
    fn around(&self, id: NodeId) -> Option<u32> {
        match self.frames.of[id.index()] {
            0 => None,
            frame => Some(self.outermost[frame as usize]),
        }
    }

    /// The loop to take apart next: the one that is blamed or, if it is apart already, another that
    /// may hold it.
    fn next_apart(&self, blamed: u32) -> Option<u32> {
        let is_whole = |frame: &u32| {
            *frame != 0
                && self.outermost[*frame as usize] == *frame
                && !self.is_apart[*frame as usize]
        };
        let all = 0..self.frames.all.len() as u32;
        std::iter::once(blamed).chain(all).find(is_whole)
    }
}

/// Whether a node of a loop that needs several devices says itself where it is: by a wish, or by the
/// state that it takes or gives a handle of.
fn says_where(graph: &Graph, node: &Node) -> bool {
    let is_state = |o: &OutputInfo| o.dtype == DType::Resource || o.is_ref;
    !node.device.is_empty()
        || node.outputs.iter().any(is_state)
        || node.inputs.iter().any(|&e| is_state(graph.output(e)))
}

/// Whether what a node gives is there in one iteration, but not in all: then it must be read where
/// the node is, as readers elsewhere would wait for it in each.
fn gives_once(node: &Node) -> bool {
    match node.role() {
        Role::NextIteration => true,
        Role::Enter => !node.attrs().bool("is_constant").unwrap_or(false),
        _ => false,
    }
}

fn common(a: &Devices, b: &Devices) -> Devices {
    if Arc::ptr_eq(a, b) {
        return a.clone();
    }
    // Both ascend.
    a.iter().copied().filter(|d| b.binary_search(d).is_ok()).collect()
}

/// Finds the choices of nodes; most nodes share a few.
struct ChoiceFinder<'a> {
    target: &'a Target<'a>,
    specs: Specs,
    all: Devices,
    by_text: FxHashMap<Arc<str>, Devices>,
    types: Vec<&'a str>,
}

impl<'a> ChoiceFinder<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        let mut types: Vec<&str> =
            target.devices.iter().map(|d| d.name.device_type.as_str()).collect();
        types.sort_unstable();
        types.dedup();
        let all = (0..target.devices.len() as u32).collect();
        ChoiceFinder { target, specs: Specs::default(), all, by_text: FxHashMap::default(), types }
    }

    /// Devices that the node's text means.
    fn meant(&mut self, node: &Node) -> Result<Devices> {
        if let Some(known) = self.by_text.get(&node.device) {
            return Ok(known.clone());
        }
        let spec = self.specs.of(node)?;
        let devices = self.target.devices;
        let meant: Devices = if node.device.is_empty() {
            self.all.clone()
        } else {
            self.all.iter().copied().filter(|&d| spec.matches(&devices[d as usize].name)).collect()
        };
        self.by_text.insert(node.device.clone(), meant.clone());
        Ok(meant)
    }

    fn able(&self, node: &Node) -> Devices {
        let has_kernel = |device_type: &&str| {
            node.role().is_interpreted() || self.target.kernels.find(node, device_type).is_ok()
        };
        let types: Vec<&str> = self.types.iter().copied().filter(|t| has_kernel(t)).collect();
        let pin = self.target.pins.get(&node.name);
        if pin.is_none() && types.len() == self.types.len() {
            return self.all.clone();
        }
        let can = |d: &DeviceDescription| {
            pin.is_none_or(|p| *p == d.name) && types.contains(&d.name.device_type.as_str())
        };
        self.all.iter().copied().filter(|&d| can(&self.target.devices[d as usize])).collect()
    }

    fn of(&mut self, node: &Node) -> Result<Choices> {
        let able = self.able(node);
        if able.is_empty() {
            check_kernel(node, &self.target.devices[0], self.target)?;
            bail!(
                InvalidArgument,
                "the state of '{}' is on a device that is not there any more\n\t [[{{{{node {}}}}}]]",
                node.name,
                node.name
            );
        }
        let mut wanted = common(&self.meant(node)?, &able);
        if wanted.is_empty() {
            // An earlier plan has moved it to its state, whatever it asked for.
            let is_pinned = self.target.pins.contains_key(&node.name);
            if !is_pinned && !self.target.options.allow_soft_placement {
                bail!(InvalidArgument, "{}", cannot_assign(node, self.target));
            }
            wanted = able.clone();
        }
        Ok(Choices { able, wanted })
    }
}
