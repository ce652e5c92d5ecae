//! Ops B. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `BandedTriangularSolve`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Options: [`BandedTriangularSolve`].
#[track_caller]
pub fn banded_triangular_solve<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    BandedTriangularSolve::new().build(matrix, rhs)
}
options! { BandedTriangularSolve {
lower: bool = "lower", "true";
adjoint: bool = "adjoint", "false";
} }
impl BandedTriangularSolve {
    /// Adds the node: see [`banded_triangular_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
        self.0.on(&matrix, "BandedTriangularSolve").input(matrix).input(rhs).output()
    }
}

/// `Barrier`. Has no gradient. Options: [`Barrier`].
#[track_caller]
pub fn barrier(g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
    Barrier::new().build(g, component_types)
}
options! { Barrier {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl Barrier {
    /// Adds the node: see [`barrier()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
        self.0.new(g, "Barrier").attr("component_types", component_types).output()
    }
}

/// `BarrierClose`. Has no gradient. Options: [`BarrierClose`].
#[track_caller]
pub fn barrier_close(handle: impl Handle<Ref<String>>) -> Operation {
    BarrierClose::new().build(handle)
}
options! { BarrierClose {
cancel_pending_enqueues: bool = "cancel_pending_enqueues", "false";
} }
impl BarrierClose {
    /// Adds the node: see [`barrier_close()`].
    #[track_caller]
    pub fn build(&self, handle: impl Handle<Ref<String>>) -> Operation {
        self.0.on(&handle, "BarrierClose").input(handle).operation()
    }
}

/// `BarrierIncompleteSize`. Has no gradient.
#[track_caller]
pub fn barrier_incomplete_size(handle: impl Handle<Ref<String>>) -> Output<i32> {
    NewOp::on(&handle, "BarrierIncompleteSize").input(handle).output()
}

/// `BarrierInsertMany`. Has no gradient.
#[track_caller]
pub fn barrier_insert_many<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    keys: impl Operand<String>,
    values: impl Operand<T>,
    component_index: i64,
) -> Operation {
    NewOp::on(&handle, "BarrierInsertMany")
        .input(handle)
        .input(keys)
        .input(values)
        .attr("component_index", component_index)
        .operation()
}

/// `BarrierReadySize`. Has no gradient.
#[track_caller]
pub fn barrier_ready_size(handle: impl Handle<Ref<String>>) -> Output<i32> {
    NewOp::on(&handle, "BarrierReadySize").input(handle).output()
}

/// `BarrierTakeMany`. Has no gradient. Returns `indices`, `keys`, `values`. Options: [`BarrierTakeMany`].
#[track_caller]
pub fn barrier_take_many(
    handle: impl Handle<Ref<String>>,
    num_elements: impl Operand<i32>,
    component_types: &[DType],
) -> (Output<i64>, Output<String>, Vec<Output<Untyped>>) {
    BarrierTakeMany::new().build(handle, num_elements, component_types)
}
options! { BarrierTakeMany {
allow_small_batch: bool = "allow_small_batch", "false";
wait_for_incomplete: bool = "wait_for_incomplete", "false";
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl BarrierTakeMany {
    /// Adds the node: see [`barrier_take_many()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        num_elements: impl Operand<i32>,
        component_types: &[DType],
    ) -> (Output<i64>, Output<String>, Vec<Output<Untyped>>) {
        let built = self
            .0
            .on(&handle, "BarrierTakeMany")
            .input(handle)
            .input(num_elements)
            .attr("component_types", component_types)
            .build();
        (
            built.named("indices"),
            built.named("keys"),
            built.outputs("values", component_types.len()),
        )
    }
}

/// `BatchCholesky`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn batch_cholesky<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "BatchCholesky").input(input).output()
}

/// `BatchCholeskyGrad`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn batch_cholesky_grad<T: TensorType>(l: impl Handle<T>, grad: impl Operand<T>) -> Output<T> {
    NewOp::on(&l, "BatchCholeskyGrad").input(l).input(grad).output()
}

