//! A trace of `demask run --trace`, shown step by step.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use demask::diffusion::Transfer;
use demask::diffusion::trace::RecordedLine;
use demask::text::{Tokenizer, TokenizerConfig};
use demask::{Canvas, Edit, ModelSpec};
use demask_gguf::escape;
use serde::Serialize;

use super::name_file;
use super::writable::check_writable;
use crate::args::InspectArgs;
use crate::failure::{Advised, Misuse};
use crate::output::Out;
use crate::view::frame::{Picture, one_line};
use crate::view::svg;

/// The longest line of a trace: a canvas of a million positions and its request.
const LONGEST_LINE: u64 = 64 << 20;

/// How every trace begins.
const MAGIC: &[u8] = b"{\"event\":\"start\"";

/// Whether a file is a trace. Everything else, also what can't be read, is left to the GGUF reader.
pub(crate) fn is_trace(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    path.is_file() && File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == MAGIC
}

/// The object of `--json`.
#[derive(Serialize)]
struct Replay {
    /// `trace`.
    kind: &'static str,
    /// The model that ran.
    model: String,
    /// Tokens before the first open position.
    prompt_tokens: usize,
    /// Positions.
    canvas: usize,
    /// The steps that ran.
    steps: Vec<Step>,
    /// Why the run ended; null if the trace breaks off.
    finish: Option<String>,
}

#[derive(Serialize)]
struct Step {
    step: usize,
    block: usize,
    edits: usize,
    /// The answer after the step; open positions as `░`, end tokens as `·`.
    text: String,
}

/// Shows a trace.
pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let name = escape(args.file.as_os_str().as_encoded_bytes());
    if let Some(path) = &args.svg {
        check_writable(path, [args.file.as_path()].into_iter().chain(args.model.reference().path()))?;
    }
    let file = File::open(&args.file).with_context(|| format!("cannot read `{name}`"))?;
    let mut lines = Lines { file: BufReader::new(file), number: 0, name: name.clone() };
    let Some(RecordedLine::Start { model, canvas, open, request }) = lines.next()? else {
        bail!("cannot read the trace `{name}`: its first line is not a start");
    };
    let gguf = args.model.open_quietly()?;
    let tokenizer = TokenizerConfig::from_gguf(&gguf)
        .and_then(|config| Tokenizer::new(&config))
        .map_err(|error| name_file(demask::Error::from(error).into(), gguf.name()))?;
    let ran = gguf.metadata().string("general.name")?.map_or_else(|| gguf.name().to_owned(), escape);
    if ran != model {
        let hint = "name the model that ran with `-m`";
        return Err(
            Advised::new(format!("the trace is of `{}`, but this model is `{ran}`", escape(&model)), hint).into()
        );
    }

    let vocab = tokenizer.vocab_size();
    for &token in &canvas {
        check_token(token, vocab).map_err(|why| lines.fault(&why))?;
    }

    let mut replay =
        Replay { kind: "trace", model, prompt_tokens: 0, canvas: canvas.len(), steps: Vec::new(), finish: None };
    let mut canvas = start(&canvas, &open).ok_or_else(|| lines.fault("an open position outside the canvas"))?;
    replay.prompt_tokens = canvas.asked_range().start;
    if let Some(path) = &args.svg {
        // A model that can't run has no blocks of its own.
        let spec = ModelSpec::from_gguf(&gguf).ok();
        let settings = spec.and_then(|spec| request.settings(&spec, Vec::new(), open.len()).ok());
        let block_length = settings.map_or(usize::MAX, |settings| settings.block_length);
        let film = film(&mut lines, &tokenizer, canvas, block_length)?;
        let title = args.title.as_deref();
        let drawn = match args.step {
            None => svg::film(&film, title),
            Some(step) => svg::still(film.get(step).ok_or_else(|| past_the_end(step, film.len() - 1))?, title),
        };
        let name = escape(path.as_os_str().as_encoded_bytes());
        return std::fs::write(path, drawn).with_context(|| format!("cannot write the picture `{name}`"));
    }
    let mut out = Out::stdout();
    if !args.json {
        out.line(&format!("model   {}", escape(&replay.model)))?;
        out.line(&format!("canvas  {} positions, {} of them open", canvas.len(), open.len()))?;
    }
    while let Some(line) = lines.next()? {
        match line {
            RecordedLine::Start { .. } => return Err(lines.fault("a second start")),
            RecordedLine::Step { step, block, edits } => {
                apply(&mut canvas, &edits, vocab).map_err(|why| lines.fault(&why))?;
                let fresh: Vec<usize> = edits.iter().map(|edit| edit.position).collect();
                let text = one_line(&Picture::new(&tokenizer, &canvas, usize::MAX, &[], &fresh));
                if args.json {
                    replay.steps.push(Step { step, block, edits: edits.len(), text });
                } else {
                    out.line(&format!("{step:>6}  {text}"))?;
                }
            }
            RecordedLine::End { finish } => replay.finish = Some(finish),
        }
    }
    if args.json {
        out.json(&replay)?;
    } else {
        let finish = replay.finish.as_deref().map_or_else(|| "the trace breaks off".to_owned(), escape);
        out.line(&format!("finish  {finish}"))?;
    }
    out.flush()
}

