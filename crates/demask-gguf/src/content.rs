//! What a file is that is not GGUF: people save web pages, pointers and older formats under a model's name.

use std::fmt::Write as _;

use crate::error::ErrorKind;

const CONVERT: &str = "convert the model to GGUF, for instance with llama.cpp's `convert_hf_to_gguf.py`";
const REDO: &str = "this format is no longer in use; convert the original model to GGUF";
const WEB: &str = "the download saved a page instead of the model; use the link of the file itself";

/// How many bytes are looked at.
const WINDOW: usize = 64 * 1024;

/// Describes content that does not start with the magic of GGUF.
pub(crate) fn describe(bytes: &[u8]) -> ErrorKind {
    let head = bytes.get(..WINDOW).unwrap_or(bytes);
    let (what, hint) = name(head, bytes.len());
    ErrorKind::NotGguf { what, hint }
}

fn name(head: &[u8], len: usize) -> (String, Option<&'static str>) {
    let known: &[(&[u8], &str, Option<&'static str>)] = &[
        (b"lmgg", "a model of the old GGML format", Some(REDO)),
        (b"ggml", "a model of the old GGML format", Some(REDO)),
        (b"fmgg", "a model of the old GGMF format", Some(REDO)),
        (b"ggmf", "a model of the old GGMF format", Some(REDO)),
        (b"tjgg", "a model of the old GGJT format", Some(REDO)),
        (b"ggjt", "a model of the old GGJT format", Some(REDO)),
        (b"algg", "an adapter of the old GGLA format", Some(REDO)),
        (b"ggla", "an adapter of the old GGLA format", Some(REDO)),
        (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint", Some(CONVERT)),
        (b"PK\x05\x06", "an empty zip archive", None),
        (b"\x1f\x8b", "a gzip archive", Some("unpack it first")),
        (b"\x28\xb5\x2f\xfd", "a zstd archive", Some("unpack it first")),
        (b"\xfd7zXZ\0", "an xz archive", Some("unpack it first")),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive", Some("unpack it first")),
        (b"\x89HDF\r\n", "an HDF5 file", Some(CONVERT)),
        (b"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint", Some(CONVERT)),
        (b"\x80\x04", "a Python pickle", Some(CONVERT)),
        (b"\x7fELF", "a program", None),
        (b"%PDF", "a PDF document", None),
    ];
    if let Some((_, what, hint)) = known.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return ((*what).to_owned(), *hint);
    }
    if head.starts_with(b"version https://git-lfs") {
        let size = lfs_size(head).map_or_else(
            || "a Git LFS pointer".to_owned(),
            |size| format!("a Git LFS pointer for a {} file ({size} bytes)", human(size)),
        );
        return (size, Some("run `git lfs pull`, or download the file itself"));
    }
    if is_safetensors(head) {
        return ("a safetensors file".to_owned(), Some(CONVERT));
    }
    if head.get(257..262) == Some(b"ustar") {
        return ("a tar archive".to_owned(), Some("unpack it first"));
    }
    if head.iter().all(|byte| *byte == 0) {
        let what =
            if len > head.len() { "a file that starts with nothing but zero bytes" } else { "nothing but zero bytes" };
        return (what.to_owned(), Some("the download may not have finished; fetch the file again"));
    }
    if let Some(found) = text(head) {
        return found;
    }
    let mut first = String::from("unknown content that starts with");
    for byte in head.iter().take(8) {
        let _ = write!(first, " {byte:02x}");
    }
    (first, None)
}

/// Text of some kind, told by its first characters.
fn text(head: &[u8]) -> Option<(String, Option<&'static str>)> {
    let start = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let lower: Vec<u8> = start.iter().take(512).map(u8::to_ascii_lowercase).collect();
    let holds = |what: &[u8]| lower.windows(what.len()).any(|window| window == what);
    if lower.starts_with(b"<!doctype html")
        || lower.starts_with(b"<html")
        || (lower.starts_with(b"<") && holds(b"<html"))
    {
        return Some(("a web page (HTML)".to_owned(), Some(WEB)));
    }
    // An error without a length is a character that the end of the window cuts.
    let is_text = std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    if !is_text || head.iter().any(|byte| *byte < b' ' && !byte.is_ascii_whitespace() && *byte != 0x1b) {
        return None;
    }
    Some(match lower.first() {
        Some(b'<') => ("an XML or HTML text, perhaps the error page of a server".to_owned(), Some(WEB)),
        Some(b'{' | b'[') => ("JSON text, perhaps the error reply of a server".to_owned(), Some(WEB)),
        _ => ("a text file".to_owned(), None),
    })
}

/// The size in a Git LFS pointer, in bytes.
fn lfs_size(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| line.strip_prefix("size "))?.trim().parse().ok()
}

/// A 64-bit length and a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let len = head.first_chunk().map(|len| u64::from_le_bytes(*len));
    len.is_some_and(|len| (2..=1 << 32).contains(&len)) && head.get(8) == Some(&b'{')
}

/// A size in decimal units with one digit, as download pages show it.
fn human(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut size = bytes as f64;
    let mut unit = "bytes";
    for next in units {
        if size < 999.95 {
            break;
        }
        size /= 1000.0;
        unit = next;
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{size:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(bytes: &[u8]) -> String {
        name(bytes, bytes.len()).0
    }

    #[test]
    fn text_is_told_apart() {
        assert!(what(b"\xef\xbb\xbf\n <!-- x --><HTML>").contains("a web page"));
        assert!(what(b"{\"error\": 401}").contains("JSON"));
        assert!(what(b"<?xml version='1.0'?><Error/>").contains("XML"));
        assert_eq!(what(b"hello"), "a text file");
        let long = format!("x{}", "\u{e9}".repeat(WINDOW));
        assert_eq!(what(&long.as_bytes()[..WINDOW]), "a text file");
        assert_eq!(what(&[0; 70]), "nothing but zero bytes");
        assert_eq!(what(b"\x01\x02\x03"), "unknown content that starts with 01 02 03");
    }

    #[test]
    fn sizes() {
        assert_eq!(human(999), "999 bytes");
        assert_eq!(human(4_920_734_368), "4.9 GB");
        assert_eq!(human(999_960), "1.0 MB");
    }
}
