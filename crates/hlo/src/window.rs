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
        let numbers = |all: &[usize]| all.iter().map(|&x| x as i64).collect::<Vec<i64>>();
        let padding: Vec<i64> = self.padding.iter().flat_map(|&(low, high)| [low, high]).collect();
        let (size, strides) = (numbers(&self.size), numbers(&self.strides));
        let base = vec![1; dims.len()];
        window_positions(dims, &size, &strides, &padding, (&base, &numbers(&self.dilations)))
    }
}

/// How many positions a window has in each dimension of a padded operand. `padding` holds pairs; the
/// dilations are those of the operand and of the window. `None` if a list is too short or a number has
/// no meaning.
pub(crate) fn window_positions(
    dims: &[usize],
    size: &[i64],
    strides: &[i64],
    padding: &[i64],
    (base, dilations): (&[i64], &[i64]),
) -> Option<Dims> {
    let dim = |i: usize| {
        let span = |n: i64, by: &[i64]| match n {
            0 => Some(0),
            n => n.checked_sub(1)?.checked_mul(*by.get(i)?)?.checked_add(1),
        };
        let padded = span(i64::try_from(dims[i]).ok()?, base)?
            .checked_add(*padding.get(2 * i)?)?
            .checked_add(*padding.get(2 * i + 1)?)?;
        let room = padded.checked_sub(span(*size.get(i)?, dilations)?)?;
        let stride = *strides.get(i).filter(|s| **s > 0)?;
        if padded < 0 {
            return None;
        }
        if room < 0 { Some(0) } else { usize::try_from(room / stride + 1).ok() }
    };
    (0..dims.len()).map(dim).collect()
}

impl Value {
    /// Reduces each window to one element.
    pub fn reduce_window(&self, reduction: Reduction, window: &Window) -> Value {
        let initial = reduction.identity(self);
        self.reduce_window_by(&initial, window, |a, b| reduction.combine(a, b))
    }

    /// Reduces each window to one element, beginning with `initial`, which fills the padding as well.
    pub fn reduce_window_by(
        &self,
        initial: &Value,
        window: &Window,
        combine: impl FnOnce(&Value, &Value) -> Value,
    ) -> Value {
        let Some(dims) = window.result_dims(&self.dims) else {
            let sentence = format!("{window:?} does not fit {:?}", self.dims);
            return self.mistake(&sentence, self.dtype, &self.dims);
        };
        let scalar = (self.dtype, Dims::new());
        let (region, _) =
            self.body.region(&[scalar.clone(), scalar], |v| vec![combine(&v[0], &v[1])]);
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
            .append_all("reduce_window", &[self, initial], &regions, &attrs, &results)
            .remove(0)
    }

    /// Adds each element of `source` to the greatest element of its window; the others are 0: the
    /// gradient of a maximum over windows.
    pub fn scatter_to_greatest(&self, source: &Value, window: &Window) -> Value {
        let is_greater = |a: &Value, b: &Value| a.compare(Comparison::GreaterEqual, b);
        self.select_and_scatter(source, &self.scalar_like(0.0), window, is_greater, Value::plus)
    }

    /// Combines each element of `source` with `initial` at the place of its window's element that `select`
    /// prefers to the others; the rest is `initial`.
    pub fn select_and_scatter(
        &self,
        source: &Value,
        initial: &Value,
        window: &Window,
        select: impl FnOnce(&Value, &Value) -> Value,
        combine: impl FnOnce(&Value, &Value) -> Value,
    ) -> Value {
        let scalar = || (self.dtype, Dims::new());
        let (select, _) = self.body.region(&[scalar(), scalar()], |v| vec![select(&v[0], &v[1])]);
        let (scatter, _) = self.body.region(&[scalar(), scalar()], |v| vec![combine(&v[0], &v[1])]);
        let attrs = format!(
            " {{window_dimensions = {}, window_strides = {}, padding = {}}}",
            positions(&window.size),
            positions(&window.strides),
            window.padding_text()
        );
        let results: [(DType, Dims); 1] = [(self.dtype, self.dims.clone())];
        let regions = format!(" ({select}, {scatter})");
        self.body
            .append_all("select_and_scatter", &[self, source, initial], &regions, &attrs, &results)
            .remove(0)
    }
}
