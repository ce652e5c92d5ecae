//! Rows that train: the models of `benches/peers/train_*.py`, written with our own layers.

use thalweg_api::{Output, TensorType};
use thalweg_tensor::{Result, Shape, Tensor};
use thalweg_train::{
    Conv2d, Dense, Embedding, Flatten, Layer, Lstm, MaxPool2d, Model, Sequential, Sgd, losses,
};

/// A training graph, and the tensors that each step is fed.
pub(crate) struct Training {
    pub(crate) model: Model,
    pub(crate) feeds: Vec<(String, Tensor)>,
    /// Initializer, run once before the first step.
    pub(crate) init: String,
    /// Target of each step.
    pub(crate) step: String,
}

/// Vocabulary size of the language model.
const WORDS: usize = 10_000;

/// The row called `base`; `None` for other rows.
pub(crate) fn build(base: &str) -> Option<Result<Training>> {
    match base {
        "train/mlp" => Some(mlp()),
        "train/lenet" => Some(lenet()),
        "train/lstm" => Some(lstm()),
        _ => None,
    }
}

fn mlp() -> Result<Training> {
    let net = Sequential::new()
        .then(Dense::new(512).relu())
        .then(Dense::new(512).relu())
        .then(Dense::new(10));
    classifier(&net, &[128, 784])
}

fn lenet() -> Result<Training> {
    let net = Sequential::new()
        .then(Conv2d::new(32, [5, 5]).relu())
        .then(MaxPool2d::new(2))
        .then(Conv2d::new(64, [5, 5]).relu())
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Dense::new(1024).relu())
        .then(Dense::new(10));
    classifier(&net, &[64, 28, 28, 1])
}

fn classifier(net: &Sequential, dims: &[usize]) -> Result<Training> {
    let mut training = Training::new();
    let shape = Shape::new(dims)?;
    let images: Vec<f32> =
        (0..shape.num_elements()).map(|i| scattered(i, 1000) as f32 / 1000.0).collect();
    let x: Output<f32> = training.fed("x", Tensor::from_slice(shape, &images)?)?;
    let labels: Vec<i64> = (0..dims[0]).map(|i| scattered(i, 10)).collect();
    let labels = training.fed("labels", Tensor::vector(&labels)?)?;
    let logits = net.apply(&training.model, &x);
    training.minimize(&logits, &labels)
}

fn lstm() -> Result<Training> {
    let mut training = Training::new();
    let shape = Shape::new(&[20, 35])?;
    let words: Vec<i64> = (0..700).map(|i| scattered(i, WORDS)).collect();
    let following: Vec<i64> = (0..700).map(|i| scattered(i + 1, WORDS)).collect();
    let x: Output<i64> = training.fed("words", Tensor::from_slice(shape, &words)?)?;
    let labels = training.fed("following", Tensor::vector(&following)?)?;
    let net = Sequential::new()
        .then(Embedding::new(WORDS, 512))
        .then(Lstm::new(512).return_sequences())
        .then(Lstm::new(512).return_sequences())
        .then(|_: &Model, x: &Output<f32>| x.reshape([-1, 512]))
        .then(Dense::new(WORDS));
    let logits = net.apply(&training.model, &x);
    training.minimize(&logits, &labels)
}

fn scattered(i: usize, limit: usize) -> i64 {
    ((i as u32).wrapping_mul(2_654_435_761) >> 8) as i64 % limit as i64
}

impl Training {
    fn new() -> Training {
        Training {
            model: Model::new(),
            feeds: Vec::new(),
            init: String::new(),
            step: String::new(),
        }
    }

    fn fed<T: TensorType>(&mut self, name: &str, value: Tensor) -> Result<Output<T>> {
        let dims: Vec<Option<usize>> = value.shape().iter().copied().map(Some).collect();
        let input = self.model.placeholder(name, &dims[..]);
        self.feeds.push((input.name()?, value));
        Ok(input)
    }

    fn minimize(mut self, logits: &Output<f32>, labels: &Output<i64>) -> Result<Training> {
        let step = Sgd::new(0.01).minimize(&losses::softmax_cross_entropy(logits, labels));
        self.model.check()?;
        (self.init, self.step) = (self.model.init().name()?, step.name()?);
        Ok(self)
    }
}
