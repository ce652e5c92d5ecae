//! Methods of tensors: the usual ops under the field's names.

use crate::dtype::{TensorType, known_dtype};
use crate::graph::Graph;
use crate::node::NewOp;
use crate::operand::Operand;
use crate::output::Output;
use crate::tf;
use crate::variable::Variable;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)+) => { $(
        $(#[$doc])*
        #[track_caller]
        #[must_use]
        pub fn $name(&self) -> Output<T> {
            tf::$op(self)
        }
    )+ };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident -> $t:ty;)+) => { $(
        $(#[$doc])*
        #[track_caller]
        #[must_use]
        pub fn $name(&self, other: impl Operand<T>) -> Output<$t> {
            tf::$op(self, other)
        }
    )+ };
}

macro_rules! reductions {
    ($($name:ident, $over:ident, $keeping:ident => $function:ident, $op:ident, $what:literal;)+) => { $(
        #[doc = concat!("The ", $what, " of all elements: a scalar.")]
        #[track_caller]
        #[must_use]
        pub fn $name(&self) -> Output<T> {
            tf::$function(self, &self.all_axes())
        }

        #[doc = concat!("The ", $what, " over these axes, which are removed.")]
        #[track_caller]
        #[must_use]
        pub fn $over<I: TensorType>(&self, axes: impl Operand<I>) -> Output<T> {
            tf::$function(self, axes)
        }

        #[doc = concat!("The ", $what, " over these axes, which keep the size 1.")]
        #[track_caller]
        #[must_use]
        pub fn $keeping<I: TensorType>(&self, axes: impl Operand<I>) -> Output<T> {
            tf::$op::new().keep_dims(true).build(self, axes)
        }
    )+ };
}

impl<T: TensorType> Output<T> {
    unary! {
        /// The absolute value.
        abs => abs;
        /// `e` to the power of each element.
        exp => exp;
        /// The natural logarithm.
        log => log;
        /// The natural logarithm of 1 plus each element.
        log1p => log1p;
        /// The square root.
        sqrt => sqrt;
        /// One divided by the square root.
        rsqrt => rsqrt;
        /// The square.
        square => square;
        /// One divided by each element.
        reciprocal => reciprocal;
        /// The sine.
        sin => sin;
        /// The cosine.
        cos => cos;
        /// The hyperbolic tangent.
        tanh => tanh;
        /// The error function.
        erf => erf;
        /// The logistic function.
        sigmoid => sigmoid;
        /// The rectified linear unit: `max(x, 0)`.
        relu => relu;
        /// The rectified linear unit up to 6.
        relu6 => relu6;
        /// The exponential linear unit.
        elu => elu;
        /// The scaled exponential linear unit.
        selu => selu;
        /// `log(1 + exp(x))`.
        softplus => softplus;
        /// Softmax over the last axis.
        softmax => softmax;
        /// The logarithm of the softmax over the last axis.
        log_softmax => log_softmax;
        /// Rounds down.
        floor => floor;
        /// Rounds up.
        ceil => ceil;
        /// Rounds to the nearest integer, halves to even.
        round => round;
        /// -1, 0 or 1.
        sign => sign;
        /// Zeros of the same shape.
        zeros_like => zeros_like;
        /// Ones of the same shape.
        ones_like => ones_like;
        /// The same value, through which no gradient passes.
        stop_gradient => stop_gradient;
        /// Half the sum of squares.
        l2_loss => l2_loss;
    }

    binary! {
        /// This to the power of `other`.
        pow => pow -> T;
        /// The larger of both.
        maximum => maximum -> T;
        /// The smaller of both.
        minimum => minimum -> T;
        /// The quotient, rounded down.
        floor_div => floor_div -> T;
        /// The remainder with the sign of `other`.
        floor_mod => floor_mod -> T;
        /// The square of the difference.
        squared_difference => squared_difference -> T;
        /// Whether this is less.
        less => less -> bool;
        /// Whether this is less or equal.
        less_equal => less_equal -> bool;
        /// Whether this is greater.
        greater => greater -> bool;
        /// Whether this is greater or equal.
        greater_equal => greater_equal -> bool;
        /// Whether both are equal.
        equal => equal -> bool;
        /// Whether both differ.
        not_equal => not_equal -> bool;
    }

