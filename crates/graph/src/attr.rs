//! Attr values, kept exactly as a GraphDef has them, and typed access to them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thalweg_proto as pb;
use thalweg_proto::attr_value::{ListValue, Value};
use thalweg_tensor::{Budget, Bytes, DType, PartialShape, Result, Shape, Tensor, bail, err};

use crate::op::{AttrKind, Op};

/// The value of an attr. Large ones are shared.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum AttrValue {
    /// No value is set.
    #[default]
    None,
    /// A `string`: bytes or text.
    String(Bytes),
    /// An `int`.
    Int(i64),
    /// A `float`.
    Float(f32),
    /// A `bool`.
    Bool(bool),
    /// A `type`: TensorFlow's number of a data type.
    Type(i32),
    /// A `shape`, possibly partial.
    Shape(Arc<pb::TensorShapeProto>),
    /// A `tensor`, not yet decoded.
    Tensor(Arc<pb::TensorProto>),
    /// A list of values of one kind.
    List(Arc<ListValue>),
    /// A `func`: a function name and the attrs it is instantiated with.
    Func(Arc<pb::NameAttrList>),
    /// In a function body: refers to the caller's attr of this name.
    Placeholder(Arc<str>),
}

impl AttrValue {
    /// The value in a message.
    pub fn from_proto(proto: pb::AttrValue) -> AttrValue {
        match proto.value {
            None => AttrValue::None,
            Some(Value::S(s)) => AttrValue::String(s),
            Some(Value::I(i)) => AttrValue::Int(i),
            Some(Value::F(f)) => AttrValue::Float(f),
            Some(Value::B(b)) => AttrValue::Bool(b),
            Some(Value::Type(t)) => AttrValue::Type(t),
            Some(Value::Shape(s)) => AttrValue::Shape(Arc::new(s)),
            Some(Value::Tensor(t)) => AttrValue::Tensor(Arc::new(*t)),
            Some(Value::List(l)) => AttrValue::List(Arc::new(*l)),
            Some(Value::Func(f)) => AttrValue::Func(Arc::new(f)),
            Some(Value::Placeholder(p)) => AttrValue::Placeholder(p.into()),
        }
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> pb::AttrValue {
        let value = match self {
            AttrValue::None => None,
            AttrValue::String(s) => Some(Value::S(s.clone())),
            AttrValue::Int(i) => Some(Value::I(*i)),
            AttrValue::Float(f) => Some(Value::F(*f)),
            AttrValue::Bool(b) => Some(Value::B(*b)),
            AttrValue::Type(t) => Some(Value::Type(*t)),
            AttrValue::Shape(s) => Some(Value::Shape((**s).clone())),
            AttrValue::Tensor(t) => Some(Value::Tensor(Box::new((**t).clone()))),
            AttrValue::List(l) => Some(Value::List(Box::new((**l).clone()))),
            AttrValue::Func(f) => Some(Value::Func((**f).clone())),
            AttrValue::Placeholder(p) => Some(Value::Placeholder(p.to_string())),
        };
        pb::AttrValue { value }
    }

    /// The functions in the value: one, or those of a list.
    pub fn functions(&self) -> &[pb::NameAttrList] {
        match self {
            AttrValue::Func(function) => std::slice::from_ref(function),
            AttrValue::List(list) => &list.func,
            _ => &[],
        }
    }

    /// A short description of the value for error messages, of bounded length.
    pub(crate) fn summary(&self) -> String {
        match self {
            AttrValue::None => "not set".into(),
            AttrValue::String(s) => {
                let shown = String::from_utf8_lossy(&s[..s.len().min(80)]).into_owned();
                format!("the string {shown:?}{}", if s.len() > 80 { " and more" } else { "" })
            }
            AttrValue::Int(i) => format!("the int {i}"),
            AttrValue::Float(f) => format!("the float {f}"),
            AttrValue::Bool(b) => format!("the bool {b}"),
            AttrValue::Type(t) => match DType::from_proto(*t) {
                Ok(dtype) => format!("the type {dtype}"),
                Err(_) => format!("type number {t}"),
            },
            AttrValue::Shape(_) => "a shape".into(),
            AttrValue::Tensor(_) => "a tensor".into(),
            AttrValue::List(_) => "a list".into(),
            AttrValue::Func(f) => format!("the function '{}'", f.name),
            AttrValue::Placeholder(p) => format!("the caller's attr '{p}'"),
        }
    }

    /// Hashes the value by its bits: 0.0 and -0.0 differ, though they are equal. Large values are
    /// read once, without copies.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        std::mem::discriminant(self).hash(hasher);
        match self {
            AttrValue::None => {}
            AttrValue::String(s) => s.hash(hasher),
            AttrValue::Int(i) => i.hash(hasher),
            AttrValue::Float(f) => f.to_bits().hash(hasher),
            AttrValue::Bool(b) => b.hash(hasher),
            AttrValue::Type(t) => t.hash(hasher),
            AttrValue::Shape(s) => shape_fingerprint(s, hasher),
            AttrValue::Tensor(t) => tensor_fingerprint(t, hasher),
            AttrValue::List(l) => list_fingerprint(l, hasher),
            AttrValue::Func(f) => function_fingerprint(f, hasher),
            AttrValue::Placeholder(p) => p.hash(hasher),
        }
    }

