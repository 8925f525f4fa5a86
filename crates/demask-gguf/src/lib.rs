//! Reads and writes GGUF files; knows bytes, not models.
//!
//! # The format
//!
//! A GGUF file is a header, a list of metadata, a directory of tensors, and one data section. All numbers are
//! little-endian and nothing before the data section is padded. With `u32` and `u64` for unsigned integers of that
//! many bits, and `string` for a `u64` length followed by that many bytes:
//!
//! ```text
//! file       header  entry * entry_count  tensor * tensor_count  padding  data
//! header     "GGUF"  u32 version  u64 tensor_count  u64 entry_count
//! entry      string key  u32 value_type  value
//! value      a number, a bool (one byte), a string or an array
//! array      u32 value_type  u64 count  value * count
//! tensor     string name  u32 dim_count  u64 dim * dim_count  u32 tensor_type  u64 offset
//! ```
//!
//! **Versions** 2 and 3 are laid out alike; version 3 merely allows big-endian files too. Version 1 had 32-bit counts.
//!
//! **Value types** are numbered from 0: `u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64` ([`ValueType`]).
//!
//! **Alignment** is the integer under `general.alignment`, or 32. The data section starts at the next multiple of it
//! after the directory, and every tensor at a multiple of it from there; `offset` counts from the start of the data
//! section.
//!
//! **Tensors.** The first dimension is the length of a row; rows follow one another without gaps, so that a matrix of
//! `dims` `[width, rows]` holds `rows` vectors of `width` weights. Quantised types pack a row into quant blocks, each a
//! fixed number of weights in a fixed number of bytes; a row is a whole number of them ([`TensorType`]).
//!
//! **Split models** are several files named `NAME-00001-of-0000N.gguf` and so on. Each is a whole GGUF file with tensors
//! of its own and says in its metadata which part it is (`split.no`, from 0), of how many (`split.count`), and how many
//! tensors all parts hold (`split.tensors.count`). The other metadata is in the first part only. Any part may be opened:
//! the others are found by their names.
//!
//! # What is refused
//!
//! A file is hostile until it has been checked. [`Gguf::open`] reads header, metadata and directory, checks them whole,
//! and returns either a model every tensor of which lies in the file, or an [`Error`] with the place. Nothing is
//! allocated on the word of a length that the rest of the file could not hold, and nothing recurses. Where the text of
//! the format and its readers differ, this crate decides as follows, always and everywhere alike:
//!
//! | | taken | refused |
//! |---|---|---|
//! | version | 2, 3 | all others; big-endian files |
//! | alignment | powers of two from 8 on, of any integer type | 0, 4, 24 and the like, and other types |
//! | key | 1 to 65535 bytes of UTF-8, control characters too | empty, longer, not UTF-8, a second time |
//! | string value | any bytes, also NUL and what is not UTF-8 | |
//! | bool | 0 and 1, also in arrays | other bytes |
//! | array | of numbers, bools or strings; empty | of arrays |
//! | tensor name | 1 to 64 bytes of UTF-8 | empty, longer, not UTF-8, a second time |
//! | dimensions | 0 (a scalar) to 4; a dimension may be 0 | more; counts or sizes past 63 bits |
//! | row | a whole number of quant blocks | a broken block |
//! | tensor type | all known ones, runnable or not | removed and unknown ids |
//! | data | any order, gaps, bytes after the end, no padding at the end | shared bytes, misaligned, past the end |
//! | counts | up to 131072 entries and as many tensors per file | more |
//! | path | regular files, through links too | directories, pipes, sockets, devices |
//!
//! Strings of a file can hold anything; [`escape`] makes them fit for a terminal, and errors are escaped already.

mod array;
mod content;
mod cursor;
mod destination;
mod error;
mod escape;
mod metadata;
mod mmap;
mod reader;
mod split;
mod tensor;
mod types;
mod value;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use array::{Array, StringArray, Strings};
pub use destination::Destination;
pub use error::{Error, ErrorKind};
pub use escape::escape;
pub use metadata::Metadata;
pub use mmap::{Bytes, TensorBytes};
pub use tensor::TensorInfo;
pub use types::TensorType;
pub use value::{GgufString, Value, ValueType};
pub use writer::Writer;

