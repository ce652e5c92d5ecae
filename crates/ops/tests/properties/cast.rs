//! Conversions between dtypes, by value and by bits.

use thalweg_tensor::*;

use crate::harness::*;

/// Casts values to one type and compares with Rust's `as`.
macro_rules! casts {
    ($values:expr => $($to:ty),+) => {{
        let values = &$values;
        $(
            let expected: Vec<$to> = values.iter().map(|&v| v as $to).collect();
            Call::new("Cast")
                .tensor(Tensor::vector(values)?)
                .attr("DstT", <$to as Element>::DTYPE)
                .gives_back(&Tensor::vector(&expected)?)?;
        )+
    }};
}

/// Random bit patterns of a type.
macro_rules! any {
    ($random:ident, $t:ty) => {
        (0..$random.size(0, 9)).map(|_| $random.bits() as $t).collect::<Vec<$t>>()
    };
}

/// Between integers, bits are truncated or sign-extended; conversion to floats rounds to nearest.
#[test]
fn from_integers() {
    macro_rules! from {
        ($($from:ty),+) => { $(
            check(concat!("Cast from ", stringify!($from)), 40, |random| {
                casts!(any!(random, $from) =>
                    i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
                Ok(())
            });
        )+ };
    }
    from!(i8, i16, i32, i64, u8, u16, u32, u64);
}

/// Conversion to integers truncates, for values in range.
#[test]
fn from_floats() {
    check("Cast from float", 40, |random| {
        let quarters: Vec<i64> = (0..random.size(0, 9)).map(|_| random.between(0, 508)).collect();
        let singles: Vec<f32> = quarters.iter().map(|&q| q as f32 / 4.0).collect();
        let doubles: Vec<f64> = quarters.iter().map(|&q| q as f64 / 4.0).collect();
        casts!(singles => i8, i16, i32, i64, u8, u16, u32, u64, f64);
        casts!(doubles => i8, i16, i32, i64, u8, u16, u32, u64, f32);
        let below: Vec<f64> = doubles.iter().map(|v| -v).collect();
        casts!(below => i8, i16, i32, i64, f32);
        Ok(())
    });
}

/// A double is rounded to the nearest float; infinities and NaN are preserved.
#[test]
fn from_double_to_float() {
    check("Cast from double to float", 60, |random| {
        let mut values: Vec<f64> = (0..random.size(0, 9))
            .map(|_| {
                (random.between(-1 << 50, 1 << 50) as f64)
                    * 2f64.powi(random.between(-150, 90) as i32)
            })
            .filter(|v| v.abs() >= f64::from(f32::MIN_POSITIVE))
            .collect();
        values.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY]);
        casts!(values => f32);
        Ok(())
    });
}

#[test]
fn to_and_from_half() {
    check("Cast of half", 60, |random| {
        let values: Vec<f32> =
            (0..random.size(0, 9)).map(|_| random.between(-40000, 40000) as f32 / 8.0).collect();
        let call = Call::new("Cast").tensor(Tensor::vector(&values)?);
        let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
        let brains: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
        call.clone().attr("DstT", DType::Half).gives_back(&Tensor::vector(&halves)?)?;
        call.attr("DstT", DType::BFloat16).gives_back(&Tensor::vector(&brains)?)?;
        let wide: Vec<f64> = halves.iter().map(|h| h.to_f64()).collect();
        let call = Call::new("Cast").tensor(Tensor::vector(&halves)?);
        call.attr("DstT", DType::Double).gives_back(&Tensor::vector(&wide)?)
    });
}

#[test]
fn to_and_from_truth() {
    check("Cast of bool", 40, |random| {
        let dims = random.dims(0, 3, 4);
        let array = random.array(&dims, -1, 1);
        let dtype = random.pick(NUMBERS);
        let call = Call::new("Cast").array(&array, dtype).attr("DstT", DType::Bool);
        let truth = array.map(|v| f64::from(v != 0.0));
        call.gives(&truth)?;
        let call = Call::new("Cast").array(&truth, DType::Bool).attr("DstT", dtype);
        call.gives(&truth)
    });
}

/// Bitcast between a wider dtype and a dimension of a narrower one, in both directions.
#[test]
fn bits() {
    check("Bitcast", 60, |random| {
        let types =
            [DType::UInt8, DType::Int16, DType::Float, DType::Int32, DType::Int64, DType::Double];
        let (from, to) = (random.pick(&types), random.pick(&types));
        let mut dims = random.dims(0, 3, 3);
        let (size, other) = (from.size(), to.size());
        let mut result = dims.clone();
        if other > size {
            dims.push(other / size);
        } else if size > other {
            result.push(size / other);
        }
        let shape = Shape::new(&dims)?;
        let bytes: Vec<u8> =
            (0..shape.num_elements() * size).map(|_| random.bits() as u8).collect();
        let given = Tensor::from_bytes(from, shape, bytes.clone().into())?;
        let call = Call::new("Bitcast").tensor(given.clone()).attr("type", to);
        let expected = Tensor::from_bytes(to, Shape::new(&result)?, bytes.into())?;
        call.gives_back(&expected)?;
        Call::new("Bitcast").tensor(expected).attr("type", from).gives_back(&given)
    });
}