    /// A function attr.
    pub fn function(name: &str, attrs: &Attrs) -> AttrValue {
        AttrValue::Func(Arc::new(pb::NameAttrList {
            name: name.to_owned(),
            attr: attrs.iter().map(|(n, v)| (n.to_string(), v.to_proto())).collect(),
        }))
    }

    /// A list of values of one kind.
    pub fn list_of(kind: AttrKind, values: &[AttrValue]) -> Result<AttrValue> {
        let mut list = ListValue::default();
        for value in values {
            match (kind, value) {
                (AttrKind::String, AttrValue::String(s)) => list.s.push(s.clone()),
                (AttrKind::Int, AttrValue::Int(i)) => list.i.push(*i),
                (AttrKind::Float, AttrValue::Float(f)) => list.f.push(*f),
                (AttrKind::Bool, AttrValue::Bool(b)) => list.b.push(*b),
                (AttrKind::Type, AttrValue::Type(t)) => list.r#type.push(*t),
                (AttrKind::Shape, AttrValue::Shape(s)) => list.shape.push((**s).clone()),
                (AttrKind::Tensor, AttrValue::Tensor(t)) => list.tensor.push((**t).clone()),
                (AttrKind::Func, AttrValue::Func(f)) => list.func.push((**f).clone()),
                _ => bail!(
                    InvalidArgument,
                    "a list of {} cannot hold {}",
                    kind.name(),
                    value.summary()
                ),
            }
        }
        Ok(AttrValue::List(Arc::new(list)))
    }

