//! `ParseExample`: serialized `Example` messages to one tensor per feature.

use std::sync::Arc;

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{Node, OpDef, Work};
use thalweg_kernel::{
    AnyKernel, Family, KernelContext, KernelInit, KernelSpec, StepContext, Value,
};
use thalweg_tensor::{Bytes, DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::features::Wanted;
use super::outputs::{AttrNames, Batch, Forms, parse};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ParseExample", |c| batch_shapes(c, &V1, 1)).with_work(Work::serial::<1000>),
        OpDef::new("ParseExampleV2", |c| batch_shapes(c, &V2, 2)).with_work(Work::serial::<1000>),
        OpDef::new("ParseSingleExample", |c| batch_shapes(c, &V1, 0))
            .with_work(Work::serial::<1000>),
    ],
    kernels: &[
        KernelSpec { op: "ParseExample", create: parse_example, ..KernelSpec::CPU },
        KernelSpec { op: "ParseExampleV2", create: parse_example_v2, ..KernelSpec::CPU },
        KernelSpec { op: "ParseSingleExample", create: parse_single_example, ..KernelSpec::CPU },
    ],
};

const V1: AttrNames = AttrNames {
    sparse: "sparse_types",
    dense: "Tdense",
    shapes: "dense_shapes",
    ragged: "",
    splits: "",
};
const V2: AttrNames =
    AttrNames { ragged: "ragged_value_types", splits: "ragged_split_types", ..V1 };

/// `kind`: 0 accepts one example, 1 a vector of examples, 2 either.
fn batch_shapes(c: &mut ShapeContext<'_>, names: &AttrNames, kind: usize) -> Result<()> {
    let forms = Forms::new(&c.attrs(), names)?;
    let batch = match kind {
        2 => c.input(0).clone(),
        rank => c.with_rank(0, "serialized", rank)?,
    };
    ensure!(
        batch.rank().is_none_or(|r| r <= 1),
        InvalidArgument,
        "serialized must be a scalar or a vector, got shape {batch}"
    );
    set_shapes(c, &forms, names, &batch, 0)
}

/// Sets the shapes of the outputs of [`parse`], from `first` on, for examples of shape `batch`.
pub(super) fn set_shapes(
    c: &mut ShapeContext<'_>,
    forms: &Forms,
    names: &AttrNames,
    batch: &PartialShape,
    first: usize,
) -> Result<()> {
    let rank = batch.rank().map(|r| r + 1);
    let (num_sparse, num_dense) = (forms.sparse.len(), forms.dense.len());
    for s in first..first + num_sparse {
        c.set_output(s, PartialShape::new([None, rank]));
        c.set_output(s + num_sparse, PartialShape::of_rank(1));
        c.set_output(s + 2 * num_sparse, PartialShape::new([rank]));
    }
    for (d, shape) in c.attrs().shapes(names.shapes)?.iter().enumerate() {
        if let (Some(batch), Some(dims)) = (batch.dims(), shape.dims()) {
            let dims = batch.iter().chain(dims).copied();
            c.set_output(first + 3 * num_sparse + d, PartialShape::new(dims));
        }
    }
    for r in 0..forms.ragged.len() {
        let at = first + 3 * num_sparse + num_dense + r;
        c.set_output(at, PartialShape::of_rank(1));
        let splits = match batch.dims() {
            Some([]) => Some(0),
            Some([rows]) => rows.map(|n| n + 1),
            _ => None,
        };
        c.set_output(at + forms.ragged.len(), PartialShape::new([splits]));
    }
    Ok(())
}

/// The strings of input `i`, which must be a vector.
pub(super) fn keys<'a>(ctx: &'a KernelContext<'_>, i: usize, name: &str) -> Result<&'a [Bytes]> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 1,
        InvalidArgument,
        "{name} must be a vector, got shape {}",
        tensor.shape()
    );
    tensor.strings()
}

/// The scalar strings of the argument `name`.
pub(super) fn scalar_keys(ctx: &KernelContext<'_>, name: &str) -> Result<Vec<Bytes>> {
    ctx.input_range(name)?.map(|i| super::scalar_string(ctx, i, name)).collect()
}

