//! Op families: definition, shape function, CPU kernel and tests of a family in one file.
//!
//! Adding an op to a family touches that family's file; a new family adds a `mod` line and an entry
//! in [`FAMILIES`]. `math/` holds numeric loops that do not depend on graphs or kernels.

#[macro_use]
mod macros;

#[macro_use]
mod cells;
mod arithmetic;
mod broadcast;
mod elementwise;
mod gradient_shapes;
mod gradients;
mod indices;
mod lowering;
mod math;
mod number;
mod operand;
mod split;
mod stage;
mod strided;
#[cfg(test)]
mod testing;

pub mod dataset;

mod activation;
mod add_n;
mod argmax;
mod array_sources;
mod batch_norm;
mod batch_norm_gradients;
mod batch_norm_lowering;
mod bessel_lowering;
mod bias;
mod binary;
mod bitcast;
mod bitwise;
mod block_lstm;
mod candidate_sampler;
mod cast;
mod cast_lowering;
mod checkpoint;
mod clip;
mod comparison;
mod concat;
mod concat_gradients;
mod concat_lowering;
mod conv;
mod conv_gradients;
mod conv_lowering;
mod cross_entropy;
mod cumulative;
mod debug;
mod depthwise;
mod direct_conv;
mod functions;
mod gamma_lowering;
mod gather;
mod gather_gradients;
mod gather_lowering;
mod identity;
mod lrn;
mod map;
mod matmul;
mod matmul_gradients;
mod nonzero;
mod pad;
mod pad_lowering;
mod parallel_concat;
mod partition;
mod patches;
mod pool;
mod pool_grad;
mod pool_lowering;
mod product;
mod random;
mod reduce;
mod reduction;
mod reduction_gradients;
mod reshape;
mod reshape_gradients;
mod reshape_lowering;
mod reverse;
mod rows_lowering;
mod scatter;
mod segment;
mod segment_gradients;
mod select;
mod slice;
mod slice_gradients;
mod slice_lowering;
mod softmax;
mod sparse_segment;
mod sparse_segment_lowering;
mod special;
mod special_gradients;
mod special_lowering;
mod stateless_random;
mod training;
mod transpose;
mod unary;
mod unfuse;
mod unique;
mod variable;
mod variable_lowering;
mod variable_points;
mod variable_rows;
mod window;
mod work;

mod cross;
mod ctc;
mod depth_space;
mod diag;
mod dilation;
mod extract_patches;
mod fractional_pool;
mod functional;
mod global_batch_norm;
mod histogram;
mod index_shuffle;
mod isotonic;
mod matrix_band;
mod matrix_diag;
mod matrix_diag_lowering;
mod search_sorted;
mod space_batch;
mod top_k;
mod top_k_lowering;
mod unravel_index;

mod image;

mod linalg;

mod parsing;

mod quantize;

mod sparse;

mod files;

mod state;

mod strings;

mod summary;

mod queues;

mod lists;

mod data;

mod xla;

use std::sync::{Arc, LazyLock};

use thalweg_graph::{OpRegistry, structural};
use thalweg_kernel::{Family, KernelRegistry, KernelSpec};
use thalweg_tensor::Result;

/// A kernel that forwards memory or reads a few numbers: scheduling it on another thread would cost
/// more than running it.
const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

