//! The `TensorList` variant: tensors of one dtype and compatible shapes, possibly uninitialized.
//!
//! Edges carry a list by reference. A kernel that holds the only reference changes it in place; any
//! other copies the element handles first.

use std::any::Any;
use std::sync::Arc;

use prost::Message;
use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_proto::TensorShapeProto;
use thalweg_tensor::{
    Budget, Bytes, Charge, DType, PartialShape, Result, Shape, Tensor, Variant, VariantValue, bail,
    check_nesting, ensure, err,
};

/// TensorFlow's name for the value.
const LIST_TYPE: &str = "tensorflow::TensorList";

/// A tensor list.
#[derive(Debug)]
pub(crate) struct TensorList {
    /// `None` is an element that was never set.
    elements: Vec<Option<Tensor>>,
    /// Dtype of all elements.
    pub(crate) dtype: DType,
    /// What the elements' shapes have in common.
    pub(crate) shape: PartialShape,
    /// Pushing stops at this length; none if negative.
    pub(crate) elements_max: i64,
    /// Levels of variants in the elements.
    depth: usize,
    /// Pays for the capacity of `elements`; the tensors are charged for themselves.
    charge: Option<Charge>,
}

impl TensorList {
    /// A list without elements.
    pub(crate) fn new(dtype: DType, shape: PartialShape) -> TensorList {
        let (elements, elements_max) = (Vec::new(), -1);
        TensorList { elements, dtype, shape, elements_max, depth: 0, charge: None }
    }

    /// The elements.
    pub(crate) fn elements(&self) -> &[Option<Tensor>] {
        &self.elements
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    /// Appends an element.
    pub(crate) fn push(&mut self, element: Option<Tensor>, budget: &Arc<Budget>) -> Result<()> {
        self.admit(element.as_ref(), budget)?;
        self.reserve(1, budget)?;
        self.elements.push(element);
        Ok(())
    }

    /// Removes the last element.
    pub(crate) fn pop(&mut self) -> Option<Option<Tensor>> {
        self.elements.pop()
    }

    /// Sets element `i`, which must exist.
    pub(crate) fn set(
        &mut self,
        i: usize,
        element: Option<Tensor>,
        budget: &Arc<Budget>,
    ) -> Result<()> {
        self.admit(element.as_ref(), budget)?;
        let len = self.elements.len();
        let slot = self
            .elements
            .get_mut(i)
            .ok_or_else(|| err!(InvalidArgument, "element {i} of a list with {len} elements"))?;
        *slot = element;
        Ok(())
    }

    /// Cuts the list off or fills it up, so that it has `len` elements.
    pub(crate) fn resize(
        &mut self,
        len: usize,
        filler: Option<&Tensor>,
        budget: &Arc<Budget>,
    ) -> Result<()> {
        self.reserve(len.saturating_sub(self.len()), budget)?;
        self.admit(filler, budget)?;
        self.elements.resize(len, filler.cloned());
        Ok(())
    }

    /// A list of the same elements that can be changed on its own, with room for `more`.
    pub(crate) fn copy(&self, more: usize, budget: &Arc<Budget>) -> Result<TensorList> {
        let mut copy = TensorList {
            elements_max: self.elements_max,
            depth: self.depth,
            ..TensorList::new(self.dtype, self.shape.clone())
        };
        copy.reserve(self.len().saturating_add(more), budget)?;
        copy.elements.extend_from_slice(&self.elements);
        Ok(copy)
    }

    /// Makes room for `more` elements; doubles what there is, so that pushing stays linear.
    fn reserve(&mut self, more: usize, budget: &Arc<Budget>) -> Result<()> {
        let needed = self.len().saturating_add(more);
        if needed <= self.elements.capacity() {
            return Ok(());
        }
        let capacity = needed.max(self.elements.capacity().saturating_mul(2));
        let bytes = capacity.saturating_mul(size_of::<Option<Tensor>>());
        let charge = Charge::new(budget, bytes)?;
        self.elements
            .try_reserve_exact(capacity - self.len())
            .map_err(|_| err!(ResourceExhausted, "out of memory for {bytes} bytes"))?;
        self.charge = Some(charge);
        Ok(())
    }

    /// Charges a tensor that becomes an element, unless it is charged already, and checks its nesting.
    fn admit(&mut self, element: Option<&Tensor>, budget: &Arc<Budget>) -> Result<()> {
        if let Some(tensor) = element {
            tensor.ensure_charged(budget)?;
        }
        self.note_depth(element)
    }

    /// Bounds the nesting of lists: dropping them recurses.
    fn note_depth(&mut self, element: Option<&Tensor>) -> Result<()> {
        if let Some(tensor) = element.filter(|_| self.dtype == DType::Variant) {
            self.depth = self.depth.max(check_nesting(tensor)?);
        }
        Ok(())
    }

    /// `shape` as far as the set elements among `of` tell it.
    pub(crate) fn merged_shape<'a>(
        mut shape: PartialShape,
        of: impl IntoIterator<Item = &'a Option<Tensor>>,
    ) -> Result<PartialShape> {
        for tensor in of.into_iter().flatten() {
            if !shape.is_compatible_with(tensor.shape()) || shape.to_shape().is_none() {
                shape = shape.merge(&PartialShape::from(tensor.shape()))?;
            }
        }
        Ok(shape)
    }

