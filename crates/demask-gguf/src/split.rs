//! Models split over several files, and the way from a path to the bytes of a file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::escape::escape_path;
use crate::metadata::Metadata;
use crate::mmap::Bytes;
use crate::reader::{self, Part};

const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// From an open file to its bytes.
type Take = fn(&File) -> io::Result<Bytes>;

/// Opens the file and, when it belongs to a split model, all its parts in order. Any part may be given.
/// `take` gets the bytes of a file.
pub(crate) fn open(path: &Path, take: Take) -> Result<Vec<Part>, Error> {
    let given = open_file(path, take)?;
    let Some(split) = Split::of(&given.metadata)? else {
        return Ok(vec![given]);
    };
    let fail = |kind| Error::read_path(path, kind);
    let stem = split.stem(path).map_err(fail)?;
    let mut parts = Vec::new();
    let mut given = Some(given);
    for number in 0..split.count {
        let part_path = split.part_path(path, &stem, number);
        let part = match given.take_if(|_| number == split.number) {
            Some(part) => part,
            None => open_part(path, &part_path, (number, split.count), take)?,
        };
        split.check(&part, &part_path, number)?;
        parts.push(part);
    }
    check_tensors(&parts, &split).map_err(fail)?;
    for (number, part) in parts.iter_mut().enumerate() {
        part.tensors.iter_mut().for_each(|tensor| tensor.part = number);
    }
    Ok(parts)
}

/// Opens one file of a set; when it is not there, the error names the file that was given and the missing part.
fn open_part(given: &Path, path: &Path, (number, count): (u32, u32), take: Take) -> Result<Part, Error> {
    match fs::metadata(path) {
        Err(error) => {
            let file = escape_path(path);
            Err(Error::read_path(given, ErrorKind::MissingPart { part: number + 1, count, file, error }))
        }
        Ok(_) => open_file(path, take),
    }
}

fn open_file(path: &Path, take: Take) -> Result<Part, Error> {
    let name = escape_path(path);
    bytes_of(path, take).and_then(|bytes| reader::read(bytes, &name)).map_err(|kind| Error::read(&name, kind))
}

/// Gets the bytes of a regular file. What is no regular file is never opened: opening a named pipe would wait for a writer.
fn bytes_of(path: &Path, take: Take) -> Result<Bytes, ErrorKind> {
    let io = |action| move |error| ErrorKind::Io { action, error };
    let meta = fs::metadata(path).map_err(io("cannot open it"))?;
    if !meta.is_file() {
        let example = if meta.is_dir() { first_model(path) } else { None };
        return Err(ErrorKind::NotAFile { what: describe(meta.file_type()), example });
    }
    let file = File::open(path).map_err(io("cannot open it"))?;
    if file.metadata().map_err(io("cannot tell its size"))?.len() == 0 {
        let hint = Some("the download may not have started; fetch the file again");
        return Err(ErrorKind::NotGguf { what: "an empty file (0 bytes)".to_owned(), hint });
    }
    take(&file).map_err(io("cannot get it into memory"))
}

#[cfg(unix)]
fn describe(ty: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    if ty.is_dir() {
        "a directory"
    } else if ty.is_fifo() {
        "a named pipe"
    } else if ty.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn describe(ty: FileType) -> &'static str {
    if ty.is_dir() { "a directory" } else { "a device" }
}

/// The model in a directory that comes first by name, escaped; the order of the directory does not matter.
fn first_model(dir: &Path) -> Option<String> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let first = names.filter(|name| Path::new(name).extension() == Some(OsStr::new("gguf"))).min()?;
    Some(escape_path(&dir.join(first)))
}

/// What a part says about its set.
struct Split {
    /// The number of the part, from 0.
    number: u32,
    /// How many parts there are; at least 2.
    count: u32,
    /// How many tensors all parts hold together, when the part says so.
    tensors: Option<u64>,
}

impl Split {
    /// Nothing for a file that is whole.
    fn of(metadata: &Metadata) -> Result<Option<Split>, Error> {
        let count = metadata.u32(COUNT_KEY)?.unwrap_or(0);
        if count < 2 {
            return Ok(None);
        }
        if count > 99_999 {
            return Err(metadata.wrong(COUNT_KEY, "at most 99999 parts", count.to_string()));
        }
        let number = metadata.require_u32(NUMBER_KEY)?;
        if number >= count {
            return Err(metadata.wrong(NUMBER_KEY, format!("a number below the {count} parts"), number.to_string()));
        }
        Ok(Some(Split { number, count, tensors: metadata.u64(TENSORS_KEY)? }))
    }

