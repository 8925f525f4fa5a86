//! Running the program and changing models.
#![allow(clippy::unwrap_used, dead_code)]

#[cfg(unix)]
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use demask_gguf::{Gguf, Value, Writer};

/// What a command left behind.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }

    pub(crate) fn succeeded(self) -> Outcome {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// Rule 1: the code, one line `error:` that holds `words`, maybe one `hint:`, nothing on stdout, soon, no panic.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        let stderr = &self.stderr;
        assert_eq!(self.code, Some(code), "{stderr}");
        assert!(self.stdout.is_empty(), "stdout holds {:?}", String::from_utf8_lossy(&self.stdout));
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{stderr}");
        let others = stderr.lines().filter(|line| !line.starts_with("error: "));
        assert!(
            others.clone().all(|line| ["hint: ", "note: ", "warning: "].iter().any(|k| line.starts_with(k))),
            "{stderr}"
        );
        assert!(stderr.lines().filter(|line| line.starts_with("hint: ")).count() <= 1, "{stderr}");
        assert!(!stderr.chars().any(|c| c.is_control() && c != '\n'), "{stderr:?}");
        assert!(!errors[0].ends_with('.'), "{stderr}");
        for word in words {
            assert!(errors[0].contains(word), "`{}` lacks `{word}`", errors[0]);
        }
        assert!(self.took < Duration::from_secs(5), "took {:?}", self.took);
    }
}

/// A folder that can't be: its parent is a device.
const NOWHERE: &str = "/dev/null/demask";

pub(crate) fn demask() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demask"));
    command.stdin(Stdio::null()).env_remove("NO_COLOR").env("TERM", "xterm-256color");
    // What the program keeps between runs stays out of the user's own folder.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    // Nobody's own models and choices; and no test asks the real hub.
    command.env("XDG_CONFIG_HOME", NOWHERE).env("HF_HOME", NOWHERE);
    command.env("HF_ENDPOINT", "http://127.0.0.1:9").env_remove("HF_HUB_CACHE").env_remove("HF_TOKEN");
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Outcome {
    finish(demask().args(args))
}

pub(crate) fn finish(command: &mut Command) -> Outcome {
    let started = Instant::now();
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
        took: started.elapsed(),
    }
}

/// The same within `limit`; a machine that was busy with something else gets a second try.
pub(crate) fn run_within<S: AsRef<OsStr>>(limit: Duration, args: &[S]) -> Outcome {
    let first = run(args);
    let outcome = if first.took < limit { first } else { run(args) };
    assert!(outcome.took < limit, "took {:?}", outcome.took);
    outcome
}

pub(crate) fn run_with_stdin<S: AsRef<OsStr>>(args: &[S], stdin: &[u8]) -> Outcome {
    let started = Instant::now();
    let mut child =
        demask().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
        took: started.elapsed(),
    }
}

/// The names of all commands, as the help lists them.
pub(crate) fn commands() -> Vec<String> {
    let text = help(&[]);
    let (_, list) = text.split_once("Commands:\n").unwrap();
    let rows = list.lines().take_while(|line| line.starts_with("  "));
    // A description that needs a second line is indented further.
    let names = rows.filter(|row| !row.starts_with("   "));
    names.map(|row| row.split_whitespace().next().unwrap().to_owned()).collect()
}

/// The help of a command, 100 columns wide.
pub(crate) fn help(command: &[&str]) -> String {
    let outcome = finish(demask().args(command).arg("--help").env("COLUMNS", "100")).succeeded();
    assert_eq!(outcome.stderr, "");
    // A paragraph's end is no place for spaces.
    outcome.text().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A file of the workspace, as text for a command line.
pub(crate) fn workspace(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn fixture(name: &str) -> String {
    workspace(&format!("fixtures/{name}.gguf"))
}

/// What becomes of a tensor.
pub(crate) type Retensor<'a> =
    &'a dyn Fn(&demask_gguf::TensorInfo) -> Option<(String, Vec<u64>, demask_gguf::TensorType)>;

/// Writes a changed copy of a fixture: keys with a value are set, keys without one are left out.
pub(crate) fn patched(folder: &Path, fixture_name: &str, changes: &[(&str, Option<Value>)]) -> PathBuf {
    rebuilt(folder, fixture_name, &|key| key.to_owned(), changes, &|_| None)
}

/// Writes a fixture whose last tensor has so many bytes more, all of them 0, which a sparse file holds.
pub(crate) fn enlarged(folder: &Path, fixture_name: &str, bytes: u64) -> PathBuf {
    let gguf = Gguf::open(fixture(fixture_name)).unwrap();
    let last = gguf.tensors().iter().max_by_key(|tensor| tensor.offset()).unwrap();
    let mut file = std::fs::read(fixture(fixture_name)).unwrap();
    let entry = [&(last.name.len() as u64).to_le_bytes()[..], last.name.as_bytes()].concat();
    let at = file.windows(entry.len()).position(|window| window == entry).unwrap() + entry.len();
    let dim = at + 4 + 8 * (last.dims.len() - 1);
    let rows = *last.dims.last().unwrap();
    let row = last.byte_len() / rows;
    file[dim..dim + 8].copy_from_slice(&(rows + bytes / row).to_le_bytes());
    let path = folder.join("enlarged.gguf");
    std::fs::write(&path, &file).unwrap();
    let length = file.len() as u64 + bytes / row * row;
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
    path
}

/// Writes a changed copy of a fixture: other keys, other values, other tensors.
pub(crate) fn rebuilt(
    folder: &Path,
    fixture_name: &str,
    rename: &dyn Fn(&str) -> String,
    changes: &[(&str, Option<Value>)],
    retensor: Retensor<'_>,
) -> PathBuf {
    let gguf = Gguf::open(fixture(fixture_name)).unwrap();
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        if !changes.iter().any(|(changed, _)| *changed == key) {
            writer.add(&rename(key), value.clone()).unwrap();
        }
    }
    for (key, value) in changes {
        if let Some(value) = value {
            writer.add(key, value.clone()).unwrap();
        }
    }
    for tensor in gguf.tensors() {
        let (name, dims, ty) =
            retensor(tensor).unwrap_or_else(|| (tensor.name.clone(), tensor.dims.clone(), tensor.ty));
        let len = ty.row_bytes(dims[0]).unwrap() * dims[1..].iter().product::<u64>();
        let bytes = gguf.bytes(tensor);
        writer.tensor(&name, &dims, ty, bytes[..len as usize].to_vec()).unwrap();
    }
    let path = folder.join("patched.gguf");
    writer.save(&path).unwrap();
    path
}
