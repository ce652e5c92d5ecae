//! `XlaCallModule`: a StableHLO module that JAX, or Keras on JAX, put into a SavedModel.
//!
//! The module is called in the program of the region that the node is in: its shapes are those of the node's
//! inputs in the step, and it is compiled with what is around it.

use thalweg_graph::{NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_hlo::{Module, ModuleCall, Value};
use thalweg_kernel::{Family, KernelSpec, Lowering};
use thalweg_tensor::{Context, Result, bail, ensure, err};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("XlaCallModule", declared_shapes).with_work(Work::none)],
    kernels: &[KernelSpec::lowering("XlaCallModule", lower)],
};

/// The versions of the calling convention: 4 has portable artifacts, 10 the partitioner Shardy.
const VERSIONS: std::ops::RangeInclusive<i64> = 4..=10;
/// From this version on a node says for which platforms its module is.
const NAMES_PLATFORMS: i64 = 6;
/// From this version on modules check shapes.
const CHECKS_SHAPES: i64 = 7;

fn declared_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs().shapes("Sout")?;
    ensure!(
        shapes.len() == c.num_outputs(),
        InvalidArgument,
        "Sout has {} shapes for {} outputs",
        shapes.len(),
        c.num_outputs()
    );
    shapes.into_iter().enumerate().for_each(|(i, shape)| c.set_output(i, shape));
    Ok(())
}

fn lower(l: &mut Lowering<'_>) -> Result<()> {
    let attrs = l.attrs();
    let version = attrs.int("version")?;
    ensure!(
        VERSIONS.contains(&version),
        InvalidArgument,
        "XlaCallModule of version {version} is not supported, only {} to {}; export the model again",
        VERSIONS.start(),
        VERSIONS.end()
    );
    let is_disabled = |check: &str| -> Result<bool> {
        Ok(attrs.strings("disabled_checks")?.iter().any(|c| &c[..] == check.as_bytes()))
    };
    let platform = platform(attrs, version, l.program().platform(), is_disabled("platform")?)?;
    let arguments = l.inputs_from(0)?;
    let mut leading: Vec<i64> = platform.into_iter().collect();
    for spec in attrs.strings("dim_args_spec")? {
        leading.push(dimension(spec, &arguments)?);
    }
    let ignores_assertions = version < CHECKS_SHAPES || is_disabled("shape_assertions")?;
    let call = ModuleCall { leading, ignores_assertions };
    let module = Module::read(attrs.bytes("module")?).context(|| "the module cannot be read")?;
    let results = l.program().call_module(&module, &call, &arguments)?;
    let expected = l.node().outputs.len();
    ensure!(
        results.len() == expected,
        InvalidArgument,
        "the module makes {} results, the node has {expected} outputs",
        results.len()
    );
    for (i, result) in results.into_iter().enumerate() {
        let declared = l.output_dtype(i);
        if result.dtype() != declared {
            bail!(InvalidArgument, "result {i} of the module is {result:?}, Tout has {declared}");
        }
        l.set(i, result)?;
    }
    Ok(())
}

/// What a module for several platforms takes as its first argument: which of them this is.
fn platform(
    attrs: NodeAttrs<'_>,
    version: i64,
    here: &str,
    is_unchecked: bool,
) -> Result<Option<i64>> {
    let all: Vec<String> = attrs
        .strings("platforms")?
        .iter()
        .map(|name| String::from_utf8_lossy(name).to_uppercase())
        .collect();
    if all.is_empty() {
        ensure!(
            version < NAMES_PLATFORMS,
            InvalidArgument,
            "XlaCallModule of version {version} must have platforms"
        );
        return Ok(None);
    }
    let found = all.iter().position(|name| name == here);
    if found.is_none() && !is_unchecked {
        bail!(
            NotFound,
            "the module is for {}, the accelerator is {here}; export the model for it too \
             (jax2tf.convert with native_serialization_platforms)",
            all.join(", ")
        );
    }
    Ok((all.len() > 1).then_some(found.unwrap_or(0) as i64))
}

/// The dimension that a specification names: `0.1` is that of axis 1 of argument 0.
fn dimension(spec: &[u8], arguments: &[Value]) -> Result<i64> {
    let find = || {
        let (argument, axis) = std::str::from_utf8(spec).ok()?.split_once('.')?;
        let argument = arguments.get(argument.parse::<usize>().ok()?)?;
        argument.dims().get(axis.parse::<usize>().ok()?).map(|&dim| dim as i64)
    };
    find().ok_or_else(|| {
        err!(
            InvalidArgument,
            "'{}' in dim_args_spec names no dimension of an argument",
            String::from_utf8_lossy(spec)
        )
    })
}
