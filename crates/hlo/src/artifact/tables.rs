//! The tables of a portable artifact: strings, operation names, types and attributes.
//!
//! Types and attributes are those of VHLO, StableHLO's versioned form; of MLIR's builtin dialect only
//! dictionaries and their keys occur.

use std::cell::RefCell;
use std::sync::Arc;

use thalweg_tensor::{DType, Result, bail, ensure, err};

use super::bytes::{Bytes, to_text};

/// How deep attributes and types nest.
const DEPTH_MAX: usize = 16;
/// The newest version of MLIR's bytecode.
const VERSION_MAX: u64 = 6;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// A tensor; a dimension is `None` if it is known only with the arguments.
    Tensor(Element, Vec<Option<usize>>),
    Element(Element),
    Token,
    /// What programs here have no values of.
    Other(&'static str),
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element {
    Known(DType),
    /// VHLO's number of a type that TensorFlow's dtypes lack.
    Unknown(u64),
}

/// An attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attr {
    /// An integer of so many bits.
    Int(i64, u32),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Vec<Arc<Attr>>),
    Dictionary(Vec<(String, Arc<Attr>)>),
    /// Elements as bytes: of all, or of the one that all are equal to.
    Tensor(Arc<Type>, Vec<u8>),
    /// An enumeration by VHLO's number, and the value.
    Enum(u64, u64),
    Other,
}

/// The contents of a file before the operations are read.
pub(super) struct Tables<'a> {
    pub(super) version: u64,
    /// Operations' names with their dialect.
    pub(super) operations: Vec<(&'a str, &'a str)>,
    strings: Vec<&'a str>,
    properties: Vec<Bytes<'a>>,
    attrs: Vec<Entry<'a>>,
    types: Vec<Entry<'a>>,
    known_attrs: RefCell<Vec<Option<Arc<Attr>>>>,
    known_types: RefCell<Vec<Option<Arc<Type>>>>,
}

/// An encoded type or attribute.
struct Entry<'a> {
    dialect: &'a str,
    is_binary: bool,
    bytes: Bytes<'a>,
}

impl<'a> Tables<'a> {
    /// Reads the tables; the section of operations comes with them.
    pub(super) fn read(file: &'a [u8]) -> Result<(Tables<'a>, Bytes<'a>)> {
        let mut bytes = Bytes::new(file);
        let is_bytecode = file.starts_with(b"ML\xefR");
        ensure!(is_bytecode, InvalidArgument, "the module is no MLIR bytecode");
        bytes.take(4)?;
        let version = bytes.number()?;
        ensure!(
            version <= VERSION_MAX,
            Unimplemented,
            "the module is MLIR bytecode of version {version}, at most {VERSION_MAX} is read"
        );
        bytes.terminated()?;
        let mut sections: [Option<Bytes<'a>>; 9] = [None; 9];
        while !bytes.is_empty() {
            let (id, section) = bytes.section()?;
            if let Some(slot) = sections.get_mut(usize::from(id)) {
                *slot = Some(section);
            }
        }
        let [
            Some(strings),
            Some(dialects),
            Some(entries),
            Some(offsets),
            Some(operations),
            ..,
            properties,
        ] = sections
        else {
            bail!(InvalidArgument, "the module lacks a section");
        };
        let strings = read_strings(strings)?;
        let mut tables = Tables {
            version,
            operations: Vec::new(),
            strings,
            properties: properties.map_or(Ok(Vec::new()), read_properties)?,
            attrs: Vec::new(),
            types: Vec::new(),
            known_attrs: RefCell::default(),
            known_types: RefCell::default(),
        };
        let dialects = tables.read_dialects(dialects)?;
        tables.read_entries(&dialects, entries, offsets)?;
        *tables.known_attrs.borrow_mut() = vec![None; tables.attrs.len()];
        *tables.known_types.borrow_mut() = vec![None; tables.types.len()];
        Ok((tables, operations))
    }

    fn read_dialects(&mut self, mut bytes: Bytes<'a>) -> Result<Vec<&'a str>> {
        let count = bytes.count()?;
        let mut dialects = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, is_versioned) = match self.version {
                0 => (bytes.index()?, false),
                _ => bytes.flagged()?,
            };
            dialects.push(self.string(name)?);
            if is_versioned {
                bytes.section()?;
            }
        }
        if self.version >= 4 {
            bytes.number()?;
        }
        while !bytes.is_empty() {
            let dialect = lookup(&dialects, bytes.index()?)?;
            for _ in 0..bytes.count()? {
                let name = match self.version {
                    0..=4 => bytes.index()?,
                    _ => bytes.flagged()?.0,
                };
                self.operations.push((dialect, self.string(name)?));
            }
        }
        Ok(dialects)
    }

