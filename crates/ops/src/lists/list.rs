//! The `TensorList` variant: tensors of one dtype and compatible shapes, possibly uninitialized.
//!
//! Edges carry a list by reference. A kernel with the only reference changes the list in place;
//! otherwise it copies the element handles first.

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

/// TensorFlow's type name of the variant.
const LIST_TYPE: &str = "tensorflow::TensorList";

/// A tensor list.
#[derive(Debug)]
pub(crate) struct TensorList {
    /// `None` is an uninitialized element.
    elements: Vec<Option<Tensor>>,
    /// Dtype of all elements.
    pub(crate) dtype: DType,
    /// The common shape of the elements, as far as known.
    pub(crate) shape: PartialShape,
    /// Maximum length (`max_num_elements`); unlimited if negative.
    pub(crate) elements_max: i64,
    /// Nesting depth of variants in the elements.
    depth: usize,
    /// Charge for the capacity of `elements`; the tensors carry their own charges.
    charge: Option<Charge>,
}

impl TensorList {
    /// An empty list.
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

    /// Truncates the list or appends uninitialized elements, so that it has `len` elements.
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

    /// A copy of the list that shares the elements, with capacity for `more`.
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

    /// Reserves capacity for `more` elements; doubles it, so that repeated pushes take linear time.
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

    /// Charges a tensor that becomes an element, unless it is charged already, and checks its
    /// nesting depth.
    fn admit(&mut self, element: Option<&Tensor>, budget: &Arc<Budget>) -> Result<()> {
        if let Some(tensor) = element {
            tensor.ensure_charged(budget)?;
        }
        self.note_depth(element)
    }

    /// Bounds the nesting depth of lists: dropping them recurses.
    fn note_depth(&mut self, element: Option<&Tensor>) -> Result<()> {
        if let Some(tensor) = element.filter(|_| self.dtype == DType::Variant) {
            self.depth = self.depth.max(check_nesting(tensor)?);
        }
        Ok(())
    }

    /// `shape` merged with the shapes of the initialized elements among `of`.
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

    /// A scalar variant that holds the list.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![self.into_variant()])
    }

    /// The list in a variant, which may have been decoded from another process; `where_from` is for
    /// error messages.
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

    /// Decodes the encoding of [`Variant::encode`], which is TensorFlow's: indices of uninitialized
    /// elements, dtype, maximum length, shape; then the initialized elements.
    fn decode(mut metadata: Bytes, tensors: Vec<Tensor>) -> Option<TensorList> {
        let mut next = || prost::encoding::decode_varint(&mut metadata).ok();
        let unset_count = usize::try_from(next()?).ok()?;
        let mut unset = SmallVec::<[u64; 8]>::new();
        for _ in 0..unset_count {
            // An index takes at least a byte of metadata, so their number is bounded by the
            // message's length.
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

/// The element of a scalar variant tensor.
fn single(tensor: &Tensor) -> Result<&VariantValue> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "Input list must be a scalar saw: {}",
        tensor.shape()
    );
    tensor.variants()?.first().ok_or_else(|| err!(Internal, "a scalar has one element"))
}

/// A list taken from an input to be changed, with the tensor that it was in, for reuse.
pub(crate) struct Taken {
    list: Arc<TensorList>,
    container: Option<Tensor>,
}

impl Taken {
    /// Takes the list in input `i` out of the context.
    pub(crate) fn input(ctx: &mut KernelContext<'_>, i: usize) -> Result<Taken> {
        let mut tensor = ctx.take_input(i)?;
        let list = TensorList::of(single(&tensor)?, "the input handle")?;
        if !tensor.is_unique() {
            return Ok(Taken { list, container: None });
        }
        if let [slot] = tensor.variants_mut()? {
            *slot = None;
        }
        Ok(Taken { list, container: Some(tensor) })
    }

    /// The list for reading.
    pub(crate) fn list(&self) -> &TensorList {
        &self.list
    }

    /// The list for writing: in place if it is not shared, else a copy with capacity for `more`.
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

    /// A scalar variant that holds the list.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let Some(mut container) = self.container else {
            return Tensor::from_variants(Shape::scalar(), vec![Some(self.list)]);
        };
        if let [slot] = container.variants_mut()? {
            *slot = Some(self.list);
        }
        Ok(container)
    }
}

/// The shape in input `i`: a vector in which -1 is unknown, or the scalar -1 for an unknown rank.
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

/// The element shape from input `i` merged with the list's.
pub(crate) fn element_shape(
    ctx: &KernelContext<'_>,
    list: &TensorList,
    i: usize,
) -> Result<PartialShape> {
    shape_input(ctx, i)?.merge(&list.shape)
}

/// Checks that the list has the op's dtype.
pub(crate) fn check_dtype(list: &TensorList, dtype: DType) -> Result<()> {
    ensure!(
        list.dtype == dtype,
        InvalidArgument,
        "Invalid data types; op elements {dtype} but list elements {}",
        list.dtype
    );
    Ok(())
}

/// Checks that an element's shape is compatible with the list's.
pub(crate) fn check_element(list: &TensorList, shape: &Shape) -> Result<()> {
    ensure!(
        list.shape.is_compatible_with(shape),
        InvalidArgument,
        "a tensor of shape {shape} cannot be in a list of tensors of shape {}",
        list.shape
    );
    Ok(())
}
