//! Expansion of ops that TensorFlow's optimizer fuses.
//!
//! A TensorFlow master optimizes a graph before it sends workers their partitions, and creates ops
//! that programs do not use directly: a matrix product fused with bias and activation, a chain of
//! elementwise ops. They are expanded to the ops that they consist of.

use std::collections::BTreeSet;

use thalweg_proto as pb;

type Attrs = Vec<(String, pb::AttrValue)>;

/// Expands fused nodes in place; unknown ones are not changed.
pub fn unfuse(graph: &mut pb::GraphDef) {
    let mut moved: BTreeSet<String> = BTreeSet::new();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for node in std::mem::take(&mut graph.node) {
        let written = match node.op.as_str() {
            "_FusedMatMul" => product(&node, "MatMul", &["transpose_a", "transpose_b", "T"]),
            "_FusedConv2D" => product(&node, "Conv2D", CONVOLUTION),
            "_FusedDepthwiseConv2dNative" => product(&node, "DepthwiseConv2dNative", CONVOLUTION),
            "_UnaryOpsComposition" => chain(&node),
            "_FusedBatchNormEx" => normalization(&node),
            _ => None,
        };
        match written {
            Some(written) => {
                if node.op == "_FusedBatchNormEx" && written.len() > 1 {
                    moved.insert(node.name.clone());
                }
                nodes.extend(written);
            }
            None => nodes.push(node),
        }
    }
    for input in nodes.iter_mut().flat_map(|n| &mut n.input) {
        redirect(input, &moved);
    }
    graph.node = nodes;
}

const CONVOLUTION: &[&str] =
    &["T", "strides", "padding", "explicit_paddings", "data_format", "dilations"];

/// The statistics of a normalization are outputs of its first node, not of its last.
fn redirect(input: &mut String, moved: &BTreeSet<String>) {
    let Some((name, output)) = input.split_once(':') else { return };
    if output != "0" && moved.contains(name) {
        *input = format!("{}:{output}", first_name(name));
    }
}

fn first_name(name: &str) -> String {
    format!("{name}/unfused_0")
}

fn strings(node: &pb::NodeDef, attr: &str) -> Option<Vec<String>> {
    let Some(pb::attr_value::Value::List(list)) = node.attr.get(attr)?.value.as_ref() else {
        return None;
    };
    list.s.iter().map(|s| String::from_utf8(s.to_vec()).ok()).collect()
}

fn some_attrs(node: &pb::NodeDef, names: &[&str]) -> Attrs {
    let attr = |name: &&str| Some(((*name).to_owned(), node.attr.get(*name)?.clone()));
    names.iter().filter_map(attr).collect()
}

/// The nodes that replace a fused node: the last has its name, the first its control inputs.
struct Writer<'a> {
    of: &'a pb::NodeDef,
    nodes: Vec<pb::NodeDef>,
}

impl<'a> Writer<'a> {
    fn new(of: &'a pb::NodeDef) -> Self {
        Writer { of, nodes: Vec::new() }
    }

    /// Adds a node; returns its name.
    fn put(&mut self, op: &str, input: Vec<String>, attr: Attrs) -> String {
        let name = format!("{}/unfused_{}", self.of.name, self.nodes.len());
        let device = self.of.device.clone();
        let attr = attr.into_iter().collect();
        self.nodes.push(pb::NodeDef {
            name: name.clone(),
            op: op.into(),
            input,
            device,
            attr,
            ..Default::default()
        });
        name
    }

    /// Adds a node that reads the previous node and `more`.
    fn then(&mut self, op: &str, more: &[String], attr: Attrs) {
        let before = self.nodes.last().map(|n| n.name.clone());
        let input = before.into_iter().chain(more.iter().cloned()).collect();
        self.put(op, input, attr);
    }

    fn finish(mut self) -> Option<Vec<pb::NodeDef>> {
        let controls = self.of.input.iter().filter(|i| i.starts_with('^')).cloned();
        self.nodes.first_mut()?.input.extend(controls);
        self.nodes.last_mut()?.name.clone_from(&self.of.name);
        Some(self.nodes)
    }
}

fn data_inputs(node: &pb::NodeDef) -> Vec<String> {
    node.input.iter().filter(|i| !i.starts_with('^')).cloned().collect()
}

