//! Op definitions: static data in TensorFlow's notation, parsed once by the registry.

use thalweg_tensor::{DType, PartialShape, Result, bail, ensure, err};

use crate::shape::{self, ShapeFn};
use crate::value::ValueFn;
use crate::work::{Work, WorkFn};
use crate::{AttrValue, Attrs, Gradient, GradientFn, Role};

/// The definition of an op, as its family states it.
///
/// The interface of one of TensorFlow's ops (inputs, outputs, attrs, flags) is a line of
/// `tensorflow_ops.txt`, found by the name; any other op states its own.
///
/// ```
/// use thalweg_graph::{OpDef, shape};
/// const LEAKY_RELU: OpDef = OpDef::new("LeakyRelu", shape::unchanged);
/// const TRIPLE: OpDef =
///     OpDef::new("Triple", shape::unchanged).with_interface("x: T | y: T | T: {float, double}");
/// ```
#[derive(Clone, Copy)]
pub struct OpDef {
    /// The name: TensorFlow's, or that of a custom op.
    pub name: &'static str,
    /// The interface of an op that is not TensorFlow's, in the notation of `tensorflow_ops.txt`
    /// without the name: `inputs | outputs | attrs | flags`, each a list separated by `;`. Empty
    /// fields at the end may be omitted.
    pub interface: Option<&'static str>,
    /// Shape function.
    pub shape: ShapeFn,
    /// Value function, for integer outputs that shapes depend on.
    pub value: Option<ValueFn>,
    /// How it is differentiated.
    pub gradient: Gradient,
    /// Role for passes and the executor.
    pub role: Role,
    /// The work of a node, for the cost model.
    pub work: WorkFn,
}

impl OpDef {
    /// An op without a name, with outputs of unknown shape; the base for `..OpDef::DEFAULT`.
    pub const DEFAULT: OpDef = OpDef::new("", shape::unknown);

    /// An op of this name and shape function.
    pub const fn new(name: &'static str, shape: ShapeFn) -> OpDef {
        OpDef {
            name,
            interface: None,
            shape,
            value: None,
            gradient: Gradient::Unknown,
            role: Role::Ordinary,
            work: Work::per_element,
        }
    }

    /// Sets the interface, in the notation of [`OpDef::interface`].
    pub const fn with_interface(self, interface: &'static str) -> OpDef {
        OpDef { interface: Some(interface), ..self }
    }

    /// Sets the value function.
    pub const fn with_value(self, function: ValueFn) -> OpDef {
        OpDef { value: Some(function), ..self }
    }

    /// This op in the role `role`.
    pub const fn with_role(self, role: Role) -> OpDef {
        OpDef { role, ..self }
    }

    /// Sets the work of a node; else it is [`Work::per_element`].
    pub const fn with_work(self, work: WorkFn) -> OpDef {
        OpDef { work, ..self }
    }

    /// Sets the gradient function.
    pub const fn with_gradient(self, function: GradientFn) -> OpDef {
        OpDef { gradient: Gradient::By(function), ..self }
    }

    /// Declares that the op has no gradient: backpropagation stops at it.
    pub const fn without_gradient(self) -> OpDef {
        OpDef { gradient: Gradient::None, ..self }
    }
}

/// Properties of an op beyond its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Has state or side effects: never folded, merged or duplicated.
    Stateful,
    /// `f(a, b) == f(b, a)`.
    Commutative,
    /// `f(f(a, b), c) == f(a, b, c)`: the op aggregates its inputs.
    Aggregate,
    /// Accepts a reference to an uninitialized variable.
    AllowsUninitializedInput,
    /// Communicates with other tasks.
    DistributedCommunication,
}

impl Flag {
    const NAMES: [(&'static str, Flag); 5] = [
        ("stateful", Flag::Stateful),
        ("commutative", Flag::Commutative),
        ("aggregate", Flag::Aggregate),
        ("uninit", Flag::AllowsUninitializedInput),
        ("distcomm", Flag::DistributedCommunication),
    ];

    /// The flag of this name in the list of TensorFlow's ops.
    pub fn from_name(name: &str) -> Option<Flag> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|&(_, flag)| flag)
    }
}

/// A parsed op definition.
#[derive(Clone)]
pub struct Op {
    /// TensorFlow's name.
    pub name: String,
    /// Inputs in order.
    pub inputs: Vec<ArgDef>,
    /// Outputs in order.
    pub outputs: Vec<ArgDef>,
    /// Attrs in the order of the definition.
    pub attrs: Vec<AttrDef>,
    /// Properties.
    pub flags: Vec<Flag>,
    /// Shape function.
    pub shape: ShapeFn,
    /// Value function, if it has one.
    pub value: Option<ValueFn>,
    /// How it is differentiated.
    pub gradient: Gradient,
    /// Role for passes and the executor.
    pub role: Role,
    /// The work of a node, for the cost model.
    pub work: WorkFn,
}

