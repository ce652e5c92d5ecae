//! Serialized `SequenceExample` messages: a context with the features of an `Example`, and feature
//! lists with one entry per step.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{NodeAttrs, OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, PartialShape, Result, Shape, bail, ensure};

use super::example::{keys, scalar_keys, set_shapes};
use super::outputs::{AttrNames, Batch, Forms, parse};
use super::steps::{WantedSteps, parse_steps};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ParseSequenceExample", |c| sequence_shapes(c, &V1, false))
            .with_work(Work::serial::<2000>),
        OpDef::new("ParseSequenceExampleV2", |c| sequence_shapes(c, &V2, false))
            .with_work(Work::serial::<2000>),
        OpDef::new("ParseSingleSequenceExample", |c| sequence_shapes(c, &V1, true))
            .with_work(Work::serial::<2000>),
    ],
    kernels: &[
        KernelSpec { op: "ParseSequenceExample", create: parse_v1, ..KernelSpec::CPU },
        KernelSpec { op: "ParseSequenceExampleV2", create: parse_v2, ..KernelSpec::CPU },
        KernelSpec { op: "ParseSingleSequenceExample", create: parse_single, ..KernelSpec::CPU },
    ],
};

/// Names of the attrs of the context and of the feature lists.
struct SequenceNames {
    context: AttrNames,
    lists: AttrNames,
}

const V1: SequenceNames = SequenceNames {
    context: AttrNames {
        sparse: "context_sparse_types",
        dense: "Tcontext_dense",
        shapes: "context_dense_shapes",
        ragged: "",
        splits: "",
    },
    lists: AttrNames {
        sparse: "feature_list_sparse_types",
        dense: "feature_list_dense_types",
        shapes: "feature_list_dense_shapes",
        ragged: "",
        splits: "",
    },
};
const V2: SequenceNames = SequenceNames {
    context: AttrNames {
        ragged: "context_ragged_value_types",
        splits: "context_ragged_split_types",
        ..V1.context
    },
    lists: AttrNames {
        ragged: "feature_list_ragged_value_types",
        splits: "feature_list_ragged_split_types",
        ..V1.lists
    },
};

/// The features of the context and the feature lists.
struct SequenceForms {
    context: Forms,
    lists: Forms,
}

impl SequenceForms {
    fn new(attrs: &NodeAttrs<'_>, names: &SequenceNames) -> Result<SequenceForms> {
        let forms = SequenceForms {
            context: Forms::new(attrs, &names.context)?,
            lists: Forms::new(attrs, &names.lists)?,
        };
        let mut rows = forms.context.dense.iter().chain(&forms.lists.dense);
        ensure!(
            !rows.any(|(_, row)| row.is_variable),
            InvalidArgument,
            "dense features of a sequence must have shapes that are fully defined"
        );
        Ok(forms)
    }
}

fn sequence_shapes(c: &mut ShapeContext<'_>, names: &SequenceNames, single: bool) -> Result<()> {
    let forms = SequenceForms::new(&c.attrs(), names)?;
    let batch = match single {
        true => c.with_rank(0, "serialized", 0)?,
        false => c.input(0).clone(),
    };
    ensure!(
        batch.rank().is_none_or(|r| r <= 1),
        InvalidArgument,
        "serialized must be a scalar or a vector, got shape {batch}"
    );
    set_shapes(c, &forms.context, &names.context, &batch, 0)?;
    if batch.rank() == Some(0) {
        // The row splits of a single sequence are unused scalars.
        let ragged = forms.context.ragged.len();
        let end = forms.context.num_outputs();
        (end - ragged..end).for_each(|i| c.set_output(i, PartialShape::scalar()));
    }
    set_list_shapes(c, &forms, names, &batch, !single)
}

