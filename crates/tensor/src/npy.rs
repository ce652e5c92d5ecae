//! NumPy's `.npy` files, versions 1 to 3 of the format.
//!
//! Reads every plain numeric type in either byte order, in C and in Fortran order, and fixed-width
//! strings; writes little-endian, C order, version 1. Data in the order a tensor has are viewed,
//! not copied. Types that NumPy does not know (bfloat16, float8, 4-bit integers) travel as raw
//! `V1` and `V2`, as the `ml_dtypes` package saves them; quantized ones as their integers.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Budget, DType, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Array data start at a multiple of this, so that they can be viewed in place.
const ALIGN: usize = 64;
/// Strings of width zero take no bytes of the file, so the file does not bound their number.
const EMPTY_STRINGS_MAX: usize = 1 << 16;

/// The array in a file. Memory that is not the file's own is charged to `budget`.
pub fn read(mut bytes: Bytes, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
    let (header, data_start) = read_header(&bytes)?;
    let data = bytes.split_off(data_start);
    let items = header.shape.num_elements();
    let expected = items.checked_mul(header.item.size());
    ensure!(
        expected == Some(data.len()),
        InvalidArgument,
        "an .npy file of shape {} and type '{}' must have {} bytes of data, it has {}",
        header.shape,
        header.descr,
        expected.map_or("more than 2^64".to_owned(), |n| n.to_string()),
        data.len()
    );
    match header.item {
        Item::Plain { dtype, swap } => read_plain(dtype, swap, header, data, budget),
        Item::Bytes { width } => {
            let string = |at: usize| Ok(trimmed(data.slice(at..at + width)));
            read_strings(&header, width, budget, string)
        }
        Item::Text { width, is_big } => {
            let string = |at: usize| decode_utf32(&data[at..at + width * 4], is_big);
            read_strings(&header, width * 4, budget, string)
        }
    }
}

/// Dtype, shape and position of a file's array, as its header describes them.
#[derive(Clone, Debug)]
pub struct Info {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Offset of the first element in the file.
    pub data_start: usize,
    /// Bytes of all elements.
    pub data_bytes: u64,
}

/// Describes the array of a file that begins with these bytes, which must include the whole header.
pub fn info(bytes: &[u8]) -> Result<Info> {
    let (header, data_start) = read_header(bytes)?;
    let dtype = match header.item {
        Item::Plain { dtype, .. } => dtype,
        Item::Bytes { .. } | Item::Text { .. } => DType::String,
    };
    let data_bytes = (header.shape.num_elements() as u64).checked_mul(header.item.size() as u64);
    let data_bytes = data_bytes.ok_or_else(|| {
        err!(InvalidArgument, "an .npy file of shape {} has no end", header.shape)
    })?;
    Ok(Info { dtype, shape: header.shape, data_start, data_bytes })
}

/// `tensor` as the content of an `.npy` file.
pub fn write(tensor: &Tensor) -> Result<Vec<u8>> {
    let width = match tensor.dtype() {
        DType::String => tensor.strings()?.iter().map(Bytes::len).max().unwrap_or(0).max(1),
        dtype => dtype.size(),
    };
    let descr = match tensor.dtype() {
        DType::String => format!("|S{width}"),
        dtype => descr_of(dtype)?.to_owned(),
    };
    let header = header_bytes(&descr, tensor.shape());
    let data_bytes = tensor.num_elements().checked_mul(width);
    let out_of_memory = || err!(ResourceExhausted, "out of memory for an .npy file of {tensor:?}");
    let total = data_bytes.and_then(|n| n.checked_add(header.len())).ok_or_else(out_of_memory)?;
    let mut file = Vec::new();
    file.try_reserve_exact(total).map_err(|_| out_of_memory())?;
    file.extend_from_slice(&header);
    if tensor.dtype() != DType::String {
        file.extend_from_slice(tensor.as_bytes()?);
        return Ok(file);
    }
    for (i, string) in tensor.strings()?.iter().enumerate() {
        ensure!(
            string.last() != Some(&0),
            InvalidArgument,
            "string {i} ends in a zero byte, which an .npy file cannot keep"
        );
        file.extend_from_slice(string);
        file.resize(header.len() + (i + 1) * width, 0);
    }
    Ok(file)
}

