//! The op registry: op definitions by name.

use std::sync::{Arc, LazyLock, OnceLock};

use rustc_hash::FxHashMap;
use thalweg_tensor::{Result, bail, err};

use crate::op::{Op, OpDef};

/// The interface of every op of TensorFlow 2.21, one per line: `name | inputs | outputs | attrs |
/// flags`.
pub static TENSORFLOW_INTERFACES: &str = include_str!("tensorflow_ops.txt");

/// The lines of [`TENSORFLOW_INTERFACES`] by name.
static LISTED: LazyLock<FxHashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = TENSORFLOW_INTERFACES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" | ")).collect()
});

/// Op definitions: ours, with shape functions, and TensorFlow's interfaces for all other ops.
///
/// A graph may contain any op of either kind. An unknown op is an error when the graph is made; an
/// op without a kernel is an error when a step that needs it is planned.
pub struct OpRegistry {
    ops: FxHashMap<&'static str, Entry>,
}

/// An op whose interface is parsed at first use.
struct Entry {
    /// `None` for an op whose interface alone is known.
    def: Option<OpDef>,
    interface: &'static str,
    parsed: OnceLock<Arc<Op>>,
}

impl Entry {
    fn op(&self, name: &str) -> Result<&Arc<Op>> {
        if let Some(op) = self.parsed.get() {
            return Ok(op);
        }
        let op = match &self.def {
            Some(def) => Op::of(def, self.interface),
            None => Op::parse_interface(name, self.interface),
        };
        let op = op.map_err(|e| err!(Internal, "op {name}: {}", e.message()))?;
        Ok(self.parsed.get_or_init(|| Arc::new(op)))
    }
}

impl OpRegistry {
    /// A registry of `ops`, and of all other ops of TensorFlow by their interfaces.
    pub fn new<'a>(ops: impl IntoIterator<Item = &'a OpDef>) -> Result<Arc<OpRegistry>> {
        let listed = |(&name, &interface): (&&'static str, &&'static str)| {
            (name, Entry { def: None, interface, parsed: OnceLock::new() })
        };
        let mut table: FxHashMap<&'static str, Entry> = LISTED.iter().map(listed).collect();
        for def in ops {
            let interface = def.interface.or_else(|| LISTED.get(def.name).copied());
            let Some(interface) = interface else {
                bail!(
                    InvalidArgument,
                    "op {}: TensorFlow has no op of this name, so its definition must state an interface",
                    def.name
                );
            };
            let entry = Entry { def: Some(*def), interface, parsed: OnceLock::new() };
            if def.interface.is_some() {
                entry.op(def.name)?;
            }
            if table.insert(def.name, entry).is_some_and(|former| former.def.is_some()) {
                bail!(AlreadyExists, "op {} is defined twice", def.name);
            }
        }
        Ok(Arc::new(OpRegistry { ops: table }))
    }

    /// The op called `name`.
    pub fn get(&self, name: &str) -> Result<&Arc<Op>> {
        match self.ops.get(name) {
            Some(entry) => entry.op(name),
            None => bail!(
                NotFound,
                "Op type not registered '{name}': neither TensorFlow 2.21 nor this program defines it"
            ),
        }
    }

    /// Whether `name` has a definition of ours, not just TensorFlow's interface.
    pub fn is_defined(&self, name: &str) -> bool {
        self.ops.get(name).is_some_and(|entry| entry.def.is_some())
    }

    /// The names of all ops, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.ops.keys().copied().collect();
        names.sort_unstable();
        names
    }

    /// Our definitions, sorted by name.
    pub fn defined(&self) -> Vec<&Arc<Op>> {
        let names = self.names().into_iter().filter(|name| self.is_defined(name));
        // The interfaces in definitions were parsed before; a test parses the listed ones.
        names.filter_map(|name| self.ops[name].op(name).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::shape;

    #[test]
    fn definitions_without_an_interface_are_refused() {
        let code = |defs: &[OpDef]| OpRegistry::new(defs).map(|_| ()).map_err(|e| e.code());
        let own = OpDef::new("Own", shape::unknown);
        assert_eq!(code(&[own]), Err(Code::InvalidArgument));
        assert_eq!(code(&[own.with_interface("x: float | y: T")]), Err(Code::Internal));
        let own = own.with_interface("x: float | y: float");
        assert_eq!(code(&[own]), Ok(()));
        assert_eq!(code(&[own, own]), Err(Code::AlreadyExists));
    }

    #[test]
    fn a_definition_extends_the_listed_interface() {
        let registry = OpRegistry::new(&[OpDef::new("Relu", shape::unchanged)]).unwrap();
        assert!(registry.is_defined("Relu") && !registry.is_defined("Relu6"));
        assert_eq!(registry.get("Relu").unwrap().inputs[0].name, "features");
        assert_eq!(registry.get("Nothing").map(|_| ()).unwrap_err().code(), Code::NotFound);
    }
}