/// Every family of this crate.
pub static FAMILIES: &[&Family] = &[
    &xla::arrays::FAMILY,
    &xla::call_module::FAMILY,
    &xla::computations::FAMILY,
    &xla::products::FAMILY,
    &cross::FAMILY,
    &depth_space::FAMILY,
    &diag::FAMILY,
    &dilation::FAMILY,
    &extract_patches::FAMILY,
    &fractional_pool::FAMILY,
    &functional::FAMILY,
    &global_batch_norm::FAMILY,
    &histogram::FAMILY,
    &index_shuffle::FAMILY,
    &isotonic::FAMILY,
    &matrix_band::FAMILY,
    &matrix_diag::FAMILY,
    &quantize::and_dequantize::FAMILY,
    &quantize::fake::FAMILY,
    &quantize::convert::FAMILY,
    &quantize::requantize::FAMILY,
    &search_sorted::FAMILY,
    &space_batch::FAMILY,
    &top_k::FAMILY,
    &unravel_index::FAMILY,
    &parsing::compressed::FAMILY,
    &parsing::csv::FAMILY,
    &parsing::example::FAMILY,
    &parsing::json::FAMILY,
    &parsing::raw::FAMILY,
    &parsing::sequence::FAMILY,
    &parsing::serialized_tensor::FAMILY,
    &parsing::wav::FAMILY,
    &debug::FAMILY,
    &summary::FAMILY,
    &summary::audio::FAMILY,
    &summary::histogram::FAMILY,
    &summary::image::FAMILY,
    &summary::writer::FAMILY,
    &activation::FAMILY,
    &add_n::FAMILY,
    &batch_norm::FAMILY,
    &argmax::FAMILY,
    &array_sources::FAMILY,
    &bias::FAMILY,
    &binary::FAMILY,
    &bitcast::FAMILY,
    &bitwise::FAMILY,
    &block_lstm::FAMILY,
    &candidate_sampler::FAMILY,
    &cast::FAMILY,
    &clip::FAMILY,
    &comparison::FAMILY,
    &concat::FAMILY,
    &conv::FAMILY,
    &cross_entropy::FAMILY,
    &cumulative::FAMILY,
    &depthwise::FAMILY,
    &gather::FAMILY,
    &identity::FAMILY,
    &lrn::FAMILY,
    &matmul::FAMILY,
    &pool::FAMILY,
    &pool_grad::FAMILY,
    &nonzero::FAMILY,
    &pad::FAMILY,
    &parallel_concat::FAMILY,
    &partition::FAMILY,
    &random::FAMILY,
    &reduction::FAMILY,
    &reshape::FAMILY,
    &reverse::FAMILY,
    &scatter::FAMILY,
    &segment::FAMILY,
    &select::FAMILY,
    &slice::FAMILY,
    &softmax::FAMILY,
    &special::FAMILY,
    &sparse_segment::FAMILY,
    &stateless_random::FAMILY,
    &training::FAMILY,
    &training::lowering::FAMILY,
    &transpose::FAMILY,
    &unary::FAMILY,
    &unique::FAMILY,
    &variable::FAMILY,
    &variable_points::FAMILY,
    &variable_rows::FAMILY,
    &image::area::FAMILY,
    &image::bicubic::FAMILY,
    &image::bilinear::FAMILY,
    &image::color::FAMILY,
    &image::combined_suppression::FAMILY,
    &image::crop_and_resize::FAMILY,
    &image::decode::FAMILY,
    &image::draw_boxes::FAMILY,
    &image::encode::FAMILY,
    &image::nearest::FAMILY,
    &image::projective::FAMILY,
    &image::sample_box::FAMILY,
    &image::scale_and_translate::FAMILY,
    &image::suppression::FAMILY,
    &ctc::FAMILY,
    &linalg::cholesky::FAMILY,
    &linalg::decompose::FAMILY,
    &linalg::eigen::FAMILY,
    &linalg::einsum::FAMILY,
    &linalg::fourier::FAMILY,
    &linalg::functions::FAMILY,
    &linalg::inverse::FAMILY,
    &linalg::solve::FAMILY,
    &linalg::tridiagonal::FAMILY,
    &sparse::add::FAMILY,
    &sparse::counts::FAMILY,
    &sparse::cross::FAMILY,
    &sparse::dense::FAMILY,
    &sparse::empty_rows::FAMILY,
    &sparse::layout::FAMILY,
    &sparse::matmul::FAMILY,
    &sparse::pieces::FAMILY,
    &sparse::ragged::FAMILY,
    &sparse::ragged_dense::FAMILY,
    &sparse::ragged_variant::FAMILY,
    &sparse::reduction::FAMILY,
    &sparse::serialize::FAMILY,
    &sparse::sets::FAMILY,
    &strings::base64::FAMILY,
    &strings::characters::FAMILY,
    &strings::edit_distance::FAMILY,
    &strings::filenames::FAMILY,
    &strings::format::FAMILY,
    &strings::hash_bucket::FAMILY,
    &strings::join::FAMILY,
    &strings::ngrams::FAMILY,
    &strings::number::FAMILY,
    &strings::pieces::FAMILY,
    &strings::regex::FAMILY,
    &strings::unicode::FAMILY,
    &state::accumulator_ops::FAMILY,
    &state::generator::FAMILY,
    &state::mutex::FAMILY,
    &state::slice_assign::FAMILY,
    &state::table_files::FAMILY,
    &state::table_ops::FAMILY,
    &checkpoint::FAMILY,
    &files::reader_ops::FAMILY,
    &files::whole::FAMILY,
    &lists::array_ops::FAMILY,
    &lists::items::FAMILY,
    &lists::rows::FAMILY,
    &lists::stack::FAMILY,
    &queues::access::FAMILY,
    &queues::barrier::FAMILY,
    &queues::create::FAMILY,
    &queues::map_staging::FAMILY,
    &queues::staging::FAMILY,
    &data::batch::FAMILY,
    &data::cache::FAMILY,
    &data::combine::FAMILY,
    &data::csv::FAMILY,
    &data::directed::FAMILY,
    &data::files::FAMILY,
    &data::function_ops::FAMILY,
    &data::generator::FAMILY,
    &data::get_next::FAMILY,
    &data::grouping::FAMILY,
    &data::interleave::FAMILY,
    &data::iterator::FAMILY,
    &data::mapped::FAMILY,
    &data::multi_device::FAMILY,
    &data::optional::FAMILY,
    &data::padded::FAMILY,
    &data::parse_example::FAMILY,
    &data::passing::FAMILY,
    &data::prefetch::FAMILY,
    &data::rebatch::FAMILY,
    &data::results::FAMILY,
    &data::seeds::FAMILY,
    &data::shuffle::FAMILY,
    &data::sources::FAMILY,
    &data::sparse_batch::FAMILY,
    &data::unique::FAMILY,
    &data::window::FAMILY,
];