fn set_list_shapes(
    c: &mut ShapeContext<'_>,
    forms: &SequenceForms,
    names: &SequenceNames,
    batch: &PartialShape,
    has_lengths: bool,
) -> Result<()> {
    let rank = batch.rank().map(|r| r + 2);
    let (num_sparse, num_dense) = (forms.lists.sparse.len(), forms.lists.dense.len());
    let num_ragged = forms.lists.ragged.len();
    let mut at = forms.context.num_outputs();
    for s in at..at + num_sparse {
        c.set_output(s, PartialShape::new([None, rank]));
        c.set_output(s + num_sparse, PartialShape::of_rank(1));
        c.set_output(s + 2 * num_sparse, PartialShape::new([rank]));
    }
    at += 3 * num_sparse;
    for (d, shape) in c.attrs().shapes(names.lists.shapes)?.iter().enumerate() {
        if let (Some(batch), Some(dims)) = (batch.dims(), shape.dims()) {
            let dims = batch.iter().chain(&[None]).chain(dims).copied();
            c.set_output(at + d, PartialShape::new(dims));
        }
        if has_lengths {
            c.set_output(at + num_dense + d, batch.clone());
        }
    }
    at += if has_lengths { 2 * num_dense } else { num_dense };
    for r in at..at + num_ragged {
        c.set_output(r, PartialShape::of_rank(1));
        let outer =
            batch.dims().map(|dims| PartialShape::new(dims.iter().map(|n| n.map(|n| n + 1))));
        c.set_output(r + num_ragged, outer.unwrap_or_else(PartialShape::unknown));
        c.set_output(r + 2 * num_ragged, PartialShape::of_rank(1));
    }
    Ok(())
}

fn parse_v1(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let forms = SequenceForms::new(&attrs, &V1)?;
    let context = forms.context.wanted(
        attrs.strings("context_sparse_keys")?,
        attrs.strings("context_dense_keys")?,
        &[],
    )?;
    let dense_keys = attrs.strings("feature_list_dense_keys")?;
    let lists = forms.lists.wanted(attrs.strings("feature_list_sparse_keys")?, dense_keys, &[])?;
    let missing = attrs.strings("feature_list_dense_missing_assumed_empty")?;
    let may_miss: Vec<bool> = dense_keys.iter().map(|key| missing.contains(key)).collect();
    AnyKernel::new(move |ctx| {
        let (serialized, names) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        let batch = sequence_batch(&serialized, names.strings()?)?;
        parse(ctx, &batch, &forms.context, &context, (2, 0))?;
        let wanted = WantedSteps {
            forms: &forms.lists,
            wanted: &lists,
            may_miss: &may_miss,
            has_lengths: true,
        };
        parse_steps(ctx, &batch, &wanted, forms.context.num_outputs())
    })
}

fn sequence_batch<'a>(
    serialized: &'a thalweg_tensor::Tensor,
    names: &'a [Bytes],
) -> Result<Batch<'a>> {
    let batch = Batch::new(serialized, names, &[0, 1])?;
    Ok(Batch { single_splits: Shape::scalar(), ..batch })
}

fn parse_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let forms = SequenceForms::new(&init.attrs(), &V2)?;
    AnyKernel::new(move |ctx| {
        let context = forms.context.wanted(
            keys(ctx, 2, "context_sparse_keys")?,
            keys(ctx, 3, "context_dense_keys")?,
            keys(ctx, 4, "context_ragged_keys")?,
        )?;
        let lists = forms.lists.wanted(
            keys(ctx, 5, "feature_list_sparse_keys")?,
            keys(ctx, 6, "feature_list_dense_keys")?,
            keys(ctx, 7, "feature_list_ragged_keys")?,
        )?;
        let may_miss = missing_flags(ctx, forms.lists.dense.len())?;
        let (serialized, names) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        let batch = sequence_batch(&serialized, names.strings()?)?;
        parse(ctx, &batch, &forms.context, &context, (9, 0))?;
        let wanted = WantedSteps {
            forms: &forms.lists,
            wanted: &lists,
            may_miss: &may_miss,
            has_lengths: true,
        };
        parse_steps(ctx, &batch, &wanted, forms.context.num_outputs())
    })
}

