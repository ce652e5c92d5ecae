//! The graphs of workers, planned as a cluster would, and instances of them.
//!
//! Workers have equal graphs but for their index. Three are built and planned; the inputs in which the
//! first two differ become functions of the index, which the last must agree with.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{AttrValue, Graph, IntoAttr, Node, NodeId};
use thalweg_kernel::{DeviceDescription, DeviceName, KernelOrigin};
use thalweg_ops::Registry;
use thalweg_plan::{CostSource, Options, Pins, StaticCosts, StepSignature, Target, compile};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};
use thalweg_train::{Model, Placement, Replica};

use super::TrainJob;
use super::program::{Compiler, Kind, Preset, Program, Site, StepPlan};

/// The steps that workers run.
pub(super) struct Plans {
    pub init: Alike,
    pub step: Alike,
    pub start_worker: Option<Alike>,
    pub chief: Option<ChiefPlans>,
    /// Bytes of the variables on each parameter server.
    pub variable_bytes: Vec<u64>,
}

/// The steps that the chief runs.
pub(super) struct ChiefPlans {
    pub start: Alike,
    pub wait: Alike,
    pub apply: Alike,
}

/// A step of any worker.
pub(super) struct Alike {
    pub plan: Arc<StepPlan>,
    /// For each program the presets that depend on the worker's index.
    rules: Vec<Vec<(u32, Rule)>>,
}

/// A preset as a function of the worker's index.
enum Rule {
    /// Integers: those of worker 0, and by how much they grow with the index.
    Numbers(DType, thalweg_tensor::Shape, Vec<(i64, i64)>),
    /// A handle whose name contains the index.
    Named { node: Node, before: String, after: String },
}

/// What one worker's step has of its own.
#[derive(Clone, Default)]
pub(super) struct Instance {
    /// For each program, in the order of presets.
    own: Vec<Vec<(u32, Preset)>>,
}

impl Instance {
    /// The value of a preset of a program.
    pub(super) fn preset<'a>(&'a self, program: &'a Program, i: u32) -> &'a Preset {
        let own = self.own.get(program.number as usize).map_or(&[][..], Vec::as_slice);
        match own.binary_search_by_key(&i, |(j, _)| *j) {
            Ok(at) => &own[at].1,
            Err(_) => &program.presets[i as usize],
        }
    }
}

/// One worker's graph.
struct Built {
    graph: Graph,
    init: String,
    coordinated: thalweg_train::Coordinated,
    flops: FxHashMap<String, f64>,
    variables: Vec<(String, u64)>,
}

impl Plans {
    pub(super) fn new(job: &TrainJob, origin: &KernelOrigin) -> Result<Plans> {
        let mut indices = vec![0, 1, 2, job.workers - 1];
        indices.retain(|&i| i < job.workers);
        indices.dedup();
        let built: Vec<(u32, Built)> =
            indices.into_iter().map(|i| Ok((i, build(job, i)?))).collect::<Result<_>>()?;
        let planner = Planner { job, origin };
        let first = &built[0].1;
        let chief_step = |target: &str| -> Result<Alike> {
            Ok(Alike::only(planner.plan(0, first, target, &[])?))
        };
        let of_all = |target: &dyn Fn(&Built) -> Option<String>,
                      fetches: &dyn Fn(&Built) -> Vec<String>| {
            let planned = built.iter().map(|(i, built)| {
                let target =
                    target(built).ok_or_else(|| err!(Internal, "a worker lacks a step"))?;
                Ok((*i, planner.plan(*i, built, &target, &fetches(built))?))
            });
            Alike::new(planned.collect::<Result<_>>()?)
        };
        let used = |built: &Built| built.coordinated.used.clone().into_iter().collect();
        let none = |_: &Built| Vec::new();
        let chief = first.coordinated.chief.as_ref();
        Ok(Plans {
            init: chief_step(&first.init)?,
            step: of_all(&|b| Some(b.coordinated.step.clone()), &used)?,
            start_worker: match &first.coordinated.start_worker {
                Some(_) => Some(of_all(&|b| b.coordinated.start_worker.clone(), &none)?),
                None => None,
            },
            chief: match chief {
                Some(ops) => Some(ChiefPlans {
                    start: chief_step(&ops.start)?,
                    wait: chief_step(&ops.wait)?,
                    apply: chief_step(&ops.apply)?,
                }),
                None => None,
            },
            variable_bytes: variable_bytes(job, first)?,
        })
    }
}

