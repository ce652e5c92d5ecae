//! `thalweg ops`: lists every op of TensorFlow, with support, dtypes, gradient, and the number of
//! recorded cases that pass.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use thalweg_graph::{ArgDef, ArgType, AttrKind, Gradient, Op};
use thalweg_kernel::KernelSpec;
use thalweg_ops::GOLDEN_RESULTS;
use thalweg_tensor::DType;

use crate::{Failure, Registry};

/// List every op of TensorFlow: support, dtypes, gradient, recorded cases.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// Print one JSON array instead of text
    #[arg(long, conflicts_with = "markdown", help_heading = "Output")]
    json: bool,

    /// Print a Markdown page instead (docs/src/reference/ops.md)
    #[arg(long, help_heading = "Output")]
    markdown: bool,
}

/// Prints the list.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let entries = entries(registry);
    if args.json {
        return write_json(&entries, out);
    }
    if args.markdown {
        return write_markdown(&entries, out);
    }
    write_text(&entries, out)
}

/// Whether an op is supported: by a kernel, or by the runtime itself.
pub(crate) fn has(registry: &Registry, op: &str) -> bool {
    !registry.kernels.for_op(op).is_empty()
        || registry.ops.get(op).is_ok_and(|op| op.role.is_interpreted())
}

/// Whether an op with these kernels runs on accelerators alone.
pub(crate) fn needs_accelerator(kernels: &[KernelSpec]) -> bool {
    !kernels.is_empty() && kernels.iter().all(|kernel| kernel.lower.is_some())
}

struct Entry<'a> {
    op: &'a Arc<Op>,
    have: bool,
    kernels: &'a [KernelSpec],
    passed: usize,
    total: usize,
}

impl Entry<'_> {
    fn has_gradient(&self) -> bool {
        matches!(self.op.gradient, Gradient::By(_))
    }

    /// Whether accelerators run it: it has a lowering, or a kernel that only handles state.
    fn is_on_accelerators(&self) -> bool {
        let is_structural = self.have && self.kernels.is_empty();
        is_structural || self.kernels.iter().any(|kernel| kernel.serves("GPU"))
    }

    /// Whether accelerators alone run it.
    fn needs_accelerator(&self) -> bool {
        needs_accelerator(self.kernels)
    }

    /// The dtypes of kernels for each type attr; those that the interface allows if kernels do not
    /// restrict them.
    fn dtypes(&self) -> BTreeMap<&str, Vec<DType>> {
        let mut by_attr: BTreeMap<&str, Vec<DType>> = BTreeMap::new();
        let of_cpu = self.kernels.iter().filter(|kernel| kernel.serves("CPU"));
        for (attr, allowed) in of_cpu.flat_map(|kernel| kernel.constraints) {
            by_attr.entry(attr).or_default().extend_from_slice(allowed);
        }
        for attr in self.op.attrs.iter().filter(|a| a.kind == AttrKind::Type) {
            let allowed = || attr.allowed_types.clone();
            by_attr.entry(&attr.name).or_insert_with(allowed);
        }
        for allowed in by_attr.values_mut() {
            allowed.sort();
            allowed.dedup();
        }
        by_attr
    }
}

fn entries(registry: &Registry) -> Vec<Entry<'_>> {
    let results: BTreeMap<&str, (usize, usize)> = golden_results().collect();
    let entry = |name: &'static str| {
        let (passed, total) = results.get(name).copied().unwrap_or_default();
        let op = registry.ops.get(name).ok()?;
        let (have, kernels) = (has(registry, name), registry.kernels.for_op(name));
        Some(Entry { op, have, kernels, passed, total })
    };
    registry.ops.names().into_iter().filter_map(entry).collect()
}

