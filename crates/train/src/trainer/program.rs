//! The graph of a worker, with the names of its feeds, fetches and targets.

use thalweg_api::Output;
use thalweg_graph::{Endpoint, Graph, NodeId, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Tensor};

use super::{Net, Plan};
use crate::leases::{Batch, Leases, TABLE as LEASES};
use crate::metrics::Metric;
use crate::mode::Ledger;
use crate::{Accumulation, Cluster, Coordinated, Mode, Model, ModelScope, Rate, Variable};

/// The graph of one worker.
pub(super) struct Program {
    pub graph: Graph,
    pub step: StepNames,
    pub claim: ClaimNames,
    /// Fed: the worker whose shards are freed. The target.
    pub release: (String, String),
    /// Fetched: whether the variables are initialized, a bool.
    pub ready: String,
    /// Fetched: the generation of the variables, the number of updates, and the number of remaining
    /// samples.
    pub state: [String; 3],
    pub coordinated: Coordinated,
    /// With several micro-batches.
    pub accumulation: Option<AccumulationNames>,
    /// The ops of the chief.
    pub lead: LeadNames,
}

/// A training step.
pub(super) struct StepNames {
    /// Tensors of the batch.
    pub inputs: Vec<String>,
    /// Fed: worker, generation, shard, used, count.
    pub batch: [String; 5],
    pub loss: String,
    /// Metrics by name, with the tensors of their statistics.
    pub metrics: Vec<(String, Metric, String)>,
    /// The merged summary of the model, if it has one.
    pub summary: Option<String>,
    /// Fetched: the number of updates after the step, and the number of saved updates.
    pub counts: [String; 2],
}

/// Gradient accumulation: fed with each micro-batch, and the targets.
pub(super) struct AccumulationNames {
    pub weight: String,
    pub first: String,
    pub add: String,
}

/// A claim of a shard: feeds, fetches, target.
pub(super) struct ClaimNames {
    /// Worker, generation, is_late.
    pub fed: [String; 3],
    pub fetched: [String; 3],
    pub done: String,
}

/// The ops that initialize, restore and save the variables.
pub(super) struct LeadNames {
    pub init: String,
    pub init_local: String,
    /// Fed.
    pub set_generation: (String, String),
    pub release_all: String,
    /// Fed: the prefix. Fetched: the full prefix and the number of updates. The targets.
    pub save: (String, [String; 2], [String; 2]),
    /// Fed: the prefix.
    pub restore: (String, String),
    /// As `restore`, without the number of updates and the lease table.
    pub restore_model: (String, String),
    /// Fed: the factor of an adjustable learning rate.
    pub scale_rate: Option<(String, String)>,
    /// Fed: the number of saved updates.
    pub set_saved: (String, String),
}

