//! Savers: checkpoints written and restored by ops of the graph, and the files that keep track of
//! them.

use std::sync::Arc;
use std::time::Duration;

use thalweg_api::Graph;
use thalweg_formats::checkpoint::{CheckpointState, index_path, prefix_of};
use thalweg_formats::saved_model::{RUN_STATE_ATTR, SLICE_ATTR, SLICE_OF_ATTR};
use thalweg_formats::storage::{Storage, folder_of, join};
use thalweg_graph::{NodeId, Output, Scope};
use thalweg_runtime::system_environment;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Bytes, Code, DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::{Model, RunSteps};

/// Which checkpoints a [`Saver`] keeps, and the storage of its checkpoint state file.
#[derive(Clone)]
pub struct SaverOptions {
    /// The number of most recent checkpoints to keep; 0 keeps all (`max_to_keep`).
    pub max_to_keep: usize,
    /// Additionally keeps one checkpoint per interval for ever (`keep_checkpoint_every_n_hours`).
    pub keep_every: Option<Duration>,
    /// The storage in which the saver keeps its state file and deletes checkpoints: the one that
    /// the session's steps write to.
    pub storage: Arc<dyn Storage>,
}

impl Default for SaverOptions {
    fn default() -> Self {
        SaverOptions { max_to_keep: 5, keep_every: None, storage: Arc::new(ByUrl::default()) }
    }
}

/// Saves and restores variables of a graph.
///
/// Checkpoints have TensorFlow's format, with the state file `checkpoint` beside them: TensorFlow's
/// savers restore ours, and ours restore TensorFlow's.
///
/// ```
/// use thalweg_graph::Scope;
/// use thalweg_runtime::Session;
/// use thalweg_tensor::{DType, PartialShape, Result, Tensor};
/// use thalweg_train::Saver;
///
/// # fn main() -> Result<()> {
/// # let folder = std::env::temp_dir().join(format!("thalweg-doc-saver-{}", std::process::id()));
/// # let folder = folder.to_str().unwrap();
/// # let families = thalweg_ops::FAMILIES;
/// let mut scope = Scope::new(thalweg_ops::op_registry(families)?);
/// let handle = scope
///     .op("VarHandleOp")
///     .name("w")
///     .attr("dtype", DType::Float)
///     .attr("shape", &PartialShape::scalar())
///     .attr("shared_name", "w")
///     .build()?;
/// let value = scope.placeholder(DType::Float, &PartialShape::scalar())?;
/// let assign = scope.op("AssignVariableOp").name("assign").inputs(&[handle, value]).build_node()?;
/// let read = scope.op("ReadVariableOp").name("read").input(handle).attr("dtype", DType::Float).build()?;
///
/// let mut saver = Saver::of_all(&mut scope)?;
/// # let kernels = thalweg_ops::kernel_registry(families);
/// let session = Session::new(scope.to_graph(), kernels, Default::default())?;
/// let set = |x: f32| session.run(&[(&scope.name_of(value), Tensor::scalar(x))], &[], &["assign"]);
/// set(1.5)?;
/// let prefix = saver.save(&session, &format!("{folder}/model"), Some(100))?;
/// set(0.0)?;
/// assert_eq!(saver.latest(folder)?, Some(prefix.clone()));
/// saver.restore(&session, &prefix)?;
/// assert_eq!(session.run(&[], &["read"], &[])?[0].scalar_value::<f32>()?, 1.5);
/// # let _ = (assign, read);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Saver {
    checkpoints: Checkpoints,
    /// The tensor that is fed with the checkpoint prefix.
    prefix: String,
    save: String,
    restore: String,
}

/// The checkpoint state of a folder: which checkpoints there are, and which are deleted.
#[derive(Default)]
pub struct Checkpoints {
    options: SaverOptions,
    /// The checkpoints that are kept, newest last, each with its time in seconds since 1970.
    kept: Vec<(String, f64)>,
    /// Checkpoints that are not deleted, however old they are.
    pinned: Vec<String>,
    /// When a checkpoint was last kept for ever.
    preserved: Option<f64>,
}

