//! From a canvas to lines of text: a pure function.

use demask::Canvas;
use demask::text::Tokenizer;
use demask_gguf::escape;
use unicode_width::UnicodeWidthChar as _;

/// Stands for an open position.
const OPEN: &str = "\u{2591}";
/// Stands for an end token.
const END: &str = "\u{b7}";
/// Stands between blocks.
const BOUNDARY: &str = "\u{2502}";

/// What there is to see of a canvas: the positions that were asked for, and what stands between or behind them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    /// Positions, with boundaries between blocks.
    pub(crate) cells: Vec<Cell>,
    /// How far the run is.
    pub(crate) status: String,
}

/// One position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Open,
    End,
    Boundary,
    Text { bytes: Vec<u8>, confidence: f64, fresh: bool },
}

impl Picture {
    /// A picture of `canvas` in blocks of `block_length`. `confidences` holds one number per canvas position, `fresh`
    /// the positions that were decided last.
    pub(crate) fn new(
        tokenizer: &Tokenizer,
        canvas: &Canvas,
        block_length: usize,
        confidences: &[f64],
        fresh: &[usize],
    ) -> Picture {
        let mut cells = Vec::new();
        let asked = canvas.asked_range();
        let fills_blanks = canvas.asked_in(0..canvas.len()) < canvas.len() - asked.start;
        let first = if fills_blanks { 0 } else { asked.start };
        let mut index = 0;
        for position in first..canvas.len() {
            let token = canvas.tokens()[position];
            if !canvas.is_asked(position) {
                if !tokenizer.is_special(token) {
                    let bytes = tokenizer.token_bytes(token).to_vec();
                    cells.push(Cell::Text { bytes, confidence: 1.0, fresh: false });
                }
                continue;
            }
            if index > 0 && index % block_length == 0 {
                cells.push(Cell::Boundary);
            }
            index += 1;
            cells.push(if canvas.is_open(position) {
                Cell::Open
            } else if tokenizer.is_end(token) {
                Cell::End
            } else {
                let confidence = confidences.get(position).copied().unwrap_or(1.0);
                let bytes = tokenizer.token_bytes(token).to_vec();
                Cell::Text { bytes, confidence, fresh: fresh.contains(&position) }
            });
        }
        Picture { cells, status: String::new() }
    }
}

/// A line that is ready for the terminal, and the columns it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) width: usize,
}

/// How a character is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Faint,
    Fresh,
    Sure(u8),
}

impl Style {
    /// The code that begins it. Shades of grey that can be read on light and on dark ground.
    fn code(self) -> &'static str {
        match self {
            Style::Plain | Style::Sure(3..) => "",
            Style::Faint => "\x1b[2m",
            Style::Fresh => "\x1b[1;32m",
            Style::Sure(2) => "\x1b[38;5;247m",
            Style::Sure(1) => "\x1b[38;5;244m",
            Style::Sure(0) => "\x1b[38;5;241m",
        }
    }

    /// The shade of a confidence: a probability, or minus an entropy.
    fn of(confidence: f64) -> Style {
        let sure = if confidence < 0.0 { confidence.exp() } else { confidence };
        Style::Sure(match sure {
            _ if sure >= 0.9 => 3,
            _ if sure >= 0.6 => 2,
            _ if sure >= 0.3 => 1,
            _ => 0,
        })
    }
}

/// A character (with what combines with it), or the end of a line.
pub(super) struct Glyph {
    pub(super) text: String,
    pub(super) width: usize,
    pub(super) style: Style,
    breaks: bool,
}

/// Draws a picture into at most `height` lines of at most `width` columns, the last of which is the status. If the
/// canvas needs more lines, those around the newest positions are shown.
pub(crate) fn render(picture: &Picture, width: usize, height: usize, colour: bool) -> Vec<Line> {
    let width = width.max(8);
    let lines = lay_out(picture, width);
    let has_news = |line: &Vec<Glyph>| line.iter().any(|glyph| glyph.style == Style::Fresh);
    let newest = lines.iter().rposition(has_news).unwrap_or(0);
    let room = height.saturating_sub(1).max(1);
    let first = newest.saturating_sub(room / 2).min(lines.len().saturating_sub(room));
    let mut drawn: Vec<Line> = lines.iter().skip(first).take(room).map(|line| paint(line, colour)).collect();
    drawn.push(status(&picture.status, width, colour));
    drawn
}

