//! Small integer tensors that are known while a module is called: dimensions, and what is computed of
//! them.

use thalweg_tensor::{DType, Result, Shape, err};

use super::module::Operation;
use super::tables::{Attr, Element, Type};

/// Most elements of a known tensor.
const ELEMENTS_MAX: usize = 256;

/// Integers or booleans.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) dtype: DType,
    pub(super) dims: Vec<usize>,
    pub(super) elements: Vec<i64>,
}

impl Known {
    /// A tensor if its dtype and size are those of known ones.
    pub(super) fn new(dtype: DType, dims: Vec<usize>, elements: Vec<i64>) -> Option<Known> {
        let fits = can_be_known(dtype) && elements.len() <= ELEMENTS_MAX;
        fits.then_some(Known { dtype, dims, elements })
    }

    /// A constant; `bytes` are those of all elements or of the one that all are equal to.
    pub(super) fn of_bytes(dtype: DType, dims: &[usize], bytes: &[u8]) -> Option<Known> {
        let count = Shape::new(dims).ok()?.num_elements();
        if count > ELEMENTS_MAX || !can_be_known(dtype) {
            return None;
        }
        let read = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            wrap(dtype, i64::from_le_bytes(wide))
        };
        let elements: Vec<i64> = bytes.chunks(dtype.size()).map(read).collect();
        let elements = if elements.len() == 1 { vec![elements[0]; count] } else { elements };
        (elements.len() == count).then(|| Known { dtype, dims: dims.to_vec(), elements })
    }

    pub(super) fn scalar(dtype: DType, x: i64) -> Known {
        Known { dtype, dims: Vec::new(), elements: vec![wrap(dtype, x)] }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let size = self.dtype.size();
        self.elements.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect()
    }

    /// The elements as dimensions.
    pub(super) fn to_dims(&self) -> Result<Vec<usize>> {
        let dim = |&x: &i64| {
            usize::try_from(x)
                .map_err(|_| err!(InvalidArgument, "a dimension of the module is {x}"))
        };
        self.elements.iter().map(dim).collect()
    }
}

fn can_be_known(dtype: DType) -> bool {
    dtype == DType::Bool || dtype.is_integer() && dtype != DType::UInt64
}

/// The number as the dtype wraps it.
fn wrap(dtype: DType, x: i64) -> i64 {
    match dtype {
        DType::Bool => i64::from(x != 0),
        DType::Int8 => (x as i8).into(),
        DType::Int16 => (x as i16).into(),
        DType::Int32 => (x as i32).into(),
        DType::UInt8 => (x as u8).into(),
        DType::UInt16 => (x as u16).into(),
        DType::UInt32 => (x as u32).into(),
        _ => x,
    }
}

/// The result of an operation of known operands, if it is one that computes dimensions.
pub(super) fn evaluate(op: &Operation, operands: &[&Known]) -> Option<Known> {
    let [(_, ty)] = &op.results[..] else { return None };
    let Type::Tensor(Element::Known(dtype), declared) = &**ty else { return None };
    let dtype = *dtype;
    let declared: Option<Vec<usize>> = declared.iter().copied().collect();
    match (op.name.as_str(), operands) {
        ("add", [a, b]) => zip(dtype, a, b, |x, y| Some(x.wrapping_add(y))),
        ("subtract", [a, b]) => zip(dtype, a, b, |x, y| Some(x.wrapping_sub(y))),
        ("multiply", [a, b]) => zip(dtype, a, b, |x, y| Some(x.wrapping_mul(y))),
        ("divide", [a, b]) => zip(dtype, a, b, i64::checked_div),
        ("remainder", [a, b]) => zip(dtype, a, b, i64::checked_rem),
        ("maximum", [a, b]) => zip(dtype, a, b, |x, y| Some(x.max(y))),
        ("minimum", [a, b]) => zip(dtype, a, b, |x, y| Some(x.min(y))),
        ("and", [a, b]) => zip(dtype, a, b, |x, y| Some(x & y)),
        ("or", [a, b]) => zip(dtype, a, b, |x, y| Some(x | y)),
        ("xor", [a, b]) => zip(dtype, a, b, |x, y| Some(x ^ y)),
        ("compare", [a, b]) => {
            let holds = comparison(op)?;
            zip(dtype, a, b, |x, y| Some(holds(x, y).into()))
        }
        ("not", [a]) if dtype == DType::Bool => map(dtype, a, |x| 1 - x),
        ("not", [a]) => map(dtype, a, |x| !x),
        ("negate", [a]) => map(dtype, a, i64::wrapping_neg),
        ("abs", [a]) => map(dtype, a, i64::wrapping_abs),
        ("sign", [a]) => map(dtype, a, i64::signum),
        ("convert", [a]) if can_be_known(dtype) => map(dtype, a, |x| x),
        ("select", [condition, yes, no]) => {
            let pick = |i: usize| {
                let holds = condition.elements.get(i).or(condition.elements.first())? != &0;
                (if holds { yes } else { no }).elements.get(i).copied()
            };
            let elements = (0..yes.elements.len()).map(pick).collect::<Option<_>>()?;
            Known::new(dtype, yes.dims.clone(), elements)
        }
        ("clamp", [low, x, high]) => {
            let at = |k: &Known, i: usize| k.elements.get(i).or(k.elements.first()).copied();
            let clamp = |(i, &x): (usize, &i64)| Some(x.max(at(low, i)?).min(at(high, i)?));
            let elements = x.elements.iter().enumerate().map(clamp).collect::<Option<_>>()?;
            Known::new(dtype, x.dims.clone(), elements)
        }
        ("reshape", [a]) => reshaped(a, declared?),
        ("dynamic_reshape", [a, dims]) => reshaped(a, dims.to_dims().ok()?),
        ("concatenate", all) => joined(dtype, all, integer(op, "dimension").ok()?),
        ("broadcast_in_dim", [a]) if a.elements.len() == 1 => splat(a, declared?),
        ("dynamic_broadcast_in_dim", [a, dims]) if a.elements.len() == 1 => {
            splat(a, dims.to_dims().ok()?)
        }
        ("slice", [a]) if a.dims.len() == 1 => sliced(op, dtype, a),
        _ => None,
    }
}