impl Saver {
    /// A saver of all variables that the graph has so far, under the names of their nodes. Local
    /// state of a run (variables under `coordination/`, `supervision/` and the like) is left out: a
    /// run that continues from a checkpoint initializes it again.
    pub fn of_all(scope: &mut Scope) -> Result<Saver> {
        let variables = scope.with_graph(|graph| {
            let nodes = graph.nodes().iter().enumerate();
            let variables = nodes.filter(|(_, node)| {
                let is_of_run = node.attrs().bool(RUN_STATE_ATTR).is_ok_and(|is_so| is_so);
                node.role().is_variable() && !is_of_run
            });
            let named = variables.map(|(i, node)| {
                (node.name.to_string(), Output { node: NodeId(i as u32), index: 0 })
            });
            named.collect::<Vec<_>>()
        });
        Self::new(scope, &variables)
    }

    /// A saver of the variables that the graph has so far, as [`Saver::of_all`]. It adds nodes: make
    /// it before sessions on servers that cannot extend their graph.
    ///
    /// ```
    /// use thalweg_api::{Graph, Init, Variable};
    /// use thalweg_train::Saver;
    ///
    /// # fn main() -> thalweg_api::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("thalweg-doc-of-{}", std::process::id()));
    /// # let folder = folder.to_str().unwrap();
    /// let g = Graph::new();
    /// let w: Variable<f32> = g.variable("w", Init::constant(1.5, []));
    /// let clear = w.assign(0.0);
    /// let mut saver = Saver::of(&g)?;
    /// let session = g.session()?;
    /// let prefix = saver.save(&session, &format!("{folder}/model"), Some(100))?;
    /// session.run::<_, ()>((), (), &[&clear])?;
    /// saver.restore(&session, &prefix)?;
    /// assert_eq!(session.run::<_, f32>(&w, (), &[])?, 1.5);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(graph: &Graph) -> Result<Saver> {
        graph.check()?;
        Saver::of_all(&mut graph.root().as_scope().clone())
    }

    /// A saver of the variables of a model, under their names.
    pub(crate) fn of_model(model: &Model) -> Result<Saver> {
        let variables = model.variables().into_iter();
        let variables: Vec<(String, Output)> =
            variables.map(|variable| (variable.name, variable.handle)).collect();
        Saver::new(&mut model.root().as_scope().clone(), &variables)
    }

    /// A saver of these variables, given as resource handles or references, each under the name
    /// beside it. A partition is saved as a slice of the whole variable if it is saved under its
    /// node's name.
    pub fn new(scope: &mut Scope, variables: &[(String, Output)]) -> Result<Saver> {
        ensure!(!variables.is_empty(), InvalidArgument, "there are no variables to save");
        let mut scope = scope.child("save");
        let prefix = scope.placeholder(DType::String, &PartialShape::scalar())?;
        let saved: Vec<(String, String)> =
            variables.iter().map(|(name, variable)| saved_as(&scope, name, *variable)).collect();
        let [names, parts] = entries(&mut scope, saved)?;
        let mut inputs = vec![prefix, names, parts];
        let mut dtypes = Vec::with_capacity(variables.len());
        for (name, variable) in variables {
            let (value, dtype) = value_of(&mut scope, name, *variable)?;
            inputs.push(value);
            dtypes.push(dtype);
        }
        let save = scope.op("SaveV2").inputs(&inputs).attr("dtypes", &dtypes[..]).build_node()?;
        let restored = scope
            .op("RestoreV2")
            .inputs(&[prefix, names, parts])
            .attr("dtypes", &dtypes[..])
            .build_all()?;
        let mut assigned = Vec::with_capacity(variables.len());
        for ((_, variable), value) in variables.iter().zip(restored) {
            let is_resource = dtype_of(&scope, *variable) == DType::Resource;
            let op = if is_resource { "AssignVariableOp" } else { "Assign" };
            assigned.push(scope.op(op).inputs(&[*variable, value]).build_node()?);
        }
        let restore = scope.op("NoOp").name("restore_all").after(&assigned).build_node()?;
        let name = |node: NodeId| scope.with_graph(|graph| graph.node(node).name.to_string());
        Ok(Saver {
            checkpoints: Checkpoints::default(),
            prefix: scope.name_of(prefix),
            save: name(save),
            restore: name(restore),
        })
    }

    /// The same saver with other options.
    pub fn with_options(mut self, options: SaverOptions) -> Saver {
        self.checkpoints.options = options;
        self
    }

    /// Saves to `path`, or `path-STEP`, and returns that prefix; then updates the folder's state
    /// file and deletes the checkpoints that are no longer kept.
    pub fn save(
        &mut self,
        session: &impl RunSteps,
        path: &str,
        step: Option<i64>,
    ) -> Result<String> {
        let prefix = match step {
            Some(step) => format!("{path}-{step}"),
            None => path.to_owned(),
        };
        session.run_step(
            &[(&self.prefix, Tensor::scalar_string(prefix.clone()))],
            &[],
            &[&self.save],
        )?;
        self.checkpoints.add(&prefix)?;
        Ok(prefix)
    }

    /// Restores all variables from the checkpoint with this prefix.
    pub fn restore(&self, session: &impl RunSteps, prefix: &str) -> Result<()> {
        let feed = Tensor::scalar_string(prefix.to_owned());
        session.run_step(&[(&self.prefix, feed)], &[], &[&self.restore])?;
        Ok(())
    }

    /// The most recent checkpoint in a folder, if there is one.
    pub fn latest(&self, folder: &str) -> Result<Option<String>> {
        self.checkpoints.latest(folder)
    }

    /// Restores the most recent checkpoint in a folder, if there is one, and continues its state:
    /// checkpoints of an earlier saver are deleted in turn.
    pub fn resume(&mut self, session: &impl RunSteps, folder: &str) -> Result<Option<String>> {
        let Some(prefix) = self.latest(folder)? else { return Ok(None) };
        self.restore(session, &prefix)?;
        self.checkpoints.resume(folder)?;
        Ok(Some(prefix))
    }
}