/// `BatchDataset`. Has no gradient. Options: [`BatchDataset`].
#[track_caller]
pub fn batch_dataset(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    BatchDataset::new().build(input_dataset, batch_size, output_types, output_shapes)
}
options! { BatchDataset {
metadata: &str = "metadata", "\"\"";
} }
impl BatchDataset {
    /// Adds the node: see [`batch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        batch_size: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "BatchDataset")
            .input(input_dataset)
            .input(batch_size)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `BatchDatasetV2`. Has no gradient. Options: [`BatchDatasetV2`].
#[track_caller]
pub fn batch_dataset_v2(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    BatchDatasetV2::new().build(
        input_dataset,
        batch_size,
        drop_remainder,
        output_types,
        output_shapes,
    )
}
options! { BatchDatasetV2 {
parallel_copy: bool = "parallel_copy", "false";
metadata: &str = "metadata", "\"\"";
} }
impl BatchDatasetV2 {
    /// Adds the node: see [`batch_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        batch_size: impl Operand<i64>,
        drop_remainder: impl Operand<bool>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "BatchDatasetV2")
            .input(input_dataset)
            .input(batch_size)
            .input(drop_remainder)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `BatchFFT`. Has no gradient.
#[track_caller]
pub fn batch_fft(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchFFT").input(input).output()
}

/// `BatchFFT2D`. Has no gradient.
#[track_caller]
pub fn batch_fft2d(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchFFT2D").input(input).output()
}

/// `BatchFFT3D`. Has no gradient.
#[track_caller]
pub fn batch_fft3d(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchFFT3D").input(input).output()
}

/// `BatchIFFT`. Has no gradient.
#[track_caller]
pub fn batch_ifft(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchIFFT").input(input).output()
}

/// `BatchIFFT2D`. Has no gradient.
#[track_caller]
pub fn batch_ifft2d(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchIFFT2D").input(input).output()
}

/// `BatchIFFT3D`. Has no gradient.
#[track_caller]
pub fn batch_ifft3d(input: impl Handle<Complex32>) -> Output<Complex32> {
    NewOp::on(&input, "BatchIFFT3D").input(input).output()
}

/// `BatchMatMul`.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient. Options: [`BatchMatMul`].
#[track_caller]
pub fn batch_mat_mul<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    BatchMatMul::new().build(x, y)
}
options! { BatchMatMul {
adj_x: bool = "adj_x", "false";
adj_y: bool = "adj_y", "false";
grad_x: bool = "grad_x", "false";
grad_y: bool = "grad_y", "false";
} }
impl BatchMatMul {
    /// Adds the node: see [`batch_mat_mul()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
        self.0.on(&x, "BatchMatMul").input(x).input(y).output()
    }
}

/// `BatchMatMulV2`: the product of matrices in the last two dimensions, the others broadcast.
///
/// `T`: float, double, int32, int16, complex64, int64, bfloat16, complex128, half. Has a gradient. Options: [`BatchMatMulV2`].
#[track_caller]
pub fn batch_mat_mul_v2<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    BatchMatMulV2::new().build(x, y)
}
options! { BatchMatMulV2 {
adj_x: bool = "adj_x", "false";
adj_y: bool = "adj_y", "false";
grad_x: bool = "grad_x", "false";
grad_y: bool = "grad_y", "false";
} }
impl BatchMatMulV2 {
    /// Adds the node: see [`batch_mat_mul_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
        self.0.on(&x, "BatchMatMulV2").input(x).input(y).output()
    }
}

