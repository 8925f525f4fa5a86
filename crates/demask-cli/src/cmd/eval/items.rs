//! What is asked, and what answer is right.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use demask::blanks::Marked;
use demask_gguf::escape;
use serde::Deserialize;
use serde_json::Value;

use super::results::Fingerprint;
use crate::failure::Advised;
use crate::prompt::read_bounded;

/// A question with its answer.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) task: String,
    pub(super) ask: Ask,
    wanted: Wanted,
}

/// How it is asked.
#[derive(Debug)]
pub(super) enum Ask {
    /// As a user's message.
    Chat(String),
    /// As a text with blanks.
    Blanks(Marked),
}

#[derive(Debug, PartialEq)]
enum Wanted {
    /// The same text, see [`normalised`].
    Text(String),
    /// The same last number.
    Number(f64),
}

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    id: Option<Value>,
    task: Option<String>,
    prompt: Option<String>,
    question: Option<String>,
    text: Option<String>,
    answer: Option<Value>,
}

impl Item {
    /// Whether an answer is right.
    pub(super) fn is_answered_by(&self, answer: &str) -> bool {
        match &self.wanted {
            Wanted::Text(wanted) => normalised(answer) == *wanted,
            Wanted::Number(wanted) => last_number(answer) == Some(*wanted),
        }
    }
}

