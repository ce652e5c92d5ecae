//! Reductions over windows, and their gradients.

use thalweg_tensor::DType;

use crate::elementwise::Comparison;
use crate::reduce::Reduction;
use crate::value::{Dims, Value, positions};

/// A window, by dimension: size, stride, dilation and padding.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its size.
    pub size: Vec<usize>,
    /// How far it moves.
    pub strides: Vec<usize>,
    /// How far its elements lie apart.
    pub dilations: Vec<usize>,
    /// Elements before and after the operand's.
    pub padding: Vec<(i64, i64)>,
}

impl Window {
    fn padding_text(&self) -> String {
        let pairs: Vec<String> = self.padding.iter().map(|(l, h)| format!("[{l}, {h}]")).collect();
        format!("dense<[{}]> : tensor<{}x2xi64>", pairs.join(", "), self.padding.len())
    }

    fn result_dims(&self, dims: &[usize]) -> Option<Dims> {
        (0..dims.len())
            .map(|i| {
                let (low, high) = *self.padding.get(i)?;
                let span = (self.size.get(i)?.checked_sub(1)?) * self.dilations.get(i)? + 1;
                let padded = usize::try_from(dims[i] as i64 + low + high).ok()?;
                Some(match padded.checked_sub(span) {
                    Some(room) => room / self.strides.get(i).filter(|s| **s > 0)? + 1,
                    None => 0,
                })
            })
            .collect()
    }
}

impl Value {
    /// Reduces each window to one element.
    pub fn reduce_window(&self, reduction: Reduction, window: &Window) -> Value {
        let Some(dims) = window.result_dims(&self.dims) else {
            let sentence = format!("{window:?} does not fit {:?}", self.dims);
            return self.mistake(&sentence, self.dtype, &self.dims);
        };
        let initial = reduction.identity(self);
        let scalar = (self.dtype, Dims::new());
        let (region, _) =
            self.body.region(&[scalar.clone(), scalar], |v| vec![reduction.combine(&v[0], &v[1])]);
        let attrs = format!(
            " {{window_dimensions = {}, window_strides = {}, window_dilations = {}, padding = {}}}",
            positions(&window.size),
            positions(&window.strides),
            positions(&window.dilations),
            window.padding_text()
        );
        let results = [(self.dtype, dims)];
        let regions = format!(" ({region})");
        self.body
            .append_all("reduce_window", &[self, &initial], &regions, &attrs, &results)
            .remove(0)
    }

    /// Adds each element of `source` to the greatest element of its window; the others are 0: the
    /// gradient of a maximum over windows.
    pub fn scatter_to_greatest(&self, source: &Value, window: &Window) -> Value {
        let scalar = || (self.dtype, Dims::new());
        let (select, _) = self
            .body
            .region(&[scalar(), scalar()], |v| vec![v[0].compare(Comparison::GreaterEqual, &v[1])]);
        let (scatter, _) = self.body.region(&[scalar(), scalar()], |v| vec![v[0].plus(&v[1])]);
        let attrs = format!(
            " {{window_dimensions = {}, window_strides = {}, padding = {}}}",
            positions(&window.size),
            positions(&window.strides),
            window.padding_text()
        );
        let results: [(DType, Dims); 1] = [(self.dtype, self.dims.clone())];
        let zero = self.scalar_like(0.0);
        let regions = format!(" ({select}, {scatter})");
        self.body
            .append_all("select_and_scatter", &[self, source, &zero], &regions, &attrs, &results)
            .remove(0)
    }
}
