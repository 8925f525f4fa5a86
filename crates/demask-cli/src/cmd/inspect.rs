//! `demask inspect`: what a GGUF file holds.

use std::collections::BTreeMap;

use anyhow::Result;
use demask_gguf::{Array, Gguf, TensorInfo, Value, ValueType, escape};
use serde::Serialize;
use serde_json::Value as Json;

use super::replay;
use crate::args::InspectArgs;
use crate::failure::Misuse;
use crate::output::Out;

/// Bytes of a string that are shown.
const STRING: usize = 72;
/// Elements of an array that are shown.
const ELEMENTS: usize = 6;
/// Bytes of a string in an array that are shown.
const ELEMENT: usize = 24;
/// Elements of an array that stand in JSON; of longer ones, this many of the first.
const JSON_ELEMENTS: usize = 16;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    if replay::is_trace(&args.file) {
        return replay::run(args);
    }
    if args.svg.is_some() {
        let name = escape(args.file.as_os_str().as_encoded_bytes());
        return Err(Misuse::new(
            format!("--svg draws traces, but `{name}` is none"),
            "`demask run --trace FILE` writes one",
        )
        .into());
    }
    let gguf = Gguf::open(&args.file)?;
    let mut out = Out::stdout();
    if args.json {
        out.json(&Contents::new(&gguf))?
    } else {
        print(&gguf, &mut out)?
    }
    out.flush()
}

fn print(gguf: &Gguf, out: &mut Out) -> Result<()> {
    out.line(&format!("file      {}", gguf.name()))?;
    let parts = if gguf.parts() > 1 { format!(" in {} files", gguf.parts()) } else { String::new() };
    let size = gguf.file_bytes();
    out.line(&format!("size      {}{parts}", bytes(size)))?;
    out.line(&format!("format    GGUF version {}, alignment {}", gguf.version(), gguf.alignment()))?;

    out.line(&format!("\nmetadata  {}", entries(gguf.metadata().len(), "entry", "entries")))?;
    let keys: Vec<String> = gguf.metadata().iter().map(|(key, _)| short(key.as_bytes(), STRING)).collect();
    let types: Vec<String> = gguf.metadata().iter().map(|(_, value)| type_name(value)).collect();
    let (key_width, type_width) = (widest(&keys), widest(&types));
    for ((key, ty), (_, value)) in keys.iter().zip(&types).zip(gguf.metadata().iter()) {
        out.line(&format!("  {key:key_width$}  {ty:type_width$}  {}", shown(value, STRING)))?;
    }

    let count = entries(gguf.tensors().len(), "tensor", "tensors");
    let weights: u64 = gguf.tensors().iter().fold(0, |sum, tensor| sum.saturating_add(tensor.elements()));
    out.line(&format!("\ntypes     {count}, {weights} weights"))?;
    for (name, sum) in by_type(gguf) {
        out.line(&format!("  {name:8}  {:>5}  {}", sum.tensors, bytes(sum.bytes)))?;
    }

    out.line("\ntensors")?;
    let names: Vec<String> = gguf.tensors().iter().map(|tensor| escape(&tensor.name)).collect();
    let width = widest(&names);
    for (name, tensor) in names.iter().zip(gguf.tensors()) {
        out.line(&format!("  {name:width$}  {:8}  {}", tensor.ty.name(), tensor.shape()))?;
    }
    Ok(())
}

fn entries(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The width of a column; very long names stand out of it.
fn widest(texts: &[String]) -> usize {
    texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).min(48)
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", count as f64 / 1_073_741_824.0),
    }
}

fn type_name(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("{}[{}]", array.element_type(), array.len()),
        scalar => scalar.value_type().to_string(),
    }
}

