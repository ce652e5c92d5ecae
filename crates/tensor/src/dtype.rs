//! Element types: TensorFlow's names and numbers, and the Rust types that hold them.

use std::fmt;

use half::{bf16, f16};
use num_complex::Complex;
use thalweg_proto::DataType;

use crate::float8::{Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz, Float8E5m2, Float8E5m2fnuz};
use crate::{Result, err};

macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $size:literal;)+) => {
        /// The type of a tensor's elements. The numbers are TensorFlow's `DataType`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are TensorFlow's")]
        pub enum DType { $($variant = $number),+ }

        impl DType {
            /// Every dtype, in the order of its number.
            pub const ALL: &'static [DType] = &[$(DType::$variant),+];

            /// The name that op definitions use: `float`, `int32`, `resource`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),+ }
            }

            /// Bytes per element; 0 for strings, resources and variants, which are objects.
            #[inline]
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $size),+ }
            }

            fn from_number(number: i32) -> Option<DType> {
                match number { $($number => Some(DType::$variant),)+ _ => None }
            }
        }
    };
}

dtypes! {
    Float = 1, "float", 4;
    Double = 2, "double", 8;
    Int32 = 3, "int32", 4;
    UInt8 = 4, "uint8", 1;
    Int16 = 5, "int16", 2;
    Int8 = 6, "int8", 1;
    String = 7, "string", 0;
    Complex64 = 8, "complex64", 8;
    Int64 = 9, "int64", 8;
    Bool = 10, "bool", 1;
    QInt8 = 11, "qint8", 1;
    QUInt8 = 12, "quint8", 1;
    QInt32 = 13, "qint32", 4;
    BFloat16 = 14, "bfloat16", 2;
    QInt16 = 15, "qint16", 2;
    QUInt16 = 16, "quint16", 2;
    UInt16 = 17, "uint16", 2;
    Complex128 = 18, "complex128", 16;
    Half = 19, "half", 2;
    Resource = 20, "resource", 0;
    Variant = 21, "variant", 0;
    UInt32 = 22, "uint32", 4;
    UInt64 = 23, "uint64", 8;
    Float8E5m2 = 24, "float8_e5m2", 1;
    Float8E4m3fn = 25, "float8_e4m3fn", 1;
    Float8E4m3fnuz = 26, "float8_e4m3fnuz", 1;
    Float8E4m3b11fnuz = 27, "float8_e4m3b11fnuz", 1;
    Float8E5m2fnuz = 28, "float8_e5m2fnuz", 1;
    Int4 = 29, "int4", 1;
    UInt4 = 30, "uint4", 1;
    Int2 = 31, "int2", 1;
    UInt2 = 32, "uint2", 1;
}

/// Offset between a dtype's number and that of its reference form.
const REFERENCE_OFFSET: i32 = 100;

impl DType {
    /// The dtype with this number in TensorFlow's `DataType`; a reference type gives its base.
    pub fn from_proto(number: i32) -> Result<DType> {
        let base = if number > REFERENCE_OFFSET { number - REFERENCE_OFFSET } else { number };
        DType::from_number(base).ok_or_else(|| {
            let name = DataType::try_from(number).map_or("unknown", |t| t.as_str_name());
            err!(InvalidArgument, "{number} ({name}) is not a data type a tensor can have")
        })
    }

    /// TensorFlow's number.
    pub fn to_proto(self) -> i32 {
        self as i32
    }

    /// The dtype that op definitions call by this name; `DT_` spellings too.
    pub fn from_name(name: &str) -> Option<DType> {
        if let Some(upper) = name.strip_prefix("DT_") {
            return DType::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(upper));
        }
        DType::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// Whether elements are objects (strings, resources, variants) rather than plain bytes.
    pub fn is_object(self) -> bool {
        self.size() == 0
    }

    /// Real floating point, of any width.
    pub fn is_floating(self) -> bool {
        matches!(
            self,
            DType::Float
                | DType::Double
                | DType::Half
                | DType::BFloat16
                | DType::Float8E5m2
                | DType::Float8E4m3fn
                | DType::Float8E4m3fnuz
                | DType::Float8E4m3b11fnuz
                | DType::Float8E5m2fnuz
        )
    }

    /// Complex, of either width.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::Complex64 | DType::Complex128)
    }

    /// Signed or unsigned integer; not bool, not quantized.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            DType::Int8
                | DType::Int16
                | DType::Int32
                | DType::Int64
                | DType::UInt8
                | DType::UInt16
                | DType::UInt32
                | DType::UInt64
                | DType::Int4
                | DType::UInt4
                | DType::Int2
                | DType::UInt2
        )
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type whose values are the elements of tensors of one dtype.
///
/// # Safety
/// `size_of::<Self>() == DTYPE.size()`, the alignment divides 64, and every byte pattern that a
/// buffer of this dtype can hold is a valid `Self`. Buffers hold zeroes, values written as `Self`,
/// stale bytes of other numeric buffers (never for `bool`) or bytes checked by [`crate::Tensor`].
pub unsafe trait Element:
    Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The dtype whose elements these are.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $dtype:ident),+ $(,)?) => {
        $(
            // SAFETY: the size matches the table above (checked below), every bit pattern is a
            // value of a number type, and for `bool` the buffers only hold 0 and 1.
            unsafe impl Element for $t { const DTYPE: DType = DType::$dtype; }
        )+
        #[test]
        fn element_sizes_match() {
            $(assert_eq!(size_of::<$t>(), DType::$dtype.size(), "{}", stringify!($t));)+
        }
    };
}

macro_rules! quantized {
    ($($(#[$doc:meta])* $name:ident($t:ty);)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $t);
    )+ };
}

quantized! {
    /// A quantized number in 8 signed bits.
    QInt8(i8);
    /// A quantized number in 8 unsigned bits.
    QUInt8(u8);
    /// A quantized number in 16 signed bits.
    QInt16(i16);
    /// A quantized number in 16 unsigned bits.
    QUInt16(u16);
    /// A quantized number in 32 signed bits.
    QInt32(i32);
}

elements! {
    f32 => Float, f64 => Double, i32 => Int32, u8 => UInt8, i16 => Int16, i8 => Int8,
    Complex<f32> => Complex64, i64 => Int64, bool => Bool, QInt8 => QInt8, QUInt8 => QUInt8,
    QInt32 => QInt32, bf16 => BFloat16, QInt16 => QInt16, QUInt16 => QUInt16, u16 => UInt16,
    Complex<f64> => Complex128, f16 => Half, u32 => UInt32, u64 => UInt64,
    Float8E5m2 => Float8E5m2, Float8E4m3fn => Float8E4m3fn, Float8E4m3fnuz => Float8E4m3fnuz,
    Float8E4m3b11fnuz => Float8E4m3b11fnuz, Float8E5m2fnuz => Float8E5m2fnuz,
}