/// `BatchMatMulV3`.
///
/// `Ta`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, complex128, half. `Tb`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, complex128, half. `Tout`: float, double, int32, int16, complex64, int64, bfloat16, complex128, half. Has a gradient. Options: [`BatchMatMulV3`].
#[track_caller]
pub fn batch_mat_mul_v3<Tout: TensorType, Ta: TensorType, Tb: TensorType>(
    x: impl Handle<Ta>,
    y: impl Operand<Tb>,
) -> Output<Tout> {
    BatchMatMulV3::new().build(x, y)
}
options! { BatchMatMulV3 {
adj_x: bool = "adj_x", "false";
adj_y: bool = "adj_y", "false";
grad_x: bool = "grad_x", "false";
grad_y: bool = "grad_y", "false";
} }
impl BatchMatMulV3 {
    /// Adds the node: see [`batch_mat_mul_v3()`].
    #[track_caller]
    pub fn build<Tout: TensorType, Ta: TensorType, Tb: TensorType>(
        &self,
        x: impl Handle<Ta>,
        y: impl Operand<Tb>,
    ) -> Output<Tout> {
        self.0.on(&x, "BatchMatMulV3").dtype::<Tout>("Tout").input(x).input(y).output()
    }
}

/// `BatchMatrixBandPart`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn batch_matrix_band_part<T: TensorType>(
    input: impl Handle<T>,
    num_lower: impl Operand<i64>,
    num_upper: impl Operand<i64>,
) -> Output<T> {
    NewOp::on(&input, "BatchMatrixBandPart").input(input).input(num_lower).input(num_upper).output()
}

/// `BatchMatrixDeterminant`.
///
/// `T`: float, double, complex64, complex128. Has no gradient.
#[track_caller]
pub fn batch_matrix_determinant<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "BatchMatrixDeterminant").input(input).output()
}

/// `BatchMatrixDiag`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn batch_matrix_diag<T: TensorType>(diagonal: impl Handle<T>) -> Output<T> {
    NewOp::on(&diagonal, "BatchMatrixDiag").input(diagonal).output()
}

/// `BatchMatrixDiagPart`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn batch_matrix_diag_part<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "BatchMatrixDiagPart").input(input).output()
}

/// `BatchMatrixInverse`.
///
/// `T`: float, double. Has no gradient. Options: [`BatchMatrixInverse`].
#[track_caller]
pub fn batch_matrix_inverse<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    BatchMatrixInverse::new().build(input)
}
options! { BatchMatrixInverse {
adjoint: bool = "adjoint", "false";
} }
impl BatchMatrixInverse {
    /// Adds the node: see [`batch_matrix_inverse()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "BatchMatrixInverse").input(input).output()
    }
}

/// `BatchMatrixSetDiag`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn batch_matrix_set_diag<T: TensorType>(
    input: impl Handle<T>,
    diagonal: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&input, "BatchMatrixSetDiag").input(input).input(diagonal).output()
}

/// `BatchMatrixSolve`.
///
/// `T`: float, double. Has no gradient. Options: [`BatchMatrixSolve`].
#[track_caller]
pub fn batch_matrix_solve<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    BatchMatrixSolve::new().build(matrix, rhs)
}
options! { BatchMatrixSolve {
adjoint: bool = "adjoint", "false";
} }
impl BatchMatrixSolve {
    /// Adds the node: see [`batch_matrix_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
        self.0.on(&matrix, "BatchMatrixSolve").input(matrix).input(rhs).output()
    }
}

/// `BatchMatrixSolveLs`.
///
/// `T`: float, double. Has no gradient. Options: [`BatchMatrixSolveLs`].
#[track_caller]
pub fn batch_matrix_solve_ls<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
    l2_regularizer: impl Operand<f64>,
) -> Output<T> {
    BatchMatrixSolveLs::new().build(matrix, rhs, l2_regularizer)
}
options! { BatchMatrixSolveLs {
fast: bool = "fast", "true";
} }
impl BatchMatrixSolveLs {
    /// Adds the node: see [`batch_matrix_solve_ls()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        matrix: impl Handle<T>,
        rhs: impl Operand<T>,
        l2_regularizer: impl Operand<f64>,
    ) -> Output<T> {
        self.0
            .on(&matrix, "BatchMatrixSolveLs")
            .input(matrix)
            .input(rhs)
            .input(l2_regularizer)
            .output()
    }
}