/// The predicate of a `compare` operation.
fn comparison(op: &Operation) -> Option<fn(i64, i64) -> bool> {
    let Some(Attr::Enum(_, direction)) = op.attr("comparison_direction") else {
        return None;
    };
    match direction {
        0 => Some(|x, y| x == y),
        1 => Some(|x, y| x != y),
        2 => Some(|x, y| x >= y),
        3 => Some(|x, y| x > y),
        4 => Some(|x, y| x <= y),
        5 => Some(|x, y| x < y),
        _ => None,
    }
}

fn zip(dtype: DType, a: &Known, b: &Known, f: impl Fn(i64, i64) -> Option<i64>) -> Option<Known> {
    if a.dims != b.dims {
        return None;
    }
    let pairs = a.elements.iter().zip(&b.elements);
    let elements = pairs.map(|(&x, &y)| Some(wrap(dtype, f(x, y)?))).collect::<Option<_>>()?;
    Known::new(dtype, a.dims.clone(), elements)
}

fn map(dtype: DType, a: &Known, f: impl Fn(i64) -> i64) -> Option<Known> {
    let elements = a.elements.iter().map(|&x| wrap(dtype, f(x))).collect();
    Known::new(dtype, a.dims.clone(), elements)
}

/// The strided slice of a vector that a `slice` operation takes.
fn sliced(op: &Operation, dtype: DType, a: &Known) -> Option<Known> {
    let limit = *numbers(op, "limit_indices")?.first()?;
    let start = *numbers(op, "start_indices")?.first()?;
    let stride = *numbers(op, "strides")?.first()?;
    let range = usize::try_from(start).ok()?..usize::try_from(limit).ok()?;
    let stride = usize::try_from(stride).ok().filter(|s| *s > 0)?;
    let elements: Vec<i64> = a.elements.get(range)?.iter().step_by(stride).copied().collect();
    Known::new(dtype, vec![elements.len()], elements)
}

/// Tensors joined along a dimension.
fn joined(dtype: DType, all: &[&Known], axis: i64) -> Option<Known> {
    let first = all.first()?;
    let axis = usize::try_from(axis).ok().filter(|axis| *axis < first.dims.len())?;
    let fits = |k: &&Known| {
        k.dims.len() == first.dims.len()
            && (0..first.dims.len()).all(|i| i == axis || k.dims[i] == first.dims[i])
    };
    if !all.iter().all(fits) {
        return None;
    }
    let outer: usize = first.dims[..axis].iter().product();
    let inner: usize = first.dims[axis + 1..].iter().product();
    let mut elements = Vec::new();
    for row in 0..outer {
        for known in all {
            let size = known.dims[axis] * inner;
            elements.extend_from_slice(known.elements.get(row * size..(row + 1) * size)?);
        }
    }
    let mut dims = first.dims.clone();
    dims[axis] = all.iter().map(|k| k.dims[axis]).sum();
    Known::new(dtype, dims, elements)
}

fn reshaped(a: &Known, dims: Vec<usize>) -> Option<Known> {
    let count = Shape::new(&dims).ok()?.num_elements();
    (count == a.elements.len()).then(|| Known { dims, ..a.clone() })
}

fn splat(a: &Known, dims: Vec<usize>) -> Option<Known> {
    let count = Shape::new(&dims).ok()?.num_elements();
    (count <= ELEMENTS_MAX).then(|| Known {
        dtype: a.dtype,
        dims,
        elements: vec![a.elements[0]; count],
    })
}

/// An attribute that is a list of integers (or booleans), whatever its rank.
pub(super) fn numbers(op: &Operation, name: &str) -> Option<Vec<i64>> {
    let Attr::Tensor(ty, bytes) = op.attr(name)? else { return None };
    let Type::Tensor(Element::Known(dtype), dims) = &**ty else { return None };
    let dims: Vec<usize> = dims.iter().copied().collect::<Option<_>>()?;
    Known::of_bytes(*dtype, &dims, bytes).map(|known| known.elements)
}

/// The same, which must be there.
pub(super) fn required(op: &Operation, name: &str) -> Result<Vec<i64>> {
    numbers(op, name)
        .ok_or_else(|| err!(InvalidArgument, "{} has no list of numbers '{name}'", op.name))
}

/// An attribute that is one integer.
pub(super) fn integer(op: &Operation, name: &str) -> Result<i64> {
    match op.attr(name) {
        Some(Attr::Int(x, _)) => Ok(*x),
        _ => Err(err!(InvalidArgument, "{} has no number '{name}'", op.name)),
    }
}

/// A list of positions, each less than `end`.
pub(super) fn positions(op: &Operation, name: &str, end: usize) -> Result<Vec<usize>> {
    let position = |x: i64| {
        let found = usize::try_from(x).ok().filter(|p| *p < end);
        found.ok_or_else(|| err!(InvalidArgument, "{x} in '{name}' of {} is too large", op.name))
    };
    required(op, name)?.into_iter().map(position).collect()
}
