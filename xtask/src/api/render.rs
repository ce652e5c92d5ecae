//! One op as Rust: a function, and a builder if it has optional attrs.

use std::collections::BTreeSet;

use super::table::{Arg, Attr, Op, Type};

/// Most outputs that are returned as a tuple; more become a struct with named fields.
const TUPLE_MAX: usize = 3;

/// Words that cannot name a function or parameter, or that mean something else here.
const RESERVED: &[&str] = &[
    "as", "box", "break", "const", "continue", "else", "enum", "fn", "for", "g", "if", "impl",
    "in", "let", "loop", "match", "mod", "move", "mut", "op", "pub", "ref", "return", "self",
    "static", "struct", "super", "switch_", "trait", "type", "unsafe", "use", "where", "while",
    "yield",
];

/// The signature of an op's function, and its body.
struct Signature {
    generics: Vec<String>,
    /// `name: type`.
    params: Vec<String>,
    names: Vec<String>,
    returns: String,
    /// Calls on the `NewOp`.
    calls: String,
    /// What is made of the node.
    result: String,
    /// Where the node is added: `new(g` or `on(&x`.
    place: String,
}

pub(super) fn op(op: &Op, sentence: Option<&str>) -> String {
    let options: Vec<&Attr> = op.attrs.iter().filter(|attr| is_option(op, attr)).collect();
    let signature = signature(op);
    let function = safe(&snake(&op.name));
    let Signature { generics, params, names, returns, calls, result, place } = &signature;
    let generics = match &generics[..] {
        [] => String::new(),
        list => {
            let bounds: Vec<String> = list.iter().map(|g| format!("{g}: TensorType")).collect();
            format!("<{}>", bounds.join(", "))
        }
    };
    let (params, names) = (params.join(", "), names.join(", "));
    let mut text = String::from("\n");
    text += &outputs_struct(op);
    text += &documentation(op, sentence, !options.is_empty());
    let body = |begin: &str| {
        let begin = format!("{begin}{place}, {:?})", op.name);
        match &**result {
            "" => format!("{begin}{calls}.operation()"),
            only if only.starts_with('.') => format!("{begin}{calls}{only}"),
            _ => format!("let built = {begin}{calls}.build(); {result}"),
        }
    };
    if options.is_empty() {
        text += &format!(
            "#[track_caller]\npub fn {function}{generics}({params}) -> {returns} {{ {} }}\n",
            body("NewOp::")
        );
        return text;
    }
    let name = &op.name;
    text += &format!(
        "#[track_caller]\npub fn {function}{generics}({params}) -> {returns} {{ \
         {name}::new().build({names}) }}\n"
    );
    text += &format!("options! {{ {name} {{\n");
    for attr in options {
        text += &option(attr);
    }
    let comma = if params.is_empty() { "" } else { ", " };
    text += &format!(
        "}} }}\nimpl {name} {{\n/// Adds the node: see [`{function}()`].\n#[track_caller]\npub fn \
         build{generics}(&self{comma}{params}) -> {returns} {{ {} }}\n}}\n",
        body("self.0.")
    );
    text
}

/// One line of the builder: a setter.
fn option(attr: &Attr) -> String {
    let mut setter = safe(&snake(&attr.name));
    if ["new", "name", "build"].contains(&&*setter) {
        setter += "_attr";
    }
    let default = attr.default.as_deref().unwrap_or("none");
    let (ty, value) = attr_type(attr);
    let value = if value == "value" { String::new() } else { format!(", |value| {value}") };
    format!("{setter}: {ty} = {:?}, {default:?}{value};\n", attr.name)
}

fn documentation(op: &Op, sentence: Option<&str>, has_options: bool) -> String {
    let mut text = format!("/// `{}`", op.name);
    text += &sentence.map_or(".".into(), |sentence| format!(": {sentence}"));
    let mut facts = Vec::new();
    for (attr, names) in &op.dtypes {
        let is_of_argument = op.inputs.iter().chain(&op.outputs).any(|arg| arg.is_of(attr));
        if is_of_argument {
            facts.push(format!("`{}`: {names}.", camel(attr)));
        }
    }
    facts.push(
        match &*op.gradient {
            "yes" => "Has a gradient.",
            "none" => "No gradient passes.",
            _ => "Has no gradient.",
        }
        .into(),
    );
    if op.outputs.len() > 1 {
        let names: Vec<String> = op.outputs.iter().map(|out| format!("`{}`", out.name)).collect();
        facts.push(format!("Returns {}.", names.join(", ")));
    }
    if has_options {
        facts.push(format!("Options: [`{}`].", op.name));
    }
    let has_types = facts.len() > 1 && facts[0].starts_with('`');
    let between = if has_types { "\n///\n///" } else { "" };
    text + &format!("{between} {}\n", facts.join(" "))
}

