//! Optimizers and savers on the handles of `thalweg_api`.

use thalweg_api::{Graph, Operation, Output, TensorType};
use thalweg_tensor::Result;

use crate::{ModelScope, Optimizer, Saver};

impl Optimizer {
    /// As [`Optimizer::minimize`], by handle: over the trainable variables of the loss's graph.
    #[track_caller]
    #[must_use = "a step runs it as a target"]
    pub fn minimize_loss<T: TensorType>(&self, loss: &Output<T>) -> Operation {
        let graph = loss.graph();
        let Ok(at) = loss.endpoint() else { return Operation::poisoned(graph) };
        match graph.build(|_| self.minimize(&mut ModelScope::of(graph), at)) {
            Some(node) => graph.operation(node),
            None => Operation::poisoned(graph),
        }
    }
}

impl Saver {
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
}
