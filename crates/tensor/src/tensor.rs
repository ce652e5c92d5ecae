//! Dense typed arrays that share their memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::smallvec;

use crate::buffer::{Buffer, Content, Objects, Reserved};
use crate::string::Slot;
use crate::{
    Budget, DType, DeviceMemory, Element, ResourceHandle, Result, Shape, VariantValue, bail,
    ensure, err,
};

/// A dense array of one dtype, one pointer wide. Cloning shares the memory.
#[derive(Clone)]
pub struct Tensor(pub(crate) Buffer);

const _: () = assert!(size_of::<Option<Tensor>>() == size_of::<usize>());

impl Tensor {
    /// Memory for a tensor of plain elements, charged to `budget`. The contents are unspecified
    /// numbers (`false` for bool): the caller writes every element.
    pub fn allocate(dtype: DType, shape: Shape, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        Self::allocate_with(dtype, shape, budget, dtype == DType::Bool)
    }

    /// A tensor of zeroes (empty strings, empty variants), charged to `budget`.
    pub fn zeros_in(dtype: DType, shape: Shape, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        match dtype {
            DType::String => {
                Self::filled_objects(dtype, shape, &Bytes::new(), budget, Content::Strings)
            }
            DType::Variant => Self::filled_objects(dtype, shape, &None, budget, Content::Variants),
            DType::Resource => bail!(InvalidArgument, "a resource has no zero"),
            _ => Self::allocate_with(dtype, shape, budget, true),
        }
    }

    /// Memory for a tensor of any dtype, charged to `budget`: unspecified numbers, or empty
    /// strings, handles and variants. The caller writes every element.
    pub fn blank_in(dtype: DType, shape: Shape, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        match dtype {
            DType::Resource => {
                let nowhere = ResourceHandle::default();
                Self::filled_objects(dtype, shape, &nowhere, budget, resources)
            }
            DType::String | DType::Variant => Self::zeros_in(dtype, shape, budget),
            _ => Self::allocate(dtype, shape, budget),
        }
    }

    /// A tensor of zeroes, charged to no budget.
    pub fn zeros(dtype: DType, shape: Shape) -> Result<Tensor> {
        Self::zeros_in(dtype, shape, None)
    }