/// A parsed header.
struct Header {
    descr: String,
    item: Item,
    is_fortran: bool,
    shape: Shape,
}

/// The type of an element as the file holds it.
#[derive(Clone, Copy)]
enum Item {
    Plain {
        dtype: DType,
        swap: bool,
    },
    /// Bytes, padded by zeroes.
    Bytes {
        width: usize,
    },
    /// Code points of four bytes, padded by zeroes.
    Text {
        width: usize,
        is_big: bool,
    },
}

impl Item {
    fn size(self) -> usize {
        match self {
            Item::Plain { dtype, .. } => dtype.size(),
            Item::Bytes { width } => width,
            Item::Text { width, .. } => width * 4,
        }
    }
}

/// The header and where the data begin.
fn read_header(file: &[u8]) -> Result<(Header, usize)> {
    let rest = file.strip_prefix(MAGIC).ok_or_else(|| {
        err!(InvalidArgument, "not an .npy file: it does not begin with \\x93NUMPY")
    })?;
    let cut_off =
        || err!(InvalidArgument, "an .npy file of {} bytes ends in its header", file.len());
    let (&[major, minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
    let (length, rest) = match major {
        1 => {
            let (&length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
            (usize::from(u16::from_le_bytes(length)), rest)
        }
        2 | 3 => {
            let (&length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
            (u32::from_le_bytes(length) as usize, rest)
        }
        _ => bail!(Unimplemented, "version {major}.{minor} of the .npy format; 1 to 3 are known"),
    };
    let text = rest.get(..length).ok_or_else(cut_off)?;
    let text = std::str::from_utf8(text)
        .map_err(|_| err!(InvalidArgument, "the header of an .npy file is not text"))?;
    let header = Literal { all: text, rest: text }.header()?;
    Ok((header, file.len() - rest.len() + length))
}

/// Parser of the Python dictionary literal that a header consists of.
struct Literal<'a> {
    all: &'a str,
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Header> {
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.eat("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" if !self.eat("[") => descr = Some(self.string()?),
                "descr" => bail!(Unimplemented, "an .npy file of records; a tensor has one type"),
                "fortran_order" => is_fortran = Some(self.bool()?),
                "shape" => shape = Some(self.tuple()?),
                _ => return Err(self.bad(&format!("the key '{key}' is unknown"))),
            }
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.is_empty() {
            return Err(self.bad("something follows the dictionary"));
        }
        let (Some(descr), Some(is_fortran), Some(shape)) = (descr, is_fortran, shape) else {
            return Err(self.bad("it must have 'descr', 'fortran_order' and 'shape'"));
        };
        let item = parse_descr(descr)?;
        Ok(Header { descr: descr.to_owned(), item, is_fortran, shape: Shape::new(&shape)? })
    }

    fn bad(&self, what: &str) -> crate::Error {
        let shown: String = self.all.chars().take(200).collect();
        err!(InvalidArgument, "the header of an .npy file is broken: {what}, in {:?}", shown.trim())
    }

    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        true
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.bad(&format!("expected '{token}'"))) }
    }

    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.eat("'") {
            '\''
        } else if self.eat("\"") {
            '"'
        } else {
            return Err(self.bad("expected a quoted string"));
        };
        let (text, rest) =
            self.rest.split_once(quote).ok_or_else(|| self.bad("a string has no end"))?;
        self.rest = rest;
        Ok(text)
    }

    fn bool(&mut self) -> Result<bool> {
        if self.eat("True") {
            return Ok(true);
        }
        self.expect("False")?;
        Ok(false)
    }

    fn tuple(&mut self) -> Result<Vec<usize>> {
        let mut sizes = Vec::new();
        self.expect("(")?;
        while !self.eat(")") {
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            let size = digits.parse().map_err(|_| self.bad("a size is no number"))?;
            // Python 2 wrote long integers with a suffix.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            sizes.push(size);
            ensure!(sizes.len() <= RANK_MAX, InvalidArgument, "the rank exceeds {RANK_MAX}");
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}

/// The element type of `<f4`, `|S10` and the like.
fn parse_descr(descr: &str) -> Result<Item> {
    let unknown = || err!(Unimplemented, "an .npy file of type '{descr}', which no tensor has");
    let (order, kind) = match descr.as_bytes() {
        [order @ (b'<' | b'>' | b'|' | b'='), rest @ ..] => (*order, rest),
        rest => (b'<', rest),
    };
    let (&kind, width) = kind.split_first().ok_or_else(unknown)?;
    let width = std::str::from_utf8(width).ok().and_then(|w| w.parse::<usize>().ok());
    let width = width.ok_or_else(unknown)?;
    let is_big = order == b'>';
    let dtype = match (kind, width) {
        (b'S' | b'a', _) => return Ok(Item::Bytes { width }),
        (b'U', _) if width <= usize::MAX / 4 => return Ok(Item::Text { width, is_big }),
        (b'b', 1) => DType::Bool,
        (b'i', 1) => DType::Int8,
        (b'i', 2) => DType::Int16,
        (b'i', 4) => DType::Int32,
        (b'i', 8) => DType::Int64,
        (b'u', 1) => DType::UInt8,
        (b'u', 2) => DType::UInt16,
        (b'u', 4) => DType::UInt32,
        (b'u', 8) => DType::UInt64,
        (b'f', 2) => DType::Half,
        (b'f', 4) => DType::Float,
        (b'f', 8) => DType::Double,
        (b'c', 8) => DType::Complex64,
        (b'c', 16) => DType::Complex128,
        // `ml_dtypes` saves these two so, and no other type.
        (b'f', 1) => DType::Float8E5m2,
        (b'V', 2) if !is_big => DType::BFloat16,
        (b'V', _) => bail!(
            Unimplemented,
            "an .npy file of raw type '{descr}': the file does not say what its bytes mean \
             ('V2' is taken for bfloat16; save other types as numbers that NumPy knows)"
        ),
        (b'O', _) => bail!(Unimplemented, "an .npy file of pickled Python objects"),
        _ => return Err(unknown()),
    };
    Ok(Item::Plain { dtype, swap: is_big && dtype.size() > 1 })
}

fn descr_of(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Bool => "|b1",
        DType::Int8 | DType::QInt8 => "|i1",
        DType::Int16 | DType::QInt16 => "<i2",
        DType::Int32 | DType::QInt32 => "<i4",
        DType::Int64 => "<i8",
        DType::UInt8 | DType::QUInt8 => "|u1",
        DType::UInt16 | DType::QUInt16 => "<u2",
        DType::UInt32 => "<u4",
        DType::UInt64 => "<u8",
        DType::Half => "<f2",
        DType::Float => "<f4",
        DType::Double => "<f8",
        DType::Complex64 => "<c8",
        DType::Complex128 => "<c16",
        DType::BFloat16 => "<V2",
        DType::Resource | DType::Variant | DType::String => {
            bail!(InvalidArgument, "an .npy file cannot hold {dtype} elements")
        }
        _ => "|V1",
    })
}