impl Checkpoints {
    /// A checkpoint state with these options.
    pub fn new(options: SaverOptions) -> Checkpoints {
        Checkpoints { options, ..Checkpoints::default() }
    }

    /// Records that a checkpoint was written: updates the folder's state file and deletes the
    /// checkpoints that are no longer kept.
    pub fn add(&mut self, prefix: &str) -> Result<()> {
        let now = system_environment().clock.wall();
        self.kept.retain(|(other, _)| *other != prefix);
        self.kept.push((prefix.to_owned(), now.as_secs_f64()));
        let gone = self.drop_old();
        // The state file is updated before files are deleted, so it never names a deleted checkpoint.
        self.write_list(prefix)?;
        for prefix in gone {
            remove(&*self.options.storage, &prefix)?;
        }
        Ok(())
    }

    /// Sets which checkpoints are not deleted, however many newer ones there are.
    pub fn keep(&mut self, prefixes: Vec<String>) {
        self.pinned = prefixes;
    }

    /// The most recent checkpoint in a folder, if there is one.
    pub fn latest(&self, folder: &str) -> Result<Option<String>> {
        let storage = &*self.options.storage;
        let Some(state) = CheckpointState::read(storage, folder)? else { return Ok(None) };
        for prefix in std::iter::once(state.latest).chain(state.all.into_iter().rev()) {
            // Of the second format, or a file of the first.
            if storage.exists(&index_path(&prefix))? || storage.exists(&prefix)? {
                return Ok(Some(prefix));
            }
        }
        Ok(None)
    }

    /// Continues the state of a folder: checkpoints of an earlier saver are deleted in turn.
    pub fn resume(&mut self, folder: &str) -> Result<()> {
        if let Some(state) = CheckpointState::read(&*self.options.storage, folder)? {
            let times = state.timestamps.into_iter().chain(std::iter::repeat(0.0));
            self.kept = state.all.into_iter().zip(times).collect();
            self.preserved = Some(state.last_preserved).filter(|&time| time > 0.0);
        }
        Ok(())
    }

