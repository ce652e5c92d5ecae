//! The caller of PJRT, XLA's interface to compilers and devices: plugins, clients, executables, buffers.
//!
//! A [`Plugin`] is a shared library with the function `GetPjrtApi`: XLA's for CUDA GPUs or for TPUs, or its
//! CPU backend. A [`Client`] of it has devices; it compiles StableHLO to an [`Executable`] for one of them
//! and copies tensors to their memory as [`Buffer`]s. Transfers and executions are asynchronous: calls
//! return at once, work on a device is ordered by the buffers that it reads and writes, and an execution
//! that fails shows in the buffers that it should have written. Client and plugin live as long as anything
//! that was made with them.
//!
//! Callbacks run on a thread of the plugin, or on the caller's if what they wait for has happened
//! already. They should be short and must not wait for other work of the client.

mod buffer;
mod client;
mod executable;
mod raw;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_tensor::{Code, Error, Result};

pub use buffer::Buffer;
pub use client::{Client, CompileOptions, Device, MemoryStats};
pub use executable::Executable;

/// The oldest minor version of the PJRT API 0.x that this caller knows: executions take a list of
/// arguments that are not donated, and the functions have the indices that are used here.
pub const MINIMUM_MINOR: i32 = 60;

/// The value of an option of a client or a compilation.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A text.
    Str(String),
    /// A whole number.
    Int(i64),
    /// A list of whole numbers, for clients only.
    IntList(Vec<i64>),
    /// A real number.
    Float(f32),
    /// Yes or no.
    Bool(bool),
}

/// A library that implements PJRT. It stays loaded until the process ends.
pub struct Plugin {
    path: PathBuf,
    api: raw::Api,
    attributes: Vec<(String, String)>,
}

/// The plugins of this process.
static PLUGINS: Mutex<Vec<Arc<Plugin>>> = Mutex::new(Vec::new());

impl Plugin {
    /// Loads the library at `path`, checks its version and prepares it. A library that is loaded already
    /// is the same plugin.
    ///
    /// This runs code of the library: the path should come from somebody who may choose what this process
    /// does.
    pub fn load(path: &Path) -> Result<Arc<Plugin>> {
        let path = std::fs::canonicalize(path).map_err(|e| {
            let code = match e.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                std::io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                _ => Code::InvalidArgument,
            };
            Error::new(code, format!("no PJRT plugin at {}: {e}", path.display()))
        })?;
        // Held while loading: a library is prepared once, whoever asks first.
        let mut plugins = PLUGINS.lock();
        if let Some(known) = plugins.iter().find(|plugin| plugin.path == path) {
            return Ok(known.clone());
        }
        let api = raw::Api::load(&path)?;
        // The system loads a file once, whatever links lead to it.
        if let Some(known) = plugins.iter().find(|plugin| plugin.api == api) {
            return Ok(known.clone());
        }
        let named = |e: Error| e.map_message(|m| format!("{}: {m}", path.display()));
        api.initialize().map_err(named)?;
        let attributes = match api.attributes() {
            Err(e) if e.code() == Code::Unimplemented => Vec::new(),
            attributes => attributes.map_err(named)?,
        };
        let plugin = Arc::new(Plugin { path, api, attributes });
        plugins.push(plugin.clone());
        Ok(plugin)
    }

    /// Where the library lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the PJRT API that the plugin implements.
    pub fn api_version(&self) -> (i32, i32) {
        self.api.version()
    }

    /// What the plugin says about itself, `stablehlo_current_version` (`1.20.0`) for instance.
    pub fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }

    /// The value of one attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({})", self.path.display())
    }
}