/// Reads a file of items, and a number that another file would not have.
pub(super) fn read(path: &Path) -> Result<(Vec<Item>, String)> {
    let name = escape(path.as_os_str().as_encoded_bytes());
    let file = std::fs::File::open(path).with_context(|| format!("cannot read `{name}`"))?;
    let text = String::from_utf8(read_bounded(file, &format!("`{name}`"))?).map_err(|error| {
        anyhow::anyhow!("cannot read `{name}`: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut fingerprint = Fingerprint::default();
    let mut ids = HashSet::new();
    let mut items = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let item = item(line, number).map_err(|reason| {
            let hint = "a line is {\"prompt\": ..., \"answer\": ...}; `demask eval --help` tells the other forms";
            Advised::new(format!("cannot read `{name}`: line {number}: {}", escape(&reason)), hint)
        })?;
        if !ids.insert(item.id.clone()) {
            bail!("cannot read `{name}`: line {number}: a second item with the id `{}`", escape(&item.id));
        }
        fingerprint.add(line.trim().as_bytes());
        items.push(item);
    }
    if items.is_empty() {
        bail!("cannot read `{name}`: it holds no item");
    }
    Ok((items, fingerprint.to_string()))
}

/// Leaves `limit` items, in their order. Files are often sorted by task, so they are drawn from the whole of it; by their
/// ids, so that more items are the same and others.
pub(super) fn draw(items: &mut Vec<Item>, limit: usize) {
    let mut lots: Vec<u64> = items.iter().map(|item| Fingerprint::of_text(&item.id).lot()).collect();
    let places = lots.clone();
    lots.sort_unstable();
    if let Some(&first_out) = lots.get(limit) {
        let mut places = places.into_iter();
        items.retain(|_| places.next().is_some_and(|lot| lot < first_out));
    }
}

fn item(line: &str, number: usize) -> Result<Item, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let answer = match line.answer {
        Some(Value::String(text)) => text,
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err("its `answer` is neither text nor a number".to_owned()),
        None => return Err("it has no `answer`".to_owned()),
    };
    let (ask, task) = match (line.prompt.or(line.question), line.text) {
        (Some(prompt), None) => (Ask::Chat(prompt), "all"),
        (None, Some(text)) => (Ask::Blanks(Marked::new(&text).map_err(|error| error.to_string())?), "infill"),
        (Some(_), Some(_)) => return Err("it has both a prompt and a `text`".to_owned()),
        (None, None) => return Err("it has no `prompt`, `question` or `text`".to_owned()),
    };
    let wanted = match answer.rsplit_once("####") {
        Some((_, after)) => Wanted::Number(last_number(after).ok_or("there is no number behind its `####`")?),
        None => Wanted::Text(normalised(&answer)),
    };
    let id = match line.id {
        Some(Value::String(id)) => id,
        Some(id) => id.to_string(),
        None => format!("line-{number}"),
    };
    Ok(Item { id, task: line.task.unwrap_or_else(|| task.to_owned()), ask, wanted })
}

/// A text without white space at its ends, and with one space for each run of it inside.
fn normalised(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The last number of a text: `72`, `-3`, `1,200`, `$0.50`.
fn last_number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let inside = |b: u8| b.is_ascii_digit() || b == b'.' || b == b',';
    let mut start = bytes[..end].iter().rposition(|&b| !inside(b)).map_or(0, |before| before + 1);
    // A list such as `1, 2,3` ends in 3: commas only stand between groups of three digits.
    while let Some(comma) = bytes[start..end].iter().position(|&b| b == b',') {
        let group = bytes[start + comma + 1..end].iter().take_while(|b| b.is_ascii_digit()).count();
        if comma > 0 && comma <= 3 && group == 3 {
            break;
        }
        start += comma + 1;
    }
    let negative = start > 0 && bytes[start - 1] == b'-' && (start < 2 || !bytes[start - 2].is_ascii_alphanumeric());
    let digits: String = text[start..end].chars().filter(|&c| c != ',').collect();
    let number: f64 = digits.trim_start_matches('.').parse().ok().or_else(|| {
        // Something like a version: its last part.
        digits.rsplit('.').next().and_then(|part| part.parse().ok())
    })?;
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_counts() {
        for (text, wanted) in [
            ("72", Some(72.0)),
            ("The answer is $1,200.50.", Some(1200.5)),
            ("48 + 24 = 72 apples", Some(72.0)),
            ("it is -3", Some(-3.0)),
            ("3-5", Some(5.0)),
            ("1, 2,3", Some(3.0)),
            ("1,234,567", Some(1_234_567.0)),
            ("v1.2.3", Some(3.0)),
            ("72.0", Some(72.0)),
            ("none", None),
            ("", None),
        ] {
            assert_eq!(last_number(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_draw_is_a_part_of_a_larger_one_and_from_everywhere() {
        let drawn = |limit| {
            let line = |n: usize| item(&format!("{{\"id\": \"sums-{n}\", \"prompt\": \"\", \"answer\": 1}}"), n);
            let mut items: Vec<Item> = (0..600).map(|n| line(n).expect("fine")).collect();
            draw(&mut items, limit);
            items.into_iter().map(|item| item.id).collect::<Vec<_>>()
        };
        let (few, more) = (drawn(60), drawn(120));
        assert_eq!((few.len(), more.len(), drawn(600).len(), drawn(usize::MAX).len()), (60, 120, 600, 600));
        assert!(few.iter().all(|id| more.contains(id)));
        let number = |id: &String| id["sums-".len()..].parse::<usize>().expect("a number");
        let low = more.iter().filter(|id| number(id) < 300).count();
        assert!((45..75).contains(&low) && more.is_sorted_by_key(number), "{more:?}");
    }

    #[test]
    fn three_kinds_of_lines() {
        let of = |line: &str| item(line, 3);
        let chat = of(r#"{"id": 7, "task": "sums", "prompt": "2+3?", "answer": " 2 + 3\n= 5 "}"#).expect("chat");
        assert_eq!((chat.id.as_str(), chat.task.as_str()), ("7", "sums"));
        assert!(chat.is_answered_by("2 + 3 = 5\n") && !chat.is_answered_by("2 + 3 = 6"));
        let gsm = of(r#"{"question": "How many?", "answer": "48/2 = <<48/2=24>>24\n#### 1,072"}"#).expect("GSM8K");
        assert!(gsm.is_answered_by("So 24, and in all 1072.") && !gsm.is_answered_by("1072 less 24"));
        assert_eq!((gsm.id.as_str(), gsm.task.as_str()), ("line-3", "all"));
        let blanks = of(r#"{"text": "1 + 1 = [[2]]", "answer": "1 + 1 = 2"}"#).expect("blanks");
        assert!(matches!(blanks.ask, Ask::Blanks(_)) && blanks.is_answered_by("1 + 1 = 2"));
        for (line, words) in [
            ("{", "EOF"),
            (r#"{"prompt": "x"}"#, "`answer`"),
            (r#"{"answer": "x"}"#, "`prompt`"),
            (r#"{"text": "x", "answer": "x"}"#, "no blank"),
            (r#"{"prompt": "x", "answer": "so #### none"}"#, "####"),
            (r#"{"prompt": "x", "answer": []}"#, "neither"),
        ] {
            assert!(of(line).expect_err(line).contains(words), "{line}");
        }
    }
}
