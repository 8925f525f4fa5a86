//! What went wrong: what was attempted, with which file, where in it, what was expected and what was found.

use std::fmt;
use std::io;
use std::path::Path;

use crate::escape::{escape, escape_path};
use crate::types::TensorType;

/// A failure to read, use or write a GGUF file. Its message is one line and holds no control character.
#[derive(Debug)]
pub struct Error(Box<Detail>);

#[derive(Debug)]
struct Detail {
    attempt: &'static str,
    file: String,
    kind: ErrorKind,
}

/// The kind of a failure, with its particulars. Offsets and sizes are in bytes, from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused.
    #[error("{action}: {error}")]
    Io {
        /// What was asked of the system, as in `cannot open it`.
        action: &'static str,
        /// Its answer.
        error: io::Error,
    },
    /// The path names something that is no regular file.
    #[error("it is {what}, not a file{}", example.as_ref().map(|e| format!("; give a file in it, such as `{e}`")).unwrap_or_default())]
    NotAFile {
        /// What it is, as in `a named pipe`.
        what: &'static str,
        /// For a directory, a GGUF file in it (the first part of a split model before any other).
        example: Option<String>,
    },
    /// The content is something else.
    #[error("not a GGUF file: it is {what}")]
    NotGguf {
        /// What it is, as in `a web page`.
        what: String,
        /// What helps.
        hint: Option<&'static str>,
    },
    /// A version of the format that is not read.
    #[error("GGUF version {found} is {}; versions 2 and 3 are read", version_fault(*found))]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// The numbers of the file are big-endian.
    #[error("its byte order is big-endian; only little-endian files are read")]
    ByteOrder,
    /// The header, the metadata or the directory wants more bytes than the file has.
    #[error("the file ends too soon: {place} at byte {at} needs {needed} bytes, {left} are left")]
    Truncated {
        /// What was being read.
        place: String,
        /// Where it starts.
        at: u64,
        /// How many bytes it claims.
        needed: u64,
        /// How many there are.
        left: u64,
    },
    /// The data of a tensor lies past the end of the file.
    #[error("tensor `{}` needs bytes {start} to {end}, the file has {file_bytes}: {missing} missing", escape(tensor))]
    MissingData {
        /// The first tensor that is not all there.
        tensor: String,
        /// Its first byte.
        start: u64,
        /// The byte after its last.
        end: u64,
        /// The size of the file.
        file_bytes: u64,
        /// How many bytes all tensors together want past the end.
        missing: u64,
    },
    /// A value that the format does not allow.
    #[error("{place} at byte {at}: expected {expected}, found {found}")]
    Malformed {
        /// What was being read.
        place: String,
        /// Where it starts.
        at: u64,
        /// What the format allows.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// A tensor of a type whose layout is not known.
    #[error("tensor `{}` at byte {at} has type {} ({}), {}", escape(tensor), ty.id(), ty.name(), type_fault(*ty))]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// Where the type stands.
        at: u64,
        /// The type.
        ty: TensorType,
    },
    /// A part of a split model cannot be found.
    #[error("part {part} of {count} is missing: `{file}` {error}")]
    MissingPart {
        /// The missing part, from 1.
        part: u32,
        /// How many parts there are.
        count: u32,
        /// The file that was looked for, escaped.
        file: String,
        /// The answer of the system.
        error: io::Error,
    },
    /// The parts of a split model do not fit together.
    #[error("{place}: expected {expected}, found {found}")]
    Split {
        /// What does not fit.
        place: String,
        /// What would.
        expected: String,
        /// What there is.
        found: String,
    },
    /// A metadata key that is needed is not there.
    #[error("metadata key `{}` is missing", escape(key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata key holds a value of another type, or one that does not fit.
    #[error("metadata key `{}`: expected {expected}, found {found}", escape(key))]
    WrongValue {
        /// The key.
        key: String,
        /// What was asked for.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// The writer was given something that the format cannot hold.
    #[error("{place}: expected {expected}, found {found}")]
    Unwritable {
        /// The key or tensor.
        place: String,
        /// What the format allows.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl Error {
    pub(crate) fn read(file: &str, kind: ErrorKind) -> Error {
        Error(Box::new(Detail { attempt: "read", file: file.to_owned(), kind }))
    }

    pub(crate) fn read_path(path: &Path, kind: ErrorKind) -> Error {
        Error::read(&escape_path(path), kind)
    }

    pub(crate) fn write(file: &str, kind: ErrorKind) -> Error {
        Error(Box::new(Detail { attempt: "write", file: file.to_owned(), kind }))
    }

    /// The kind of the failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file, escaped for a terminal; empty while a writer does not know its path.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// What the reader of the message can do about it, when that is known; one line.
    pub fn hint(&self) -> Option<String> {
        let text = match &self.0.kind {
            ErrorKind::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                if !self.0.file.starts_with('~') {
                    return None;
                }
                "`~` is replaced by the shell, and only where it is not quoted; write the path out"
            }
            ErrorKind::NotGguf { hint, .. } => return hint.map(str::to_owned),
            ErrorKind::Version { found: 0 } => "the file is damaged; fetch it again",
            ErrorKind::Version { found: 1 } => "convert the model again with a current converter",
            ErrorKind::Version { .. } => "a newer version of this program may read it",
            ErrorKind::ByteOrder => {
                "convert it to little-endian, for instance with `gguf_convert_endian.py` of llama.cpp"
            }
            ErrorKind::Truncated { .. } | ErrorKind::MissingData { .. } => {
                "the file is cut off or damaged, often by a broken download; fetch it again"
            }
            ErrorKind::UnknownType { .. } => {
                return Some(format!("known types: {}", known_types()));
            }
            ErrorKind::MissingPart { .. } => "all parts must lie in one folder under their own names",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { attempt, file, kind } = &*self.0;
        if file.is_empty() {
            return write!(f, "cannot {attempt} a GGUF file: {kind}");
        }
        write!(f, "cannot {attempt} `{file}`: {kind}")
    }
}

impl std::error::Error for Error {}

fn version_fault(found: u32) -> &'static str {
    match found {
        0 => "not a version",
        1 => "too old",
        _ => "newer than this program",
    }
}

fn type_fault(ty: TensorType) -> &'static str {
    if ty.is_removed() { "which was removed from the format" } else { "which is not a known type" }
}

fn known_types() -> String {
    let names: Vec<&str> = TensorType::all().map(TensorType::name).collect();
    names.join(", ")
}