    /// A variant that holds the list.
    pub(crate) fn into_variant(self) -> VariantValue {
        Some(Arc::new(self))
    }

    /// A scalar that holds the list.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![self.into_variant()])
    }

    /// The list in a variant, which may have come from another process; `where_from` is for the
    /// message.
    pub(crate) fn of(value: &VariantValue, where_from: &str) -> Result<Arc<TensorList>> {
        let Some(value) = value.as_ref().filter(|v| v.type_name() == LIST_TYPE) else {
            bail!(InvalidArgument, "{where_from} is not a list, but holds {value:?}");
        };
        let any: Arc<dyn Any + Send + Sync> = value.clone();
        match any.downcast() {
            Ok(list) => Ok(list),
            Err(_) => match value.encode().and_then(|(m, t)| TensorList::decode(m, t)) {
                Some(list) => Ok(Arc::new(list)),
                None => bail!(InvalidArgument, "{where_from} is not a list that can be read"),
            },
        }
    }

    /// The list in input `i`.
    pub(crate) fn input(ctx: &KernelContext<'_>, i: usize) -> Result<Arc<TensorList>> {
        TensorList::of(single(ctx.input(i)?)?, "the input handle")
    }

    /// Reads what [`Variant::encode`] wrote, here or in TensorFlow: indices of elements that are
    /// not set, dtype, greatest length, shape; then the elements that are set.
    fn decode(mut metadata: Bytes, tensors: Vec<Tensor>) -> Option<TensorList> {
        let mut next = || prost::encoding::decode_varint(&mut metadata).ok();
        let unset_count = usize::try_from(next()?).ok()?;
        let mut unset = SmallVec::<[u64; 8]>::new();
        for _ in 0..unset_count {
            // An index takes a byte of metadata, so no count can outgrow the message.
            unset.push(next()?);
        }
        let dtype = DType::from_proto(i32::try_from(next()?).ok()?).ok()?;
        let elements_max = next()?.cast_signed();
        let shape = TensorShapeProto::decode(metadata).ok()?;
        let mut list = TensorList::new(dtype, PartialShape::from_proto(&shape).ok()?);
        list.elements_max = elements_max;
        let mut unset = unset.into_iter().peekable();
        let mut tensors = tensors.into_iter().peekable();
        while unset.peek().is_some() || tensors.peek().is_some() {
            let is_unset = unset.next_if_eq(&(list.len() as u64)).is_some();
            let element = if is_unset { None } else { Some(tensors.next()?) };
            if element.as_ref().is_some_and(|t| t.dtype() != dtype) {
                return None;
            }
            list.note_depth(element.as_ref()).ok()?;
            list.elements.push(element);
        }
        Some(list)
    }
}

