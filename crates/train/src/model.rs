//! A graph with the variables of layers.

mod variables;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_api::{
    self as api, Any, Graph, Init, NewOp, Operation, Output, Registry, TensorType, on_behalf_of, tf,
};
use thalweg_formats::events::summary::text_metadata;
use thalweg_tensor::{DType, Tensor, err};

use crate::placement::Placer;
use crate::state::State;
use crate::view::cast_to;
use crate::{Initializer, Parameter, Partitioner, Placement};
use variables::Shared;
pub(crate) use variables::{NewLocal, slot, slot_like};

/// What a network is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Dropout is applied; normalizations use batch statistics and update moving averages.
    Training,
    /// Inference.
    Inference,
}

/// A graph with the variables of layers; it derefs to [`Graph`].
///
/// Layers of a model have names, and variables are named after them: the kernel of the second dense
/// layer is `dense_1/kernel`. [`Model::inference`] starts the names again, so a network that is built a
/// second time finds the variables of the first.
///
/// Nothing returns a `Result`: mistakes are kept with their source lines, as in [`Graph`].
#[derive(Clone)]
pub struct Model {
    /// The view that nodes are added to.
    graph: Graph,
    phase: Phase,
    /// The prefix of variable names.
    path: String,
    /// How parameters of layers are partitioned; `None` for not at all.
    partitioner: Option<Partitioner>,
    /// The dtype of products in layers, if it is not float.
    pub(crate) compute: Option<DType>,
    /// How often each layer name was used in this view.
    names: Rc<RefCell<BTreeMap<String, u32>>>,
    shared: Arc<Mutex<Shared>>,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Deref for Model {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.graph
    }
}

impl Model {
    /// A model in a new graph, for training.
    pub fn new() -> Model {
        Model::of(&Graph::new())
    }

    /// A model in a new graph with these ops.
    pub fn with_registry(registry: Registry) -> Model {
        Model::of(&Graph::with_registry(registry))
    }

    /// The model of a graph, in the name scope of this view: it has the graph's variables, and
    /// sessions of the graph initialize those that it adds.
    pub fn of(graph: &Graph) -> Model {
        Model {
            shared: graph.extension(Mutex::<Shared>::default),
            phase: Phase::Training,
            path: graph.as_scope().prefix().to_owned(),
            partitioner: None,
            compute: None,
            names: Rc::default(),
            graph: graph.clone(),
        }
    }

    /// The graph, as the view that nodes of this model are added to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The same model with nodes in another view of its graph.
    pub(crate) fn at(&self, graph: Graph) -> Model {
        Model { graph, ..self.clone() }
    }

    /// The same model for inference: a network built here finds its variables.
    #[must_use]
    pub fn inference(&self) -> Model {
        let names = Rc::default();
        Model { phase: Phase::Inference, names, ..self.at(self.scope("inference")) }
    }

    /// The same model on another device (a tower): a network built here finds its variables and is
    /// built for training.
    #[must_use]
    pub fn tower(&self, device: &str) -> Model {
        Model { names: Rc::default(), ..self.at(self.scope("tower").device(device)) }
    }

    /// The same model with nodes on `device`.
    #[must_use]
    pub fn on(&self, device: &str) -> Model {
        self.at(self.device(device))
    }

    /// This model without a prefix for variable names.
    #[must_use]
    pub fn top(&self) -> Model {
        Model { path: String::new(), ..self.clone() }
    }

    /// A part of the model: names of nodes and variables get its name as prefix, with a number from
    /// the second part of this name on.
    #[must_use]
    pub fn layer(&self, name: &str) -> Model {
        let full = self.full_name(name);
        let count = {
            let mut names = self.names.borrow_mut();
            let count = names.entry(full.clone()).or_insert(0);
            *count += 1;
            *count - 1
        };
        let numbered =
            |base: &str| if count == 0 { base.into() } else { format!("{base}_{count}") };
        let path = format!("{}/", numbered(&full));
        Model { path, ..self.at(self.scope(&numbered(name))) }
    }

    /// The same model with parameters of layers partitioned, each partition placed on its own. Only
    /// parameters that are added later are partitioned; [`Model::counter`]s are not.
    #[must_use]
    pub fn partitioned(&self, partitioner: Partitioner) -> Model {
        Model { partitioner: Some(partitioner), ..self.clone() }
    }

