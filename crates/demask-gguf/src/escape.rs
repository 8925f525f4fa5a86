//! Text from a file, made safe for a terminal and for one line.

use std::fmt::Write as _;
use std::path::Path;

/// Renders bytes from a file as one line of printable text.
///
/// Valid UTF-8 stays as it is, except for what could drive a terminal or break the line: NUL, line feed, carriage
/// return and tab become `\0`, `\n`, `\r`, `\t`; every other control character and every byte that is not UTF-8 becomes
/// `\xNN` per byte; line separators and characters that reorder text become `\u{NNNN}`. A backslash is left alone, so
/// the result is for reading, not for decoding.
///
/// ```
/// assert_eq!(demask_gguf::escape(b"\x1b[31mred\xff\0"), r"\x1b[31mred\xff\0");
/// ```
pub fn escape(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\0' => out.push_str("\\0"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        push_hex(&mut out, byte);
                    }
                }
                '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    let _ = write!(out, "\\u{{{:04x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for &byte in chunk.invalid() {
            push_hex(&mut out, byte);
        }
    }
    out
}

/// A path as one line of printable text, by the rules of [`escape`].
pub(crate) fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// At most `limit` bytes of `bytes`, escaped, with a mark where something was left out.
pub(crate) fn escape_short(bytes: &[u8], limit: usize) -> String {
    match bytes.get(..limit) {
        Some(head) if bytes.len() > limit => format!("{}...", escape(head)),
        _ => escape(bytes),
    }
}

fn push_hex(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}
