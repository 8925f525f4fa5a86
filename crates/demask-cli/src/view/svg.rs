//! The canvas as SVG: one picture, or a film of it filling. Pure functions, text in a fixed-width font.

use std::fmt::Write as _;

use super::frame::{Glyph, Picture, Style, lay_out};

/// Columns of text.
const COLUMNS: usize = 72;
/// Pixels per column and per line, and around the text.
const COLUMN: f64 = 8.4;
const LINE: f64 = 22.0;
const MARGIN: f64 = 18.0;
/// Seconds per step, unless the film would be longer than [`LONGEST`].
const STEP: f64 = 0.16;
const LONGEST: f64 = 8.0;
/// Seconds that the last picture stays.
const REST: f64 = 2.5;

/// One picture.
pub(crate) fn still(picture: &Picture, title: Option<&str>) -> String {
    let body = draw(picture, title);
    page(height(picture, title), &body)
}

/// A film, from the empty canvas to the answer, that begins again.
pub(crate) fn film(pictures: &[Picture], title: Option<&str>) -> String {
    let Some((last, before)) = pictures.split_last() else { return page(2.0 * MARGIN, "") };
    let step = STEP.min(LONGEST / pictures.len() as f64);
    let length = step * before.len() as f64 + REST;
    let mut body = String::new();
    for (index, picture) in before.iter().enumerate() {
        let (from, to) = (index as f64 * step / length, (index + 1) as f64 * step / length);
        let times = if index == 0 { format!("0;{to:.5}") } else { format!("0;{from:.5};{to:.5}") };
        let values = if index == 0 { "visible;hidden" } else { "hidden;visible;hidden" };
        scene(&mut body, &draw(picture, title), length, &times, values, "hidden");
    }
    // Where nothing moves, the answer is what is seen.
    let from = before.len() as f64 * step / length;
    scene(&mut body, &draw(last, title), length, &format!("0;{from:.5}"), "hidden;visible", "visible");
    let tallest = pictures.iter().map(|picture| height(picture, title)).fold(0.0, f64::max);
    page(tallest, &body)
}

fn scene(body: &mut String, drawn: &str, length: f64, times: &str, values: &str, at_rest: &str) {
    let _ = write!(
        body,
        "<g visibility=\"{at_rest}\"><animate attributeName=\"visibility\" calcMode=\"discrete\" dur=\"{length:.2}s\" \
         repeatCount=\"indefinite\" keyTimes=\"{times}\" values=\"{values}\"/>\n{drawn}</g>\n"
    );
}

fn page(height: f64, body: &str) -> String {
    let width = COLUMNS as f64 * COLUMN + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\">\n<style>text {{ font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; \
         fill: #e6edf3; white-space: pre }} .t {{ fill: #8b949e }} .f {{ fill: #484f58 }} .n {{ fill: #3fb950; font-weight: \
         700 }} .a {{ fill: #c3cad1 }} .b {{ fill: #9aa2ab }} .c {{ fill: #747c86 }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#0d1117\"/>\n{body}</svg>\n"
    )
}

/// Lines of a picture, its title and its status.
fn rows(picture: &Picture, title: Option<&str>) -> usize {
    lay_out(picture, COLUMNS).len() + usize::from(title.is_some()) + 1
}

fn height(picture: &Picture, title: Option<&str>) -> f64 {
    rows(picture, title) as f64 * LINE + 2.0 * MARGIN
}

fn draw(picture: &Picture, title: Option<&str>) -> String {
    let mut out = String::new();
    let mut row = 0;
    let mut line = |columns: usize, spans: &str| {
        let y = MARGIN + row as f64 * LINE + 15.0;
        row += 1;
        if columns > 0 {
            // Wide characters keep their columns, whatever font draws them.
            let length = columns as f64 * COLUMN;
            let _ = writeln!(
                out,
                "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\" textLength=\"{length:.1}\">{spans}</text>"
            );
        }
    };
    if let Some(title) = title {
        let title: String = title.chars().take(COLUMNS).collect();
        line(title.chars().count(), &format!("<tspan class=\"t\">{}</tspan>", escaped(&title)));
    }
    for glyphs in lay_out(picture, COLUMNS) {
        line(glyphs.iter().map(|glyph| glyph.width).sum(), &spans(&glyphs));
    }
    line(picture.status.chars().count(), &format!("<tspan class=\"t\">{}</tspan>", escaped(&picture.status)));
    out
}

/// Neighbours of one style share a span.
fn spans(glyphs: &[Glyph]) -> String {
    let mut out = String::new();
    for run in glyphs.chunk_by(|a, b| class(a.style) == class(b.style)) {
        let text: String = run.iter().map(|glyph| escaped(&glyph.text)).collect();
        match class(run[0].style) {
            "" => out.push_str(&text),
            class => {
                let _ = write!(out, "<tspan class=\"{class}\">{text}</tspan>");
            }
        }
    }
    out
}

fn class(style: Style) -> &'static str {
    match style {
        Style::Plain | Style::Sure(3..) => "",
        Style::Faint => "f",
        Style::Fresh => "n",
        Style::Sure(2) => "a",
        Style::Sure(1) => "b",
        Style::Sure(0) => "c",
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::frame::Cell;

    fn picture(cells: Vec<Cell>) -> Picture {
        Picture { cells, status: "step 1".to_owned() }
    }

    fn text(bytes: &[u8], confidence: f64, fresh: bool) -> Cell {
        Cell::Text { bytes: bytes.to_vec(), confidence, fresh }
    }

    #[test]
    fn a_still_is_the_frame() {
        let cells = vec![text(b"a<b", 1.0, false), text("語".as_bytes(), 0.5, false), Cell::Open, Cell::End];
        let drawn = still(&picture(cells), Some("$ \"x\""));
        insta::assert_snapshot!(drawn.lines().skip(3).collect::<Vec<_>>().join("\n"), @r#"
        <text x="18" y="33" xml:space="preserve" textLength="42.0"><tspan class="t">$ &quot;x&quot;</tspan></text>
        <text x="18" y="55" xml:space="preserve" textLength="58.8">a&lt;b<tspan class="b">語</tspan><tspan class="f">░·</tspan></text>
        <text x="18" y="77" xml:space="preserve" textLength="50.4"><tspan class="t">step 1</tspan></text>
        </svg>
        "#);
    }

    #[test]
    fn a_film_shows_every_picture_in_turn_and_rests_on_the_last() {
        let film = film(&[picture(vec![Cell::Open]), picture(vec![text(b"x", 1.0, true)]), picture(vec![])], None);
        assert_eq!(film.matches("<g visibility=\"hidden\">").count(), 2);
        assert_eq!(film.matches("<g visibility=\"visible\">").count(), 1);
        assert!(film.contains("keyTimes=\"0;0.05674\" values=\"visible;hidden\""), "{film}");
        assert!(film.contains("keyTimes=\"0;0.05674;0.11348\""), "{film}");
        assert!(film.contains("keyTimes=\"0;0.11348\" values=\"hidden;visible\""), "{film}");
        assert!(!film.chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn long_films_are_not_longer_than_short_ones_by_much() {
        let pictures: Vec<Picture> = (0..500).map(|_| picture(vec![Cell::Open])).collect();
        assert!(film(&pictures, None).contains("dur=\"10.48s\""));
    }
}
