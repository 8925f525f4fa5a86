//! Bounds on what a template's expressions build.
//!
//! The engine pays for text and lists as they are made, but not for what a list *shows* when it is turned into text
//! or compared: a list of a thousand lists of a thousand lists is made in three steps, and a namespace that holds
//! itself never ends. So every place where a value is kept, nested, compared or turned into text gets a filter,
//! [`BOUNDED`], that counts what the value holds and refuses when it is too much. It is put into the source before
//! compiling, inside the line it guards, so that line numbers stay right.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// The filter's name.
pub(crate) const BOUNDED: &str = "__bounded";

/// Items and 64-byte pieces of text that one value may hold, counted wherever they show.
const MAX_UNITS: usize = 150_000;
/// Lists within lists.
const MAX_DEPTH: usize = 32;

/// Gives back a value that holds no more than [`MAX_UNITS`], no deeper than [`MAX_DEPTH`].
pub(crate) fn bounded(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        let mut left = MAX_UNITS;
        count(value, MAX_DEPTH, &mut left)?;
        state.consume_fuel((MAX_UNITS - left) as u64 / 8)?;
    }
    Ok(value.clone())
}

fn count(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    let refuse = || Error::new(ErrorKind::InvalidOperation, "a value holds too much");
    let mut pay = |units: usize| left.checked_sub(units).map(|rest| *left = rest).ok_or_else(refuse);
    pay(1 + value.as_str().map_or(0, str::len) / 64)?;
    // What has no length is shown by its name only.
    let kind = value.kind();
    let Some(length) = value.len().filter(|_| matches!(kind, ValueKind::Seq | ValueKind::Iterable | ValueKind::Map))
    else {
        return Ok(());
    };
    if length > *left || depth == 0 {
        return Err(refuse());
    }
    for item in value.try_iter()? {
        count(&item, depth - 1, left)?;
        if kind == ValueKind::Map {
            count(&value.get_item(&item)?, depth - 1, left)?;
        }
    }
    Ok(())
}

/// Filters that look at nothing but the value's first level, or count for themselves.
const SHALLOW: &[&str] = &[
    "batch",
    "count",
    "d",
    "default",
    "first",
    "items",
    "last",
    "length",
    "list",
    "map",
    "reject",
    "rejectattr",
    "safe",
    "select",
    "selectattr",
    "slice",
    "tojson",
];

/// Words that end an operand.
const WORDS: &[&str] = &["and", "or", "not", "in", "is", "if", "else", "recursive"];

/// Operators that turn their operands into text, or look all through them.
const GREEDY: &[&str] = &["~", "==", "!=", "<", ">", "<=", ">=", "in"];

/// A tag with [`BOUNDED`] wherever it belongs. What the tag means stays the same.
pub(crate) fn guarded(tag: &str) -> String {
    let mut guard = Guard { tag, tokens: tokens(tag), added: Vec::new() };
    guard.tag_of(0, guard.tokens.len());
    guard.added.sort_by_key(|(at, _)| *at);
    let mut text = String::with_capacity(tag.len() * 2);
    let mut from = 0;
    for (at, addition) in &guard.added {
        text.push_str(&tag[from..*at]);
        text.push_str(addition);
        from = *at;
    }
    text.push_str(&tag[from..]);
    text
}

/// Where each word, string and operator of a tag is, delimiters left out.
pub(super) fn tokens(tag: &str) -> Vec<(usize, usize)> {
    let inner_end = tag.len() - if tag.len() >= 4 && tag.ends_with(['}']) { 2 } else { 0 };
    let bytes = &tag.as_bytes()[..inner_end];
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let mut found = Vec::new();
    let mut at = 2;
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        at += 1;
        match byte {
            b'\'' | b'"' => {
                while at < bytes.len() && bytes[at] != byte {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(bytes.len());
            }
            b'=' | b'!' | b'<' | b'>' if bytes.get(at) == Some(&b'=') => at += 1,
            b'*' | b'/' if bytes.get(at) == Some(&byte) => at += 1,
            _ if is_word(byte) => at += bytes[at..].iter().take_while(|&&b| is_word(b)).count(),
            _ if byte.is_ascii_whitespace() => continue,
            _ => {}
        }
        found.push((start, at));
    }
    found
}

struct Guard<'a> {
    tag: &'a str,
    tokens: Vec<(usize, usize)>,
    /// What to put in, and before which byte.
    added: Vec<(usize, &'static str)>,
}

