//! Strings: splitting and joining, encoding and decoding.

use thalweg_tensor::*;

use crate::array::Array;
use crate::harness::*;

/// A random string over an alphabet.
fn text(random: &mut Random, alphabet: &[char], most: usize) -> String {
    (0..random.size(0, most)).map(|_| random.pick(alphabet)).collect()
}

fn strings(dims: &[usize], items: Vec<Bytes>) -> Result<Tensor> {
    Tensor::from_strings(Shape::new(dims)?, items)
}

#[test]
fn split_and_join() {
    check("ReduceJoin of StringSplitV2", 80, |random| {
        let separator = random.pick(&[",", "ab", "aa"]);
        let given = text(random, &['a', 'b', ','], 12);
        let pieces: Vec<&str> = given.split(separator).collect();
        let count = pieces.len();
        let call = Call::new("StringSplitV2").tensor(strings(&[1], vec![given.clone().into()])?);
        let call = call.tensor(Tensor::scalar_string(separator));
        let outputs = call.run()?;
        let expected: Vec<Bytes> =
            pieces.iter().map(|p| Bytes::copy_from_slice(p.as_bytes())).collect();
        identical(&outputs[1], &strings(&[count], expected)?).context(|| call.describe())?;
        let places: Vec<i64> = (0..count as i64).flat_map(|i| [0, i]).collect();
        same(&outputs[0], &Array::vector(&places).reshaped(&[count, 2]))?;
        same(&outputs[2], &Array::vector(&[1, count as i64]))?;
        let join = Call::new("ReduceJoin").tensor(outputs[1].clone()).ints(&[0], DType::Int32);
        join.attr("separator", separator).gives_back(&Tensor::scalar_string(given))
    });
}

/// An empty separator splits at runs of whitespace, without empty pieces.
#[test]
fn splits_at_white_space() {
    check("StringSplitV2", 60, |random| {
        let count = random.size(0, 4);
        let lines: Vec<String> =
            (0..count).map(|_| text(random, &['a', 'b', ' ', '\t', '\n'], 10)).collect();
        let (mut places, mut words) = (Vec::new(), Vec::new());
        let mut most = 0;
        for (row, line) in lines.iter().enumerate() {
            for (column, word) in line.split_ascii_whitespace().enumerate() {
                places.extend([row as i64, column as i64]);
                words.push(Bytes::copy_from_slice(word.as_bytes()));
                most = most.max(column as i64 + 1);
            }
        }
        let items = lines.iter().map(|l| Bytes::copy_from_slice(l.as_bytes())).collect();
        let call = Call::new("StringSplitV2").tensor(strings(&[count], items)?);
        let call = call.tensor(Tensor::scalar_string(""));
        let outputs = call.run()?;
        let expected = Array::vector(&places).reshaped(&[words.len(), 2]);
        same(&outputs[0], &expected).context(|| call.describe())?;
        identical(&outputs[1], &strings(&[words.len()], words)?).context(|| call.describe())?;
        same(&outputs[2], &Array::vector(&[count as i64, most])).context(|| call.describe())
    });
}

#[test]
fn joins_along_axes() {
    check("ReduceJoin", 60, |random| {
        let dims = random.dims(1, 3, 3);
        let array = Array::counting(&dims);
        let (axis, written) = random.axis(dims.len());
        let mut left = dims.clone();
        left.remove(axis);
        let joined = crate::array::indices(&left).into_iter().map(|index| {
            let element = |i| array.at(&[&index[..axis], &[i], &index[axis..]].concat());
            let pieces: Vec<String> = (0..dims[axis]).map(|i| element(i).to_string()).collect();
            Bytes::from(pieces.join("-"))
        });
        let expected = strings(&left, joined.collect())?;
        let call = Call::new("ReduceJoin").array(&array, DType::String);
        call.ints(&[written], DType::Int32).attr("separator", "-").gives_back(&expected)
    });
}

#[test]
fn parts_of_strings() {
    check("Substr", 80, |random| {
        let by_character = random.flag();
        let alphabet: &[char] =
            if by_character { &['a', 'ä', '漢', '😀'] } else { &['a', 'b', 'c'] };
        let mut given = text(random, alphabet, 9);
        given.push('z');
        let letters: Vec<char> = given.chars().collect();
        let position = random.between(-(letters.len() as i64), letters.len() as i64);
        let length = random.between(0, 6);
        let begin = position.rem_euclid(letters.len() as i64) as usize;
        let begin = if position == letters.len() as i64 { letters.len() } else { begin };
        let part: String = letters[begin..].iter().take(length as usize).collect();
        let index_type = random.pick(INDICES);
        let call = Call::new("Substr").tensor(Tensor::scalar_string(given));
        let call = call.scalar(position, index_type).scalar(length, index_type);
        let call = call.attr("unit", if by_character { "UTF8_CHAR" } else { "BYTE" });
        call.gives_back(&Tensor::scalar_string(part))
    });
}