/// `BatchMatrixTriangularSolve`.
///
/// `T`: float, double. Has no gradient. Options: [`BatchMatrixTriangularSolve`].
#[track_caller]
pub fn batch_matrix_triangular_solve<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    BatchMatrixTriangularSolve::new().build(matrix, rhs)
}
options! { BatchMatrixTriangularSolve {
lower: bool = "lower", "true";
adjoint: bool = "adjoint", "false";
} }
impl BatchMatrixTriangularSolve {
    /// Adds the node: see [`batch_matrix_triangular_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
        self.0.on(&matrix, "BatchMatrixTriangularSolve").input(matrix).input(rhs).output()
    }
}

/// `BatchNormWithGlobalNormalization`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn batch_norm_with_global_normalization<T: TensorType>(
    t: impl Handle<T>,
    m: impl Operand<T>,
    v: impl Operand<T>,
    beta: impl Operand<T>,
    gamma: impl Operand<T>,
    variance_epsilon: f32,
    scale_after_normalization: bool,
) -> Output<T> {
    NewOp::on(&t, "BatchNormWithGlobalNormalization")
        .input(t)
        .input(m)
        .input(v)
        .input(beta)
        .input(gamma)
        .attr("variance_epsilon", variance_epsilon)
        .attr("scale_after_normalization", scale_after_normalization)
        .output()
}

/// Outputs of [`batch_norm_with_global_normalization_grad`].
#[derive(Clone, Debug)]
pub struct BatchNormWithGlobalNormalizationGradOutputs<T: TensorType> {
    /// `dx`.
    pub dx: Output<T>,
    /// `dm`.
    pub dm: Output<T>,
    /// `dv`.
    pub dv: Output<T>,
    /// `db`.
    pub db: Output<T>,
    /// `dg`.
    pub dg: Output<T>,
}

/// `BatchNormWithGlobalNormalizationGrad`.
///
/// `T`: float, double, half. Has no gradient. Returns `dx`, `dm`, `dv`, `db`, `dg`.
#[track_caller]
pub fn batch_norm_with_global_normalization_grad<T: TensorType>(
    t: impl Handle<T>,
    m: impl Operand<T>,
    v: impl Operand<T>,
    gamma: impl Operand<T>,
    backprop: impl Operand<T>,
    variance_epsilon: f32,
    scale_after_normalization: bool,
) -> BatchNormWithGlobalNormalizationGradOutputs<T> {
    let built = NewOp::on(&t, "BatchNormWithGlobalNormalizationGrad")
        .input(t)
        .input(m)
        .input(v)
        .input(gamma)
        .input(backprop)
        .attr("variance_epsilon", variance_epsilon)
        .attr("scale_after_normalization", scale_after_normalization)
        .build();
    BatchNormWithGlobalNormalizationGradOutputs {
        dx: built.output(0),
        dm: built.output(1),
        dv: built.output(2),
        db: built.output(3),
        dg: built.output(4),
    }
}

/// `BatchSelfAdjointEig`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn batch_self_adjoint_eig<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "BatchSelfAdjointEig").input(input).output()
}

/// `BatchSelfAdjointEigV2`.
///
/// `T`: float, double. Has no gradient. Returns `e`, `v`. Options: [`BatchSelfAdjointEigV2`].
#[track_caller]
pub fn batch_self_adjoint_eig_v2<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>) {
    BatchSelfAdjointEigV2::new().build(input)
}
options! { BatchSelfAdjointEigV2 {
compute_v: bool = "compute_v", "true";
} }
impl BatchSelfAdjointEigV2 {
    /// Adds the node: see [`batch_self_adjoint_eig_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> (Output<T>, Output<T>) {
        let built = self.0.on(&input, "BatchSelfAdjointEigV2").input(input).build();
        (built.output(0), built.output(1))
    }
}

/// `BatchSvd`.
///
/// `T`: float, double, complex64, complex128. Has no gradient. Returns `s`, `u`, `v`. Options: [`BatchSvd`].
#[track_caller]
pub fn batch_svd<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>, Output<T>) {
    BatchSvd::new().build(input)
}
options! { BatchSvd {
compute_uv: bool = "compute_uv", "true";
full_matrices: bool = "full_matrices", "false";
} }
impl BatchSvd {
    /// Adds the node: see [`batch_svd()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> (Output<T>, Output<T>, Output<T>) {
        let built = self.0.on(&input, "BatchSvd").input(input).build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `BatchToSpace`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient.
#[track_caller]
pub fn batch_to_space<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    crops: impl Operand<Tidx>,
    block_size: i64,
) -> Output<T> {
    NewOp::on(&input, "BatchToSpace")
        .input(input)
        .input(crops)
        .attr("block_size", block_size)
        .output()
}