    fn allocate_with(
        dtype: DType,
        shape: Shape,
        budget: Option<&Arc<Budget>>,
        zero: bool,
    ) -> Result<Tensor> {
        ensure!(!dtype.is_object(), Internal, "{dtype} elements are objects, not memory");
        let bytes = shape
            .num_elements()
            .checked_mul(dtype.size())
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| {
                err!(
                    ResourceExhausted,
                    "a {dtype} tensor of shape {shape} exceeds the address space"
                )
            })?;
        let (mut buffer, zeroed) = match Buffer::allocate(dtype, shape, bytes, budget) {
            Ok(allocated) => allocated,
            Err(e) => {
                return Err(e.map_message(|m| format!("allocating a {dtype} tensor: {m}")));
            }
        };
        if zero && !zeroed {
            let head = buffer.head_mut().expect("a new block is unique");
            // SAFETY: the block has at least `bytes` bytes of data and is not shared.
            unsafe { head.data.write_bytes(0, bytes) };
        }
        Ok(Tensor(buffer))
    }

    fn filled_objects<T: Clone + Slot>(
        dtype: DType,
        shape: Shape,
        item: &T,
        budget: Option<&Arc<Budget>>,
        wrap: fn(Objects<T>) -> Content,
    ) -> Result<Tensor> {
        let elements = shape.num_elements();
        Self::make_objects(dtype, shape, budget, wrap, |items| items.resize(elements, item.clone()))
    }

    /// A tensor of objects that `fill` appends to memory that is charged and allocated before.
    fn make_objects<T: Slot>(
        dtype: DType,
        shape: Shape,
        budget: Option<&Arc<Budget>>,
        wrap: fn(Objects<T>) -> Content,
        fill: impl FnOnce(&mut Objects<T>),
    ) -> Result<Tensor> {
        let elements = shape.num_elements();
        let slot_bytes = elements.saturating_mul(T::BYTES);
        let reserved = Reserved::slots(slot_bytes, budget)
            .map_err(|e| e.map_message(|m| format!("allocating a {dtype} tensor: {m}")))?;
        let mut items = Objects::new();
        items
            .try_reserve_exact(elements)
            .map_err(|_| err!(ResourceExhausted, "out of memory for {elements} elements"))?;
        fill(&mut items);
        Self::from_content(dtype, shape, wrap(items), reserved)
    }

    fn from_content(
        dtype: DType,
        shape: Shape,
        content: Content,
        reserved: Reserved<'_>,
    ) -> Result<Tensor> {
        Ok(Tensor(Buffer::with_content(dtype, shape, std::ptr::null_mut(), content, reserved)?))
    }

    fn from_objects<T: Slot>(
        dtype: DType,
        shape: Shape,
        items: Vec<T>,
        budget: Option<&Arc<Budget>>,
        wrap: fn(Objects<T>) -> Content,
    ) -> Result<Tensor> {
        ensure!(
            items.len() == shape.num_elements(),
            InvalidArgument,
            "{} elements do not fill shape {shape}",
            items.len()
        );
        let slot_bytes = items.len().saturating_mul(T::BYTES);
        let reserved = Reserved::slots(slot_bytes, budget)?;
        Self::from_content(dtype, shape, wrap(items.into()), reserved)
    }

    /// A string tensor of these elements, in row-major order, charged to no budget.
    pub fn from_strings(shape: Shape, items: Vec<Bytes>) -> Result<Tensor> {
        Self::from_objects(DType::String, shape, items, None, Content::Strings)
    }

    /// A string tensor of these elements, in row-major order; the elements' slots are charged to
    /// `budget`.
    pub fn from_strings_in(
        shape: Shape,
        items: Vec<Bytes>,
        budget: &Arc<Budget>,
    ) -> Result<Tensor> {
        Self::from_objects(DType::String, shape, items, Some(budget), Content::Strings)
    }

    /// A resource tensor of these handles, charged to no budget.
    pub fn from_resources(shape: Shape, items: Vec<ResourceHandle>) -> Result<Tensor> {
        Self::from_objects(DType::Resource, shape, items, None, resources)
    }

    /// A variant tensor of these values, charged to no budget.
    pub fn from_variants(shape: Shape, items: Vec<VariantValue>) -> Result<Tensor> {
        Self::from_objects(DType::Variant, shape, items, None, Content::Variants)
    }

    /// A scalar, charged to no budget.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Self::from_slice(Shape::scalar(), &[value]).expect("the system has 64 bytes")
    }

    /// A scalar string, charged to no budget.
    pub fn scalar_string(value: impl Into<Bytes>) -> Tensor {
        let content = Content::Strings(smallvec![value.into()]);
        Reserved::slots(Bytes::BYTES, None)
            .and_then(|none| Self::from_content(DType::String, Shape::scalar(), content, none))
            .expect("the system has memory for a header")
    }

    /// A vector, charged to no budget.
    pub fn vector<T: Element>(values: &[T]) -> Result<Tensor> {
        Self::from_slice(Shape::new(&[values.len()])?, values)
    }

    /// A copy of `values` in this shape, charged to no budget.
    pub fn from_slice<T: Element>(shape: Shape, values: &[T]) -> Result<Tensor> {
        ensure!(
            values.len() == shape.num_elements(),
            InvalidArgument,
            "{} elements do not fill shape {shape}",
            values.len()
        );
        let mut tensor = Self::allocate(T::DTYPE, shape, None)?;
        tensor.as_mut_slice::<T>()?.copy_from_slice(values);
        Ok(tensor)
    }

    /// Little-endian bytes viewed as a tensor: without a copy where their address is aligned for
    /// the dtype, else copied once. Bools other than 0 and 1 become 1.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: Bytes) -> Result<Tensor> {
        let expected = shape.num_elements().checked_mul(dtype.size());
        ensure!(
            expected == Some(bytes.len()) && !dtype.is_object(),
            InvalidArgument,
            "{} bytes are not a {dtype} tensor of shape {shape}",
            bytes.len()
        );
        let align = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        let is_clean = dtype != DType::Bool || bytes.iter().all(|&b| b <= 1);
        if is_clean && bytes.as_ptr().addr().is_multiple_of(align) {
            let data = bytes.as_ptr().cast_mut();
            let (content, reserved) = (Content::Bytes(bytes), Reserved::slots(0, None)?);
            return Ok(Tensor(Buffer::with_content(dtype, shape, data, content, reserved)?));
        }
        let mut tensor = Self::allocate(dtype, shape, None)?;
        let target = tensor.as_mut_bytes()?;
        target.copy_from_slice(&bytes);
        if dtype == DType::Bool {
            target.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        Ok(tensor)
    }

    /// A tensor of plain elements that `fill` writes, as little-endian bytes, from end to end. Bools
    /// other than 0 and 1 become 1. Charged to `budget`.
    pub fn filled_with(
        dtype: DType,
        shape: Shape,
        budget: Option<&Arc<Budget>>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let mut tensor = Self::allocate(dtype, shape, budget)?;
        let target = Cleaned { is_bool: dtype == DType::Bool, bytes: tensor.as_mut_bytes()? };
        fill(target.bytes)?;
        drop(target);
        Ok(tensor)
    }

    /// A tensor in memory that only `memory`'s device can read.
    pub fn from_device(
        dtype: DType,
        shape: Shape,
        memory: Arc<dyn DeviceMemory>,
    ) -> Result<Tensor> {
        ensure!(!dtype.is_object(), Internal, "{dtype} elements live on the host");
        ensure!(
            Some(memory.len_bytes()) == shape.num_elements().checked_mul(dtype.size()),
            Internal,
            "{} bytes of {} are not a {dtype} tensor of shape {shape}",
            memory.len_bytes(),
            memory.space()
        );
        Self::from_content(dtype, shape, Content::Device(memory), Reserved::slots(0, None)?)
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.head().dtype
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.0.head().shape
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.shape().num_elements()
    }

    /// Bytes of plain elements; of strings, contents and handles; of other objects, handles only.
    pub fn size_bytes(&self) -> usize {
        match self.0.content() {
            Some(Content::Strings(s)) => s.iter().map(|s| s.len() + size_of::<Bytes>()).sum(),
            Some(Content::Resources(r)) => r.len() * size_of::<ResourceHandle>(),
            Some(Content::Variants(v)) => v.len() * size_of::<VariantValue>(),
            _ => self.num_elements() * self.dtype().size(),
        }
    }

    /// The device memory that holds the elements, if host code cannot read them.
    pub fn device_memory(&self) -> Option<&Arc<dyn DeviceMemory>> {
        match self.0.content() {
            Some(Content::Device(memory)) => Some(memory),
            _ => None,
        }
    }

    /// The tensor, or a copy of it in host memory if host code cannot read it. Blocks until the device has
    /// computed the elements.
    pub fn into_host(self) -> Result<Tensor> {
        match self.device_memory() {
            Some(memory) => memory.read(),
            None => Ok(self),
        }
    }

    /// Address of the elements, if host code can read them as memory.
    #[inline]
    pub(crate) fn host_data(&self) -> Result<*mut u8> {
        let data = self.0.head().data;
        if data.is_null() { self.not_in_host_memory() } else { Ok(data) }
    }

    #[cold]
    fn not_in_host_memory(&self) -> Result<*mut u8> {
        match self.device_memory() {
            Some(memory) => {
                bail!(Internal, "host code cannot read a tensor in {}", memory.space())
            }
            None => bail!(Internal, "{} elements are objects, not memory", self.dtype()),
        }
    }

    #[cold]
    fn wrong_dtype<T>(&self, expected: DType) -> Result<T> {
        bail!(InvalidArgument, "a {} tensor is not {expected}", self.dtype())
    }

    /// The elements as bytes.
    #[inline]
    pub fn as_bytes(&self) -> Result<&[u8]> {
        let data = self.host_data()?;
        // SAFETY: the constructors made `data` point to `num_elements * size` initialised bytes;
        // no thread writes while `&self` is borrowed, since writing needs the only reference mutably.
        Ok(unsafe { std::slice::from_raw_parts(data, self.num_elements() * self.dtype().size()) })
    }

    /// The elements.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if self.dtype() != T::DTYPE {
            return self.wrong_dtype(T::DTYPE);
        }
        let data = self.host_data()?;
        // SAFETY: as in `as_bytes`; the address is aligned for the dtype, by allocation or by the
        // check in `from_bytes` (offsets are whole elements); `Element` makes the bytes `T`s.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), self.num_elements()) })
    }

    /// The elements, for writing, if no other tensor shares them.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if self.dtype() != T::DTYPE {
            return self.wrong_dtype(T::DTYPE);
        }
        let (data, n) = (self.host_data_mut()?, self.num_elements());
        // SAFETY: as in `as_slice`, and `host_data_mut` saw that this is the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), n) })
    }

    /// The elements as bytes, for writing, if no other tensor shares them: for loops that work by
    /// element size rather than by dtype.
    ///
    /// # Safety
    /// Into a bool tensor only the bytes 0 and 1 may be written.
    #[inline]
    pub unsafe fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.as_mut_bytes()
    }

    /// The elements as bytes, for writing; for bool only 0 and 1 may be written.
    #[inline]
    pub(crate) fn as_mut_bytes(&mut self) -> Result<&mut [u8]> {
        let (data, n) = (self.host_data_mut()?, self.num_elements() * self.dtype().size());
        // SAFETY: as in `as_bytes`, and `host_data_mut` saw that this is the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, n) })
    }

    #[inline]
    fn host_data_mut(&mut self) -> Result<*mut u8> {
        self.host_data()?;
        match self.0.data_mut() {
            Some(data) => Ok(data),
            None => shared(),
        }
    }

    /// Whether no other tensor shares the elements, so that they may be overwritten.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.0.is_unique()
    }

    /// Whether another tensor shares the elements. Those in the memory of a device are not
    /// [`Tensor::is_unique`] even if none does, since the host cannot write them.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Makes this tensor the only one that refers to its elements, copying them if they are shared.
    pub fn make_unique(&mut self, budget: Option<&Arc<Budget>>) -> Result<()> {
        if !self.is_unique() {
            *self = self.deep_copy(budget)?;
        }
        Ok(())
    }

    /// A copy in memory of its own. Strings and variants are shared with the copy: their contents never
    /// change.
    pub fn deep_copy(&self, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        if self.dtype().is_object() {
            return self.copy_objects(self.shape().clone(), 0..self.num_elements(), budget);
        }
        let mut copy = Self::allocate(self.dtype(), self.shape().clone(), budget)?;
        copy.as_mut_bytes()?.copy_from_slice(self.as_bytes()?);
        Ok(copy)
    }

    /// The objects in `range`, in this shape.
    pub(crate) fn copy_objects(
        &self,
        shape: Shape,
        range: Range<usize>,
        budget: Option<&Arc<Budget>>,
    ) -> Result<Tensor> {
        let dtype = self.dtype();
        match self.0.content() {
            Some(Content::Strings(s)) => {
                Self::make_objects(dtype, shape, budget, Content::Strings, |items| {
                    items.extend(s[range].iter().cloned());
                })
            }
            Some(Content::Resources(r)) => {
                Self::make_objects(dtype, shape, budget, resources, |items| {
                    items.extend(r[range].iter().cloned());
                })
            }
            Some(Content::Variants(v)) => {
                Self::make_objects(dtype, shape, budget, Content::Variants, |items| {
                    items.extend(v[range].iter().cloned());
                })
            }
            _ => bail!(Internal, "{dtype} elements are not objects"),
        }
    }

    /// The strings of a string tensor.
    pub fn strings(&self) -> Result<&[Bytes]> {
        match self.0.content() {
            Some(Content::Strings(s)) => Ok(s),
            _ => self.wrong_dtype(DType::String),
        }
    }

    /// The strings, for writing, if no other tensor shares them.
    pub fn strings_mut(&mut self) -> Result<&mut [Bytes]> {
        if self.dtype() != DType::String {
            return self.wrong_dtype(DType::String);
        }
        match self.0.content_mut() {
            Some(Content::Strings(s)) => Ok(s),
            _ => shared(),
        }
    }

    /// The handles of a resource tensor.
    pub fn resources(&self) -> Result<&[ResourceHandle]> {
        match self.0.content() {
            Some(Content::Resources(r)) => Ok(r),
            _ => self.wrong_dtype(DType::Resource),
        }
    }

    /// The handles, for writing, if no other tensor shares them.
    pub fn resources_mut(&mut self) -> Result<&mut [ResourceHandle]> {
        if self.dtype() != DType::Resource {
            return self.wrong_dtype(DType::Resource);
        }
        match self.0.content_mut() {
            Some(Content::Resources(objects)) => Ok(objects),
            _ => shared(),
        }
    }

    /// The values of a variant tensor.
    pub fn variants(&self) -> Result<&[VariantValue]> {
        match self.0.content() {
            Some(Content::Variants(v)) => Ok(v),
            _ => self.wrong_dtype(DType::Variant),
        }
    }

    /// The values, for writing, if no other tensor shares them.
    pub fn variants_mut(&mut self) -> Result<&mut [VariantValue]> {
        if self.dtype() != DType::Variant {
            return self.wrong_dtype(DType::Variant);
        }
        match self.0.content_mut() {
            Some(Content::Variants(objects)) => Ok(objects),
            _ => shared(),
        }
    }

    /// The values of a variant tensor by move if no other tensor shares them, cloned otherwise.
    pub fn into_variants(mut self) -> Result<Vec<VariantValue>> {
        if let Some(Content::Variants(v)) = self.0.content_mut() {
            return Ok(std::mem::take(v).into_vec());
        }
        self.variants().map(<[_]>::to_vec)
    }

    /// The single element of a scalar (or of any tensor that has exactly one).
    pub fn scalar_value<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => bail!(InvalidArgument, "expected a scalar, got shape {}", self.shape()),
        }
    }

    /// Moves the charge for the memory to another budget: a variable outlives its session. Strings and
    /// the tensors in variants keep the charges that they carry.
    pub fn charge_to(&self, budget: &Arc<Budget>) -> Result<()> {
        self.0.charge_to(budget)
    }

    /// Charges the tensor to `budget`, unless it is charged already. Lists, queues and whatever else
    /// keeps tensors in numbers that a program chooses call this for each of them.
    #[inline]
    pub fn ensure_charged(&self, budget: &Arc<Budget>) -> Result<()> {
        self.0.ensure_charged(budget)
    }

    /// As [`Tensor::ensure_charged`] for a keeper of many tensors that lets none of them out: the only
    /// reference to a tensor that is not charged stays so, and the keeper charges the returned bytes
    /// for as long as it keeps it.
    #[inline]
    pub fn uncharged_bytes(&self, budget: &Arc<Budget>) -> Result<usize> {
        self.0.uncharged_bytes(budget)
    }
}

