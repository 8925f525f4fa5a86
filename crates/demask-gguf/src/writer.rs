//! Writes version 3 files: fixtures, converted models, the output of a quantiser.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::destination::Destination;
use crate::error::{Error, ErrorKind};
use crate::escape::{escape_path, escape_short};
use crate::metadata::Metadata;
use crate::reader::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, MAX_KEY_BYTES, MAX_NAME_BYTES, legal_alignment,
};
use crate::tensor::TensorInfo;
use crate::types::TensorType;
use crate::value::{Value, encode_string};

/// Collects metadata and tensors and writes them as one file.
///
/// The alignment is 32 unless `general.alignment` is added. Tensor data is either given as bytes or produced by a
/// closure while the file is written, so that a file may be larger than the memory.
///
/// ```
/// use demask_gguf::{Gguf, TensorType, Writer};
///
/// let mut writer = Writer::new();
/// writer.add("general.architecture", "llada")?;
/// writer.tensor("output_norm.weight", &[2], TensorType::F32, [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat())?;
/// let mut file = Vec::new();
/// writer.write_to(&mut file)?;
/// let model = Gguf::from_bytes("memory", file)?;
/// assert_eq!(model.metadata().require_string("general.architecture")?, "llada");
/// # Ok::<(), demask_gguf::Error>(())
/// ```
pub struct Writer<'a> {
    metadata: Metadata,
    tensors: Vec<(TensorInfo, Data<'a>)>,
    names: HashSet<String>,
}

type Fill<'a> = Box<dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a>;

