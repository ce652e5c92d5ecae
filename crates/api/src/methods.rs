//! Methods of tensors: the usual ops under the field's names.

use thalweg_tensor::DType;

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::node::NewOp;
use crate::operand::Operand;
use crate::output::Output;
use crate::variable::Variable;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)+) => { $(
        $(#[$doc])*
        #[track_caller]
        #[must_use]
        pub fn $name(&self) -> Output<T> {
            NewOp::new(self.graph(), $op).input(self).output()
        }
    )+ };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:literal -> $t:ty;)+) => { $(
        $(#[$doc])*
        #[track_caller]
        #[must_use]
        pub fn $name(&self, other: impl Operand<T>) -> Output<$t> {
            NewOp::new(self.graph(), $op).input(self).input(other).output()
        }
    )+ };
}

macro_rules! reductions {
    ($($name:ident, $over:ident, $keeping:ident => $op:literal, $what:literal;)+) => { $(
        #[doc = concat!("The ", $what, " of all elements: a scalar.")]
        #[track_caller]
        #[must_use]
        pub fn $name(&self) -> Output<T> {
            let axes = self.all_axes();
            NewOp::new(self.graph(), $op).input(self).input(&axes).output()
        }

        #[doc = concat!("The ", $what, " over these axes, which are removed.")]
        #[track_caller]
        #[must_use]
        pub fn $over<I: TensorType>(&self, axes: impl Operand<I>) -> Output<T> {
            NewOp::new(self.graph(), $op).input(self).input(axes).output()
        }

        #[doc = concat!("The ", $what, " over these axes, which keep the size 1.")]
        #[track_caller]
        #[must_use]
        pub fn $keeping<I: TensorType>(&self, axes: impl Operand<I>) -> Output<T> {
            let op = NewOp::new(self.graph(), $op).input(self).input(axes);
            op.attr("keep_dims", true).output()
        }
    )+ };
}

impl<T: TensorType> Output<T> {
    unary! {
        /// The absolute value.
        abs => "Abs";
        /// `e` to the power of each element.
        exp => "Exp";
        /// The natural logarithm.
        log => "Log";
        /// The natural logarithm of 1 plus each element.
        log1p => "Log1p";
        /// The square root.
        sqrt => "Sqrt";
        /// One divided by the square root.
        rsqrt => "Rsqrt";
        /// The square.
        square => "Square";
        /// One divided by each element.
        reciprocal => "Reciprocal";
        /// The sine.
        sin => "Sin";
        /// The cosine.
        cos => "Cos";
        /// The hyperbolic tangent.
        tanh => "Tanh";
        /// The error function.
        erf => "Erf";
        /// The logistic function.
        sigmoid => "Sigmoid";
        /// The rectified linear unit: `max(x, 0)`.
        relu => "Relu";
        /// The rectified linear unit up to 6.
        relu6 => "Relu6";
        /// The exponential linear unit.
        elu => "Elu";
        /// The scaled exponential linear unit.
        selu => "Selu";
        /// `log(1 + exp(x))`.
        softplus => "Softplus";
        /// Softmax over the last axis.
        softmax => "Softmax";
        /// The logarithm of the softmax over the last axis.
        log_softmax => "LogSoftmax";
        /// Rounds down.
        floor => "Floor";
        /// Rounds up.
        ceil => "Ceil";
        /// Rounds to the nearest integer, halves to even.
        round => "Round";
        /// -1, 0 or 1.
        sign => "Sign";
        /// Zeros of the same shape.
        zeros_like => "ZerosLike";
        /// Ones of the same shape.
        ones_like => "OnesLike";
        /// The same value, through which no gradient passes.
        stop_gradient => "StopGradient";
        /// Half the sum of squares.
        l2_loss => "L2Loss";
    }

    binary! {
        /// This to the power of `other`.
        pow => "Pow" -> T;
        /// The larger of both.
        maximum => "Maximum" -> T;
        /// The smaller of both.
        minimum => "Minimum" -> T;
        /// The quotient, rounded down.
        floor_div => "FloorDiv" -> T;
        /// The remainder with the sign of `other`.
        floor_mod => "FloorMod" -> T;
        /// The square of the difference.
        squared_difference => "SquaredDifference" -> T;
        /// Whether this is less.
        less => "Less" -> bool;
        /// Whether this is less or equal.
        less_equal => "LessEqual" -> bool;
        /// Whether this is greater.
        greater => "Greater" -> bool;
        /// Whether this is greater or equal.
        greater_equal => "GreaterEqual" -> bool;
        /// Whether both are equal.
        equal => "Equal" -> bool;
        /// Whether both differ.
        not_equal => "NotEqual" -> bool;
    }

    reductions! {
        sum, sum_axes, sum_keepdims => "Sum", "sum";
        mean, mean_axes, mean_keepdims => "Mean", "mean";
        max, max_axes, max_keepdims => "Max", "maximum";
        min, min_axes, min_keepdims => "Min", "minimum";
        prod, prod_axes, prod_keepdims => "Prod", "product";
    }