fn header_bytes(descr: &str, shape: &Shape) -> Vec<u8> {
    let sizes: String = match shape.dims() {
        [size] => format!("{size},"),
        sizes => sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let prefix = MAGIC.len() + 4;
    let total = (prefix + text.len() + 1).next_multiple_of(ALIGN);
    text.extend(std::iter::repeat_n(' ', total - prefix - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("254 sizes of 20 digits fit in 64 KiB");
    [MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat()
}

fn read_plain(
    dtype: DType,
    swap: bool,
    header: Header,
    data: Bytes,
    budget: Option<&Arc<Budget>>,
) -> Result<Tensor> {
    let is_plain_order = !header.is_fortran || header.shape.iter().filter(|&&d| d != 1).count() < 2;
    let is_aligned = data.as_ptr().addr().is_multiple_of(dtype.size());
    if is_plain_order && !swap && is_aligned {
        return Tensor::from_bytes(dtype, header.shape, data);
    }
    let mut tensor = Tensor::allocate(dtype, header.shape.clone(), budget)?;
    let target = tensor.as_mut_bytes()?;
    if is_plain_order {
        target.copy_from_slice(&data);
    } else {
        from_fortran(&header.shape, &data, target, dtype.size());
    }
    if swap {
        let part = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        target.chunks_exact_mut(part).for_each(<[u8]>::reverse);
    }
    if dtype == DType::Bool {
        target.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    Ok(tensor)
}

/// Copies elements of `size` bytes from column-major to row-major order.
fn from_fortran(shape: &Shape, source: &[u8], target: &mut [u8], size: usize) {
    let mut position = FortranPosition::new(shape);
    for element in target.chunks_exact_mut(size) {
        let at = position.next() * size;
        element.copy_from_slice(&source[at..at + size]);
    }
}

/// For each element of an array in row-major order, its index in column-major order.
struct FortranPosition<'a> {
    shape: &'a Shape,
    strides: Vec<usize>,
    index: Vec<usize>,
    offset: usize,
}

impl<'a> FortranPosition<'a> {
    fn new(shape: &'a Shape) -> Self {
        let mut stride = 1;
        let next_stride = |&d: &usize| {
            let this = stride;
            stride *= d;
            this
        };
        let strides = shape.iter().map(next_stride).collect();
        FortranPosition { shape, strides, index: vec![0; shape.rank()], offset: 0 }
    }

    fn next(&mut self) -> usize {
        let at = self.offset;
        for axis in (0..self.shape.rank()).rev() {
            self.index[axis] += 1;
            self.offset += self.strides[axis];
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.offset -= self.index[axis] * self.strides[axis];
            self.index[axis] = 0;
        }
        at
    }
}

fn read_strings(
    header: &Header,
    width: usize,
    budget: Option<&Arc<Budget>>,
    string: impl Fn(usize) -> Result<Bytes>,
) -> Result<Tensor> {
    ensure!(
        width > 0 || header.shape.num_elements() <= EMPTY_STRINGS_MAX,
        InvalidArgument,
        "an .npy file of {} strings of width 0",
        header.shape.num_elements()
    );
    let mut tensor = Tensor::zeros_in(DType::String, header.shape.clone(), budget)?;
    let mut position = header.is_fortran.then(|| FortranPosition::new(&header.shape));
    for (i, target) in tensor.strings_mut()?.iter_mut().enumerate() {
        let at = position.as_mut().map_or(i, FortranPosition::next);
        *target = string(at * width)?;
    }
    Ok(tensor)
}

/// `text` without the zeroes that pad it.
fn trimmed(mut bytes: Bytes) -> Bytes {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

fn decode_utf32(bytes: &[u8], is_big: bool) -> Result<Bytes> {
    let (points, _) = bytes.as_chunks::<4>();
    let point = |&p: &[u8; 4]| if is_big { u32::from_be_bytes(p) } else { u32::from_le_bytes(p) };
    let end = points.iter().rposition(|p| point(p) != 0).map_or(0, |last| last + 1);
    let mut text = String::with_capacity(end);
    for p in &points[..end] {
        let c = char::from_u32(point(p));
        text.push(c.ok_or_else(|| {
            err!(InvalidArgument, "{:#x} in an .npy file is no Unicode character", point(p))
        })?);
    }
    Ok(text.into())
}