/// One input or output argument of an op; it may be a list of tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgDef {
    /// Its name.
    pub name: String,
    /// Element type.
    pub ty: ArgType,
    /// The attr that holds the number of tensors, if it is a list of one type.
    pub number_attr: Option<String>,
    /// Whether it is a reference to a variable.
    pub is_ref: bool,
}

/// The element type of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// A fixed dtype.
    Fixed(DType),
    /// The value of a `type` attr.
    Attr(String),
    /// One tensor for each entry of a `list(type)` attr.
    ListAttr(String),
}

/// One attr of an op.
#[derive(Clone, Debug, PartialEq)]
pub struct AttrDef {
    /// Its name.
    pub name: String,
    /// Kind of its value.
    pub kind: AttrKind,
    /// Whether its value is a list.
    pub is_list: bool,
    /// Value used if the node does not set the attr.
    pub default: Option<AttrValue>,
    /// Allowed dtypes of a `type` attr; any if empty.
    pub allowed_types: Vec<DType>,
    /// Allowed values of a `string` attr; any if empty.
    pub allowed_strings: Vec<String>,
    /// Minimum value of an int, or minimum length of a list.
    pub minimum: Option<i64>,
}

/// Kind of an attr's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are TensorFlow's")]
pub enum AttrKind {
    String,
    Int,
    Float,
    Bool,
    Type,
    Shape,
    Tensor,
    Func,
}

impl AttrKind {
    const NAMES: [(&'static str, AttrKind); 8] = [
        ("string", AttrKind::String),
        ("int", AttrKind::Int),
        ("float", AttrKind::Float),
        ("bool", AttrKind::Bool),
        ("type", AttrKind::Type),
        ("shape", AttrKind::Shape),
        ("tensor", AttrKind::Tensor),
        ("func", AttrKind::Func),
    ];

    pub(crate) fn from_name(name: &str) -> Option<AttrKind> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|&(_, kind)| kind)
    }

    /// TensorFlow's name of it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl Op {
    /// The op with definition `def` and its interface (see [`OpDef::interface`]).
    pub(crate) fn of(def: &OpDef, interface: &str) -> Result<Op> {
        let interface = Op::parse_interface(def.name, interface)?;
        let &OpDef { shape, value, gradient, role, work, .. } = def;
        Ok(Op { shape, value, gradient, role, work, ..interface })
    }

    /// Parses `inputs | outputs | attrs | flags`, each a list separated by `;`.
    pub fn parse_interface(name: &str, interface: &str) -> Result<Op> {
        let fields: Vec<&str> = interface.split('|').collect();
        ensure!(
            fields.len() <= 4,
            Internal,
            "an op's interface has at most 4 fields (inputs | outputs | attrs | flags), got {interface:?}"
        );
        let [inputs, outputs, attrs, flags] =
            std::array::from_fn(|i| fields.get(i).copied().unwrap_or_default());
        let flag = |name| {
            Flag::from_name(name).ok_or_else(|| err!(Internal, "{name:?} is not an op's flag"))
        };
        let flags = flags.split_whitespace().map(flag).collect::<Result<_>>()?;
        let op = Op::parse(name, &entries(inputs), &entries(outputs), &entries(attrs))?;
        Ok(Op { flags, ..op })
    }

    /// Parses a signature in TensorFlow's notation.
    pub fn parse(name: &str, inputs: &[&str], outputs: &[&str], attrs: &[&str]) -> Result<Op> {
        let attrs: Vec<AttrDef> = attrs.iter().map(|a| parse_attr(a)).collect::<Result<_>>()?;
        let args = |specs: &[&str]| -> Result<Vec<ArgDef>> {
            specs.iter().map(|s| parse_arg(s, &attrs)).collect()
        };
        let (inputs, outputs) = (args(inputs)?, args(outputs)?);
        Ok(Op {
            name: name.to_owned(),
            inputs,
            outputs,
            attrs,
            flags: Vec::new(),
            shape: shape::unknown,
            value: None,
            gradient: Gradient::Unknown,
            role: Role::Ordinary,
            work: Work::per_element,
        })
    }

    /// The attr of this name.
    pub fn attr(&self, name: &str) -> Option<&AttrDef> {
        self.attrs.iter().find(|a| a.name == name)
    }

    /// Whether the op has this property.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
}