    /// All axes, for reductions.
    #[track_caller]
    fn all_axes(&self) -> Output<i32> {
        let g = self.graph();
        match self.shape().rank() {
            Some(rank) => g.constant((0..rank as i32).collect::<Vec<i32>>()),
            None => {
                let rank: Output<i32> = NewOp::new(g, "Rank").input(self).output();
                NewOp::new(g, "Range").input(0i32).input(&rank).input(1i32).output()
            }
        }
    }

    /// The product of matrices: of the last two dimensions, with the others broadcast.
    #[track_caller]
    #[must_use]
    pub fn matmul(&self, other: impl Operand<T>) -> Output<T> {
        let op = match self.shape().rank() {
            Some(2) => "MatMul",
            _ => "BatchMatMulV2",
        };
        NewOp::new(self.graph(), op).input(self).input(other).output()
    }

    /// This plus a vector along the last axis.
    #[track_caller]
    #[must_use]
    pub fn bias_add(&self, bias: impl Operand<T>) -> Output<T> {
        NewOp::new(self.graph(), "BiasAdd").input(self).input(bias).output()
    }

    /// Softmax cross entropy with class indices: one value for each of them. The last axis has the
    /// classes; further axes are flattened, and so are those of `labels`.
    #[track_caller]
    #[must_use]
    pub fn softmax_cross_entropy<L: TensorType>(&self, labels: impl Operand<L>) -> Output<T> {
        let g = self.graph();
        let op = "SparseSoftmaxCrossEntropyWithLogits";
        if self.shape().rank() == Some(2) {
            return NewOp::new(g, op).input(self).input(labels).output();
        }
        let classes = self.shape().dims().and_then(|dims| dims.last().copied().flatten());
        let rows = self.reshape([-1, classes.map_or(-1, |classes| classes as i32)]);
        let labels: Output<L> = NewOp::new(g, "Reshape").input(labels).input([-1i32]).output();
        NewOp::new(g, op).input(&rows).input(&labels).output()
    }

    /// The elements in another shape; one size may be -1, which the others determine.
    #[track_caller]
    #[must_use]
    pub fn reshape<I: TensorType>(&self, shape: impl Operand<I>) -> Output<T> {
        NewOp::new(self.graph(), "Reshape").input(self).input(shape).output()
    }

    /// The dimensions in another order.
    #[track_caller]
    #[must_use]
    pub fn transpose<I: TensorType>(&self, order: impl Operand<I>) -> Output<T> {
        NewOp::new(self.graph(), "Transpose").input(self).input(order).output()
    }

    /// Inserts a dimension of size 1.
    #[track_caller]
    #[must_use]
    pub fn expand_dims<I: TensorType>(&self, axis: impl Operand<I>) -> Output<T> {
        NewOp::new(self.graph(), "ExpandDims").input(self).input(axis).output()
    }

    /// Removes dimensions of size 1: these, or all if none are named.
    #[track_caller]
    #[must_use]
    pub fn squeeze(&self, axes: &[i64]) -> Output<T> {
        NewOp::new(self.graph(), "Squeeze").input(self).attr("squeeze_dims", axes).output()
    }

    /// Repeats the tensor along each dimension.
    #[track_caller]
    #[must_use]
    pub fn tile<I: TensorType>(&self, multiples: impl Operand<I>) -> Output<T> {
        NewOp::new(self.graph(), "Tile").input(self).input(multiples).output()
    }

    /// The elements as another type.
    #[track_caller]
    #[must_use]
    pub fn cast<U: TensorType>(&self) -> Output<U> {
        let op = NewOp::new(self.graph(), "Cast").input(self);
        match U::DTYPE {
            Some(dtype) => op.attr("DstT", dtype).output(),
            None => op.output(),
        }
    }

    /// Rows of the first axis.
    #[track_caller]
    #[must_use]
    pub fn gather<I: TensorType>(&self, indices: impl Operand<I>) -> Output<T> {
        NewOp::new(self.graph(), "GatherV2").input(self).input(indices).input(0i32).output()
    }

    /// The position of the largest element along an axis.
    #[track_caller]
    #[must_use]
    pub fn argmax<I: TensorType>(&self, axis: impl Operand<I>) -> Output<i64> {
        let op = NewOp::new(self.graph(), "ArgMax").input(self).input(axis);
        op.attr("output_type", DType::Int64).output()
    }

    /// Elements below `low` become `low`, those above `high` become `high`.
    #[track_caller]
    #[must_use]
    pub fn clip(&self, low: impl Operand<T>, high: impl Operand<T>) -> Output<T> {
        NewOp::new(self.graph(), "ClipByValue").input(self).input(low).input(high).output()
    }

