//! `demask chat`: talk with a model.

mod conversation;
mod input;
mod orders;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use demask::diffusion::{RECIPES, Settings};
use demask::{Device, Model, Request, UnmaskRule};
use demask_compute::Stopwatch;

use super::auto::tune;
use super::decode::{Answered, Watched, say_if_approximate};
use super::run::Answer;
use super::{load_timed_model, name_file, read_model};
use crate::args::{ChatArgs, RecipeChoice, ViewArgs, list_recipes, read_number, read_recipe, read_seed};
use crate::failure::{self, Ended, Misuse};
use crate::output::{self, Out};
use crate::prompt::utf8_argument;
use crate::report::Timings;
use crate::signals;
use conversation::{Conversation, Fitted};
use input::{Heard, Input};
use orders::{Order, Said};

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    let Some(recipe) = args.recipe.recipe() else {
        return list_recipes();
    };
    let request = args.settings.request(recipe, args.max_tokens);
    request.check()?;
    let system = args.system.as_deref().map(|text| utf8_argument("--system", text)).transpose()?;
    let started = Instant::now();
    let file = read_model(args.model.open()?)?;
    let opened = started.elapsed();
    file.settings(&file.canvas(&[], request.max_tokens)?, &request.before_tuning())?;
    let name = file.gguf().name().to_owned();
    let template = file.chat_template().map_err(|error| name_file(error.into(), &name))?;
    let device = args.device.open()?;

    let started = Instant::now();
    let (model, stopwatch) = load_timed_model(file, &device)?;
    let load = opened + started.elapsed();
    signals::watch().context("cannot watch for Ctrl-C")?;
    let mut input = Input::new(!args.no_history)?;
    if input.is_terminal() {
        output::say(&format!("{}. `/help` lists the commands, Ctrl-D leaves", model.spec().name));
    }
    let encode = |messages: &[demask::Message]| {
        template.encode(model.tokenizer(), messages, true).map_err(|error| demask::Error::from(error).into())
    };
    let (live, verbose) = (args.live, args.verbose);
    let view = ViewArgs { live, verbose, json: false, trace: None, dump_step_stats: false };
    let mut session = Session {
        model: &model,
        device: &device,
        view,
        load,
        stopwatch,
        encode: &encode,
        given: request.clone(),
        request,
        last: None,
        conversation: Conversation::new(system),
    };
    if !verbose {
        say_if_approximate(&session.settings()?);
    }
    session.talk(&mut input)
}

/// A conversation with everything that it needs.
struct Session<'a> {
    model: &'a Model,
    device: &'a Device,
    view: ViewArgs,
    load: Duration,
    stopwatch: Option<Arc<Stopwatch>>,
    encode: &'a dyn Fn(&[demask::Message]) -> Result<Vec<u32>>,
    /// What the command line asks for.
    given: Request,
    request: Request,
    /// What the last answer was asked for, and under which instructions.
    last: Option<(Request, Option<String>)>,
    conversation: Conversation,
}

