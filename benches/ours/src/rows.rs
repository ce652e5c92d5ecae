//! The rows: the same graphs, by name, that the peers build.

use std::path::Path;

use prost::Message;
use thalweg_graph::{Graph, NodeId, Output, Scope};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::Options;
use thalweg_proto::GraphDef;
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, err};

use crate::{input, kernels, loops, train};

/// The folder for graphs of rows, for a peer that can load them.
pub(crate) const GRAPHS_VARIABLE: &str = "THALWEG_BENCH_GRAPHS";

/// Rows whose graphs TensorFlow wrote (`benches/graphs/make.py`); their node `node_0` is run.
const FILES: &[(&str, &[u8])] = &[
    ("lstm/v1_forward", include_bytes!("../../graphs/lstm_v1_forward.pb")),
    ("lstm/v2_forward", include_bytes!("../../graphs/lstm_v2_forward.pb")),
    ("lstm/unrolled_forward", include_bytes!("../../graphs/lstm_unrolled_forward.pb")),
    ("lstm/v1_training", include_bytes!("../../graphs/lstm_v1_training.pb")),
    ("lstm/v2_training", include_bytes!("../../graphs/lstm_v2_training.pb")),
    ("lstm/unrolled_training", include_bytes!("../../graphs/lstm_unrolled_training.pb")),
];

/// A row, built.
pub(crate) struct Row {
    pub(crate) session: Session,
    pub(crate) feeds: Vec<(String, Tensor)>,
    pub(crate) fetches: Vec<String>,
    pub(crate) targets: Vec<String>,
    /// Work per run.
    pub(crate) units: f64,
    /// Number of nodes that one run executes, for rows that measure dispatch.
    pub(crate) nodes: Option<usize>,
    /// Number of warm-up runs.
    pub(crate) warm_up: u64,
    /// Initializer, run once before all others.
    pub(crate) init: Option<String>,
}

/// Writes a row's graph and work for a peer that can load them, if a folder is set.
fn write_down(base: &str, graph: &Graph, units: usize) -> Result<()> {
    let Some(folder) = std::env::var_os(GRAPHS_VARIABLE) else { return Ok(()) };
    let write = |extension: &str, content: &[u8]| {
        let file = Path::new(&folder).join(format!("{}.{extension}", base.replace('/', "_")));
        std::fs::write(&file, content).map_err(|e| err!(Unknown, "{}: {e}", file.display()))
    };
    write("pb", &graph.to_def().encode_to_vec())?;
    write("units", units.to_string().as_bytes())
}

/// A graph under construction.
struct Plan {
    scope: Scope,
    /// The graph, if it was not built by the scope.
    graph: Option<Graph>,
    feeds: Vec<(String, Tensor)>,
    fetches: Vec<String>,
    targets: Vec<String>,
    units: f64,
    nodes: Option<usize>,
    warm_up: u64,
    init: Option<String>,
    optimizes: bool,
}

/// Builds the row called `base`, to run on this many threads.
pub(crate) fn build(base: &str, threads: usize) -> Result<Row> {
    let scope = Scope::new(op_registry(FAMILIES)?);
    let mut plan = Plan {
        scope,
        graph: None,
        feeds: Vec::new(),
        fetches: Vec::new(),
        targets: Vec::new(),
        units: 1.0,
        nodes: None,
        warm_up: 30,
        init: None,
        optimizes: false,
    };
    plan.fill(base)?;
    let options = SessionOptions {
        inter_threads: threads,
        intra_threads: threads,
        plan: Options { optimize: plan.optimizes, ..Options::default() },
        ..SessionOptions::default()
    };
    let graph = plan.graph.take().unwrap_or_else(|| plan.scope.to_graph());
    Ok(Row {
        session: Session::new(graph, kernel_registry(FAMILIES), options)?,
        feeds: plan.feeds,
        fetches: plan.fetches,
        targets: plan.targets,
        units: plan.units,
        nodes: plan.nodes,
        warm_up: plan.warm_up,
        init: plan.init,
    })
}

