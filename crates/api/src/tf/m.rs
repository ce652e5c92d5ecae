//! Ops M. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `MakeIterator`. Has no gradient.
#[track_caller]
pub fn make_iterator(dataset: impl Handle<Variant>, iterator: impl Operand<Resource>) -> Operation {
    NewOp::on(&dataset, "MakeIterator").input(dataset).input(iterator).operation()
}

/// `MapAndBatchDataset`. Has no gradient. Options: [`MapAndBatchDataset`].
#[track_caller]
pub fn map_and_batch_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    batch_size: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    MapAndBatchDataset::new().build(
        input_dataset,
        other_arguments,
        batch_size,
        num_parallel_calls,
        drop_remainder,
        f,
        output_types,
        output_shapes,
    )
}
options! { MapAndBatchDataset {
preserve_cardinality: bool = "preserve_cardinality", "false";
metadata: &str = "metadata", "\"\"";
} }
impl MapAndBatchDataset {
    /// Adds the node: see [`map_and_batch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        batch_size: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        drop_remainder: impl Operand<bool>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "MapAndBatchDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(batch_size)
            .input(num_parallel_calls)
            .input(drop_remainder)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `MapClear`. Has no gradient. Options: [`MapClear`].
#[track_caller]
pub fn map_clear(g: &Graph, dtypes: &[DType]) -> Operation {
    MapClear::new().build(g, dtypes)
}
options! { MapClear {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapClear {
    /// Adds the node: see [`map_clear()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Operation {
        self.0.new(g, "MapClear").attr("dtypes", dtypes).operation()
    }
}

/// `MapDataset`. Has no gradient. Options: [`MapDataset`].
#[track_caller]
pub fn map_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    MapDataset::new().build(input_dataset, other_arguments, f, output_types, output_shapes)
}
options! { MapDataset {
use_inter_op_parallelism: bool = "use_inter_op_parallelism", "true";
preserve_cardinality: bool = "preserve_cardinality", "false";
force_synchronous: bool = "force_synchronous", "false";
metadata: &str = "metadata", "\"\"";
} }
impl MapDataset {
    /// Adds the node: see [`map_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "MapDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `MapIncompleteSize`. Has no gradient. Options: [`MapIncompleteSize`].
#[track_caller]
pub fn map_incomplete_size(g: &Graph, dtypes: &[DType]) -> Output<i32> {
    MapIncompleteSize::new().build(g, dtypes)
}
options! { MapIncompleteSize {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapIncompleteSize {
    /// Adds the node: see [`map_incomplete_size()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Output<i32> {
        self.0.new(g, "MapIncompleteSize").attr("dtypes", dtypes).output()
    }
}

/// `MapPeek`. Has no gradient. Options: [`MapPeek`].
#[track_caller]
pub fn map_peek(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    dtypes: &[DType],
) -> Vec<Output<Untyped>> {
    MapPeek::new().build(key, indices, dtypes)
}
options! { MapPeek {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapPeek {
    /// Adds the node: see [`map_peek()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        dtypes: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built =
            self.0.on(&key, "MapPeek").input(key).input(indices).attr("dtypes", dtypes).build();
        built.outputs("values", dtypes.len())
    }
}

/// `MapSize`. Has no gradient. Options: [`MapSize`].
#[track_caller]
pub fn map_size(g: &Graph, dtypes: &[DType]) -> Output<i32> {
    MapSize::new().build(g, dtypes)
}
options! { MapSize {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapSize {
    /// Adds the node: see [`map_size()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Output<i32> {
        self.0.new(g, "MapSize").attr("dtypes", dtypes).output()
    }
}

/// `MapStage`. Has no gradient. Options: [`MapStage`].
#[track_caller]
pub fn map_stage(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    values: &[Output<Untyped>],
    dtypes: &[DType],
) -> Operation {
    MapStage::new().build(key, indices, values, dtypes)
}
options! { MapStage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapStage {
    /// Adds the node: see [`map_stage()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        values: &[Output<Untyped>],
        dtypes: &[DType],
    ) -> Operation {
        self.0
            .on(&key, "MapStage")
            .input(key)
            .input(indices)
            .inputs(values)
            .attr("fake_dtypes", &dtypes_of(values)[..])
            .attr("dtypes", dtypes)
            .operation()
    }
}

/// `MapUnstage`. Has no gradient. Options: [`MapUnstage`].
#[track_caller]
pub fn map_unstage(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    dtypes: &[DType],
) -> Vec<Output<Untyped>> {
    MapUnstage::new().build(key, indices, dtypes)
}
options! { MapUnstage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapUnstage {
    /// Adds the node: see [`map_unstage()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        dtypes: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built =
            self.0.on(&key, "MapUnstage").input(key).input(indices).attr("dtypes", dtypes).build();
        built.outputs("values", dtypes.len())
    }
}

/// `MapUnstageNoKey`. Has no gradient. Returns `key`, `values`. Options: [`MapUnstageNoKey`].
#[track_caller]
pub fn map_unstage_no_key(
    indices: impl Handle<i32>,
    dtypes: &[DType],
) -> (Output<i64>, Vec<Output<Untyped>>) {
    MapUnstageNoKey::new().build(indices, dtypes)
}
options! { MapUnstageNoKey {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MapUnstageNoKey {
    /// Adds the node: see [`map_unstage_no_key()`].
    #[track_caller]
    pub fn build(
        &self,
        indices: impl Handle<i32>,
        dtypes: &[DType],
    ) -> (Output<i64>, Vec<Output<Untyped>>) {
        let built =
            self.0.on(&indices, "MapUnstageNoKey").input(indices).attr("dtypes", dtypes).build();
        (built.named("key"), built.outputs("values", dtypes.len()))
    }
}

/// `MatMul`: the product of two matrices.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient. Options: [`MatMul`].
#[track_caller]
pub fn mat_mul<T: TensorType>(a: impl Handle<T>, b: impl Operand<T>) -> Output<T> {
    MatMul::new().build(a, b)
}
options! { MatMul {
transpose_a: bool = "transpose_a", "false";
transpose_b: bool = "transpose_b", "false";
grad_a: bool = "grad_a", "false";
grad_b: bool = "grad_b", "false";
} }
impl MatMul {
    /// Adds the node: see [`mat_mul()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, a: impl Handle<T>, b: impl Operand<T>) -> Output<T> {
        self.0.on(&a, "MatMul").input(a).input(b).output()
    }
}

/// `MatchingFiles`. No gradient passes.
#[track_caller]
pub fn matching_files(pattern: impl Handle<String>) -> Output<String> {
    NewOp::on(&pattern, "MatchingFiles").input(pattern).output()
}

/// `MatchingFilesDataset`. Has no gradient.
#[track_caller]
pub fn matching_files_dataset(patterns: impl Handle<String>) -> Output<Variant> {
    NewOp::on(&patterns, "MatchingFilesDataset").input(patterns).output()
}

/// `MatrixBandPart`: matrices with everything outside a band set to zero.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. `Tindex`: int32, int64. Has a gradient.
#[track_caller]
pub fn matrix_band_part<T: TensorType, Tindex: TensorType>(
    input: impl Handle<T>,
    num_lower: impl Operand<Tindex>,
    num_upper: impl Operand<Tindex>,
) -> Output<T> {
    NewOp::on(&input, "MatrixBandPart").input(input).input(num_lower).input(num_upper).output()
}

/// `MatrixDeterminant`.
///
/// `T`: float, double, complex64, complex128. Has a gradient.
#[track_caller]
pub fn matrix_determinant<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "MatrixDeterminant").input(input).output()
}

/// `MatrixDiag`: diagonal matrices.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_diag<T: TensorType>(diagonal: impl Handle<T>) -> Output<T> {
    NewOp::on(&diagonal, "MatrixDiag").input(diagonal).output()
}

/// `MatrixDiagPart`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_diag_part<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "MatrixDiagPart").input(input).output()
}

/// `MatrixDiagPartV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_diag_part_v2<T: TensorType>(
    input: impl Handle<T>,
    k: impl Operand<i32>,
    padding_value: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&input, "MatrixDiagPartV2").input(input).input(k).input(padding_value).output()
}