impl Program {
    pub(super) fn new(
        cluster: &Cluster,
        plan: &Plan<'_>,
        worker: usize,
        build: &dyn Fn(&Model) -> Net,
    ) -> Result<Program> {
        let model = ModelScope::new(Scope::new(cluster.registry().ops.clone()));
        let model = model.seed(plan.options.seed as i64);
        let mut model = cluster.place_scope(model, worker)?;
        let leases = Leases::new(&model, plan.shards, plan.options.epochs, plan.options.lease)?;
        let leases = match plan.options.mode {
            Mode::Async | Mode::Stale { .. } => leases,
            // The chief applies gradients, and enters the samples of those that it used.
            Mode::Sync { .. } | Mode::Backup { .. } => {
                leases.with_offers(&model, cluster.workers().len())?
            }
        };
        let batch = leases.batch(&model)?;
        let net = build(&Model::from(model.with_scope((*model).clone())));
        // A loss of another graph is a mistake of this one.
        let _ = model.graph().endpoint_of(&net.loss);
        model.graph().check()?;
        let loss = net.loss.endpoint()?;
        let ledger = Ledger { leases: leases.clone(), batch };
        let replica = cluster.replica(worker);
        let mode = plan.options.mode;
        let gradients = plan.optimizer.whole_gradients(&mut model, loss)?;
        let accumulation = match plan.options.micro_batches {
            1 => None,
            _ => Some(Accumulation::new(&mut model, &gradients)?),
        };
        let gradients = accumulation.as_ref().map_or(&gradients, |sum| &sum.gradients);
        let coordinated =
            mode.apply(&mut model, plan.optimizer, gradients, (replica, Some(&ledger)))?;
        let accumulation = accumulation.map(|sum| AccumulationNames {
            weight: model.name_of(sum.weight),
            first: model.node_name(sum.first),
            add: model.node_name(sum.add),
        });
        let saved = Saved::new(&model, &leases)?;
        let step = step_names(&mut model, &net, batch, &coordinated, &saved)?;
        let claim = leases.claim(&model)?;
        let release = leases.release(&model)?;
        let ((generation, _), left) = (leases.state(&model)?, leases.left(&model)?);
        let lead = LeadNames::new(&model, &leases, &saved)?;
        let ready = model.ready()?;
        let count = model.global_step()?;
        let now = count.read(&mut model.top_on(&count.device))?;
        let name = |output: Endpoint| model.name_of(output);
        Ok(Program {
            step,
            claim: ClaimNames {
                fed: [claim.worker, claim.generation, claim.is_late].map(name),
                fetched: [claim.shard, claim.used, claim.left].map(name),
                done: model.node_name(claim.done),
            },
            release: (name(release.0), model.node_name(release.1)),
            ready: name(ready),
            state: [generation, now, left].map(name),
            coordinated,
            accumulation,
            lead,
            graph: model.to_graph(),
        })
    }
}

fn step_names(
    model: &mut ModelScope,
    net: &Net,
    batch: Batch,
    coordinated: &Coordinated,
    saved: &Saved,
) -> Result<StepNames> {
    let done = model.with_graph(|graph| graph.find(&coordinated.step));
    let done: Vec<NodeId> = done.into_iter().collect();
    let count = model.global_step()?;
    let at = model.top_on(&count.device);
    let now = count.read(&mut at.with_scope(at.after(&done)))?;
    let last_saved = saved.read(model)?;
    let summary = model.summaries()?;
    let name = |output: Endpoint| model.name_of(output);
    let Batch { worker, generation, shard, used, count } = batch;
    Ok(StepNames {
        inputs: net.inputs.iter().map(Output::name).collect::<Result<_>>()?,
        batch: [worker, generation, shard, used, count].map(name),
        loss: net.loss.name()?,
        metrics: net
            .metrics
            .iter()
            .map(|(tag, metric)| Ok((tag.clone(), metric.clone(), metric.statistics.name()?)))
            .collect::<Result<_>>()?,
        summary: summary.map(name),
        counts: [now, last_saved].map(name),
    })
}

/// The number of updates in the last checkpoint: a variable on a parameter server, so that all
/// workers can read it, which is not saved.
struct Saved {
    handle: Endpoint,
    device: String,
}

impl Saved {
    fn new(model: &ModelScope, leases: &Leases) -> Result<Saved> {
        let device = leases.device().to_owned();
        let zero = |scope: &mut Scope| scope.constant(&Tensor::scalar(0i64));
        let shape = PartialShape::scalar();
        let name = "supervision/saved";
        let handle = model.local(name, &device, DType::Int64, &shape, Some(&zero))?;
        Ok(Saved { handle, device })
    }

    fn read(&self, model: &ModelScope) -> Result<Endpoint> {
        let mut at = model.top_on(&self.device);
        at.op("ReadVariableOp").input(self.handle).attr("dtype", DType::Int64).build()
    }

    fn set(&self, model: &ModelScope) -> Result<(Endpoint, NodeId)> {
        let mut at = model.top_on(&self.device);
        let value = at.input("supervision/set_saved/value", DType::Int64, &[])?;
        let node = at.op("AssignVariableOp").name("supervision/set_saved");
        Ok((value, node.inputs(&[self.handle, value]).build_node()?))
    }
}

