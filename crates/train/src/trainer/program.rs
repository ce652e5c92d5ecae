//! The graph of a worker, with the names of its feeds, fetches and targets.

use thalweg_api::{Any, NewOp, Operation, Output, TensorType, tf};
use thalweg_graph::Graph;
use thalweg_tensor::{DType, PartialShape, Result};

use super::{Net, Plan};
use crate::leases::{Batch, Leases, TABLE as LEASES};
use crate::metrics::Metric;
use crate::mode::Ledger;
use crate::state::State;
use crate::view::group;
use crate::{Accumulation, Cluster, Coordinated, Mode, Model, Rate, Variable};

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
        let model = Model::with_registry(cluster.registry().clone());
        let model = cluster.place(model.seed(plan.options.seed as i64), worker)?;
        let leases = Leases::new(&model, plan.shards, plan.options.epochs, plan.options.lease)?;
        let leases = match plan.options.mode {
            Mode::Async | Mode::Stale { .. } => leases,
            // The chief applies gradients, and enters the samples of those that it used.
            Mode::Sync { .. } | Mode::Backup { .. } => {
                leases.with_offers(&model, cluster.workers().len())
            }
        };
        let ledger = Ledger { batch: leases.batch(&model), leases };
        let net = build(&model);
        // A loss of another graph is a mistake of this one.
        let _ = model.endpoint_of(&net.loss);
        model.check()?;
        let gradients = plan.optimizer.whole_gradients(&model, &net.loss)?;
        let accumulation =
            (plan.options.micro_batches > 1).then(|| Accumulation::new(&model, &gradients));
        let gradients = accumulation.as_ref().map_or(&gradients, |sum| &sum.gradients);
        let terms = (cluster.replica(worker), Some(&ledger));
        let coordinated = plan.options.mode.apply(&model, plan.optimizer, gradients, terms)?;
        let leases = &ledger.leases;
        let saved = Saved::new(&model, leases);
        let step = step_names(&model, &net, &ledger.batch, &coordinated, &saved)?;
        let claim = leases.claim(&model);
        let (released, release) = leases.release(&model);
        let ((generation, _), left) = (leases.state(&model), leases.left(&model));
        let lead = LeadNames::new(&model, leases, &saved)?;
        let ready = model.ready();
        let counter = model.step_counter()?;
        let now = State::of(&model, &counter).read(&model.root().device(&counter.device));
        model.check()?;
        let accumulation = accumulation.map(|sum| {
            let (first, add) = (sum.first.name()?, sum.add.name()?);
            Result::Ok(AccumulationNames { weight: sum.weight.name()?, first, add })
        });
        Ok(Program {
            step,
            claim: ClaimNames {
                fed: names([&claim.worker, &claim.generation, &claim.is_late])?,
                fetched: names([&claim.shard, &claim.used, &claim.left])?,
                done: claim.done.name()?,
            },
            release: (released.name()?, release.name()?),
            ready: ready.name()?,
            state: names([&generation, &now, &left])?,
            coordinated,
            accumulation: accumulation.transpose()?,
            lead,
            graph: model.as_scope().to_graph(),
        })
    }
}

/// The names of tensors, as feeds and fetches take them.
fn names<T: TensorType, const COUNT: usize>(
    outputs: [&Output<T>; COUNT],
) -> Result<[String; COUNT]> {
    let mut names = outputs.map(|_| String::new());
    for (name, output) in names.iter_mut().zip(outputs) {
        *name = output.name()?;
    }
    Ok(names)
}

fn step_names(
    model: &Model,
    net: &Net,
    batch: &Batch,
    coordinated: &Coordinated,
    saved: &Saved,
) -> Result<StepNames> {
    let done = model.as_scope().with_graph(|graph| graph.find(&coordinated.step));
    let counter = model.step_counter()?;
    let mut at = model.root().device(&counter.device);
    if let Some(done) = done {
        at = at.after(&[&model.operation(done)]);
    }
    let now = State::of(model, &counter).read(&at);
    let Batch { worker, generation, shard, used, count } = batch;
    let statistics = |(tag, metric): &(String, Metric)| {
        Ok((tag.clone(), metric.clone(), metric.statistics.name()?))
    };
    Ok(StepNames {
        inputs: net.inputs.iter().map(Output::name).collect::<Result<_>>()?,
        batch: names([worker, generation, shard, used, count])?,
        loss: net.loss.name()?,
        metrics: net.metrics.iter().map(statistics).collect::<Result<_>>()?,
        summary: model.summaries().map(|summary| summary.name()).transpose()?,
        counts: names([&now, &saved.read(model)])?,
    })
}