fn missing_flags(ctx: &KernelContext<'_>, dense: usize) -> Result<Vec<bool>> {
    let flags = ctx.input(8)?;
    ensure!(
        flags.shape().dims() == [dense],
        InvalidArgument,
        "feature_list_dense_missing_assumed_empty has shape {}, there are {dense} dense keys",
        flags.shape()
    );
    Ok(flags.as_slice::<bool>()?.to_vec())
}

fn parse_single(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let forms = SequenceForms::new(&init.attrs(), &V1)?;
    AnyKernel::new(move |ctx| {
        let dense_keys = scalar_keys(ctx, "feature_list_dense_keys")?;
        let context = forms.context.wanted(
            &scalar_keys(ctx, "context_sparse_keys")?,
            &scalar_keys(ctx, "context_dense_keys")?,
            &[],
        )?;
        let sparse_keys = scalar_keys(ctx, "feature_list_sparse_keys")?;
        let lists = forms.lists.wanted(&sparse_keys, &dense_keys, &[])?;
        let missing = keys(ctx, 1, "feature_list_dense_missing_assumed_empty")?;
        let may_miss: Vec<bool> = dense_keys.iter().map(|key| missing.contains(key)).collect();
        let first_default = ctx.input_range("context_dense_defaults")?.start;
        let names = ctx.input(ctx.input_range("debug_name")?.start)?.clone();
        let serialized = ctx.input(0)?.clone();
        if serialized.rank() != 0 {
            bail!(
                InvalidArgument,
                "Expected serialized to be a scalar, got shape {}",
                serialized.shape()
            );
        }
        let batch = sequence_batch(&serialized, names.strings()?)?;
        parse(ctx, &batch, &forms.context, &context, (first_default, 0))?;
        let wanted = WantedSteps {
            forms: &forms.lists,
            wanted: &lists,
            may_miss: &may_miss,
            has_lengths: false,
        };
        parse_steps(ctx, &batch, &wanted, forms.context.num_outputs())
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use thalweg_proto as pb;
    use thalweg_proto::feature::Kind;
    use thalweg_tensor::{Code, DType, Tensor};

    use super::*;
    use crate::testing::{Call, call, code, partial_shape};

    fn ints(values: &[i64]) -> pb::Feature {
        pb::Feature { kind: Some(Kind::Int64List(pb::Int64List { value: values.to_vec() })) }
    }

    /// A sequence with `c` in its context and a feature list `f` with these steps.
    fn sequence(context: &[i64], steps: Option<&[&[i64]]>) -> Bytes {
        let lists = steps.map(|steps| {
            let feature = steps.iter().map(|values| ints(values)).collect();
            pb::FeatureLists {
                feature_list: [("f".to_owned(), pb::FeatureList { feature })].into(),
            }
        });
        let example = pb::SequenceExample {
            context: Some(pb::Features { feature: [("c".to_owned(), ints(context))].into() }),
            feature_lists: lists,
        };
        example.encode_to_vec().into()
    }

    fn vector(items: &[Bytes]) -> Tensor {
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items.to_vec()).unwrap()
    }

    fn names(keys: &[&'static str]) -> Tensor {
        vector(&keys.iter().map(|&k| Bytes::from_static(k.as_bytes())).collect::<Vec<_>>())
    }

    /// A node that parses `f` as sparse, dense or ragged, and `c` as sparse and ragged.
    fn node(serialized: Tensor, sparse: bool, dense: Option<(&str, bool)>, ragged: bool) -> Call {
        let keys = |is: bool, key: &'static str| if is { names(&[key]) } else { names(&[]) };
        let types = |is: bool, dtype| if is { vec![dtype] } else { Vec::new() };
        let shapes: Vec<_> = dense.iter().map(|(shape, _)| partial_shape(shape)).collect();
        let flags: Vec<bool> = dense.iter().map(|(_, may_miss)| *may_miss).collect();
        call("ParseSequenceExampleV2")
            .input(serialized)
            .input(names(&[]))
            .input(names(&["c"]))
            .input(names(&[]))
            .input(names(&["c"]))
            .input(keys(sparse, "f"))
            .input(keys(dense.is_some(), "f"))
            .input(keys(ragged, "f"))
            .input(Tensor::vector(&flags).unwrap())
            .attr("Ncontext_sparse", 1)
            .attr("context_sparse_types", &[DType::Int64][..])
            .attr("context_ragged_value_types", &[DType::Int64][..])
            .attr("context_ragged_split_types", &[DType::Int64][..])
            .attr("Nfeature_list_sparse", i64::from(sparse))
            .attr("feature_list_sparse_types", &types(sparse, DType::Int64)[..])
            .attr("Nfeature_list_dense", i64::from(dense.is_some()))
            .attr("feature_list_dense_types", &types(dense.is_some(), DType::Int64)[..])
            .attr("feature_list_dense_shapes", &shapes[..])
            .attr("feature_list_ragged_value_types", &types(ragged, DType::Int64)[..])
            .attr("feature_list_ragged_split_types", &types(ragged, DType::Int64)[..])
    }

    fn run(call: Call) -> Vec<Vec<i64>> {
        let outputs = call.run_all().unwrap();
        outputs.iter().map(|t| t.as_slice::<i64>().unwrap().to_vec()).collect()
    }

    fn batch() -> Tensor {
        vector(&[sequence(&[1, 2], Some(&[&[1, 2], &[], &[3]])), sequence(&[3], Some(&[&[4]]))])
    }

    #[test]
    fn every_form() {
        let outputs = run(node(batch(), true, None, true).backwards());
        assert_eq!(outputs[..3], [vec![0, 0, 0, 1, 1, 0], vec![1, 2, 3], vec![2, 2]]);
        assert_eq!(outputs[3..5], [vec![1, 2, 3], vec![0, 2, 3]]);
        assert_eq!(outputs[5], [0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0]);
        assert_eq!(outputs[6..8], [vec![1, 2, 3, 4], vec![2, 3, 2]]);
        assert_eq!(outputs[8..], [vec![1, 2, 3, 4], vec![0, 3, 4], vec![0, 2, 2, 3, 4]]);
    }

    #[test]
    fn dense_lists_are_padded() {
        let two = vector(&[
            sequence(&[], Some(&[&[1, 2]])),
            sequence(&[], Some(&[&[3, 4], &[5, 6]])),
            sequence(&[], None),
        ]);
        let outputs = run(node(two.clone(), false, Some(("2", true)), false));
        assert_eq!(outputs[5..], [vec![1, 2, 0, 0, 3, 4, 5, 6, 0, 0, 0, 0], vec![1, 2, 0]]);
        assert_eq!(
            code(node(two, false, Some(("2", false)), false).run_all()),
            Some(Code::InvalidArgument)
        );
        for shape in ["", "3", "?"] {
            assert_eq!(
                code(node(batch(), false, Some((shape, true)), false).run_all()),
                Some(Code::InvalidArgument),
                "{shape}"
            );
        }
    }

    #[test]
    fn one_sequence_has_no_batch() {
        let one = Tensor::scalar_string(sequence(&[1], Some(&[&[1, 2], &[3, 4]])));
        let outputs = node(one, true, Some(("2", false)), true).run_all().unwrap();
        let dims: Vec<_> = outputs.iter().map(|t| t.shape().dims().to_vec()).collect();
        assert_eq!(dims[..5], [vec![1, 1], vec![1], vec![1], vec![1], vec![]]);
        assert_eq!(dims[5..8], [vec![4, 2], vec![4], vec![2]]);
        assert_eq!(dims[8..10], [vec![2, 2], vec![]]);
        assert_eq!(dims[10..], [vec![4], vec![], vec![3]]);
    }

    #[test]
    fn hostile_messages() {
        let good = sequence(&[1, 300], Some(&[&[1, 2], &[3]]));
        for at in 0..good.len() {
            let _ = node(vector(&[good.slice(..at)]), true, Some(("", true)), true).run_all();
            let mut bytes = good.to_vec();
            bytes[at] ^= 0x12;
            let _ = node(vector(&[bytes.into()]), true, None, true).run_all();
        }
    }
}