impl Session<'_> {
    /// Takes lines and answers them until there are no more.
    fn talk(&mut self, input: &mut Input) -> Result<()> {
        let mut code = 0;
        let mut interrupted = false;
        loop {
            let heard = input.read().and_then(|heard| match heard {
                Heard::Line(line) => {
                    interrupted = false;
                    Ok(orders::read(&line)?)
                }
                Heard::End => Ok(Said::Order(Order::Quit)),
                Heard::Interrupt if interrupted => Err(Ended::Interrupted.into()),
                Heard::Interrupt => {
                    interrupted = true;
                    output::line("note", "Ctrl-C again leaves, as Ctrl-D and `/quit` do");
                    Ok(Said::Nothing)
                }
            });
            let done = heard.and_then(|said| match said {
                Said::Nothing => Ok(()),
                Said::Order(Order::Quit) => Err(Ended::Told(code).into()),
                Said::Order(order) => self.obey(order, input.is_terminal()),
                Said::Message(message) => self.answer(message, input.is_terminal()),
            });
            match done {
                Ok(()) => {}
                Err(error) if error.is::<Ended>() || error.is::<std::io::Error>() => return Err(error),
                Err(error) => {
                    let told = failure::tell(&error);
                    // Somebody who sits there has seen it; a script learns of the first.
                    code = if input.is_terminal() || code != 0 { code } else { told };
                }
            }
        }
    }

    fn obey(&mut self, order: Order, terminal: bool) -> Result<()> {
        match order {
            Order::Help => orders::help().for_each(|line| output::say(&line)),
            Order::Clear => {
                self.conversation.clear();
                self.last = None;
                output::line("note", "the conversation is forgotten");
            }
            Order::Retry => return self.retry(terminal),
            Order::System(None) => match &self.conversation.system {
                Some(text) => output::line("system", text),
                None => output::line("note", "there are no instructions; `/system TEXT` sets them"),
            },
            Order::System(Some(text)) => {
                self.conversation.system = Some(text).filter(|text| text != "-");
                let done = if self.conversation.system.is_some() { "are set" } else { "are gone" };
                output::line("note", &format!("the instructions {done}, from the next answer on"));
            }
            Order::Recipe(None) => {
                for row in &RECIPES {
                    let mark = if row.recipe == self.request.recipe { '*' } else { ' ' };
                    output::say(&format!("{mark} {:9} {}", row.name, row.description));
                }
            }
            Order::Recipe(Some(name)) => {
                let choice = read_recipe(&name).map_err(|reason| refused("/recipe", &name, &reason))?;
                if choice == RecipeChoice::List {
                    return self.obey(Order::Recipe(None), terminal);
                }
                // Settings that went with another recipe go with it.
                let (seed, temperature) = (self.request.seed, self.request.temperature);
                let base = Request { seed, temperature, ..self.given.clone() };
                let request = choice.request(base).map_err(|why| refused("/recipe", &name, &why))?;
                self.set(request)?;
                output::line("note", &format!("the recipe is {name}"));
                say_if_approximate(&self.settings()?);
            }
            Order::Seed(None) => output::line("note", &format!("the seed is {}", self.request.seed)),
            Order::Seed(Some(text)) => {
                let seed = read_seed(&text).map_err(|reason| refused("/seed", &text, &reason))?;
                self.set(Request { seed, ..self.request.clone() })?;
                output::line("note", &format!("the seed is {seed}"));
            }
            Order::Temperature(None) => {
                output::line("note", &format!("the temperature is {}", self.request.temperature));
            }
            Order::Temperature(Some(text)) => {
                let temperature = read_number(&text).map_err(|reason| refused("/temperature", &text, &reason))?;
                self.set(Request { temperature, ..self.request.clone() })?;
                output::line("note", &format!("the temperature is {temperature}"));
            }
            Order::Quit => {}
        }
        Ok(())
    }

    /// The settings of an answer.
    fn settings(&self) -> Result<Settings> {
        Ok(self.model.settings(&self.model.canvas(&[], self.request.max_tokens)?, &self.request.before_tuning())?)
    }

    /// Takes other settings if the model can use them; else the old ones stay.
    fn set(&mut self, request: Request) -> Result<()> {
        let before = std::mem::replace(&mut self.request, request);
        if let Err(error) = self.settings() {
            self.request = before;
            return Err(error);
        }
        Ok(())
    }

    /// Answers the last message again.
    fn retry(&mut self, terminal: bool) -> Result<()> {
        let Some(message) = self.conversation.take_last() else {
            return Err(Misuse::new("there is nothing to answer again", "say something first").into());
        };
        if let Some((last, system)) = &self.last {
            if last.seed == self.request.seed {
                self.request.seed = last.seed.wrapping_add(1);
            }
            let same = Request { seed: last.seed, ..self.request.clone() } == *last;
            if same && *system == self.conversation.system && !self.is_random()? {
                output::line(
                    "note",
                    "at temperature 0 the answer is the same with any seed; `/temperature 0.7` varies it",
                );
            }
        }
        output::line("note", &format!("the seed is {}", self.request.seed));
        self.answer(message, terminal)
    }

    /// Whether the seed makes a difference.
    fn is_random(&self) -> Result<bool> {
        let random = [UnmaskRule::Random, UnmaskRule::Origin].contains(&self.settings()?.unmask);
        Ok(random || self.request.temperature > 0.0 || self.request.alg_temp > 0.0)
    }

    fn answer(&mut self, message: String, terminal: bool) -> Result<()> {
        self.conversation.ask(message);
        let context = self.model.spec().context;
        let Fitted { tokens, dropped } = self.conversation.fit(self.request.max_tokens, context, self.encode)?;
        if dropped > 0 {
            let turns = if dropped == 1 {
                "the oldest turn was".to_owned()
            } else {
                format!("the {dropped} oldest turns were")
            };
            let room = self.request.max_tokens;
            let message =
                format!("{turns} dropped: the context has {context} positions, {room} of them for the answer");
            output::line("note", &message);
        }
        let canvas = self.model.canvas(&tokens, self.request.max_tokens)?;
        let (request, auto) = tune(self.model, self.device, &canvas, self.request.clone())?;
        let settings = self.model.settings(&canvas, &request)?;
        let (load, stopwatch) = (self.load, self.stopwatch.clone());
        let timings = Timings { load, auto, stopwatch, ..Timings::default() };
        let (view, model, device) = (&self.view, self.model, self.device);
        let watched = Watched { view, model, device, request: &request, settings: &settings, timings };
        self.last = Some((self.request.clone(), self.conversation.system.clone()));
        signals::forget();
        let Answered { text, interrupted } = watched.answer(&Answer, &canvas, &mut Out::stdout())?;
        self.conversation.answered(text);
        // Ctrl-C stops an answer, not a person; a script it stops.
        if interrupted && !terminal { Err(Ended::Interrupted.into()) } else { Ok(()) }
    }
}

fn refused(order: &str, value: &str, reason: &str) -> Misuse {
    Misuse::new(format!("{order} {value} can't be used: {reason}"), "nothing has changed")
}