/// A product or convolution, followed by the ops that were fused with it.
fn product(node: &pb::NodeDef, op: &str, attrs: &[&str]) -> Option<Vec<pb::NodeDef>> {
    let inputs = data_inputs(node);
    let (own, mut args) = inputs.split_at_checked(2)?;
    let mut writer = Writer::new(node);
    writer.put(op, own.to_vec(), some_attrs(node, attrs));
    for fused in strings(node, "fused_ops")? {
        let count = match fused.as_str() {
            "BiasAdd" | "Add" => 1,
            "FusedBatchNorm" => 4,
            _ => 0,
        };
        let (taken, rest) = args.split_at_checked(count)?;
        args = rest;
        let t = some_attrs(node, &["T"]);
        match fused.as_str() {
            "BiasAdd" => writer.then("BiasAdd", taken, some_attrs(node, &["T", "data_format"])),
            "Add" => writer.then("AddV2", taken, t),
            "FusedBatchNorm" => {
                let mut attrs = some_attrs(node, &["T", "epsilon", "data_format"]);
                attrs.push(("U".into(), type_of(pb::DataType::DtFloat)));
                attrs.push(("is_training".into(), flag(false)));
                writer.then("FusedBatchNormV3", taken, attrs);
            }
            "LeakyRelu" => {
                let alpha = node.attr.get("leakyrelu_alpha").cloned();
                let alpha = alpha.map(|value| ("alpha".to_owned(), value));
                writer.then("LeakyRelu", &[], t.into_iter().chain(alpha).collect());
            }
            "Relu" | "Relu6" | "Elu" | "Tanh" | "Sigmoid" => writer.then(&fused, &[], t),
            "GeluExact" => gelu(&mut writer, true)?,
            "GeluApproximate" => gelu(&mut writer, false)?,
            _ => return None,
        }
    }
    if args.is_empty() { writer.finish() } else { None }
}

/// `x / 2 * (1 + erf(x / sqrt(2)))` of the last node, or its approximation by tanh.
fn gelu(writer: &mut Writer<'_>, is_exact: bool) -> Option<()> {
    let x = writer.nodes.last()?.name.clone();
    let dtype = writer.of.attr.get("T")?.clone();
    let t = || vec![("T".to_owned(), dtype.clone())];
    let number = |writer: &mut Writer<'_>, value: f64| {
        // The control edge places the constant in the loop iteration of `x`.
        let wide = writer.put("Const", vec![format!("^{x}")], double(value));
        let types = [("SrcT", type_of(pb::DataType::DtDouble)), ("DstT", dtype.clone())];
        writer.put("Cast", vec![wide], types.map(|(n, v)| (n.to_owned(), v)).to_vec())
    };
    let bent = if is_exact {
        let scale = number(writer, std::f64::consts::FRAC_1_SQRT_2);
        let scaled = writer.put("Mul", vec![x.clone(), scale], t());
        writer.put("Erf", vec![scaled], t())
    } else {
        let (cubic, scale) = (number(writer, 0.044_715), number(writer, SQRT_2_BY_PI));
        let square = writer.put("Mul", vec![x.clone(), x.clone()], t());
        let cube = writer.put("Mul", vec![square, x.clone()], t());
        let part = writer.put("Mul", vec![cube, cubic], t());
        let sum = writer.put("AddV2", vec![x.clone(), part], t());
        let scaled = writer.put("Mul", vec![sum, scale], t());
        writer.put("Tanh", vec![scaled], t())
    };
    let (one, half) = (number(writer, 1.0), number(writer, 0.5));
    let share = writer.put("AddV2", vec![bent, one], t());
    let halved = writer.put("Mul", vec![x.clone(), half], t());
    writer.put("Mul", vec![halved, share], t());
    Some(())
}

const SQRT_2_BY_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// The attrs of a scalar constant.
fn double(value: f64) -> Attrs {
    let tensor = pb::TensorProto {
        dtype: pb::DataType::DtDouble as i32,
        tensor_shape: Some(pb::TensorShapeProto::default()),
        double_val: vec![value],
        ..Default::default()
    };
    let value = pb::AttrValue { value: Some(pb::attr_value::Value::Tensor(Box::new(tensor))) };
    vec![("dtype".to_owned(), type_of(pb::DataType::DtDouble)), ("value".to_owned(), value)]
}

/// Elementwise ops in sequence.
fn chain(node: &pb::NodeDef) -> Option<Vec<pb::NodeDef>> {
    let ops = strings(node, "op_names")?;
    let mut writer = Writer::new(node);
    for (i, op) in ops.iter().enumerate() {
        let t = some_attrs(node, &["T"]);
        match i {
            0 => drop(writer.put(op, data_inputs(node), t)),
            _ => writer.then(op, &[], t),
        }
    }
    writer.finish()
}

/// A normalization, optionally with a side input and an activation.
fn normalization(node: &pb::NodeDef) -> Option<Vec<pb::NodeDef>> {
    let inputs = data_inputs(node);
    let (own, side) = inputs.split_at_checked(5)?;
    let names = ["T", "U", "epsilon", "exponential_avg_factor", "data_format", "is_training"];
    let mut writer = Writer::new(node);
    writer.put("FusedBatchNormV3", own.to_vec(), some_attrs(node, &names));
    let t = || some_attrs(node, &["T"]);
    match side {
        [] => {}
        [_] => writer.then("AddV2", side, t()),
        _ => return None,
    }
    match node.attr.get("activation_mode").and_then(|a| a.value.as_ref()) {
        None => {}
        Some(pb::attr_value::Value::S(mode)) if mode == "Identity".as_bytes() => {}
        Some(pb::attr_value::Value::S(mode)) if mode == "Relu".as_bytes() => {
            writer.then("Relu", &[], t());
        }
        Some(_) => return None,
    }
    writer.finish()
}