/// `MatrixDiagPartV3`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`MatrixDiagPartV3`].
#[track_caller]
pub fn matrix_diag_part_v3<T: TensorType>(
    input: impl Handle<T>,
    k: impl Operand<i32>,
    padding_value: impl Operand<T>,
) -> Output<T> {
    MatrixDiagPartV3::new().build(input, k, padding_value)
}
options! { MatrixDiagPartV3 {
align: &str = "align", "\"RIGHT_LEFT\"";
} }
impl MatrixDiagPartV3 {
    /// Adds the node: see [`matrix_diag_part_v3()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        k: impl Operand<i32>,
        padding_value: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&input, "MatrixDiagPartV3").input(input).input(k).input(padding_value).output()
    }
}

/// `MatrixDiagV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_diag_v2<T: TensorType>(
    diagonal: impl Handle<T>,
    k: impl Operand<i32>,
    num_rows: impl Operand<i32>,
    num_cols: impl Operand<i32>,
    padding_value: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&diagonal, "MatrixDiagV2")
        .input(diagonal)
        .input(k)
        .input(num_rows)
        .input(num_cols)
        .input(padding_value)
        .output()
}

/// `MatrixDiagV3`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`MatrixDiagV3`].
#[track_caller]
pub fn matrix_diag_v3<T: TensorType>(
    diagonal: impl Handle<T>,
    k: impl Operand<i32>,
    num_rows: impl Operand<i32>,
    num_cols: impl Operand<i32>,
    padding_value: impl Operand<T>,
) -> Output<T> {
    MatrixDiagV3::new().build(diagonal, k, num_rows, num_cols, padding_value)
}
options! { MatrixDiagV3 {
align: &str = "align", "\"RIGHT_LEFT\"";
} }
impl MatrixDiagV3 {
    /// Adds the node: see [`matrix_diag_v3()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        diagonal: impl Handle<T>,
        k: impl Operand<i32>,
        num_rows: impl Operand<i32>,
        num_cols: impl Operand<i32>,
        padding_value: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&diagonal, "MatrixDiagV3")
            .input(diagonal)
            .input(k)
            .input(num_rows)
            .input(num_cols)
            .input(padding_value)
            .output()
    }
}