    /// The same model with products and convolutions of layers, their biases and activations (but softmax)
    /// computed in this dtype, [`DType::Half`] or [`DType::BFloat16`] (mixed precision). Variables, and what
    /// layers take and return, stay float.
    #[must_use]
    pub fn mixed_precision(&self, dtype: DType) -> Model {
        Model { compute: Some(dtype), ..self.clone() }
    }

    /// Sets the placement of variables that are added from now on.
    #[must_use]
    pub fn place(self, placement: Placement) -> Model {
        self.shared.lock().placer = Placer::new(placement);
        self
    }

    /// Sets the seed of random ops that are added from now on.
    #[must_use]
    pub fn seed(self, seed: i64) -> Model {
        self.graph.set_seed(seed);
        self
    }

    /// What the model is built for.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The value of the variable with this full name; a mistake if there is none.
    #[track_caller]
    pub fn value_of<T: TensorType>(&self, name: &str) -> Output<T> {
        let missing = || err!(NotFound, "the model has no variable '{name}'");
        on_behalf_of(Location::caller(), || {
            let found = self.build(|_| self.find(name).ok_or_else(missing));
            found.map_or_else(|| self.poisoned(), |variable| State::of(self, &variable).read(self))
        })
    }

    /// A trainable parameter of this layer: found, or added with this initializer. If the model is
    /// [`Model::partitioned`], its partitions are concatenated.
    #[track_caller]
    pub fn parameter(&self, name: &str, dims: &[usize], first: &Initializer) -> Output<f32> {
        self.parameter_parts(name, dims, first).read(self)
    }

    /// As [`Model::parameter`], as the variables that hold it; none if it could not be added.
    #[track_caller]
    pub fn parameter_parts(&self, name: &str, dims: &[usize], first: &Initializer) -> Parameter {
        self.build(|_| self.parts(name, dims, first)).unwrap_or_default()
    }

    /// A variable of this layer, on the device that the placement chooses: found, or added with this initial
    /// value. It is never partitioned.
    #[track_caller]
    pub fn variable<T: TensorType>(&self, name: &str, init: Init) -> api::Variable<T> {
        let (first, dims, is_trainable) = init.into_parts();
        let found = self.build(|_| {
            let dtype = api::known_dtype::<T>("variable")?;
            self.variable_of(name, dtype, &dims, &first, is_trainable)
        });
        self.existing_variable(found)
    }

    /// A variable of this layer that is not trainable: found, or added with this initializer.
    #[track_caller]
    pub fn counter<T: TensorType>(
        &self,
        name: &str,
        dims: &[usize],
        first: &Initializer,
    ) -> api::Variable<T> {
        let found = self.build(|_| {
            let dtype = api::known_dtype::<T>("counter")?;
            self.untrained(name, dtype, dims, first)
        });
        self.existing_variable(found)
    }

    /// Adds a regularization term to the loss; one of this name counts once, however often the
    /// network is built.
    #[track_caller]
    pub fn add_penalty(&self, name: &str, penalty: &Output<f32>) {
        let Some(at) = self.endpoint_of(penalty) else { return };
        let mut shared = self.shared.lock();
        if shared.penalties.iter().all(|(other, _)| other != name) {
            shared.penalties.push((name.to_owned(), at));
        }
    }

    /// `loss` plus all regularization terms.
    pub(crate) fn with_penalties(&self, loss: &Output<Any>) -> Output<Any> {
        let penalties = self.shared.lock().penalties.clone();
        if penalties.is_empty() {
            return loss.clone();
        }
        let penalties = penalties.into_iter().map(|(_, at)| self.output(at));
        let terms: Vec<Output<Any>> = std::iter::once(loss.clone()).chain(penalties).collect();
        tf::add_n(self, &terms)
    }

    /// A name with the prefix of this layer.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The number of updates.
    #[track_caller]
    pub fn global_step(&self) -> Output<i64> {
        let step = self.build(|_| self.step_counter());
        step.map_or_else(|| self.poisoned(), |step| State::of(self, &step).read(self))
    }

    /// Makes training steps run this too.
    #[track_caller]
    pub fn add_update(&self, update: &Operation) {
        if let Some(node) = self.node_id_of(update) {
            self.shared.lock().updates.push(node);
        }
    }

    /// The size of a tensor's last dimension, which layers are sized by; `None` and a mistake if it
    /// is not known.
    #[track_caller]
    pub fn features<T: TensorType>(&self, x: &Output<T>) -> Option<usize> {
        self.endpoint_of(x)?;
        let shape = x.shape();
        let last = shape.dims().and_then(|dims| dims.last().copied().flatten());
        self.build(|_| {
            last.ok_or_else(|| {
                err!(
                    InvalidArgument,
                    "the last dimension of '{}' is not known ({shape:?}), so a layer cannot be sized",
                    x.name().unwrap_or_default()
                )
            })
        })
    }