    /// Removes the checkpoints beyond `max_to_keep` from the state; returns those to delete.
    fn drop_old(&mut self) -> Vec<String> {
        let mut gone = Vec::new();
        let max = self.options.max_to_keep;
        let is_pinned = |(prefix, _): &(String, f64)| self.pinned.contains(prefix);
        while max > 0 && self.kept.iter().filter(|kept| !is_pinned(kept)).count() > max {
            let Some(oldest) = self.kept.iter().position(|kept| !is_pinned(kept)) else { break };
            let (prefix, time) = self.kept.remove(oldest);
            let last = *self.preserved.get_or_insert(time);
            match self.options.keep_every {
                Some(span) if time - last >= span.as_secs_f64() => self.preserved = Some(time),
                _ => gone.push(prefix),
            }
        }
        gone
    }

    fn write_list(&self, newest: &str) -> Result<()> {
        let state = CheckpointState {
            latest: newest.to_owned(),
            all: self.kept.iter().map(|(prefix, _)| prefix.clone()).collect(),
            timestamps: self.kept.iter().map(|&(_, time)| time).collect(),
            last_preserved: self.preserved.unwrap_or_default(),
        };
        state.write(&*self.options.storage, folder_of(newest))
    }
}

/// Deletes a checkpoint: its index first, so that no partial checkpoint is visible.
fn remove(storage: &dyn Storage, prefix: &str) -> Result<()> {
    remove_if_there(storage, &index_path(prefix))?;
    let folder = folder_of(prefix);
    for name in storage.list(folder)? {
        let path = join(folder, &name);
        if prefix_of(&path) == Some(prefix) {
            remove_if_there(storage, &path)?;
        }
    }
    Ok(())
}

fn remove_if_there(storage: &dyn Storage, path: &str) -> Result<()> {
    match storage.remove(path) {
        Err(e) if e.code() != Code::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The name of a variable in a checkpoint and its slice specification; empty for a whole variable.
fn saved_as(scope: &Scope, name: &str, variable: Output) -> (String, String) {
    scope.with_graph(|graph| {
        let node = graph.node(variable.node);
        let text = |attr| node.attrs().string(attr).ok().map(str::to_owned);
        let slice = text(SLICE_OF_ATTR).zip(text(SLICE_ATTR));
        slice.filter(|_| *node.name == *name).unwrap_or((name.to_owned(), String::new()))
    })
}

/// Names and slice specifications as `SaveV2` and `RestoreV2` take them.
pub(crate) fn entries(scope: &mut Scope, saved: Vec<(String, String)>) -> Result<[Output; 2]> {
    let shape = Shape::new(&[saved.len()])?;
    let (names, slices): (Vec<Bytes>, Vec<Bytes>) =
        saved.into_iter().map(|(name, slice)| (name.into(), slice.into())).unzip();
    let names = scope.constant(&Tensor::from_strings(shape.clone(), names)?)?;
    Ok([names, scope.constant(&Tensor::from_strings(shape, slices)?)?])
}

fn dtype_of(scope: &Scope, output: Output) -> DType {
    scope.with_graph(|graph| graph.node(output.node).outputs[output.index as usize].dtype)
}

/// A variable's value and its dtype.
fn value_of(scope: &mut Scope, name: &str, variable: Output) -> Result<(Output, DType)> {
    let (dtype, op) = scope.with_graph(|graph| {
        let node = graph.node(variable.node);
        let output = node.outputs.get(variable.index as usize);
        let output =
            output.ok_or_else(|| err!(InvalidArgument, "variable '{name}' is not in the graph"))?;
        let dtype = match output.dtype {
            DType::Resource => node.attrs().dtype("dtype")?,
            dtype if output.is_ref => dtype,
            dtype => bail!(InvalidArgument, "'{name}' is a {dtype} tensor, not a variable"),
        };
        Ok((dtype, if output.is_ref { "Identity" } else { "ReadVariableOp" }))
    })?;
    let read = scope.op(op).input(variable);
    let read = if op == "Identity" { read } else { read.attr("dtype", dtype) };
    Ok((read.build()?, dtype))
}
