//! The op registry: op definitions by name.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use thalweg_tensor::{Result, bail, err};

use crate::op::{Flag, Op, OpDef};

/// Op definitions: ours, with shape functions, and TensorFlow's bare interfaces for the rest.
///
/// A graph may hold any op of either kind. An unknown op is refused when the graph is made; one
/// without a kernel is refused when a step that needs it is planned.
pub struct OpRegistry {
    ops: FxHashMap<String, Arc<Op>>,
    interfaces: &'static str,
    known: OnceLock<FxHashMap<String, Arc<Op>>>,
}

impl OpRegistry {
    /// A registry of `ops`; `interfaces` lists further signatures, one a line, as
    /// `parse_interface` reads them.
    pub fn new<'a>(
        ops: impl IntoIterator<Item = &'a OpDef>,
        interfaces: &'static str,
    ) -> Result<Arc<OpRegistry>> {
        let mut table = FxHashMap::default();
        for def in ops {
            let op = Op::from_def(def)
                .map_err(|e| err!(Internal, "op {}: {}", def.name, e.message()))?;
            if table.insert(def.name.to_owned(), Arc::new(op)).is_some() {
                bail!(AlreadyExists, "op {} is defined twice", def.name);
            }
        }
        Ok(Arc::new(OpRegistry { ops: table, interfaces, known: OnceLock::new() }))
    }

    /// The op called `name`.
    pub fn get(&self, name: &str) -> Result<&Arc<Op>> {
        self.ops.get(name).or_else(|| self.interfaces().get(name)).ok_or_else(|| {
            err!(
                NotFound,
                "Op type not registered '{name}': neither TensorFlow 2.21 nor this program defines it"
            )
        })
    }

    /// Whether `name` has a definition of ours, not just TensorFlow's interface.
    pub fn is_defined(&self, name: &str) -> bool {
        self.ops.contains_key(name)
    }

    /// Our definitions, sorted by name.
    pub fn defined(&self) -> Vec<&Arc<Op>> {
        let mut ops: Vec<_> = self.ops.values().collect();
        ops.sort_by(|a, b| a.name.cmp(&b.name));
        ops
    }

    /// TensorFlow's interfaces.
    pub fn interfaces(&self) -> &FxHashMap<String, Arc<Op>> {
        self.known.get_or_init(|| {
            self.interfaces
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .filter_map(|line| parse_interface(line).ok())
                .map(|op| (op.name.clone(), Arc::new(op)))
                .collect()
        })
    }
}

/// Reads `Name | input; input | output | attr; attr | flag flag`; `\n` in a string is a newline.
pub(crate) fn parse_interface(line: &str) -> Result<Op> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, inputs, outputs, attrs, flags] = fields[..] else {
        bail!(Internal, "an op's line must have 5 fields: {line:?}");
    };
    let (inputs, outputs, attrs) = (entries(inputs), entries(outputs), entries(attrs));
    let mut op = Op::parse(name, &inputs, &outputs, &attrs)?;
    op.flags = flags.split_whitespace().filter_map(Flag::from_name).collect();
    Ok(op)
}

fn entries(field: &str) -> Vec<&str> {
    field.split(';').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}
