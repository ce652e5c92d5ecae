//! Products, convolutions and what linear algebra StableHLO has.

use thalweg_tensor::DType;

use crate::value::{Dims, Value, positions};
use crate::window::window_positions;

/// Which dimensions a product contracts and which are batches.
#[derive(Clone, Debug, Default)]
pub struct DotDims {
    /// Batch dimensions of the left and the right side.
    pub batch: (Vec<usize>, Vec<usize>),
    /// Contracted dimensions of the left and the right side.
    pub contracting: (Vec<usize>, Vec<usize>),
}

/// A convolution over `n` spatial dimensions.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Where the operand has its batch, feature and spatial dimensions.
    pub input: (usize, usize, Vec<usize>),
    /// Where the filter has its input features, output features and spatial dimensions.
    pub filter: (usize, usize, Vec<usize>),
    /// Where the result has its batch, feature and spatial dimensions.
    pub output: (usize, usize, Vec<usize>),
    /// Strides of the window.
    pub strides: Vec<usize>,
    /// Padding of the operand, before and after; negative numbers remove elements.
    pub padding: Vec<(i64, i64)>,
    /// How far elements of the operand are moved apart, for gradients.
    pub input_dilation: Vec<usize>,
    /// How far elements of the filter are moved apart.
    pub filter_dilation: Vec<usize>,
    /// Whether the filter is reversed along all spatial dimensions, for gradients.
    pub reverses_filter: bool,
    /// Groups of features.
    pub feature_groups: usize,
    /// Groups of batches.
    pub batch_groups: usize,
}

impl Convolution {
    /// Dimensions of the result; `None` if the convolution does not fit the operands.
    pub fn result_dims(&self, input: &[usize], filter: &[usize]) -> Option<Vec<usize>> {
        let pick = |dims: &[usize], at: &[usize]| -> Option<Vec<usize>> {
            at.iter().map(|&i| dims.get(i).copied()).collect()
        };
        let numbers = |all: &[usize]| all.iter().map(|&x| x as i64).collect::<Vec<i64>>();
        let padding: Vec<i64> = self.padding.iter().flat_map(|&(low, high)| [low, high]).collect();
        let moved = window_positions(
            &pick(input, &self.input.2)?,
            &numbers(&pick(filter, &self.filter.2)?),
            &numbers(&self.strides),
            &padding,
            (&numbers(&self.input_dilation), &numbers(&self.filter_dilation)),
        )?;
        let mut dims = vec![0; input.len()];
        *dims.get_mut(self.output.0)? = input.get(self.input.0)?.checked_div(self.batch_groups)?;
        *dims.get_mut(self.output.1)? = *filter.get(self.filter.1)?;
        for (&at, size) in self.output.2.iter().zip(moved) {
            *dims.get_mut(at)? = size;
        }
        Some(dims)
    }
}

impl Value {
    /// The product with another tensor: batch dimensions, then the left's others, then the right's. The
    /// result has dtype `dtype`, in which products are summed.
    pub fn dot_general(&self, other: &Value, dims: &DotDims, dtype: DType) -> Value {
        let rest = |v: &Value, batch: &[usize], contracting: &[usize]| -> Vec<usize> {
            (0..v.rank())
                .filter(|i| !batch.contains(i) && !contracting.contains(i))
                .map(|i| v.dims[i])
                .collect()
        };
        let sizes = |v: &Value, dims: &[usize]| -> Option<Vec<usize>> {
            dims.iter().map(|&d| v.dims.get(d).copied()).collect()
        };
        let batch = sizes(self, &dims.batch.0);
        let fits = batch.is_some()
            && batch == sizes(other, &dims.batch.1)
            && sizes(self, &dims.contracting.0).is_some()
            && sizes(self, &dims.contracting.0) == sizes(other, &dims.contracting.1);
        if !fits {
            let sentence =
                format!("cannot multiply {:?} and {:?} by {dims:?}", self.dims, other.dims);
            return self.mistake(&sentence, dtype, &[]);
        }
        let mut result: Dims = batch.unwrap_or_default().into();
        result.extend(rest(self, &dims.batch.0, &dims.contracting.0));
        result.extend(rest(other, &dims.batch.1, &dims.contracting.1));
        let attrs = format!(
            "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {:?}, \
             rhs_batching_dimensions = {:?}, lhs_contracting_dimensions = {:?}, \
             rhs_contracting_dimensions = {:?}>, precision_config = {}",
            dims.batch.0,
            dims.batch.1,
            dims.contracting.0,
            dims.contracting.1,
            self.body.precision_text(self.dtype)
        );
        self.op("dot_general", &[self, other], &attrs, dtype, &result)
    }