fn variable_bytes(job: &TrainJob, built: &Built) -> Result<Vec<u64>> {
    let mut bytes = vec![0; job.ps as usize];
    for (device, size) in &built.variables {
        let task = device.rsplit_once("/task:").and_then(|(_, task)| task.parse::<usize>().ok());
        let at = task.and_then(|task| bytes.get_mut(task));
        *at.ok_or_else(|| err!(Internal, "a variable is on '{device}'"))? += size;
    }
    Ok(bytes)
}

/// Builds the graph of a worker as a client of a cluster does.
fn build(job: &TrainJob, index: u32) -> Result<Built> {
    let placement = Placement::RoundRobin { job: "ps".into(), tasks: job.ps };
    let model = Model::new().place(placement).on(&format!("/job:worker/task:{index}"));
    let (loss, reads) = job.net.build(&model)?;
    let replica = Replica { index: index as usize, count: job.workers as usize };
    let coordinated = job.mode.minimize(&model, &job.optimizer, &loss, replica)?;
    let init = model.init().name()?;
    model.check()?;
    let flops = job.net.flops(&model, &reads)?;
    let size = |v: &thalweg_train::Variable| {
        (v.device.clone(), (v.shape.num_elements() * v.dtype.size()) as u64)
    };
    let variables = model.variables().iter().map(size).collect();
    let graph = with_whole_loops(&model.as_scope().to_graph())?;
    Ok(Built { graph, init, coordinated, flops, variables })
}

/// The same graph with functions whose nodes have no device constraints: the planner then leaves loops
/// whole. Loops of coordination run on the device of the state that they take, with or without.
fn with_whole_loops(graph: &Graph) -> Result<Graph> {
    let mut def = graph.to_def();
    for function in def.library.iter_mut().flat_map(|library| &mut library.function) {
        function.node_def.iter_mut().for_each(|node| node.device.clear());
    }
    Graph::from_def(graph.registry().clone(), def)
}

struct Planner<'a> {
    job: &'a TrainJob,
    origin: &'a KernelOrigin,
}

impl Planner<'_> {
    /// Plans a step of a worker on its own device and those of the parameter servers.
    fn plan(
        &self,
        index: u32,
        built: &Built,
        target: &str,
        fetches: &[String],
    ) -> Result<StepPlan> {
        let job = self.job;
        let of_task = |description: &DeviceDescription, name: &str, task| DeviceDescription {
            name: DeviceName::cpu(name, task, 0),
            ..description.clone()
        };
        let mut devices = vec![of_task(&job.worker, "worker", index)];
        devices.extend((0..job.ps).map(|task| of_task(&job.server, "ps", task)));
        let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
        let signature = StepSignature::resolve(&built.graph, &[], &fetches, &[target])?;
        let (links, pins) = (job.network.links(), Pins::default());
        let target = Target {
            devices: &devices,
            links: &links,
            costs: &StaticCosts,
            kernels: &Registry::built_in().kernels,
            pins: &pins,
            options: Options::default(),
        };
        let plan = compile(&built.graph, &signature, &target)?;
        let seconds = |graph: &Graph, node: NodeId, site: Site| {
            let device = match site {
                Site::Worker => &devices[0],
                Site::Ps(task) => &devices[1 + task as usize],
            };
            match built.flops.get(&*graph.node(node).name) {
                Some(flops) => device.start_seconds + flops / device.flops_per_second,
                None => StaticCosts.cost(graph, node, device).seconds,
            }
        };
        let site = |_: &Graph, device: &DeviceName| {
            Ok(match &*device.job {
                "worker" => Site::Worker,
                _ => Site::Ps(device.task),
            })
        };
        let rows = job.net.layers.iter().filter_map(|layer| layer.rows).max().unwrap_or(1);
        let compiler = Compiler { origin: self.origin, seconds: &seconds, rows: rows as u64 };
        compiler.step(&plan, site, &StepPlan::fetch_names(&fetches)?)
    }
}

