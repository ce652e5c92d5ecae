//! Models of the benchmarks on an accelerator, as users of `thalweg::train` write them; the same as those of
//! `benches/gpu/torch_peer.py`.

use std::path::Path;

use prost::Message;
use thalweg_api::{Any, Graph, NewOp, Operation, Output, Registry, tf};
use thalweg_graph::{Endpoint, NodeId, Scope};
use thalweg_proto as pb;
use thalweg_tensor::{Context, DType, Result, bail, bf16, err};
use thalweg_train::{
    Activation, Adam, BatchNorm, Conv2d, Dense, Embedding, GlobalAveragePool2d, Initializer, Layer,
    LayerNorm, Lstm, Model, Momentum, MultiHeadAttention, PositionEmbedding, Residual, Sequential,
    Sgd, losses,
};

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// As it is measured.
    Full,
    /// As it can be checked on a CPU.
    Small,
}

impl Scale {
    fn pick<T>(self, full: T, small: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Small => small,
        }
    }
}

/// A model with what a step does.
pub(crate) struct Training {
    pub(crate) graph: Graph,
    pub(crate) step: Operation,
    pub(crate) loss: Output<f32>,
    /// Work of a step.
    pub(crate) units: f64,
}

/// The model of the row called `base`.
pub(crate) fn build(base: &str, scale: Scale) -> Result<Training> {
    match base {
        "gpu/null" => Ok(null()),
        "gpu/mlp" => Ok(mlp(scale)),
        "gpu/lstm" => Ok(lstm(scale)),
        "gpu/resnet50" => Ok(resnet50(scale)),
        "gpu/gpt2" => Ok(gpt2(scale)),
        _ => bail!(NotFound, "there is no row {base}"),
    }
}

/// Samples that lie in the device's memory, as a variable that does not train.
fn samples(model: &Model, dims: &[usize]) -> Output<f32> {
    model.counter::<f32>("samples", dims, &Initializer::Uniform(0.0, 1.0)).value().clone()
}

/// Integers below `limit` in the device's memory.
fn integers(model: &Model, name: &str, dims: &[usize], limit: usize) -> Output<i64> {
    // Rounded down, so never the limit itself.
    let range = Initializer::Uniform(0.0, limit as f64 - 0.5);
    model.counter::<f32>(name, dims, &range).value().cast()
}

fn trained(model: &Model, step: Operation, loss: Output<f32>, units: usize) -> Training {
    Training { graph: model.graph().clone(), step, loss, units: units as f64 }
}

/// The model of a row as a graph of TensorFlow's client, which `benches/gpu/tf_models.py` wrote into `folder`.
pub(crate) fn read(base: &str, scale: Scale, folder: &Path) -> Result<Training> {
    let name = base.strip_prefix("gpu/").unwrap_or(base);
    let path = folder.join(format!("{name}{}.pb", scale.pick("", "-small")));
    let bytes = std::fs::read(&path).map_err(|e| err!(NotFound, "{}: {e}", path.display()))?;
    let def =
        pb::GraphDef::decode(&*bytes).map_err(|e| err!(DataLoss, "{}: {e}", path.display()))?;
    let registry = Registry::built_in();
    let graph = thalweg_graph::Graph::from_def(registry.ops.clone(), def)
        .context(|| path.display().to_string())?;
    let find = |name: &str| -> Result<NodeId> {
        graph.find(name).ok_or_else(|| err!(NotFound, "{}: no node {name}", path.display()))
    };
    let (init, step, loss) = (find("init")?, find("step")?, find("loss")?);
    let graph = Graph::over(Scope::of(graph), registry);
    graph.add_initializer(init);
    let (step, loss) = (graph.operation(step), graph.output(Endpoint { node: loss, index: 0 }));
    Ok(Training { graph, step, loss, units: build(base, scale)?.units })
}

/// A program that adds 1 to a number.
fn null() -> Training {
    let model = Model::new();
    let count = model.counter::<f32>("count", &[], &Initializer::Zeros);
    let step = count.assign_add(1.0);
    let loss = count.value().clone();
    trained(&model, step, loss, 1)
}

fn mlp(scale: Scale) -> Training {
    let (batch, pixels, units) = scale.pick((128, 784, 512), (8, 20, 16));
    let model = Model::new();
    let net = Sequential::new()
        .then(Dense::new(units).relu())
        .then(Dense::new(units).relu())
        .then(Dense::new(10));
    let logits = net.apply(&model, &samples(&model, &[batch, pixels]));
    let loss = losses::softmax_cross_entropy(&logits, &integers(&model, "labels", &[batch], 10));
    let step = Sgd::new(0.01).minimize(&loss);
    trained(&model, step, loss, batch)
}

/// A small MLP in half precision, whose loss is scaled.
#[cfg(test)]
pub(crate) fn half_precision(scale: thalweg_train::LossScale) -> Training {
    let model = Model::new().mixed_precision(DType::Half);
    let net = Sequential::new().then(Dense::new(16).relu()).then(Dense::new(10));
    let logits = net.apply(&model, &samples(&model, &[8, 20]));
    let loss = losses::softmax_cross_entropy(&logits, &integers(&model, "labels", &[8], 10));
    let step = Sgd::new(0.1).loss_scale(scale).minimize(&loss);
    trained(&model, step, loss, 8)
}