/// `BatchToSpaceND`: moves blocks of the batch dimension into space.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `TblockShape`: int32, int64. `Tcrops`: int32, int64. Has a gradient.
#[track_caller]
pub fn batch_to_space_nd<T: TensorType, TblockShape: TensorType, Tcrops: TensorType>(
    input: impl Handle<T>,
    block_shape: impl Operand<TblockShape>,
    crops: impl Operand<Tcrops>,
) -> Output<T> {
    NewOp::on(&input, "BatchToSpaceND").input(input).input(block_shape).input(crops).output()
}

/// `BesselI0`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_i0<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselI0").input(x).output()
}

/// `BesselI0e`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_i0e<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselI0e").input(x).output()
}

/// `BesselI1`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_i1<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselI1").input(x).output()
}

/// `BesselI1e`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_i1e<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselI1e").input(x).output()
}

/// `BesselJ0`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_j0<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselJ0").input(x).output()
}

/// `BesselJ1`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_j1<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselJ1").input(x).output()
}

/// `BesselK0`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_k0<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselK0").input(x).output()
}

/// `BesselK0e`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_k0e<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselK0e").input(x).output()
}

/// `BesselK1`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_k1<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselK1").input(x).output()
}

/// `BesselK1e`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_k1e<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselK1e").input(x).output()
}

/// `BesselY0`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_y0<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselY0").input(x).output()
}

/// `BesselY1`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn bessel_y1<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "BesselY1").input(x).output()
}

/// `Betainc`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn betainc<T: TensorType>(
    a: impl Handle<T>,
    b: impl Operand<T>,
    x: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&a, "Betainc").input(a).input(b).input(x).output()
}

/// `BiasAdd`: adds a vector along the channel dimension.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`BiasAdd`].
#[track_caller]
pub fn bias_add<T: TensorType>(value: impl Handle<T>, bias: impl Operand<T>) -> Output<T> {
    BiasAdd::new().build(value, bias)
}
options! { BiasAdd {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl BiasAdd {
    /// Adds the node: see [`bias_add()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, value: impl Handle<T>, bias: impl Operand<T>) -> Output<T> {
        self.0.on(&value, "BiasAdd").input(value).input(bias).output()
    }
}

/// `BiasAddGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`BiasAddGrad`].
#[track_caller]
pub fn bias_add_grad<T: TensorType>(out_backprop: impl Handle<T>) -> Output<T> {
    BiasAddGrad::new().build(out_backprop)
}
options! { BiasAddGrad {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl BiasAddGrad {
    /// Adds the node: see [`bias_add_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, out_backprop: impl Handle<T>) -> Output<T> {
        self.0.on(&out_backprop, "BiasAddGrad").input(out_backprop).output()
    }
}

/// `BiasAddV1`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn bias_add_v1<T: TensorType>(value: impl Handle<T>, bias: impl Operand<T>) -> Output<T> {
    NewOp::on(&value, "BiasAddV1").input(value).input(bias).output()
}

/// `Bincount`.
///
/// `T`: float, double, int32, int64. Has no gradient.
#[track_caller]
pub fn bincount<T: TensorType>(
    arr: impl Operand<i32>,
    size: impl Operand<i32>,
    weights: impl Handle<T>,
) -> Output<T> {
    NewOp::on(&weights, "Bincount").input(arr).input(size).input(weights).output()
}

/// `Bitcast`: the same bytes as another type.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Type`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn bitcast<Type: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<Type> {
    NewOp::on(&input, "Bitcast").dtype::<Type>("type").input(input).output()
}

/// `BitwiseAnd`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn bitwise_and<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "BitwiseAnd").input(x).input(y).output()
}

