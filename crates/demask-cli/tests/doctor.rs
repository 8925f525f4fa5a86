//! `demask doctor`: planted faults, each with the command that mends it. The command is carried out, and the line is gone.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

#[path = "../../demask-hub/tests/fake_hub/mod.rs"]
mod fake_hub;
mod harness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use fake_hub::{FakeHub, blob, sha256};
use harness::{demask, finish, fixture};

/// A machine: a hub, a home, and its environment.
struct Machine {
    hub: FakeHub,
    home: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl Machine {
    /// A healthy one with a model that was pulled and chosen.
    fn new() -> Machine {
        let (hub, home) = (FakeHub::start(), tempfile::tempdir().unwrap());
        hub.file("o/r", "tiny.Q8_0.gguf", &std::fs::read(fixture("tiny-llada-q8_0")).unwrap());
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let variables = [
            ("HOME", path("")),
            ("HF_HOME", path("hf")),
            ("XDG_CONFIG_HOME", path("config")),
            ("XDG_CACHE_HOME", path("cache")),
            ("HF_ENDPOINT", hub.url.clone()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let machine = Machine { hub, home, variables };
        let setup = finish(machine.command().args(["setup", "--model", "o/r", "--yes"]));
        setup.succeeded();
        machine
    }

    fn command(&self) -> Command {
        let mut command = demask();
        command.env_remove("HF_ENDPOINT").env_remove("HF_HOME").envs(&self.variables);
        command
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn blob(&self) -> PathBuf {
        let bytes = std::fs::read(fixture("tiny-llada-q8_0")).unwrap();
        self.path("hf/hub/models--o--r/blobs").join(sha256(&bytes))
    }

    /// What isn't ok, save that a test's program is a debug build on a small disk.
    fn faults(&self) -> (i32, Vec<serde_json::Value>) {
        let outcome = finish(self.command().args(["doctor", "--json"]));
        let checks = outcome.json()["checks"].as_array().unwrap().clone();
        let expected = |check: &serde_json::Value| {
            check["name"] == "program"
                || check["name"] == "disk" && check["detail"].as_str().unwrap().contains("little")
        };
        let faults = checks.into_iter().filter(|check| check["state"] != "ok" && !expected(check)).collect();
        (outcome.code.unwrap(), faults)
    }

    /// Does what a fix says.
    fn carry_out(&mut self, fix: &str) {
        if let Some(name) = fix.strip_prefix("unset ") {
            assert!(self.variables.remove(name).is_some(), "{fix}");
            return;
        }
        let program = format!("demask() {{ \"{}\" \"$@\"; }}; {fix}", env!("CARGO_BIN_EXE_demask"));
        let output = Command::new("sh").args(["-c", &program]).envs(&self.variables).output().unwrap();
        assert!(output.status.success(), "{fix}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The fault is told with `words`, `fix` is what mends it, and it does.
    fn is_mended(&mut self, words: &str, fix: &str, code: i32) {
        let (found, faults) = self.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0]["detail"].as_str().unwrap().contains(words), "{faults:?} lacks {words}");
        assert_eq!(faults[0]["fix"].as_str().unwrap(), fix);
        assert_eq!(found, code, "{faults:?}");
        self.carry_out(fix);
        let (code, faults) = self.faults();
        assert!(faults.is_empty() && code == 0, "after `{fix}`: {faults:?}");
    }
}

#[test]
fn a_healthy_machine_is_told_so() {
    let machine = Machine::new();
    let (code, faults) = machine.faults();
    assert!(faults.is_empty() && code == 0, "{faults:?}");
    let before = tree(&machine.home.path().to_owned());
    let outcome = finish(machine.command().arg("doctor")).succeeded();
    for line in [
        "processor ",
        "memory ",
        "gpu ",
        "environment ",
        "disk ",
        "cache        1 model, 121.5 kB",
        "model        o/r:Q8_0 (llada)",
    ] {
        assert!(outcome.text().contains(line), "{}\nlacks {line}", outcome.text());
    }
    assert!(!outcome.stdout.contains(&0x1b));
    assert_eq!(tree(&machine.home.path().to_owned()), before, "nothing is changed");
    assert!(machine.hub.log().len() == 3, "nobody is asked");
}

fn tree(folder: &PathBuf) -> Vec<(PathBuf, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        found.push((entry.path(), entry.path().symlink_metadata().unwrap().modified().unwrap()));
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn fault_1_an_endpoint_that_is_none() {
    let mut machine = Machine::new();
    machine.set("HF_ENDPOINT", "garbage");
    machine.is_mended("HF_ENDPOINT can't be used", "unset HF_ENDPOINT", 1);
}

#[test]
fn fault_2_offline_is_set() {
    let mut machine = Machine::new();
    machine.set("HF_HUB_OFFLINE", "1");
    machine.is_mended("nothing can be downloaded", "unset HF_HUB_OFFLINE", 0);
}

#[test]
fn fault_3_half_a_download() {
    let mut machine = Machine::new();
    // Of a model that the records know: a pull finishes it.
    let blob = machine.blob();
    let bytes = std::fs::read(&blob).unwrap();
    std::fs::remove_dir_all(machine.path("hf/hub/models--o--r/snapshots")).unwrap();
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(blob.with_extension("incomplete"), &bytes[..1000]).unwrap();
    let (code, faults) = machine.faults();
    assert_eq!(code, 1);
    assert_eq!(faults.len(), 2, "the model is missing, too: {faults:?}");
    assert!(faults.iter().all(|fault| fault["fix"] == "demask pull o/r:Q8_0 --yes"), "{faults:?}");
    machine.carry_out("demask pull o/r:Q8_0 --yes");
    assert!(machine.faults().1.is_empty());

    // Of another tool's, that nobody knows.
    std::fs::write(machine.path("hf/hub/models--o--r/blobs/0123.incomplete"), b"GGUF").unwrap();
    machine.is_mended("half a download, 4 B", "demask rm --unfinished --yes", 0);
}

#[test]
fn fault_4_a_link_to_nothing() {
    let mut machine = Machine::new();
    // Another model, so that the default one is still there.
    machine.hub.file("o/s", "s.Q4_0.gguf", &blob(1, 5000));
    machine.carry_out("demask pull o/s --yes");
    std::fs::remove_dir_all(machine.path("hf/hub/models--o--s/blobs")).unwrap();
    machine.is_mended("leads nowhere", "demask pull o/s:Q4_0 --yes", 1);
}

#[test]
fn fault_5_a_damaged_file() {
    let mut machine = Machine::new();
    let blob = machine.blob();
    let mut bytes = std::fs::read(&blob).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    machine.is_mended("its SHA-256 is wrong", "demask pull o/r:Q8_0 --yes", 1);
    let quick = finish(machine.command().args(["doctor", "--quick"])).succeeded();
    assert!(quick.text().contains("hashes were not looked at"), "{}", quick.text());
}

#[test]
fn fault_6_the_chosen_model_is_gone() {
    let mut machine = Machine::new();
    std::fs::remove_dir_all(machine.path("hf/hub/models--o--r")).unwrap();
    machine.is_mended("o/r:Q8_0, chosen by `demask setup`, is not on this machine", "demask pull o/r:Q8_0 --yes", 1);
}

#[test]
fn fault_7_a_configuration_that_is_none() {
    let mut machine = Machine::new();
    std::fs::write(machine.path("config/demask/config.json"), b"{model: x}").unwrap();
    machine.is_mended("config.json is not what demask writes", "demask setup --model embedded", 1);
}

#[test]
fn fault_8_the_cache_is_no_folder() {
    let mut machine = Machine::new();
    finish(machine.command().args(["setup", "--model", "embedded"])).succeeded();
    std::fs::write(machine.path("file"), b"x").unwrap();
    let file = machine.path("file").to_str().unwrap().to_owned();
    machine.set("HF_HUB_CACHE", &file);
    machine.is_mended("is no folder", "unset HF_HUB_CACHE", 1);
}

#[test]
fn fault_9_an_instruction_set_that_is_none_or_slow() {
    let mut machine = Machine::new();
    machine.set("DEMASK_ISA", "mmx");
    machine.is_mended("mmx", "unset DEMASK_ISA", 1);
    machine.set("DEMASK_ISA", "scalar");
    if machine.faults().1.is_empty() {
        eprintln!("scalar is the fastest here");
        return;
    }
    machine.is_mended("DEMASK_ISA=scalar keeps it from the fastest", "unset DEMASK_ISA", 0);
}

#[test]
fn fault_10_a_proxy_that_is_none() {
    let mut machine = Machine::new();
    machine.set("HTTPS_PROXY", "ftp://x y");
    machine.is_mended("HTTPS_PROXY is no address of a proxy", "unset HTTPS_PROXY", 1);
}

#[test]
fn fault_11_a_token_that_is_none() {
    let mut machine = Machine::new();
    machine.set("HF_TOKEN", "hf_a b");
    machine.is_mended("HF_TOKEN can't be used", "unset HF_TOKEN", 1);
}

#[cfg(unix)]
#[test]
fn fault_12_a_token_that_everybody_can_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut machine = Machine::new();
    let token = machine.path("hf/token");
    std::fs::write(&token, b"hf_x").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let fix = format!("chmod 600 {}", token.display());
    machine.is_mended("everybody on this machine can read the token", &fix, 0);
}

#[test]
fn fault_13_a_chosen_model_that_does_not_run() {
    let mut machine = Machine::new();
    let folder = machine.path("");
    let change = [("general.architecture", Some("llama".into()))];
    let path = harness::patched(&folder, "tiny-llada-f32", &change);
    let config = serde_json::json!({"model": path.to_str().unwrap()}).to_string();
    std::fs::write(machine.path("config/demask/config.json"), config).unwrap();
    machine.is_mended("not a diffusion model", "demask setup --model embedded", 1);
}

#[test]
fn fault_14_certificates_that_are_not_there() {
    let mut machine = Machine::new();
    machine.set("SSL_CERT_FILE", "/nowhere/cert.pem");
    machine.is_mended("SSL_CERT_FILE leads nowhere", "unset SSL_CERT_FILE", 1);
}
