//! One file: the header, the metadata, the tensor directory. Every length and product is checked; nothing is
//! allocated on a claimed size.

use std::collections::HashMap;
use std::ops::Range;

use crate::array::Array;
use crate::content;
use crate::cursor::Cursor;
use crate::error::ErrorKind;
use crate::escape::escape_short;
use crate::metadata::Metadata;
use crate::mmap::Bytes;
use crate::tensor::TensorInfo;
use crate::types::TensorType;
use crate::value::{GgufString, Value, ValueType};

/// The four bytes that every file starts with.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// The alignment of a file that does not say.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
/// The key under which a file says its alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// The longest key, in bytes.
pub(crate) const MAX_KEY_BYTES: u64 = 65535;
/// The longest tensor name, in bytes.
pub(crate) const MAX_NAME_BYTES: u64 = 64;
/// The most dimensions of a tensor.
pub(crate) const MAX_DIMS: u32 = 4;
/// What one file holds.
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

/// Reads a file whose bytes are at hand; `name` is what errors of the metadata show.
pub(crate) fn read(bytes: Bytes, name: &str) -> Result<Part, ErrorKind> {
    let mut cursor = Cursor::new(&bytes);
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.count("tensors", 25)?;
    let entry_count = cursor.count("metadata entries", 14)?;
    let mut metadata = Metadata::new(name);
    for number in 1..=entry_count {
        read_entry(&mut cursor, number, &mut metadata)?;
    }
    let alignment = read_alignment(&metadata)?;
    let mut tensors = Vec::new();
    let mut names = HashMap::new();
    for number in 1..=tensor_count {
        let at = cursor.at as u64;
        let tensor = read_tensor(&mut cursor, number, alignment)?;
        if let Some(first) = names.insert(tensor.name.clone(), number) {
            return Err(ErrorKind::Malformed {
                place: format!("tensor {number} of {tensor_count}"),
                at,
                expected: "a name of its own".to_owned(),
                found: format!("`{}`, the name of tensor {first}", escape_short(tensor.name.as_bytes(), 80)),
            });
        }
        tensors.push(tensor);
    }
    let directory_end = cursor.at as u64;
    place_data(&mut tensors, directory_end, alignment, bytes.len() as u64)?;
    Ok(Part { bytes, version, alignment, metadata, tensors })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, ErrorKind> {
    let file = cursor.file;
    if file.starts_with(b"FUGG") {
        return Err(ErrorKind::ByteOrder);
    }
    if !file.starts_with(MAGIC) && !MAGIC.starts_with(file) {
        return Err(content::describe(file));
    }
    cursor.take(4, format_args!("the magic"))?;
    let version = cursor.u32(format_args!("the version"))?;
    match version {
        2 | 3 => Ok(version),
        _ if version & 0xffff == 0 && version != 0 => Err(ErrorKind::ByteOrder),
        _ => Err(ErrorKind::Version { found: version }),
    }
}

fn read_entry(cursor: &mut Cursor<'_>, number: u64, metadata: &mut Metadata) -> Result<(), ErrorKind> {
    let at = cursor.at as u64;
    let range = cursor.string(format_args!("the key of metadata entry {number}"))?;
    let place = || format!("the key of metadata entry {number}");
    let key = text(cursor, range, MAX_KEY_BYTES, at, &place)?;
    let shown = escape_short(key.as_bytes(), 80);
    let type_at = cursor.at as u64;
    let ty = cursor.value_type(format_args!("the type of metadata key `{shown}`"))?;
    let place = format_args!("the value of metadata key `{shown}`");
    let value = match ty {
        ValueType::String => {
            let range = cursor.string(place)?;
            Value::String(GgufString(cursor.slice(range)?))
        }
        ValueType::Array => Value::Array(read_array(cursor, &shown)?),
        scalar => {
            let at = cursor.at as u64;
            let bytes = cursor.take(scalar.size().unwrap_or(0) as u64, place)?;
            Value::decode(scalar, &cursor.file[bytes.clone()])
                .ok_or_else(|| bad_bool(place.to_string(), at, cursor.file[bytes.start]))?
        }
    };
    metadata.insert(key, value).map_err(|_| ErrorKind::Malformed {
        place: format!("metadata entry {number}"),
        at: type_at,
        expected: "a key of its own".to_owned(),
        found: format!("`{shown}` a second time"),
    })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, ErrorKind> {
    let at = cursor.at as u64;
    let element = cursor.value_type(format_args!("the element type of metadata key `{key}`"))?;
    if element == ValueType::Array {
        return Err(ErrorKind::Malformed {
            place: format!("the element type of metadata key `{key}`"),
            at,
            expected: "a scalar or a string".to_owned(),
            found: "an array inside an array".to_owned(),
        });
    }
    let count_at = cursor.at as u64;
    let count = cursor.u64(format_args!("the array length of metadata key `{key}`"))?;
    let place = format!("the array of {count} {element} of metadata key `{key}`");
    let start = cursor.at;
    let needed = count.checked_mul(element.size().unwrap_or(8) as u64);
    let (Some(needed), Ok(len)) = (needed, usize::try_from(count)) else {
        let (needed, left) = (u64::MAX, cursor.left());
        return Err(ErrorKind::Truncated { place, at: count_at, needed, left });
    };
    if element == ValueType::String {
        if needed > cursor.left() {
            return Err(ErrorKind::Truncated { place, at: start as u64, needed, left: cursor.left() });
        }
        for index in 0..count {
            cursor.string(format_args!("string {index} of metadata key `{key}`"))?;
        }
    } else {
        let range = cursor.take(needed, format_args!("{place}"))?;
        if element == ValueType::Bool
            && let Some(index) = cursor.file[range.clone()].iter().position(|byte| *byte > 1)
        {
            return Err(bad_bool(place, (start + index) as u64, cursor.file[start + index]));
        }
    }
    Ok(Array::new(element, len, cursor.slice(start..cursor.at)?))
}

fn bad_bool(place: String, at: u64, found: u8) -> ErrorKind {
    ErrorKind::Malformed { place, at, expected: "a bool of 0 or 1".to_owned(), found: found.to_string() }
}

fn read_alignment(metadata: &Metadata) -> Result<u64, ErrorKind> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    legal_alignment(value).ok_or_else(|| ErrorKind::WrongValue {
        key: ALIGNMENT_KEY.to_owned(),
        expected: "a power of two from 8 on".to_owned(),
        found: value.describe(),
    })
}

/// The alignment in a value, if it is an integer that every reader takes.
pub(crate) fn legal_alignment(value: &Value) -> Option<u64> {
    let alignment = u64::from(u32::try_from(value.as_integer()?).ok()?);
    (alignment >= 8 && alignment.is_power_of_two()).then_some(alignment)
}

/// Reads a directory entry; the position is still an offset into the data section.
fn read_tensor(cursor: &mut Cursor<'_>, number: u64, alignment: u64) -> Result<TensorInfo, ErrorKind> {
    let at = cursor.at as u64;
    let range = cursor.string(format_args!("the name of tensor {number}"))?;
    let place = || format!("the name of tensor {number}");
    let name = text(cursor, range, MAX_NAME_BYTES, at, &place)?.to_owned();
    let shown = escape_short(name.as_bytes(), 80);

    let dims_at = cursor.at as u64;
    let count = cursor.u32(format_args!("the dimension count of tensor `{shown}`"))?;
    if count > MAX_DIMS {
        return Err(ErrorKind::Malformed {
            place: format!("the dimension count of tensor `{shown}`"),
            at: dims_at,
            expected: format!("at most {MAX_DIMS}"),
            found: count.to_string(),
        });
    }
    let mut dims = Vec::new();
    for _ in 0..count {
        dims.push(cursor.u64(format_args!("the dimensions of tensor `{shown}`"))?);
    }
    let type_at = cursor.at as u64;
    let ty = TensorType(cursor.u32(format_args!("the type of tensor `{shown}`"))?);
    if !ty.is_known() {
        return Err(ErrorKind::UnknownType { tensor: name, at: type_at, ty });
    }
    let offset_at = cursor.at as u64;
    let offset = cursor.u64(format_args!("the offset of tensor `{shown}`"))?;
    if !offset.is_multiple_of(alignment) {
        return Err(ErrorKind::Malformed {
            place: format!("the offset of tensor `{shown}`"),
            at: offset_at,
            expected: format!("a multiple of the alignment {alignment}"),
            found: offset.to_string(),
        });
    }
    TensorInfo::new(name, dims, ty, offset).map_err(|(expected, found)| ErrorKind::Malformed {
        place: format!("the shape of tensor `{shown}`"),
        at: dims_at,
        expected,
        found,
    })
}

/// Turns offsets into positions in the file and checks that the data is there and that no two tensors share bytes.
fn place_data(
    tensors: &mut [TensorInfo],
    directory_end: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<(), ErrorKind> {
    let data_start = directory_end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    let mut short = None;
    let mut missing = 0;
    for tensor in tensors.iter_mut() {
        let start = data_start.saturating_add(tensor.start);
        let end = start.saturating_add(tensor.byte_len());
        tensor.start = start;
        if end > file_bytes {
            missing = missing.max(end - file_bytes);
            short.get_or_insert((tensor.name.clone(), start, end));
        }
    }
    if let Some((tensor, start, end)) = short {
        return Err(ErrorKind::MissingData { tensor, start, end, file_bytes, missing });
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|tensor| tensor.byte_len() > 0).collect();
    order.sort_by_key(|tensor| tensor.start);
    for pair in order.windows(2) {
        let end = pair[0].start + pair[0].byte_len();
        if pair[1].start < end {
            return Err(ErrorKind::Malformed {
                place: format!("the data of tensor `{}`", escape_short(pair[1].name.as_bytes(), 80)),
                at: pair[1].start,
                expected: "bytes of its own".to_owned(),
                found: format!("tensor `{}` up to byte {end}", escape_short(pair[0].name.as_bytes(), 80)),
            });
        }
    }
    Ok(())
}

/// A key or a name: not empty, not too long, UTF-8.
fn text<'a>(
    cursor: &Cursor<'a>,
    range: Range<usize>,
    limit: u64,
    at: u64,
    place: &dyn Fn() -> String,
) -> Result<&'a str, ErrorKind> {
    let bytes = &cursor.file[range];
    let found = match std::str::from_utf8(bytes) {
        Ok(_) if bytes.is_empty() => "nothing".to_owned(),
        Ok(_) if bytes.len() as u64 > limit => format!("{} bytes", bytes.len()),
        Ok(text) => return Ok(text),
        Err(_) => format!("`{}`", escape_short(bytes, 80)),
    };
    Err(ErrorKind::Malformed { place: place(), at, expected: format!("1 to {limit} bytes of UTF-8"), found })
}