    reductions! {
        sum, sum_axes, sum_keepdims => sum, Sum, "sum";
        mean, mean_axes, mean_keepdims => mean, Mean, "mean";
        max, max_axes, max_keepdims => max, Max, "maximum";
        min, min_axes, min_keepdims => min, Min, "minimum";
        prod, prod_axes, prod_keepdims => prod, Prod, "product";
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
        match self.shape().rank() {
            Some(2) => tf::mat_mul(self, other),
            _ => tf::batch_mat_mul_v2(self, other),
        }
    }

    /// This plus a vector along the last axis.
    #[track_caller]
    #[must_use]
    pub fn bias_add(&self, bias: impl Operand<T>) -> Output<T> {
        tf::bias_add(self, bias)
    }

    /// Softmax cross entropy with class indices: one value for each of them. The last axis has the
    /// classes; further axes are flattened, and so are those of `labels`.
    #[track_caller]
    #[must_use]
    pub fn softmax_cross_entropy<L: TensorType>(&self, labels: impl Operand<L>) -> Output<T> {
        if self.shape().rank() == Some(2) {
            return tf::sparse_softmax_cross_entropy_with_logits(self, labels).0;
        }
        let classes = self.shape().dims().and_then(|dims| dims.last().copied().flatten());
        let rows = self.reshape([-1, classes.map_or(-1, |classes| classes as i32)]);
        let flat = NewOp::new(self.graph(), "Reshape").input(labels).input([-1i32]);
        tf::sparse_softmax_cross_entropy_with_logits(&rows, flat.output::<L>()).0
    }

    /// The elements in another shape; one size may be -1, which the others determine.
    #[track_caller]
    #[must_use]
    pub fn reshape<I: TensorType>(&self, shape: impl Operand<I>) -> Output<T> {
        tf::reshape(self, shape)
    }

    /// The dimensions in another order.
    #[track_caller]
    #[must_use]
    pub fn transpose<I: TensorType>(&self, order: impl Operand<I>) -> Output<T> {
        tf::transpose(self, order)
    }

    /// Inserts a dimension of size 1.
    #[track_caller]
    #[must_use]
    pub fn expand_dims<I: TensorType>(&self, axis: impl Operand<I>) -> Output<T> {
        tf::expand_dims(self, axis)
    }

    /// Removes dimensions of size 1: these, or all if none are named.
    #[track_caller]
    #[must_use]
    pub fn squeeze(&self, axes: &[i64]) -> Output<T> {
        tf::Squeeze::new().squeeze_dims(axes).build(self)
    }

    /// Repeats the tensor along each dimension.
    #[track_caller]
    #[must_use]
    pub fn tile<I: TensorType>(&self, multiples: impl Operand<I>) -> Output<T> {
        tf::tile(self, multiples)
    }

    /// The elements as another type.
    #[track_caller]
    #[must_use]
    pub fn cast<U: TensorType>(&self) -> Output<U> {
        tf::cast(self)
    }

    /// Rows of the first axis.
    #[track_caller]
    #[must_use]
    pub fn gather<I: TensorType>(&self, indices: impl Operand<I>) -> Output<T> {
        tf::gather_v2(self, indices, 0i32)
    }

    /// The position of the largest element along an axis.
    #[track_caller]
    #[must_use]
    pub fn argmax<I: TensorType>(&self, axis: impl Operand<I>) -> Output<i64> {
        tf::arg_max(self, axis)
    }

    /// Elements below `low` become `low`, those above `high` become `high`.
    #[track_caller]
    #[must_use]
    pub fn clip(&self, low: impl Operand<T>, high: impl Operand<T>) -> Output<T> {
        tf::clip_by_value(self, low, high)
    }

