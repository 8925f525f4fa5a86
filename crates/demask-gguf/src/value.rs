//! Metadata values. Strings and arrays stay where they are in the file; nothing is copied until it is asked for.

use std::fmt;

use crate::array::Array;
use crate::escape::escape;
use crate::mmap::Bytes;

/// The type of a metadata value, with the number that the file stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit unsigned integer.
    U16 = 2,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit unsigned integer.
    U32 = 4,
    /// 32-bit signed integer.
    I32 = 5,
    /// 32-bit float.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// A 64-bit length and that many bytes.
    String = 8,
    /// An element type, a 64-bit count and that many elements.
    Array = 9,
    /// 64-bit unsigned integer.
    U64 = 10,
    /// 64-bit signed integer.
    I64 = 11,
    /// 64-bit float.
    F64 = 12,
}

impl ValueType {
    /// The type of this number, if there is one.
    pub fn from_id(id: u32) -> Option<ValueType> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].into_iter().find(|ty| *ty as u32 == id)
    }

    /// The name, as in `u32`.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Bytes of one value; nothing for strings and arrays.
    pub fn size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the variants are those of `ValueType`
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(GgufString),
    Array(Array),
}

impl Value {
    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
        }
    }

    /// The value as an integer, when it is of an integer type.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The value as a float, when it is of a float type.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    /// What the value is, in a few words for a message: the type, and for a scalar the value.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::String(_) => "a string".to_owned(),
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_type()),
            scalar => format!("{} {scalar}", scalar.value_type()),
        }
    }

    /// Decodes one value of a fixed size; nothing when the type has none or the length is wrong, or for a bool that
    /// is neither 0 nor 1.
    pub(crate) fn decode(ty: ValueType, bytes: &[u8]) -> Option<Value> {
        macro_rules! number {
            ($variant:ident, $ty:ty) => {
                Value::$variant(<$ty>::from_le_bytes(bytes.try_into().ok()?))
            };
        }
        Some(match ty {
            ValueType::U8 => number!(U8, u8),
            ValueType::I8 => number!(I8, i8),
            ValueType::U16 => number!(U16, u16),
            ValueType::I16 => number!(I16, i16),
            ValueType::U32 => number!(U32, u32),
            ValueType::I32 => number!(I32, i32),
            ValueType::U64 => number!(U64, u64),
            ValueType::I64 => number!(I64, i64),
            ValueType::F32 => number!(F32, f32),
            ValueType::F64 => number!(F64, f64),
            ValueType::Bool => match bytes {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return None,
            },
            ValueType::String | ValueType::Array => return None,
        })
    }

    /// Appends the value as it stands in a file, without its type.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::String(string) => encode_string(string.as_bytes(), out),
            Value::Array(array) => {
                out.extend((array.element_type() as u32).to_le_bytes());
                out.extend((array.len() as u64).to_le_bytes());
                out.extend_from_slice(array.as_bytes());
            }
        }
    }
}

pub(crate) fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Shows the value on one line, safe for a terminal: strings escaped and quoted, the head of long arrays.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => write!(f, "\"{v}\""),
            Value::Array(v) => v.fmt(f),
        }
    }
}

/// A string of a file: counted bytes that ought to be UTF-8 but need not be, and may hold NUL.
#[derive(Clone, PartialEq, Eq)]
pub struct GgufString(pub(crate) Bytes);

impl GgufString {
    /// A string of these bytes, for the writer.
    pub fn new(bytes: impl Into<Vec<u8>>) -> GgufString {
        GgufString(Bytes::from_vec(bytes.into()))
    }

    /// The bytes as they stand in the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, when the bytes are UTF-8.
    pub fn to_str(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.0)
    }
}

/// The string [escaped](escape), without quotes.
impl fmt::Display for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escape(self.as_bytes()))
    }
}

impl fmt::Debug for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(GgufString::new(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(GgufString::new(text))
    }
}

impl From<GgufString> for Value {
    fn from(text: GgufString) -> Value {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Value {
        Value::Array(array)
    }
}

macro_rules! from_numbers {
    ($($ty:ident $variant:ident),*) => {$(
        impl From<$ty> for Value {
            fn from(value: $ty) -> Value {
                Value::$variant(value)
            }
        }
    )*};
}

from_numbers!(u8 U8, i8 I8, u16 U16, i16 I16, u32 U32, i32 I32, u64 U64, i64 I64, f32 F32, f64 F64);
