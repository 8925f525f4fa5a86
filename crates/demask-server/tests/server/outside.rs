//! Programs of others against the server: OpenAI's clients, and a browser. `tests/clients/install.sh` brings what they need;
//! without it these tests say that they are skipped, and with DEMASK_REQUIRE_CLIENTS=1 they fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::scripted::{Running, embedded, real};

/// Where the packages are.
fn packages() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    std::env::var_os("DEMASK_CLIENTS").map_or(own, PathBuf::from)
}

fn found(path: PathBuf, what: &str) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    let message = format!("{what} is not at {}; run tests/clients/install.sh", path.display());
    assert!(std::env::var_os("DEMASK_REQUIRE_CLIENTS").is_none(), "{message}");
    eprintln!("SKIPPED: {message}");
    None
}

fn chromium() -> PathBuf {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let mut places = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    places.find(|place| place.exists()).unwrap_or_else(|| "chromium".into())
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{out}{err}");
    eprint!("{out}");
}

fn api(server: &Running) -> String {
    format!("http://{}/v1", server.at)
}

#[test]
fn f01_openais_python_client() {
    let Some(python) = found(packages().join("venv/bin/python"), "openai for Python") else { return };
    let server = real();
    succeeds(Command::new(python).arg(script("clients/client.py")).arg(api(&server)));
}

#[test]
fn f01_openais_javascript_client() {
    let Some(folder) = found(packages().join("node_modules/openai"), "openai for JavaScript") else { return };
    let server = real();
    let modules = folder.parent().unwrap();
    succeeds(Command::new("node").arg(script("clients/client.mjs")).arg(api(&server)).env("NODE_MODULES", modules));
}

#[test]
fn the_page_in_a_browser() {
    let Some(folder) = found(packages().join("node_modules/puppeteer-core"), "puppeteer-core") else { return };
    let Some(chromium) = found(chromium(), "Chromium") else { return };
    let server = Running::start(embedded(), |_| {});
    let mut command = Command::new("node");
    command.arg(script("page/page.mjs")).arg(format!("http://{}", server.at));
    command.env("NODE_MODULES", folder.parent().unwrap()).env("CHROMIUM", chromium);
    // A folder for pictures, when they are to be made anew.
    command.args(std::env::var_os("DEMASK_PICTURES"));
    succeeds(&mut command);
}
