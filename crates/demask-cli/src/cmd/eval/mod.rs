//! `demask eval`: quality beside speed, over prompts with known answers.

mod items;
mod plot;
mod results;
mod stats;
mod summary;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use demask::{Canvas, Device, Finish, Message, Model, ModelFile, Recipe, Request, Role};
use demask_gguf::escape;
use serde::Serialize;

use self::items::{Ask, Item};
use self::results::{DataHeading, Fingerprint, Heading, ModelHeading, Record, Results, RunHeading};
use self::summary::Summary;
use super::infill::canvas as canvas_of_blanks;
use super::writable::{check_writable, is_same};
use super::{load_model, name_file, read_model};
use crate::args::{EvalArgs, RecipeChoice, list_recipes};
use crate::curves;
use crate::failure::{Ended, Misuse};
use crate::output::{self, Out};
use crate::report::{RequestReport, quantisation};
use crate::signals;
use crate::view::bar::Bar;

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &EvalArgs) -> Result<()> {
    if args.recipes.contains(&RecipeChoice::List) {
        return list_recipes();
    }
    let Some(path) = &args.file else {
        let hint = "the embedded model's is `assets/heldout.jsonl`; `demask eval --help` tells the form";
        return Err(Misuse::new("there is no file of prompts and answers", hint).into());
    };
    let runs = requests(args)?;
    for output in args.out.iter().chain(&args.plot) {
        check_writable(output, args.model.reference().path().into_iter().chain([path.as_path()]))?;
    }
    if let (Some(out), Some(plot)) = (&args.out, &args.plot)
        && is_same(out, plot)
    {
        let hint = "give the picture a name of its own";
        return Err(Misuse::new("`--out` and `--plot` are the same file", hint).into());
    }
    let (mut items, fingerprint) = items::read(path)?;
    let all = items.len();
    items::draw(&mut items, args.limit.unwrap_or(usize::MAX));

    let file = read_model(args.model.open()?)?;
    let mut questions = questions(&file, &items, &runs)?;
    let device = args.device.open()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let heading = Heading {
        kind: "eval".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: ModelHeading {
            name: file.spec().name.clone(),
            architecture: file.spec().architecture.to_owned(),
            quantisation: quantisation(file.gguf()),
            fingerprint: Fingerprint::of_model(file.gguf()),
        },
        data: DataHeading { file: name, items: all, fingerprint },
        device: device.describe(),
        threads: device.processor().threads(),
        runs: headings(&file, &runs, &questions)?,
    };
    let mut results = Results::new(heading, items.len());
    if let Some(out) = &args.out {
        results.resume(out, &items)?;
    }
    let model = load_model(file, &device)?;
    tune(&model, &device, &mut questions)?;
    signals::watch().context("cannot watch for Ctrl-C")?;

    let out = args.out.as_deref();
    let answered = Asking { model: &model, items: &items, questions: &questions, runs: &runs, out }.ask(&mut results);
    let summary = Summary::new(&results, &items);
    if let Some(out) = out {
        results.save(out, &summary)?;
    }
    let interrupted = match answered {
        Ok(flow) => flow.is_break(),
        Err(error) => return Err(error),
    };
    show(args, &results, &summary)?;
    if interrupted {
        let kept = if args.out.is_some() { "; the same command goes on from here" } else { "" };
        output::line("note", &format!("stopped: {} of {} items have all answers{kept}", summary.items, items.len()));
        return Err(Ended::Interrupted.into());
    }
    Ok(())
}

/// The recipes with their settings, as the first item resolves them.
fn headings(file: &ModelFile, runs: &[(String, Request)], questions: &[Vec<Question>]) -> Result<Vec<RunHeading>> {
    let first = questions.first().map(Vec::as_slice).unwrap_or_default();
    (runs.iter().zip(first))
        .map(|((name, request), (canvas, resolved))| {
            // For `auto` this is what all items have in common.
            let resolved = resolved.before_tuning();
            let settings = RequestReport::new(file.spec(), &resolved, &file.settings(canvas, &resolved)?);
            Ok(RunHeading { name: name.clone(), seed: request.seed, settings: serde_json::to_value(settings)? })
        })
        .collect()
}

/// The recipes with their requests.
fn requests(args: &EvalArgs) -> Result<Vec<(String, Request)>> {
    let base = args.settings.request(Recipe::default(), args.max_tokens);
    let exact = [RecipeChoice::Named {
        name: Recipe::default().name().to_owned(),
        recipe: Recipe::default(),
        changes: serde_json::Map::default(),
    }];
    let choices = if args.recipes.is_empty() { &exact[..] } else { &args.recipes };
    let mut runs: Vec<(String, Request)> = Vec::new();
    for choice in choices {
        let RecipeChoice::Named { name, .. } = choice else { continue };
        if runs.iter().any(|(known, _)| known == name) {
            let hint = "name each recipe once; settings make another: `fast:threshold=0.8`";
            return Err(Misuse::new(format!("the recipe {name} is given more than once"), hint).into());
        }
        let request = choice.request(base.clone()).map_err(|reason| {
            Misuse::new(format!("--recipe {name} can't be used: {reason}"), "see `demask eval --help`")
        })?;
        request.check().with_context(|| format!("recipe {name}"))?;
        runs.push((name.clone(), request));
    }
    Ok(runs)
}

