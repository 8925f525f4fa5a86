//! Jinja templates from files that nobody vouched for: what Hugging Face templates use, and bounds on all of it.
//!
//! A template reads no file and no clock. Its source and its longest tag are bounded before it is compiled, and the
//! compiler bounds its nesting; running it burns fuel for every instruction and every byte made, by an allowance that
//! grows with the conversation; what values hold is bounded by [`guard`](super::guard). All of it happens on a thread
//! of its own, whose stack holds the deepest nesting that the bounds let through wherever the caller runs.

use std::fmt::Write as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use super::chat::Date;
use super::error::{TextError, shown};
use super::guard::{BOUNDED, bounded, guarded, tokens};

/// Bytes of source; the longest template of a published model has a seventh of it.
const MAX_SOURCE: usize = 128 * 1024;
/// Words, strings and signs in one tag; the longest published tag has a sixteenth of it.
const MAX_TAG_WORDS: usize = 1000;
/// `elif` branches in all.
const MAX_BRANCHES: usize = 500;
/// The ceiling of every allowance. One unit pays for an instruction or 64 bytes, so this is 128 MB at most.
const MAX_FUEL: u64 = 2_000_000;
/// Bytes of stack, of which only the touched part takes memory.
const STACK: usize = 64 * 1024 * 1024;
/// Digits in a width that `str.format` may be given.
const MAX_WIDTH_DIGITS: usize = 3;
const MAX_JSON_DEPTH: usize = 64;
const NAME: &str = "chat";

/// A compiled template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
}

impl Template {
    /// Compiles a template. `date` is what `strftime_now` shows; without it that function does not exist, and
    /// templates that ask first take their own default.
    pub(crate) fn compile(source: &str, date: Option<Date>) -> Result<Template, TextError> {
        check_bounds(source)?;
        let mut environment = Environment::empty();
        // White space around tags, as Hugging Face sets it.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| explain(&e))?;
        on_wide_stack(|| {
            environment = environment_for(syntax, date);
            environment.add_template_owned(NAME, prepared(source)).map_err(|e| explain(&e))
        })?;
        Ok(Template { environment })
    }

    /// Renders the template. The number of messages and of their bytes sets the allowance.
    pub(crate) fn render(&self, context: &Value, messages: usize, bytes: usize) -> Result<String, TextError> {
        let fuel = 200_000u64.saturating_add(2_000 * messages as u64).saturating_add(bytes as u64 / 2).min(MAX_FUEL);
        on_wide_stack(|| {
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(fuel));
            environment.get_template(NAME).and_then(|template| template.render(context)).map_err(|e| explain(&e))
        })
    }
}

fn environment_for(syntax: SyntaxConfig, date: Option<Date>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(python_method);
    environment.add_function("raise_exception", |message: &str| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("the template refuses this conversation: {message}")))
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter(BOUNDED, bounded);
    // Python does not iterate over None.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.set_formatter(|out, state, value| {
        bounded(state, value)?;
        minijinja::escape_formatter(out, state, value)
    });
    if let Some(date) = date {
        environment.add_function("strftime_now", move |format: &str| date.format(format));
    }
    environment
}

/// Runs `work` on a thread with [`STACK`] bytes of stack.
fn on_wide_stack<T: Send>(work: impl FnOnce() -> Result<T, TextError> + Send) -> Result<T, TextError> {
    let failed = |detail: &str| TextError::Template { line: None, detail: detail.to_owned() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| failed(&format!("no thread to run it on: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("it broke the template engine")))
    })
}

/// A template error as ours: one printable line, with the line number and the causes.
fn explain(error: &Error) -> TextError {
    let mut detail = match error.kind() {
        ErrorKind::OutOfFuel => "it does not end within its allowance of work and memory".to_owned(),
        kind => match error.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    };
    // Of a chain of causes (a template that includes itself has a long one) the first says what happened.
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if let Some(first) = causes.last() {
        let _ = write!(detail, ": {first}");
    }
    TextError::Template { line: error.line(), detail: demask_gguf::escape(detail) }
}

/// Refuses sources whose syntax tree could be deeper, or slower to compile, than any real template's.
fn check_bounds(source: &str) -> Result<(), TextError> {
    let refuse = |at: usize, detail: String| {
        let line = source[..at].bytes().filter(|&b| b == b'\n').count() + 1;
        Err(TextError::Template { line: Some(line), detail })
    };
    if source.trim().is_empty() {
        return Err(TextError::Template { line: None, detail: "it is empty".to_owned() });
    }
    if source.len() > MAX_SOURCE {
        let detail = format!("{} bytes of source; at most {MAX_SOURCE} are taken", source.len());
        return Err(TextError::Template { line: None, detail });
    }
    let mut branches = 0;
    for (at, tag) in tags(source) {
        let words = tokens(tag).len();
        if words > MAX_TAG_WORDS {
            return refuse(at, format!("a tag of {words} words; at most {MAX_TAG_WORDS} are taken"));
        }
        let first = tag.trim_start_matches(['{', '%', '-', '+', ' ', '\t', '\r', '\n']);
        branches += usize::from(first.starts_with("elif"));
        if branches > MAX_BRANCHES {
            return refuse(at, format!("more than {MAX_BRANCHES} elif branches"));
        }
    }
    Ok(())
}

/// The `{{ }}` and `{% %}` tags of a source, delimiters included. A tag ends where Jinja ends it: outside strings and
/// with all brackets closed; one that never ends reaches to the end of the source.
fn tags(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + source[from..].find('{')?;
            match source.as_bytes().get(start + 1) {
                Some(b'{') | Some(b'%') => {
                    let end = start + tag_length(&source.as_bytes()[start..]);
                    let tag = &source[start..end];
                    from = if tag_name(tag) == "raw" { end + raw_length(&source[end..]) } else { end };
                    return Some((start, tag));
                }
                Some(b'#') => from = source[start..].find("#}").map_or(source.len(), |end| start + end + 2),
                _ => from = start + 1,
            }
        }
    })
}

