//! `demask infill`: fill blanks in a text.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use demask::blanks::Marked;
use demask::{Canvas, Finish, Generation, Model, ModelFile};
use serde::Serialize;

use super::decode::{Subject, run_command};
use super::read_model;
use super::writable::check_writable;
use crate::args::{InfillArgs, list_recipes};
use crate::failure::{Advised, Misuse};
use crate::output::{self, Out};
use crate::prompt::Source;
use crate::report::{RunReport, Written};

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &InfillArgs) -> Result<()> {
    let Some(recipe) = args.recipe.recipe() else {
        return list_recipes();
    };
    args.settings.check_for_blanks()?;
    args.settings.request(recipe, 1).check()?;
    let argument = args.text.as_deref();
    let source = Source { what: "text", argument, files: &args.files, keeps_newline: false };
    source.check()?;
    if let Some(path) = &args.view.trace {
        let texts = args.files.iter().map(std::path::PathBuf::as_path);
        check_writable(path, args.model.reference().path().into_iter().chain(texts))?;
    }
    let marked = Marked::new(&source.text()?).map_err(|error| Misuse::new(error.to_string(), error.hint()))?;
    let request = marked.request(args.settings.request(recipe, marked.open()));

    let started = Instant::now();
    let file = read_model(args.model.open()?)?;
    let opened = started.elapsed();
    let (tokens, blanks) = marked.tokens(file.tokenizer());
    let canvas = canvas(&file, &tokens)?;
    run_command((file, opened), &canvas, request, &args.device, &args.view, &Filled { blanks })
}

/// The canvas of a text with blanks.
pub(super) fn canvas(file: &ModelFile, tokens: &[Option<u32>]) -> Result<Canvas> {
    file.canvas_with_blanks(tokens).map_err(|error| match error {
        demask::Error::Context { .. } => {
            Advised::new(error.to_string(), "use a shorter text or fewer positions in its blanks").into()
        }
        error => error.into(),
    })
}

/// The whole text, with what the blanks became.
struct Filled {
    blanks: Vec<Range<usize>>,
}

/// The object of `--json`: that of `run`, and what each blank became.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    run: RunReport,
    /// The text of each blank; null if it isn't all decided.
    blanks: Vec<Option<String>>,
}

impl Subject for Filled {
    fn shown<'a>(&self, _: &Model, canvas: &'a Canvas, settled: usize) -> &'a [u32] {
        &canvas.tokens()[..settled.min(canvas.len())]
    }

    fn written(&self, model: &Model, generation: &Generation, settled: usize) -> Written {
        let (canvas, tokenizer) = (&generation.canvas, model.tokenizer());
        let decided = (0..canvas.len()).filter(|&p| canvas.is_asked(p) && !canvas.is_open(p));
        let tokens: Vec<u32> = decided.map(|p| canvas.tokens()[p]).filter(|&t| !tokenizer.is_special(t)).collect();
        let text = tokenizer.decode(self.shown(model, canvas, settled));
        let given = canvas.len() - canvas.asked_in(0..canvas.len());
        Written { given, tokens, ended: generation.finish != Finish::Interrupted, text }
    }

    fn print(&self, run: RunReport, model: &Model, generation: &Generation, out: &mut Out) -> Result<()> {
        let canvas = &generation.canvas;
        let text = |blank: &Range<usize>| {
            let decided = canvas.open_in(blank.clone()).next().is_none();
            decided.then(|| model.tokenizer().decode(&canvas.tokens()[blank.clone()]))
        };
        out.json(&Report { run, blanks: self.blanks.iter().map(text).collect() })
    }

    fn remark(&self, report: &RunReport) {
        if report.is_empty() {
            output::line("note", "the blanks are empty: the model found nothing to fill in");
        }
    }
}