    /// The ending of the name of a part.
    fn ending(&self, number: u32) -> String {
        format!("-{:05}-of-{:05}.gguf", number + 1, self.count)
    }

    /// The name of the given part without its ending.
    fn stem(&self, path: &Path) -> Result<OsString, ErrorKind> {
        let name = path.file_name().unwrap_or_default();
        strip_ending(name, &self.ending(self.number)).ok_or_else(|| ErrorKind::Split {
            place: format!("part {} of {}", self.number + 1, self.count),
            expected: format!("a name that ends in `{}`, as do all parts", self.ending(self.number)),
            found: format!("`{}`", escape_path(Path::new(name))),
        })
    }

    fn part_path(&self, given: &Path, stem: &OsStr, number: u32) -> PathBuf {
        let mut name = stem.to_owned();
        name.push(self.ending(number));
        given.with_file_name(name)
    }

    /// Whether a part belongs to this set, at this place.
    fn check(&self, part: &Part, path: &Path, number: u32) -> Result<(), Error> {
        let found = Split::of(&part.metadata)?;
        let fail = |place: &str, expected: String, found: String| {
            let kind = ErrorKind::Split { place: format!("metadata key `{place}`"), expected, found };
            Err(Error::read_path(path, kind))
        };
        let Some(found) = found else {
            return fail(
                COUNT_KEY,
                format!("{} as in part {}", self.count, self.number + 1),
                "a whole model".to_owned(),
            );
        };
        if found.count != self.count {
            let expected = format!("{} as in part {}", self.count, self.number + 1);
            return fail(COUNT_KEY, expected, found.count.to_string());
        }
        if found.number != number {
            return fail(NUMBER_KEY, format!("{number} by its name"), found.number.to_string());
        }
        if found.tensors != self.tensors {
            let show = |count: Option<u64>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
            let expected = format!("{} as in part {}", show(self.tensors), self.number + 1);
            return fail(TENSORS_KEY, expected, show(found.tensors));
        }
        Ok(())
    }
}

/// Whether the parts hold as many tensors as they say, and none twice.
fn check_tensors(parts: &[Part], split: &Split) -> Result<(), ErrorKind> {
    let total: usize = parts.iter().map(|part| part.tensors.len()).sum();
    if let Some(expected) = split.tensors.filter(|expected| *expected != total as u64) {
        return Err(ErrorKind::Split {
            place: format!("the tensors of all {} parts", split.count),
            expected: format!("{expected} by `{TENSORS_KEY}`"),
            found: total.to_string(),
        });
    }
    let mut seen = std::collections::HashMap::new();
    for (number, part) in parts.iter().enumerate() {
        for tensor in &part.tensors {
            if let Some(first) = seen.insert(tensor.name.as_str(), number) {
                return Err(ErrorKind::Split {
                    place: format!("tensor `{}`", crate::escape(&tensor.name)),
                    expected: "one part that holds it".to_owned(),
                    found: format!("parts {} and {}", first + 1, number + 1),
                });
            }
        }
    }
    Ok(())
}

/// Refuses bytes that are one part of a set: the other parts cannot be found from memory.
pub(crate) fn refuse_part(part: &Part) -> Result<(), ErrorKind> {
    match part.metadata.get(COUNT_KEY).and_then(|count| count.as_integer()) {
        Some(count) if count > 1 => Err(ErrorKind::Split {
            place: "a model in memory".to_owned(),
            expected: "a whole model".to_owned(),
            found: format!("one part of {count}"),
        }),
        _ => Ok(()),
    }
}

fn strip_ending(name: &OsStr, ending: &str) -> Option<OsString> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        name.as_bytes().strip_suffix(ending.as_bytes()).map(|stem| OsStr::from_bytes(stem).to_owned())
    }
    #[cfg(not(unix))]
    {
        name.to_str()?.strip_suffix(ending).map(OsString::from)
    }
}
