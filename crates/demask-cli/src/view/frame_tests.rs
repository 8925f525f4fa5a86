//! The frame as text, for canvases in every state.

use super::*;

fn text(token: &str) -> Cell {
    Cell::Text { bytes: token.as_bytes().to_vec(), confidence: 1.0, fresh: false }
}

fn with(token: &[u8], confidence: f64, fresh: bool) -> Cell {
    Cell::Text { bytes: token.to_vec(), confidence, fresh }
}

fn picture(cells: Vec<Cell>) -> Picture {
    Picture { cells, status: "step 3 of 9".to_owned() }
}

/// Lines as text; widths must be what the terminal will see.
fn drawn(picture: &Picture, width: usize, height: usize, colour: bool) -> String {
    let lines = render(picture, width, height, colour);
    assert!(lines.len() <= height && lines.iter().all(|line| line.width <= width));
    lines.iter().map(|line| escape(&line.text)).collect::<Vec<_>>().join("\n")
}

#[test]
fn open_decided_and_end_positions() {
    let picture =
        picture(vec![text("Mer"), text("cury"), Cell::Open, Cell::Boundary, Cell::Open, Cell::End, Cell::End]);
    insta::assert_snapshot!(drawn(&picture, 40, 10, false), @r"
    Mercury░│░··
    step 3 of 9
    ");
    assert_eq!(one_line(&picture), "Mercury░│░··");
}

#[test]
fn confidence_is_a_shade_and_news_are_bright() {
    let cells = vec![
        with(b"a", 0.95, false),
        with(b"b", 0.7, false),
        with(b"c", 0.4, false),
        with(b"d", 0.1, false),
        with(b"e", 0.1, true),
        with(b"f", -0.05, false),
        with(b"g", f64::NEG_INFINITY, false),
        Cell::Open,
    ];
    insta::assert_snapshot!(drawn(&picture(cells), 40, 10, true), @r"
    a\x1b[38;5;247mb\x1b[0m\x1b[38;5;244mc\x1b[0m\x1b[38;5;241md\x1b[0m\x1b[1;32me\x1b[0mf\x1b[38;5;241mg\x1b[0m\x1b[2m░\x1b[0m
    \x1b[2mstep 3 of 9\x1b[0m
    ");
}

#[test]
fn e14_wide_and_combining_characters_keep_their_columns() {
    let wide = picture(vec![text("日本語テキスト"), text("e\u{301}x")]);
    assert_eq!(drawn(&wide, 9, 10, false), "日本語テ\nキストe\u{301}x\nstep 3 of");
    assert_eq!(render(&wide, 9, 10, false).iter().map(|line| line.width).collect::<Vec<_>>(), [8, 8, 9]);
}

#[test]
fn e14_a_character_may_be_spread_over_tokens() {
    let llama = "🦙".as_bytes();
    let whole = picture(vec![with(&llama[..2], 1.0, false), Cell::Boundary, with(&llama[2..], 1.0, false), text("!")]);
    assert_eq!(one_line(&whole), "🦙!");
    let half = picture(vec![with(&llama[..2], 1.0, false), Cell::Open, text("!")]);
    assert_eq!(one_line(&half), "\u{fffd}░!");
}

#[test]
fn a31_control_characters_are_shown() {
    let hostile = picture(vec![text("a\u{1b}[2J"), text("b\r\n"), text("c\td\u{202e}")]);
    insta::assert_snapshot!(drawn(&hostile, 40, 10, true), @r"
    a\x1b[2Jb\r
    c    d\u{202e}
    \x1b[2mstep 3 of 9\x1b[0m
    ");
    let lines = render(&hostile, 40, 10, false);
    assert!(!lines.iter().any(|line| line.text.chars().any(char::is_control)));
}

#[test]
fn a_tall_canvas_shows_the_lines_around_the_news() {
    let mut cells: Vec<Cell> = (0..10).map(|n| text(&format!("line {n}\n"))).collect();
    insta::assert_snapshot!(drawn(&picture(cells.clone()), 40, 4, false), @r"
    line 0
    line 1
    line 2
    step 3 of 9
    ");
    cells[6] = with(b"line 6\n", 1.0, true);
    insta::assert_snapshot!(drawn(&picture(cells.clone()), 40, 4, false), @r"
    line 5
    line 6
    line 7
    step 3 of 9
    ");
    cells[9] = with(b"line 9", 1.0, true);
    insta::assert_snapshot!(drawn(&picture(cells), 40, 4, false), @r"
    line 7
    line 8
    line 9
    step 3 of 9
    ");
}

#[test]
fn a_picture_shows_the_answer_of_a_canvas() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny-llada-f32.gguf");
    let file = demask::ModelFile::open(path).expect("a fixture");
    let mut canvas = file.canvas(&[1, 2, 3], 4).expect("a canvas");
    let edit = |position, to| demask::Edit {
        position,
        from: 284,
        to,
        kind: demask::diffusion::EditKind::Unmask,
        confidence: 0.5,
    };
    canvas.apply(&demask::diffusion::Transfer { edits: vec![edit(3, 104), edit(6, 287)] });
    let mut confidences = vec![1.0; 7];
    confidences[3] = 0.5;
    let picture = Picture::new(file.tokenizer(), &canvas, 2, &confidences, &[3]);
    let wanted = [with(b"h", 0.5, true), Cell::Open, Cell::Boundary, Cell::Open, Cell::End];
    assert_eq!(picture.cells, wanted);
}