fn lstm(scale: Scale) -> Training {
    let (words, units, time, batch) = scale.pick((40_000, 512, 35, 64), (50, 16, 5, 4));
    let model = Model::new();
    let text = integers(&model, "text", &[batch, time + 1], words);
    let (x, following) = (text.index((.., ..time)), text.index((.., 1..)));
    let net = Sequential::new()
        .then(Embedding::new(words, units))
        .then(Lstm::new(units).return_sequences())
        .then(Lstm::new(units).return_sequences())
        .then(Dense::new(words));
    let loss = losses::softmax_cross_entropy(&net.apply(&model, &x), &following);
    let step = Sgd::new(0.1).minimize(&loss);
    trained(&model, step, loss, batch * time)
}

/// Convolution, then batch normalization.
fn normalized(filters: usize, window: usize, stride: usize) -> Sequential {
    let convolution = Conv2d::new(filters, [window; 2]).stride(stride).without_bias();
    Sequential::new()
        .then(convolution.kernel_initializer(Initializer::HeNormal))
        .then(BatchNorm::new().momentum(0.9).epsilon(1e-5))
}

fn relu(_: &Model, x: &Output<f32>) -> Output<f32> {
    x.relu()
}

/// A bottleneck block of ResNet: 1x1, 3x3 and 1x1 convolutions beside a shortcut. What blocks hand on has 16
/// bits, as under PyTorch's autocast.
fn bottleneck(model: &Model, x: &Output<bf16>, width: usize, stride: usize) -> Output<bf16> {
    let branch = normalized(width, 1, 1)
        .then(relu)
        .then(normalized(width, 3, stride))
        .then(relu)
        .then(normalized(4 * width, 1, 1));
    let wide = x.cast::<f32>();
    let y = branch.apply(model, &wide).cast::<bf16>();
    let is_same = model.features(x) == Some(4 * width) && stride == 1;
    let shortcut = match is_same {
        true => x.clone(),
        false => normalized(4 * width, 1, stride).apply(model, &wide).cast(),
    };
    (y + shortcut).relu()
}

fn resnet50(scale: Scale) -> Training {
    let (batch, size, classes) = scale.pick((256, 224, 1000), (2, 32, 10));
    let blocks: &[usize] = scale.pick(&[3, 4, 6, 3], &[1, 1]);
    let model = Model::new().mixed_precision(DType::BFloat16);
    let images = samples(&model, &[batch, size, size, 3]);
    let labels = integers(&model, "labels", &[batch], classes);
    let x = normalized(64, 7, 2).apply(&model, &images).cast::<bf16>().relu();
    let mut x = tf::max_pool(&x, &[1, 3, 3, 1], &[1, 2, 2, 1], "SAME");
    for (stage, &count) in blocks.iter().enumerate() {
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = bottleneck(&model, &x, 64 << stage, stride);
        }
    }
    let logits =
        Dense::new(classes).apply(&model, &GlobalAveragePool2d.apply(&model, &x.cast::<f32>()));
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    let step = Momentum::new(0.1).minimize(&loss);
    trained(&model, step, loss, batch)
}

/// A block of GPT-2: causal self-attention, then a position-wise feed-forward layer.
fn block(heads: usize, width: usize) -> Sequential {
    let attention =
        Sequential::new().then(LayerNorm::new()).then(MultiHeadAttention::new(heads).causal());
    let dense = Sequential::new()
        .then(LayerNorm::new())
        .then(Dense::new(4 * width).activation(Activation::Gelu))
        .then(Dense::new(width));
    Sequential::new().then(Residual(attention)).then(Residual(dense))
}

fn gpt2(scale: Scale) -> Training {
    let (batch, time, layers) = scale.pick((16, 1024, 12), (2, 8, 2));
    let (width, heads, words) = scale.pick((768, 12, 50_304), (32, 4, 50));
    let model = Model::new().mixed_precision(DType::BFloat16);
    let text = integers(&model, "text", &[batch, time + 1], words);
    let (x, following) = (text.index((.., ..time)), text.index((.., 1..)));
    let table = Embedding::new(words, width).table(&model);
    let mut z = PositionEmbedding.apply(&model, &table.lookup(&model, &x));
    for _ in 0..layers {
        z = block(heads, width).apply(&model, &z);
    }
    z = LayerNorm::new().apply(&model, &z);
    let logits = scores(&z.reshape([-1, width as i32]), &table.values(&model)[0]);
    let loss = losses::softmax_cross_entropy(&logits, &following.reshape([-1]));
    let step = Adam::new(3e-4).minimize(&loss);
    trained(&model, step, loss, batch * time)
}

/// Products of rows with all embeddings, in bfloat16.
fn scores(rows: &Output<f32>, embeddings: &Output<f32>) -> Output<f32> {
    let half = |x: &Output<f32>| -> Output<Any> {
        NewOp::new(x.graph(), "Cast").input(x).attr("DstT", DType::BFloat16).output()
    };
    let product = NewOp::new(rows.graph(), "MatMul").input(half(rows)).input(half(embeddings));
    product.attr("transpose_b", true).output::<Any>().cast()
}