fn entries(field: &str) -> Vec<&str> {
    field.split(';').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

fn parse_arg(spec: &str, attrs: &[AttrDef]) -> Result<ArgDef> {
    let bad = || err!(Internal, "{spec:?} is not an argument definition");
    let (name, ty) = spec.split_once(':').ok_or_else(bad)?;
    let mut ty = ty.trim();
    let is_ref = ty.starts_with("Ref(");
    if is_ref {
        ty = ty.trim_start_matches("Ref(").strip_suffix(')').ok_or_else(bad)?;
    }
    let (number_attr, ty) = match ty.split_once('*') {
        Some((number, ty)) => (Some(number.trim().to_owned()), ty.trim()),
        None => (None, ty),
    };
    let ty = match (DType::from_name(ty), attrs.iter().find(|a| a.name == ty)) {
        (Some(dtype), _) => ArgType::Fixed(dtype),
        (None, Some(attr)) if attr.is_list => ArgType::ListAttr(ty.to_owned()),
        (None, Some(_)) => ArgType::Attr(ty.to_owned()),
        (None, None) => bail!(Internal, "{spec:?} has a type that is neither a dtype nor an attr"),
    };
    Ok(ArgDef { name: name.trim().to_owned(), ty, number_attr, is_ref })
}

fn parse_attr(spec: &str) -> Result<AttrDef> {
    let bad = |what: &str| err!(Internal, "{spec:?} is not an attr definition: {what}");
    let (name, rest) = spec.split_once(':').ok_or_else(|| bad("no colon"))?;
    let mut cursor = Cursor { text: rest.trim() };
    let is_list = cursor.eat("list(");
    let mut attr = AttrDef {
        name: name.trim().to_owned(),
        kind: AttrKind::Type,
        is_list,
        default: None,
        allowed_types: Vec::new(),
        allowed_strings: Vec::new(),
        minimum: None,
    };
    if cursor.eat("{") {
        let (inside, rest) = cursor.text.split_once('}').ok_or_else(|| bad("no closing brace"))?;
        cursor.text = rest.trim_start();
        for entry in inside.split(',').map(str::trim) {
            if let Some(quoted) = unquote(entry) {
                attr.kind = AttrKind::String;
                attr.allowed_strings.push(quoted.to_owned());
            } else {
                let dtype = DType::from_name(entry).ok_or_else(|| bad("unknown dtype"))?;
                attr.allowed_types.push(dtype);
            }
        }
    } else {
        let word = cursor.word();
        attr.kind = AttrKind::from_name(word).ok_or_else(|| bad("unknown kind"))?;
    }
    if is_list {
        ensure!(cursor.eat(")"), Internal, "{spec:?}: list( is not closed");
    }
    if cursor.eat(">=") {
        let (number, rest) = cursor.text.split_once('=').unwrap_or((cursor.text, ""));
        attr.minimum = Some(number.trim().parse().map_err(|_| bad("no number after >="))?);
        if !rest.is_empty() {
            attr.default = Some(parse_default(rest.trim(), &attr)?);
        }
    } else if cursor.eat("=") {
        attr.default = Some(parse_default(cursor.text.trim(), &attr)?);
    } else {
        ensure!(cursor.text.is_empty(), Internal, "{spec:?}: {:?} is left over", cursor.text);
    }
    Ok(attr)
}

struct Cursor<'a> {
    text: &'a str,
}

impl<'a> Cursor<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.text.strip_prefix(token) else { return false };
        self.text = rest.trim_start();
        true
    }

    fn word(&mut self) -> &'a str {
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest.trim_start();
        word
    }
}

fn unquote(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].strip_suffix(quote)
}

fn parse_default(text: &str, attr: &AttrDef) -> Result<AttrValue> {
    let bad = || err!(Internal, "{text:?} is not a default for attr '{}'", attr.name);
    if !attr.is_list {
        return parse_scalar_default(text, attr.kind).ok_or_else(bad);
    }
    let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(bad)?;
    let entries = split_entries(inside);
    let values: Option<Vec<AttrValue>> =
        entries.iter().map(|e| parse_scalar_default(e, attr.kind)).collect();
    AttrValue::list_of(attr.kind, &values.ok_or_else(bad)?)
}

