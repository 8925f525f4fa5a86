//! `demask logits`: the logits of one forward pass.

use anyhow::{Context as _, Result};
use demask::model::{Output, Plan, Prediction};
use demask_gguf::escape;

use super::writable::check_writable;
use super::{load_model, name_file, read_model};
use crate::args::LogitsArgs;
use crate::failure::Misuse;
use crate::output::{self, Out};

/// Runs the command.
pub(crate) fn run(args: &LogitsArgs) -> Result<()> {
    if args.tokens.is_empty() {
        args.prompt.check()?;
    }
    let mut stdout = None;
    match &args.out {
        Some(path) => check_writable(path, args.model.reference().path().into_iter().chain(args.prompt.paths()))?,
        None => {
            let out = stdout.insert(Out::stdout());
            if out.is_terminal() {
                let hint = "give a file with `--out FILE`, or pipe the output into a program";
                return Err(Misuse::new("logits are binary numbers, which a terminal can't show", hint).into());
            }
        }
    }
    let file = read_model(args.model.open()?)?;
    let name = file.gguf().name().to_owned();
    let prompt = if args.tokens.is_empty() {
        args.prompt.tokens(file.gguf(), file.tokenizer(), false).map_err(|error| name_file(error, &name))?
    } else {
        args.tokens.clone()
    };
    let canvas = file.canvas(&prompt, args.max_tokens)?;
    let wanted = positions(args, canvas.len())?;
    let model = load_model(file, &args.device.open()?)?;

    let rows: Vec<u32> = (0..canvas.len() as u32).collect();
    let mut prediction = Prediction::default();
    let plan = Plan { rows: &rows, wanted: &wanted, output: Output::Logits };
    model.predictor(&canvas, 0.0).predict(canvas.tokens(), &plan, &mut prediction)?;

    let bytes: Vec<u8> = prediction.logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    match (&args.out, &mut stdout) {
        (Some(path), _) => {
            std::fs::write(path, &bytes)
                .with_context(|| format!("cannot write `{}`", escape(path.as_os_str().as_encoded_bytes())))?;
        }
        (None, Some(out)) => {
            out.bytes(&bytes)?;
            out.flush()?;
        }
        (None, None) => {}
    }
    let (rows, vocab) = (wanted.len(), model.spec().vocab);
    output::line("note", &format!("wrote [{rows}, {vocab}] little-endian 32-bit floats"));
    Ok(())
}

/// The positions of `--rows`, ascending; all of them without it.
fn positions(args: &LogitsArgs, canvas: usize) -> Result<Vec<u32>> {
    if args.rows.is_empty() {
        return Ok((0..canvas as u32).collect());
    }
    if let Some((_, last)) = args.rows.iter().find(|(_, last)| *last >= canvas) {
        let hint = "positions are counted from 0, the prompt's first";
        return Err(Misuse::new(format!("--rows {last} can't be used: the canvas has {canvas} positions"), hint).into());
    }
    let mut positions: Vec<u32> = args.rows.iter().flat_map(|&(first, last)| first as u32..=last as u32).collect();
    positions.sort_unstable();
    positions.dedup();
    Ok(positions)
}
