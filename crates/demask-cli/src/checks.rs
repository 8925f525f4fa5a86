//! What `setup` and `doctor` look at: each check is a line with a verdict and, if that isn't ok, the command that mends it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use demask::{Device, GpuLayers, ModelFile};
use demask_compute::cpu::{kernels, memory, threads};
use demask_gguf::Gguf;
use demask_hub::{Cache, FaultKind, Settings};
use serde::Serialize;

use crate::chosen;
use crate::model_ref::{Consent, ModelRef, model_name};
use crate::output::{Out, size};

/// A disk with less room than this has none for a usual model.
const USUAL_MODEL: u64 = 6_000_000_000;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// Something doesn't work.
    Broken,
}

/// A line of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) name: &'static str,
    pub(crate) state: State,
    /// What was found.
    pub(crate) detail: String,
    /// The command that mends it; for every state but ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Check {
    pub(crate) fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, state: State::Ok, detail: detail.into(), fix: None }
    }

    fn warning(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { name, state: State::Warning, detail: detail.into(), fix: Some(fix.into()) }
    }

    fn broken(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { name, state: State::Broken, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// Prints it, the fix on a line of its own.
    pub(crate) fn print(&self, out: &mut Out) -> Result<()> {
        let state = match self.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Broken => "broken",
        };
        out.line(&demask_gguf::escape(format!("{state:8} {:12} {}", self.name, self.detail)))?;
        match &self.fix {
            Some(fix) => out.line(&demask_gguf::escape(format!("{:21} fix: `{fix}`", ""))),
            None => Ok(()),
        }
    }
}

/// The program itself.
pub(crate) fn program() -> Check {
    let version = format!("demask {}, {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    match cfg!(debug_assertions) {
        true => Check::warning("program", format!("{version}, a debug build: slow"), "cargo build --release"),
        false => Check::ok("program", version),
    }
}

/// The instruction set in use, and the threads.
pub(crate) fn processor() -> Check {
    let asked = std::env::var("DEMASK_ISA").ok();
    let names: Vec<&str> = kernels::available().iter().map(|table| table.name).collect();
    match Device::cpu(None) {
        Err(error) => Check::broken("processor", error.to_string(), "unset DEMASK_ISA"),
        Ok(device) => {
            let (used, logical) = (threads::available(), threads::runnable());
            let detail = format!("{}; {logical} logical, {used} used; can run {}", device.describe(), names.join(", "));
            match asked.filter(|asked| Some(asked.as_str()) != names.first().copied()) {
                Some(asked) => {
                    let detail = format!("{detail}; DEMASK_ISA={asked} keeps it from the fastest");
                    Check::warning("processor", detail, "unset DEMASK_ISA")
                }
                None => Check::ok("processor", detail),
            }
        }
    }
}

/// Memory that is left, within the limits of the container.
pub(crate) fn memory() -> Check {
    let detail = match memory::available() {
        Some(bytes) => format!("{} available, within the limits of the container if there are any", size(bytes)),
        None => "the system doesn't tell how much is available".to_owned(),
    };
    Check::ok("memory", detail)
}

/// The first GPU, if one can be used.
pub(crate) fn gpu() -> Check {
    match Device::gpu(0, GpuLayers::Auto, None) {
        Ok(device) => Check::ok("gpu", device.describe()),
        Err(error) => Check::ok("gpu", format!("none is used: {error}")),
    }
}

/// The disk that holds the cache.
pub(crate) fn disk(settings: &Settings) -> Check {
    let cache = &settings.cache;
    let shown = cache.display();
    let Some(folder) = cache.ancestors().find(|folder| folder.symlink_metadata().is_ok()) else {
        return Check::ok("disk", format!("{shown} will be made"));
    };
    if !folder.is_dir() {
        let variables = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"];
        let set = variables.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        let fix = match set {
            Some(name) => format!("unset {name}"),
            None => format!("mv {0} {0}.old", quoted(folder)),
        };
        return Check::broken("disk", format!("{} is no folder, so that {shown} can't be", folder.display()), fix);
    }
    if !demask_hub::can_write(folder) {
        let fix = format!("sudo chown -R \"$USER\" {}", quoted(folder));
        return Check::broken("disk", format!("{} can't be written to", folder.display()), fix);
    }
    match (settings.free_space)(folder) {
        Ok(free) if free < USUAL_MODEL => Check::warning(
            "disk",
            format!("{} free in {shown}: little for a model", size(free)),
            "demask list; demask rm MODEL",
        ),
        Ok(free) => Check::ok("disk", format!("{} free in {shown}", size(free))),
        Err(error) => Check::ok("disk", format!("{shown}; its free space isn't told: {error}")),
    }
}

