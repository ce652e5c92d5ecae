//! The table of ops, as `op_table` prints it.

use anyhow::{Result, bail};

/// An op.
#[derive(Debug, Default)]
pub(super) struct Op {
    pub(super) name: String,
    /// `yes`, `none` (no adjoint passes) or `no`.
    pub(super) gradient: String,
    pub(super) inputs: Vec<Arg>,
    pub(super) outputs: Vec<Arg>,
    pub(super) attrs: Vec<Attr>,
    /// Names of the dtypes that kernels have, by type attr.
    pub(super) dtypes: Vec<(String, String)>,
}

/// An input or output.
#[derive(Debug)]
pub(super) struct Arg {
    pub(super) name: String,
    pub(super) ty: Type,
    /// The attr with the number of tensors, if it is a list of one type.
    pub(super) number: Option<String>,
    pub(super) is_ref: bool,
}

/// The element type of an argument.
#[derive(Debug, PartialEq)]
pub(super) enum Type {
    Fixed(String),
    Attr(String),
    List(String),
}

impl Arg {
    /// Whether it is a list of tensors.
    pub(super) fn is_list(&self) -> bool {
        self.number.is_some() || matches!(self.ty, Type::List(_))
    }

    /// Whether its type is this attr's.
    pub(super) fn is_of(&self, attr: &str) -> bool {
        matches!(&self.ty, Type::Attr(name) | Type::List(name) if name == attr)
    }
}

/// An attr.
#[derive(Debug)]
pub(super) struct Attr {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) is_list: bool,
    /// The default as Rust shows it; `None` if it must be set.
    pub(super) default: Option<String>,
}

pub(super) fn parse(text: &str) -> Result<Vec<Op>> {
    let mut ops: Vec<Op> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["op", name, gradient] = fields[..] {
            let (name, gradient) = (name.to_owned(), gradient.to_owned());
            ops.push(Op { name, gradient, ..Op::default() });
            continue;
        }
        let Some(op) = ops.last_mut() else { bail!("the table does not begin with an op: {line}") };
        match fields[..] {
            ["in", name, form, ty, number, reference] => {
                op.inputs.push(arg(name, form, ty, number, reference));
            }
            ["out", name, form, ty, number, reference] => {
                op.outputs.push(arg(name, form, ty, number, reference));
            }
            ["attr", name, kind, form, default] => op.attrs.push(Attr {
                name: name.to_owned(),
                kind: kind.to_owned(),
                is_list: form == "list",
                default: Some(default.to_owned()).filter(|text| !text.is_empty()),
            }),
            ["dtypes", attr, names] => op.dtypes.push((attr.to_owned(), names.replace(',', ", "))),
            _ => bail!("not a line of the table: {line:?}"),
        }
    }
    Ok(ops)
}

fn arg(name: &str, form: &str, ty: &str, number: &str, reference: &str) -> Arg {
    let ty = match form {
        "attr" => Type::Attr(ty.to_owned()),
        "list" => Type::List(ty.to_owned()),
        _ => Type::Fixed(ty.to_owned()),
    };
    let number = Some(number).filter(|number| *number != "-").map(str::to_owned);
    Arg { name: name.to_owned(), ty, number, is_ref: reference == "ref" }
}