    /// Whether this is a value of `kind` (an empty list is a list of anything).
    pub(crate) fn is(&self, kind: AttrKind, is_list: bool) -> bool {
        match self {
            AttrValue::Placeholder(_) => true,
            AttrValue::List(l) if is_list => {
                let others = |own: usize| {
                    l.s.len()
                        + l.i.len()
                        + l.f.len()
                        + l.b.len()
                        + l.r#type.len()
                        + l.shape.len()
                        + l.tensor.len()
                        + l.func.len()
                        == own
                };
                match kind {
                    AttrKind::String => others(l.s.len()),
                    AttrKind::Int => others(l.i.len()),
                    AttrKind::Float => others(l.f.len()),
                    AttrKind::Bool => others(l.b.len()),
                    AttrKind::Type => others(l.r#type.len()),
                    AttrKind::Shape => others(l.shape.len()),
                    AttrKind::Tensor => others(l.tensor.len()),
                    AttrKind::Func => others(l.func.len()),
                }
            }
            // TensorFlow writes an empty list as a value that is not set at all.
            AttrValue::None => is_list,
            _ if is_list => false,
            AttrValue::String(_) => kind == AttrKind::String,
            AttrValue::Int(_) => kind == AttrKind::Int,
            AttrValue::Float(_) => kind == AttrKind::Float,
            AttrValue::Bool(_) => kind == AttrKind::Bool,
            AttrValue::Type(_) => kind == AttrKind::Type,
            AttrValue::Shape(_) => kind == AttrKind::Shape,
            AttrValue::Tensor(_) => kind == AttrKind::Tensor,
            AttrValue::Func(_) => kind == AttrKind::Func,
            AttrValue::List(_) => false,
        }
    }

    pub(crate) fn list_len(&self, kind: AttrKind) -> usize {
        let AttrValue::List(l) = self else { return 0 };
        match kind {
            AttrKind::String => l.s.len(),
            AttrKind::Int => l.i.len(),
            AttrKind::Float => l.f.len(),
            AttrKind::Bool => l.b.len(),
            AttrKind::Type => l.r#type.len(),
            AttrKind::Shape => l.shape.len(),
            AttrKind::Tensor => l.tensor.len(),
            AttrKind::Func => l.func.len(),
        }
    }
}

fn shape_fingerprint(shape: &pb::TensorShapeProto, hasher: &mut impl Hasher) {
    shape.unknown_rank.hash(hasher);
    shape.dim.len().hash(hasher);
    shape.dim.iter().for_each(|d| d.size.hash(hasher));
}

/// Hashes the common fields only: tensors that differ in the others have equal fingerprints.
fn tensor_fingerprint(tensor: &pb::TensorProto, hasher: &mut impl Hasher) {
    tensor.dtype.hash(hasher);
    tensor.tensor_shape.iter().for_each(|s| shape_fingerprint(s, hasher));
    tensor.tensor_content.hash(hasher);
    tensor.half_val.hash(hasher);
    tensor.int_val.hash(hasher);
    tensor.int64_val.hash(hasher);
    tensor.uint32_val.hash(hasher);
    tensor.uint64_val.hash(hasher);
    tensor.bool_val.hash(hasher);
    tensor.string_val.hash(hasher);
    tensor.float_val.iter().for_each(|f| f.to_bits().hash(hasher));
    tensor.float8_val.hash(hasher);
    tensor.scomplex_val.iter().for_each(|f| f.to_bits().hash(hasher));
    tensor.dcomplex_val.iter().for_each(|f| f.to_bits().hash(hasher));
    tensor.double_val.iter().for_each(|f| f.to_bits().hash(hasher));
}

fn list_fingerprint(list: &ListValue, hasher: &mut impl Hasher) {
    list.s.hash(hasher);
    list.i.hash(hasher);
    list.b.hash(hasher);
    list.r#type.hash(hasher);
    list.f.iter().for_each(|f| f.to_bits().hash(hasher));
    list.shape.iter().for_each(|s| shape_fingerprint(s, hasher));
    list.tensor.iter().for_each(|t| tensor_fingerprint(t, hasher));
    list.func.iter().for_each(|f| function_fingerprint(f, hasher));
}

/// Hashes the function's name and the names of its attrs, not their values, whose nesting depth is
/// unbounded.
fn function_fingerprint(function: &pb::NameAttrList, hasher: &mut impl Hasher) {
    function.name.hash(hasher);
    function.attr.keys().for_each(|name| name.hash(hasher));
}

impl From<&PartialShape> for AttrValue {
    fn from(shape: &PartialShape) -> Self {
        AttrValue::Shape(Arc::new(shape.to_proto()))
    }
}

/// Conversion to the value of an attr.
pub trait IntoAttr {
    /// The value.
    fn into_attr(self) -> AttrValue;
}

macro_rules! into_attr {
    ($($t:ty: |$x:ident| $value:expr;)+) => { $(
        impl IntoAttr for $t {
            fn into_attr(self) -> AttrValue {
                let $x = self;
                $value
            }
        }
    )+ };
}

into_attr! {
    AttrValue: |x| x;
    bool: |x| AttrValue::Bool(x);
    i64: |x| AttrValue::Int(x);
    i32: |x| AttrValue::Int(i64::from(x));
    f32: |x| AttrValue::Float(x);
    DType: |x| AttrValue::Type(x.to_proto());
    &str: |x| AttrValue::String(Bytes::copy_from_slice(x.as_bytes()));
    &PartialShape: |x| AttrValue::from(x);
    &Shape: |x| AttrValue::from(&PartialShape::from(x));
    &[i64]: |x| AttrValue::List(Arc::new(ListValue { i: x.to_vec(), ..Default::default() }));
    &[f32]: |x| AttrValue::List(Arc::new(ListValue { f: x.to_vec(), ..Default::default() }));
    &[bool]: |x| AttrValue::List(Arc::new(ListValue { b: x.to_vec(), ..Default::default() }));
    &[DType]: |x| AttrValue::List(Arc::new(ListValue {
        r#type: x.iter().map(|t| t.to_proto()).collect(),
        ..Default::default()
    }));
    &[PartialShape]: |x| AttrValue::List(Arc::new(ListValue {
        shape: x.iter().map(PartialShape::to_proto).collect(),
        ..Default::default()
    }));
    &[&str]: |x| AttrValue::List(Arc::new(ListValue {
        s: x.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect(),
        ..Default::default()
    }));
}

/// The attrs that a node sets, by name. Clones share them, since passes copy many nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(Arc<Vec<(Arc<str>, AttrValue)>>);

impl Attrs {
    /// The attrs in a message.
    pub fn from_proto(attrs: &BTreeMap<String, pb::AttrValue>) -> Attrs {
        let attr = |(name, value): (&String, &pb::AttrValue)| {
            (name.as_str().into(), AttrValue::from_proto(value.clone()))
        };
        attrs.iter().map(attr).collect()
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> BTreeMap<String, pb::AttrValue> {
        self.iter().map(|(name, value)| (name.to_string(), value.to_proto())).collect()
    }

    /// The attrs of a `Const` of this value.
    pub fn of_const(value: &Tensor) -> Result<Attrs> {
        let proto = AttrValue::Tensor(Arc::new(value.to_proto()?));
        let attrs = [("dtype".into(), value.dtype().into_attr()), ("value".into(), proto)];
        Ok(attrs.into_iter().collect())
    }

    /// The value of attr `name`, if it is set.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| &self.0[i].1)
    }

