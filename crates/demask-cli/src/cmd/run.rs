//! `demask run`: answer a prompt.

use std::time::Instant;

use anyhow::Result;
use demask::{Canvas, Generation, Model};

use super::decode::{Subject, run_command};
use super::writable::check_writable;
use super::{name_file, read_model};
use crate::args::{RunArgs, list_recipes};
use crate::output::{self, Out};
use crate::report::{RunReport, Written};

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let Some(recipe) = args.recipe.recipe() else {
        return list_recipes();
    };
    let request = args.settings.request(recipe, args.max_tokens);
    request.check()?;
    args.prompt.check()?;
    if let Some(path) = &args.view.trace {
        check_writable(path, args.model.reference().path().into_iter().chain(args.prompt.paths()))?;
    }
    let started = Instant::now();
    let file = read_model(args.model.open()?)?;
    let opened = started.elapsed();
    request.before_tuning().settings(file.spec(), Vec::new(), request.max_tokens)?;

    let name = file.gguf().name().to_owned();
    let prompt = args.prompt.tokens(file.gguf(), file.tokenizer(), false).map_err(|error| name_file(error, &name))?;
    let canvas = file.canvas(&prompt, request.max_tokens)?;
    run_command((file, opened), &canvas, request, &args.device, &args.view, &Answer)
}

/// The answer to a prompt: what stands before its end token.
pub(super) struct Answer;

impl Subject for Answer {
    fn shown<'a>(&self, model: &Model, canvas: &'a Canvas, settled: usize) -> &'a [u32] {
        let answer = model.answer_tokens(canvas);
        &answer[..answer.len().min(settled.saturating_sub(canvas.asked_range().start))]
    }

    fn written(&self, model: &Model, generation: &Generation, settled: usize) -> Written {
        let canvas = &generation.canvas;
        let tokens = self.shown(model, canvas, settled).to_vec();
        let given = canvas.asked_range().start;
        let ended = canvas.tokens().get(given + tokens.len()).is_some_and(|&token| model.tokenizer().is_end(token));
        Written { given, ended, text: model.tokenizer().decode(&tokens), tokens }
    }

    fn print(&self, report: RunReport, _: &Model, _: &Generation, out: &mut Out) -> Result<()> {
        out.json(&report)
    }

    fn remark(&self, report: &RunReport) {
        if report.is_empty() {
            output::line("note", "the answer is empty: the model ended it at its first token");
        }
    }
}