fn resources(items: Objects<ResourceHandle>) -> Content {
    Content::Resources(Box::new(items))
}

/// Bytes of a tensor that a caller's closure writes. Dropping it, after an error or a panic too, turns
/// bytes of a bool tensor other than 0 and 1 into 1: the memory may be recycled for another bool tensor.
struct Cleaned<'a> {
    is_bool: bool,
    bytes: &'a mut [u8],
}

impl Drop for Cleaned<'_> {
    fn drop(&mut self) {
        if self.is_bool {
            self.bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
    }
}

#[cold]
fn shared<T>() -> Result<T> {
    bail!(Internal, "a shared tensor cannot be written in place")
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}, {}>", self.dtype(), self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn clones_share_and_uniqueness_returns() {
        let mut a = Tensor::vector(&[1.0f32, 2.0]).unwrap();
        let b = a.clone();
        assert_eq!(a.as_mut_slice::<f32>().unwrap_err().code(), Code::Internal);
        drop(b);
        a.as_mut_slice::<f32>().unwrap()[0] = 5.0;
        assert_eq!(a.as_slice::<f32>().unwrap(), [5.0, 2.0]);
        assert_eq!(a.as_slice::<i32>().unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn charges_follow_the_memory() {
        let session = Budget::new(1 << 20);
        let task = Budget::new(1 << 20);
        let t =
            Tensor::allocate(DType::Float, Shape::new(&[100]).unwrap(), Some(&session)).unwrap();
        assert!(session.used_bytes() >= 400);
        t.charge_to(&task).unwrap();
        assert_eq!(session.used_bytes(), 0);
        drop(t);
        assert_eq!(task.used_bytes(), 0);
    }

    #[test]
    fn a_full_session_can_hand_its_memory_to_the_task() {
        let task = Budget::new(1 << 20);
        let session = Budget::child(&task);
        let shape = Shape::new(&[700 << 10]).unwrap();
        let t = Tensor::allocate(DType::UInt8, shape, Some(&session)).unwrap();
        let charged = session.used_bytes();
        assert!(charged > task.limit_bytes() / 2);
        t.charge_to(&task).unwrap();
        assert_eq!((session.used_bytes(), task.used_bytes()), (0, charged));
        t.charge_to(&task).unwrap();
        let other = Budget::new(1000);
        assert_eq!(t.charge_to(&other).unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!((other.used_bytes(), task.used_bytes()), (0, charged));
        drop((t, session));
        assert_eq!(task.used_bytes(), 0);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let budget = Budget::new(1 << 20);
        for dims in [[1usize << 60], [1 << 40], [1 << 19]] {
            let shape = Shape::new(&dims).unwrap();
            let refused = Tensor::allocate(DType::Float, shape.clone(), Some(&budget)).unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            assert_eq!(budget.used_bytes(), 0);
        }
        let shape = Shape::new(&[1 << 60]).unwrap();
        let refused = Tensor::allocate(DType::Float, shape, None).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }

    #[test]
    fn received_bytes_are_viewed_where_aligned() {
        let bytes = Bytes::from(vec![0u8; 64]);
        let base = bytes.as_ptr().addr().next_multiple_of(8) - bytes.as_ptr().addr();
        let shape = Shape::new(&[4]).unwrap();
        let aligned = bytes.slice(base..base + 16);
        let t = Tensor::from_bytes(DType::Float, shape.clone(), aligned.clone()).unwrap();
        assert_eq!(t.as_bytes().unwrap().as_ptr(), aligned.as_ptr());
        assert!(!t.is_unique());
        let odd = bytes.slice(base + 1..base + 17);
        let t = Tensor::from_bytes(DType::Float, shape.clone(), odd.clone()).unwrap();
        assert_ne!(t.as_bytes().unwrap().as_ptr(), odd.as_ptr());
        let short = Tensor::from_bytes(DType::Double, shape, odd).unwrap_err();
        assert_eq!(short.code(), Code::InvalidArgument);
        let flags = Bytes::from_static(&[0, 1, 7]);
        let t = Tensor::from_bytes(DType::Bool, Shape::new(&[3]).unwrap(), flags).unwrap();
        assert_eq!(t.as_slice::<bool>().unwrap(), [false, true, true]);
    }

    #[test]
    fn rows_share_memory() {
        let t = Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &[1, 2, 3, 4, 5, 6]).unwrap();
        let middle = t.rows(1, 1, None).unwrap();
        assert_eq!(middle.as_slice::<i32>().unwrap(), [3, 4]);
        assert!(middle.shares_memory_with(&t));
        assert_eq!(t.rows(2, 2, None).unwrap_err().code(), Code::Internal);
    }
}
