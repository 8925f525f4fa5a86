//! How text is cut into words before merges are applied: one linear scanner, one row per published split rule.
//!
//! The published rules are regular expressions with a look-ahead. All of them are the same sentence with four
//! words changed, so they are run by one hand-written scanner that never backtracks: its time is linear in the
//! text, whatever the text. `tests/text_pretokenize.rs` holds the scanner against the expressions themselves.

use std::sync::OnceLock;

use super::TextError;

/// A published rule for cutting text into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitRule {
    /// Qwen2 and Dream: digits one by one, contractions in any case.
    Qwen2,
    /// Ling and LLaDA. Cuts exactly like [`SplitRule::Qwen2`]; kept apart because the files name it apart.
    BailingMoe,
    /// Llama 3: digits in groups of up to three; a word that is a token is taken whole.
    LlamaBpe,
    /// GPT-2: digits in one group, contractions in lower case only, newlines are plain white space.
    Gpt2,
}

/// One row of [`PRETOKENIZERS`].
#[derive(Debug)]
pub struct PreTokenizer {
    /// The names that `tokenizer.ggml.pre` may hold for this rule.
    pub names: &'static [&'static str],
    /// The rule that they stand for.
    pub rule: SplitRule,
}

/// Every `tokenizer.ggml.pre` that is understood. `default` and a missing key are resolved by
/// [`ARCHITECTURE_RULES`].
pub const PRETOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer { names: &["qwen2", "dream"], rule: SplitRule::Qwen2 },
    PreTokenizer { names: &["bailingmoe", "bailingmoe2", "llada-moe", "llada"], rule: SplitRule::BailingMoe },
    PreTokenizer { names: &["llama-bpe", "llama3", "llama-v3"], rule: SplitRule::LlamaBpe },
    PreTokenizer { names: &["gpt-2"], rule: SplitRule::Gpt2 },
];

/// The rule that an architecture's published models use: applied, with a warning, where the file says `default` or
/// says nothing.
pub const ARCHITECTURE_RULES: &[(&str, SplitRule)] =
    &[("llada", SplitRule::BailingMoe), ("llada-moe", SplitRule::BailingMoe), ("dream", SplitRule::Qwen2)];

impl SplitRule {
    /// The rule for a file's `tokenizer.ggml.pre` (`None`: the key is missing), and a warning where it was assumed.
    ///
    /// # Errors
    /// Unknown names are refused, and so are `default` and a missing name for an architecture without a row in
    /// [`ARCHITECTURE_RULES`]: another rule would give other ids in silence.
    pub fn resolve(pre: Option<&str>, architecture: &str) -> Result<(SplitRule, Option<String>), TextError> {
        let row = pre.and_then(|name| PRETOKENIZERS.iter().find(|row| row.names.contains(&name)));
        if let Some(row) = row {
            return Ok((row.rule, None));
        }
        let assumed = ARCHITECTURE_RULES.iter().find(|(name, _)| *name == architecture).map(|(_, rule)| *rule);
        match (pre, assumed) {
            (None | Some("default"), Some(rule)) => {
                let said = if pre.is_some() { "is \"default\"" } else { "is missing" };
                let warning = format!(
                    "tokenizer.ggml.pre {said}: words are cut by the rule of {architecture} models, \"{}\"",
                    rule.name()
                );
                Ok((rule, Some(warning)))
            }
            _ => Err(TextError::UnknownPreTokenizer {
                found: pre.map(str::to_owned),
                architecture: architecture.to_owned(),
                known: PRETOKENIZERS.iter().flat_map(|row| row.names).copied().collect(),
            }),
        }
    }

    /// The name that files use for this rule.
    pub fn name(self) -> &'static str {
        PRETOKENIZERS.iter().find(|row| row.rule == self).map_or("", |row| row.names[0])
    }

    /// Whether a word that is itself a token is taken whole, without looking at merges.
    pub(crate) fn takes_whole_words(self) -> bool {
        self == SplitRule::LlamaBpe
    }

    /// The rule as the regular expression that its authors published (in fancy-regex's dialect): what [`words`] is
    /// tested against. Nothing runs it.
    ///
    /// [`words`]: SplitRule::words
    pub fn published_expression(self) -> &'static str {
        match self {
            SplitRule::Qwen2 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::BailingMoe => {
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
            }
            SplitRule::LlamaBpe => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::Gpt2 => r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        }
    }

    fn shape(self) -> Shape {
        match self {
            SplitRule::Qwen2 | SplitRule::BailingMoe => Shape { gpt2: false, digits: 1 },
            SplitRule::LlamaBpe => Shape { gpt2: false, digits: 3 },
            SplitRule::Gpt2 => Shape { gpt2: true, digits: usize::MAX },
        }
    }

    /// Cuts `text` into words. The words joined are the text; none is empty. Linear in the length of the text.
    pub fn words(self, text: &str) -> Words<'_> {
        Words { text, start: 0, shape: self.shape(), classes: classes() }
    }
}