/// What is between `{%` and `%}`, without signs for white space.
fn tag_name(tag: &str) -> &str {
    tag.trim_start_matches("{%").trim_end_matches("%}").trim_matches(['-', '+']).trim()
}

/// Bytes up to the `{% endraw %}` that ends a raw text.
fn raw_length(text: &str) -> usize {
    let ends =
        |&(at, _): &(usize, &str)| text[at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw");
    text.match_indices("{%").find(ends).map_or(text.len(), |(at, _)| at)
}

fn tag_length(bytes: &[u8]) -> usize {
    let block = bytes[1] == b'%';
    let (mut at, mut open, mut quote) = (2, 0usize, None);
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(mark) if byte == mark => quote = None,
            Some(_) => {}
            None if open == 0 && bytes[at..].starts_with(if block { b"%}" } else { b"}}" }) => {
                return at + 2;
            }
            None => match byte {
                b'\'' | b'"' => quote = Some(byte),
                b'(' | b'[' | b'{' => open += 1,
                b')' | b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            },
        }
        at += 1;
    }
    bytes.len()
}

/// The source as it is compiled: every tag guarded, and `{% generation %}`, which marks what training learns from,
/// as a block that is always taken.
fn prepared(source: &str) -> String {
    let mut plain = String::with_capacity(source.len() * 2);
    let mut from = 0;
    for (at, tag) in tags(source) {
        plain.push_str(&source[from..at]);
        from = at + tag.len();
        match tag_name(tag) {
            "generation" => plain.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => plain.push_str(&tag.replace("endgeneration", "endif")),
            _ => plain.push_str(&guarded(tag)),
        }
    }
    plain.push_str(&source[from..]);
    plain
}

/// The methods of Python's strings, lists and maps. `str.format` may not be asked for more than narrow columns: its
/// result is not paid for before it exists.
fn python_method(state: &mut State<'_, '_>, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    if method == "format" {
        let pattern = value.as_str().unwrap_or_default();
        let digits = pattern.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
        let wide = arguments.iter().any(|v| v.as_i64().is_some_and(|n| n > 999)) && pattern.matches('{').count() > 1;
        if digits > MAX_WIDTH_DIGITS || wide {
            return Err(Error::new(ErrorKind::InvalidOperation, "format: the width is too large"));
        }
    }
    for value in arguments.iter().chain([value]) {
        bounded(state, value)?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

/// `tojson` as Hugging Face has it: Python's spacing, letters of all scripts as they are, `indent` on request.
fn to_json(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut out = String::new();
    write_json(state, value, indent.map(|n| n.min(16)), 0, &mut out)?;
    Ok(out)
}

fn write_json(
    state: &State<'_, '_>,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    if depth > MAX_JSON_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deep"));
    }
    state.consume_fuel(1)?;
    let gap = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    let quoted = |text: &str| -> Result<String, Error> {
        state.consume_fuel(text.len() as u64 / 16)?;
        serde_json::to_string(text).map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}")))
    };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())?),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                if !empty {
                    out.push_str(comma);
                }
                empty = false;
                gap(out, depth + 1);
                write_json(state, &item, indent, depth + 1, out)?;
            }
            if !empty {
                gap(out, depth);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut empty = true;
            for key in value.try_iter()? {
                if !empty {
                    out.push_str(comma);
                }
                empty = false;
                gap(out, depth + 1);
                out.push_str(&quoted(&key.to_string())?);
                out.push_str(": ");
                write_json(state, &value.get_item(&key)?, indent, depth + 1, out)?;
            }
            if !empty {
                gap(out, depth);
            }
            out.push('}');
        }
        kind => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a value of type {kind}")));
        }
    }
    Ok(())
}

impl Date {
    /// Python's `strftime` for what has to do with days; times are midnight.
    fn format(self, format: &str) -> Result<String, Error> {
        const MONTHS: [&str; 12] = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ];
        let month = MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or_default();
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let _ = match chars.next() {
                Some('Y') => write!(text, "{:04}", self.year),
                Some('y') => write!(text, "{:02}", self.year % 100),
                Some('m') => write!(text, "{:02}", self.month),
                Some('d') => write!(text, "{:02}", self.day),
                Some('B') => write!(text, "{month}"),
                Some('b') => write!(text, "{}", &month[..month.len().min(3)]),
                Some('H' | 'M' | 'S') => write!(text, "00"),
                Some('%') => write!(text, "%"),
                other => {
                    let code = other.map(String::from).unwrap_or_default();
                    let detail = format!("strftime_now: %{} is not supported", shown(code));
                    return Err(Error::new(ErrorKind::InvalidOperation, detail));
                }
            };
        }
        Ok(text)
    }
}
