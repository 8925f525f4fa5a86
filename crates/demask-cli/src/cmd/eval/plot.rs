//! Accuracy against work, one point per recipe: a drawing in SVG, small enough to be read as text.

use std::fmt::Write as _;

use super::results::Heading;
use super::summary::{RunSummary, Summary};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Where the axes are: left, right, top, bottom.
const FRAME: [f64; 4] = [64.0, 616.0, 64.0, 344.0];

const COLOURS: [&str; 6] = ["#1b6ca8", "#c4571b", "#2c8a4b", "#8a3f9e", "#a88a1b", "#555555"];

/// Draws the recipes that have a point: R to the right (few rows are at the left), accuracy upwards.
pub(super) fn svg(summary: &Summary, heading: &Heading) -> String {
    let runs: Vec<(&RunSummary, f64)> =
        summary.runs.iter().filter_map(|run| Some((run, run.rows_per_visible_token.filter(|r| *r > 0.0)?))).collect();
    let least = runs.iter().map(|(_, r)| *r).fold(f64::INFINITY, f64::min);
    let most = runs.iter().map(|(_, r)| *r).fold(0.0, f64::max);
    let (least, most) = if runs.is_empty() { (1.0, 10.0) } else { (least / 1.5, most * 1.5) };
    let floor = runs.iter().map(|(run, _)| run.interval[0]).fold(1.0, f64::min);
    let floor = ((floor * 20.0).floor() / 20.0).min(0.95);

    let [left, right, top, bottom] = FRAME;
    let x = |r: f64| left + (r / least).ln() / (most / least).ln() * (right - left);
    let y = |share: f64| bottom - (share - floor) / (1.0 - floor) * (bottom - top);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let title = format!("{}: {} items of {}", heading.model.name, summary.items, heading.data.file);
    text(&mut out, left, 22.0, "start", "#222222", &title);
    for (at, label) in shares(floor) {
        rule(&mut out, [left, y(at), right, y(at)], "#dddddd");
        text(&mut out, left - 8.0, y(at) + 4.0, "end", "#555555", &label);
    }
    for at in rounds(least, most) {
        rule(&mut out, [x(at), top, x(at), bottom], "#dddddd");
        text(&mut out, x(at), bottom + 18.0, "middle", "#555555", &at.to_string());
    }
    let middle = f64::midpoint(left, right);
    text(&mut out, middle, HEIGHT - 14.0, "middle", "#222222", "rows per visible token (R); to the left is less work");
    text(&mut out, left, top - 20.0, "start", "#222222", "accuracy, with 95 % interval");
    for (index, (run, r)) in runs.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let (at, height) = (x(*r), y(run.accuracy));
        rule(&mut out, [at, y(run.interval[0]), at, y(run.interval[1])], colour);
        let _ = writeln!(out, "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"4\" fill=\"{colour}\"/>");
        let label = format!("{} {:.1} %", run.name, run.accuracy * 100.0);
        // Labels of neighbours alternate between both sides of their points.
        let (beside, anchor) = if at > middle { (at - 8.0, "end") } else { (at + 8.0, "start") };
        text(&mut out, beside, height + if index % 2 == 0 { -6.0 } else { 14.0 }, anchor, colour, &label);
    }
    out + "</svg>\n"
}

fn rule(out: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
    let _ = writeln!(out, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\"/>");
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
    let text = demask_gguf::escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>");
}

/// Marks of the vertical axis: steps of 1, 5, 10 or 20 points, at most six of them.
fn shares(floor: f64) -> Vec<(f64, String)> {
    let first = (floor * 100.0).round() as usize;
    let step = [1, 5, 10, 20].into_iter().find(|step| (100 - first) / step < 6).unwrap_or(20);
    (first..=100).filter(|n| n % step == 0).map(|n| (n as f64 / 100.0, format!("{n} %"))).collect()
}

/// Marks of the horizontal axis: 1, 2, 5, 10, 20 and so on.
fn rounds(least: f64, most: f64) -> Vec<f64> {
    let decades = (least.log10().floor() as i32)..=(most.log10().ceil() as i32);
    let marks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(decade)));
    marks.filter(|mark| (least..=most).contains(mark)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_marks() {
        assert_eq!(rounds(7.0, 210.0), [10.0, 20.0, 50.0, 100.0, 200.0]);
        let labels: Vec<String> = shares(0.75).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["75 %", "80 %", "85 %", "90 %", "95 %", "100 %"]);
        assert_eq!(shares(0.0).len(), 6);
        assert_eq!(shares(0.95).len(), 2 + 4);
    }

    #[test]
    fn names_stay_text() {
        let mut out = String::new();
        text(&mut out, 1.0, 2.0, "end", "#000000", "a<b>&\u{1b}");
        assert_eq!(out, "<text x=\"1.0\" y=\"2.0\" text-anchor=\"end\" fill=\"#000000\">a&lt;b&gt;&amp;\\x1b</text>\n");
    }
}
