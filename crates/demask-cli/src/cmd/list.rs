//! `demask list`: the models on this machine.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use demask_gguf::escape;
use demask_hub::{Cache, CachedModel, SHORT_NAMES, Settings};
use serde::Serialize;

use crate::args::ListArgs;
use crate::chosen;
use crate::model_ref::model_name;
use crate::output::{self, Out, size};

/// Runs the command.
pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let mut out = Out::stdout();
    if args.known {
        return known(args.json, &mut out);
    }
    let cache = Cache::new(Settings::from_env()?.cache);
    let models = cache.models();
    let default = chosen::model().and_then(|model| cache.find(&model_name(&model).ok()?)).map(|found| found.files);
    let lines: Vec<Line> =
        models.iter().map(|model| Line::new(model, default.as_ref() == Some(&model.files))).collect();
    if args.json {
        out.json(&lines)?;
        return out.flush();
    }
    if lines.is_empty() {
        let message = format!("no models in {}; `demask list --known` shows names to pull", cache.root().display());
        output::line("note", &message);
        return Ok(());
    }
    let width = lines.iter().map(|line| line.model.len() + 1).max().unwrap_or(0);
    out.line(&format!("{:width$}  {:>8}  {:12}  PATH", "MODEL", "SIZE", "CHANGED"))?;
    for line in &lines {
        let name = format!("{}{}", line.model, if line.default { "*" } else { "" });
        let (bytes, path) = (size(line.bytes), escape(&line.files[0]));
        let state = if line.whole { line.age.clone() } else { "parts missing".to_owned() };
        out.line(&format!("{name:width$}  {bytes:>8}  {state:12}  {path}"))?;
    }
    out.flush()
}

fn known(json: bool, out: &mut Out) -> Result<()> {
    let rows: Vec<Known> =
        SHORT_NAMES.iter().map(|row| Known { name: row.name, repo: row.repo, about: row.about }).collect();
    if json {
        out.json(&rows)?;
    } else {
        for row in rows {
            out.line(&format!("{:12} {:50} {}", row.name, row.repo.unwrap_or("-"), row.about))?;
        }
    }
    out.flush()
}

/// A short name in JSON.
#[derive(Serialize)]
struct Known {
    name: &'static str,
    repo: Option<&'static str>,
    about: &'static str,
}

/// A model in JSON, and its line.
#[derive(Serialize)]
struct Line {
    /// What `-m` takes.
    model: String,
    bytes: u64,
    /// Paths, in the order of the parts.
    files: Vec<String>,
    /// Whether no part is missing.
    whole: bool,
    /// Whether commands without `-m` use it.
    default: bool,
    #[serde(skip)]
    age: String,
}

impl Line {
    fn new(model: &CachedModel, default: bool) -> Line {
        Line {
            model: model.model.to_string(),
            bytes: model.bytes,
            files: model.files.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            whole: model.is_whole,
            default,
            age: model.changed.and_then(|at| SystemTime::now().duration_since(at).ok()).map(age).unwrap_or_default(),
        }
    }
}

fn age(age: Duration) -> String {
    let (count, unit) = match age.as_secs() {
        0..60 => return "just now".to_owned(),
        seconds @ 60..3600 => (seconds / 60, "minute"),
        seconds @ 3600..86_400 => (seconds / 3600, "hour"),
        seconds => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_round() {
        for (seconds, text) in [(5, "just now"), (60, "1 minute ago"), (7300, "2 hours ago"), (864_000, "10 days ago")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
