//! Signatures: inputs and outputs of a model, by name.

use std::collections::BTreeMap;

use thalweg_proto::{self as pb, tensor_info::Encoding};
use thalweg_tensor::{Context, DType, PartialShape, Result, Tensor, bail, ensure};

/// The method name of prediction signatures.
pub const PREDICT_METHOD: &str = "tensorflow/serving/predict";
/// The offset of reference dtypes.
const REFERENCE_TYPES: i32 = 100;

/// A tensor of a signature.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Its name in the graph.
    pub tensor: String,
    /// Its dtype.
    pub dtype: DType,
    /// Its partial shape.
    pub shape: PartialShape,
}

/// A signature: the inputs and outputs of one use of a graph.
///
/// A sparse input `x` is three tensors, `x/indices`, `x/values` and `x/dense_shape`; the components
/// of other composite tensors are numbered, `x/0`.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// Tensors to feed, by name.
    pub inputs: BTreeMap<String, TensorSpec>,
    /// Tensors to fetch, by name.
    pub outputs: BTreeMap<String, TensorSpec>,
    /// The method name, for instance [`PREDICT_METHOD`].
    pub method: String,
    /// Default values of inputs.
    pub defaults: BTreeMap<String, Tensor>,
}

impl Signature {
    /// The signature of a message.
    pub fn from_proto(proto: &pb::SignatureDef) -> Result<Signature> {
        let mut defaults = BTreeMap::new();
        for (name, value) in &proto.defaults {
            let value =
                Tensor::from_proto(value, None).context(|| format!("default of '{name}'"))?;
            defaults.insert(name.clone(), value);
        }
        Ok(Signature {
            inputs: specs(&proto.inputs, "input")?,
            outputs: specs(&proto.outputs, "output")?,
            method: proto.method_name.clone(),
            defaults,
        })
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> Result<pb::SignatureDef> {
        let infos = |specs: &BTreeMap<String, TensorSpec>| {
            specs.iter().map(|(name, spec)| (name.clone(), spec.to_proto())).collect()
        };
        let mut defaults = BTreeMap::new();
        for (name, value) in &self.defaults {
            defaults.insert(name.clone(), value.to_proto()?);
        }
        Ok(pb::SignatureDef {
            inputs: infos(&self.inputs),
            outputs: infos(&self.outputs),
            method_name: self.method.clone(),
            defaults,
        })
    }
}

impl TensorSpec {
    fn to_proto(&self) -> pb::TensorInfo {
        pb::TensorInfo {
            dtype: self.dtype.to_proto(),
            tensor_shape: Some(self.shape.to_proto()),
            encoding: Some(Encoding::Name(self.tensor.clone())),
        }
    }
}

fn specs(
    infos: &BTreeMap<String, pb::TensorInfo>,
    what: &str,
) -> Result<BTreeMap<String, TensorSpec>> {
    let mut found = BTreeMap::new();
    for (name, info) in infos {
        add(name, info, &mut found).context(|| format!("{what} '{name}'"))?;
    }
    Ok(found)
}

/// Adds the tensors of one entry.
fn add(name: &str, info: &pb::TensorInfo, found: &mut BTreeMap<String, TensorSpec>) -> Result<()> {
    let mut insert = |name: String, spec: TensorSpec| {
        ensure!(!spec.tensor.is_empty(), InvalidArgument, "it names no tensor");
        let before = found.insert(name, spec);
        ensure!(before.is_none(), InvalidArgument, "its parts have the names of others");
        Ok(())
    };
    match &info.encoding {
        Some(Encoding::Name(tensor)) => insert(name.to_owned(), dense(tensor, info)?),
        Some(Encoding::CooSparse(parts)) => {
            let part = |tensor: &str, rank: usize| TensorSpec {
                tensor: tensor.to_owned(),
                dtype: DType::Int64,
                shape: PartialShape::of_rank(rank),
            };
            let values = TensorSpec {
                shape: PartialShape::of_rank(1),
                ..dense(&parts.values_tensor_name, info)?
            };
            insert(format!("{name}/indices"), part(&parts.indices_tensor_name, 2))?;
            insert(format!("{name}/values"), values)?;
            insert(format!("{name}/dense_shape"), part(&parts.dense_shape_tensor_name, 1))
        }
        Some(Encoding::CompositeTensor(parts)) => {
            for (i, part) in parts.components.iter().enumerate() {
                add(&format!("{name}/{i}"), part, found)?;
            }
            Ok(())
        }
        None => bail!(InvalidArgument, "it names no tensor"),
    }
}

fn dense(tensor: &str, info: &pb::TensorInfo) -> Result<TensorSpec> {
    let number = match info.dtype {
        reference if reference > REFERENCE_TYPES => reference - REFERENCE_TYPES,
        number => number,
    };
    let shape = match &info.tensor_shape {
        Some(shape) => PartialShape::from_proto(shape)?,
        None => PartialShape::unknown(),
    };
    Ok(TensorSpec { tensor: tensor.to_owned(), dtype: DType::from_proto(number)?, shape })
}
