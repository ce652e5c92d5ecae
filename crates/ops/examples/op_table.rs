//! Prints every op that steps can run, one property a line with tabs between the fields: the table
//! from which `cargo xtask api` generates the typed functions.
//!
//! `op NAME GRADIENT`, then for the op `in`/`out NAME KIND TYPE NUMBER_ATTR REF`,
//! `attr NAME KIND LIST DEFAULT` and `dtypes ATTR NAMES`.

use std::collections::BTreeMap;
use std::io::Write;

use thalweg_graph::{ArgDef, ArgType, AttrValue, Gradient, Op};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_tensor::{DType, Result};

fn main() -> Result<()> {
    let (ops, kernels) = (op_registry(FAMILIES)?, kernel_registry(FAMILIES));
    let mut text = String::new();
    for op in ops.defined() {
        let runs = !kernels.for_op(&op.name).is_empty() || op.role.is_interpreted();
        if runs && !op.name.starts_with('_') {
            text += &describe(op, &kernels);
        }
    }
    // A reader that closes the pipe early has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn describe(op: &Op, kernels: &KernelRegistry) -> String {
    let gradient = match op.gradient {
        Gradient::By(_) => "yes",
        Gradient::None => "none",
        Gradient::Unknown => "no",
    };
    let mut text = format!("op\t{}\t{gradient}\n", op.name);
    op.inputs.iter().for_each(|arg| text += &argument("in", arg));
    op.outputs.iter().for_each(|arg| text += &argument("out", arg));
    for attr in &op.attrs {
        let default = attr.default.as_ref().map_or(String::new(), shown);
        let form = if attr.is_list { "list" } else { "one" };
        text += &format!("attr\t{}\t{}\t{form}\t{default}\n", attr.name, attr.kind.name());
    }
    for (attr, dtypes) in dtypes(op, kernels) {
        let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        text += &format!("dtypes\t{attr}\t{}\n", names.join(","));
    }
    text
}

fn argument(kind: &str, arg: &ArgDef) -> String {
    let (form, name) = match &arg.ty {
        ArgType::Fixed(dtype) => ("fixed", dtype.name()),
        ArgType::Attr(name) => ("attr", &**name),
        ArgType::ListAttr(name) => ("list", &**name),
    };
    let number = arg.number_attr.as_deref().unwrap_or("-");
    let reference = if arg.is_ref { "ref" } else { "value" };
    format!("{kind}\t{}\t{form}\t{name}\t{number}\t{reference}\n", arg.name)
}

/// The dtypes of the CPU kernels for each type attr, or of the lowerings of an op that only accelerators
/// run; none if they do not restrict it.
fn dtypes<'a>(op: &'a Op, kernels: &KernelRegistry) -> BTreeMap<&'a str, Vec<DType>> {
    let mut found: BTreeMap<&str, Vec<DType>> = BTreeMap::new();
    let specs = kernels.for_op(&op.name);
    let has_cpu_kernel = specs.iter().any(|spec| spec.serves("CPU"));
    for attr in &op.attrs {
        let chosen = specs.iter().filter(|spec| !has_cpu_kernel || spec.serves("CPU"));
        let constraints = chosen.flat_map(|spec| spec.constraints);
        let mut all: Vec<DType> = constraints
            .filter(|(name, _)| *name == attr.name)
            .flat_map(|(_, allowed)| allowed.iter().copied())
            .collect();
        if all.is_empty() {
            all.clone_from(&attr.allowed_types);
        }
        all.sort();
        all.dedup();
        if !all.is_empty() {
            found.insert(&attr.name, all);
        }
    }
    found
}

/// The default of an attr as Rust would write it, with `\n` for a newline.
fn shown(value: &AttrValue) -> String {
    match value {
        AttrValue::Bool(b) => b.to_string(),
        AttrValue::Int(i) => i.to_string(),
        AttrValue::Float(f) => format!("{f:?}"),
        AttrValue::String(s) => format!("{:?}", String::from_utf8_lossy(s)),
        AttrValue::Type(t) => DType::from_proto(*t).map_or_else(|_| "?".into(), |t| t.to_string()),
        AttrValue::Shape(s) if s.unknown_rank => "unknown".into(),
        AttrValue::List(list) => format!(
            "{:?}",
            (list.i.iter().map(ToString::to_string))
                .chain(list.f.iter().map(|f| format!("{f:?}")))
                .chain(list.s.iter().map(|s| String::from_utf8_lossy(s).into_owned()))
                .collect::<Vec<_>>()
        )
        .replace('"', ""),
        _ => "empty".into(),
    }
}