    /// Sets `name`.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: AttrValue) {
        let name = name.into();
        let entries = Arc::make_mut(&mut self.0);
        match entries.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(i) => entries[i].1 = value,
            Err(i) => entries.insert(i, (name, value)),
        }
    }

    /// Removes `name`.
    pub fn remove(&mut self, name: &str) {
        Arc::make_mut(&mut self.0).retain(|(n, _)| **n != *name);
    }

    /// Hashes all attrs, as [`AttrValue::fingerprint`] does.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        for (name, value) in self.iter() {
            name.hash(hasher);
            value.fingerprint(hasher);
        }
    }

    /// All attrs, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &AttrValue)> {
        self.0.iter().map(|(n, v)| (n, v))
    }
}

impl FromIterator<(Arc<str>, AttrValue)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, AttrValue)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Attrs(Arc::new(entries))
    }
}

/// Typed access to a node's attrs; an attr that the node does not set has the op's default.
#[derive(Clone, Copy)]
pub struct NodeAttrs<'a> {
    op: &'a Op,
    attrs: &'a Attrs,
}

macro_rules! typed_getters {
    ($($(#[$doc:meta])* $name:ident -> $t:ty, $word:literal: $pattern:pat => $value:expr;)+) => { $(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<$t> {
            match self.value(name)? {
                $pattern => $value,
                other => Err(self.wrong_kind(name, $word, other)),
            }
        }
    )+ };
}

impl<'a> NodeAttrs<'a> {
    pub(crate) fn new(op: &'a Op, attrs: &'a Attrs) -> Self {
        NodeAttrs { op, attrs }
    }