impl Plan {
    fn fill(&mut self, base: &str) -> Result<()> {
        match base {
            "session/no_op" => {
                let node = self.scope.op("NoOp").build_node()?;
                self.target(node);
                Ok(())
            }
            "session/scalar_fetch" => {
                let value = self.scope.constant(&Tensor::scalar(1.0f32))?;
                self.fetches.push(self.scope.name_of(value));
                Ok(())
            }
            "session/scalar_feed_fetch" => {
                let fed = self.fed(&Tensor::scalar(1.0f32))?;
                let out = self.scope.add("Identity", &[fed])?;
                self.fetches.push(self.scope.name_of(out));
                Ok(())
            }
            "dispatch/noop_wide_10k" => self.no_ops(1, 10_000),
            "dispatch/noop_chain_10k" => self.no_ops(10_000, 1),
            "dispatch/identity_chain_10k" => self.identities(10_000, 1),
            "dispatch/identity_layers_10k" => self.identities(100, 100),
            "dispatch/identity_wide_10k" => self.identities(1, 10_000),
            "dispatch/add_chain_2k" => self.additions(2_000, 1),
            "dispatch/add_chain_10k" => self.additions(10_000, 1),
            "dispatch/add_layers_2k" => self.additions(20, 100),
            "dispatch/add_layers_10k" => self.additions(100, 100),
            "loop/empty_10k" => self.empty_loop(base, 10_000),
            "matmul/f32/256" => self.matmul(256),
            "matmul/f32/1024" => self.matmul(1024),
            "matmul/f32/2048" => self.matmul(2048),
            "elementwise/add/1M" => self.kernel("AddV2", &[&[1024, 1024], &[1024, 1024]], 1 << 20),
            "elementwise/mul/1M" => self.kernel("Mul", &[&[1024, 1024], &[1024, 1024]], 1 << 20),
            "elementwise/exp/1M" => self.kernel("Exp", &[&[1024, 1024]], 1 << 20),
            "elementwise/tanh/1M" => self.kernel("Tanh", &[&[1024, 1024]], 1 << 20),
            "softmax/128x1000" => self.kernel("Softmax", &[&[128, 1000]], 128_000),
            "reduce/sum/1M" => self.with_ints("Sum", &[1024, 1024], &[0, 1], 1 << 20),
            "transpose/1024" => self.with_ints("Transpose", &[1024, 1024], &[1, 0], 1 << 20),
            "random/normal/1M" => self.random(),
            "concat/8x128x1024" => self.concat(),
            "gather/8192x128" => self.gather(),
            _ => self.table_row(base),
        }
    }

    /// A row of one of [`FILES`].
    fn file_row(&mut self, base: &str, file: &'static [u8]) -> Result<()> {
        let def = GraphDef::decode(file).map_err(|e| err!(DataLoss, "{base}: {e}"))?;
        let graph = Graph::from_def(op_registry(FAMILIES)?, def)?;
        write_down(base, &graph, 1)?;
        self.targets.push("node_0".to_owned());
        self.graph = Some(graph);
        Ok(())
    }

    /// A row that drains a pipeline over a file of examples.
    fn input_row(&mut self, base: &str, def: GraphDef) -> Result<()> {
        let graph = Graph::from_def(op_registry(FAMILIES)?, def)?;
        write_down(base, &graph, input::EXAMPLES)?;
        self.targets.push("node_0".to_owned());
        self.units = input::EXAMPLES as f64;
        self.warm_up = 3;
        self.graph = Some(graph);
        Ok(())
    }

    /// A row that trains a model as a user's program does.
    fn training_row(&mut self, training: train::Training) {
        self.graph = Some(training.model.as_scope().to_graph());
        self.feeds = training.feeds;
        self.targets.push(training.step);
        self.init = Some(training.init);
        self.optimizes = true;
        self.warm_up = 5;
    }

    fn table_row(&mut self, base: &str) -> Result<()> {
        if let Some((_, file)) = FILES.iter().find(|(name, _)| *name == base) {
            return self.file_row(base, file);
        }
        if let Some(def) = input::graph(base) {
            return self.input_row(base, def?);
        }
        if let Some(training) = train::build(base) {
            self.training_row(training?);
            return Ok(());
        }
        let Some(row) = kernels::find(base) else { bail!(NotFound, "no row is called {base}") };
        let out = row.build(&mut self.scope)?;
        self.target(out.node);
        self.units = row.units as f64;
        self.scope.with_graph(|graph| write_down(base, graph, row.units))
    }

    fn empty_loop(&mut self, base: &str, iterations: usize) -> Result<()> {
        let graph = loops::empty_loop(op_registry(FAMILIES)?, iterations)?;
        let nodes = loops::EMPTY_LOOP_NODES * iterations;
        write_down(base, &graph, nodes)?;
        self.targets.push("node_0".to_owned());
        self.units = nodes as f64;
        self.graph = Some(graph);
        Ok(())
    }

    fn target(&mut self, node: NodeId) {
        let name = self.scope.with_graph(|graph| graph.node(node).name.to_string());
        self.targets.push(name);
    }

    fn fed(&mut self, value: &Tensor) -> Result<Output> {
        let input = self.scope.placeholder(value.dtype(), &PartialShape::from(value.shape()))?;
        self.feeds.push((self.scope.name_of(input), value.clone()));
        Ok(input)
    }