    /// The shape as a tensor.
    #[track_caller]
    #[must_use]
    pub fn shape_tensor(&self) -> Output<i32> {
        NewOp::new(self.graph(), "Shape").input(self).output()
    }
}

impl Output<bool> {
    /// Whether this is false.
    #[track_caller]
    #[must_use]
    pub fn logical_not(&self) -> Output<bool> {
        NewOp::new(self.graph(), "LogicalNot").input(self).output()
    }

    /// Whether both are true.
    #[track_caller]
    #[must_use]
    pub fn logical_and(&self, other: impl Operand<bool>) -> Output<bool> {
        NewOp::new(self.graph(), "LogicalAnd").input(self).input(other).output()
    }

    /// Whether either is true.
    #[track_caller]
    #[must_use]
    pub fn logical_or(&self, other: impl Operand<bool>) -> Output<bool> {
        NewOp::new(self.graph(), "LogicalOr").input(self).input(other).output()
    }

    /// Elements of `yes` where this is true, of `no` elsewhere.
    #[track_caller]
    #[must_use]
    pub fn select<U: TensorType>(&self, yes: impl Operand<U>, no: impl Operand<U>) -> Output<U> {
        NewOp::new(self.graph(), "SelectV2").input(self).input(yes).input(no).output()
    }

    /// Whether all elements are true.
    #[track_caller]
    #[must_use]
    pub fn all(&self) -> Output<bool> {
        let axes = self.all_axes();
        NewOp::new(self.graph(), "All").input(self).input(&axes).output()
    }

    /// Whether any element is true.
    #[track_caller]
    #[must_use]
    pub fn any_true(&self) -> Output<bool> {
        let axes = self.all_axes();
        NewOp::new(self.graph(), "Any").input(self).input(&axes).output()
    }
}

impl<T: TensorType> Variable<T> {
    /// Rows of the first axis, read without the others; the gradient has these rows only.
    #[track_caller]
    #[must_use]
    pub fn gather_rows<I: TensorType>(&self, indices: &Output<I>) -> Output<T> {
        let op = NewOp::new(indices.graph(), "ResourceGather").input(self.handle()).input(indices);
        match T::DTYPE {
            Some(dtype) => op.attr("dtype", dtype).output(),
            None => op.output(),
        }
    }
}

/// Tensors joined along an existing axis.
#[track_caller]
pub fn concat<T: TensorType>(tensors: &[&Output<T>], axis: impl Operand<i32>) -> Output<T> {
    joined("ConcatV2", tensors).input(axis).output()
}

/// Tensors joined along a new axis.
#[track_caller]
pub fn stack<T: TensorType>(tensors: &[&Output<T>], axis: i64) -> Output<T> {
    joined("Pack", tensors).attr("axis", axis).output()
}

/// # Panics
/// If there are no tensors: then there is no graph to add a node to.
#[track_caller]
fn joined<'a, T: TensorType>(op: &'a str, tensors: &[&Output<T>]) -> NewOp<'a> {
    let first = tensors.first().expect("at least one tensor must be given to join");
    let mut op = NewOp::new(first.graph(), op);
    for tensor in tensors {
        op = op.input(*tensor);
    }
    op
}

impl Graph {
    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.filled(shape, 0.0)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.filled(shape, 1.0)
    }

    #[track_caller]
    fn filled<T: TensorType>(&self, shape: impl Operand<i32>, value: f64) -> Output<T> {
        let number = self.build(|scope| scope.number(T::DTYPE.unwrap_or(DType::Float), value));
        let number: Output<T> = Output::new(self.clone(), number);
        NewOp::new(self, "Fill").input(shape).input(&number).output()
    }

    /// A tensor of one value.
    #[track_caller]
    pub fn fill<T: TensorType>(
        &self,
        shape: impl Operand<i32>,
        value: impl Operand<T>,
    ) -> Output<T> {
        NewOp::new(self, "Fill").input(shape).input(value).output()
    }

    /// The numbers from `start` up to but without `limit`.
    #[track_caller]
    pub fn range<T: TensorType>(
        &self,
        start: impl Operand<T>,
        limit: impl Operand<T>,
        step: impl Operand<T>,
    ) -> Output<T> {
        NewOp::new(self, "Range").input(start).input(limit).input(step).output()
    }

    /// Random numbers, uniform in `[0, 1)`, new in each step.
    #[track_caller]
    pub fn random_uniform<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.random("RandomUniform", shape)
    }

    /// Random numbers of the standard normal distribution, new in each step.
    #[track_caller]
    pub fn random_normal<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.random("RandomStandardNormal", shape)
    }

    #[track_caller]
    fn random<T: TensorType>(&self, op: &str, shape: impl Operand<i32>) -> Output<T> {
        let (seed, seed2) = self.next_seeds();
        let op = NewOp::new(self, op).input(shape).attr("seed", seed).attr("seed2", seed2);
        op.attr("dtype", T::DTYPE.unwrap_or(DType::Float)).output()
    }
}