#[test]
fn base64() {
    check("DecodeBase64 of EncodeBase64", 60, |random| {
        let dims = random.few_dims(0, 2, 3);
        let count = dims.iter().product();
        let items: Vec<Bytes> = (0..count)
            .map(|_| (0..random.size(0, 20)).map(|_| random.bits() as u8).collect())
            .collect();
        let given = strings(&dims, items)?;
        let call = Call::new("EncodeBase64").tensor(given.clone()).attr("pad", random.flag());
        Call::new("DecodeBase64").tensor(call.output()?).gives_back(&given)
    });
}

/// Numbers converted to text and back, with enough digits to round-trip.
#[test]
fn numbers_as_text() {
    macro_rules! round_trip {
        ($random:ident, $t:ty, $digits:expr, $value:expr) => {{
            let values: Vec<$t> = (0..$random.size(0, 9)).map(|_| $value).collect();
            let given = Tensor::vector(&values)?;
            let call = Call::new("AsString").tensor(given.clone());
            let digits: Option<i64> = $digits;
            let call = match digits {
                Some(digits) => call.attr("shortest", true).attr("precision", digits),
                None => call,
            };
            let call = Call::new("StringToNumber").tensor(call.output()?);
            call.attr("out_type", given.dtype()).gives_back(&given)?;
        }};
    }
    check("StringToNumber of AsString", 60, |random| {
        round_trip!(random, i32, None, random.bits() as i32);
        round_trip!(random, i64, None, random.bits() as i64);
        round_trip!(random, f32, Some(9), random.bits() as i32 as f32 / 1024.0);
        round_trip!(random, f64, Some(17), random.bits() as i64 as f64 / 3e12);
        Ok(())
    });
}

/// Tensors of any dtype with random valid bit patterns.
fn any_tensor(random: &mut Random, dtype: DType) -> Result<Tensor> {
    let dims = random.few_dims(0, 3, 4);
    let shape = Shape::new(&dims)?;
    let count = shape.num_elements();
    if dtype == DType::String {
        return strings(&dims, (0..count).map(|i| vec![random.bits() as u8; i].into()).collect());
    }
    let mask = if dtype == DType::Bool { 1 } else { 255 };
    let bytes: Vec<u8> = (0..count * dtype.size()).map(|_| random.bits() as u8 & mask).collect();
    Tensor::from_bytes(dtype, shape, bytes.into())
}

const PLAIN: &[DType] = &[
    DType::Bool,
    DType::UInt8,
    DType::Int8,
    DType::UInt16,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Half,
    DType::BFloat16,
    DType::Float,
    DType::Double,
    DType::Complex64,
    DType::Complex128,
];

#[test]
fn raw_bytes() {
    check("DecodeRaw", 60, |random| {
        let dtype = random.pick(PLAIN);
        let given = any_tensor(random, dtype)?;
        let count = given.num_elements();
        if count == 0 {
            return Ok(());
        }
        let mut bytes = given.as_bytes()?.to_vec();
        let little = random.flag();
        if !little {
            // Each part of a complex number is byte-swapped by itself.
            let part = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
            bytes.chunks_mut(part).for_each(<[u8]>::reverse);
        }
        let call = Call::new("DecodeRaw").tensor(Tensor::scalar_string(bytes));
        let call = call.attr("out_type", dtype).attr("little_endian", little);
        call.gives_back(&given.reshaped(Shape::new(&[count])?)?)
    });
}

#[test]
fn serialized_tensors() {
    check("ParseTensor of SerializeTensor", 80, |random| {
        let dtype = random.pick(&[PLAIN, &[DType::String, DType::UInt32, DType::UInt64]].concat());
        let given = any_tensor(random, dtype)?;
        let call = Call::new("SerializeTensor").tensor(given.clone());
        let call = Call::new("ParseTensor").tensor(call.output()?);
        call.attr("out_type", dtype).gives_back(&given)
    });
}