/// `BitwiseOr`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn bitwise_or<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "BitwiseOr").input(x).input(y).output()
}

/// `BitwiseXor`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn bitwise_xor<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "BitwiseXor").input(x).input(y).output()
}

/// Outputs of [`block_lstm`].
#[derive(Clone, Debug)]
pub struct BlockLSTMOutputs<T: TensorType> {
    /// `i`.
    pub i: Output<T>,
    /// `cs`.
    pub cs: Output<T>,
    /// `f`.
    pub f: Output<T>,
    /// `o`.
    pub o: Output<T>,
    /// `ci`.
    pub ci: Output<T>,
    /// `co`.
    pub co: Output<T>,
    /// `h`.
    pub h: Output<T>,
}

/// `BlockLSTM`.
///
/// `T`: float, half. Has a gradient. Returns `i`, `cs`, `f`, `o`, `ci`, `co`, `h`. Options: [`BlockLSTM`].
#[track_caller]
pub fn block_lstm<T: TensorType>(
    seq_len_max: impl Operand<i64>,
    x: impl Handle<T>,
    cs_prev: impl Operand<T>,
    h_prev: impl Operand<T>,
    w: impl Operand<T>,
    wci: impl Operand<T>,
    wcf: impl Operand<T>,
    wco: impl Operand<T>,
    b: impl Operand<T>,
) -> BlockLSTMOutputs<T> {
    BlockLSTM::new().build(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b)
}
options! { BlockLSTM {
forget_bias: f32 = "forget_bias", "1.0";
cell_clip: f32 = "cell_clip", "3.0";
use_peephole: bool = "use_peephole", "false";
} }
impl BlockLSTM {
    /// Adds the node: see [`block_lstm()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        seq_len_max: impl Operand<i64>,
        x: impl Handle<T>,
        cs_prev: impl Operand<T>,
        h_prev: impl Operand<T>,
        w: impl Operand<T>,
        wci: impl Operand<T>,
        wcf: impl Operand<T>,
        wco: impl Operand<T>,
        b: impl Operand<T>,
    ) -> BlockLSTMOutputs<T> {
        let built = self
            .0
            .on(&x, "BlockLSTM")
            .input(seq_len_max)
            .input(x)
            .input(cs_prev)
            .input(h_prev)
            .input(w)
            .input(wci)
            .input(wcf)
            .input(wco)
            .input(b)
            .build();
        BlockLSTMOutputs {
            i: built.output(0),
            cs: built.output(1),
            f: built.output(2),
            o: built.output(3),
            ci: built.output(4),
            co: built.output(5),
            h: built.output(6),
        }
    }
}

/// Outputs of [`block_lstm_grad`].
#[derive(Clone, Debug)]
pub struct BlockLSTMGradOutputs<T: TensorType> {
    /// `x_grad`.
    pub x_grad: Output<T>,
    /// `cs_prev_grad`.
    pub cs_prev_grad: Output<T>,
    /// `h_prev_grad`.
    pub h_prev_grad: Output<T>,
    /// `w_grad`.
    pub w_grad: Output<T>,
    /// `wci_grad`.
    pub wci_grad: Output<T>,
    /// `wcf_grad`.
    pub wcf_grad: Output<T>,
    /// `wco_grad`.
    pub wco_grad: Output<T>,
    /// `b_grad`.
    pub b_grad: Output<T>,
}

