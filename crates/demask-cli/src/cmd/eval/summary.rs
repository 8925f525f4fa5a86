//! What the answers come to, and the tables that show it.

use demask_gguf::escape;
use serde::Serialize;

use super::items::Item;
use super::results::{Heading, Record, Results};
use super::stats::{mcnemar, paired, wilson};
use crate::report::rounded;

/// Everything that was found out, over the items that every recipe has answered.
#[derive(Serialize)]
pub(super) struct Summary {
    pub(super) items: usize,
    pub(super) runs: Vec<RunSummary>,
    tasks: Vec<TaskSummary>,
}

/// One recipe.
#[derive(Serialize)]
pub(super) struct RunSummary {
    pub(super) name: String,
    correct: usize,
    pub(super) accuracy: f64,
    /// Of the accuracy, 95 %.
    pub(super) interval: [f64; 2],
    steps: usize,
    nfe: usize,
    rows: usize,
    visible_tokens: usize,
    seconds: f64,
    commits_per_step: Option<f64>,
    pub(super) rows_per_visible_token: Option<f64>,
    visible_tokens_per_s: Option<f64>,
    /// Share of the answers whose text is that of the first recipe.
    agreement: f64,
    /// Against the first recipe; null for itself.
    against_first: Option<Against>,
}

/// A recipe against the first one, item by item.
#[derive(Serialize)]
struct Against {
    /// Of the accuracies.
    difference: f64,
    /// Of the difference, 95 %.
    interval: [f64; 2],
    /// Items that only this recipe answered right.
    gained: usize,
    /// Items that only the first recipe answered right.
    lost: usize,
    /// McNemar's exact test.
    p: f64,
}

/// One task.
#[derive(Serialize)]
struct TaskSummary {
    task: String,
    items: usize,
    /// By recipe.
    correct: Vec<usize>,
}

impl Summary {
    /// Sums up.
    pub(super) fn new(results: &Results, items: &[Item]) -> Summary {
        let complete: Vec<(usize, Vec<&Record>)> = results.complete().collect();
        let runs = (results.heading().runs.iter().enumerate())
            .map(|(run, heading)| {
                let pairs: Vec<_> = complete.iter().map(|(_, records)| (records[run], records[0])).collect();
                RunSummary::new(&heading.name, run, &pairs)
            })
            .collect();
        let mut tasks: Vec<TaskSummary> = Vec::new();
        for (item, records) in &complete {
            let task = &items[*item].task;
            let at = tasks.iter().position(|known| known.task == *task).unwrap_or_else(|| {
                tasks.push(TaskSummary { task: task.clone(), items: 0, correct: vec![0; records.len()] });
                tasks.len() - 1
            });
            tasks[at].items += 1;
            for (correct, record) in tasks[at].correct.iter_mut().zip(records) {
                *correct += usize::from(record.correct);
            }
        }
        tasks.sort_by(|a, b| a.task.cmp(&b.task));
        Summary { items: complete.len(), runs, tasks }
    }
}

impl RunSummary {
    fn new(name: &str, run: usize, pairs: &[(&Record, &Record)]) -> RunSummary {
        let items = pairs.len();
        let sum = |of: fn(&Record) -> usize| pairs.iter().map(|(record, _)| of(record)).sum::<usize>();
        let count = |of: fn(&Record, &Record) -> bool| pairs.iter().filter(|(mine, first)| of(mine, first)).count();
        let share = |part: usize| part as f64 / items.max(1) as f64;
        let (correct, rows, visible_tokens) =
            (sum(|r| usize::from(r.correct)), sum(|r| r.rows), sum(|r| r.visible_tokens));
        let (steps, commits) = (sum(|r| r.steps), sum(|r| r.commits));
        let seconds: f64 = pairs.iter().map(|(record, _)| record.seconds).sum();
        let ratio = |over: f64, under: f64| (under > 0.0).then(|| rounded(over / under, 3));
        let gained = count(|mine, first| mine.correct && !first.correct);
        let lost = count(|mine, first| !mine.correct && first.correct);
        let against = || Against {
            difference: (gained as f64 - lost as f64) / items.max(1) as f64,
            interval: paired(gained, lost, items),
            gained,
            lost,
            p: mcnemar(gained, lost),
        };
        RunSummary {
            name: name.to_owned(),
            correct,
            accuracy: share(correct),
            interval: wilson(correct, items),
            steps,
            nfe: sum(|r| r.nfe),
            rows,
            visible_tokens,
            seconds: rounded(seconds, 3),
            commits_per_step: ratio(commits as f64, steps as f64),
            rows_per_visible_token: ratio(rows as f64, visible_tokens as f64),
            visible_tokens_per_s: ratio(visible_tokens as f64, seconds),
            agreement: share(count(|mine, first| mine.answer == first.answer)),
            against_first: (run > 0).then(against),
        }
    }

