//! Models by name: pull, list, rm, and -m with a name, against a hub on loopback. Tests that stand for a case are named
//! after it.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

#[path = "../../demask-hub/tests/fake_hub/mod.rs"]
mod fake_hub;
mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fake_hub::{Action, Entry, FakeHub, answer, sha256};
use harness::{Outcome, demask, finish, fixture, workspace};

const FILE: &str = "tiny.Q8_0.gguf";

/// A hub with the tiny model, and a home of its own.
struct World {
    hub: FakeHub,
    home: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl World {
    fn new() -> World {
        let bytes = std::fs::read(fixture("tiny-llada-q8_0")).unwrap();
        let world = World { hub: FakeHub::start(), home: tempfile::tempdir().unwrap(), bytes };
        world.hub.file("o/r", FILE, &world.bytes);
        world
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = demask();
        let home = self.home.path();
        command.args(args).env("HOME", home).env("HF_HOME", home.join("hf")).env("HF_ENDPOINT", &self.hub.url);
        command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_CACHE_HOME", home.join("cache"));
        command
    }

    fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Outcome {
        finish(&mut self.command(args))
    }

    fn repo(&self) -> PathBuf {
        self.home.path().join("hf/hub/models--o--r")
    }

    fn unfinished(&self) -> PathBuf {
        self.repo().join(format!("blobs/{}.incomplete", sha256(&self.bytes)))
    }

    fn data_requests(&self) -> Vec<u64> {
        self.hub.log().iter().filter(|request| request.is_data()).map(fake_hub::Request::from).collect()
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never happens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_model_is_pulled_run_listed_and_removed() {
    let world = World::new();
    let pulled = world.run(&["pull", "o/r", "--yes"]).succeeded();
    let path = Path::new(pulled.text().trim_end());
    assert_eq!(std::fs::read(path).unwrap(), world.bytes);
    assert!(pulled.stderr.contains("note: o/r:Q8_0 is here"), "{}", pulled.stderr);
    let again = world.run(&["pull", "o/r"]).succeeded();
    assert_eq!(again.text(), pulled.text(), "what is here needs no yes");
    let json = world.run(&["pull", "--json", "o/r:q8_0"]).succeeded().json();
    assert_eq!((&json["model"], &json["files"][0]), (&"o/r:Q8_0".into(), &path.to_str().unwrap().into()));

    world.hub.clear_log();
    world.run(&["run", "-n", "4", "hi", "-m", "o/r"]).succeeded();
    world.run(&["run", "-n", "4", "hi", "-m", "o/r:Q8_0", "--offline"]).succeeded();
    world.run(&["tokenize", "hi", "-m", &format!("o/r:{FILE}")]).succeeded();
    assert!(world.hub.log().is_empty(), "what is here asks nobody");

    let list = world.run(&["list"]).succeeded();
    assert!(list.text().starts_with("MODEL") && list.text().contains("o/r:Q8_0"), "{}", list.text());
    let json = world.run(&["list", "--json"]).succeeded().json();
    assert_eq!((&json[0]["model"], &json[0]["bytes"]), (&"o/r:Q8_0".into(), &world.bytes.len().into()));
    assert_eq!((&json[0]["whole"], &json[0]["default"]), (&true.into(), &false.into()));

    world.run(&["rm", "o/r:Q8_0"]).refused(3, &["o/r:Q8_0", "without a yes"]);
    world.run(&["rm", "o/r:Q4_K_M", "--yes"]).refused(1, &["o/r:Q4_K_M is not on this machine"]);
    let removed = world.run(&["rm", "o/r:Q8_0", "--yes"]).succeeded();
    assert!(removed.stderr.contains("is deleted"), "{}", removed.stderr);
    assert!(!world.repo().exists());
    assert_eq!(world.run(&["list"]).succeeded().text(), "");
    assert_eq!(world.run(&["list", "--json"]).succeeded().text(), "[]\n");
    let outcome = world.run(&["rm", "./model.gguf"]);
    outcome.refused(1, &["is a path"]);
    world.run(&["rm"]).refused(2, &["MODEL"]);
}

#[test]
fn nothing_is_downloaded_without_a_yes() {
    let world = World::new();
    let outcome = world.run(&["pull", "o/r"]);
    outcome.refused(3, &["o/r:Q8_0", "121.5 kB", "without a yes"]);
    assert!(outcome.stderr.contains("hint: `demask pull o/r --yes` does it"), "{}", outcome.stderr);
    assert!(world.data_requests().is_empty());
    world.hub.clear_log();
    let outcome = world.run(&["run", "hi", "-m", "o/r"]);
    outcome.refused(3, &["o/r", "without a yes"]);
    assert!(world.hub.log().is_empty(), "nobody is asked either");
    world.run(&["run", "-n", "4", "hi", "--yes", "-m", "o/r"]).succeeded();
    assert_eq!(world.data_requests(), [0]);
    world.run(&["pull", "o/r", "--yes", "--offline"]).refused(2, &["--offline", "--yes"]);
}

#[cfg(unix)]
#[test]
fn a_terminal_is_asked() {
    for (answer, code, here) in [("y\n", 0, true), ("\n", 3, false), ("no\n", 3, false)] {
        let world = World::new();
        let run = format!("{} run -n 4 hi -m o/r", env!("CARGO_BIN_EXE_demask"));
        let mut script = Command::new("script");
        script.args(["-qec", &run, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        for (name, value) in world.command(&["x"]).get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let Ok(mut child) = script.spawn() else {
            eprintln!("skipped: `script` does not run here");
            return;
        };
        // The question comes first: what is typed before it may be lost.
        let mut stdin = child.stdin.take().unwrap();
        wait_for(|| world.hub.log().len() >= 2);
        std::thread::sleep(Duration::from_millis(300));
        std::io::Write::write_all(&mut stdin, answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let screen = String::from_utf8_lossy(&output.stdout);
        assert!(screen.contains("Download o/r:Q8_0 (121.5 kB) from 127.0.0.1"), "{screen}");
        assert_eq!(output.status.code(), Some(code), "{screen}");
        assert_eq!(world.repo().join("snapshots").exists(), here, "{screen}");
    }
}

#[test]
fn names_that_lead_nowhere_say_what_there_is() {
    let world = World::new();
    world.hub.file("o/r", "tiny.Q4_K_M.gguf", b"GGUF");
    world.run(&["pull", "o/r:Q6_K"]).refused(1, &["o/r has no file of quantisation Q6_K", "Q4_K_M, Q8_0"]);
    world.run(&["pull", "o/none"]).refused(1, &["doesn't know o/none"]);
    let outcome = world.run(&["run", "hi", "-m", "lada"]);
    outcome.refused(1, &["no model called `lada`"]);
    assert!(outcome.stderr.contains("llada, llada-1.5, dream"), "{}", outcome.stderr);
    let outcome = world.run(&["pull", "d3llm"]);
    outcome.refused(1, &["no GGUF file of d3llm"]);
    assert!(outcome.stderr.contains("hint: convert"), "{}", outcome.stderr);
    world.run(&["pull", "a/b/c"]).refused(2, &["a/b/c", "no model name"]);
    world.run(&["pull"]).refused(2, &["MODEL"]);
    let known = world.run(&["list", "--known"]).succeeded();
    assert!(known.text().contains("mradermacher/LLaDA-8B-Instruct-GGUF"), "{}", known.text());
    let rows = world.run(&["list", "--known", "--json"]).succeeded().json();
    assert!(rows.as_array().unwrap().iter().any(|row| row["name"] == "dream" && row["repo"].is_string()));
}

#[test]
fn failures_of_the_hub_are_one_line_each() {
    let html = answer(200, &[("content-type", "text/html")], b"<html>sign in</html>");
    let gated = answer(403, &[("x-error-code", "GatedRepo")], b"");
    let busy = answer(429, &[("retry-after", "9999")], b"");
    for (action, words) in [
        (html, &["expected a list of files (JSON)", "a web page (HTML)"][..]),
        (gated, &["o/r is gated"]),
        (busy, &["fewer requests (429)", "9999 s"]),
        (answer(404, &[], b""), &["doesn't know o/r"]),
        (answer(200, &[], b"{}"), &["other JSON"]),
    ] {
        let world = World::new();
        world.hub.hook(move |_, _| action.clone());
        let outcome = world.run(&["pull", "o/r", "--yes"]);
        outcome.refused(1, words);
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
    }
    let world = World::new();
    world.hub.entry(
        "o/r",
        FILE,
        Entry { bytes: world.bytes.clone(), etag: sha256(b"x"), size: world.bytes.len() as u64 },
    );
    world.run(&["pull", "o/r", "--yes"]).refused(1, &["tiny.Q8_0.gguf arrived damaged", &sha256(b"x")]);
    assert_eq!(world.run(&["list"]).succeeded().text(), "");
}

#[test]
fn e16_the_cache_can_be_moved() {
    let world = World::new();
    let elsewhere = world.home.path().join("elsewhere");
    finish(world.command(&["pull", "o/r", "--yes"]).env("HF_HUB_CACHE", &elsewhere)).succeeded();
    assert!(elsewhere.join("models--o--r/snapshots").exists() && !world.repo().exists());
    let mut homeless = world.command(&["pull", "o/r", "--yes"]);
    homeless.env_remove("HOME").env_remove("HF_HOME").env_remove("XDG_CACHE_HOME");
    finish(&mut homeless).refused(1, &["where the model cache is", "HF_HUB_CACHE"]);
}

#[cfg(unix)]
#[test]
fn e17_a_killed_download_goes_on() {
    let world = World::new();
    world.hub.hook(|request, _| match request.is_data() {
        true => Action::Stall(70_000, Duration::from_secs(20)),
        false => Action::Normal,
    });
    let mut child =
        world.command(&["pull", "o/r", "--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| std::fs::metadata(world.unfinished()).is_ok_and(|meta| meta.len() >= 70_000));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!world.repo().join("snapshots").exists(), "nothing has the final name");
    assert_eq!(world.run(&["list"]).succeeded().text(), "");

    world.hub.hook(|_, _| Action::Normal);
    world.hub.clear_log();
    let pulled = world.run(&["pull", "o/r", "--yes"]).succeeded();
    assert_eq!(world.data_requests(), [70_000], "{}", pulled.stderr);
    assert!(pulled.stderr.contains("70.0 kB of it are here"), "{}", pulled.stderr);
    assert_eq!(std::fs::read(pulled.text().trim_end()).unwrap(), world.bytes);
}

#[test]
fn e22_an_endpoint_that_is_none_is_one_line() {
    let world = World::new();
    let outcome = finish(world.command(&["pull", "o/r", "--yes"]).env("HF_ENDPOINT", "garbage"));
    outcome.refused(1, &["HF_ENDPOINT", "garbage"]);
}

#[test]
fn e23_the_token_is_nowhere_to_be_seen() {
    let world = World::new();
    let storage = FakeHub::start();
    storage.file("x/y", "z", &world.bytes);
    world.hub.storage(&storage.url);
    let token = "hf_verysecret";
    let pulled = finish(world.command(&["pull", "o/r", "--yes"]).env("HF_TOKEN", token)).succeeded();
    world.hub.hook(|_, _| answer(401, &[], b""));
    let refused = finish(world.command(&["pull", "o/r:Q4_0", "--yes"]).env("HF_TOKEN", token));
    refused.refused(1, &["refuses the access token"]);
    assert!(world.hub.log().iter().all(|request| request.header("authorization").is_some()));
    assert!(storage.log().iter().all(|request| request.header("authorization").is_none()));
    let doctor = finish(world.command(&["doctor"]).env("HF_TOKEN", token));
    for outcome in [&pulled, &refused, &doctor] {
        assert!(!outcome.stderr.contains("secret") && !outcome.text().contains("secret"), "{}", outcome.stderr);
    }
}

#[test]
fn e25_offline_asks_nobody() {
    let world = World::new();
    world.run(&["pull", "o/r", "--yes"]).succeeded();
    world.hub.clear_log();
    let offline = |args: &[&str]| finish(world.command(args).env("HF_HUB_OFFLINE", "1"));
    offline(&["run", "-n", "4", "hi", "-m", "o/r"]).succeeded();
    offline(&["pull", "o/r"]).succeeded();
    offline(&["pull", "o/other"]).refused(1, &["o/other is not in the cache, and offline is set"]);
    offline(&["run", "hi", "-m", "o/other"]).refused(1, &["not in the cache, and offline is set"]);
    world.run(&["pull", "o/other", "--offline"]).refused(1, &["not in the cache, and offline is set"]);
    assert!(world.hub.log().is_empty());
}

#[test]
fn without_a_network_a_pull_says_so_in_one_line() {
    let world = World::new();
    let outcome = finish(world.command(&["pull", "o/r", "--yes"]).env("HF_ENDPOINT", "http://127.0.0.1:9"));
    outcome.refused(1, &["cannot reach 127.0.0.1:9", "refused"]);
    assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
    let outcome = finish(world.command(&["pull", "o/r", "--yes"]).env("HF_ENDPOINT", "http://nowhere.invalid"));
    outcome.refused(1, &["cannot reach nowhere.invalid"]);
}

#[test]
fn proxies_of_the_environment_are_used() {
    let world = World::new();
    let through = |no_proxy: &str| {
        let mut command = world.command(&["pull", "o/r", "--yes"]);
        command.env("HTTP_PROXY", &world.hub.url).env("ALL_PROXY", &world.hub.url).env("NO_PROXY", no_proxy);
        finish(command.env("HF_ENDPOINT", "http://hub.invalid"))
    };
    assert_eq!(through("").code, Some(1));
    assert!(world.hub.log().iter().any(|request| request.path.contains("hub.invalid")), "{:?}", world.hub.log());
    world.hub.clear_log();
    through("hub.invalid").refused(1, &["cannot reach hub.invalid"]);
    assert!(world.hub.log().is_empty());
}

/// A tmpfs in a mount namespace of its own is a small disk for every user; where there are none this test says so.
#[cfg(target_os = "linux")]
#[test]
fn e35_a_full_disk_leaves_nothing_half() {
    let mut world = World::new();
    world.bytes = std::fs::read(workspace("assets/demask-tiny-q8_0.gguf")).unwrap();
    world.hub.file("o/r", FILE, &world.bytes);
    let disk = world.home.path().join("hf");
    std::fs::create_dir(&disk).unwrap();
    let on_a_disk = |size: &str, script: &str| {
        let mut command = Command::new("unshare");
        let mount = format!("mount -t tmpfs -o size={size} none {} && {script}", disk.display());
        command.args(["-rm", "sh", "-c", &mount]);
        for (name, value) in world.command(&["x"]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("DEMASK", env!("CARGO_BIN_EXE_demask")).stdin(Stdio::null());
        finish(&mut command)
    };
    if Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs none /mnt"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        let outcome = on_a_disk("1m", "$DEMASK pull o/r --yes");
        outcome.refused(1, &["no space for o/r:Q8_0", "free in"]);
        assert!(world.data_requests().is_empty());

        // The disk fills up while the download goes on.
        let mut first = true;
        world.hub.hook(move |request, _| match request.is_data() && std::mem::take(&mut first) {
            true => Action::Stall(1_000_000, Duration::from_millis(1500)),
            false => Action::Normal,
        });
        let outcome = on_a_disk(
            &(world.bytes.len() + 500_000).to_string(),
            "{ $DEMASK pull o/r --yes & while kill -0 $! && ! [ -s \"$(echo $HF_HOME/hub/models--o--r/blobs/*.incomplete)\" ]; do sleep 0.05; done; \
             head -c 2000000 /dev/zero > $HF_HOME/other; wait $!; echo code $?; $DEMASK list; \
             rm $HF_HOME/other; $DEMASK pull o/r --yes > $HF_HOME/path && cmp \"$(cat $HF_HOME/path)\" $MODEL && echo same; }"
                .replace("$MODEL", &workspace("assets/demask-tiny-q8_0.gguf"))
                .as_str(),
        );
        assert!(outcome.stderr.contains("error: no space left while writing"), "{}", outcome.stderr);
        assert_eq!(outcome.text(), "code 1\nsame\n", "{}", outcome.stderr);
    } else {
        eprintln!("skipped: no tmpfs can be mounted here, so that no disk is full");
    }
}

#[test]
fn e35_a_cache_that_cannot_be_written_is_told() {
    let world = World::new();
    let file = world.home.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let outcome = finish(world.command(&["pull", "o/r", "--yes"]).env("HF_HUB_CACHE", file.join("hub")));
    outcome.refused(1, &["cannot create", "Not a directory"]);
}

#[test]
fn half_downloads_can_be_removed() {
    let world = World::new();
    world.hub.hook(|request, _| if request.is_data() { Action::Cut(50_000) } else { Action::Normal });
    std::fs::create_dir_all(world.repo().join("blobs")).unwrap();
    std::fs::write(world.unfinished(), &world.bytes[..50_000]).unwrap();
    world.run(&["rm", "--unfinished"]).refused(3, &["1 unfinished download", "50.0 kB"]);
    world.run(&["rm", "--unfinished", "--yes"]).succeeded();
    assert!(!world.unfinished().exists());
    world.run(&["rm", "--unfinished"]).succeeded();
}

#[test]
fn setup_makes_a_machine_ready() {
    let world = World::new();
    let outcome = world.run(&["setup", "--model", "o/r"]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: `demask setup --model o/r --yes` does it"), "{}", outcome.stderr);
    assert_eq!(world.run(&["setup"]).code, Some(3));
    assert!(world.hub.log().is_empty() && !world.home.path().join("config").exists());

    let outcome = world.run(&["setup", "--model", "o/r", "--yes"]).succeeded();
    for words in
        ["ok       processor", "ok       memory", "ok       model        o/r:Q8_0", "16 positions in", "ready: "]
    {
        assert!(outcome.text().contains(words), "{}", outcome.text());
    }
    let config = std::fs::read_to_string(world.home.path().join("config/demask/config.json")).unwrap();
    assert!(config.contains("\"model\": \"o/r:Q8_0\""), "{config}");
    // From here on it is the model of every command.
    let json = world.run(&["run", "--json", "-n", "4", "hi"]).succeeded().json();
    assert!(json["model"].as_str().unwrap().contains("tiny-llada"), "{json}");
    assert_eq!(world.run(&["list", "--json"]).succeeded().json()[0]["default"], true);
    assert!(world.run(&["list"]).succeeded().text().contains("o/r:Q8_0*"));
    world.run(&["setup"]).succeeded();

    let removed = world.run(&["rm", "o/r", "--yes"]).succeeded();
    assert!(removed.stderr.contains("was the default model"), "{}", removed.stderr);
    let outcome = world.run(&["run", "-n", "4", "hi"]).succeeded();
    assert!(outcome.stderr.contains("using the embedded toy model"), "{}", outcome.stderr);

    let outcome = world.run(&["setup", "--model", &fixture("none")]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("error: ") && outcome.stderr.contains("none.gguf"), "{}", outcome.stderr);
    assert_eq!(world.run(&["setup", "--model", "o/r", "--offline"]).code, Some(1), "it was deleted");
    world.run(&["setup", "--model", "embedded"]).succeeded();
    let path = fixture("tiny-dream-f32");
    let outcome = world.run(&["setup", "--model", &path]).succeeded();
    assert!(outcome.text().contains("tiny-dream-f32.gguf"), "{}", outcome.text());
    let json = world.run(&["run", "--json", "-n", "4", "hi"]).succeeded().json();
    assert_eq!(json["architecture"], "dream");
}