/// `BlockLSTMGrad`.
///
/// `T`: float, half. No gradient passes. Returns `x_grad`, `cs_prev_grad`, `h_prev_grad`, `w_grad`, `wci_grad`, `wcf_grad`, `wco_grad`, `b_grad`.
#[track_caller]
pub fn block_lstm_grad<T: TensorType>(
    seq_len_max: impl Operand<i64>,
    x: impl Handle<T>,
    cs_prev: impl Operand<T>,
    h_prev: impl Operand<T>,
    w: impl Operand<T>,
    wci: impl Operand<T>,
    wcf: impl Operand<T>,
    wco: impl Operand<T>,
    b: impl Operand<T>,
    i: impl Operand<T>,
    cs: impl Operand<T>,
    f: impl Operand<T>,
    o: impl Operand<T>,
    ci: impl Operand<T>,
    co: impl Operand<T>,
    h: impl Operand<T>,
    cs_grad: impl Operand<T>,
    h_grad: impl Operand<T>,
    use_peephole: bool,
) -> BlockLSTMGradOutputs<T> {
    let built = NewOp::on(&x, "BlockLSTMGrad")
        .input(seq_len_max)
        .input(x)
        .input(cs_prev)
        .input(h_prev)
        .input(w)
        .input(wci)
        .input(wcf)
        .input(wco)
        .input(b)
        .input(i)
        .input(cs)
        .input(f)
        .input(o)
        .input(ci)
        .input(co)
        .input(h)
        .input(cs_grad)
        .input(h_grad)
        .attr("use_peephole", use_peephole)
        .build();
    BlockLSTMGradOutputs {
        x_grad: built.output(0),
        cs_prev_grad: built.output(1),
        h_prev_grad: built.output(2),
        w_grad: built.output(3),
        wci_grad: built.output(4),
        wcf_grad: built.output(5),
        wco_grad: built.output(6),
        b_grad: built.output(7),
    }
}

/// Outputs of [`block_lstm_grad_v2`].
#[derive(Clone, Debug)]
pub struct BlockLSTMGradV2Outputs<T: TensorType> {
    /// `x_grad`.
    pub x_grad: Output<T>,
    /// `cs_prev_grad`.
    pub cs_prev_grad: Output<T>,
    /// `h_prev_grad`.
    pub h_prev_grad: Output<T>,
    /// `w_grad`.
    pub w_grad: Output<T>,
    /// `wci_grad`.
    pub wci_grad: Output<T>,
    /// `wcf_grad`.
    pub wcf_grad: Output<T>,
    /// `wco_grad`.
    pub wco_grad: Output<T>,
    /// `b_grad`.
    pub b_grad: Output<T>,
}

/// `BlockLSTMGradV2`.
///
/// `T`: float, half. No gradient passes. Returns `x_grad`, `cs_prev_grad`, `h_prev_grad`, `w_grad`, `wci_grad`, `wcf_grad`, `wco_grad`, `b_grad`.
#[track_caller]
pub fn block_lstm_grad_v2<T: TensorType>(
    seq_len_max: impl Operand<i64>,
    x: impl Handle<T>,
    cs_prev: impl Operand<T>,
    h_prev: impl Operand<T>,
    w: impl Operand<T>,
    wci: impl Operand<T>,
    wcf: impl Operand<T>,
    wco: impl Operand<T>,
    b: impl Operand<T>,
    i: impl Operand<T>,
    cs: impl Operand<T>,
    f: impl Operand<T>,
    o: impl Operand<T>,
    ci: impl Operand<T>,
    co: impl Operand<T>,
    h: impl Operand<T>,
    cs_grad: impl Operand<T>,
    h_grad: impl Operand<T>,
    use_peephole: bool,
) -> BlockLSTMGradV2Outputs<T> {
    let built = NewOp::on(&x, "BlockLSTMGradV2")
        .input(seq_len_max)
        .input(x)
        .input(cs_prev)
        .input(h_prev)
        .input(w)
        .input(wci)
        .input(wcf)
        .input(wco)
        .input(b)
        .input(i)
        .input(cs)
        .input(f)
        .input(o)
        .input(ci)
        .input(co)
        .input(h)
        .input(cs_grad)
        .input(h_grad)
        .attr("use_peephole", use_peephole)
        .build();
    BlockLSTMGradV2Outputs {
        x_grad: built.output(0),
        cs_prev_grad: built.output(1),
        h_prev_grad: built.output(2),
        w_grad: built.output(3),
        wci_grad: built.output(4),
        wcf_grad: built.output(5),
        wco_grad: built.output(6),
        b_grad: built.output(7),
    }
}