    fn read_entries(
        &mut self,
        dialects: &[&'a str],
        mut entries: Bytes<'a>,
        mut offsets: Bytes<'a>,
    ) -> Result<()> {
        let (num_attrs, num_types) = (offsets.count()?, offsets.count()?);
        for (count, is_attrs) in [(num_attrs, true), (num_types, false)] {
            let mut all = Vec::with_capacity(count);
            while all.len() < count {
                let dialect = lookup(dialects, offsets.index()?)?;
                for _ in 0..offsets.count()? {
                    let (size, is_binary) = offsets.flagged()?;
                    all.push(Entry { dialect, is_binary, bytes: entries.part(size)? });
                }
            }
            *(if is_attrs { &mut self.attrs } else { &mut self.types }) = all;
        }
        Ok(())
    }

    fn string(&self, index: usize) -> Result<&'a str> {
        lookup(&self.strings, index)
    }

    /// The properties of an operation: attributes with these names, in their order.
    pub(super) fn properties(
        &self,
        index: usize,
        names: &[&str],
    ) -> Result<Vec<(String, Arc<Attr>)>> {
        let mut bytes = *self.properties.get(index).ok_or_else(|| no_entry(index))?;
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            all.push(((*name).to_owned(), self.attr(bytes.index()?)?));
        }
        ensure!(bytes.is_empty(), InvalidArgument, "an operation has too many properties");
        Ok(all)
    }

    /// The type at a position of the table.
    pub(super) fn ty(&self, index: usize) -> Result<Arc<Type>> {
        self.type_at(index, 0)
    }

    /// The attribute at a position of the table.
    pub(super) fn attr(&self, index: usize) -> Result<Arc<Attr>> {
        self.attr_at(index, 0)
    }

    fn type_at(&self, index: usize, depth: usize) -> Result<Arc<Type>> {
        ensure!(depth < DEPTH_MAX, InvalidArgument, "the types of the module nest too deep");
        let entry = self.types.get(index).ok_or_else(|| no_entry(index))?;
        if let Some(known) = &self.known_types.borrow()[index] {
            return Ok(known.clone());
        }
        let read = match (entry.dialect, entry.is_binary) {
            ("vhlo", true) => self.vhlo_type(entry.bytes, depth)?,
            _ => Type::Other("a type of another dialect"),
        };
        let read = Arc::new(read);
        self.known_types.borrow_mut()[index] = Some(read.clone());
        Ok(read)
    }

    fn vhlo_type(&self, mut bytes: Bytes<'_>, depth: usize) -> Result<Type> {
        let element = |dtype| Ok(Type::Element(Element::Known(dtype)));
        let code = bytes.number()?;
        match code {
            0 => element(DType::Bool),
            1 => match *self.type_at(bytes.index()?, depth + 1)? {
                Type::Element(Element::Known(DType::Float)) => element(DType::Complex64),
                Type::Element(Element::Known(DType::Double)) => element(DType::Complex128),
                _ => Ok(Type::Element(Element::Unknown(code))),
            },
            2 => element(DType::BFloat16),
            3 => element(DType::Half),
            4 => element(DType::Float),
            5 => element(DType::Double),
            6 => element(DType::Float8E4m3fn),
            7 => element(DType::Float8E5m2),
            8 => Ok(Type::Other("a function")),
            11 => element(DType::Int8),
            12 => element(DType::Int16),
            13 => element(DType::Int32),
            14 => element(DType::Int64),
            16 => element(DType::UInt8),
            17 => element(DType::UInt16),
            18 => element(DType::UInt32),
            19 => element(DType::UInt64),
            20 => {
                let rank = bytes.count()?;
                let dims = (0..rank)
                    .map(|_| match bytes.signed()? {
                        i64::MIN => Ok(None),
                        dim => usize::try_from(dim)
                            .map(Some)
                            .map_err(|_| err!(InvalidArgument, "a dimension is {dim}")),
                    })
                    .collect::<Result<_>>()?;
                match *self.type_at(bytes.index()?, depth + 1)? {
                    Type::Element(element) => Ok(Type::Tensor(element, dims)),
                    _ => Ok(Type::Other("a tensor of something else than numbers")),
                }
            }
            21 => Ok(Type::Other("a tensor with bounds or a layout")),
            22 => Ok(Type::Token),
            23 => Ok(Type::Other("a tuple")),
            24 | 30 => Ok(Type::Element(Element::Unknown(code))),
            25 => Ok(Type::Other("a tensor of unknown rank")),
            _ => Ok(Type::Element(Element::Unknown(code))),
        }
    }

    fn attr_at(&self, index: usize, depth: usize) -> Result<Arc<Attr>> {
        ensure!(depth < DEPTH_MAX, InvalidArgument, "the attributes of the module nest too deep");
        let entry = self.attrs.get(index).ok_or_else(|| no_entry(index))?;
        if let Some(known) = &self.known_attrs.borrow()[index] {
            return Ok(known.clone());
        }
        let read = match (entry.dialect, entry.is_binary) {
            ("vhlo", true) => self.vhlo_attr(entry.bytes, depth)?,
            ("builtin", true) => self.builtin_attr(entry.bytes, depth)?,
            _ => Attr::Other,
        };
        let read = Arc::new(read);
        self.known_attrs.borrow_mut()[index] = Some(read.clone());
        Ok(read)
    }

    fn builtin_attr(&self, mut bytes: Bytes<'_>, depth: usize) -> Result<Attr> {
        match bytes.number()? {
            1 => {
                let count = bytes.count()?;
                let mut all = Vec::with_capacity(count);
                for _ in 0..count {
                    let name = self.attr_at(bytes.index()?, depth + 1)?;
                    let Attr::Text(name) = &*name else {
                        bail!(InvalidArgument, "the name of an attribute is no string");
                    };
                    all.push((name.clone(), self.attr_at(bytes.index()?, depth + 1)?));
                }
                Ok(Attr::Dictionary(all))
            }
            2 => Ok(Attr::Text(self.string(bytes.index()?)?.to_owned())),
            _ => Ok(Attr::Other),
        }
    }

    fn vhlo_attr(&self, mut bytes: Bytes<'_>, depth: usize) -> Result<Attr> {
        let code = bytes.number()?;
        Ok(match code {
            1 => {
                let count = bytes.count()?;
                let all = (0..count).map(|_| self.attr_at(bytes.index()?, depth + 1));
                Attr::Array(all.collect::<Result<_>>()?)
            }
            2 => Attr::Bool(bytes.number()? != 0),
            3 | 4 | 5 | 7 | 11 | 12 | 13 | 16 => Attr::Enum(code, bytes.number()?),
            8 => match *self.type_at(bytes.index()?, depth + 1)? {
                Type::Element(Element::Known(DType::Float)) => {
                    Attr::Float(f32::from_bits(bytes.signed()? as u32).into())
                }
                Type::Element(Element::Known(DType::Double)) => {
                    Attr::Float(f64::from_bits(bytes.signed()? as u64))
                }
                _ => Attr::Other,
            },
            9 => match *self.type_at(bytes.index()?, depth + 1)? {
                Type::Element(Element::Known(DType::Int8 | DType::UInt8)) => {
                    Attr::Int((bytes.byte()? as i8).into(), 8)
                }
                Type::Element(Element::Known(dtype)) if dtype.is_integer() => {
                    Attr::Int(bytes.signed()?, 8 * dtype.size() as u32)
                }
                _ => Attr::Other,
            },
            14 => Attr::Text(self.string(bytes.index()?)?.to_owned()),
            15 => {
                let ty = self.type_at(bytes.index()?, depth + 1)?;
                let size = bytes.index()?;
                Attr::Tensor(ty.clone(), elements(&ty, bytes.take(size)?)?)
            }
            _ => Attr::Other,
        })
    }
}