impl Alike {
    /// A step that only one worker runs.
    fn only(plan: StepPlan) -> Alike {
        Alike { plan: Arc::new(plan), rules: Vec::new() }
    }

    /// Finds what depends on the index.
    fn new(mut planned: Vec<(u32, StepPlan)>) -> Result<Alike> {
        if planned.len() == 1 {
            let only = planned.pop().ok_or_else(|| err!(Internal, "no worker"))?;
            return Ok(Alike::only(only.1));
        }
        let last = planned.split_off(2);
        let [(_, first), (_, second)] = &planned[..] else { bail!(Internal, "no two workers") };
        check_alike(first, second)?;
        let mut rules = Vec::new();
        for (a, b) in first.programs.iter().zip(&second.programs) {
            let mut of_program = Vec::new();
            for (i, (x, y)) in a.presets.iter().zip(&b.presets).enumerate() {
                if let Some(rule) = rule(x, y)? {
                    of_program.push((i as u32, rule));
                }
            }
            rules.push(of_program);
        }
        for (index, other) in &last {
            check_alike(first, other)?;
            for ((a, b), rules) in first.programs.iter().zip(&other.programs).zip(&rules) {
                let mut rules = rules.iter().peekable();
                for (i, (x, y)) in a.presets.iter().zip(&b.presets).enumerate() {
                    let expected = match rules.next_if(|(j, _)| *j as usize == i) {
                        Some((_, rule)) => rule.at(*index)?,
                        None => x.clone(),
                    };
                    let is_same = is_same(&expected, y)?;
                    ensure!(is_same, Internal, "worker {index} differs from the first two");
                }
            }
        }
        let (_, first) = planned.swap_remove(0);
        Ok(Alike { plan: Arc::new(first), rules })
    }

    /// The step of one worker.
    pub(super) fn instance(&self, worker: u32) -> Result<Arc<Instance>> {
        let of_program = |rules: &Vec<(u32, Rule)>| {
            rules.iter().map(|(i, rule)| Ok((*i, rule.at(worker)?))).collect::<Result<_>>()
        };
        Ok(Arc::new(Instance { own: self.rules.iter().map(of_program).collect::<Result<_>>()? }))
    }
}

/// Fails unless two steps have equal nodes and edges.
fn check_alike(a: &StepPlan, b: &StepPlan) -> Result<()> {
    let differ = || {
        let programs = || a.programs.iter().zip(&b.programs);
        let of_program = |(a, b): (&Arc<Program>, &Arc<Program>)| {
            let counts = [a, b].map(|program| (program.nodes.len(), program.presets.len()));
            if a.site != b.site || counts[0] != counts[1] {
                return Some(format!("{:?} has {} nodes", a.site, a.nodes.len()));
            }
            let differs = (0..a.nodes.len()).find(|&i| !is_alike(a, b, i))?;
            Some(format!("'{}'", a.graph[differs].name))
        };
        programs().find_map(of_program)
    };
    let differ = match a.programs.len() == b.programs.len() {
        true => differ(),
        false => Some("the number of partitions".to_owned()),
    };
    if let Some(what) = differ {
        bail!(Internal, "the graphs of workers differ in more than the workers' indices: {what}");
    }
    Ok(())
}