    /// The shape as a tensor.
    #[track_caller]
    #[must_use]
    pub fn shape_tensor(&self) -> Output<i32> {
        tf::shape(self)
    }
}

impl Output<bool> {
    /// Whether this is false.
    #[track_caller]
    #[must_use]
    pub fn logical_not(&self) -> Output<bool> {
        tf::logical_not(self)
    }

    /// Whether both are true.
    #[track_caller]
    #[must_use]
    pub fn logical_and(&self, other: impl Operand<bool>) -> Output<bool> {
        tf::logical_and(self, other)
    }

    /// Whether either is true.
    #[track_caller]
    #[must_use]
    pub fn logical_or(&self, other: impl Operand<bool>) -> Output<bool> {
        tf::logical_or(self, other)
    }

    /// Elements of `yes` where this is true, of `no` elsewhere.
    #[track_caller]
    #[must_use]
    pub fn select<U: TensorType>(&self, yes: impl Operand<U>, no: impl Operand<U>) -> Output<U> {
        tf::select_v2(self, yes, no)
    }

    /// Whether all elements are true.
    #[track_caller]
    #[must_use]
    pub fn all(&self) -> Output<bool> {
        tf::all(self, self.all_axes())
    }

    /// Whether any element is true.
    #[track_caller]
    #[must_use]
    pub fn any_true(&self) -> Output<bool> {
        tf::any(self, self.all_axes())
    }
}

impl<T: TensorType> Variable<T> {
    /// Rows of the first axis, read without the others; the gradient has these rows only.
    #[track_caller]
    #[must_use]
    pub fn gather_rows<I: TensorType>(&self, indices: &Output<I>) -> Output<T> {
        tf::resource_gather(self.handle().within(indices.graph()), indices)
    }
}

impl Graph {
    /// Tensors joined along an existing axis.
    #[track_caller]
    pub fn concat<T: TensorType>(
        &self,
        tensors: &[&Output<T>],
        axis: impl Operand<i32>,
    ) -> Output<T> {
        self.joined("ConcatV2", tensors).input(axis).output()
    }

    /// Tensors joined along a new axis.
    #[track_caller]
    pub fn stack<T: TensorType>(&self, tensors: &[&Output<T>], axis: i64) -> Output<T> {
        self.joined("Pack", tensors).attr("axis", axis).output()
    }

    #[track_caller]
    fn joined<'a, T: TensorType>(&self, op: &'a str, tensors: &[&Output<T>]) -> NewOp<'a> {
        let op = NewOp::new(self, op).attr("N", tensors.len() as i64);
        tensors.iter().fold(op, |op, tensor| op.input(*tensor))
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.filled("zeros", shape, 0.0)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.filled("ones", shape, 1.0)
    }

    #[track_caller]
    fn filled<T: TensorType>(
        &self,
        function: &str,
        shape: impl Operand<i32>,
        value: f64,
    ) -> Output<T> {
        let number = self.build(|scope| scope.number(known_dtype::<T>(function)?, value));
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
        self.random("random_uniform", "RandomUniform", shape)
    }

    /// Random numbers of the standard normal distribution, new in each step.
    #[track_caller]
    pub fn random_normal<T: TensorType>(&self, shape: impl Operand<i32>) -> Output<T> {
        self.random("random_normal", "RandomStandardNormal", shape)
    }

    #[track_caller]
    fn random<T: TensorType>(
        &self,
        function: &str,
        op: &str,
        shape: impl Operand<i32>,
    ) -> Output<T> {
        let Some(dtype) = self.build(|_| known_dtype::<T>(function)) else {
            return Output::poisoned(self);
        };
        let (seed, seed2) = self.next_seeds();
        let op = NewOp::new(self, op).input(shape).attr("seed", seed).attr("seed2", seed2);
        op.attr("dtype", dtype).output()
    }
}
