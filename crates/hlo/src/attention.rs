//! Fused attention of CUDA plugins: softmax(scale q kᵀ + mask) v, and its gradient, as calls of cuDNN's flash attention.
//!
//! The scores are never in memory as a whole. Operands are `[batch, heads, length, head size]`; the calls want them
//! with the heads behind the length, which is how projections lay them out, so XLA cancels the transpositions.

use thalweg_tensor::DType;

use crate::program::Program;
use crate::value::Value;

/// Sizes of heads that cuDNN's kernels have for both directions on all GPUs since Ampere: multiples of 8 up to this.
const HEAD_SIZE_MAX: usize = 128;
/// Shorter sequences gain nothing.
const LENGTH_MIN: usize = 64;
/// Moves the heads behind the length, and back.
const SWAP: [usize; 4] = [0, 2, 1, 3];

/// Layout of operands: row by row.
const ROW_MAJOR: &[usize] = &[3, 2, 1, 0];
/// Layout of results: in memory the heads are behind the length.
const HEADS_BEHIND: &[usize] = &[3, 1, 2, 0];

/// A product within a call: name, contracted dimensions of both sides, batch dimensions of the left, of the right.
type Product = (&'static str, [usize; 2], [usize; 2], [usize; 2]);

/// An attention: the factor of the scores and which of them count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Factor of the products of queries and keys.
    pub scale: f64,
    /// Whether a position attends only to itself and to earlier ones.
    pub is_causal: bool,
}

impl Attention {
    /// Whether the program's platform has a call for operands of this dtype and these dimensions.
    pub fn is_supported(&self, program: &Program, dtype: DType, q: &[usize], k: &[usize]) -> bool {
        let (&[batch, heads, length, size], &[k_batch, k_heads, k_length, k_size]) = (q, k) else {
            return false;
        };
        program.platform() == "CUDA"
            && matches!(dtype, DType::BFloat16 | DType::Half)
            && (batch, heads, size) == (k_batch, k_heads, k_size)
            && batch > 0
            && heads > 0
            && size.is_multiple_of(8)
            && (8..=HEAD_SIZE_MAX).contains(&size)
            && [length, k_length].iter().all(|&n| n >= LENGTH_MIN && n.is_multiple_of(2))
            && (!self.is_causal || length == k_length)
            && self.scale.is_finite()
    }

    /// The attention, and for each query the statistics of its softmax, which the gradient takes.
    pub fn forward(&self, q: &Value, k: &Value, v: &Value) -> (Value, Value) {
        let [batch, heads, length, size] = dims(q);
        let operands = [q, k, v].map(|x| x.transpose(&SWAP));
        let products: [Product; 2] =
            [("bmm1", [3, 3], [0, 2], [0, 2]), ("bmm2", [3, 1], [0, 1], [0, 2])];
        let results: [(DType, &[usize]); 3] = [
            (q.dtype(), &[batch, heads, length, size]),
            (DType::Float, &[batch, heads, length]),
            (DType::UInt8, &[0]),
        ];
        let attrs = self.attrs(q, k, &products, &[ROW_MAJOR; 3], &[HEADS_BEHIND, &[2, 1, 0], &[0]]);
        let operands: Vec<&Value> = operands.iter().collect();
        let all = q.custom_call("__cudnn$fmhaSoftmax", &operands, &attrs, &results);
        let [output, statistics, _] = all.try_into().expect("a value for each result");
        (output, statistics)
    }