impl Variant for TensorList {
    fn type_name(&self) -> &str {
        LIST_TYPE
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        let unset = || self.elements.iter().enumerate().filter(|e| e.1.is_none()).map(|e| e.0);
        let mut metadata = Vec::new();
        let mut put = |value: u64| prost::encoding::encode_varint(value, &mut metadata);
        put(unset().count() as u64);
        unset().for_each(|i| put(i as u64));
        put(u64::try_from(self.dtype.to_proto()).ok()?);
        put(self.elements_max.cast_unsigned());
        metadata.extend(self.shape.to_proto().encode_to_vec());
        Some((metadata.into(), self.elements.iter().flatten().cloned().collect()))
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

/// The only element of a tensor that holds one list.
fn single(tensor: &Tensor) -> Result<&VariantValue> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "Input list must be a scalar saw: {}",
        tensor.shape()
    );
    tensor.variants()?.first().ok_or_else(|| err!(Internal, "a scalar has one element"))
}

/// A list that a kernel is to change, and the tensor that it came in if that can be used again.
pub(crate) struct Taken {
    list: Arc<TensorList>,
    shell: Option<Tensor>,
}

impl Taken {
    /// The list in input `i`, which is gone from the context.
    pub(crate) fn input(ctx: &mut KernelContext<'_>, i: usize) -> Result<Taken> {
        let mut tensor = ctx.take_input(i)?;
        let list = TensorList::of(single(&tensor)?, "the input handle")?;
        if !tensor.is_unique() {
            return Ok(Taken { list, shell: None });
        }
        if let [slot] = tensor.variants_mut()? {
            *slot = None;
        }
        Ok(Taken { list, shell: Some(tensor) })
    }

    /// The list for reading.
    pub(crate) fn list(&self) -> &TensorList {
        &self.list
    }

    /// The list for writing: this one if nobody else has it, else a copy with room for `more`.
    pub(crate) fn writable(
        &mut self,
        more: usize,
        budget: &Arc<Budget>,
    ) -> Result<&mut TensorList> {
        if Arc::get_mut(&mut self.list).is_none() {
            self.list = Arc::new(self.list.copy(more, budget)?);
        }
        Arc::get_mut(&mut self.list).ok_or_else(|| err!(Internal, "a new list has one holder"))
    }

    /// A scalar that holds the list.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let Some(mut shell) = self.shell else {
            return Tensor::from_variants(Shape::scalar(), vec![Some(self.list)]);
        };
        if let [slot] = shell.variants_mut()? {
            *slot = Some(self.list);
        }
        Ok(shell)
    }
}

/// The shape that input `i` tells, a vector in which -1 is unknown, or the scalar -1 for a shape of
/// which nothing is known.
pub(crate) fn shape_input(ctx: &KernelContext<'_>, i: usize) -> Result<PartialShape> {
    let dims = ctx.ints(i, "element_shape")?;
    match (ctx.input(i)?.rank(), &dims[..]) {
        (0, [-1]) => Ok(PartialShape::unknown()),
        (0, _) => bail!(InvalidArgument, "The only valid fully unknown shape scalar is -1"),
        (1, dims) => {
            let known: SmallVec<[i64; 4]> = dims.iter().copied().filter(|&d| d != -1).collect();
            Shape::from_i64(&known)?;
            ensure!(dims.len() <= thalweg_tensor::RANK_MAX, InvalidArgument, "too many dimensions");
            Ok(PartialShape::new(dims.iter().map(|&d| usize::try_from(d).ok())))
        }
        (rank, _) => bail!(InvalidArgument, "Shape must be at most rank 1 but is rank {rank}"),
    }
}

/// What input `i` and the list itself tell of the elements' shape.
pub(crate) fn element_shape(
    ctx: &KernelContext<'_>,
    list: &TensorList,
    i: usize,
) -> Result<PartialShape> {
    shape_input(ctx, i)?.merge(&list.shape)
}

/// Refuses a list of another dtype than the op's.
pub(crate) fn check_dtype(list: &TensorList, dtype: DType) -> Result<()> {
    ensure!(
        list.dtype == dtype,
        InvalidArgument,
        "Invalid data types; op elements {dtype} but list elements {}",
        list.dtype
    );
    Ok(())
}

/// Refuses an element that the list's shape does not allow.
pub(crate) fn check_element(list: &TensorList, shape: &Shape) -> Result<()> {
    ensure!(
        list.shape.is_compatible_with(shape),
        InvalidArgument,
        "a tensor of shape {shape} cannot be in a list of tensors of shape {}",
        list.shape
    );
    Ok(())
}
