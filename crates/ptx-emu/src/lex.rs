//! Words, numbers and signs of a PTX text, with their lines.

use crate::error::ParseError;

/// A piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name, a register, a directive or an opcode with its modifiers.
    Word(&'a str),
    /// A number as written: `16`, `0x1F`, `0f3F800000`.
    Number(&'a str),
    /// The inside of a string.
    Text(&'a str),
    /// Any other sign.
    Sign(char),
}

/// A token and its line, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: usize,
}

/// Splits a text into tokens; comments are left out.
pub(crate) fn tokens<'a>(module: &str, text: &'a str) -> Result<Vec<Spot<'a>>, ParseError> {
    let bytes = text.as_bytes();
    let mut spots = Vec::new();
    let (mut at, mut line) = (0, 1);
    let fail = |line, what: String| ParseError { module: module.to_owned(), line, what };
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            _ if byte.is_ascii_whitespace() => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let Some(length) = text[at + 2..].find("*/") else {
                    return Err(fail(line, "comment without end: expected `*/`".to_owned()));
                };
                line += text[at..at + 2 + length].matches('\n').count();
                at += length + 4;
            }
            b'"' => {
                let Some(length) = text[at + 1..].find(['"', '\n']) else {
                    return Err(fail(line, "string without end: expected `\"`".to_owned()));
                };
                if bytes[at + 1 + length] == b'\n' {
                    return Err(fail(line, "string without end: expected `\"` on the same line".to_owned()));
                }
                spots.push(Spot { token: Token::Text(&text[at + 1..at + 1 + length]), line });
                at += length + 2;
            }
            b'0'..=b'9' => {
                at += bytes[at..]
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'.')
                    .unwrap_or(bytes.len() - at);
                spots.push(Spot { token: Token::Number(&text[start..at]), line });
            }
            _ if is_word(byte) => {
                while at < bytes.len() {
                    if is_word(bytes[at]) {
                        at += 1;
                    } else if bytes[at] == b':' && bytes.get(at + 1) == Some(&b':') {
                        at += 2;
                    } else {
                        break;
                    }
                }
                spots.push(Spot { token: Token::Word(&text[start..at]), line });
            }
            _ => {
                let sign = text[at..].chars().next().unwrap_or('\u{fffd}');
                at += sign.len_utf8();
                spots.push(Spot { token: Token::Sign(sign), line });
            }
        }
    }
    Ok(spots)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// The bits of a number as 64-bit two's complement; `0f` and `0d` give the bits of the float.
pub(crate) fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f") {
        return (hex.len() == 8).then(|| u32::from_str_radix(hex, 16).ok()).flatten().map(u64::from);
    }
    if let Some(hex) = lower.strip_prefix("0d") {
        return (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten();
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    if let Some(hex) = digits.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return u64::from_str_radix(binary, 2).ok();
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(digits, 8).ok();
    }
    digits.parse().ok()
}
