//! The metadata of a file: values under their keys, in the order of the file, with typed access.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::StringArray;
use crate::error::{Error, ErrorKind};
use crate::value::{Value, ValueType};

/// Key-value pairs in the order of the file.
///
/// The typed getters return nothing for a key that is not there, and an error that names file, key, expected and found
/// type for one that holds something else. The `require_` forms turn a missing key into an error too.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: Arc<str>,
    entries: Vec<(Arc<str>, Value)>,
    index: HashMap<Arc<str>, usize>,
}

impl Metadata {
    /// No entries yet; `file` is the name that errors show.
    pub fn new(file: &str) -> Metadata {
        Metadata { file: file.into(), entries: Vec::new(), index: HashMap::new() }
    }

    /// Adds an entry at the end, or returns the value when the key is taken.
    pub fn insert(&mut self, key: &str, value: Value) -> Result<(), Value> {
        if self.index.contains_key(key) {
            return Err(value);
        }
        let key: Arc<str> = key.into();
        self.index.insert(Arc::clone(&key), self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// The value under a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|at| &self.entries[*at].1)
    }

    /// A string that must be UTF-8.
    pub fn string(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(string)) => string.to_str().map(Some).map_err(|fault| {
                self.wrong(
                    key,
                    "a UTF-8 string",
                    format!("bytes that are not UTF-8 from byte {} on", fault.valid_up_to()),
                )
            }),
            Some(other) => Err(self.wrong(key, "a string", other.describe())),
        }
    }

    /// A number that fits, from a value of any integer type.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.integer(key, "an integer from 0 to 4294967295")
    }

    /// A number that fits, from a value of any integer type.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.integer(key, "an integer that is not negative")
    }

    /// A number that fits, from a value of any integer type.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, Error> {
        self.integer(key, "a 64-bit integer")
    }

    /// A float, from a value of either float type; rounded when it is the wide one.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a float", |value| value.as_float().map(|v| v as f32))
    }

    /// A yes or no.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(v) => Some(*v),
            _ => None,
        })
    }

    /// An array of strings, left where it is in the file.
    pub fn strings(&self, key: &str) -> Result<Option<StringArray<'_>>, Error> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(array) => array.as_strings(),
            _ => None,
        })
    }

    /// An array of numbers that fit, from one of any integer type.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        self.array(key, "an array of integers from 0 to 4294967295", |v| v.as_integer()?.try_into().ok())
    }

    /// An array of numbers that fit, from one of any integer type.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, Error> {
        self.array(key, "an array of 32-bit integers", |v| v.as_integer()?.try_into().ok())
    }

    /// An array of floats, from one of either float type.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.array(key, "an array of floats", |v| v.as_float().map(|v| v as f32))
    }

    /// An array of yes or no.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        self.array(key, "an array of bools", |v| match v {
            Value::Bool(v) => Some(*v),
            _ => None,
        })
    }

    /// As [`Metadata::string`], for a key that must be there.
    pub fn require_string(&self, key: &str) -> Result<&str, Error> {
        self.string(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::u32`], for a key that must be there.
    pub fn require_u32(&self, key: &str) -> Result<u32, Error> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::u64`], for a key that must be there.
    pub fn require_u64(&self, key: &str) -> Result<u64, Error> {
        self.u64(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::f32`], for a key that must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32, Error> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::bool`], for a key that must be there.
    pub fn require_bool(&self, key: &str) -> Result<bool, Error> {
        self.bool(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::strings`], for a key that must be there.
    pub fn require_strings(&self, key: &str) -> Result<StringArray<'_>, Error> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// The error for a key that is not there.
    pub fn missing(&self, key: &str) -> Error {
        Error::read(&self.file, ErrorKind::MissingKey { key: key.to_owned() })
    }

    /// The error for a key that holds something unfit; `expected` and `found` complete the message.
    pub fn wrong(&self, key: &str, expected: impl Into<String>, found: impl Into<String>) -> Error {
        let (expected, found) = (expected.into(), found.into());
        Error::read(&self.file, ErrorKind::WrongValue { key: key.to_owned(), expected, found })
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: &str) -> Result<Option<T>, Error> {
        self.typed(key, expected, |value| T::try_from(value.as_integer()?).ok())
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        take: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => take(value).map(Some).ok_or_else(|| self.wrong(key, expected, value.describe())),
        }
    }

    fn array<T>(&self, key: &str, expected: &str, take: impl Fn(&Value) -> Option<T>) -> Result<Option<Vec<T>>, Error> {
        let array = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if array.element_type() != ValueType::String => array,
            Some(other) => return Err(self.wrong(key, expected, other.describe())),
        };
        let mut out = Vec::new();
        for (at, value) in array.iter().enumerate() {
            let item = take(&value).ok_or_else(|| {
                self.wrong(key, expected, format!("{} at element {at} of {}", value.describe(), array.len()))
            })?;
            out.push(item);
        }
        Ok(Some(out))
    }
}
