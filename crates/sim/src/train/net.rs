//! What a worker trains: variables, and the arithmetic that a step spends on each.

use rustc_hash::FxHashMap;
use thalweg_api::{NewOp, Output};
use thalweg_tensor::{Result, ensure};
use thalweg_train::{Initializer, Model};

/// The most layers of a net.
const LAYERS_MAX: usize = 10_000;

/// A net as its costs: one layer per variable. The gradient of a layer with arithmetic needs the values
/// of all such layers; that of one without, as in a step that computes nothing, needs its own alone.
#[derive(Clone, Debug, PartialEq)]
pub struct NetDescription {
    /// The layers.
    pub layers: Vec<LayerDescription>,
    /// Samples in a worker's batch.
    pub batch: usize,
}

/// One layer: a variable, and its arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerDescription {
    /// The variable's name.
    pub name: String,
    /// The variable's shape.
    pub dims: Vec<usize>,
    /// The number of rows that a step reads and updates, if it does not read the whole variable.
    pub rows: Option<usize>,
    /// Floating-point operations of a batch forwards; backwards they are twice as many.
    pub flops: f64,
}

impl NetDescription {
    /// A multilayer perceptron: `sizes` are those of its input, its hidden layers and its output.
    pub fn mlp(sizes: &[usize], batch: usize) -> NetDescription {
        let layer = |(i, pair): (usize, &[usize])| LayerDescription {
            name: format!("dense_{i}/kernel"),
            dims: pair.to_vec(),
            rows: None,
            flops: 2.0 * batch as f64 * pair[0] as f64 * pair[1] as f64,
        };
        NetDescription { layers: sizes.windows(2).enumerate().map(layer).collect(), batch }
    }

    /// `bytes` of 32-bit parameters in `parts` equal variables; `flops` of a whole step, forwards
    /// and backwards.
    pub fn dense(bytes: usize, parts: usize, flops: f64, batch: usize) -> NetDescription {
        let parts = parts.max(1);
        let layer = |i| LayerDescription {
            name: format!("part_{i}"),
            dims: vec![(bytes / 4 / parts).max(1)],
            rows: None,
            flops: flops / 3.0 / parts as f64,
        };
        NetDescription { layers: (0..parts).map(layer).collect(), batch }
    }

    /// An embedding of `bytes` in `parts` equal variables with rows of `width` numbers, of which a
    /// step reads `rows`.
    pub fn embedding(bytes: usize, parts: usize, width: usize, rows: usize) -> NetDescription {
        let (parts, width) = (parts.max(1), width.max(1));
        let each = rows.div_ceil(parts);
        let layer = |i| LayerDescription {
            name: format!("embedding_{i}"),
            dims: vec![(bytes / 4 / parts / width).max(each), width],
            rows: Some(each),
            flops: 0.0,
        };
        NetDescription { layers: (0..parts).map(layer).collect(), batch: rows }
    }

    /// Bytes of all parameters.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(LayerDescription::bytes).sum()
    }

    /// The loss, and by which layer each of its nodes is: their costs follow from the description.
    pub(super) fn build(&self, model: &Model) -> Result<(Output<f32>, Vec<Output<f32>>)> {
        ensure!(
            !self.layers.is_empty() && self.layers.len() <= LAYERS_MAX,
            InvalidArgument,
            "a net has 1 to {LAYERS_MAX} layers, this one {}",
            self.layers.len()
        );
        let mut out: Output<f32> = model.constant(1.0f32);
        let mut beside = Vec::new();
        let mut reads = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            layer.check()?;
            let parameter = model.parameter_parts(&layer.name, &layer.dims, &Initializer::Zeros);
            let read = match layer.rows {
                None => parameter.read(model),
                Some(rows) => {
                    let rows: Vec<i64> = (0..rows as i64).collect();
                    parameter.gather(model, &model.constant(rows))
                }
            };
            let of_layer: Output<f32> = NewOp::new(model, "L2Loss").input(&read).output();
            match layer.flops > 0.0 {
                true => out = out * of_layer,
                false => beside.push(of_layer),
            }
            reads.push(read);
        }
        Ok((beside.into_iter().fold(out, |sum, of_layer| sum + of_layer), reads))
    }

    /// Operations of each node that computes with a layer's value: the loss of the layer forwards, all
    /// others backwards. Call it once the gradients are in the graph.
    pub(super) fn flops(
        &self,
        model: &Model,
        reads: &[Output<f32>],
    ) -> Result<FxHashMap<String, f64>> {
        let mut layers = FxHashMap::default();
        for (read, layer) in reads.iter().zip(&self.layers) {
            layers.insert(read.endpoint()?, layer.flops);
        }
        let mut flops = FxHashMap::default();
        model.as_scope().with_graph(|graph| {
            for node in graph.nodes() {
                let Some(of_layer) = node.inputs.iter().find_map(|e| layers.get(e)) else {
                    continue;
                };
                let times = match &*node.op.name {
                    "L2Loss" => 1.0,
                    "Mul" => 2.0,
                    _ => continue,
                };
                flops.insert(node.name.to_string(), of_layer * times);
            }
        });
        Ok(flops)
    }
}

impl LayerDescription {
    fn bytes(&self) -> u64 {
        self.dims.iter().fold(4, |bytes: u64, &dim| bytes.saturating_mul(dim as u64))
    }

    fn check(&self) -> Result<()> {
        let is_valid = self.flops.is_finite() && self.flops >= 0.0;
        ensure!(is_valid, InvalidArgument, "'{}' takes {} operations", self.name, self.flops);
        if let Some(rows) = self.rows {
            let most = self.dims.first().copied().unwrap_or(0).min(1 << 12);
            ensure!(
                self.dims.len() > 1 && rows >= 1 && rows <= most,
                InvalidArgument,
                "a step reads {rows} rows of '{}', which must be 1 to {most}",
                self.name
            );
        }
        Ok(())
    }
}
