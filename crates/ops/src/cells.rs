//! Elements as opaque cells, for kernels that copy and move them.
//!
//! Numbers are copied by their size, so one loop serves all dtypes of 1, 2, 4, 8 or 16 bytes;
//! strings, resource handles and variants are cloned by reference count. [`with_cell!`] selects the
//! cell type of a dtype.

use bytes::Bytes;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, ResourceHandle, Result, Shape, Tensor, VariantValue, ensure};

/// A number of `N` bytes, of any dtype and alignment. Values are only copied from other cells or
/// zero, so a bool copied as a cell stays a valid bool.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Bits<const N: usize>([u8; N]);

impl<const N: usize> Bits<N> {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Default for Bits<N> {
    fn default() -> Self {
        Bits([0; N])
    }
}

/// An element that can be copied. Cells are copied only between tensors of one dtype.
pub(crate) trait Cell: Clone + Default + Send + Sync + 'static {
    /// The elements of a tensor whose dtype has this cell.
    fn view(tensor: &Tensor) -> Result<&[Self]>;
    /// Mutable elements; `None` if the tensor's memory is shared.
    fn view_mut(tensor: &mut Tensor) -> Result<&mut [Self]>;
}

impl<const N: usize> Cell for Bits<N> {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        ensure!(tensor.dtype().size() == N, Internal, "{} is not {N} bytes", tensor.dtype());
        let (cells, _) = tensor.as_bytes()?.as_chunks::<N>();
        // SAFETY: `Bits` is transparent over the array.
        Ok(unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) })
    }

    fn view_mut(tensor: &mut Tensor) -> Result<&mut [Self]> {
        ensure!(tensor.dtype().size() == N, Internal, "{} is not {N} bytes", tensor.dtype());
        // SAFETY: cells are zeroes or come from tensors of the same dtype, see the trait.
        let (cells, _) = unsafe { tensor.bytes_mut()? }.as_chunks_mut::<N>();
        // SAFETY: `Bits` is transparent over the array.
        Ok(unsafe { std::slice::from_raw_parts_mut(cells.as_mut_ptr().cast(), cells.len()) })
    }
}

impl Cell for Bytes {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.strings()
    }

    fn view_mut(tensor: &mut Tensor) -> Result<&mut [Self]> {
        tensor.strings_mut()
    }
}

impl Cell for ResourceHandle {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.resources()
    }

    fn view_mut(tensor: &mut Tensor) -> Result<&mut [Self]> {
        tensor.resources_mut()
    }
}

impl Cell for VariantValue {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.variants()
    }

    fn view_mut(tensor: &mut Tensor) -> Result<&mut [Self]> {
        tensor.variants_mut()
    }
}

/// `with_cell!(dtype, C => expression)` evaluates the expression with `C` as the cell of `dtype`.
macro_rules! with_cell {
    ($dtype:expr, $cell:ident => $body:expr) => {{
        let dtype: thalweg_tensor::DType = $dtype;
        match (dtype, dtype.size()) {
            (thalweg_tensor::DType::String, _) => {
                type $cell = bytes::Bytes;
                $body
            }
            (thalweg_tensor::DType::Resource, _) => {
                type $cell = thalweg_tensor::ResourceHandle;
                $body
            }
            (thalweg_tensor::DType::Variant, _) => {
                type $cell = thalweg_tensor::VariantValue;
                $body
            }
            (_, 1) => {
                type $cell = $crate::cells::Bits<1>;
                $body
            }
            (_, 2) => {
                type $cell = $crate::cells::Bits<2>;
                $body
            }
            (_, 4) => {
                type $cell = $crate::cells::Bits<4>;
                $body
            }
            (_, 8) => {
                type $cell = $crate::cells::Bits<8>;
                $body
            }
            (_, _) => {
                type $cell = $crate::cells::Bits<16>;
                $body
            }
        }
    }};
}

/// An uninitialized tensor of any dtype, charged to the session; the caller writes every element.
pub(crate) fn blank(ctx: &KernelContext<'_>, dtype: DType, shape: Shape) -> Result<Tensor> {
    Tensor::blank_in(dtype, shape, Some(ctx.budget()))
}

/// Cost of copying one element: numbers are bound by memory bandwidth, objects by reference
/// counting.
pub(crate) fn nanoseconds_per_cell<C>() -> f64 {
    if std::mem::needs_drop::<C>() { 10.0 } else { size_of::<C>() as f64 * 0.1 }
}

/// Sets every cell to `value`. Long runs of numbers are copied from the filled part, which is fast
/// for any cell size.
pub(crate) fn fill<C: Cell>(cells: &mut [C], value: &C) {
    const SEED: usize = 128;
    if std::mem::needs_drop::<C>() || cells.len() <= 2 * SEED {
        cells.fill(value.clone());
        return;
    }
    let (seed, rest) = cells.split_at_mut(SEED);
    seed.fill(value.clone());
    for chunk in rest.chunks_mut(SEED) {
        chunk.clone_from_slice(&seed[..chunk.len()]);
    }
}