fn is_alike(a: &Program, b: &Program, i: usize) -> bool {
    let (x, y) = (&a.nodes[i], &b.nodes[i]);
    let is_same_kind = match (&x.kind, &y.kind) {
        (Kind::Send { partition, node, bytes }, Kind::Send { partition: p, node: n, bytes: b }) => {
            (partition, node, bytes) == (p, n, b)
        }
        _ => true,
    };
    let own = ["tensor_name", "send_device", "recv_device", "cond", "body"];
    let (m, n) = (&a.graph[i], &b.graph[i]);
    let has_same_attrs = m
        .attrs
        .iter()
        .zip(n.attrs.iter())
        .all(|((name, x), (other, y))| name == other && (own.contains(&&**name) || x == y));
    is_same_kind
        && has_same_attrs
        && m.op.name == n.op.name
        && x.inputs == y.inputs
        && x.successors == y.successors
        && x.seconds == y.seconds
}

fn is_same(a: &Preset, b: &Preset) -> Result<bool> {
    Ok(match (a, b) {
        (Preset::Ghost, Preset::Ghost) => true,
        (Preset::Value(a), Preset::Value(b)) => {
            let is_same_form = a.dtype() == b.dtype() && a.shape() == b.shape();
            is_same_form
                && match a.dtype() {
                    DType::String => a.strings()? == b.strings()?,
                    _ => a.as_bytes()? == b.as_bytes()?,
                }
        }
        (Preset::Handle(a), Preset::Handle(b)) => {
            a.op.name == b.op.name && shared_name(a)? == shared_name(b)?
        }
        _ => false,
    })
}

fn shared_name(node: &Node) -> Result<&str> {
    let shared = node.attrs().string("shared_name")?;
    Ok(if shared.is_empty() { &node.name } else { shared })
}

/// How the presets of workers 0 and 1 depend on the index, if they do.
fn rule(x: &Preset, y: &Preset) -> Result<Option<Rule>> {
    if is_same(x, y)? {
        return Ok(None);
    }
    Ok(Some(match (x, y) {
        (Preset::Value(a), Preset::Value(b)) if a.shape() == b.shape() => {
            let pairs = integers(a)?.into_iter().zip(integers(b)?);
            let numbers = pairs.map(|(a, b)| (a, b.wrapping_sub(a))).collect();
            Rule::Numbers(a.dtype(), a.shape().clone(), numbers)
        }
        (Preset::Handle(a), y_preset @ Preset::Handle(b)) => {
            let (x, y) = (shared_name(a)?, shared_name(b)?);
            let same = x.bytes().zip(y.bytes()).take_while(|(x, y)| x == y).count();
            let (before, after) = (x.get(..same), x.get(same + 1..));
            let (Some(before), Some(after)) = (before, after) else {
                bail!(Internal, "'{x}' and '{y}' are names of what?");
            };
            let node = Node::clone(a);
            let rule = Rule::Named { node, before: before.into(), after: after.into() };
            ensure!(is_same(&rule.at(1)?, y_preset)?, Internal, "'{x}', '{y}': no indices");
            rule
        }
        _ => bail!(Internal, "a tensor of one worker is a handle of another"),
    }))
}

fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    match tensor.dtype() {
        DType::Int64 => Ok(tensor.as_slice::<i64>()?.to_vec()),
        DType::Int32 => Ok(tensor.as_slice::<i32>()?.iter().map(|&x| i64::from(x)).collect()),
        other => bail!(Internal, "constants of type {other} differ between workers"),
    }
}

impl Rule {
    /// The preset of a worker.
    fn at(&self, index: u32) -> Result<Preset> {
        match self {
            Rule::Numbers(dtype, shape, numbers) => {
                let at = |(first, step): &(i64, i64)| first + step * i64::from(index);
                let numbers: Vec<i64> = numbers.iter().map(at).collect();
                Ok(Preset::Value(match dtype {
                    DType::Int64 => Tensor::from_slice(shape.clone(), &numbers)?,
                    _ => {
                        let numbers: Vec<i32> = numbers.iter().map(|&x| x as i32).collect();
                        Tensor::from_slice(shape.clone(), &numbers)?
                    }
                }))
            }
            Rule::Named { node, before, after } => {
                let mut node = node.clone();
                let name = format!("{before}{index}{after}");
                let value: AttrValue = name.as_str().into_attr();
                node.attrs.set("shared_name", value);
                Ok(Preset::Handle(Arc::new(node)))
            }
        }
    }
}
