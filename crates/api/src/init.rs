//! Initial values of variables.

use thalweg_tensor::{Result, Shape, ensure, err};

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::initializer::Initializer;
use crate::mistake::Caller;
use crate::variable::Variable;
use crate::variable_info::{NewVariable, VariableInfo};

/// The shape of a variable and how its initial value is computed.
///
/// Random values are drawn when a session is made, with the graph's seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Init {
    initializer: Initializer,
    shape: Vec<usize>,
    is_trainable: bool,
}

macro_rules! inits {
    ($($(#[$doc:meta])* $name:ident => $initializer:ident;)+) => { $(
        $(#[$doc])*
        pub fn $name(shape: impl AsRef<[usize]>) -> Init {
            Init::new(Initializer::$initializer, shape)
        }
    )+ };
}

impl Init {
    /// An initial value of this shape.
    pub fn new(initializer: Initializer, shape: impl AsRef<[usize]>) -> Init {
        Init { initializer, shape: shape.as_ref().to_vec(), is_trainable: true }
    }

    inits! {
        /// All zeros.
        zeros => Zeros;
        /// All ones.
        ones => Ones;
        /// Glorot (Xavier) uniform: variance `2 / (fan_in + fan_out)`.
        glorot => GlorotUniform;
        /// Glorot (Xavier) normal: truncated normal with variance `2 / (fan_in + fan_out)`.
        glorot_normal => GlorotNormal;
        /// He normal: truncated normal with variance `2 / fan_in`, for ReLU layers.
        he => HeNormal;
        /// He uniform: variance `2 / fan_in`, for ReLU layers.
        he_uniform => HeUniform;
        /// A random orthogonal matrix.
        orthogonal => Orthogonal;
    }

    /// One number for every element.
    pub fn constant(value: f64, shape: impl AsRef<[usize]>) -> Init {
        Init::new(Initializer::Constant(value), shape)
    }

    /// These elements, in row-major order.
    pub fn values(values: impl Into<Vec<f32>>, shape: impl AsRef<[usize]>) -> Init {
        Init::new(Initializer::Value(values.into()), shape)
    }

    /// Uniform distribution between a minimum and a maximum.
    pub fn uniform(low: f64, high: f64, shape: impl AsRef<[usize]>) -> Init {
        Init::new(Initializer::Uniform(low, high), shape)
    }

    /// Normal distribution with mean 0 and this standard deviation.
    pub fn normal(deviation: f64, shape: impl AsRef<[usize]>) -> Init {
        Init::new(Initializer::Normal(deviation), shape)
    }

    /// Truncated normal distribution: samples beyond two standard deviations are drawn again.
    pub fn truncated_normal(deviation: f64, shape: impl AsRef<[usize]>) -> Init {
        Init::new(Initializer::TruncatedNormal(deviation), shape)
    }

    /// The initializer, the shape, and whether optimizers train the variable.
    pub fn into_parts(self) -> (Initializer, Vec<usize>, bool) {
        (self.initializer, self.shape, self.is_trainable)
    }

    /// A variable that optimizers leave alone.
    #[must_use]
    pub fn not_trainable(self) -> Init {
        Init { is_trainable: false, ..self }
    }
}

/// Adds a variable; a mistake of the line `caller` poisons it.
pub(crate) fn add_variable<T: TensorType>(
    graph: &Graph,
    name: &str,
    init: &Init,
    caller: Caller,
) -> Variable<T> {
    let added = match add(graph, name, init, T::DTYPE) {
        Ok(info) => {
            graph.locate(info.handle.node, caller);
            graph.keep_variable(info.clone());
            Some(info)
        }
        Err(e) => {
            graph.record(caller, e.map_message(|m| format!("variable '{name}': {m}")));
            None
        }
    };
    Variable::of(graph, added, caller)
}

fn add(
    graph: &Graph,
    name: &str,
    init: &Init,
    dtype: Option<thalweg_tensor::DType>,
) -> Result<VariableInfo> {
    let dtype = dtype
        .ok_or_else(|| err!(InvalidArgument, "its element type must be known, such as f32"))?;
    ensure!(
        graph.body() == 0,
        InvalidArgument,
        "it would belong to the body of a branch or loop, which is no place for state: add it \
         before, outside of the closure"
    );
    let shape = Shape::new(&init.shape)?;
    let name = free_name(graph, name);
    let device = graph.as_scope().device().to_owned();
    let new = NewVariable { name: &name, dtype, shape: &shape, device: &device, part: None };
    let seeds = graph.next_seeds();
    let root = graph.root();
    let mut added = VariableInfo::add(root.as_scope(), new, |scope| {
        init.initializer.build(scope, dtype, &shape, seeds)
    })?;
    added.is_trainable = init.is_trainable;
    Ok(added)
}

/// The name with the prefix of the view, and with a number if another variable has it.
fn free_name(graph: &Graph, name: &str) -> String {
    let full = format!("{}{name}", graph.as_scope().prefix());
    let numbered = (0..).map(|i| if i == 0 { full.clone() } else { format!("{full}_{i}") });
    let mut free = numbered.filter(|name| graph.find_variable(name).is_none());
    free.next().unwrap_or(full)
}
