//! Slice specifications: `"4 6 0,2:-"` is rows 0 and 1 of a 4 by 6 matrix.

use thalweg_formats::checkpoint::Slice;
use thalweg_tensor::{Bytes, Result, Shape, bail, ensure};

/// A slice of a tensor.
#[derive(Debug)]
pub(crate) struct Part {
    /// Shape of the whole tensor.
    pub(crate) whole: Shape,
    /// Position and size of the slice.
    pub(crate) slice: Slice,
    /// Shape of the slice.
    pub(crate) shape: Shape,
}

impl Part {
    /// Parses a slice specification; `None` for the empty text, which means the whole tensor.
    pub(crate) fn parse(text: &Bytes) -> Result<Option<Part>> {
        if text.is_empty() {
            return Ok(None);
        }
        let Ok(text) = std::str::from_utf8(text) else {
            bail!(InvalidArgument, "shape_and_slice {text:?} is not UTF-8");
        };
        let Some((sizes, slice)) = text.rsplit_once(' ') else {
            bail!(
                InvalidArgument,
                "Need least two elements in shape_and_slice specification: {text}"
            );
        };
        let whole = whole(sizes, text)?;
        // TensorFlow ignores dimensions that are not stated.
        let said: Vec<&str> = slice.split(':').filter(|extent| !extent.is_empty()).collect();
        let slice = Slice::parse(&said.join(":"))?;
        let shape = slice.shape_in(&whole)?;
        Ok(Some(Part { whole, slice, shape }))
    }
}

/// The sizes before the slice.
fn whole(sizes: &str, text: &str) -> Result<Shape> {
    let mut dims = Vec::new();
    for size in sizes.split(' ') {
        let Ok(size) = size.trim_ascii().parse::<i64>() else {
            bail!(InvalidArgument, "Non numerical dimension in shape_and_slice: {text}");
        };
        ensure!(size >= 0, InvalidArgument, "Negative dimension in shape_and_slice: {text}");
        dims.push(size);
    }
    Shape::from_i64(&dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn shown(text: &str) -> String {
        match Part::parse(&Bytes::from(text.to_owned())) {
            Ok(None) => "all".to_owned(),
            Ok(Some(part)) => format!("{} of {} at {}", part.shape, part.whole, part.slice),
            Err(e) => format!("{:?}", e.code()),
        }
    }

    #[test]
    fn texts_mean_parts() {
        for (text, expected) in [
            ("", "all"),
            ("4 6 0,2:-", "[2,6] of [4,6] at 0,2:-"),
            ("4 6 -:-", "[4,6] of [4,6] at -:-"),
            ("4 6 3,1:5,1", "[1,1] of [4,6] at 3,1:5,1"),
            ("+4 +1,2", "[2] of [4] at 1,2"),
            ("0 2 -:0,1", "[0,1] of [0,2] at -:0,1"),
            ("9223372036854775807 5,1", "[1] of [9223372036854775807] at 5,1"),
            ("4", "InvalidArgument"),
            ("-", "InvalidArgument"),
            ("4 6 -", "Internal"),
            ("4 6 ", "Internal"),
            ("4 6 3,2:-", "Internal"),
            ("4 9223372036854775807,9223372036854775807", "Internal"),
            ("4 6 0,0:-", "InvalidArgument"),
            ("4 6 -1,1:-", "InvalidArgument"),
            ("4  6 -:-", "InvalidArgument"),
            ("4 6 0,1,1:-", "InvalidArgument"),
            ("-4 0,1", "InvalidArgument"),
            ("9223372036854775808 0,1", "InvalidArgument"),
            ("3037000500 3037000500 -:-", "InvalidArgument"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
        assert_eq!(code(Part::parse(&Bytes::from_static(b"4 \xff"))), Some(Code::InvalidArgument));
        let many = format!("{}{}", "1 ".repeat(300), "-:".repeat(300));
        assert_eq!(shown(&many), "InvalidArgument");
    }
}