impl Guard<'_> {
    fn text(&self, token: usize) -> &str {
        self.tokens.get(token).map_or("", |&(from, to)| &self.tag[from..to])
    }

    fn tag_of(&mut self, mut from: usize, mut to: usize) {
        // Signs for white space at either end are no operators.
        let is_sign = |text: &str| matches!(text, "-" | "+");
        if from < to && self.tokens[from].0 == 2 && is_sign(self.text(from)) {
            from += 1;
        }
        if from < to && self.tokens[to - 1].1 + 2 == self.tag.len() && is_sign(self.text(to - 1)) {
            to -= 1;
        }
        if !self.tag.starts_with("{%") {
            return self.expression(from, to, false);
        }
        let head = from + 1;
        match self.text(from) {
            "if" | "elif" => self.expression(head, to, false),
            "for" => {
                if let Some(at) = (head..to).find(|&t| self.text(t) == "in") {
                    self.expression(at + 1, to, false);
                }
            }
            "set" => {
                if let Some(at) = (head..to).find(|&t| self.text(t) == "=") {
                    self.expression(at + 1, to, true);
                }
            }
            "with" | "do" => self.elements(head, to),
            // Others have names and patterns in them, not values to keep.
            _ => {}
        }
    }

    /// Guards an expression inside, and as a whole if it is to be kept.
    fn expression(&mut self, from: usize, to: usize, kept: bool) {
        let is_literal = to == from + 1 && !self.text(from).starts_with(|c: char| c.is_alphabetic() || c == '_');
        if kept && from < to && !is_literal {
            self.wrap(from, to);
        }
        let (mut start, mut at, mut before) = (from, from, "");
        while at < to {
            let text = self.text(at);
            let separator = WORDS.iter().chain(GREEDY).copied().find(|s| *s == text);
            if let Some(separator) = separator {
                self.operand(start, at, before, separator);
                // `not` behind `is` belongs to it.
                before = if (before, separator) == ("is", "not") && start == at { "is" } else { separator };
                start = at + 1;
                at += 1;
            } else {
                at = self.after_brackets(at, to);
            }
        }
        self.operand(start, to, before, "");
    }

    fn wrap(&mut self, from: usize, to: usize) {
        self.added.push((self.tokens[from].0, "("));
        self.added.push((self.tokens[to - 1].1, ")|__bounded"));
    }

    /// The token behind the one at `at`, or behind its closing bracket.
    fn after_brackets(&self, at: usize, to: usize) -> usize {
        let mut open = 0usize;
        for token in at..to {
            match self.text(token) {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                _ => {}
            }
            if open == 0 {
                return token + 1;
            }
        }
        to
    }

    /// A part of an expression between two separators.
    fn operand(&mut self, from: usize, to: usize, before: &str, after: &str) {
        if from >= to {
            return;
        }
        let greedy = GREEDY.contains(&before) || GREEDY.contains(&after);
        if greedy && before != "is" && to > from + 1 {
            self.wrap(from, to);
        } else if greedy && before != "is" {
            self.added.push((self.tokens[to - 1].1, "|__bounded"));
        }
        let mut at = from;
        while at < to {
            let behind = self.after_brackets(at, to);
            match self.text(at) {
                "|" if !SHALLOW.contains(&self.text(at + 1)) => {
                    self.added.push((self.tokens[at].0, "|__bounded"));
                }
                "(" | "[" | "{" => self.brackets(at, behind.max(at + 2) - 1, from),
                _ => {}
            }
            at = behind;
        }
    }

    /// The inside of brackets; `open` and `close` are the brackets, `first` begins the operand that they are in.
    fn brackets(&mut self, open: usize, close: usize, first: usize) {
        let follows_value = open > first && {
            let text = self.text(open - 1);
            text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '"' | ')' | ']' | '}'))
        };
        let commas = (open + 1..close).any(|t| self.text(t) == ",");
        match self.text(open) {
            // A place in a list, or a range of them.
            "[" if follows_value => self.parts(open + 1, close, ":", false),
            // Mere brackets.
            "(" if !follows_value && !commas => self.expression(open + 1, close, false),
            _ => self.elements(open + 1, close),
        }
    }

    /// Values with commas between, each with its name or key.
    fn elements(&mut self, from: usize, to: usize) {
        self.parts(from, to, ",", true);
    }

    fn parts(&mut self, from: usize, to: usize, separator: &str, kept: bool) {
        let mut start = from;
        let mut at = from;
        while at <= to {
            if at == to || self.text(at) == separator {
                if kept {
                    self.element(start, at)
                } else {
                    self.expression(start, at, false)
                }
                start = at + 1;
                at += 1;
            } else {
                at = self.after_brackets(at, to);
            }
        }
    }

    fn element(&mut self, from: usize, to: usize) {
        if matches!(self.text(from), "*" | "**") {
            return self.expression(from + 1, to, false);
        }
        let mut at = from;
        while at < to && !matches!(self.text(at), "=" | ":") {
            at = self.after_brackets(at, to);
        }
        if at >= to {
            return self.expression(from, to, true);
        }
        if self.text(at) == ":" {
            self.expression(from, at, false);
        }
        self.expression(at + 1, to, true);
    }
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn guards_stand_where_values_are_kept_nested_compared_or_shown() {
        for (tag, wanted) in [
            ("{{ x }}", "{{ x }}"),
            ("{{- a ~ 'b' -}}", "{{- a|__bounded ~ 'b'|__bounded -}}"),
            ("{{ a + b ~ c }}", "{{ (a + b)|__bounded ~ c|__bounded }}"),
            ("{{ x|upper }}", "{{ x|__bounded|upper }}"),
            ("{{ x|length }}", "{{ x|length }}"),
            ("{{ x[0].y[1:n] }}", "{{ x[0].y[1:n] }}"),
            ("{{ f(x, k=y, 1) }}", "{{ f((x)|__bounded, k=(y)|__bounded, 1) }}"),
            ("{{ [x, {'k': y}] }}", "{{ [(x)|__bounded, ({'k': (y)|__bounded})|__bounded] }}"),
            ("{%- set n.s = [n.s] %}", "{%- set n.s = ([(n.s)|__bounded])|__bounded %}"),
            ("{% set x = 'a' %}", "{% set x = 'a' %}"),
            (
                "{% if not a == b and c is not defined %}",
                "{% if not a|__bounded == b|__bounded and c is not defined %}",
            ),
            ("{% if 'a' not in x %}", "{% if 'a' not in x|__bounded %}"),
            ("{% for a, b in x.items() if a %}", "{% for a, b in x.items() if a %}"),
            ("{{ 'in ~ [' ~ ('a' if x else 'b') }}", "{{ 'in ~ ['|__bounded ~ (('a' if x else 'b'))|__bounded }}"),
            ("{% macro f(a, b=[]) %}", "{% macro f(a, b=[]) %}"),
            ("{{ -x }}", "{{ -x }}"),
        ] {
            assert_eq!(guarded(tag), wanted);
        }
    }
}