/// Splits at commas outside quotes, braces and brackets.
fn split_entries(text: &str) -> Vec<&str> {
    let (mut entries, mut depth, mut start, mut quote) = (Vec::new(), 0i32, 0, None);
    for (i, c) in text.char_indices() {
        match c {
            '\'' | '"' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            _ if quote.is_some() => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                entries.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        entries.push(last);
    }
    entries
}

fn parse_scalar_default(text: &str, kind: AttrKind) -> Option<AttrValue> {
    Some(match kind {
        AttrKind::String => AttrValue::String(unquote(text)?.replace("\\n", "\n").into()),
        AttrKind::Int => AttrValue::Int(text.parse().ok()?),
        AttrKind::Float => AttrValue::Float(text.parse().ok()?),
        AttrKind::Bool => AttrValue::Bool(text.parse().ok()?),
        AttrKind::Type => AttrValue::Type(DType::from_name(text)?.to_proto()),
        AttrKind::Shape => AttrValue::from(&parse_shape(text)?),
        AttrKind::Tensor => AttrValue::Tensor(Default::default()),
        AttrKind::Func => AttrValue::function(unquote(text)?, &Attrs::default()),
    })
}

/// `{unknown_rank: true}`, `{}`, or `[2,?,3]`.
fn parse_shape(text: &str) -> Option<PartialShape> {
    if text.starts_with('{') {
        let unknown = text.contains("unknown_rank");
        return Some(if unknown { PartialShape::unknown() } else { PartialShape::scalar() });
    }
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let dim =
        |d: &&str| if *d == "?" || *d == "-1" { Some(None) } else { d.parse().ok().map(Some) };
    let dims: Option<Vec<Option<usize>>> = split_entries(inside).iter().map(dim).collect();
    Some(PartialShape::new(dims?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attr_notation() {
        for (spec, expected) in [
            ("T: {half, float}", "Type list=false min=None default=false allowed=2"),
            ("T: {half, float} = DT_FLOAT", "Type list=false min=None default=true allowed=2"),
            ("N: int >= 1", "Int list=false min=Some(1) default=false allowed=0"),
            ("k: int >= 0 = 3", "Int list=false min=Some(0) default=true allowed=0"),
            ("Tin: list(type) >= 0", "Type list=true min=Some(0) default=false allowed=0"),
            ("s: list({int32, int64}) = []", "Type list=true min=None default=true allowed=2"),
            ("p: {'SAME', 'VALID'}", "String list=false min=None default=false allowed=0"),
            ("x: string = 'a:b'", "String list=false min=None default=true allowed=0"),
            (
                "sh: shape = {unknown_rank: true}",
                "Shape list=false min=None default=true allowed=0",
            ),
            ("e: list(string) = ['a', 'b,c']", "String list=true min=None default=true allowed=0"),
        ] {
            let a = parse_attr(spec).unwrap();
            let shown = format!(
                "{:?} list={} min={:?} default={} allowed={}",
                a.kind,
                a.is_list,
                a.minimum,
                a.default.is_some(),
                a.allowed_types.len()
            );
            assert_eq!(shown, expected, "{spec}");
        }
        for broken in ["T", "T: nosuch", "N: int >= x", "b: bool = maybe", "l: list(int = []"] {
            let error = parse_attr(broken).unwrap_err();
            assert_eq!(error.code(), thalweg_tensor::Code::Internal, "{broken}: {error}");
        }
    }

    #[test]
    fn argument_notation() {
        let op = Op::parse(
            "X",
            &["a: T", "b: N * T", "c: Ref(T)", "d: Tl", "e: N * int32"],
            &[],
            &["T: type", "N: int >= 1", "Tl: list(type)"],
        )
        .unwrap();
        assert_eq!(op.inputs[0].ty, ArgType::Attr("T".into()));
        assert_eq!(op.inputs[1].number_attr.as_deref(), Some("N"));
        assert!(op.inputs[2].is_ref);
        assert_eq!(op.inputs[3].ty, ArgType::ListAttr("Tl".into()));
        assert_eq!(op.inputs[4].ty, ArgType::Fixed(DType::Int32));
        let unknown = Op::parse("X", &["a: U"], &[], &[]).map(|_| ()).unwrap_err();
        assert_eq!(unknown.code(), thalweg_tensor::Code::Internal, "{unknown}");
    }
    #[test]
    fn interface_notation() {
        let op = Op::parse_interface("X", "a: T; b: float | y: T | T: type | stateful").unwrap();
        assert_eq!((op.inputs.len(), op.outputs.len(), op.attrs.len()), (2, 1, 1));
        assert_eq!(op.flags, [Flag::Stateful]);
        let source = Op::parse_interface("X", "| y: float").unwrap();
        assert_eq!((source.inputs.len(), source.outputs.len()), (0, 1));
        for wrong in ["a: T", "| | | stateless", "||||"] {
            let error = Op::parse_interface("X", wrong).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), thalweg_tensor::Code::Internal, "{wrong}: {error}");
        }
    }
}
