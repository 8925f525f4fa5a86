//! The pictures of the documentation: drawn by the program, from a run of the embedded model.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{cargo, root};

const PROMPT: &str = "List the planets separated by commas.";
/// Pictures of a moment: after so many steps.
const STILLS: &[usize] = &[0, 10, 22];

/// Runs the model, and draws the film and the stills into `docs/pictures`.
pub(crate) fn pictures() -> Result<()> {
    let folder = root().join("docs/pictures");
    let trace = folder.join("planets.jsonl");
    let path = |path: &Path| path.display().to_string();
    let demask =
        |arguments: &[&str]| cargo(&[&["run", "--quiet", "--package", "demask-cli", "--"], arguments].concat(), &[]);
    let trace_path = path(&trace);
    demask(&["run", "--max-tokens", "32", "--block-length", "32", "--trace", &trace_path, PROMPT])?;
    let title = format!("$ demask run -n 32 --block-length 32 \"{PROMPT}\"");
    demask(&["inspect", &trace_path, "--svg", &path(&folder.join("planets.svg")), "--title", &title])?;
    let text = std::fs::read_to_string(&trace).context("cannot read the trace")?;
    let last = text.lines().filter(|line| line.starts_with("{\"event\":\"step\"")).count();
    let stills = STILLS.iter().map(|&step| (step, format!("step-{step:02}.svg")));
    for (step, name) in stills.chain([(last, "step-last.svg".to_owned())]) {
        demask(&["inspect", &trace_path, "--svg", &path(&folder.join(name)), "--step", &step.to_string()])?;
    }
    std::fs::remove_file(&trace).context("cannot remove the trace")
}