/// `MatrixExponential`.
///
/// `T`: float, double, complex64, complex128. Has no gradient.
#[track_caller]
pub fn matrix_exponential<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "MatrixExponential").input(input).output()
}

/// `MatrixInverse`: the inverse of matrices.
///
/// `T`: float, double, complex64, complex128, half. Has a gradient. Options: [`MatrixInverse`].
#[track_caller]
pub fn matrix_inverse<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    MatrixInverse::new().build(input)
}
options! { MatrixInverse {
adjoint: bool = "adjoint", "false";
} }
impl MatrixInverse {
    /// Adds the node: see [`matrix_inverse()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "MatrixInverse").input(input).output()
    }
}

/// `MatrixLogarithm`.
///
/// `T`: complex64, complex128. Has no gradient.
#[track_caller]
pub fn matrix_logarithm<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "MatrixLogarithm").input(input).output()
}

/// `MatrixSetDiag`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_set_diag<T: TensorType>(
    input: impl Handle<T>,
    diagonal: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&input, "MatrixSetDiag").input(input).input(diagonal).output()
}

/// `MatrixSetDiagV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn matrix_set_diag_v2<T: TensorType>(
    input: impl Handle<T>,
    diagonal: impl Operand<T>,
    k: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&input, "MatrixSetDiagV2").input(input).input(diagonal).input(k).output()
}

/// `MatrixSetDiagV3`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`MatrixSetDiagV3`].
#[track_caller]
pub fn matrix_set_diag_v3<T: TensorType>(
    input: impl Handle<T>,
    diagonal: impl Operand<T>,
    k: impl Operand<i32>,
) -> Output<T> {
    MatrixSetDiagV3::new().build(input, diagonal, k)
}
options! { MatrixSetDiagV3 {
align: &str = "align", "\"RIGHT_LEFT\"";
} }
impl MatrixSetDiagV3 {
    /// Adds the node: see [`matrix_set_diag_v3()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        diagonal: impl Operand<T>,
        k: impl Operand<i32>,
    ) -> Output<T> {
        self.0.on(&input, "MatrixSetDiagV3").input(input).input(diagonal).input(k).output()
    }
}

/// `MatrixSolve`: the solution of linear systems.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Options: [`MatrixSolve`].
#[track_caller]
pub fn matrix_solve<T: TensorType>(matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
    MatrixSolve::new().build(matrix, rhs)
}
options! { MatrixSolve {
adjoint: bool = "adjoint", "false";
} }
impl MatrixSolve {
    /// Adds the node: see [`matrix_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
        self.0.on(&matrix, "MatrixSolve").input(matrix).input(rhs).output()
    }
}