    /// The product of matrices in the last two dimensions; others are batches, equal on both sides.
    pub fn matmul(&self, other: &Value) -> Value {
        let rank = self.rank();
        if rank < 2 || other.rank() != rank {
            let sentence = format!("cannot multiply {:?} and {:?}", self.dims, other.dims);
            return self.mistake(&sentence, self.dtype, &[]);
        }
        let batch: Vec<usize> = (0..rank - 2).collect();
        let contracting = (vec![rank - 1], vec![rank - 2]);
        self.dot_general(other, &DotDims { batch: (batch.clone(), batch), contracting }, self.dtype)
    }

    /// The convolution with a filter; the result has dimensions `result`.
    pub fn convolution(&self, filter: &Value, by: &Convolution, result: &[usize]) -> Value {
        let order = |(a, b, spatial): &(usize, usize, Vec<usize>), names: [&str; 2]| {
            let mut labels = vec![String::new(); spatial.len() + 2];
            for (position, label) in [(*a, names[0].to_owned()), (*b, names[1].to_owned())]
                .into_iter()
                .chain(spatial.iter().enumerate().map(|(i, &p)| (p, i.to_string())))
            {
                if let Some(slot) = labels.get_mut(position) {
                    *slot = label;
                }
            }
            labels.join(", ")
        };
        let padding: Vec<String> = by.padding.iter().map(|(l, h)| format!("[{l}, {h}]")).collect();
        let reversal = vec![by.reverses_filter.to_string(); by.strides.len()];
        let padding = match padding.len() {
            0 => "dense<> : tensor<0x2xi64>".to_owned(),
            n => format!("dense<[{}]> : tensor<{n}x2xi64>", padding.join(", ")),
        };
        let reversal = match reversal.len() {
            0 => "array<i1>".to_owned(),
            _ => format!("array<i1: {}>", reversal.join(", ")),
        };
        let attrs = format!(
            "dimension_numbers = #stablehlo.conv<[{}]x[{}]->[{}]>, window_strides = {}, padding = {padding}, \
             lhs_dilation = {}, rhs_dilation = {}, window_reversal = {reversal}, \
             feature_group_count = {} : i64, batch_group_count = {} : i64, precision_config = {}",
            order(&by.input, ["b", "f"]),
            order(&by.filter, ["i", "o"]),
            order(&by.output, ["b", "f"]),
            positions(&by.strides),
            positions(&by.input_dilation),
            positions(&by.filter_dilation),
            by.feature_groups,
            by.batch_groups,
            self.body.precision_text(self.dtype)
        );
        self.op("convolution", &[self, filter], &attrs, self.dtype, result)
    }

    /// The lower Cholesky factors of the matrices in the last two dimensions.
    pub fn cholesky(&self) -> Value {
        self.op("cholesky", &[self], "lower = true", self.dtype, &self.dims)
    }

    /// Solves triangular systems: `self` times x is `right`, or the adjoint of `self` times x.
    pub fn triangular_solve(&self, right: &Value, is_lower: bool, is_adjoint: bool) -> Value {
        let transpose = if is_adjoint { "ADJOINT" } else { "NO_TRANSPOSE" };
        let attrs = format!(
            "left_side = true, lower = {is_lower}, unit_diagonal = false, \
             transpose_a = #stablehlo<transpose {transpose}>"
        );
        self.op("triangular_solve", &[self, right], &attrs, self.dtype, right.dims())
    }

    /// A Fourier transform of the last dimensions: `FFT`, `IFFT`, `RFFT` or `IRFFT`, of these lengths.
    pub fn fft(&self, kind: &str, lengths: &[usize], dtype: DType, dims: &[usize]) -> Value {
        let attrs =
            format!("fft_type = #stablehlo<fft_type {kind}>, fft_length = {}", positions(lengths));
        self.op("fft", &[self], &attrs, dtype, dims)
    }
}
