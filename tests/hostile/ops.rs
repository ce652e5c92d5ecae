//! Generated graphs of one node: any op, with random shapes, dtypes and attrs, valid or not.

use std::sync::Arc;

use thalweg::graph::{ArgType, AttrDef, AttrKind, Op};
use thalweg::kernel::KernelSpec;
use thalweg::prelude::*;
use thalweg::proto::{self as pb, attr_value::Value as Attr};

use crate::random::Random;

/// An op with its kernels.
pub(crate) struct Subject {
    op: Arc<Op>,
    kernels: Vec<KernelSpec>,
}

impl Subject {
    pub(crate) fn name(&self) -> &str {
        &self.op.name
    }
}

/// Every op that has a kernel.
pub(crate) fn all() -> Vec<Subject> {
    let registry = thalweg::registry();
    let subject = |op: &Arc<Op>| Subject {
        op: op.clone(),
        kernels: registry.kernels.for_op(&op.name).to_vec(),
    };
    let ops = registry.ops.defined();
    ops.into_iter().map(subject).filter(|s| !s.kernels.is_empty()).collect()
}

/// A graph of one node of this op and of what it reads.
pub(crate) fn invent(subject: &Subject, random: &mut Random) -> pb::GraphDef {
    let mut graph = pb::GraphDef::default();
    let mut node =
        pb::NodeDef { name: "op".into(), op: subject.op.name.clone(), ..Default::default() };
    for attr in &subject.op.attrs {
        // Some are left to their defaults.
        if attr.default.is_none() || random.one_in(2) {
            let value = attr_value(subject, attr, random);
            node.attr.insert(attr.name.clone(), pb::AttrValue { value: Some(value) });
        }
    }
    // Inputs that fit each other get farther than those that do not.
    let base = shape(random);
    for arg in &subject.op.inputs {
        for dtype in dtypes_of(subject, &node, arg) {
            let name = format!("in{}", graph.node.len());
            graph.node.extend(source(&name, dtype, arg.is_ref, &base, random));
            node.input.push(name);
        }
    }
    graph.node.push(node);
    graph
}

/// Dtypes of the tensors that an argument stands for.
fn dtypes_of(subject: &Subject, node: &pb::NodeDef, arg: &thalweg::graph::ArgDef) -> Vec<DType> {
    let attr = |name: &str| {
        let given = node.attr.get(name).cloned();
        let default = || Some(subject.op.attr(name)?.default.as_ref()?.to_proto());
        given.or_else(default).and_then(|a| a.value)
    };
    let dtype = |number: i32| DType::from_proto(number).unwrap_or(DType::Float);
    let one = match &arg.ty {
        ArgType::Fixed(dtype) => *dtype,
        ArgType::ListAttr(name) => {
            let Some(Attr::List(list)) = attr(name) else { return Vec::new() };
            return list.r#type.iter().map(|&t| dtype(t)).collect();
        }
        ArgType::Attr(name) => match attr(name) {
            Some(Attr::Type(t)) => dtype(t),
            _ => DType::Float,
        },
    };
    let count = match arg.number_attr.as_deref().map(attr) {
        None => 1,
        Some(Some(Attr::I(n))) => n.clamp(0, 8) as usize,
        Some(_) => 2,
    };
    vec![one; count]
}

fn shape(random: &mut Random) -> Vec<usize> {
    let rank = [0, 1, 1, 2, 2, 3, 4, 4, 5][random.below(9)];
    (0..rank).map(|_| if random.one_in(8) { 0 } else { 1 + random.below(4) }).collect()
}

/// The shape of one input: the common one, a part of it, or another.
fn input_shape(base: &[usize], is_index: bool, random: &mut Random) -> Vec<usize> {
    match random.below(if is_index { 8 } else { 6 }) {
        0..=2 => base.to_vec(),
        3 => base.get(..random.below(base.len() + 1)).unwrap_or(&[]).to_vec(),
        4 => base.get(random.below(base.len() + 1)..).unwrap_or(&[]).to_vec(),
        5 => shape(random),
        // A scalar, or one number for each dimension.
        6 => Vec::new(),
        _ => vec![base.len()],
    }
}

/// The nodes that give a tensor; its shape is not always known before it is there.
fn source(
    name: &str,
    dtype: DType,
    is_ref: bool,
    base: &[usize],
    random: &mut Random,
) -> Vec<pb::NodeDef> {
    let is_index = matches!(dtype, DType::Int32 | DType::Int64);
    let dims = input_shape(base, is_index, random);
    let dim = |&d: &usize| pb::tensor_shape_proto::Dim { size: d as i64, ..Default::default() };
    let shape = pb::TensorShapeProto { dim: dims.iter().map(dim).collect(), ..Default::default() };
    let node = |name: &str, op: &str, inputs: &[&str], attrs: Vec<(&str, Attr)>| pb::NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|&i| i.to_owned()).collect(),
        attr: attrs
            .into_iter()
            .map(|(k, v)| (k.to_owned(), pb::AttrValue { value: Some(v) }))
            .collect(),
        ..Default::default()
    };
    let dtype_attr = ("dtype", Attr::Type(dtype.to_proto()));
    if is_ref {
        return vec![node(
            name,
            "VariableV2",
            &[],
            vec![dtype_attr, ("shape", Attr::Shape(shape))],
        )];
    }
    if dtype == DType::Resource {
        let float = ("dtype", Attr::Type(DType::Float.to_proto()));
        return vec![node(name, "VarHandleOp", &[], vec![float, ("shape", Attr::Shape(shape))])];
    }
    let count: usize = dims.iter().product();
    let tensor = pb::TensorProto {
        dtype: dtype.to_proto(),
        tensor_shape: Some(shape),
        ..content(dtype, count, random)
    };
    let value = ("value", Attr::Tensor(Box::new(tensor)));
    if random.one_in(2) || dtype == DType::Variant {
        return vec![node(name, "Const", &[], vec![dtype_attr, value])];
    }
    let unknown = pb::TensorShapeProto { unknown_rank: true, ..Default::default() };
    let hidden = format!("{name}_value");
    vec![
        node(&hidden, "Const", &[], vec![dtype_attr.clone(), value]),
        node(
            name,
            "PlaceholderWithDefault",
            &[&hidden],
            vec![dtype_attr, ("shape", Attr::Shape(unknown))],
        ),
    ]
}