/// `MatrixSolveLs`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Options: [`MatrixSolveLs`].
#[track_caller]
pub fn matrix_solve_ls<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
    l2_regularizer: impl Operand<f64>,
) -> Output<T> {
    MatrixSolveLs::new().build(matrix, rhs, l2_regularizer)
}
options! { MatrixSolveLs {
fast: bool = "fast", "true";
} }
impl MatrixSolveLs {
    /// Adds the node: see [`matrix_solve_ls()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        matrix: impl Handle<T>,
        rhs: impl Operand<T>,
        l2_regularizer: impl Operand<f64>,
    ) -> Output<T> {
        self.0.on(&matrix, "MatrixSolveLs").input(matrix).input(rhs).input(l2_regularizer).output()
    }
}

/// `MatrixSquareRoot`.
///
/// `T`: float, double, complex64, complex128. Has a gradient.
#[track_caller]
pub fn matrix_square_root<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "MatrixSquareRoot").input(input).output()
}

/// `MatrixTriangularSolve`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Options: [`MatrixTriangularSolve`].
#[track_caller]
pub fn matrix_triangular_solve<T: TensorType>(
    matrix: impl Handle<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    MatrixTriangularSolve::new().build(matrix, rhs)
}
options! { MatrixTriangularSolve {
lower: bool = "lower", "true";
adjoint: bool = "adjoint", "false";
} }
impl MatrixTriangularSolve {
    /// Adds the node: see [`matrix_triangular_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, matrix: impl Handle<T>, rhs: impl Operand<T>) -> Output<T> {
        self.0.on(&matrix, "MatrixTriangularSolve").input(matrix).input(rhs).output()
    }
}

/// `Max`: the largest element along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Max`].
#[track_caller]
pub fn max<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    Max::new().build(input, reduction_indices)
}
options! { Max {
keep_dims: bool = "keep_dims", "false";
} }
impl Max {
    /// Adds the node: see [`max()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "Max").input(input).input(reduction_indices).output()
    }
}

/// `MaxIntraOpParallelismDataset`. Has no gradient.
#[track_caller]
pub fn max_intra_op_parallelism_dataset(
    input_dataset: impl Handle<Variant>,
    max_intra_op_parallelism: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "MaxIntraOpParallelismDataset")
        .input(input_dataset)
        .input(max_intra_op_parallelism)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `MaxPool`: the largest element of windows of images.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`MaxPool`].