fn flag(value: bool) -> pb::AttrValue {
    pb::AttrValue { value: Some(pb::attr_value::Value::B(value)) }
}

fn type_of(dtype: pb::DataType) -> pb::AttrValue {
    pb::AttrValue { value: Some(pb::attr_value::Value::Type(dtype as i32)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, op: &str, input: &[&str], lists: &[(&str, &[&str])]) -> pb::NodeDef {
        let list = |items: &[&str]| pb::AttrValue {
            value: Some(pb::attr_value::Value::List(Box::new(pb::attr_value::ListValue {
                s: items.iter().map(|s| s.as_bytes().to_vec().into()).collect(),
                ..Default::default()
            }))),
        };
        let mut attr: std::collections::BTreeMap<String, pb::AttrValue> =
            lists.iter().map(|(name, items)| ((*name).to_owned(), list(items))).collect();
        attr.insert("T".into(), type_of(pb::DataType::DtFloat));
        pb::NodeDef {
            name: name.into(),
            op: op.into(),
            input: input.iter().map(|&i| i.to_owned()).collect(),
            attr: attr.into_iter().collect(),
            ..Default::default()
        }
    }

    fn text(nodes: Vec<pb::NodeDef>) -> Vec<String> {
        let mut graph = pb::GraphDef { node: nodes, ..Default::default() };
        unfuse(&mut graph);
        let line = |n: &pb::NodeDef| format!("{} = {}({})", n.name, n.op, n.input.join(", "));
        graph.node.iter().map(line).collect()
    }

    #[test]
    fn products_with_what_follows() {
        let fused: &[&str] = &["BiasAdd", "Relu"];
        let given = node("y", "_FusedMatMul", &["a", "b", "c", "^late"], &[("fused_ops", fused)]);
        assert_eq!(
            text(vec![given]),
            [
                "y/unfused_0 = MatMul(a, b, ^late)",
                "y/unfused_1 = BiasAdd(y/unfused_0, c)",
                "y = Relu(y/unfused_1)"
            ]
        );
        // Unknown fused ops are not changed.
        let odd =
            node("y", "_FusedMatMul", &["a", "b", "c"], &[("fused_ops", &["BiasAdd", "Odd"])]);
        assert_eq!(text(vec![odd]), ["y = _FusedMatMul(a, b, c)"]);
        let short = node("y", "_FusedMatMul", &["a", "b"], &[("fused_ops", &["BiasAdd"])]);
        assert_eq!(text(vec![short]), ["y = _FusedMatMul(a, b)"]);
    }

    #[test]
    fn gelu_is_written_out() {
        for (kind, middle) in [("GeluExact", "Erf"), ("GeluApproximate", "Tanh")] {
            let given = node("y", "_FusedMatMul", &["a", "b"], &[("fused_ops", &[kind])]);
            let lines = text(vec![given]);
            assert_eq!(lines[0], "y/unfused_0 = MatMul(a, b)");
            assert_eq!(lines[1], "y/unfused_1 = Const(^y/unfused_0)");
            assert_eq!(lines[2], "y/unfused_2 = Cast(y/unfused_1)");
            assert_eq!(lines.iter().filter(|l| l.contains(&format!("= {middle}("))).count(), 1);
            assert!(lines.last().is_some_and(|l| l.starts_with("y = Mul(")), "{lines:?}");
        }
    }

    #[test]
    fn chains_and_normalizations() {
        let ops: &[&str] = &["Sqrt", "Neg"];
        let given = node("y", "_UnaryOpsComposition", &["x:1"], &[("op_names", ops)]);
        assert_eq!(text(vec![given]), ["y/unfused_0 = Sqrt(x:1)", "y = Neg(y/unfused_0)"]);
        let mut norm = node("n", "_FusedBatchNormEx", &["x", "s", "o", "m", "v", "z"], &[]);
        let relu = pb::attr_value::Value::S("Relu".as_bytes().to_vec().into());
        norm.attr.insert("activation_mode".into(), pb::AttrValue { value: Some(relu) });
        let reader = node("r", "AddN", &["n", "n:2", "^n"], &[]);
        assert_eq!(
            text(vec![norm, reader]),
            [
                "n/unfused_0 = FusedBatchNormV3(x, s, o, m, v)",
                "n/unfused_1 = AddV2(n/unfused_0, z)",
                "n = Relu(n/unfused_1)",
                "r = AddN(n, n/unfused_0:2, ^n)"
            ]
        );
    }
}