    /// The adjoints of q, k and v by that of the output.
    pub fn gradient(
        &self,
        [q, k, v]: [&Value; 3],
        (output, statistics): (&Value, &Value),
        output_adjoint: &Value,
    ) -> [Value; 3] {
        let [q_swapped, k_swapped, v_swapped, adjoint, output] =
            [q, k, v, output_adjoint, output].map(|x| x.transpose(&SWAP));
        let operands = [&q_swapped, &k_swapped, &v_swapped, statistics, &adjoint, &output];
        let products: [Product; 4] = [
            ("bmm1_grad_gemm1", [2, 1], [0, 1], [0, 2]),
            ("bmm1_grad_gemm2", [3, 1], [0, 1], [0, 2]),
            ("bmm2_grad_gemm1", [2, 1], [0, 1], [0, 2]),
            ("bmm2_grad_gemm2", [3, 3], [0, 2], [0, 2]),
        ];
        let adjoints = [q, k, v].map(|x| (x.dtype(), x.dims()));
        let results = [adjoints[0], adjoints[1], adjoints[2], (DType::UInt8, &[0][..])];
        let of_operands = [ROW_MAJOR, ROW_MAJOR, ROW_MAJOR, &[2, 1, 0], ROW_MAJOR, ROW_MAJOR];
        let of_results = [HEADS_BEHIND, HEADS_BEHIND, HEADS_BEHIND, &[0]];
        let attrs = self.attrs(q, k, &products, &of_operands, &of_results);
        let all = q.custom_call("__cudnn$fmhaSoftmaxBackward", &operands, &attrs, &results);
        let [q, k, v, _] = all.try_into().expect("a value for each result");
        [q, k, v]
    }

    /// What follows the target's name: the version of the interface, layouts, and the JSON that the plugin reads.
    fn attrs(
        &self,
        q: &Value,
        k: &Value,
        products: &[Product],
        operands: &[&[usize]],
        results: &[&[usize]],
    ) -> String {
        let config = self.config(q, k, products).replace('"', "\\\"");
        format!(
            ", api_version = 2 : i32, has_side_effect = false, backend_config = \"{config}\", \
             operand_layouts = {}, result_layouts = {}",
            layouts(operands),
            layouts(results)
        )
    }

    fn config(&self, q: &Value, k: &Value, products: &[Product]) -> String {
        let [batch, heads, length, _] = dims(q);
        let [_, _, k_length, _] = dims(k);
        let element = if q.dtype() == DType::Half { "F16" } else { "BF16" };
        let mask = if self.is_causal { "CAUSAL" } else { "NO_MASK" };
        let products: Vec<String> = products
            .iter()
            .map(|(name, [left, right], left_batch, right_batch)| {
                format!(
                    r#""{name}_dot_dimension_numbers":{{"lhs_contracting_dimensions":["{left}"],"rhs_contracting_dimensions":["{right}"],"lhs_batch_dimensions":["{}","{}"],"rhs_batch_dimensions":["{}","{}"]}}"#,
                    left_batch[0], left_batch[1], right_batch[0], right_batch[1]
                )
            })
            .collect();
        let scores = format!(
            r#"{{"element_type":"{element}","dimensions":["{batch}","{heads}","{length}","{k_length}"],"tuple_shapes":[],"layout":{{"dim_level_types":[],"dim_unique":[],"dim_ordered":[],"minor_to_major":["3","2","1","0"],"tiles":[],"element_size_in_bits":"0","memory_space":"0","index_primitive_type":"PRIMITIVE_TYPE_INVALID","pointer_primitive_type":"PRIMITIVE_TYPE_INVALID","dynamic_shape_metadata_prefix_bytes":"0"}},"is_dynamic_dimension":[false,false,false,false]}}"#
        );
        format!(
            r#"{{"operation_queue_id":"0","cudnn_fmha_backend_config":{{"algorithm":{{"algo_id":"0","math_type":"TENSOR_OP_MATH","tuning_knobs":{{"17":"1","24":"0"}},"is_cudnn_frontend":true,"workspace_size":"0"}},"fmha_scale":{},"dropout_rate":0.0,"seed":42,"is_flash_attention":true,"mask_type":"{mask}","sliding_window_length":0,"max_seg_per_batch":1,"is_paged_attention":false,"intermediate_tensor_shape":{scores},{}}}}}"#,
            self.scale,
            products.join(",")
        )
    }
}

/// Dimensions of an operand, which has four of them.
fn dims(x: &Value) -> [usize; 4] {
    x.dims().try_into().unwrap_or_default()
}

/// A list of layouts as MLIR writes it, the fastest dimension first.
fn layouts(all: &[&[usize]]) -> String {
    let layout = |order: &&[usize]| format!("dense<{order:?}> : tensor<{}xindex>", order.len());
    format!("[{}]", all.iter().map(layout).collect::<Vec<_>>().join(", "))
}
