//! Conversations to prompts, by the model's own template, without letting a message pose as the template.
//!
//! A rendered template is text in which the names of control tokens steer the model. The template may write them; a
//! message may not. So messages are rendered in *disguise*: characters of theirs that could be part of such a name are
//! swapped, one for one, for private characters that occur nowhere else; the rendered text is cut at the names that
//! are left, and only then is the disguise taken off. Trimming, splitting, length and order all work on disguised
//! text, because white space stays as it is.
//!
//! There are two disguises. The *light* one changes a character only where a whole name stands in a message, so
//! templates that look into messages (a search for `</think>`, say) see them as they are. The *full* one changes every
//! character that occurs in any name: no operation of the template can put a name together from it. Where both give
//! the same control tokens the light rendering is taken, else the full one.

use std::collections::{BTreeSet, HashMap};

use minijinja::value::Value;
use serde::{Deserialize, Serialize};

use super::special::Part;
use super::template::Template;
use super::{Specials, TextError, Tokenizer};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name that templates compare with.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said: text, whatever it looks like.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into() }
    }
}

/// A day, for templates that show one. The library has no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: u16,
    /// The month, from 1.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
}

/// A template for an architecture whose files may come without one.
#[derive(Debug)]
struct BuiltIn {
    architecture: &'static str,
    /// Tokens without which the template's markers would be mere text.
    markers: &'static [&'static str],
    source: &'static str,
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        architecture: "llada",
        markers: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        source: concat!(
            "{{ bos_token }}",
            "{% for message in messages %}",
            "{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content|trim ~ '<|eot_id|>' }}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        ),
    },
    BuiltIn {
        architecture: "dream",
        markers: &["<|im_start|>", "<|im_end|>"],
        source: concat!(
            "{% if not messages or messages[0].role != 'system' %}",
            "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}",
            "{% endif %}",
            "{% for message in messages %}",
            "{{ '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        ),
    },
];

/// The form that a model's conversations have.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    template: Template,
    built_in: Option<&'static BuiltIn>,
}

impl ChatTemplate {
    /// The template of a file (`tokenizer.chat_template`), or the built-in one of its architecture where the file has
    /// none. No other template takes the place of a broken one.
    ///
    /// # Errors
    /// [`TextError::Template`] for what isn't valid Jinja, [`TextError::NoTemplate`] for an architecture without one.
    pub fn for_model(template: Option<&str>, architecture: &str) -> Result<ChatTemplate, TextError> {
        let built_in = BUILT_IN.iter().find(|row| row.architecture == architecture);
        let (source, built_in) = match (template, built_in) {
            (Some(source), _) => (source, None),
            (None, Some(row)) => (row.source, Some(row)),
            (None, None) => {
                let known: Vec<_> = BUILT_IN.iter().map(|row| row.architecture).collect();
                let architecture = super::error::shown(architecture);
                return Err(TextError::NoTemplate { architecture, known: known.join(", ") });
            }
        };
        Ok(ChatTemplate { source: source.to_owned(), template: Template::compile(source, None)?, built_in })
    }

    /// The same template with a date for `strftime_now`. Without one the function does not exist: templates that ask
    /// whether it does take their default, others fail with its name.
    ///
    /// # Errors
    /// As [`ChatTemplate::for_model`].
    pub fn with_date(self, date: Date) -> Result<ChatTemplate, TextError> {
        Ok(ChatTemplate { template: Template::compile(&self.source, Some(date))?, ..self })
    }