/// The number of recorded cases that pass, a line `Op passed total` per op. `cargo xtask docs`
/// writes it, and the golden test checks it.
pub static GOLDEN_RESULTS: &str = include_str!("golden_results.txt");

pub use unfuse::unfuse;

/// The definitions of these families and of the structural ops.
pub fn op_registry(families: &[&Family]) -> Result<Arc<OpRegistry>> {
    let ours = families.iter().flat_map(|f| f.ops.iter());
    OpRegistry::new(structural::OPS.iter().chain(ours))
}

/// The kernels of these families.
pub fn kernel_registry(families: &[&Family]) -> Arc<KernelRegistry> {
    KernelRegistry::new(families.iter().flat_map(|f| f.kernels.iter()))
}

/// The op definitions and kernels of a program, which it passes on to what builds or runs its
/// graphs.
#[derive(Clone)]
pub struct Registry {
    /// The op definitions.
    pub ops: Arc<OpRegistry>,
    /// The kernels.
    pub kernels: Arc<KernelRegistry>,
}

/// The built-in families, parsed once: parsing takes longer than building a small graph.
static BUILT_IN: LazyLock<Registry> =
    LazyLock::new(|| Registry::of(FAMILIES).expect("our own definitions parse, as a test shows"));

impl Registry {
    /// The built-in ops.
    pub fn built_in() -> Registry {
        BUILT_IN.clone()
    }

    /// The built-in ops and those of further families.
    pub fn with_families(families: &[&Family]) -> Result<Registry> {
        Registry::of(&[FAMILIES, families].concat())
    }

    /// The ops of these families alone.
    pub fn of(families: &[&Family]) -> Result<Registry> {
        Ok(Registry { ops: op_registry(families)?, kernels: kernel_registry(families) })
    }
}