/// The number of updates in the last checkpoint: a variable on a parameter server, so that all
/// workers can read it, which is not saved.
struct Saved {
    state: State<i64>,
    device: String,
}

impl Saved {
    fn new(model: &Model, leases: &Leases) -> Saved {
        let device = leases.device().to_owned();
        let (name, shape) = ("supervision/saved", PartialShape::scalar());
        let state = model.local_ints((name, &device), shape, |g| Some(g.constant(0)));
        Saved { state, device }
    }

    fn read(&self, model: &Model) -> Output<i64> {
        self.state.read(&model.root().device(&self.device))
    }

    fn set(&self, model: &Model) -> (Output<i64>, Operation) {
        let at = model.root().device(&self.device).scope("supervision/set_saved");
        let value = at.placeholder("value", []);
        let set = self.state.assign(&at, &value);
        (value, set)
    }
}

impl LeadNames {
    fn new(model: &Model, leases: &Leases, saved: &Saved) -> Result<LeadNames> {
        let variables = model.variables();
        let at = model.at(model.root().device(leases.device()).scope("checkpoint"));
        let is_model =
            |variable: &&Variable| !["global_step", LEASES].contains(&variable.name.as_str());
        let of_model: Vec<Variable> = variables.iter().filter(is_model).cloned().collect();
        Ok(LeadNames {
            init: model.init().name()?,
            init_local: model.init_local().name()?,
            set_generation: pair(&leases.set_generation(model))?,
            release_all: leases.release_all(model).name()?,
            save: save(&at, leases, &variables)?,
            restore_model: pair(&restore(&at, &of_model)?)?,
            restore: pair(&restore(&at, &variables)?)?,
            scale_rate: Rate::scale(model).map(|scale| pair(&scale)).transpose()?,
            set_saved: pair(&saved.set(model))?,
        })
    }
}

/// The names of a tensor to feed and a target.
fn pair<T: TensorType>((fed, target): &(Output<T>, Operation)) -> Result<(String, String)> {
    Ok((fed.name()?, target.name()?))
}

/// Names and slice specifications of variables in checkpoints.
fn entries(at: &Model, variables: &[Variable]) -> Result<[Output<String>; 2]> {
    let saved = variables.iter().map(Variable::saved_as).collect();
    let added = crate::saver::entries(&mut at.as_scope().clone(), saved)?;
    Ok(added.map(|entries| at.output(entries)))
}

fn dtypes(variables: &[Variable]) -> Vec<DType> {
    variables.iter().map(|variable| variable.dtype).collect()
}

/// Saves a consistent snapshot of all variables between two updates. Other steps wait while the
/// values are read, not while they are written.
fn save(
    at: &Model,
    leases: &Leases,
    variables: &[Variable],
) -> Result<(String, [String; 2], [String; 2])> {
    let (values, read) = leases.snapshot(at, variables);
    let at = at.at(at.scope("save"));
    let base: Output<String> = at.placeholder("Placeholder", []);
    let step_of = variables.iter().position(|variable| variable.name == "global_step");
    let step = values[step_of.unwrap_or_default()].within(&at);
    let prefix = [base.clone(), at.constant("-"), tf::as_string(&step)];
    let prefix = tf::string_join(&at, &prefix);
    let [entry_names, parts] = entries(&at, variables)?;
    let written = tf::save_v2(&prefix, entry_names, parts, &values);
    Ok((base.name()?, names([&prefix.any(), &step])?, [written.name()?, read.name()?]))
}

fn restore(at: &Model, variables: &[Variable]) -> Result<(Output<String>, Operation)> {
    let at = at.at(at.scope("restore"));
    let prefix: Output<String> = at.placeholder("Placeholder", []);
    let [names, parts] = entries(&at, variables)?;
    let values = tf::restore_v2(&prefix, names, parts, &dtypes(variables));
    let set = |(variable, value): (&Variable, &Output<Any>)| {
        // A checkpoint of another net would be restored into variables of any shape.
        let value = NewOp::new(&at, "EnsureShape").name(&*variable.name).input(value);
        let value: Output<Any> = value.attr("shape", &variable.shape).output();
        State::of(&at, variable).assign(&at.device(&variable.device), &value)
    };
    let set: Vec<Operation> = variables.iter().zip(&values).map(set).collect();
    Ok((prefix, group(&at, "all", &set)))
}