    /// A matrix of numbers between -0.5 and 0.5.
    fn matrix(&mut self, dims: &[usize]) -> Result<Output> {
        let shape = Shape::new(dims)?;
        let values: Vec<f32> = (0..shape.num_elements())
            .map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5)
            .collect();
        let value = Tensor::from_slice(shape, &values)?;
        self.scope.constant(&value)
    }

    fn ints(&mut self, values: &[i32]) -> Result<Output> {
        let value = Tensor::vector(values)?;
        self.scope.constant(&value)
    }

    /// Adds the `NoOp` that depends on the last layer and is the row's only target.
    fn finish_layers(&mut self, last: &[NodeId], nodes: usize) -> Result<()> {
        let end = self.scope.op("NoOp").after(last).build_node()?;
        self.target(end);
        self.units = nodes as f64;
        self.nodes = Some(nodes);
        Ok(())
    }

    fn no_ops(&mut self, layers: usize, width: usize) -> Result<()> {
        let mut last: Vec<Option<NodeId>> = vec![None; width];
        for _ in 0..layers {
            for node in &mut last {
                *node = Some(self.scope.op("NoOp").after(node.as_slice()).build_node()?);
            }
        }
        let last: Vec<NodeId> = last.into_iter().flatten().collect();
        self.finish_layers(&last, layers * width)
    }

    fn identities(&mut self, layers: usize, width: usize) -> Result<()> {
        let source = self.fed(&Tensor::scalar(1.0f32))?;
        let mut last = vec![source; width];
        for _ in 0..layers {
            for value in &mut last {
                *value = self.scope.add("Identity", &[*value])?;
            }
        }
        let ends: Vec<NodeId> = last.iter().map(|e| e.node).collect();
        self.finish_layers(&ends, layers * width)
    }

    fn additions(&mut self, layers: usize, width: usize) -> Result<()> {
        let source = self.fed(&Tensor::vector(&[1.0f32, 2.0, 3.0, 4.0])?)?;
        let mut last = vec![source; width];
        for _ in 0..layers {
            let mut next = Vec::with_capacity(width);
            for i in 0..width {
                let second = if width > 1 { last[(i + 1) % width] } else { source };
                next.push(self.scope.add("AddV2", &[last[i], second])?);
            }
            last = next;
        }
        let ends: Vec<NodeId> = last.iter().map(|e| e.node).collect();
        self.finish_layers(&ends, layers * width)
    }

    fn matmul(&mut self, n: usize) -> Result<()> {
        self.kernel("MatMul", &[&[n, n], &[n, n]], 2 * n * n * n)
    }

    fn kernel(&mut self, op: &str, inputs: &[&[usize]], units: usize) -> Result<()> {
        let inputs: Vec<Output> = inputs.iter().map(|d| self.matrix(d)).collect::<Result<_>>()?;
        let out = self.scope.add(op, &inputs)?;
        self.target(out.node);
        self.units = units as f64;
        Ok(())
    }

    fn with_ints(&mut self, op: &str, dims: &[usize], ints: &[i32], units: usize) -> Result<()> {
        let inputs = [self.matrix(dims)?, self.ints(ints)?];
        let out = self.scope.add(op, &inputs)?;
        self.target(out.node);
        self.units = units as f64;
        Ok(())
    }

    fn random(&mut self) -> Result<()> {
        let shape = self.ints(&[1024, 1024])?;
        let builder = self.scope.op("RandomStandardNormal").input(shape);
        let out = builder.attr("dtype", DType::Float).attr("seed", 1i64).build()?;
        self.target(out.node);
        self.units = (1 << 20) as f64;
        Ok(())
    }

    fn concat(&mut self) -> Result<()> {
        let parts: Vec<Output> =
            (0..8).map(|_| self.matrix(&[128, 1024])).collect::<Result<_>>()?;
        let axis = self.scope.constant(&Tensor::scalar(1i32))?;
        let out = self.scope.op("ConcatV2").inputs(&parts).input(axis).build()?;
        self.target(out.node);
        self.units = (8 * 128 * 1024) as f64;
        Ok(())
    }

    fn gather(&mut self) -> Result<()> {
        let (count, columns) = (8192i64, 128);
        let rows = 8 * count;
        let indices: Vec<i32> = (0..count).map(|i| (i * 40503 % rows) as i32).collect();
        let inputs = [
            self.matrix(&[rows as usize, columns])?,
            self.ints(&indices)?,
            self.scope.constant(&Tensor::scalar(0i32))?,
        ];
        let out = self.scope.add("GatherV2", &inputs)?;
        self.target(out.node);
        self.units = (count as usize * columns) as f64;
        Ok(())
    }
}