/// What a recipe is asked: a canvas, and the request for it.
type Question = (Canvas, Request);

/// Every item as the question of each recipe; refused if one doesn't fit the model, or the settings of a recipe don't.
fn questions(file: &ModelFile, items: &[Item], runs: &[(String, Request)]) -> Result<Vec<Vec<Question>>> {
    let mut template = None;
    let mut prompt = |text: &str| {
        let template = match &mut template {
            Some(template) => template,
            none => none.insert(file.chat_template()?),
        };
        Ok(template.encode(file.tokenizer(), &[Message::new(Role::User, text)], true)?)
    };
    let mut question = |item: &Item, request: &Request| {
        let (canvas, request) = match &item.ask {
            Ask::Chat(text) => {
                let prompt = prompt(text).map_err(|e: demask::Error| name_file(e.into(), file.gguf().name()))?;
                (file.canvas(&prompt, request.max_tokens)?, request.clone())
            }
            Ask::Blanks(marked) => {
                (canvas_of_blanks(file, &marked.tokens(file.tokenizer()).0)?, marked.request(request.clone()))
            }
        };
        file.settings(&canvas, &request.before_tuning())?;
        anyhow::Ok((canvas, request))
    };
    let all = |item: &Item| {
        let ask = |(name, request): &(String, Request)| {
            question(item, request).with_context(|| format!("item {}, recipe {name}", escape(&item.id)))
        };
        runs.iter().map(ask).collect()
    };
    items.iter().map(all).collect()
}

/// Settles the questions of `--recipe auto`, by one curve for all.
fn tune(model: &Model, device: &Device, questions: &mut [Vec<Question>]) -> Result<()> {
    let untuned = || questions.iter().flatten().filter(|(_, request)| request.is_untuned());
    let Some(positions) = untuned().map(|(canvas, _)| canvas.len()).max() else { return Ok(()) };
    let curve = curves::of(model, device, positions)?;
    for (canvas, request) in questions.iter_mut().flatten().filter(|(_, request)| request.is_untuned()) {
        *request = model.tuned(canvas, request, &curve).0;
    }
    Ok(())
}

/// Items on their way to the model.
struct Asking<'a> {
    model: &'a Model,
    items: &'a [Item],
    questions: &'a [Vec<Question>],
    runs: &'a [(String, Request)],
    out: Option<&'a Path>,
}

impl Asking<'_> {
    /// Asks what hasn't been answered yet; breaks off when the user wants it.
    fn ask(&self, results: &mut Results) -> Result<ControlFlow<()>> {
        let mut bar = Bar::new(results.len(), self.items.len() * self.runs.len());
        for item in 0..self.items.len() {
            for run in 0..self.runs.len() {
                if results.get(item, run).is_some() {
                    continue;
                }
                let place = || format!("item {}", escape(&self.items[item].id));
                let Some(record) = self.answer(item, run).with_context(place)? else {
                    return Ok(ControlFlow::Break(()));
                };
                results.set(item, run, record);
                bar.update(results.len(), || Summary::new(results, self.items).progress());
            }
            if let Some(out) = self.out.filter(|_| results.is_due()) {
                results.save(out, Summary::new(results, self.items))?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// One answer; none if the user broke it off.
    fn answer(&self, item: usize, run: usize) -> Result<Option<Record>> {
        let (model, (canvas, request)) = (self.model, &self.questions[item][run]);
        let started = Instant::now();
        let (denoising, mut predictor) = model.start(canvas.clone(), request)?;
        let generation = demask::diffusion::generate(&mut *predictor, denoising, &mut |_, _| {
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let seconds = started.elapsed().as_secs_f64();
        if generation.finish == Finish::Interrupted {
            return Ok(None);
        }
        let (canvas, statistics) = (&generation.canvas, &generation.statistics);
        let (answer, visible_tokens) = match self.items[item].ask {
            Ask::Chat(_) => (model.answer_text(canvas), statistics.visible_tokens),
            Ask::Blanks(_) => {
                let filled = |&p: &usize| canvas.is_asked(p) && !model.tokenizer().is_special(canvas.tokens()[p]);
                (model.tokenizer().decode(canvas.tokens()), (0..canvas.len()).filter(filled).count())
            }
        };
        Ok(Some(Record {
            id: self.items[item].id.clone(),
            run: self.runs[run].0.clone(),
            correct: self.items[item].is_answered_by(&answer),
            answer,
            steps: statistics.steps,
            nfe: statistics.nfe,
            rows: statistics.rows,
            commits: statistics.commits,
            visible_tokens,
            seconds,
        }))
    }
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    heading: &'a Heading,
    summary: &'a Summary,
}

/// Tables or JSON on stdout, the drawing into its file.
fn show(args: &EvalArgs, results: &Results, summary: &Summary) -> Result<()> {
    let heading = results.heading();
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(summary, heading))
            .with_context(|| format!("cannot write `{}`", escape(path.as_os_str().as_encoded_bytes())))?;
    }
    let mut out = Out::stdout();
    if args.json {
        out.json(&Report { heading, summary })?;
    } else {
        out.text(&summary.markdown(heading))?;
    }
    out.flush()
}
