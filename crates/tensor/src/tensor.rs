//! Dense typed arrays that share their memory.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::object::{ObjectHandle, object_bytes};
use crate::{
    Budget, Buffer, Charge, DType, DeviceMemory, Element, ResourceHandle, Result, Shape,
    VariantValue, bail, ensure, err,
};

/// A dense array of one dtype. Cloning shares the memory.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    dtype: DType,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Buffer { buffer: Buffer, offset_bytes: usize },
    Strings(Arc<ObjectHandle<Bytes>>),
    Resources(Arc<ObjectHandle<ResourceHandle>>),
    Variants(Arc<ObjectHandle<VariantValue>>),
}

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
                Self::filled_objects(shape, Bytes::new(), budget, Data::Strings, dtype)
            }
            DType::Variant => Self::filled_objects(shape, None, budget, Data::Variants, dtype),
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
                Self::filled_objects(shape, nowhere, budget, Data::Resources, dtype)
            }
            DType::String | DType::Variant => Self::zeros_in(dtype, shape, budget),
            _ => Self::allocate(dtype, shape, budget),
        }
    }

    /// A tensor of zeroes, charged to nobody.
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
        let (mut buffer, zeroed) = Buffer::allocate(bytes, budget).map_err(|e| {
            e.map_message(|m| format!("allocating a {dtype} tensor of shape {shape}: {m}"))
        })?;
        if zero && !zeroed {
            let data = buffer.as_mut_ptr().expect("a new buffer is unique");
            // SAFETY: the buffer has at least `bytes` bytes and is not shared.
            unsafe { data.write_bytes(0, bytes) };
        }
        Ok(Tensor { shape, dtype, data: Data::Buffer { buffer, offset_bytes: 0 } })
    }

    fn filled_objects<T: Clone>(
        shape: Shape,
        item: T,
        budget: Option<&Arc<Budget>>,
        wrap: fn(Arc<ObjectHandle<T>>) -> Data,
        dtype: DType,
    ) -> Result<Tensor> {
        let charge = budget.map(|b| Charge::new(b, object_bytes::<T>(&shape))).transpose()?;
        let mut items = Vec::new();
        items.try_reserve_exact(shape.num_elements()).map_err(|_| {
            err!(ResourceExhausted, "out of memory for a {dtype} tensor of {shape}")
        })?;
        items.resize(shape.num_elements(), item);
        Ok(Tensor { shape, dtype, data: wrap(Arc::new(ObjectHandle { items, _charge: charge })) })
    }

    fn from_objects<T>(
        shape: Shape,
        items: Vec<T>,
        wrap: fn(Arc<ObjectHandle<T>>) -> Data,
        dtype: DType,
    ) -> Result<Tensor> {
        ensure!(
            items.len() == shape.num_elements(),
            InvalidArgument,
            "{} elements do not fill shape {shape}",
            items.len()
        );
        Ok(Tensor { shape, dtype, data: wrap(Arc::new(ObjectHandle { items, _charge: None })) })
    }

    /// A string tensor of these elements, in row-major order.
    pub fn from_strings(shape: Shape, items: Vec<Bytes>) -> Result<Tensor> {
        Self::from_objects(shape, items, Data::Strings, DType::String)
    }

    /// A resource tensor of these handles.
    pub fn from_resources(shape: Shape, items: Vec<ResourceHandle>) -> Result<Tensor> {
        Self::from_objects(shape, items, Data::Resources, DType::Resource)
    }

    /// A variant tensor of these values.
    pub fn from_variants(shape: Shape, items: Vec<VariantValue>) -> Result<Tensor> {
        Self::from_objects(shape, items, Data::Variants, DType::Variant)
    }

    /// A scalar, charged to nobody.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Self::from_slice(Shape::scalar(), &[value]).expect("64 bytes are to be had")
    }

    /// A scalar string.
    pub fn scalar_string(value: impl Into<Bytes>) -> Tensor {
        Self::from_strings(Shape::scalar(), vec![value.into()]).expect("one element is a scalar")
    }

    /// A vector, charged to nobody.
    pub fn vector<T: Element>(values: &[T]) -> Result<Tensor> {
        Self::from_slice(Shape::new(&[values.len()])?, values)
    }

    /// A copy of `values` in this shape, charged to nobody.
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
            let buffer = Buffer::from_bytes(bytes)?;
            return Ok(Tensor { shape, dtype, data: Data::Buffer { buffer, offset_bytes: 0 } });
        }
        let mut tensor = Self::allocate(dtype, shape, None)?;
        let target = tensor.as_mut_bytes()?;
        target.copy_from_slice(&bytes);
        if dtype == DType::Bool {
            target.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
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
        let buffer = Buffer::from_device(memory)?;
        Ok(Tensor { shape, dtype, data: Data::Buffer { buffer, offset_bytes: 0 } })
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.shape.num_elements()
    }

    /// Bytes of plain elements, or of the strings' contents and handles.
    pub fn size_bytes(&self) -> usize {
        match &self.data {
            Data::Buffer { .. } => self.num_elements() * self.dtype.size(),
            Data::Strings(s) => s.items.iter().map(|s| s.len() + size_of::<Bytes>()).sum(),
            Data::Resources(r) => r.items.len() * size_of::<ResourceHandle>(),
            Data::Variants(v) => v.items.len() * size_of::<VariantValue>(),
        }
    }

    /// The device memory that holds the elements, if host code cannot read them.
    #[inline]
    pub fn device_memory(&self) -> Option<&Arc<dyn DeviceMemory>> {
        match &self.data {
            Data::Buffer { buffer, .. } => buffer.device_memory(),
            _ => None,
        }
    }

    #[inline]
    fn host_bytes(&self) -> Result<*const u8> {
        let Data::Buffer { buffer, offset_bytes } = &self.data else {
            bail!(Internal, "{} elements are objects, not memory", self.dtype);
        };
        if let Some(memory) = buffer.device_memory() {
            bail!(Internal, "host code cannot read a tensor in {}", memory.space());
        }
        Ok(buffer.as_ptr().wrapping_add(*offset_bytes))
    }

    /// The elements as bytes.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        let data = self.host_bytes()?;
        // SAFETY: the constructors made the buffer hold `num_elements * size` initialised bytes
        // from `offset_bytes`; nobody writes while `&self` is borrowed, since writing needs the
        // only reference mutably.
        Ok(unsafe { std::slice::from_raw_parts(data, self.num_elements() * self.dtype.size()) })
    }

    /// The elements.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        ensure!(
            self.dtype == T::DTYPE,
            InvalidArgument,
            "a {} tensor is not {}",
            self.dtype,
            T::DTYPE
        );
        let data = self.host_bytes()?;
        // SAFETY: as in `as_bytes`; the address is aligned for the dtype, by allocation or by the
        // check in `from_bytes` (offsets are whole elements); `Element` makes the bytes `T`s.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), self.num_elements()) })
    }

    /// The elements, for writing, if nobody else refers to them.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        ensure!(
            self.dtype == T::DTYPE,
            InvalidArgument,
            "a {} tensor is not {}",
            self.dtype,
            T::DTYPE
        );
        let (data, n) = (self.host_bytes_mut()?, self.num_elements());
        // SAFETY: as in `as_slice`, and `host_bytes_mut` saw that this is the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), n) })
    }

    /// The elements as bytes, for writing, if nobody else refers to them: for loops that work by
    /// element size rather than by dtype.
    ///
    /// # Safety
    /// Into a bool tensor only the bytes 0 and 1 may be written.
    pub unsafe fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.as_mut_bytes()
    }

    /// The elements as bytes, for writing; for bool only 0 and 1 may be written.
    pub(crate) fn as_mut_bytes(&mut self) -> Result<&mut [u8]> {
        let (data, n) = (self.host_bytes_mut()?, self.num_elements() * self.dtype.size());
        // SAFETY: as in `as_bytes`, and `host_bytes_mut` saw that this is the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, n) })
    }

    #[inline]
    fn host_bytes_mut(&mut self) -> Result<*mut u8> {
        self.host_bytes()?;
        let Data::Buffer { buffer, offset_bytes } = &mut self.data else {
            bail!(Internal, "{} elements are objects, not memory", self.dtype);
        };
        let data = buffer
            .as_mut_ptr()
            .ok_or_else(|| err!(Internal, "a shared tensor cannot be written in place"))?;
        Ok(data.wrapping_add(*offset_bytes))
    }

    /// Whether nobody else refers to the elements, so that they may be overwritten.
    #[inline]
    pub fn is_unique(&self) -> bool {
        match &self.data {
            Data::Buffer { buffer, .. } => buffer.is_unique(),
            Data::Strings(s) => Arc::strong_count(s) == 1,
            Data::Resources(r) => Arc::strong_count(r) == 1,
            Data::Variants(v) => Arc::strong_count(v) == 1,
        }
    }

    /// Makes the memory this tensor's alone, copying it if others refer to it.
    pub fn make_unique(&mut self, budget: Option<&Arc<Budget>>) -> Result<()> {
        if !self.is_unique() {
            *self = self.deep_copy(budget)?;
        }
        Ok(())
    }

    /// A copy in memory of its own.
    pub fn deep_copy(&self, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let copied = match &self.data {
            Data::Buffer { .. } => {
                let mut copy = Self::allocate(self.dtype, self.shape.clone(), budget)?;
                copy.as_mut_bytes()?.copy_from_slice(self.as_bytes()?);
                return Ok(copy);
            }
            Data::Strings(s) => Data::Strings(copy_objects(s, budget)?),
            Data::Resources(r) => Data::Resources(copy_objects(r, budget)?),
            Data::Variants(v) => Data::Variants(copy_objects(v, budget)?),
        };
        Ok(Tensor { shape: self.shape.clone(), dtype: self.dtype, data: copied })
    }

    /// The strings of a string tensor.
    pub fn strings(&self) -> Result<&[Bytes]> {
        match &self.data {
            Data::Strings(s) => Ok(&s.items),
            _ => bail!(InvalidArgument, "a {} tensor is not string", self.dtype),
        }
    }

    /// The strings, for writing, if nobody else refers to them.
    pub fn strings_mut(&mut self) -> Result<&mut [Bytes]> {
        match &mut self.data {
            Data::Strings(s) => Arc::get_mut(s)
                .map(|s| &mut s.items[..])
                .ok_or_else(|| err!(Internal, "a shared tensor cannot be written in place")),
            _ => bail!(InvalidArgument, "a {} tensor is not string", self.dtype),
        }
    }

    /// The handles of a resource tensor.
    pub fn resources(&self) -> Result<&[ResourceHandle]> {
        match &self.data {
            Data::Resources(r) => Ok(&r.items),
            _ => bail!(InvalidArgument, "a {} tensor is not resource", self.dtype),
        }
    }

    /// The handles, for writing, if nobody else refers to them.
    pub fn resources_mut(&mut self) -> Result<&mut [ResourceHandle]> {
        match &mut self.data {
            Data::Resources(items) => Arc::get_mut(items)
                .map(|i| &mut i.items[..])
                .ok_or_else(|| err!(Internal, "a shared tensor cannot be written in place")),
            _ => bail!(InvalidArgument, "a {} tensor is not resource", self.dtype),
        }
    }

    /// The values of a variant tensor.
    pub fn variants(&self) -> Result<&[VariantValue]> {
        match &self.data {
            Data::Variants(v) => Ok(&v.items),
            _ => bail!(InvalidArgument, "a {} tensor is not variant", self.dtype),
        }
    }

    /// The values, for writing, if nobody else refers to them.
    pub fn variants_mut(&mut self) -> Result<&mut [VariantValue]> {
        match &mut self.data {
            Data::Variants(items) => Arc::get_mut(items)
                .map(|i| &mut i.items[..])
                .ok_or_else(|| err!(Internal, "a shared tensor cannot be written in place")),
            _ => bail!(InvalidArgument, "a {} tensor is not variant", self.dtype),
        }
    }

    /// The values of a variant tensor by move, if nobody else refers to them.
    pub fn into_variants(self) -> Result<Vec<VariantValue>> {
        match self.data {
            Data::Variants(v) => {
                Ok(Arc::try_unwrap(v).map_or_else(|v| v.items.clone(), |v| v.items))
            }
            _ => bail!(InvalidArgument, "a {} tensor is not variant", self.dtype),
        }
    }

    /// The single element of a scalar (or of any tensor that has exactly one).
    pub fn scalar_value<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => bail!(InvalidArgument, "expected a scalar, got shape {}", self.shape),
        }
    }

    /// The same elements in another shape of the same size; shares the memory.
    pub fn reshaped(mut self, shape: Shape) -> Result<Tensor> {
        ensure!(
            shape.num_elements() == self.num_elements(),
            InvalidArgument,
            "shape {} with {} values cannot become {shape}, which has {}",
            self.shape,
            self.num_elements(),
            shape.num_elements()
        );
        self.shape = shape;
        Ok(self)
    }

    /// The same bits read as another dtype of the same size; shares the memory.
    pub fn bitcast_same_size(mut self, dtype: DType) -> Result<Tensor> {
        ensure!(
            dtype.size() == self.dtype.size() && !dtype.is_object() && dtype != DType::Bool,
            InvalidArgument,
            "{} and {dtype} differ in size",
            self.dtype
        );
        // Complex numbers align to their parts: a view of received bytes may not fit the new dtype.
        if !self.host_bytes()?.addr().is_multiple_of(dtype.size()) {
            self = self.deep_copy(None)?;
        }
        self.dtype = dtype;
        Ok(self)
    }

    /// Rows `start..start + count` of the first dimension; plain elements share the memory.
    pub fn rows(&self, start: usize, count: usize) -> Result<Tensor> {
        let rows = self.shape.first().copied().unwrap_or(0);
        ensure!(
            start.checked_add(count).is_some_and(|end| end <= rows),
            Internal,
            "rows {start}..{start}+{count} of shape {}",
            self.shape
        );
        let mut dims = self.shape.dims().to_vec();
        dims[0] = count;
        let shape = Shape::new(&dims)?;
        let row_elements: usize = self.shape[1..].iter().product();
        let range = start * row_elements..(start + count) * row_elements;
        let data = match &self.data {
            Data::Buffer { buffer, offset_bytes } => Data::Buffer {
                buffer: buffer.clone(),
                offset_bytes: offset_bytes + range.start * self.dtype.size(),
            },
            Data::Strings(s) => return Self::from_strings(shape, s.items[range].to_vec()),
            Data::Resources(r) => return Self::from_resources(shape, r.items[range].to_vec()),
            Data::Variants(v) => return Self::from_variants(shape, v.items[range].to_vec()),
        };
        Ok(Tensor { shape, dtype: self.dtype, data })
    }

    /// Whether both tensors show the same memory.
    pub fn shares_memory_with(&self, other: &Tensor) -> bool {
        match (&self.data, &other.data) {
            (Data::Buffer { buffer: a, .. }, Data::Buffer { buffer: b, .. }) => a.is_same(b),
            (Data::Strings(a), Data::Strings(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Moves the charge for the memory to another budget: a variable outlives its session.
    pub fn charge_to(&self, budget: &Arc<Budget>) -> Result<()> {
        match &self.data {
            Data::Buffer { buffer, .. } => buffer.charge_to(Some(budget)),
            _ => Ok(()),
        }
    }
}

fn copy_objects<T: Clone>(
    source: &ObjectHandle<T>,
    budget: Option<&Arc<Budget>>,
) -> Result<Arc<ObjectHandle<T>>> {
    let bytes = source.items.len().saturating_mul(size_of::<T>());
    let charge = budget.map(|b| Charge::new(b, bytes)).transpose()?;
    let mut items = Vec::new();
    items
        .try_reserve_exact(source.items.len())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {bytes} bytes"))?;
    items.extend_from_slice(&source.items);
    Ok(Arc::new(ObjectHandle { items, _charge: charge }))
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}, {}>", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_and_uniqueness_returns() {
        let mut a = Tensor::vector(&[1.0f32, 2.0]).unwrap();
        let b = a.clone();
        assert!(a.as_mut_slice::<f32>().is_err());
        drop(b);
        a.as_mut_slice::<f32>().unwrap()[0] = 5.0;
        assert_eq!(a.as_slice::<f32>().unwrap(), [5.0, 2.0]);
        assert!(a.as_slice::<i32>().is_err());
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
    fn absurd_sizes_are_refused() {
        let budget = Budget::new(1 << 20);
        for dims in [[1usize << 60], [1 << 40], [1 << 19]] {
            let shape = Shape::new(&dims).unwrap();
            let refused = Tensor::allocate(DType::Float, shape.clone(), Some(&budget)).unwrap_err();
            assert_eq!(refused.code(), crate::Code::ResourceExhausted);
            assert_eq!(budget.used_bytes(), 0);
        }
        let shape = Shape::new(&[1 << 60]).unwrap();
        assert!(Tensor::allocate(DType::Float, shape, None).is_err());
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
        assert!(Tensor::from_bytes(DType::Double, shape, odd).is_err());
        let flags = Bytes::from_static(&[0, 1, 7]);
        let t = Tensor::from_bytes(DType::Bool, Shape::new(&[3]).unwrap(), flags).unwrap();
        assert_eq!(t.as_slice::<bool>().unwrap(), [false, true, true]);
    }

    #[test]
    fn rows_share_memory() {
        let t = Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &[1, 2, 3, 4, 5, 6]).unwrap();
        let middle = t.rows(1, 1).unwrap();
        assert_eq!(middle.as_slice::<i32>().unwrap(), [3, 4]);
        assert!(middle.shares_memory_with(&t));
        assert!(t.rows(2, 2).is_err());
    }
}