    /// A handle of a tensor that could not be added.
    pub fn poisoned<T: TensorType>(&self) -> Output<T> {
        Output::poisoned(self)
    }
}

/// Tags of summaries have the name of the layer as prefix. A network that is built again (for
/// inference, or as a tower) adds no second summary: the first one with a tag stays.
impl Model {
    /// Adds a scalar summary.
    #[track_caller]
    pub fn scalar_summary<T: TensorType>(&self, tag: &str, x: &Output<T>) {
        self.summary(tag, |g, tag| NewOp::new(g, "ScalarSummary").input(&tag).input(x));
    }

    /// Adds a histogram summary.
    #[track_caller]
    pub fn histogram_summary<T: TensorType>(&self, tag: &str, x: &Output<T>) {
        self.summary(tag, |g, tag| NewOp::new(g, "HistogramSummary").input(&tag).input(x));
    }

    /// Adds an image summary of up to `most` images of a batch `[batch, height, width, channels]`
    /// with 1, 3 or 4 channels; bytes, or floats that are scaled.
    #[track_caller]
    pub fn image_summary<T: TensorType>(&self, tag: &str, images: &Output<T>, most: usize) {
        self.summary(tag, |g, tag| {
            let op = NewOp::new(g, "ImageSummary").input(&tag).input(images);
            op.attr("max_images", most as i64)
        });
    }

    /// Adds a text summary; the strings are Markdown.
    #[track_caller]
    pub fn text_summary(&self, tag: &str, texts: &Output<String>) {
        self.summary(tag, |g, tag| {
            let metadata = g.constant::<String>(Tensor::scalar_string(text_metadata()));
            NewOp::new(g, "TensorSummaryV2").input(&tag).input(texts).input(&metadata)
        });
    }

    /// All summaries merged into one serialized `Summary`; `None` if there are none.
    /// `EventWriter::write_summary` takes the fetched value.
    pub fn summaries(&self) -> Option<Output<String>> {
        let all = self.shared.lock().summaries.clone();
        let all: Vec<Output<String>> = all.into_iter().map(|(_, at)| self.output(at)).collect();
        (!all.is_empty()).then(|| tf::merge_summary(&self.scope("summaries"), &all))
    }

    #[track_caller]
    fn summary<'a>(&self, tag: &str, build: impl FnOnce(&Graph, Output<String>) -> NewOp<'a>) {
        let full = self.full_name(tag);
        let has = |tag: &str| self.shared.lock().summaries.iter().any(|(other, _)| other == tag);
        if self.phase == Phase::Inference || has(&full) {
            return;
        }
        on_behalf_of(Location::caller(), || {
            let summaries = self.scope("summaries");
            let tag = summaries.constant::<String>(full.as_str());
            let summary: Output<String> = build(&summaries, tag).output();
            if let Ok(at) = summary.endpoint() {
                self.shared.lock().summaries.push((full, at));
            }
        });
    }
}

/// Of two floats, computed in the model's dtype for products, as floats.
pub(crate) fn in_compute_dtype(
    model: &Model,
    (a, b): (&Output<f32>, &Output<f32>),
    product: impl FnOnce(&Output<Any>, &Output<Any>) -> Output<Any>,
) -> Output<f32> {
    let Some(dtype) = model.compute else {
        return product(&a.any(), &b.any()).typed();
    };
    product(&cast_to(a, dtype), &cast_to(b, dtype)).cast::<f32>()
}

/// The tensors, of which there is at least one, joined along an existing axis.
#[track_caller]
pub(crate) fn concat<T: TensorType>(tensors: &[&Output<T>], axis: i32) -> Output<T> {
    let tensors: Vec<Output<T>> = tensors.iter().map(|tensor| (*tensor).clone()).collect();
    tf::concat_v2::<T, i32>(tensors[0].graph(), &tensors, axis)
}

/// The tensors, of which there is at least one, joined along a new first axis.
#[track_caller]
pub(crate) fn stack<T: TensorType>(tensors: &[&Output<T>]) -> Output<T> {
    let tensors: Vec<Output<T>> = tensors.iter().map(|tensor| (*tensor).clone()).collect();
    tf::pack(tensors[0].graph(), &tensors)
}