    /// The value, set or default.
    pub fn value(&self, name: &str) -> Result<&'a AttrValue> {
        self.get(name).ok_or_else(|| {
            err!(InvalidArgument, "{} needs the attr '{name}', which is not set", self.op.name)
        })
    }

    /// The value, set or default, if there is one.
    pub fn get(&self, name: &str) -> Option<&'a AttrValue> {
        self.attrs.get(name).or_else(|| self.op.attr(name)?.default.as_ref())
    }

    fn wrong_kind(&self, name: &str, expected: &str, got: &AttrValue) -> thalweg_tensor::Error {
        err!(
            InvalidArgument,
            "{}: attr '{name}' must be {expected}, is {}",
            self.op.name,
            got.summary()
        )
    }

    typed_getters! {
        /// An `int` attr.
        int -> i64, "an int": AttrValue::Int(i) => Ok(*i);
        /// A `float` attr.
        float -> f32, "a float": AttrValue::Float(f) => Ok(*f);
        /// A `bool` attr.
        bool -> bool, "a bool": AttrValue::Bool(b) => Ok(*b);
        /// A `string` attr.
        bytes -> &'a Bytes, "a string": AttrValue::String(s) => Ok(s);
        /// A `type` attr.
        dtype -> DType, "a type": AttrValue::Type(t) => DType::from_proto(*t);
        /// A `shape` attr.
        shape -> PartialShape, "a shape": AttrValue::Shape(s) => PartialShape::from_proto(s);
        /// A `tensor` attr, not decoded.
        tensor_proto -> &'a Arc<pb::TensorProto>, "a tensor": AttrValue::Tensor(t) => Ok(t);
        /// A `func` attr.
        function -> &'a Arc<pb::NameAttrList>, "a function": AttrValue::Func(f) => Ok(f);
    }

    /// A `string` attr as text.
    pub fn string(&self, name: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(name)?).map_err(|_| {
            err!(InvalidArgument, "{}: attr '{name}' is not valid UTF-8", self.op.name)
        })
    }

    /// An `int` attr that must not be negative.
    pub fn size(&self, name: &str) -> Result<usize> {
        let value = self.int(name)?;
        usize::try_from(value).map_err(|_| {
            err!(InvalidArgument, "{}: attr '{name}' must be at least 0, is {value}", self.op.name)
        })
    }

    /// A `tensor` attr, decoded into memory charged to `budget`.
    pub fn tensor(&self, name: &str, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        Tensor::from_proto(self.tensor_proto(name)?, budget)
    }

    fn list<T>(&self, name: &str, pick: impl FnOnce(&'a ListValue) -> T) -> Result<T>
    where
        T: Default,
    {
        match self.value(name)? {
            AttrValue::List(l) => Ok(pick(l)),
            AttrValue::None => Ok(T::default()),
            other => Err(self.wrong_kind(name, "a list", other)),
        }
    }

    /// A `list(int)` attr.
    pub fn ints(&self, name: &str) -> Result<&'a [i64]> {
        self.list(name, |l| &l.i[..])
    }

    /// A `list(float)` attr.
    pub fn floats(&self, name: &str) -> Result<&'a [f32]> {
        self.list(name, |l| &l.f[..])
    }

    /// A `list(bool)` attr.
    pub fn bools(&self, name: &str) -> Result<&'a [bool]> {
        self.list(name, |l| &l.b[..])
    }

    /// A `list(string)` attr.
    pub fn strings(&self, name: &str) -> Result<&'a [Bytes]> {
        self.list(name, |l| &l.s[..])
    }

    /// A `list(func)` attr.
    pub fn functions(&self, name: &str) -> Result<&'a [pb::NameAttrList]> {
        self.list(name, |l| &l.func[..])
    }

    /// A `list(type)` attr.
    pub fn dtypes(&self, name: &str) -> Result<Vec<DType>> {
        self.list(name, |l| &l.r#type[..])?.iter().map(|&t| DType::from_proto(t)).collect()
    }

    /// A `list(shape)` attr.
    pub fn shapes(&self, name: &str) -> Result<Vec<PartialShape>> {
        self.list(name, |l| &l.shape[..])?.iter().map(PartialShape::from_proto).collect()
    }
}