/// Outputs of [`block_lstm_v2`].
#[derive(Clone, Debug)]
pub struct BlockLSTMV2Outputs<T: TensorType> {
    /// `i`.
    pub i: Output<T>,
    /// `cs`.
    pub cs: Output<T>,
    /// `f`.
    pub f: Output<T>,
    /// `o`.
    pub o: Output<T>,
    /// `ci`.
    pub ci: Output<T>,
    /// `co`.
    pub co: Output<T>,
    /// `h`.
    pub h: Output<T>,
}

/// `BlockLSTMV2`.
///
/// `T`: float, half. Has a gradient. Returns `i`, `cs`, `f`, `o`, `ci`, `co`, `h`. Options: [`BlockLSTMV2`].
#[track_caller]
pub fn block_lstm_v2<T: TensorType>(
    seq_len_max: impl Operand<i64>,
    x: impl Handle<T>,
    cs_prev: impl Operand<T>,
    h_prev: impl Operand<T>,
    w: impl Operand<T>,
    wci: impl Operand<T>,
    wcf: impl Operand<T>,
    wco: impl Operand<T>,
    b: impl Operand<T>,
) -> BlockLSTMV2Outputs<T> {
    BlockLSTMV2::new().build(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b)
}
options! { BlockLSTMV2 {
cell_clip: f32 = "cell_clip", "0.0";
use_peephole: bool = "use_peephole", "false";
} }
impl BlockLSTMV2 {
    /// Adds the node: see [`block_lstm_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        seq_len_max: impl Operand<i64>,
        x: impl Handle<T>,
        cs_prev: impl Operand<T>,
        h_prev: impl Operand<T>,
        w: impl Operand<T>,
        wci: impl Operand<T>,
        wcf: impl Operand<T>,
        wco: impl Operand<T>,
        b: impl Operand<T>,
    ) -> BlockLSTMV2Outputs<T> {
        let built = self
            .0
            .on(&x, "BlockLSTMV2")
            .input(seq_len_max)
            .input(x)
            .input(cs_prev)
            .input(h_prev)
            .input(w)
            .input(wci)
            .input(wcf)
            .input(wco)
            .input(b)
            .build();
        BlockLSTMV2Outputs {
            i: built.output(0),
            cs: built.output(1),
            f: built.output(2),
            o: built.output(3),
            ci: built.output(4),
            co: built.output(5),
            h: built.output(6),
        }
    }
}

/// `BroadcastArgs`.
///
/// `T`: int32, int64. Has no gradient.
#[track_caller]
pub fn broadcast_args<T: TensorType>(s0: impl Handle<T>, s1: impl Operand<T>) -> Output<T> {
    NewOp::on(&s0, "BroadcastArgs").input(s0).input(s1).output()
}

/// `BroadcastGradientArgs`.
///
/// `T`: int32, int64. No gradient passes. Returns `r0`, `r1`.
#[track_caller]
pub fn broadcast_gradient_args<T: TensorType>(
    s0: impl Handle<T>,
    s1: impl Operand<T>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&s0, "BroadcastGradientArgs").input(s0).input(s1).build();
    (built.output(0), built.output(1))
}

/// `BroadcastTo`: a tensor broadcast to a shape.
///
/// `Tidx`: int32, int64. Has a gradient.
#[track_caller]
pub fn broadcast_to<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    shape: impl Operand<Tidx>,
) -> Output<T> {
    NewOp::on(&input, "BroadcastTo").input(input).input(shape).output()
}

/// `Bucketize`: the index of the bucket that each element falls into.
///
/// `T`: float, double, int32, int64. Has no gradient.
#[track_caller]
pub fn bucketize<T: TensorType>(input: impl Handle<T>, boundaries: &[f32]) -> Output<i32> {
    NewOp::on(&input, "Bucketize").input(input).attr("boundaries", boundaries).output()
}

/// `BytesProducedStatsDataset`. Has no gradient.
#[track_caller]
pub fn bytes_produced_stats_dataset(
    input_dataset: impl Handle<Variant>,
    tag: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "BytesProducedStatsDataset")
        .input(input_dataset)
        .input(tag)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}