fn parse_example(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let forms = Forms::new(&init.attrs(), &V1)?;
    AnyKernel::new(move |ctx| {
        let (sparse, dense) = (scalar_keys(ctx, "sparse_keys")?, scalar_keys(ctx, "dense_keys")?);
        let wanted = forms.wanted(&sparse, &dense, &[])?;
        let first_default = ctx.input_range("dense_defaults")?.start;
        let (serialized, names) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        let batch = Batch::new(&serialized, names.strings()?, &[1])?;
        parse(ctx, &batch, &forms, &wanted, (first_default, 0))
    })
}

fn parse_example_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let forms = Forms::new(&init.attrs(), &V2)?;
    AnyKernel::new(move |ctx| {
        let wanted = forms.wanted(
            keys(ctx, 2, "sparse_keys")?,
            keys(ctx, 3, "dense_keys")?,
            keys(ctx, 4, "ragged_keys")?,
        )?;
        let (serialized, names) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        let batch = Batch::new(&serialized, names.strings()?, &[0, 1])?;
        parse(ctx, &batch, &forms, &wanted, (5, 0))
    })
}

fn parse_single_example(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let forms = Forms::new(&attrs, &V1)?;
    let wanted = forms.wanted(attrs.strings("sparse_keys")?, attrs.strings("dense_keys")?, &[])?;
    AnyKernel::new(move |ctx| {
        let serialized: Tensor = ctx.input(0)?.clone();
        let batch = Batch::new(&serialized, &[], &[0])?;
        parse(ctx, &batch, &forms, &wanted, (1, 0))
    })
}

/// Parses batches of examples for `ParseExampleDataset`.
pub(crate) struct ExampleParser {
    node: Node,
    forms: Forms,
    wanted: Vec<Wanted>,
    dtypes: Vec<DType>,
}

impl ExampleParser {
    /// Options from the attrs of the dataset's node.
    pub(crate) fn new(init: &KernelInit<'_>) -> Result<ExampleParser> {
        let attrs = init.attrs();
        let has_ragged = attrs.get("ragged_keys").is_some();
        let forms = Forms::new(&attrs, if has_ragged { &V2 } else { &V1 })?;
        let ragged = if has_ragged { attrs.strings("ragged_keys")? } else { &[] };
        let wanted =
            forms.wanted(attrs.strings("sparse_keys")?, attrs.strings("dense_keys")?, ragged)?;
        let indices = forms.sparse.iter().map(|_| DType::Int64);
        let dtypes = indices
            .clone()
            .chain(forms.sparse.iter().copied())
            .chain(indices)
            .chain(forms.dense.iter().map(|(dtype, _)| *dtype))
            .chain(forms.ragged.iter().map(|(values, _)| *values))
            .chain(forms.ragged.iter().map(|(_, splits)| *splits))
            .collect();
        Ok(ExampleParser { node: init.node.clone(), forms, wanted, dtypes })
    }

