//! Failures on their way to the terminal: one line `error:`, maybe one line `hint:`, and an exit code.

use std::error::Error as _;
use std::process::ExitCode;

use anyhow::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use demask_gguf::escape;

use crate::consent::NeedsYes;
use crate::output;

/// The command line asks for something that can't be: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Misuse {
    message: String,
    hint: Option<String>,
}

impl Misuse {
    /// A misuse and what would be right.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Misuse {
        Misuse { message: message.into(), hint: Some(hint.into()) }
    }

    /// What would be right.
    #[cfg(test)]
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// A failure with a piece of advice: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Advised {
    message: String,
    hint: String,
}

impl Advised {
    /// A failure and what helps.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Advised {
        Advised { message: message.into(), hint: hint.into() }
    }
}

/// Ends of a command that are no failures to talk about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ended {
    /// The reader of stdout has left: success.
    #[error("the reader of the output has left")]
    PipeClosed,
    /// Ctrl-C: exit code 130.
    #[error("interrupted")]
    Interrupted,
    /// A report has told what is wrong: exit code 1.
    #[error("something is broken")]
    Unhealthy,
    /// What went wrong was told when it did: its exit code.
    #[error("some of it failed")]
    Told(u8),
}

/// Prints a failure and gives its exit code.
pub(crate) fn report(error: &Error) -> ExitCode {
    match error.downcast_ref::<Ended>() {
        Some(Ended::PipeClosed) => return ExitCode::SUCCESS,
        Some(Ended::Interrupted) => return ExitCode::from(130),
        Some(Ended::Unhealthy) => return ExitCode::FAILURE,
        Some(&Ended::Told(code)) => return ExitCode::from(code),
        None => {}
    }
    ExitCode::from(tell(error))
}

/// Prints a failure, and gives the exit code of a command that ends with it.
pub(crate) fn tell(error: &Error) -> u8 {
    output::line("error", &chain(error));
    if let Some(hint) = hint(error) {
        output::line("hint", &hint);
    }
    code(error)
}

/// The messages from the outermost to the cause; one that only repeats the one before is left out.
fn chain(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let message = cause.to_string();
        if text.is_empty() {
            text = message;
        } else if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

fn code(error: &Error) -> u8 {
    if error.is::<NeedsYes>() {
        return 3;
    }
    let misuse = error.is::<Misuse>()
        || matches!(error.downcast_ref(), Some(demask_hub::Error::Name { .. }))
        || error.is::<demask::diffusion::SettingsError>()
        || matches!(error.downcast_ref(), Some(demask::Error::Settings(_) | demask::Error::NoShadow { .. }));
    if misuse { 2 } else { 1 }
}

/// How to do without a chat template.
const NO_TEMPLATE: &str = "send the prompt as raw text: `demask run --no-chat`";

fn hint(error: &Error) -> Option<String> {
    if let Some(misuse) = error.downcast_ref::<Misuse>() {
        return misuse.hint.clone();
    }
    if let Some(needs) = error.downcast_ref::<NeedsYes>() {
        return Some(needs.hint());
    }
    if let Some(error) = error.downcast_ref::<demask_hub::Error>() {
        return error.hint();
    }
    if let Some(advised) = error.downcast_ref::<Advised>() {
        return Some(advised.hint.clone());
    }
    if let Some(error) = error.downcast_ref::<demask::Error>() {
        return match error {
            demask::Error::Text(error) if error.is_about_template() => Some(NO_TEMPLATE.to_owned()),
            error => error.hint(),
        };
    }
    if let Some(error) = error.downcast_ref::<demask_gguf::Error>() {
        return error.hint();
    }
    None
}

/// Prints what the argument parser has to say (help included) and gives its exit code.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    use ErrorKind as Kind;
    match error.kind() {
        Kind::DisplayHelp | Kind::DisplayVersion => {
            return match error.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
                _ => ExitCode::SUCCESS,
            };
        }
        Kind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(2);
        }
        _ => {}
    }
    let (message, hint) = usage_text(error);
    output::line("error", &message);
    output::line("hint", &hint);
    ExitCode::from(2)
}

/// A parse error in our own form, and what helps.
fn usage_text(error: &clap::Error) -> (String, String) {
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let option = get(ContextKind::InvalidArg).unwrap_or_default();
    let bare = option.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let value = get(ContextKind::InvalidValue).unwrap_or_default();
    let help = help_command();
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand]
        .into_iter()
        .find_map(get);
    let similar_is_none = similar.is_none();
    let see = match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("see `{help}`"),
    };
    match error.kind() {
        ErrorKind::ValueValidation => {
            let reason = error.source().map_or_else(|| "it isn't valid".to_owned(), ToString::to_string);
            (format!("{bare} {} can't be used: {reason}", shown(&value)), see)
        }
        ErrorKind::InvalidValue if value.is_empty() => (format!("{option} needs a value"), see),
        ErrorKind::InvalidValue => {
            let known = get(ContextKind::ValidValue).unwrap_or_default();
            (format!("{bare} {value} can't be used: it must be one of {known}"), see)
        }
        ErrorKind::UnknownArgument if similar_is_none => {
            let see = format!("{see}; a prompt that begins with `-` goes behind `--`");
            (format!("unexpected argument `{option}`"), see)
        }
        ErrorKind::UnknownArgument => (format!("unexpected argument `{option}`"), see),
        ErrorKind::InvalidSubcommand => {
            let name = get(ContextKind::InvalidSubcommand).unwrap_or_default();
            let meant = if similar_is_none { crate::args::closest_command(&name) } else { None };
            let see = meant.map_or(see, |meant| format!("did you mean `{meant}`?"));
            (format!("there is no command `{name}`"), see)
        }
        ErrorKind::ArgumentConflict => {
            let other = get(ContextKind::PriorArg).unwrap_or_default();
            if other == option || other.is_empty() {
                return (format!("`{option}` is given more than once"), see);
            }
            (format!("`{option}` can't be used together with `{other}`"), see)
        }
        ErrorKind::MissingRequiredArgument => (format!("`{option}` is needed"), see),
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            (first.trim_start_matches("error: ").to_owned(), see)
        }
    }
}

/// A value as it was typed; one that can't be seen in quotes.
fn shown(value: &str) -> String {
    if value.trim().is_empty() { format!("`{value}`") } else { value.to_owned() }
}

/// The name that was most likely meant: two letters swapped, one left out, the beginning alone.
pub(crate) fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let likeness = |other: &str| match strsim::osa_distance(other, &name) {
        0 | 1 => 1.0,
        _ => strsim::jaro_winkler(other, &name),
    };
    let rated = known.into_iter().map(|other| (likeness(other), other)).filter(|(likeness, _)| *likeness > 0.7);
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The command that explains the command that was typed.
fn help_command() -> String {
    let command = std::env::args_os().nth(1).map(|arg| escape(arg.as_encoded_bytes()));
    match command {
        Some(name) if crate::args::is_command(&name) => format!("demask {name} --help"),
        _ => "demask --help".to_owned(),
    }
}
