//! Arrays of metadata. They stay in the file and are decoded as they are read.

use std::fmt;

use crate::mmap::Bytes;
use crate::value::{GgufString, Value, ValueType, encode_string};

/// An array of values of one type, where it stands in the file; arrays of arrays do not occur.
#[derive(Clone, PartialEq)]
pub struct Array {
    element: ValueType,
    len: usize,
    bytes: Bytes,
}

impl Array {
    /// `bytes` must hold exactly `len` valid elements of the type.
    pub(crate) fn new(element: ValueType, len: usize, bytes: Bytes) -> Array {
        Array { element, len, bytes }
    }

    /// An array of strings, for the writer.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Array {
        let mut bytes = Vec::new();
        let mut len = 0;
        for string in strings {
            encode_string(string.as_ref(), &mut bytes);
            len += 1;
        }
        Array::new(ValueType::String, len, Bytes::from_vec(bytes))
    }

    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as they stand in the file: little-endian numbers, or strings with their 64-bit lengths.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements one by one.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        let mut at = 0usize;
        (0..self.len).map_while(move |_| match self.element.size() {
            Some(size) => {
                let value = Value::decode(self.element, self.bytes.get(at..at.checked_add(size)?)?)?;
                at += size;
                Some(value)
            }
            None => {
                let range = string_range(&self.bytes, at)?;
                at = range.end;
                Some(Value::String(GgufString(self.bytes.slice(range)?)))
            }
        })
    }

    /// The strings, when it is an array of strings.
    pub fn as_strings(&self) -> Option<StringArray<'_>> {
        (self.element == ValueType::String).then_some(StringArray { bytes: &self.bytes, len: self.len })
    }
}

/// Shows the first elements and, where some are left out, how many there are.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str("[")?;
        for (at, value) in self.iter().take(SHOWN).enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            value.fmt(f)?;
        }
        if self.len > SHOWN {
            write!(f, ", ... {} in all", self.len)?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An array of strings where it stands in the file; iterating allocates nothing.
#[derive(Clone, Copy)]
pub struct StringArray<'a> {
    bytes: &'a [u8],
    len: usize,
}

impl<'a> StringArray<'a> {
    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strings in order, as bytes: they need not be UTF-8.
    pub fn iter(&self) -> Strings<'a> {
        Strings { bytes: self.bytes, at: 0, left: self.len }
    }

    /// The string at `index`; it walks over those before it.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.iter().nth(index)
    }
}

impl fmt::Debug for StringArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StringArray({})", self.len)
    }
}

impl<'a> IntoIterator for StringArray<'a> {
    type Item = &'a [u8];
    type IntoIter = Strings<'a>;

    fn into_iter(self) -> Strings<'a> {
        self.iter()
    }
}

/// Iterates over a [`StringArray`].
#[derive(Clone)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let range = string_range(self.bytes, self.at)?;
        self.at = range.end;
        self.left -= 1;
        self.bytes.get(range)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// Where the text of the string lies whose length stands at `at`.
fn string_range(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let start = at.checked_add(8)?;
    let len = u64::from_le_bytes(bytes.get(at..start)?.try_into().ok()?);
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

impl From<&[bool]> for Array {
    fn from(values: &[bool]) -> Array {
        Array::new(ValueType::Bool, values.len(), Bytes::from_vec(values.iter().map(|v| u8::from(*v)).collect()))
    }
}

macro_rules! from_numbers {
    ($($ty:ident $variant:ident),*) => {$(
        impl From<&[$ty]> for Array {
            fn from(values: &[$ty]) -> Array {
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                Array::new(ValueType::$variant, values.len(), Bytes::from_vec(bytes))
            }
        }
    )*};
}

from_numbers!(u8 U8, i8 I8, u16 U16, i16 I16, u32 U32, i32 I32, u64 U64, i64 I64, f32 F32, f64 F64);