    /// Numbers of sparse, dense and ragged features.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.forms.sparse.len(), self.forms.dense.len(), self.forms.ragged.len()]
    }

    /// The key of feature `i`; sparse features come first, then dense ones, then ragged ones.
    pub(crate) fn key(&self, i: usize) -> &Bytes {
        &self.wanted[i].key
    }

    /// Checks the default values of the dense features.
    pub(crate) fn check_defaults(&self, defaults: &[Tensor]) -> Result<()> {
        let dense = self.forms.dense.iter().zip(&self.wanted[self.forms.sparse.len()..]);
        dense
            .zip(defaults)
            .try_for_each(|(((_, row), wanted), default)| row.check_default(&wanted.key, default))
    }

    /// Indices, values and shapes of the sparse features, the dense ones, values and splits of the
    /// ragged ones.
    pub(crate) fn parse(
        &self,
        serialized: Tensor,
        defaults: &[Tensor],
        step: &Arc<StepContext>,
    ) -> Result<Vec<Tensor>> {
        // A scalar is a batch of one example.
        let examples = Shape::new(&[serialized.num_elements()])?;
        let serialized = serialized.reshaped(examples)?;
        let batch = Batch::new(&serialized, &[], &[1])?;
        let mut inputs: Vec<Value> = defaults.iter().cloned().map(Value::Tensor).collect();
        let mut outputs = vec![Value::default(); self.dtypes.len()];
        let mut ctx = KernelContext::new(&self.node, &self.dtypes, step, &mut inputs, &mut outputs);
        parse(&mut ctx, &batch, &self.forms, &self.wanted, (0, 0))?;
        let tensor = |value| match value {
            Value::Tensor(tensor) => Ok(tensor),
            _ => bail!(Internal, "every feature becomes a tensor"),
        };
        outputs.into_iter().map(tensor).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message;
    use thalweg_proto as pb;
    use thalweg_proto::feature::Kind;
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{Call, call};

    fn ints(values: &[i64]) -> Kind {
        Kind::Int64List(pb::Int64List { value: values.to_vec() })
    }

    fn words(values: &[&'static str]) -> Kind {
        Kind::BytesList(pb::BytesList { value: values.iter().map(|&s| s.into()).collect() })
    }

    fn example(features: &[(&str, Kind)]) -> Bytes {
        let feature: BTreeMap<String, pb::Feature> = features
            .iter()
            .map(|(key, kind)| ((*key).to_owned(), pb::Feature { kind: Some(kind.clone()) }))
            .collect();
        pb::Example { features: Some(pb::Features { feature }) }.encode_to_vec().into()
    }

    fn vector(items: &[Bytes]) -> Tensor {
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items.to_vec()).unwrap()
    }

    fn keys_of(items: &[&'static str]) -> Tensor {
        vector(&items.iter().map(|&s| Bytes::from_static(s.as_bytes())).collect::<Vec<_>>())
    }

    /// A node that parses int64 features: the names of sparse, dense (with a shape and default) and
    /// ragged ones.
    fn node(
        serialized: Tensor,
        sparse: &[&'static str],
        dense: &[(&'static str, &str, &[i64])],
        ragged: &[&'static str],
    ) -> Call {
        let dense_keys: Vec<&str> = dense.iter().map(|d| d.0).collect();
        let mut node = call("ParseExampleV2")
            .input(serialized)
            .input(vector(&[]))
            .input(keys_of(sparse))
            .input(keys_of(&dense_keys))
            .input(keys_of(ragged));
        let mut shapes = Vec::new();
        for (_, shape, default) in dense {
            let shape = crate::testing::partial_shape(shape);
            let default = Tensor::vector(default).unwrap();
            let is_scalar = default.num_elements() == 1 && shape.rank() != Some(1);
            node = node.input(match is_scalar {
                true => default.reshaped(Shape::scalar()).unwrap(),
                false => default,
            });
            shapes.push(shape);
        }
        node.attr("Tdense", &vec![DType::Int64; dense.len()][..])
            .attr("num_sparse", sparse.len() as i64)
            .attr("sparse_types", &vec![DType::Int64; sparse.len()][..])
            .attr("ragged_value_types", &vec![DType::Int64; ragged.len()][..])
            .attr("ragged_split_types", &vec![DType::Int32; ragged.len()][..])
            .attr("dense_shapes", &shapes[..])
    }

    fn batch() -> Tensor {
        vector(&[
            example(&[("a", ints(&[1, 2])), ("s", words(&["x"]))]),
            example(&[("a", ints(&[3]))]),
            example(&[("b", ints(&[9]))]),
        ])
    }

    fn numbers(tensor: &Tensor) -> Vec<i64> {
        match tensor.dtype() {
            DType::Int32 => tensor.as_slice::<i32>().unwrap().iter().map(|&x| x.into()).collect(),
            _ => tensor.as_slice::<i64>().unwrap().to_vec(),
        }
    }

    #[test]
    fn every_form() {
        let dense: &[(&'static str, &str, &[i64])] = &[("a", "?", &[7])];
        let outputs = node(batch(), &["a"], dense, &["a"]).backwards().run_all().unwrap();
        let shown: Vec<_> = outputs.iter().map(numbers).collect();
        assert_eq!(shown[0], [0, 0, 0, 1, 1, 0]);
        assert_eq!((&shown[1][..], &shown[2][..]), (&[1, 2, 3][..], &[3, 2][..]));
        assert_eq!(outputs[3].shape().dims(), [3, 2]);
        assert_eq!(shown[3], [1, 2, 3, 7, 7, 7]);
        assert_eq!((&shown[4][..], &shown[5][..]), (&[1, 2, 3][..], &[0, 2, 3, 3][..]));
    }

    #[test]
    fn one_example_has_no_batch() {
        let one = Tensor::scalar_string(example(&[("a", ints(&[1, 2]))]));
        let dense: &[(&'static str, &str, &[i64])] = &[("a", "?,2", &[7]), ("q", "", &[5])];
        let outputs = node(one, &["a"], dense, &["a"]).run_all().unwrap();
        assert_eq!((numbers(&outputs[0]), numbers(&outputs[2])), (vec![0, 1], vec![2]));
        assert_eq!(outputs[0].shape().dims(), [2, 1]);
        assert_eq!(outputs[3].shape().dims(), [1, 2]);
        assert_eq!((outputs[4].rank(), numbers(&outputs[4])), (0, vec![5]));
        assert_eq!(outputs[6].num_elements(), 0);
    }

    #[test]
    fn the_last_feature_of_a_name_counts() {
        let twice = [example(&[("a", ints(&[1]))]), example(&[("a", ints(&[2, 3]))])].concat();
        let outputs = node(vector(&[twice.into()]), &["a"], &[], &[]).run_all().unwrap();
        assert_eq!(numbers(&outputs[1]), [2, 3]);
    }

    #[test]
    fn what_does_not_fit() {
        let dense =
            |key, shape: &str, default: &[i64]| node(batch(), &[], &[(key, shape, default)], &[]);
        let refused = [
            (dense("a", "2", &[1, 1]), "one value for two"),
            (dense("a", "?,2", &[1]), "half a step"),
            (dense("c", "", &[]), "required"),
            (dense("a", "?", &[]), "no padding"),
            (dense("a", "?", &[1, 2]), "two paddings"),
            (dense("a", "3", &[1, 1]), "default of another shape"),
            (dense("a", "?,0", &[1]), "empty steps"),
            (dense("a", "2,?", &[1]), "unknown inner size"),
            (node(batch(), &["s"], &[], &[]), "type"),
            (node(batch(), &[], &[], &["s"]), "type"),
            (node(vector(&[Bytes::from_static(b"\x0a\x05abc")]), &["a"], &[], &[]), "broken"),
        ];
        for (call, why) in refused {
            assert_eq!(call.run_all().unwrap_err().code(), Code::InvalidArgument, "{why}");
        }
    }

    #[test]
    fn shapes() {
        let infer = |shape: &str| {
            call("ParseExampleV2")
                .shape(DType::String, shape)
                .shape(DType::String, "0")
                .shape(DType::String, "1")
                .shape(DType::String, "1")
                .shape(DType::String, "1")
                .shape(DType::Float, "")
                .attr("Tdense", &[DType::Float][..])
                .attr("num_sparse", 1)
                .attr("sparse_types", &[DType::Int64][..])
                .attr("ragged_value_types", &[DType::String][..])
                .attr("ragged_split_types", &[DType::Int32][..])
                .attr("dense_shapes", &[crate::testing::partial_shape("?,3")][..])
                .infer()
        };
        assert_eq!(infer("5"), "[?,2] [?] [2] [5,?,3] [?] [6]");
        assert_eq!(infer(""), "[?,1] [?] [1] [?,3] [?] [0]");
        assert_eq!(infer("unknown"), "[?,?] [?] [?] <unknown> [?] [?]");
        assert!(infer("2,3").contains("serialized"));
    }
}
