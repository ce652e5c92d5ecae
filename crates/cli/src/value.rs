//! Tensor values of arguments: a literal, an .npy file, or the bytes of a file.

use std::path::Path;

use thalweg_runtime::memory_limit_bytes;
use thalweg_tensor::{
    Bytes, Context, DType, PartialShape, Result, Shape, Tensor, bail, ensure, npy,
};

use crate::{files, literal, number};

/// The magic number of .npy files.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// The tensor of an argument, with this dtype and shape.
pub(crate) fn tensor(value: &str, dtype: DType, shape: &PartialShape) -> Result<Tensor> {
    let tensor = match value.strip_prefix('@') {
        Some(path) => {
            let path = Path::new(path);
            ensure!(path.as_os_str() != "", InvalidArgument, "@ must be followed by a file");
            let bytes = files::read(path, memory_limit_bytes())?;
            content(bytes, dtype, shape).context(|| path.display())?
        }
        None => literal::tensor(value, dtype)?,
    };
    if !shape.is_compatible_with(tensor.shape()) {
        bail!(InvalidArgument, "the value has shape {}, {shape} was expected", tensor.shape());
    }
    Ok(tensor)
}

fn content(bytes: Bytes, dtype: DType, shape: &PartialShape) -> Result<Tensor> {
    if dtype != DType::String || bytes.starts_with(NPY_MAGIC) {
        return npy::read(bytes, None).and_then(|tensor| number::converted(tensor, dtype));
    }
    // The file itself is the string (an image, an example, a text), as a batch of one if needed.
    let string = Tensor::scalar_string(bytes);
    match shape.rank() {
        Some(rank) => string.reshaped(Shape::new(&vec![1; rank])?),
        None => Ok(string),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn files_are_strings_where_strings_are_wanted() {
        let bytes = Bytes::from_static(b"\x89PNG");
        let batch = PartialShape::new([None]);
        let tensor = content(bytes.clone(), DType::String, &batch).unwrap();
        assert_eq!((tensor.shape().dims(), &tensor.strings().unwrap()[0]), (&[1][..], &bytes));
        let scalar = content(bytes.clone(), DType::String, &PartialShape::scalar()).unwrap();
        assert_eq!(scalar.rank(), 0);
        assert_eq!(
            content(bytes, DType::Float, &batch).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }
}