/// A value on one line, shortened.
fn shown(value: &Value, longest: usize) -> String {
    match value {
        Value::String(text) if text.as_bytes().len() > longest => {
            format!("\"{}\" ({} bytes)", short(text.as_bytes(), longest), text.as_bytes().len())
        }
        Value::String(text) => format!("\"{text}\""),
        Value::Array(array) => {
            let mut shown: Vec<String> =
                array.iter().take(ELEMENTS).map(|value| self::shown(&value, ELEMENT)).collect();
            if array.len() > ELEMENTS {
                shown.push("...".to_owned());
            }
            format!("[{}]", shown.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// At most `longest` bytes as printable text, cut between characters.
fn short(bytes: &[u8], longest: usize) -> String {
    if bytes.len() <= longest {
        return escape(bytes);
    }
    let cut = (longest.saturating_sub(3)..=longest).rev().find(|&at| bytes[at] & 0xc0 != 0x80).unwrap_or(longest);
    format!("{}...", escape(&bytes[..cut]))
}

/// What all tensors of a type come to.
#[derive(Default, Serialize)]
struct Sum {
    tensors: usize,
    bytes: u64,
}

/// The tensor types in use, those with the most bytes first.
fn by_type(gguf: &Gguf) -> Vec<(&'static str, Sum)> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let sum = sums.entry(tensor.ty.name()).or_default();
        sum.tensors += 1;
        sum.bytes = sum.bytes.saturating_add(tensor.byte_len());
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
    sums
}

/// The object of `--json`. Its fields are an interface: new ones may come, none goes or changes its meaning.
#[derive(Serialize)]
struct Contents<'a> {
    /// `gguf`.
    kind: &'static str,
    /// The path as given, escaped.
    file: &'a str,
    /// Version of the format.
    version: u32,
    /// Alignment of tensors.
    alignment: u64,
    /// Files of a split model.
    parts: usize,
    /// Size of all files.
    bytes: u64,
    /// Metadata in the order of the file.
    metadata: Vec<Entry>,
    /// Tensors and bytes per type.
    types: BTreeMap<&'static str, Sum>,
    /// Tensors in the order of the file.
    tensors: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Entry {
    key: String,
    /// `string`, `u32`...; arrays: the type of their elements.
    #[serde(rename = "type")]
    ty: &'static str,
    /// Elements of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<usize>,
    /// The value; of an array of more than 16 elements, the first 16. What is not UTF-8 is escaped.
    value: Json,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: &'static str,
    /// The length of a row first.
    shape: &'a [u64],
    bytes: u64,
    /// Where the data begins in its file.
    offset: u64,
    /// Which file holds it.
    part: usize,
}

impl<'a> Contents<'a> {
    fn new(gguf: &'a Gguf) -> Contents<'a> {
        let entry = |(key, value): (&str, &Value)| {
            let (ty, len) = match value {
                Value::Array(array) => (array.element_type(), Some(array.len())),
                scalar => (scalar.value_type(), None),
            };
            Entry { key: key.to_owned(), ty: ValueType::name(ty), len, value: json(value) }
        };
        let tensor = |tensor: &'a TensorInfo| Tensor {
            name: &tensor.name,
            ty: tensor.ty.name(),
            shape: &tensor.dims,
            bytes: tensor.byte_len(),
            offset: tensor.offset(),
            part: tensor.part(),
        };
        Contents {
            kind: "gguf",
            file: gguf.name(),
            version: gguf.version(),
            alignment: gguf.alignment(),
            parts: gguf.parts(),
            bytes: gguf.file_bytes(),
            metadata: gguf.metadata().iter().map(entry).collect(),
            types: by_type(gguf).into_iter().collect(),
            tensors: gguf.tensors().iter().map(tensor).collect(),
        }
    }
}

fn json(value: &Value) -> Json {
    match value {
        Value::String(text) => text.to_str().map_or_else(|_| Json::from(escape(text.as_bytes())), Json::from),
        Value::Array(array) => array_json(array),
        Value::Bool(value) => Json::from(*value),
        Value::U64(value) => Json::from(*value),
        Value::F32(value) => Json::from(*value),
        Value::F64(value) => Json::from(*value),
        other => other.as_integer().and_then(|integer| i64::try_from(integer).ok()).map_or(Json::Null, Json::from),
    }
}

fn array_json(array: &Array) -> Json {
    array.iter().take(JSON_ELEMENTS).map(|value| json(&value)).collect()
}
