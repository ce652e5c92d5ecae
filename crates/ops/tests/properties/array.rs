//! A multidimensional array with straightforward indexing, as reference.

use thalweg_tensor::*;

/// Dimensions, and the elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) dims: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Array {
    /// The array with element `value(index)` at each index.
    pub(crate) fn from_fn(dims: &[usize], value: impl FnMut(&[usize]) -> f64) -> Array {
        let mut value = value;
        let values = indices(dims).iter().map(|index| value(index)).collect();
        Array { dims: dims.to_vec(), values }
    }

    pub(crate) fn filled(dims: &[usize], value: f64) -> Array {
        Array { dims: dims.to_vec(), values: vec![value; dims.iter().product()] }
    }

    /// 1, 2, 3 and so on, distinct as long as the type allows.
    pub(crate) fn counting(dims: &[usize]) -> Array {
        let count = dims.iter().product::<usize>();
        Array { dims: dims.to_vec(), values: (1..=count).map(|v| v as f64).collect() }
    }

    pub(crate) fn scalar(value: f64) -> Array {
        Array { dims: Vec::new(), values: vec![value] }
    }

    pub(crate) fn vector(values: &[i64]) -> Array {
        Array { dims: vec![values.len()], values: values.iter().map(|&v| v as f64).collect() }
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Row-major offset of an index.
    pub(crate) fn place(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.dims.len());
        let mut place = 0;
        for (&i, &dim) in index.iter().zip(&self.dims) {
            assert!(i < dim, "{index:?} of {:?}", self.dims);
            place = place * dim + i;
        }
        place
    }

    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.values[self.place(index)]
    }

    pub(crate) fn at_mut(&mut self, index: &[usize]) -> &mut f64 {
        let place = self.place(index);
        &mut self.values[place]
    }

    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array { dims: self.dims.clone(), values: self.values.iter().map(|&v| f(v)).collect() }
    }

    /// The same elements with other dimensions.
    pub(crate) fn reshaped(&self, dims: &[usize]) -> Array {
        assert_eq!(dims.iter().product::<usize>(), self.values.len());
        Array { dims: dims.to_vec(), values: self.values.clone() }
    }

    /// A tensor of these numbers. Integers wrap, strings are decimal numbers, and the imaginary
    /// part of a complex number is the negative real part, so that [`Array::of`] can check both.
    pub(crate) fn to_tensor(&self, dtype: DType) -> Tensor {
        let shape = Shape::new(&self.dims).unwrap();
        macro_rules! tensor {
            ($convert:expr) => {
                Tensor::from_slice(
                    shape,
                    &self.values.iter().copied().map($convert).collect::<Vec<_>>(),
                )
                .unwrap()
            };
        }
        match dtype {
            DType::Float => tensor!(|v| v as f32),
            DType::Double => tensor!(|v| v),
            DType::Half => tensor!(f16::from_f64),
            DType::BFloat16 => tensor!(bf16::from_f64),
            DType::Int8 => tensor!(|v| v as i64 as i8),
            DType::Int16 => tensor!(|v| v as i64 as i16),
            DType::Int32 => tensor!(|v| v as i64 as i32),
            DType::Int64 => tensor!(|v| v as i64),
            DType::UInt8 => tensor!(|v| v as i64 as u8),
            DType::UInt16 => tensor!(|v| v as i64 as u16),
            DType::UInt32 => tensor!(|v| v as i64 as u32),
            DType::UInt64 => tensor!(|v| v as i64 as u64),
            DType::Bool => tensor!(|v| v != 0.0),
            DType::Complex64 => tensor!(|v| Complex32::new(v as f32, -v as f32)),
            DType::Complex128 => tensor!(|v| Complex64::new(v, -v)),
            DType::String => {
                let items = self.values.iter().map(|v| Bytes::from(v.to_string())).collect();
                Tensor::from_strings(shape, items).unwrap()
            }
            other => panic!("no {other} here"),
        }
    }

    /// The numbers in a tensor.
    pub(crate) fn of(tensor: &Tensor) -> Array {
        macro_rules! values {
            ($t:ty, $convert:expr) => {
                tensor.as_slice::<$t>().unwrap().iter().copied().map($convert).collect()
            };
        }
        let values = match tensor.dtype() {
            DType::Float => values!(f32, f64::from),
            DType::Double => values!(f64, f64::from),
            DType::Half => values!(f16, f64::from),
            DType::BFloat16 => values!(bf16, f64::from),
            DType::Int8 => values!(i8, f64::from),
            DType::Int16 => values!(i16, f64::from),
            DType::Int32 => values!(i32, f64::from),
            DType::Int64 => values!(i64, |v| v as f64),
            DType::UInt8 => values!(u8, f64::from),
            DType::UInt16 => values!(u16, f64::from),
            DType::UInt32 => values!(u32, f64::from),
            DType::UInt64 => values!(u64, |v| v as f64),
            DType::Bool => values!(bool, f64::from),
            DType::Complex64 => values!(Complex32, |c| halves(c.re.into(), c.im.into())),
            DType::Complex128 => values!(Complex64, |c| halves(c.re, c.im)),
            DType::String => tensor.strings().unwrap().iter().map(|s| number(s)).collect(),
            other => panic!("no {other} here"),
        };
        Array { dims: tensor.shape().dims().to_vec(), values }
    }
}

fn halves(re: f64, im: f64) -> f64 {
    if re == -im { re } else { f64::NAN }
}

/// The number in a string; an empty string, the default element of string tensors, is zero.
fn number(text: &[u8]) -> f64 {
    match std::str::from_utf8(text).unwrap() {
        "" => 0.0,
        text => text.parse().unwrap(),
    }
}

/// Every index of an array with these dimensions, in row-major order.
pub(crate) fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &dim in dims {
        let longer = |prefix: &Vec<usize>| -> Vec<Vec<usize>> {
            (0..dim).map(|i| [&prefix[..], &[i]].concat()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