impl LeadNames {
    fn new(model: &ModelScope, leases: &Leases, saved: &Saved) -> Result<LeadNames> {
        let variables = model.variables();
        let init = model.init()?;
        let init_local = model.init_local()?;
        let set_generation = leases.set_generation(model)?;
        let release_all = leases.release_all(model)?;
        let set_saved = saved.set(model)?;
        let scope = model.top_on(leases.device());
        let scope = scope.with_scope(scope.child("checkpoint"));
        let save = save(&scope, leases, &variables)?;
        let is_model =
            |variable: &&Variable| !["global_step", LEASES].contains(&variable.name.as_str());
        let of_model: Vec<Variable> = variables.iter().filter(is_model).cloned().collect();
        let restore_model = restore(&scope, &of_model)?;
        let restore = restore(&scope, &variables)?;
        let scale_rate = Rate::scale(model)?;
        let of = |(fed, node): (Endpoint, NodeId)| (model.name_of(fed), model.node_name(node));
        Ok(LeadNames {
            init: model.node_name(init),
            init_local: model.node_name(init_local),
            set_generation: of(set_generation),
            release_all: model.node_name(release_all),
            save: (
                model.name_of(save.0),
                save.1.map(|output| model.name_of(output)),
                save.2.map(|node| model.node_name(node)),
            ),
            restore: of(restore),
            restore_model: of(restore_model),
            scale_rate: scale_rate.map(of),
            set_saved: of(set_saved),
        })
    }
}

/// Names and slice specifications of variables in checkpoints.
fn entries(at: &mut ModelScope, variables: &[Variable]) -> Result<[Endpoint; 2]> {
    crate::saver::entries(at, variables.iter().map(Variable::saved_as).collect())
}

fn dtypes(variables: &[Variable]) -> Vec<DType> {
    variables.iter().map(|variable| variable.dtype).collect()
}

/// Saves a consistent snapshot of all variables between two updates. Other steps wait while the
/// values are read, not while they are written.
fn save(
    at: &ModelScope,
    leases: &Leases,
    variables: &[Variable],
) -> Result<(Endpoint, [Endpoint; 2], [NodeId; 2])> {
    let (values, read) = leases.snapshot(at, variables)?;
    let mut at = at.with_scope(at.child("save"));
    let base = at.placeholder(DType::String, &PartialShape::scalar())?;
    let step_of = variables.iter().position(|variable| variable.name == "global_step");
    let step = values[step_of.unwrap_or_default()];
    let dash = at.constant(&Tensor::scalar_string("-".to_owned()))?;
    let number = at.add("AsString", &[step])?;
    let prefix = at.op("StringJoin").inputs(&[base, dash, number]).build()?;
    let [names, parts] = entries(&mut at, variables)?;
    let inputs = [vec![prefix, names, parts], values].concat();
    let node = at.op("SaveV2").inputs(&inputs).attr("dtypes", &dtypes(variables)[..]);
    let written = node.build_node()?;
    Ok((base, [prefix, step], [written, read]))
}

fn restore(at: &ModelScope, variables: &[Variable]) -> Result<(Endpoint, NodeId)> {
    let mut at = at.with_scope(at.child("restore"));
    let prefix = at.placeholder(DType::String, &PartialShape::scalar())?;
    let [names, parts] = entries(&mut at, variables)?;
    let node = at.op("RestoreV2").inputs(&[prefix, names, parts]);
    let values = node.attr("dtypes", &dtypes(variables)[..]).build_all()?;
    let mut set = Vec::with_capacity(variables.len());
    for (variable, value) in variables.iter().zip(values) {
        let mut beside = at.on(&variable.device);
        let node = beside.op("AssignVariableOp").inputs(&[variable.handle, value]);
        set.push(node.build_node()?);
    }
    Ok((prefix, at.op("NoOp").name("all").after(&set).build_node()?))
}
