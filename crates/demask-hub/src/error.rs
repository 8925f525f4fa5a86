//! What can go wrong between a model's name and its file.

use std::io;
use std::path::PathBuf;

/// A failure to find or fetch a model. Messages are one line; [`Error::hint`] says what helps where we know it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("`{given}` is no model name: {reason}")]
    Name { given: String, reason: String },
    #[error("there is no model called `{name}` here")]
    Unknown { name: String, known: String },
    #[error("no GGUF file of {name} is known on the hub")]
    NoKnownFile { name: String, hint: String },
    #[error("cannot tell where the model cache is: none of HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME is set")]
    NoHome,
    #[error("{variable} can't be used: {reason}")]
    Variable { variable: &'static str, reason: String },
    #[error("{what} is not in the cache, and offline is set")]
    Offline { what: String },
    #[error("cannot reach {host}: {reason}")]
    Unreachable { host: String, reason: String },
    #[error("{host} answered {status} to {request}{}", told(message))]
    Status { host: String, status: u16, request: String, message: String },
    #[error("{host} is asking for fewer requests (429), next in {} s", wait.as_secs())]
    Busy { host: String, wait: std::time::Duration },
    #[error("the hub doesn't know {what}, or keeps it private")]
    NotFound { what: String, with_token: bool },
    #[error("{repo} is gated: its owner wants its terms accepted first")]
    Gated { repo: String, page: String, with_token: bool },
    #[error("the hub refuses the access token (401) for {repo}")]
    Token { repo: String },
    #[error("expected {expected} from {host}, found {found}")]
    Portal { host: String, expected: String, found: String },
    #[error("{host} sent {what} `{value}`, which is refused: {reason}")]
    Hostile { host: String, what: &'static str, value: String, reason: &'static str },
    #[error("{host} contradicts itself about {file}: {expected}, then {found}")]
    Contradiction { host: String, file: String, expected: String, found: String },
    #[error("{file} arrived damaged: its SHA-256 is {found}, the hub says {expected}")]
    Hash { file: String, expected: String, found: String },
    #[error("the download of {file} broke off at {} of {}: {reason}", megabytes(*done), megabytes(*size))]
    Interrupted { file: String, done: u64, size: u64, reason: String },
    #[error("no space for {what}: it needs {} and {} are free in {}", megabytes(*needed), megabytes(*free), folder.display())]
    Space { what: String, needed: u64, free: u64, folder: PathBuf },
    #[error("no space left while writing {}", path.display())]
    Full { path: PathBuf },
    #[error("cannot {action} {}: {error}", path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
    #[error("{repo} has no GGUF file")]
    NoGguf { repo: String },
    #[error("{repo} has no file of quantisation {quant}; it has {has}")]
    NoQuant { repo: String, quant: String, has: String },
    #[error("{repo} lacks part {part} of {count} of {file}")]
    MissingPart { repo: String, file: String, part: u32, count: u32 },
}

impl Error {
    /// What would help.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::Name { .. } => {
                "a model is a path, `owner/repo`, `owner/repo:QUANT` or a short name; `demask list --known` shows those"
            }
            Error::Unknown { known, .. } => return Some(format!("short names are {known}; else give `owner/repo`")),
            Error::NoKnownFile { hint, .. } => return Some(hint.clone()),
            Error::NoHome => "set HF_HUB_CACHE to the folder where models are to be kept",
            Error::Variable { .. } => "correct or unset it",
            Error::Offline { .. } => "unset HF_HUB_OFFLINE and leave out `--offline` to download it",
            Error::Unreachable { .. } => {
                "check the network; behind a proxy set HTTPS_PROXY, for a mirror of the hub set HF_ENDPOINT"
            }
            Error::Status { .. } => "try again later; the download goes on where it stopped",
            Error::Busy { .. } => "run the command again later, or set HF_TOKEN: those who sign in may ask more often",
            Error::NotFound { with_token: true, .. } => "check the name, and that HF_TOKEN may read it",
            Error::NotFound { .. } => "check the name; for a private model set HF_TOKEN",
            Error::Gated { page, with_token: true, .. } => {
                return Some(format!("accept them at {page} with the account that HF_TOKEN belongs to"));
            }
            Error::Gated { page, .. } => {
                return Some(format!("accept them at {page}, then set HF_TOKEN to an access token of that account"));
            }
            Error::Token { .. } => "set HF_TOKEN to a valid token, or unset it",
            Error::Portal { .. } => {
                "something between here and the hub answers in its place: sign in to the network, or check HF_ENDPOINT and the proxy"
            }
            Error::Hostile { .. } | Error::Contradiction { .. } => "check HF_ENDPOINT: this isn't how the hub answers",
            Error::Hash { .. } => {
                "nothing was kept; run the command again, and check HF_ENDPOINT and the proxy if it stays"
            }
            Error::Interrupted { .. } => "run the command again: it goes on where it stopped",
            Error::Space { .. } | Error::Full { .. } => {
                "free some space (`demask list`, `demask rm MODEL`), or set HF_HUB_CACHE to a folder on another disk"
            }
            Error::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "set HF_HUB_CACHE to a folder that you may write to"
            }
            Error::NoGguf { .. } => {
                "look for a repository whose name ends in -GGUF, or convert the model with llama.cpp's convert_hf_to_gguf.py"
            }
            Error::NoQuant { .. } => "put one of these behind the colon",
            Error::Io { .. } | Error::MissingPart { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// Wraps an error of the file system.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
            _ => Error::Io { action, path, error },
        }
    }
}

fn told(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// A size for a message.
pub(crate) fn megabytes(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        100_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