/// The canvas before the first step and after each.
fn film(lines: &mut Lines, tokenizer: &Tokenizer, mut canvas: Canvas, block_length: usize) -> Result<Vec<Picture>> {
    let mut confidences = vec![1.0; canvas.len()];
    let mut film = vec![Picture::new(tokenizer, &canvas, block_length, &confidences, &[])];
    while let Some(line) = lines.next()? {
        let RecordedLine::Step { edits, .. } = line else { continue };
        apply(&mut canvas, &edits, tokenizer.vocab_size()).map_err(|why| lines.fault(&why))?;
        for edit in &edits {
            confidences[edit.position] = edit.confidence;
        }
        let fresh: Vec<usize> = edits.iter().map(|edit| edit.position).collect();
        let mut picture = Picture::new(tokenizer, &canvas, block_length, &confidences, &fresh);
        let asked = canvas.asked_in(0..canvas.len());
        let open = canvas.open_in(0..canvas.len()).count();
        picture.status = format!("step {}, {} of {asked} positions decided", film.len(), asked - open);
        film.push(picture);
    }
    Ok(film)
}

fn past_the_end(step: usize, steps: usize) -> Misuse {
    Misuse::new(format!("--step {step} can't be used: the trace has {steps} steps"), format!("0 to {steps} can"))
}

struct Lines {
    file: BufReader<File>,
    number: usize,
    name: String,
}

impl Lines {
    fn next(&mut self) -> Result<Option<RecordedLine>> {
        let mut line = Vec::new();
        self.number += 1;
        (&mut self.file)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read the trace `{}`", self.name))?;
        // A last line without an end was cut off in the middle of being written.
        if !line.ends_with(b"\n") {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| self.fault(&escape(error.to_string())))
    }

    fn fault(&self, what: &str) -> anyhow::Error {
        anyhow!("cannot read the trace `{}`: line {}: {what}", self.name, self.number)
    }
}

fn start(tokens: &[u32], open: &[usize]) -> Option<Canvas> {
    let mut asked: Vec<Option<u32>> = tokens.iter().copied().map(Some).collect();
    let mut mask_token = 0;
    for &position in open {
        mask_token = *tokens.get(position)?;
        *asked.get_mut(position)? = None;
    }
    Some(Canvas::with_blanks(&asked, mask_token))
}

/// Applies recorded edits; else why they don't fit.
fn apply(canvas: &mut Canvas, edits: &[Edit], vocab: usize) -> Result<(), String> {
    for &edit in edits {
        check_token(edit.to, vocab)?;
        match canvas.misfit(&edit) {
            Some(misfit) => return Err(misfit),
            None => canvas.apply(&Transfer { edits: vec![edit] }),
        }
    }
    Ok(())
}

fn check_token(token: u32, vocab: usize) -> Result<(), String> {
    let inside = (token as usize) < vocab;
    if inside { Ok(()) } else { Err(format!("token id {token} is outside the vocabulary of {vocab}")) }
}