/// The struct of many outputs; empty for few.
fn outputs_struct(op: &Op) -> String {
    if op.outputs.len() <= TUPLE_MAX {
        return String::new();
    }
    let mut text = format!("/// Outputs of [`{}`].\n", safe(&snake(&op.name)));
    text += &format!("#[derive(Clone, Debug)]\npub struct {} {{\n", outputs_type(op, true));
    for output in &op.outputs {
        let name = safe(&snake(&output.name));
        text += &format!("/// `{}`.\npub {name}: {},\n", output.name, output_type(output));
    }
    text + "}\n\n"
}

/// `FusedBatchNormV3Outputs<T, U>`, with bounds in the definition.
fn outputs_type(op: &Op, is_definition: bool) -> String {
    let mut generics: Vec<String> = Vec::new();
    for output in &op.outputs {
        if let Type::Attr(attr) = &output.ty
            && !generics.contains(&camel(attr))
        {
            generics.push(camel(attr));
        }
    }
    let bound = if is_definition { ": TensorType" } else { "" };
    let list: Vec<String> = generics.iter().map(|name| format!("{name}{bound}")).collect();
    let list = if list.is_empty() { String::new() } else { format!("<{}>", list.join(", ")) };
    format!("{}Outputs{list}", op.name)
}

fn output_type(output: &Arg) -> String {
    let element = element(output);
    match output.is_list() {
        true => format!("Vec<Output<{element}>>"),
        false => format!("Output<{element}>"),
    }
}

/// Whether an attr is set by the builder: it has a default and no argument determines it.
fn is_option(op: &Op, attr: &Attr) -> bool {
    attr.default.is_some() && !is_inferred(op, attr) && !is_generic(op, attr)
}

/// Whether the inputs determine the attr.
fn is_inferred(op: &Op, attr: &Attr) -> bool {
    op.inputs.iter().any(|arg| arg.is_of(&attr.name) || arg.number.as_deref() == Some(&*attr.name))
}

/// Whether the attr is the element type of outputs alone.
fn is_generic(op: &Op, attr: &Attr) -> bool {
    attr.kind == "type"
        && !attr.is_list
        && !is_inferred(op, attr)
        && op.outputs.iter().any(|arg| arg.is_of(&attr.name))
}

/// The input that tells the graph, which is not a Rust value: the first, or if that is an integer as
/// axes are, the first of the type `T`. None if the first input is a list: then the graph is a
/// parameter.
fn handle(op: &Op) -> Option<usize> {
    let first = op.inputs.first().filter(|input| !input.is_list())?;
    let is_integer = matches!(&first.ty, Type::Fixed(ty) if ty == "int32" || ty == "int64");
    let data = || op.inputs.iter().position(|input| !input.is_list() && input.is_of("T"));
    if is_integer { data().or(Some(0)) } else { Some(0) }
}

fn signature(op: &Op) -> Signature {
    let mut s = Signature {
        generics: Vec::new(),
        params: Vec::new(),
        names: Vec::new(),
        returns: String::new(),
        calls: String::new(),
        result: String::new(),
        place: "new(g".into(),
    };
    let param = |s: &mut Signature, name: &str, ty: &str| {
        s.params.push(format!("{name}: {ty}"));
        s.names.push(name.to_owned());
    };
    if handle(op).is_none() {
        param(&mut s, "g", "&Graph");
    }
    for attr in op.attrs.iter().filter(|attr| is_generic(op, attr)) {
        s.generics.push(camel(&attr.name));
        s.calls += &format!(".dtype::<{}>({:?})", camel(&attr.name), attr.name);
    }
    for attr in op.attrs.iter().filter(|attr| attr.kind == "type" && !attr.is_list) {
        if is_inferred(op, attr) {
            s.generics.push(camel(&attr.name));
        }
    }
    let mut counted = BTreeSet::new();
    for (i, input) in op.inputs.iter().enumerate() {
        let name = safe(&snake(&input.name));
        let element = element(input);
        let is_handle = handle(op) == Some(i);
        let ty = match (input.is_list(), is_handle) {
            (true, _) => format!("&[Output<{element}>]"),
            (false, true) => format!("impl Handle<{element}>"),
            (false, false) => format!("impl Operand<{element}>"),
        };
        param(&mut s, &name, &ty);
        if is_handle {
            s.place = format!("on(&{name}");
        }
        let call = if input.is_list() { "inputs" } else { "input" };
        s.calls += &format!(".{call}({name})");
        s.calls += &list_attrs(op, input, &name, &mut counted);
    }
    let inputs: BTreeSet<String> = s.names.iter().cloned().collect();
    for attr in &op.attrs {
        if is_inferred(op, attr) || is_generic(op, attr) || attr.default.is_some() {
            continue;
        }
        let mut name = safe(&snake(&attr.name));
        if inputs.contains(&name) {
            name += "_attr";
        }
        let (ty, value) = attr_type(attr);
        param(&mut s, &name, &ty);
        s.calls += &format!(".attr({:?}, {})", attr.name, value.replace("value", &name));
    }
    results(op, &mut s);
    s
}