/// The canvas as lines of at most `width` columns.
pub(super) fn lay_out(picture: &Picture, width: usize) -> Vec<Vec<Glyph>> {
    let mut lines = vec![Vec::new()];
    let mut column = 0;
    for glyph in glyphs(&picture.cells) {
        if glyph.breaks || column + glyph.width > width {
            lines.push(Vec::new());
            column = 0;
        }
        column += glyph.width;
        if let Some(line) = lines.last_mut().filter(|_| !glyph.breaks) {
            line.push(glyph);
        }
    }
    lines
}

/// The whole picture as one line of plain text; line ends are shown as `\n`.
pub(crate) fn one_line(picture: &Picture) -> String {
    glyphs(&picture.cells).iter().map(|glyph| if glyph.breaks { "\\n" } else { &glyph.text }).collect()
}

fn glyphs(cells: &[Cell]) -> Vec<Glyph> {
    let mut out = Vec::new();
    let mut bytes: Vec<u8> = Vec::new();
    let mut styles: Vec<Style> = Vec::new();
    for cell in cells {
        let symbol = match cell {
            Cell::Text { bytes: more, confidence, fresh } => {
                bytes.extend(more);
                let style = if *fresh { Style::Fresh } else { Style::of(*confidence) };
                styles.resize(bytes.len(), style);
                continue;
            }
            // A boundary inside a word must not tear a character apart.
            Cell::Boundary if std::str::from_utf8(&bytes).is_err_and(|error| error.error_len().is_none()) => continue,
            Cell::Boundary => BOUNDARY,
            Cell::Open => OPEN,
            Cell::End => END,
        };
        spell(&mut bytes, &mut styles, &mut out);
        out.push(Glyph { text: symbol.to_owned(), width: 1, style: Style::Faint, breaks: false });
    }
    spell(&mut bytes, &mut styles, &mut out);
    out
}

/// Turns the bytes of neighbouring tokens into glyphs; a character has the style of its first byte.
fn spell(bytes: &mut Vec<u8>, styles: &mut Vec<Style>, out: &mut Vec<Glyph>) {
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push(c, styles[at], out);
            at += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            push(char::REPLACEMENT_CHARACTER, styles[at], out);
            at += chunk.invalid().len();
        }
    }
    bytes.clear();
    styles.clear();
}

fn push(c: char, style: Style, out: &mut Vec<Glyph>) {
    if c == '\n' {
        out.push(Glyph { text: String::new(), width: 0, style, breaks: true });
        return;
    }
    let text = match c {
        '\t' => "    ".to_owned(),
        c => escape(c.encode_utf8(&mut [0; 4])),
    };
    let width = text.chars().map(|c| c.width().unwrap_or(0)).sum();
    match out.last_mut() {
        Some(before) if width == 0 && !before.breaks => before.text.push_str(&text),
        _ => out.push(Glyph { text, width, style, breaks: false }),
    }
}

fn paint(line: &[Glyph], colour: bool) -> Line {
    let mut drawn = Line::default();
    let mut style = Style::Plain;
    for glyph in line {
        if colour && glyph.style.code() != style.code() {
            if !style.code().is_empty() {
                drawn.text.push_str("\x1b[0m");
            }
            drawn.text.push_str(glyph.style.code());
        }
        style = glyph.style;
        drawn.text.push_str(&glyph.text);
        drawn.width += glyph.width;
    }
    if colour && !style.code().is_empty() {
        drawn.text.push_str("\x1b[0m");
    }
    drawn
}

fn status(text: &str, width: usize, colour: bool) -> Line {
    let line: Vec<Glyph> = text
        .chars()
        .map(|c| Glyph { text: c.to_string(), width: c.width().unwrap_or(0), style: Style::Faint, breaks: false })
        .scan(0, |columns, glyph| {
            *columns += glyph.width;
            (*columns <= width).then_some(glyph)
        })
        .collect();
    paint(&line, colour)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