    /// Its row of the table.
    fn row(&self, items: usize) -> Vec<String> {
        let per_item = |sum: usize| number(Some(sum as f64 / items.max(1) as f64), 1);
        let [low, high] = self.interval.map(|end| format!("{:.1}", end * 100.0));
        let (difference, p) = match &self.against_first {
            None => ("-".to_owned(), "-".to_owned()),
            Some(against) => {
                let [low, high] = against.interval.map(|end| end * 100.0);
                let difference = format!("{:+.1} ({low:+.1} to {high:+.1})", against.difference * 100.0);
                (difference, if against.p < 0.001 { "< 0.001".to_owned() } else { format!("{:.3}", against.p) })
            }
        };
        vec![
            cell(&self.name),
            self.correct.to_string(),
            format!("{:.1} %", self.accuracy * 100.0),
            format!("{low} to {high}"),
            per_item(self.nfe),
            per_item(self.rows),
            number(self.rows_per_visible_token, 1),
            number(self.visible_tokens_per_s, 1),
            format!("{:.1} %", self.agreement * 100.0),
            difference,
            p,
        ]
    }
}

impl Summary {
    /// Accuracy by recipe, for a line that tells progress.
    pub(super) fn progress(&self) -> String {
        let accuracy = |run: &RunSummary| format!("{} {:.1} %", escape(&run.name), run.accuracy * 100.0);
        self.runs.iter().map(accuracy).collect::<Vec<_>>().join(", ")
    }

    /// The tables, in Markdown.
    pub(super) fn markdown(&self, heading: &Heading) -> String {
        let (model, data) = (&heading.model, &heading.data);
        let mut text = format!(
            "{} of {} items of {}; {} ({}); {}\n\n",
            self.items,
            data.items,
            escape(&data.file),
            escape(&model.name),
            model.quantisation,
            heading.device,
        );
        let head = [
            "recipe",
            "correct",
            "accuracy",
            "95 % interval",
            "NFE",
            "rows",
            "R",
            "tokens/s",
            "same text",
            "difference",
            "p",
        ];
        let rows: Vec<Vec<String>> = self.runs.iter().map(|run| run.row(self.items)).collect();
        text += &table(&head, &rows);
        text += "\nNFE (forward passes) and rows per answer; R: rows per visible token; tokens/s: visible ones; same text, \
            difference (points, paired,\n95 % interval) and p (McNemar's exact test): against the first recipe.\n";
        if self.tasks.len() > 1 {
            let mut head = vec!["task", "items"];
            head.extend(self.runs.iter().map(|run| run.name.as_str()));
            let row = |task: &TaskSummary| {
                let share = |&correct: &usize| format!("{:.1} %", correct as f64 / task.items as f64 * 100.0);
                let mut row = vec![cell(&task.task), task.items.to_string()];
                row.extend(task.correct.iter().map(share));
                row
            };
            text += "\n";
            text += &table(&head, &self.tasks.iter().map(row).collect::<Vec<_>>());
        }
        text
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Text that can't end its cell.
fn cell(text: &str) -> String {
    escape(text).replace('|', "\\|")
}

/// A Markdown table whose columns are aligned in plain text too: the first to the left, the others to the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        let dashes = "-".repeat(width);
        if column == 0 { format!(" {dashes} |") } else { format!(" {}: |", &dashes[1..]) }
    });
    let mut text = line(head.to_vec()) + "|" + &rule.collect::<String>() + "\n";
    rows.iter().for_each(|row| text += &line(row.iter().map(String::as_str).collect()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows = [vec!["exact".to_owned(), "9".to_owned()], vec![cell("a|b"), "10".to_owned()]];
        insta::assert_snapshot!(table(&["recipe", "n"], &rows), @r"
        | recipe |   n |
        | ------ | --: |
        | exact  |   9 |
        | a\|b   |  10 |
        ");
    }
}