/// Sets the attrs that a list of inputs determines.
fn list_attrs(op: &Op, input: &Arg, name: &str, counted: &mut BTreeSet<String>) -> String {
    let mut calls = String::new();
    if let Some(number) = &input.number
        && counted.insert(number.clone())
    {
        calls += &format!(".attr({number:?}, {name}.len() as i64)");
    }
    match &input.ty {
        Type::List(attr) if counted.insert(attr.clone()) => {
            calls += &format!(".attr({attr:?}, &dtypes_of({name})[..])");
        }
        // A list may be empty: then its type cannot be inferred.
        Type::Attr(attr)
            if op.inputs.iter().filter(|arg| arg.is_of(attr)).all(Arg::is_list)
                && counted.insert(attr.clone()) =>
        {
            calls += &format!(".dtype::<{}>({attr:?})", camel(attr));
        }
        _ => {}
    }
    calls
}

/// The type and the value of what the function returns.
fn results(op: &Op, s: &mut Signature) {
    let (mut types, mut values) = (Vec::new(), Vec::new());
    let has_lists = op.outputs.iter().any(Arg::is_list);
    for (i, output) in op.outputs.iter().enumerate() {
        types.push(output_type(output));
        values.push(match (output.is_list(), has_lists) {
            (true, _) => format!("built.outputs({:?}, {})", output.name, count(op, output)),
            (false, true) => format!("built.named({:?})", output.name),
            (false, false) => format!("built.output({i})"),
        });
    }
    match &types[..] {
        [] => s.returns = "Operation".into(),
        [only] => {
            s.returns.clone_from(only);
            s.result = if has_lists { values.remove(0) } else { ".output()".into() };
        }
        _ if types.len() <= TUPLE_MAX => {
            s.returns = format!("({})", types.join(", "));
            s.result = format!("({})", values.join(", "));
        }
        _ => {
            s.returns = outputs_type(op, false);
            let fields = op.outputs.iter().zip(values);
            let fields: Vec<String> = fields
                .map(|(output, value)| format!("{}: {value}", safe(&snake(&output.name))))
                .collect();
            s.result = format!("{}Outputs {{ {} }}", op.name, fields.join(", "));
        }
    }
}

/// The number of tensors of a list of outputs, from the parameters.
fn count(op: &Op, output: &Arg) -> String {
    let of_input = |input: &&Arg| match (&output.number, &output.ty) {
        (Some(number), _) => input.number.as_ref() == Some(number),
        (None, ty) => input.ty == *ty,
    };
    if let Some(input) = op.inputs.iter().find(of_input) {
        return format!("{}.len()", safe(&snake(&input.name)));
    }
    let (name, is_number) = match (&output.number, &output.ty) {
        (Some(number), _) => (number, true),
        (None, Type::List(name) | Type::Attr(name) | Type::Fixed(name)) => (name, false),
    };
    let has_default = op.attrs.iter().any(|attr| attr.name == *name && attr.default.is_some());
    let mut param = safe(&snake(name));
    if op.inputs.iter().any(|input| safe(&snake(&input.name)) == param) {
        param += "_attr";
    }
    match (has_default, is_number) {
        (true, _) => "0".into(),
        (false, true) => format!("usize::try_from({param}).unwrap_or(0)"),
        (false, false) => format!("{param}.len()"),
    }
}