/// The models on disk: half files, links to nothing, wrong contents.
pub(crate) fn cache(settings: &Settings, hash: bool, tell: &mut dyn FnMut(&str, u64, u64)) -> Vec<Check> {
    let cache = Cache::new(&settings.cache);
    let faults = cache.faults(settings, hash, tell);
    if faults.is_empty() {
        let models = cache.models();
        let bytes = models.iter().map(|model| model.bytes).sum();
        let count = if models.len() == 1 { "1 model".to_owned() } else { format!("{} models", models.len()) };
        let hashes = if hash { "" } else { "; hashes were not looked at" };
        return vec![Check::ok("cache", format!("{count}, {}{hashes}", size(bytes)))];
    }
    let check = |fault: demask_hub::CacheFault| {
        let path = fault.path.display();
        let pull = fault.model.map(|model| format!("demask pull {model} --yes"));
        match fault.kind {
            FaultKind::HalfFile { bytes } => {
                let fix = pull.unwrap_or_else(|| "demask rm --unfinished --yes".to_owned());
                Check::warning("cache", format!("half a download, {} of it: {path}", size(bytes)), fix)
            }
            FaultKind::BrokenLink => Check::broken("cache", format!("leads nowhere: {path}"), pull.unwrap_or_default()),
            FaultKind::WrongHash => {
                Check::broken("cache", format!("damaged, its SHA-256 is wrong: {path}"), pull.unwrap_or_default())
            }
            FaultKind::Unreadable => {
                Check::broken("cache", format!("can't be read: {path}"), format!("chmod u+r {}", quoted(&fault.path)))
            }
        }
    };
    faults.into_iter().map(check).collect()
}

/// The model of commands without `-m`.
pub(crate) fn default_model(settings: &Settings) -> Check {
    const NAME: &str = "model";
    let back = "demask setup --model embedded";
    let chosen = match chosen::read() {
        Err(error) => return Check::broken(NAME, format!("{error:#}"), back),
        Ok(None) => return Check::ok(NAME, "the embedded toy model; `demask setup` chooses a real one"),
        Ok(Some(chosen)) if chosen == chosen::EMBEDDED => return Check::ok(NAME, "the embedded toy model"),
        Ok(Some(chosen)) => chosen,
    };
    let path = match ModelRef::read(chosen.as_ref(), Consent::default()) {
        ModelRef::File(path) => path,
        _ => match model_name(&chosen).map(|model| Cache::new(&settings.cache).find(&model)) {
            Err(error) => return Check::broken(NAME, error.to_string(), back),
            Ok(None) => {
                let detail = format!("{chosen}, chosen by `demask setup`, is not on this machine");
                return Check::broken(NAME, detail, format!("demask pull {chosen} --yes"));
            }
            Ok(Some(found)) => found.files[0].clone(),
        },
    };
    let file = Gguf::open(&path).map_err(demask::Error::from).and_then(ModelFile::from_gguf);
    let file = match file {
        Ok(file) => file,
        Err(error) => return Check::broken(NAME, format!("{chosen}: {error}"), back),
    };
    let needed = file.memory_needed();
    match memory::available().filter(|&available| available < needed) {
        Some(available) => {
            let detail = format!("{chosen} needs {} of memory, {} are available", size(needed), size(available));
            Check::broken(NAME, detail, back)
        }
        None => Check::ok(NAME, format!("{chosen} ({}), needs {} of memory", file.spec().architecture, size(needed))),
    }
}

/// Settings by the environment with what can't be used left out, and a check for each such thing.
pub(crate) fn environment() -> (Option<Settings>, Vec<Check>) {
    const NAME: &str = "environment";
    let mut checks = Vec::new();
    let mut ignored: Vec<&str> = Vec::new();
    let settings = loop {
        let hidden = ignored.clone();
        match Settings::from_variables(&move |name| std::env::var_os(name).filter(|_| !hidden.contains(&name))) {
            Ok(settings) => break Some(settings),
            Err(demask_hub::Error::Variable { variable, reason }) if !ignored.contains(&variable) => {
                checks.push(Check::broken(
                    NAME,
                    format!("{variable} can't be used: {reason}"),
                    format!("unset {variable}"),
                ));
                ignored.push(variable);
            }
            Err(error) => {
                checks.push(Check::broken(NAME, error.to_string(), "export HF_HUB_CACHE=/a/folder/for/models"));
                break None;
            }
        }
    };
    if settings.as_ref().is_some_and(|settings| settings.offline) {
        checks.push(Check::warning(NAME, "HF_HUB_OFFLINE is set: nothing can be downloaded", "unset HF_HUB_OFFLINE"));
    }
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        let value = std::env::var(name).unwrap_or_default();
        if !value.is_empty() && !demask_hub::is_proxy(&value) {
            checks.push(Check::broken(NAME, format!("{name} is no address of a proxy"), format!("unset {name}")));
        }
    }
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        if let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty() && !Path::new(path).exists()) {
            let detail =
                format!("{name} leads nowhere ({}): encrypted connections fail", PathBuf::from(path).display());
            checks.push(Check::broken(NAME, detail, format!("unset {name}")));
        }
    }
    if let Some(path) = settings.as_ref().and_then(Settings::exposed_token_file) {
        let detail = format!("everybody on this machine can read the token in {}", path.display());
        checks.push(Check::warning(NAME, detail, format!("chmod 600 {}", quoted(&path))));
    }
    if checks.is_empty() {
        let host = settings.as_ref().map(|settings| settings.host().to_owned()).unwrap_or_default();
        checks.push(Check::ok(NAME, format!("models come from {host}")));
    }
    (settings, checks)
}

/// A path that a shell takes as one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_take_paths_as_one_word() {
        assert_eq!(quoted(Path::new("/a/b-1.gguf")), "/a/b-1.gguf");
        assert_eq!(quoted(Path::new("/it's here")), r"'/it'\''s here'");
    }
}