    /// The architecture whose built-in template this is; `None` for a template from a file.
    pub fn built_in(&self) -> Option<&'static str> {
        self.built_in.map(|row| row.architecture)
    }

    /// The prompt's tokens. BOS begins them at most once: where the template writes it, or where the file says that
    /// prompts begin with it. Names of control tokens inside messages are text.
    ///
    /// # Errors
    /// When the template fails on this conversation, or refuses it.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, TextError> {
        let rendered = self.run(tokenizer, messages, add_generation_prompt)?;
        let mut tokens = Vec::new();
        for part in tokenizer.control_names().split(&rendered.text) {
            match part {
                Part::Token(id) => tokens.push(id),
                Part::Text(text) => tokens.extend(tokenizer.encode(&rendered.disguise.remove(text), Specials::Text)),
            }
        }
        if let Some(bos) = tokenizer.ids().bos {
            let leading = tokens.iter().take_while(|&&id| id == bos).count();
            let wanted = usize::from(leading > 0 || tokenizer.leading_bos().is_some());
            tokens.splice(..leading, std::iter::repeat_n(bos, wanted));
        }
        Ok(tokens)
    }

    /// The prompt as text, as the template wrote it.
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`].
    pub fn render(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let rendered = self.run(tokenizer, messages, add_generation_prompt)?;
        Ok(rendered.disguise.remove(&rendered.text))
    }

    fn run(&self, tokenizer: &Tokenizer, messages: &[Message], generate: bool) -> Result<Rendered, TextError> {
        self.check_markers(tokenizer)?;
        let disguise = Disguise::new(tokenizer, &self.source, messages)?;
        let rendering = |dress: &dyn Fn(&str) -> String| {
            let dressed = messages.iter().map(|m| Message::new(m.role, dress(&m.content))).collect::<Vec<_>>();
            let bytes = messages.iter().map(|m| m.content.len()).sum();
            self.template.render(&context(tokenizer, &dressed, generate), messages.len(), bytes)
        };
        let light = rendering(&|content| disguise.light(tokenizer, content))?;
        let full = rendering(&|content| disguise.full(content))?;
        let markers = |text: &str| -> Vec<u32> {
            let parts = tokenizer.control_names().split(text);
            parts.iter().filter_map(|part| if let Part::Token(id) = part { Some(*id) } else { None }).collect()
        };
        let text = if markers(&light) == markers(&full) { light } else { full };
        Ok(Rendered { text, disguise })
    }

    /// A built-in template is of use only where its markers are tokens.
    fn check_markers(&self, tokenizer: &Tokenizer) -> Result<(), TextError> {
        let Some(row) = self.built_in else {
            return Ok(());
        };
        let absent = |marker: &&str| {
            let found = tokenizer.control_names().at(marker.as_bytes());
            found.is_none_or(|(_, length)| length != marker.len())
        };
        match row.markers.iter().copied().find(absent) {
            Some(token) => Err(TextError::MissingMarker { architecture: row.architecture, token }),
            None => Ok(()),
        }
    }
}

struct Rendered {
    /// The prompt, messages in disguise.
    text: String,
    disguise: Disguise,
}

/// What a template may look at.
fn context(tokenizer: &Tokenizer, messages: &[Message], add_generation_prompt: bool) -> Value {
    let name = |id: Option<u32>| {
        let bytes = id.map(|id| tokenizer.token_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let ids = tokenizer.ids();
    let turn = |m: &Message| Value::from_pairs([("role", m.role.name()), ("content", m.content.as_str())]);
    minijinja::context! {
        messages => messages.iter().map(turn).collect::<Vec<_>>(),
        add_generation_prompt => add_generation_prompt,
        bos_token => name(ids.bos),
        eos_token => name(ids.eos),
        pad_token => name(ids.pad),
        unk_token => name(ids.unknown),
        tools => (),
        documents => (),
    }
}

/// Private characters that stand for those of control tokens' names.
struct Disguise {
    worn: HashMap<char, char>,
    bare: HashMap<char, char>,
}

impl Disguise {
    /// Picks private characters that are in no message, no token name and not in the template.
    fn new(tokenizer: &Tokenizer, source: &str, messages: &[Message]) -> Result<Disguise, TextError> {
        let is_private = |c: &char| matches!(c, '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}');
        let mut taken: BTreeSet<char> = source.chars().filter(is_private).collect();
        taken.extend(messages.iter().flat_map(|m| m.content.chars()).filter(is_private));
        // Only what messages hold needs a disguise.
        let present: BTreeSet<char> = messages.iter().flat_map(|m| m.content.chars()).collect();
        let mut named = BTreeSet::new();
        for id in tokenizer.control_ids() {
            let name = String::from_utf8_lossy(tokenizer.token_bytes(id));
            taken.extend(name.chars().filter(is_private));
            named.extend(name.chars().filter(|c| !c.is_whitespace() && present.contains(c)));
        }
        let mut free = ('\u{f0000}'..='\u{ffffd}').chain('\u{100000}'..='\u{10fffd}').filter(|c| !taken.contains(c));
        let mut disguise = Disguise { worn: HashMap::new(), bare: HashMap::new() };
        for c in named {
            let Some(private) = free.next() else {
                let detail = "messages and token names use up all private characters".to_owned();
                return Err(TextError::Template { line: None, detail });
            };
            disguise.worn.insert(c, private);
            disguise.bare.insert(private, c);
        }
        Ok(disguise)
    }

    /// Disguises one character of every control token's name in a message.
    fn light(&self, tokenizer: &Tokenizer, content: &str) -> String {
        let names = tokenizer.control_names();
        let mut hidden = BTreeSet::new();
        for (at, _) in content.char_indices() {
            if let Some((_, length)) = names.at(&content.as_bytes()[at..]) {
                let name = content[at..at + length].char_indices();
                hidden.extend(name.filter(|(_, c)| !c.is_whitespace()).map(|(i, _)| at + i).take(1));
            }
        }
        let dress = |(at, c): (usize, char)| {
            if hidden.contains(&at) { self.worn.get(&c).copied().unwrap_or(c) } else { c }
        };
        content.char_indices().map(dress).collect()
    }

    /// Disguises every character that occurs in a control token's name.
    fn full(&self, content: &str) -> String {
        content.chars().map(|c| self.worn.get(&c).copied().unwrap_or(c)).collect()
    }

    fn remove(&self, text: &str) -> String {
        text.chars().map(|c| self.bare.get(&c).copied().unwrap_or(c)).collect()
    }
}