#[track_caller]
pub fn max_pool<T: TensorType>(
    input: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPool::new().build(input, ksize, strides, padding)
}
options! { MaxPool {
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPool {
    /// Adds the node: see [`max_pool()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "MaxPool")
            .input(input)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPool3D`.
///
/// `T`: float, bfloat16, half. Has a gradient. Options: [`MaxPool3D`].
#[track_caller]
pub fn max_pool3d<T: TensorType>(
    input: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPool3D::new().build(input, ksize, strides, padding)
}
options! { MaxPool3D {
data_format: &str = "data_format", "\"NDHWC\"";
} }
impl MaxPool3D {
    /// Adds the node: see [`max_pool3d()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "MaxPool3D")
            .input(input)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPool3DGrad`.
///
/// `T`: float, bfloat16, half. `TInput`: float, bfloat16, half. Has a gradient. Options: [`MaxPool3DGrad`].
#[track_caller]
pub fn max_pool3d_grad<T: TensorType, TInput: TensorType>(
    orig_input: impl Handle<TInput>,
    orig_output: impl Operand<TInput>,
    grad: impl Operand<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPool3DGrad::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPool3DGrad {
data_format: &str = "data_format", "\"NDHWC\"";
} }
impl MaxPool3DGrad {
    /// Adds the node: see [`max_pool3d_grad()`].
    #[track_caller]
    pub fn build<T: TensorType, TInput: TensorType>(
        &self,
        orig_input: impl Handle<TInput>,
        orig_output: impl Operand<TInput>,
        grad: impl Operand<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPool3DGrad")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPool3DGradGrad`.
///
/// `T`: float, bfloat16, half. Has a gradient. Options: [`MaxPool3DGradGrad`].
#[track_caller]
pub fn max_pool3d_grad_grad<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    grad: impl Operand<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPool3DGradGrad::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPool3DGradGrad {
data_format: &str = "data_format", "\"NDHWC\"";
} }
impl MaxPool3DGradGrad {
    /// Adds the node: see [`max_pool3d_grad_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        grad: impl Operand<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPool3DGradGrad")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Options: [`MaxPoolGrad`].
#[track_caller]
pub fn max_pool_grad<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    grad: impl Operand<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPoolGrad::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPoolGrad {
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPoolGrad {
    /// Adds the node: see [`max_pool_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        grad: impl Operand<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPoolGrad")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGradGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Options: [`MaxPoolGradGrad`].
#[track_caller]
pub fn max_pool_grad_grad<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    grad: impl Operand<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPoolGradGrad::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPoolGradGrad {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPoolGradGrad {
    /// Adds the node: see [`max_pool_grad_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        grad: impl Operand<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPoolGradGrad")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGradGradV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Options: [`MaxPoolGradGradV2`].
#[track_caller]
pub fn max_pool_grad_grad_v2<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    grad: impl Operand<T>,
    ksize: impl Operand<i32>,
    strides: impl Operand<i32>,
    padding: &str,
) -> Output<T> {
    MaxPoolGradGradV2::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPoolGradGradV2 {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPoolGradGradV2 {
    /// Adds the node: see [`max_pool_grad_grad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        grad: impl Operand<T>,
        ksize: impl Operand<i32>,
        strides: impl Operand<i32>,
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPoolGradGradV2")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .input(ksize)
            .input(strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGradGradWithArgmax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Targmax`: int32, int64. Has no gradient. Options: [`MaxPoolGradGradWithArgmax`].
#[track_caller]
pub fn max_pool_grad_grad_with_argmax<Targmax: TensorType, T: TensorType>(
    input: impl Handle<T>,
    grad: impl Operand<T>,
    argmax: impl Operand<Targmax>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPoolGradGradWithArgmax::new().build(input, grad, argmax, ksize, strides, padding)
}
options! { MaxPoolGradGradWithArgmax {
include_batch_in_index: bool = "include_batch_in_index", "false";
} }
impl MaxPoolGradGradWithArgmax {
    /// Adds the node: see [`max_pool_grad_grad_with_argmax()`].
    #[track_caller]
    pub fn build<Targmax: TensorType, T: TensorType>(
        &self,
        input: impl Handle<T>,
        grad: impl Operand<T>,
        argmax: impl Operand<Targmax>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "MaxPoolGradGradWithArgmax")
            .input(input)
            .input(grad)
            .input(argmax)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGradV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Options: [`MaxPoolGradV2`].
#[track_caller]
pub fn max_pool_grad_v2<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    grad: impl Operand<T>,
    ksize: impl Operand<i32>,
    strides: impl Operand<i32>,
    padding: &str,
) -> Output<T> {
    MaxPoolGradV2::new().build(orig_input, orig_output, grad, ksize, strides, padding)
}
options! { MaxPoolGradV2 {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPoolGradV2 {
    /// Adds the node: see [`max_pool_grad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        grad: impl Operand<T>,
        ksize: impl Operand<i32>,
        strides: impl Operand<i32>,
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "MaxPoolGradV2")
            .input(orig_input)
            .input(orig_output)
            .input(grad)
            .input(ksize)
            .input(strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolGradWithArgmax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Targmax`: int32, int64. Has no gradient. Options: [`MaxPoolGradWithArgmax`].
#[track_caller]
pub fn max_pool_grad_with_argmax<Targmax: TensorType, T: TensorType>(
    input: impl Handle<T>,
    grad: impl Operand<T>,
    argmax: impl Operand<Targmax>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    MaxPoolGradWithArgmax::new().build(input, grad, argmax, ksize, strides, padding)
}
options! { MaxPoolGradWithArgmax {
include_batch_in_index: bool = "include_batch_in_index", "false";
} }
impl MaxPoolGradWithArgmax {
    /// Adds the node: see [`max_pool_grad_with_argmax()`].
    #[track_caller]
    pub fn build<Targmax: TensorType, T: TensorType>(
        &self,
        input: impl Handle<T>,
        grad: impl Operand<T>,
        argmax: impl Operand<Targmax>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "MaxPoolGradWithArgmax")
            .input(input)
            .input(grad)
            .input(argmax)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolV2`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`MaxPoolV2`].
#[track_caller]
pub fn max_pool_v2<T: TensorType>(
    input: impl Handle<T>,
    ksize: impl Operand<i32>,
    strides: impl Operand<i32>,
    padding: &str,
) -> Output<T> {
    MaxPoolV2::new().build(input, ksize, strides, padding)
}
options! { MaxPoolV2 {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl MaxPoolV2 {
    /// Adds the node: see [`max_pool_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        ksize: impl Operand<i32>,
        strides: impl Operand<i32>,
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "MaxPoolV2")
            .input(input)
            .input(ksize)
            .input(strides)
            .attr("padding", padding)
            .output()
    }
}

/// `MaxPoolWithArgmax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Targmax`: int32, int64. Has a gradient. Returns `output`, `argmax`. Options: [`MaxPoolWithArgmax`].
#[track_caller]
pub fn max_pool_with_argmax<Targmax: TensorType, T: TensorType>(
    input: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> (Output<T>, Output<Targmax>) {
    MaxPoolWithArgmax::new().build(input, ksize, strides, padding)
}
options! { MaxPoolWithArgmax {
include_batch_in_index: bool = "include_batch_in_index", "false";
} }
impl MaxPoolWithArgmax {
    /// Adds the node: see [`max_pool_with_argmax()`].
    #[track_caller]
    pub fn build<Targmax: TensorType, T: TensorType>(
        &self,
        input: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> (Output<T>, Output<Targmax>) {
        let built = self
            .0
            .on(&input, "MaxPoolWithArgmax")
            .dtype::<Targmax>("Targmax")
            .input(input)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `Maximum`: the larger of both, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn maximum<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Maximum").input(x).input(y).output()
}

/// `Mean`: the mean along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Mean`].
#[track_caller]
pub fn mean<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    Mean::new().build(input, reduction_indices)
}
options! { Mean {
keep_dims: bool = "keep_dims", "false";
} }
impl Mean {
    /// Adds the node: see [`mean()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "Mean").input(input).input(reduction_indices).output()
    }
}

/// `Merge`. Has no gradient. Returns `output`, `value_index`.
#[track_caller]
pub fn merge<T: TensorType>(g: &Graph, inputs: &[Output<T>]) -> (Output<T>, Output<i32>) {
    let built = NewOp::new(g, "Merge")
        .inputs(inputs)
        .attr("N", inputs.len() as i64)
        .dtype::<T>("T")
        .build();
    (built.output(0), built.output(1))
}

/// `MergeSummary`. No gradient passes.
#[track_caller]
pub fn merge_summary(g: &Graph, inputs: &[Output<String>]) -> Output<String> {
    NewOp::new(g, "MergeSummary").inputs(inputs).attr("N", inputs.len() as i64).output()
}

/// `MergeV2Checkpoints`. No gradient passes. Options: [`MergeV2Checkpoints`].
#[track_caller]
pub fn merge_v2_checkpoints(
    checkpoint_prefixes: impl Handle<String>,
    destination_prefix: impl Operand<String>,
) -> Operation {
    MergeV2Checkpoints::new().build(checkpoint_prefixes, destination_prefix)
}
options! { MergeV2Checkpoints {
delete_old_dirs: bool = "delete_old_dirs", "true";
allow_missing_files: bool = "allow_missing_files", "false";
} }
impl MergeV2Checkpoints {
    /// Adds the node: see [`merge_v2_checkpoints()`].
    #[track_caller]
    pub fn build(
        &self,
        checkpoint_prefixes: impl Handle<String>,
        destination_prefix: impl Operand<String>,
    ) -> Operation {
        self.0
            .on(&checkpoint_prefixes, "MergeV2Checkpoints")
            .input(checkpoint_prefixes)
            .input(destination_prefix)
            .operation()
    }
}

/// `Min`: the smallest element along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Min`].
#[track_caller]
pub fn min<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    Min::new().build(input, reduction_indices)
}
options! { Min {
keep_dims: bool = "keep_dims", "false";
} }
impl Min {
    /// Adds the node: see [`min()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "Min").input(input).input(reduction_indices).output()
    }
}

/// `Minimum`: the smaller of both, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn minimum<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Minimum").input(x).input(y).output()
}

/// `MirrorPad`: a tensor padded by its mirror image.
///
/// `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn mirror_pad<T: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    paddings: impl Operand<Tpaddings>,
    mode: &str,
) -> Output<T> {
    NewOp::on(&input, "MirrorPad").input(input).input(paddings).attr("mode", mode).output()
}

/// `MirrorPadGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn mirror_pad_grad<T: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    paddings: impl Operand<Tpaddings>,
    mode: &str,
) -> Output<T> {
    NewOp::on(&input, "MirrorPadGrad").input(input).input(paddings).attr("mode", mode).output()
}

/// `Mod`.
///
/// `T`: float, double, int32, int64. Has no gradient.
#[track_caller]
pub fn mod_<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Mod").input(x).input(y).output()
}

/// `ModelDataset`. Has no gradient. Options: [`ModelDataset`].
#[track_caller]
pub fn model_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ModelDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { ModelDataset {
algorithm: i64 = "algorithm", "0";
cpu_budget: i64 = "cpu_budget", "0";
ram_budget: i64 = "ram_budget", "0";
} }
impl ModelDataset {
    /// Adds the node: see [`model_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ModelDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Mul`: the product, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn mul<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Mul").input(x).input(y).output()
}

/// `MulNoNan`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn mul_no_nan<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "MulNoNan").input(x).input(y).output()
}

/// `MultiDeviceIterator`. Has no gradient.
#[track_caller]
pub fn multi_device_iterator(
    g: &Graph,
    devices: &[&str],
    shared_name: &str,
    container: &str,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "MultiDeviceIterator")
        .attr("devices", devices)
        .attr("shared_name", shared_name)
        .attr("container", container)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `MultiDeviceIteratorFromStringHandle`. Has no gradient. Options: [`MultiDeviceIteratorFromStringHandle`].
#[track_caller]
pub fn multi_device_iterator_from_string_handle(
    string_handle: impl Handle<String>,
) -> Output<Resource> {
    MultiDeviceIteratorFromStringHandle::new().build(string_handle)
}
options! { MultiDeviceIteratorFromStringHandle {
output_types: &[DType] = "output_types", "[]";
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl MultiDeviceIteratorFromStringHandle {
    /// Adds the node: see [`multi_device_iterator_from_string_handle()`].
    #[track_caller]
    pub fn build(&self, string_handle: impl Handle<String>) -> Output<Resource> {
        self.0
            .on(&string_handle, "MultiDeviceIteratorFromStringHandle")
            .input(string_handle)
            .output()
    }
}

/// `MultiDeviceIteratorGetNextFromShard`. Has no gradient.
#[track_caller]
pub fn multi_device_iterator_get_next_from_shard(
    multi_device_iterator: impl Handle<Resource>,
    shard_num: impl Operand<i32>,
    incarnation_id: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&multi_device_iterator, "MultiDeviceIteratorGetNextFromShard")
        .input(multi_device_iterator)
        .input(shard_num)
        .input(incarnation_id)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    built.outputs("components", output_types.len())
}

/// `MultiDeviceIteratorInit`. Has no gradient.
#[track_caller]
pub fn multi_device_iterator_init(
    dataset: impl Handle<Variant>,
    multi_device_iterator: impl Operand<Resource>,
    max_buffer_size: impl Operand<i64>,
) -> Output<i64> {
    NewOp::on(&dataset, "MultiDeviceIteratorInit")
        .input(dataset)
        .input(multi_device_iterator)
        .input(max_buffer_size)
        .output()
}

/// `MultiDeviceIteratorToStringHandle`. Has no gradient.
#[track_caller]
pub fn multi_device_iterator_to_string_handle(
    multi_device_iterator: impl Handle<Resource>,
) -> Output<String> {
    NewOp::on(&multi_device_iterator, "MultiDeviceIteratorToStringHandle")
        .input(multi_device_iterator)
        .output()
}

/// `Multinomial`.
///
/// `T`: float, double, bfloat16, half. `OutputDtype`: int32, int64. No gradient passes. Options: [`Multinomial`].
#[track_caller]
pub fn multinomial<OutputDtype: TensorType, T: TensorType>(
    logits: impl Handle<T>,
    num_samples: impl Operand<i32>,
) -> Output<OutputDtype> {
    Multinomial::new().build(logits, num_samples)
}
options! { Multinomial {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl Multinomial {
    /// Adds the node: see [`multinomial()`].
    #[track_caller]
    pub fn build<OutputDtype: TensorType, T: TensorType>(
        &self,
        logits: impl Handle<T>,
        num_samples: impl Operand<i32>,
    ) -> Output<OutputDtype> {
        self.0
            .on(&logits, "Multinomial")
            .dtype::<OutputDtype>("output_dtype")
            .input(logits)
            .input(num_samples)
            .output()
    }
}

/// `MutableDenseHashTable`.
///
/// `KeyDtype`: int32, string, int64. No gradient passes. Options: [`MutableDenseHashTable`].
#[track_caller]
pub fn mutable_dense_hash_table<KeyDtype: TensorType>(
    empty_key: impl Handle<KeyDtype>,
    value_dtype: DType,
) -> Output<Ref<String>> {
    MutableDenseHashTable::new().build(empty_key, value_dtype)
}
options! { MutableDenseHashTable {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
initial_num_buckets: i64 = "initial_num_buckets", "131072";
max_load_factor: f32 = "max_load_factor", "0.8";
} }
impl MutableDenseHashTable {
    /// Adds the node: see [`mutable_dense_hash_table()`].
    #[track_caller]
    pub fn build<KeyDtype: TensorType>(
        &self,
        empty_key: impl Handle<KeyDtype>,
        value_dtype: DType,
    ) -> Output<Ref<String>> {
        self.0
            .on(&empty_key, "MutableDenseHashTable")
            .input(empty_key)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutableDenseHashTableV2`.
///
/// `KeyDtype`: int32, string, int64. No gradient passes. Options: [`MutableDenseHashTableV2`].
#[track_caller]
pub fn mutable_dense_hash_table_v2<KeyDtype: TensorType>(
    empty_key: impl Handle<KeyDtype>,
    deleted_key: impl Operand<KeyDtype>,
    value_dtype: DType,
) -> Output<Resource> {
    MutableDenseHashTableV2::new().build(empty_key, deleted_key, value_dtype)
}
options! { MutableDenseHashTableV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
initial_num_buckets: i64 = "initial_num_buckets", "131072";
max_load_factor: f32 = "max_load_factor", "0.8";
} }
impl MutableDenseHashTableV2 {
    /// Adds the node: see [`mutable_dense_hash_table_v2()`].
    #[track_caller]
    pub fn build<KeyDtype: TensorType>(
        &self,
        empty_key: impl Handle<KeyDtype>,
        deleted_key: impl Operand<KeyDtype>,
        value_dtype: DType,
    ) -> Output<Resource> {
        self.0
            .on(&empty_key, "MutableDenseHashTableV2")
            .input(empty_key)
            .input(deleted_key)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutableHashTable`. No gradient passes. Options: [`MutableHashTable`].
#[track_caller]
pub fn mutable_hash_table(g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Ref<String>> {
    MutableHashTable::new().build(g, key_dtype, value_dtype)
}
options! { MutableHashTable {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
} }
impl MutableHashTable {
    /// Adds the node: see [`mutable_hash_table()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Ref<String>> {
        self.0
            .new(g, "MutableHashTable")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutableHashTableOfTensors`. No gradient passes. Options: [`MutableHashTableOfTensors`].
#[track_caller]
pub fn mutable_hash_table_of_tensors(
    g: &Graph,
    key_dtype: DType,
    value_dtype: DType,
) -> Output<Ref<String>> {
    MutableHashTableOfTensors::new().build(g, key_dtype, value_dtype)
}
options! { MutableHashTableOfTensors {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
} }
impl MutableHashTableOfTensors {
    /// Adds the node: see [`mutable_hash_table_of_tensors()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Ref<String>> {
        self.0
            .new(g, "MutableHashTableOfTensors")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutableHashTableOfTensorsV2`. No gradient passes. Options: [`MutableHashTableOfTensorsV2`].
#[track_caller]
pub fn mutable_hash_table_of_tensors_v2(
    g: &Graph,
    key_dtype: DType,
    value_dtype: DType,
) -> Output<Resource> {
    MutableHashTableOfTensorsV2::new().build(g, key_dtype, value_dtype)
}
options! { MutableHashTableOfTensorsV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
} }
impl MutableHashTableOfTensorsV2 {
    /// Adds the node: see [`mutable_hash_table_of_tensors_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
        self.0
            .new(g, "MutableHashTableOfTensorsV2")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutableHashTableV2`. No gradient passes. Options: [`MutableHashTableV2`].
#[track_caller]
pub fn mutable_hash_table_v2(g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
    MutableHashTableV2::new().build(g, key_dtype, value_dtype)
}
options! { MutableHashTableV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
} }
impl MutableHashTableV2 {
    /// Adds the node: see [`mutable_hash_table_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
        self.0
            .new(g, "MutableHashTableV2")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `MutexLock`. Has no gradient.
#[track_caller]
pub fn mutex_lock(mutex: impl Handle<Resource>) -> Output<Variant> {
    NewOp::on(&mutex, "MutexLock").input(mutex).output()
}

/// `MutexV2`. Has no gradient. Options: [`MutexV2`].
#[track_caller]
pub fn mutex_v2(g: &Graph) -> Output<Resource> {
    MutexV2::new().build(g)
}
options! { MutexV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl MutexV2 {
    /// Adds the node: see [`mutex_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "MutexV2").output()
    }
}