/// The elements of a constant; bits of booleans are unpacked to bytes.
fn elements(ty: &Type, bytes: &[u8]) -> Result<Vec<u8>> {
    let Type::Tensor(Element::Known(DType::Bool), dims) = ty else {
        return Ok(bytes.to_vec());
    };
    if bytes == [0xff] {
        return Ok(vec![1]);
    }
    let count = dims.iter().try_fold(1usize, |n, dim| n.checked_mul((*dim)?));
    match count {
        Some(n) if n.div_ceil(8) == bytes.len() && n != bytes.len() => {
            Ok((0..n).map(|i| bytes[i / 8] >> (i % 8) & 1).collect())
        }
        _ => Ok(bytes.to_vec()),
    }
}

fn read_strings(mut bytes: Bytes<'_>) -> Result<Vec<&str>> {
    let count = bytes.count()?;
    let mut sizes = (0..count).map(|_| bytes.index()).collect::<Result<Vec<usize>>>()?;
    sizes.reverse();
    let mut strings = Vec::with_capacity(count);
    for size in sizes {
        // The size counts the zero byte at the end.
        let text = bytes.take(size)?;
        strings.push(to_text(text.strip_suffix(&[0]).unwrap_or(text))?);
    }
    Ok(strings)
}

fn read_properties(mut bytes: Bytes<'_>) -> Result<Vec<Bytes<'_>>> {
    let count = bytes.count()?;
    (0..count)
        .map(|_| {
            let size = bytes.index()?;
            bytes.part(size)
        })
        .collect()
}

fn lookup<'a>(all: &[&'a str], index: usize) -> Result<&'a str> {
    all.get(index).copied().ok_or_else(|| no_entry(index))
}

fn no_entry(index: usize) -> thalweg_tensor::Error {
    err!(InvalidArgument, "a table of the module has no entry {index}")
}
