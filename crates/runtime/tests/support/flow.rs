//! GraphDefs with branches and loops, node by node: what a `Scope` cannot build, as their edges go
//! backwards.

use std::sync::Arc;

use thalweg_graph::{AttrValue, Graph, IntoAttr};
use thalweg_proto as pb;
use thalweg_runtime::Session;
use thalweg_tensor::{DType, Result, Tensor};

/// A message that grows.
#[derive(Clone, Default)]
pub(crate) struct Flow {
    pub(crate) def: pb::GraphDef,
}

impl Flow {
    pub(crate) fn node(&mut self, name: &str, op: &str, inputs: &[&str]) -> &mut Self {
        self.def.node.push(pb::NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input: inputs.iter().map(|&i| i.to_owned()).collect(),
            ..Default::default()
        });
        self
    }

    /// Sets an attr of the last node.
    pub(crate) fn attr(&mut self, name: &str, value: impl IntoAttr) -> &mut Self {
        let node = self.def.node.last_mut().unwrap();
        node.attr.insert(name.to_owned(), value.into_attr().to_proto());
        self
    }

    /// A node with `T` int32.
    pub(crate) fn int(&mut self, name: &str, op: &str, inputs: &[&str]) -> &mut Self {
        self.node(name, op, inputs).attr("T", DType::Int32)
    }

    #[expect(clippy::needless_pass_by_value, reason = "literals read better")]
    pub(crate) fn constant(&mut self, name: &str, value: Tensor, after: &[&str]) -> &mut Self {
        let proto = AttrValue::Tensor(Arc::new(value.to_proto().unwrap()));
        self.node(name, "Const", after).attr("dtype", value.dtype()).attr("value", proto)
    }

    pub(crate) fn merge(&mut self, name: &str, inputs: &[&str]) -> &mut Self {
        let data = inputs.iter().filter(|i| !i.starts_with('^')).count();
        self.int(name, "Merge", inputs).attr("N", data as i64)
    }

    pub(crate) fn enter(&mut self, name: &str, input: &str, frame: &str) -> &mut Self {
        self.int(name, "Enter", &[input]).attr("frame_name", frame)
    }

    /// Changes an input of a node.
    pub(crate) fn rewire(&mut self, node: &str, input: usize, to: &str) -> &mut Self {
        let node = self.def.node.iter_mut().find(|n| n.name == node).unwrap();
        node.input[input] = to.to_owned();
        self
    }

    /// `for i in start..limit {}`, with its nodes' names behind `prefix`; the result is `exit`.
    pub(crate) fn count(&mut self, prefix: &str, start: &str, limit: i32, parallel: i64) {
        let p = |name: &str| format!("{prefix}{name}");
        let frame = format!("{prefix}frame");
        self.enter(&p("enter"), start, &frame).attr("parallel_iterations", parallel);
        self.merge(&p("merge"), &[&p("enter"), &p("next")]);
        self.constant(&p("limit"), Tensor::scalar(limit), &[&format!("^{}", p("merge"))]);
        self.int(&p("less"), "Less", &[&p("merge"), &p("limit")]);
        self.node(&p("cond"), "LoopCond", &[&p("less")]);
        self.int(&p("switch"), "Switch", &[&p("merge"), &p("cond")]);
        self.int(&p("body"), "Identity", &[&p("switch:1")]);
        self.constant(&p("one"), Tensor::scalar(1i32), &[&format!("^{}", p("body"))]);
        self.int(&p("add"), "AddV2", &[&p("body"), &p("one")]);
        self.int(&p("next"), "NextIteration", &[&p("add")]);
        self.int(&p("exit"), "Exit", &[&p("switch")]);
    }

    pub(crate) fn session(&self, threads: usize) -> Result<Session> {
        let (ops, kernels) = super::registries();
        let graph = Graph::from_def(ops, self.def.clone())?;
        Session::new(graph, kernels, super::options(threads))
    }
}

pub(crate) fn ints(tensors: &[Tensor]) -> Vec<i32> {
    tensors.iter().map(|t| t.as_slice::<i32>().unwrap()[0]).collect()
}