/// What differs between the published rules.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Contractions in lower case only; letters, numbers and marks each take one space before them; newlines are
    /// nothing special. Otherwise: contractions in any case; letters take any one mark before them, marks take a
    /// space before and newlines behind; white space is cut behind its last newline.
    gpt2: bool,
    /// The most digits in one word.
    digits: usize,
}

/// The words of a text: see [`SplitRule::words`].
#[derive(Debug)]
pub struct Words<'a> {
    text: &'a str,
    start: usize,
    shape: Shape,
    classes: &'static [Class],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Mark,
    Letter,
    Number,
    Space,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.start..];
        let first = rest.chars().next()?;
        let length = self.contraction(rest).unwrap_or_else(|| match self.class(first) {
            Class::Letter => self.run(rest, Class::Letter, usize::MAX),
            Class::Number => self.run(rest, Class::Number, self.shape.digits),
            Class::Mark => self.after_mark(rest, first),
            Class::Space => self.after_space(rest, first),
        });
        self.start += length;
        Some(&rest[..length])
    }
}

impl Words<'_> {
    fn class(&self, c: char) -> Class {
        self.classes[c as usize]
    }

    fn class_at(&self, text: &str) -> Option<Class> {
        text.chars().next().map(|c| self.class(c))
    }

    /// Bytes of the leading run of at most `limit` characters of one class.
    fn run(&self, text: &str, class: Class, limit: usize) -> usize {
        text.chars().take(limit).take_while(|&c| self.class(c) == class).map(char::len_utf8).sum()
    }

    /// `'s`, `'t`, `'m`, `'d`, `'re`, `'ve`, `'ll` at the front: its bytes.
    fn contraction(&self, text: &str) -> Option<usize> {
        let tail = text.strip_prefix('\'')?;
        let mut chars = tail.chars().map(|c| if self.shape.gpt2 { c } else { fold(c) });
        let first = chars.next()?;
        match (first, chars.next()) {
            ('s' | 't' | 'm' | 'd', _) => tail.chars().next().map(|c| 1 + c.len_utf8()),
            ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
            _ => None,
        }
    }

    /// A word that starts with a mark.
    fn after_mark(&self, text: &str, first: char) -> usize {
        let behind = &text[first.len_utf8()..];
        if !self.shape.gpt2 && self.class_at(behind) == Some(Class::Letter) {
            return first.len_utf8() + self.run(behind, Class::Letter, usize::MAX);
        }
        self.marks(text)
    }

    /// A run of marks, with the newlines behind it where the rule says so.
    fn marks(&self, text: &str) -> usize {
        let length = self.run(text, Class::Mark, usize::MAX);
        if self.shape.gpt2 {
            return length;
        }
        let newlines = text[length..].bytes().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        length + newlines
    }

    /// A word that starts with white space.
    fn after_space(&self, text: &str, first: char) -> usize {
        let behind = &text[first.len_utf8()..];
        let next = self.class_at(behind);
        match next {
            Some(Class::Letter) if first == ' ' || !(self.shape.gpt2 || matches!(first, '\r' | '\n')) => {
                return first.len_utf8() + self.run(behind, Class::Letter, usize::MAX);
            }
            Some(Class::Number) if self.shape.gpt2 && first == ' ' => {
                return 1 + self.run(behind, Class::Number, usize::MAX);
            }
            Some(Class::Mark) if first == ' ' => return 1 + self.marks(behind),
            _ => {}
        }
        let run = self.run(text, Class::Space, usize::MAX);
        let spaces = &text[..run];
        if !self.shape.gpt2
            && let Some(last) = spaces.rfind(['\r', '\n'])
        {
            return last + 1;
        }
        // White space before a word leaves its last character to that word, unless it is the only one.
        let last = spaces.chars().next_back().map_or(0, char::len_utf8);
        if run < text.len() && run > last { run - last } else { run }
    }
}

/// Lower case as a case-insensitive expression sees it, for the letters of contractions: `ſ` is an `s`.
fn fold(c: char) -> char {
    if c == 'ſ' { 's' } else { c.to_ascii_lowercase() }
}

/// The class of every code point.
fn classes() -> &'static [Class] {
    static CLASSES: OnceLock<Vec<Class>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let mut table = vec![Class::Mark; char::MAX as usize + 1];
        paint(&mut table, r"\s", Class::Space);
        paint(&mut table, r"\p{L}", Class::Letter);
        paint(&mut table, r"\p{N}", Class::Number);
        table
    })
}

fn paint(table: &mut [Class], expression: &str, class: Class) {
    use regex_syntax::hir::{Class as HirClass, HirKind};
    let Ok(hir) = regex_syntax::parse(expression) else {
        return;
    };
    if let HirKind::Class(HirClass::Unicode(set)) = hir.kind() {
        for range in set.ranges() {
            table[range.start() as usize..=range.end() as usize].fill(class);
        }
    }
}