enum Data<'a> {
    Bytes(Cow<'a, [u8]>),
    Stream(Fill<'a>),
}

/// The file of errors that arise before a path is known.
const NO_PATH: &str = "";

impl<'a> Writer<'a> {
    /// A writer of a file without metadata and tensors.
    pub fn new() -> Writer<'a> {
        Writer { metadata: Metadata::new(NO_PATH), tensors: Vec::new(), names: HashSet::new() }
    }

    /// Adds a metadata entry.
    ///
    /// # Errors
    /// When the key is empty, too long or taken, or the value is an illegal `general.alignment`.
    pub fn add(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self, Error> {
        let value = value.into();
        let refuse = |expected: &str, found: String| {
            let place = format!("metadata key `{}`", escape_short(key.as_bytes(), 80));
            Err(Error::write(NO_PATH, ErrorKind::Unwritable { place, expected: expected.to_owned(), found }))
        };
        if key.is_empty() || key.len() as u64 > MAX_KEY_BYTES {
            return refuse(&format!("a key of 1 to {MAX_KEY_BYTES} bytes"), format!("{} bytes", key.len()));
        }
        if key == ALIGNMENT_KEY && legal_alignment(&value).is_none() {
            return refuse("a power of two from 8 on", value.describe());
        }
        match self.metadata.insert(key, value) {
            Ok(()) => Ok(self),
            Err(_) => refuse("a key of its own", "the key a second time".to_owned()),
        }
    }

    /// Adds a tensor whose data is at hand; `dims` in the order of the file, the length of a row first.
    ///
    /// # Errors
    /// When name, shape or type do not fit the format, or `bytes` is not as long as they say.
    pub fn tensor(
        &mut self,
        name: &str,
        dims: &[u64],
        ty: TensorType,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<&mut Self, Error> {
        let bytes = bytes.into();
        let info = self.describe(name, dims, ty)?;
        if bytes.len() as u64 != info.byte_len() {
            return Err(wrong_size(NO_PATH, &info, bytes.len() as u64));
        }
        Ok(self.push(info, Data::Bytes(bytes)))
    }

    /// Adds a tensor whose data `fill` writes when the file is written.
    ///
    /// # Errors
    /// When name, shape or type do not fit the format. That `fill` writes as many bytes as the shape and the type say
    /// is checked when the file is written.
    pub fn tensor_with(
        &mut self,
        name: &str,
        dims: &[u64],
        ty: TensorType,
        fill: impl FnMut(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Result<&mut Self, Error> {
        let info = self.describe(name, dims, ty)?;
        Ok(self.push(info, Data::Stream(Box::new(fill))))
    }

    /// Writes the file and returns its size in bytes; the last tensor is padded too.
    ///
    /// # Errors
    /// When the output fails, or a closure fails or writes another number of bytes than its tensor has.
    pub fn write_to(&mut self, out: impl Write) -> Result<u64, Error> {
        self.write_named(NO_PATH, out)
    }

    /// Writes the file to a path and returns its size in bytes. No half file is ever left under the name, see
    /// [`Destination`].
    ///
    /// # Errors
    /// As [`Writer::write_to`], and when the file cannot be created or renamed.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let name = escape_path(path);
        let io = |action| move |error| ErrorKind::Io { action, error };
        let place = Destination::of(path);
        let file = place.create().map_err(|error| Error::write(&name, io("cannot create it")(error)))?;
        let size = self.write_named(&name, BufWriter::with_capacity(1 << 20, file))?;
        place.keep().map_err(|error| Error::write(&name, io("cannot rename it")(error)))?;
        Ok(size)
    }

    fn describe(&self, name: &str, dims: &[u64], ty: TensorType) -> Result<TensorInfo, Error> {
        let refuse = |expected: String, found: String| {
            let place = format!("tensor `{}`", escape_short(name.as_bytes(), 80));
            Error::write(NO_PATH, ErrorKind::Unwritable { place, expected, found })
        };
        if name.is_empty() || name.len() as u64 > MAX_NAME_BYTES {
            return Err(refuse(format!("a name of 1 to {MAX_NAME_BYTES} bytes"), format!("{} bytes", name.len())));
        }
        if dims.len() > MAX_DIMS as usize {
            return Err(refuse(format!("at most {MAX_DIMS} dimensions"), dims.len().to_string()));
        }
        if !ty.is_known() {
            return Err(refuse("a known type".to_owned(), format!("type {} ({})", ty.id(), ty.name())));
        }
        let info = TensorInfo::new(name.to_owned(), dims.to_vec(), ty, 0).map_err(|(e, f)| refuse(e, f))?;
        if self.names.contains(name) {
            return Err(refuse("a name of its own".to_owned(), "the name a second time".to_owned()));
        }
        Ok(info)
    }

    fn push(&mut self, info: TensorInfo, data: Data<'a>) -> &mut Self {
        self.names.insert(info.name.clone());
        self.tensors.push((info, data));
        self
    }

    fn write_named(&mut self, name: &str, out: impl Write) -> Result<u64, Error> {
        let alignment = self.metadata.get(ALIGNMENT_KEY).and_then(legal_alignment).unwrap_or(DEFAULT_ALIGNMENT);
        let io = |error| Error::write(name, ErrorKind::Io { action: "cannot write", error });
        let mut out = Counted { inner: out, written: 0 };
        out.write_all(&self.head(alignment)).map_err(io)?;
        if !self.tensors.is_empty() {
            out.pad(alignment).map_err(io)?;
        }
        for (info, data) in &mut self.tensors {
            let start = out.written;
            match data {
                Data::Bytes(bytes) => out.write_all(bytes).map_err(io)?,
                Data::Stream(fill) => fill(&mut Limited { left: info.byte_len(), inner: &mut out }).map_err(io)?,
            }
            if out.written - start != info.byte_len() {
                return Err(wrong_size(name, info, out.written - start));
            }
            out.pad(alignment).map_err(io)?;
        }
        out.flush().map_err(io)?;
        Ok(out.written)
    }

    /// Everything before the data section.
    fn head(&self, alignment: u64) -> Vec<u8> {
        let mut head = Vec::new();
        head.extend_from_slice(MAGIC);
        head.extend(3u32.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            encode_string(key.as_bytes(), &mut head);
            head.extend((value.value_type() as u32).to_le_bytes());
            value.encode(&mut head);
        }
        let mut offset = 0u64;
        for (info, _) in &self.tensors {
            encode_string(info.name.as_bytes(), &mut head);
            head.extend((info.dims.len() as u32).to_le_bytes());
            info.dims.iter().for_each(|dim| head.extend(dim.to_le_bytes()));
            head.extend(info.ty.id().to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset = offset.saturating_add(info.byte_len()).next_multiple_of(alignment);
        }
        head
    }
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Writer::new()
    }
}

fn wrong_size(file: &str, info: &TensorInfo, found: u64) -> Error {
    let place = format!("tensor `{}`", escape_short(info.name.as_bytes(), 80));
    let expected = format!("{} bytes of {} {}", info.byte_len(), info.ty.name(), info.shape());
    Error::write(file, ErrorKind::Unwritable { place, expected, found: found.to_string() })
}

/// Counts what goes through.
struct Counted<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Counted<W> {
    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        let mut left = (self.written.next_multiple_of(alignment) - self.written) as usize;
        while left > 0 {
            let step = left.min(256);
            self.write_all(&[0; 256][..step])?;
            left -= step;
        }
        Ok(())
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Stops a closure that writes more than its tensor holds.
struct Limited<'w, W> {
    inner: &'w mut Counted<W>,
    left: u64,
}

impl<W: Write> Write for Limited<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than the tensor holds"));
        }
        let written = self.inner.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
