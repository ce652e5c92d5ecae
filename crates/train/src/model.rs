//! A graph with the variables of layers.

use std::ops::Deref;
use std::panic::Location;

use thalweg_api::{
    self as api, Any, Graph, NewOp, Operation, Output, Registry, TensorType, on_behalf_of, tf,
};
use thalweg_formats::events::summary::text_metadata;
use thalweg_graph::Endpoint;
use thalweg_tensor::{DType, Result, Tensor, err};

use crate::{Initializer, ModelScope, Partitioner, Phase, Placement, Variable};

/// A graph with the variables of layers; it derefs to [`Graph`].
///
/// Layers of a model have names, and variables are named after them: the kernel of the second dense
/// layer is `dense_1/kernel`. [`Model::inference`] starts the names again, so a network that is built a
/// second time finds the variables of the first.
///
/// Nothing returns a `Result`: mistakes are kept with their source lines, as in [`Graph`].
pub struct Model {
    graph: Graph,
    scope: ModelScope,
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

impl From<ModelScope> for Model {
    fn from(scope: ModelScope) -> Model {
        Model { graph: scope.graph(), scope }
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
        ModelScope::of(graph).into()
    }

    /// The graph, as the view that nodes of this model are added to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The model for code that adds nodes by the names of their ops.
    pub fn as_scope(&self) -> ModelScope {
        self.scope.with_scope(self.graph.as_scope().clone())
    }

    /// The same model for inference: a network built here finds its variables.
    #[must_use]
    pub fn inference(&self) -> Model {
        self.scope.inference().into()
    }

    /// The same model on another device (a tower): a network built here finds its variables and is
    /// built for training.
    #[must_use]
    pub fn tower(&self, device: &str) -> Model {
        self.scope.tower(device).into()
    }

    /// The same model with nodes on `device`.
    #[must_use]
    pub fn on(&self, device: &str) -> Model {
        self.scope.on(device).into()
    }

    /// A part of the model: names of nodes and variables get its name as prefix, with a number from
    /// the second part of this name on.
    #[must_use]
    pub fn layer(&self, name: &str) -> Model {
        self.scope.layer(name).into()
    }

    /// The same model with parameters of layers partitioned, each partition placed on its own.
    #[must_use]
    pub fn partitioned(&self, partitioner: Partitioner) -> Model {
        self.scope.partitioned(partitioner).into()
    }

    /// The same model with products and convolutions of layers computed in this dtype, [`DType::Half`]
    /// or [`DType::BFloat16`] (mixed precision). Variables, and what layers take and return, stay
    /// float.
    #[must_use]
    pub fn mixed_precision(&self, dtype: DType) -> Model {
        self.scope.compute_in(dtype).into()
    }

    /// Sets the placement of variables that are added from now on.
    #[must_use]
    pub fn place(self, placement: Placement) -> Model {
        self.scope.place(placement).into()
    }

    /// Sets the seed of random ops that are added from now on.
    #[must_use]
    pub fn seed(self, seed: i64) -> Model {
        self.graph.set_seed(seed);
        self
    }

    /// What the model is built for.
    pub fn phase(&self) -> Phase {
        self.scope.phase()
    }

    /// All variables, in the order in which they were added: those of layers, the slots of
    /// optimizers, and counters.
    pub fn variables(&self) -> Vec<Variable> {
        self.graph.variables()
    }

    /// The trainable variables.
    pub fn trainable(&self) -> Vec<Variable> {
        self.scope.trainable()
    }

    /// The value of the variable with this full name; a mistake if there is none.
    #[track_caller]
    pub fn value_of<T: TensorType>(&self, name: &str) -> Output<T> {
        self.build(|model| match model.find(name) {
            Some(variable) => variable.read(&mut model.top()),
            None => Err(err!(NotFound, "the model has no variable '{name}'")),
        })
    }

    /// A trainable parameter of this layer: found, or added with this initializer. If the model is
    /// [`Model::partitioned`], its partitions are concatenated.
    #[track_caller]
    pub fn parameter(&self, name: &str, dims: &[usize], first: &Initializer) -> Output<f32> {
        self.build(|model| {
            let parameter = model.parameter(name, dims, first)?;
            parameter.read(model)
        })
    }

    /// A variable of this layer that is not trainable: found, or added with this initializer.
    #[track_caller]
    pub fn counter<T: TensorType>(
        &self,
        name: &str,
        dims: &[usize],
        first: &Initializer,
    ) -> api::Variable<T> {
        let found = self.graph.build(|_| {
            let dtype = api::known_dtype::<T>("counter")?;
            self.scope.counter(name, dtype, dims, first)
        });
        self.graph.existing_variable(found)
    }

    /// Adds a regularization term to the loss; one of this name counts once, however often the
    /// network is built.
    #[track_caller]
    pub fn add_penalty(&self, name: &str, penalty: &Output<f32>) {
        if let Some(at) = self.graph.endpoint_of(penalty) {
            self.scope.add_penalty(name, at);
        }
    }

    /// A name with the prefix of this layer.
    pub fn full_name(&self, name: &str) -> String {
        self.scope.full_name(name)
    }

    /// The number of updates.
    #[track_caller]
    pub fn global_step(&self) -> Output<i64> {
        self.build(|model| {
            let step = model.global_step()?;
            step.read(model)
        })
    }

    /// Makes training steps run this too.
    #[track_caller]
    pub fn add_update(&self, update: &Operation) {
        if let Some(node) = self.graph.node_id_of(update) {
            self.scope.add_update(node);
        }
    }

    /// The size of a tensor's last dimension, which layers are sized by; `None` and a mistake if it
    /// is not known.
    #[track_caller]
    pub fn features<T: TensorType>(&self, x: &Output<T>) -> Option<usize> {
        let at = self.graph.endpoint_of(x)?;
        let model = self.as_scope();
        self.graph.build(|_| model.features(at))
    }

    /// A handle of a tensor that could not be added.
    pub fn poisoned<T: TensorType>(&self) -> Output<T> {
        Output::poisoned(&self.graph)
    }

    /// The tensor that `add` adds; its error is a mistake.
    #[track_caller]
    pub(crate) fn build<T: TensorType>(
        &self,
        add: impl FnOnce(&mut ModelScope) -> Result<Endpoint>,
    ) -> Output<T> {
        let mut model = self.as_scope();
        match self.graph.build(|_| add(&mut model)) {
            Some(at) => self.graph.output(at),
            None => Output::poisoned(&self.graph),
        }
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
        let merged = self.graph.build(|_| self.as_scope().summaries())??;
        Some(self.graph.output(merged))
    }

    #[track_caller]
    fn summary<'a>(&self, tag: &str, build: impl FnOnce(&Graph, Output<String>) -> NewOp<'a>) {
        let full = self.scope.full_name(tag);
        if self.phase() == Phase::Inference || self.scope.has_summary(&full) {
            return;
        }
        on_behalf_of(Location::caller(), || {
            let summaries = self.graph.scope("summaries");
            let tag = summaries.constant::<String>(full.as_str());
            let summary: Output<String> = build(&summaries, tag).output();
            if let Ok(at) = summary.endpoint() {
                self.scope.keep_summary(full, at);
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
    let Some(dtype) = model.scope.compute_dtype() else {
        return product(&a.any(), &b.any()).typed();
    };
    let cast = |x: &Output<f32>| -> Output<Any> {
        NewOp::new(x.graph(), "Cast").input(x).attr("DstT", dtype).output()
    };
    product(&cast(a), &cast(b)).cast::<f32>()
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