/// Lines of `Op passed total`.
fn golden_results() -> impl Iterator<Item = (&'static str, (usize, usize))> {
    GOLDEN_RESULTS.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let op = words.next()?;
        Some((op, (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
    })
}

fn write_json(entries: &[Entry<'_>], out: &mut dyn Write) -> Result<(), Failure> {
    let entry = |e: &Entry<'_>| {
        let mut dtypes: Vec<DType> = e.dtypes().into_values().flatten().collect();
        dtypes.sort();
        dtypes.dedup();
        let dtypes: Vec<&str> = dtypes.iter().filter(|_| e.have).map(|d| d.name()).collect();
        serde_json::json!({
            "op": e.op.name,
            "supported": e.have,
            "dtypes": dtypes,
            "gradient": e.have && e.has_gradient(),
            "accelerator": e.is_on_accelerators(),
            "golden_passed": e.passed,
            "golden_total": e.total,
        })
    };
    let list: Vec<serde_json::Value> = entries.iter().map(entry).collect();
    writeln!(out, "{}", serde_json::Value::from(list))?;
    Ok(())
}

fn write_text(entries: &[Entry<'_>], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{:44} supported  gradient  accelerator  recorded  dtypes", "op")?;
    for e in entries {
        let here = if e.have { "yes" } else { "-" };
        let gradient = if e.have && e.has_gradient() { "yes" } else { "-" };
        let there = if e.is_on_accelerators() { "yes" } else { "-" };
        let recorded = if e.total > 0 { format!("{}/{}", e.passed, e.total) } else { "-".into() };
        let dtypes = if e.have { dtypes_text(e) } else { String::new() };
        let line =
            format!("{:44} {here:9}  {gradient:8}  {there:11}  {recorded:8}  {dtypes}", e.op.name);
        writeln!(out, "{}", line.trim_end())?;
    }
    let have = entries.iter().filter(|e| e.have).count();
    writeln!(out, "{have} of {} ops are supported", entries.len())?;
    Ok(())
}

fn write_markdown(entries: &[Entry<'_>], out: &mut dyn Write) -> Result<(), Failure> {
    let count = |keep: fn(&&Entry<'_>) -> bool| entries.iter().filter(keep).count();
    let (passed, total) = golden_results().fold((0, 0), |(p, t), (_, r)| (p + r.0, t + r.1));
    writeln!(out, "# Ops\n\nGenerated by `cargo xtask docs`; do not edit.\n")?;
    writeln!(
        out,
        "{} of the {} ops of TensorFlow 2.21 are supported, on the CPU except {} that only \
         accelerators run; {} of them have a gradient. {passed} of {total} cases recorded from TensorFlow pass, the others need an \
         unsupported op. A graph may contain any op: a step that needs an unsupported one ends \
         with an error that names it, and `thalweg check GRAPH` lists them beforehand.\n",
        count(|e| e.have),
        entries.len(),
        count(|e| e.needs_accelerator()),
        count(|e| e.have && e.has_gradient())
    )?;
    writeln!(
        out,
        "The column \"dtypes\" lists the dtypes that have kernels, by type attr; \"any\" is every \
         dtype. \"Accelerator\" marks ops that run on accelerators; others run on the CPU beside them. \"Recorded\" is the number of recorded cases of the op that pass, and their total.\n"
    )?;
    writeln!(out, "| op | inputs | outputs | dtypes | gradient | accelerator | recorded |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for e in entries.iter().filter(|e| e.have) {
        let dtypes =
            if e.kernels.is_empty() { "the runtime itself".into() } else { dtypes_text(e) };
        let gradient = if e.has_gradient() { "yes" } else { "" };
        let there = if e.is_on_accelerators() { "yes" } else { "" };
        let recorded =
            if e.total > 0 { format!("{}/{}", e.passed, e.total) } else { String::new() };
        writeln!(
            out,
            "| `{}` | {} | {} | {dtypes} | {gradient} | {there} | {recorded} |",
            e.op.name,
            arguments(&e.op.inputs),
            arguments(&e.op.outputs)
        )?;
    }
    let missing: Vec<String> =
        entries.iter().filter(|e| !e.have).map(|e| format!("`{}`", e.op.name)).collect();
    writeln!(out, "\n## Unsupported ops\n\n{}", missing.join(", "))?;
    Ok(())
}

/// `T: float, double; Tidx: any`.
fn dtypes_text(e: &Entry<'_>) -> String {
    let one = |(attr, allowed): (&str, Vec<DType>)| {
        let names: Vec<&str> = allowed.iter().map(|t| t.name()).collect();
        format!("{attr}: {}", if names.is_empty() { "any".to_owned() } else { names.join(", ") })
    };
    e.dtypes().into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// `x: T, values: N * T`.
fn arguments(args: &[ArgDef]) -> String {
    let one = |arg: &ArgDef| {
        let ty = match &arg.ty {
            ArgType::Fixed(dtype) => dtype.name().to_owned(),
            ArgType::Attr(name) | ArgType::ListAttr(name) => name.clone(),
        };
        let number = arg.number_attr.as_ref().map_or(String::new(), |n| format!("{n} * "));
        let ty = if arg.is_ref { format!("Ref({number}{ty})") } else { format!("{number}{ty}") };
        format!("{}: {ty}", arg.name)
    };
    args.iter().map(one).collect::<Vec<_>>().join(", ")
}