/// `count` elements: numbers that could be meant, edges, NaN, bytes that are no text.
fn content(dtype: DType, count: usize, random: &mut Random) -> pb::TensorProto {
    let mut proto = pb::TensorProto::default();
    let orderly = random.one_in(3);
    for i in 0..count {
        let number = if orderly { i as i64 % 7 } else { random.size() };
        match dtype {
            DType::String => {
                let words: [&[u8]; 8] = [
                    b"",
                    b"a",
                    b"12",
                    b"-1.5e3",
                    b"a b,c",
                    b"\xff\xfe\x80",
                    "\u{e9}t\u{e9}".as_bytes(),
                    b"[(*",
                ];
                proto.string_val.push(words[random.below(8)].to_vec().into());
            }
            DType::Bool => proto.bool_val.push(number & 1 == 1),
            DType::Float => proto.float_val.push(float(number, random) as f32),
            DType::Double => proto.double_val.push(float(number, random)),
            DType::Complex64 => {
                proto.scomplex_val.extend([float(number, random) as f32, number as f32]);
            }
            DType::Complex128 => proto.dcomplex_val.extend([float(number, random), number as f64]),
            DType::Half | DType::BFloat16 => proto.half_val.push((random.next() & 0xffff) as i32),
            DType::Int64 => proto.int64_val.push(number),
            DType::UInt64 => proto.uint64_val.push(number as u64),
            DType::UInt32 => proto.uint32_val.push(number as u32),
            _ => proto.int_val.push(number as i32),
        }
    }
    proto
}

fn float(number: i64, random: &mut Random) -> f64 {
    match random.below(20) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => 1e300,
        4 => 1e-320,
        _ => number as f64 + (random.below(100) as f64) / 100.0,
    }
}

fn attr_value(subject: &Subject, attr: &AttrDef, random: &mut Random) -> Attr {
    if attr.is_list {
        let length = attr.minimum.unwrap_or(0).clamp(0, 6) as usize;
        let length = if random.one_in(3) { random.below(6) } else { length.max(random.below(5)) };
        let mut list = pb::attr_value::ListValue::default();
        for _ in 0..length {
            match one_value(subject, attr, random) {
                Attr::I(x) => list.i.push(x),
                Attr::F(x) => list.f.push(x),
                Attr::B(x) => list.b.push(x),
                Attr::S(x) => list.s.push(x),
                Attr::Type(x) => list.r#type.push(x),
                Attr::Shape(x) => list.shape.push(x),
                Attr::Tensor(x) => list.tensor.push(*x),
                Attr::Func(x) => list.func.push(x),
                _ => {}
            }
        }
        return Attr::List(Box::new(list));
    }
    one_value(subject, attr, random)
}

fn one_value(subject: &Subject, attr: &AttrDef, random: &mut Random) -> Attr {
    match attr.kind {
        AttrKind::Int => Attr::I(random.size().max(if random.one_in(4) { i64::MIN } else { 1 })),
        AttrKind::Float => Attr::F(float(random.size(), random) as f32),
        AttrKind::Bool => Attr::B(random.one_in(2)),
        AttrKind::String => {
            let allowed = random.pick(&attr.allowed_strings).map(|s| s.clone().into_bytes());
            let words: [&[u8]; 6] = [b"", b"utf-8", b"%d {} x", b"(a|b)*", b"\xff", b"NCHW"];
            let other = words[random.below(6)].to_vec();
            Attr::S(allowed.filter(|_| !random.one_in(16)).unwrap_or(other).into())
        }
        AttrKind::Type => Attr::Type(dtype(subject, attr, random).to_proto()),
        AttrKind::Shape => {
            let dim = |random: &mut Random| pb::tensor_shape_proto::Dim {
                size: random.size(),
                ..Default::default()
            };
            let dim = (0..random.below(4)).map(|_| dim(random)).collect();
            Attr::Shape(pb::TensorShapeProto { dim, unknown_rank: random.one_in(4) })
        }
        AttrKind::Tensor => Attr::Tensor(Box::new(pb::TensorProto {
            dtype: DType::Float.to_proto(),
            ..content(DType::Float, 1, random)
        })),
        AttrKind::Func => Attr::Func(pb::NameAttrList { name: "f".into(), ..Default::default() }),
    }
}

/// Mostly a dtype that a kernel takes.
fn dtype(subject: &Subject, attr: &AttrDef, random: &mut Random) -> DType {
    const ANY: [DType; 8] = [
        DType::Float,
        DType::Double,
        DType::Int32,
        DType::Int64,
        DType::String,
        DType::Bool,
        DType::UInt8,
        DType::Complex64,
    ];
    let kernel = random.pick(&subject.kernels).map_or(&[][..], |k| k.constraints);
    let taken = kernel.iter().find(|(name, _)| *name == attr.name).map_or(&[][..], |c| c.1);
    let choices = match (taken, &attr.allowed_types[..]) {
        _ if random.one_in(16) => &ANY[..],
        ([], []) => &ANY[..],
        ([], allowed) => allowed,
        (taken, _) => taken,
    };
    *random.pick(choices).unwrap_or(&DType::Float)
}