use reader::Part;

/// An open model: metadata and tensor directory in memory, tensor data where it lies.
#[derive(Debug)]
pub struct Gguf {
    name: String,
    path: Option<PathBuf>,
    version: u32,
    alignment: u64,
    files: Vec<Bytes>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Opens a file, and with any part of a split model all its parts. Tensor data is mapped, not read.
    ///
    /// # Errors
    /// When the path is no regular file, the file is no GGUF file of version 2 or 3, or anything in it breaks the rules
    /// that this crate's documentation lists.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, Error> {
        Gguf::open_by(path.as_ref(), Bytes::map)
    }

    /// The same, but all of it is read at once and kept in memory: for drives on which a mapping is slow or can't be had.
    /// Changes of the file then change nothing here. [`Gguf::open`] checks a file without reading its tensors.
    ///
    /// # Errors
    /// As [`Gguf::open`], and when the file doesn't fit into memory.
    pub fn read(path: impl AsRef<Path>) -> Result<Gguf, Error> {
        Gguf::open_by(path.as_ref(), Bytes::read)
    }

    fn open_by(path: &Path, take: fn(&File) -> io::Result<Bytes>) -> Result<Gguf, Error> {
        let parts = split::open(path, take)?;
        Ok(Gguf::assemble(escape::escape_path(path), Some(path.to_owned()), parts))
    }

    /// Opens a model that is part of the program; `name` is what errors show.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a part of a split model is refused.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Gguf, Error> {
        Gguf::in_memory(name, Bytes::from_static(bytes))
    }

    /// Opens a model that was read or made in memory; `name` is what errors show.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a part of a split model is refused.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Gguf, Error> {
        Gguf::in_memory(name, Bytes::from_vec(bytes))
    }

    fn in_memory(name: &str, bytes: Bytes) -> Result<Gguf, Error> {
        let name = escape(name);
        let part = reader::read(bytes, &name).and_then(|part| split::refuse_part(&part).map(|()| part));
        part.map(|part| Gguf::assemble(name.clone(), None, vec![part])).map_err(|kind| Error::read(&name, kind))
    }

    /// `parts` is not empty; the first one speaks for all.
    fn assemble(name: String, path: Option<PathBuf>, parts: Vec<Part>) -> Gguf {
        let mut gguf = Gguf {
            metadata: Metadata::new(&name),
            name,
            path,
            version: 0,
            alignment: 0,
            files: Vec::new(),
            tensors: Vec::new(),
            index: HashMap::new(),
        };
        for part in parts {
            if gguf.files.is_empty() {
                gguf.version = part.version;
                gguf.alignment = part.alignment;
                gguf.metadata = part.metadata;
            }
            gguf.files.push(part.bytes);
            gguf.tensors.extend(part.tensors);
        }
        gguf.index = gguf.tensors.iter().enumerate().map(|(at, tensor)| (tensor.name.clone(), at)).collect();
        gguf
    }

    /// The path as it was given, or the name of a model in memory; escaped for a terminal.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether tensor data is read from the file when it is first touched.
    pub fn is_mapped(&self) -> bool {
        self.files.iter().any(Bytes::is_mapped)
    }

    /// The path that was given; nothing for a model that was handed over as bytes.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the positions of tensors are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The size of the file, or of all parts together, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }

    /// How many files the model is split over; 1 for a whole one.
    pub fn parts(&self) -> usize {
        self.files.len()
    }

    /// The metadata, in the order of the file; that of the first part of a split model.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in the order of the file, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|at| &self.tensors[*at])
    }

    /// The data of a tensor. Nothing is copied, and the result keeps the file open.
    ///
    /// # Panics
    /// When the tensor is of another file and does not lie in this one.
    pub fn bytes(&self, tensor: &TensorInfo) -> TensorBytes {
        self.find(tensor).expect("the tensor was taken from this file")
    }

    fn find(&self, tensor: &TensorInfo) -> Option<Bytes> {
        let start = usize::try_from(tensor.start).ok()?;
        let end = start.checked_add(usize::try_from(tensor.byte_len()).ok()?)?;
        self.files.get(tensor.part)?.slice(start..end)
    }
}