/// The Rust type of an argument's elements.
fn element(arg: &Arg) -> String {
    let base = match &arg.ty {
        Type::List(_) => "Untyped".into(),
        Type::Attr(attr) => camel(attr),
        Type::Fixed(dtype) => match &**dtype {
            "float" => "f32",
            "double" => "f64",
            "half" => "f16",
            "bfloat16" => "bf16",
            "int8" => "i8",
            "int16" => "i16",
            "int32" => "i32",
            "int64" => "i64",
            "uint8" => "u8",
            "uint16" => "u16",
            "uint32" => "u32",
            "uint64" => "u64",
            "bool" => "bool",
            "string" => "String",
            "complex64" => "Complex32",
            "complex128" => "Complex64",
            "resource" => "Resource",
            "variant" => "Variant",
            "qint8" => "QInt8",
            "quint8" => "QUInt8",
            "qint32" => "QInt32",
            _ => "Untyped",
        }
        .into(),
    };
    if arg.is_ref { format!("Ref<{base}>") } else { base }
}

/// The Rust type of an attr, and the expression that makes it an attr of `value`.
fn attr_type(attr: &Attr) -> (String, String) {
    let (ty, value) = match (&*attr.kind, attr.is_list) {
        ("int", false) => ("i64", "value"),
        ("float", false) => ("f32", "value"),
        ("bool", false) => ("bool", "value"),
        ("string", false) => ("&str", "value"),
        ("type", false) => ("DType", "value"),
        ("shape", false) => ("impl Dims", "&value.to_partial()"),
        ("tensor", false) => ("&Tensor", "tensor_attr(value)"),
        ("func", false) => ("&Function", "value"),
        ("int", true) => ("&[i64]", "value"),
        ("float", true) => ("&[f32]", "value"),
        ("bool", true) => ("&[bool]", "value"),
        ("string", true) => ("&[&str]", "value"),
        ("type", true) => ("&[DType]", "value"),
        ("shape", true) => ("&[PartialShape]", "value"),
        ("func", true) => ("&[Function]", "functions_attr(value)"),
        (kind, _) => panic!("no Rust type for an attr of kind {kind}"),
    };
    (ty.into(), value.into())
}

fn safe(name: &str) -> String {
    if RESERVED.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// `BatchMatMulV2` as `batch_mat_mul_v2`, `Conv2DBackpropInput` as `conv2d_backprop_input`.
fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut text = String::new();
    for (i, &c) in letters.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| letters[i]);
        let is_word = letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        // `TopKV2` has a version.
        let rest = &letters[i + 1..];
        let is_version = c == 'V' && !rest.is_empty() && rest.iter().all(char::is_ascii_digit);
        let begins = match before {
            Some(_) if is_version => true,
            Some(b) if b.is_ascii_lowercase() => c.is_ascii_uppercase(),
            Some(b) if b.is_ascii_uppercase() || b.is_ascii_digit() => {
                c.is_ascii_uppercase() && is_word
            }
            _ => false,
        };
        if begins {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// `out_type` as `OutType`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or(String::new(), |c| c.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_rust_has_them() {
        for (name, expected) in [
            ("MatMul", "mat_mul"),
            ("BatchMatMulV2", "batch_mat_mul_v2"),
            ("Conv2DBackpropInput", "conv2d_backprop_input"),
            ("L2Loss", "l2_loss"),
            ("CTCLoss", "ctc_loss"),
            ("IRFFT3D", "irfft3d"),
            ("TopKV2", "top_k_v2"),
            ("Where", "where_"),
            ("TFRecordDataset", "tf_record_dataset"),
        ] {
            assert_eq!(safe(&snake(name)), expected);
        }
        assert_eq!(camel("out_type") + &camel("T"), "OutTypeT");
    }

    #[test]
    fn an_op_becomes_a_function_and_a_builder() {
        let table = "op\tSplit\tyes\nin\tsplit_dim\tfixed\tint32\t-\tvalue\n\
                     in\tvalue\tattr\tT\t-\tvalue\nout\toutput\tattr\tT\tnum_split\tvalue\n\
                     attr\tnum_split\tint\tone\t\nattr\tT\ttype\tone\t\ndtypes\tT\tfloat,int32\n";
        let ops = super::super::table::parse(table).unwrap();
        let text = op(&ops[0], Some("cuts a tensor."));
        assert!(text.contains("/// `Split`: cuts a tensor."), "{text}");
        assert!(text.contains("/// `T`: float, int32."), "{text}");
        let wanted = "pub fn split<T: TensorType>(split_dim: impl Operand<i32>, value: impl \
                      Handle<T>, num_split: i64) -> Vec<Output<T>>";
        assert!(text.contains(wanted), "{text}");
    }
}
