//! `demask serve` as a program: what it refuses to start with, its logs, its end.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use demask_gguf::Value;
use harness::{demask, finish, fixture, rebuilt, run};

/// A server that runs as a program.
struct Serving {
    child: Child,
    at: String,
    log: BufReader<std::process::ChildStderr>,
    said: String,
}

fn serve(args: &[&str]) -> Serving {
    serve_as(demask(), args)
}

fn serve_as(mut command: Command, args: &[&str]) -> Serving {
    let mut child = command
        .args(["serve", "--port", "0", "--threads", "1"])
        .args(args)
        .env_remove("DEMASK_API_KEY")
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut serving = Serving { child, at: String::new(), log, said: String::new() };
    while serving.at.is_empty() {
        let mut line = String::new();
        assert!(serving.log.read_line(&mut line).unwrap() > 0, "it ended: {}", serving.said);
        serving.said += &line;
        if let Some(rest) = line.strip_prefix("note: listening on http://") {
            serving.at = rest.split(' ').next().unwrap().to_owned();
        }
    }
    serving
}

impl Serving {
    fn post(&self, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Exit code and all of stderr.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.log.read_to_string(&mut self.said).unwrap();
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, "", "stdout holds nothing");
        (code, self.said)
    }
}

const ASK: &str = r#"{"messages": [{"role": "user", "content": "Zanzibar question"}], "max_tokens": 16}"#;

#[test]
fn f17_a_model_that_is_no_diffusion_model_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let llama = |key: &str| key.replace("llada.", "llama.");
    let changes = [("general.architecture", Some(Value::from("llama")))];
    let path = rebuilt(folder.path(), "tiny-llada-f32", &llama, &changes, &|_| None);
    run(&["serve", "--port", "0", "-m", path.to_str().unwrap()]).refused(1, &["llama", "not a diffusion model"]);
}

#[test]
fn others_can_reach_it_only_with_a_key() {
    for host in ["0.0.0.0", "::", "192.0.2.1"] {
        let mut command = demask();
        let outcome = finish(command.args(["serve", "--port", "0", "--host", host]).env_remove("DEMASK_API_KEY"));
        outcome.refused(2, &["cannot listen on", "API key"]);
    }
    run(&["serve", "--host", "example.org"]).refused(2, &["--host example.org", "IP address"]);
    run(&["serve", "--api-key", ""]).refused(2, &["API key"]);
    run(&["serve", "--alias", ""]).refused(2, &["--alias"]);
    run(&["serve", "--cors", "example.org"]).refused(2, &["example.org"]);
    run(&["serve", "--parallel", "0"]).refused(2, &["--parallel 0"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&["serve", "--port", &port]).refused(1, &["cannot listen on", &port, "in use"]);
    run(&["serve", "--port", "70000"]).refused(2, &["--port 70000"]);
    run(&["serve", "-m", &fixture("none")]).refused(1, &["none.gguf"]);
    // An address of a network that is for documentation only: no machine has it.
    let mut command = demask();
    finish(command.args(["serve", "--host", "192.0.2.1"]).env("DEMASK_API_KEY", "k")).refused(1, &["cannot listen"]);
}

#[test]
fn f09_it_logs_what_happened_and_nothing_that_was_said() {
    let serving = serve(&[]);
    let answer = serving.post(ASK);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A client that leaves.
    let long = ASK.replace("16", "900");
    let mut stream = TcpStream::connect(&serving.at).unwrap();
    let head = format!("host: {}\r\ncontent-type: application/json\r\ncontent-length: {}", serving.at, long.len());
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n\r\n{long}").unwrap();
    std::thread::sleep(Duration::from_millis(700));
    drop(stream);
    std::thread::sleep(Duration::from_millis(1500));
    serving.signal("INT");
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    for words in
        ["finished", "answered", "/v1/chat/completions", "visible_tokens=", "cancelled: the client has left", "done"]
    {
        assert!(log.contains(words), "no {words} in {log}");
    }
    assert!(!log.contains("Zanzibar"), "{log}");
}

/// The curve is that of `run`: measured when it is first asked for, then kept.
#[test]
fn auto_goes_by_the_kept_curve() {
    let cache = tempfile::tempdir().unwrap();
    let mut answers = Vec::new();
    for measured in [true, false] {
        let mut command = demask();
        command.env("XDG_CACHE_HOME", cache.path());
        let serving = serve_as(command, &[]);
        assert!(serving.post(ASK).starts_with("HTTP/1.1 200"));
        assert_eq!(cache.path().join("demask/curves.json").exists(), !measured, "nobody has asked for it");
        let answer = serving.post(&ASK.replacen('{', r#"{"recipe": "auto", "#, 1));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answers.push(answer.split("choices").nth(1).unwrap().to_owned());
        serving.signal("TERM");
        let (code, log) = serving.end();
        assert_eq!((code, log.contains("measuring forward passes")), (Some(0), measured), "{log}");
        assert!(log.contains("tuned") && log.contains("window="), "{log}");
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn logs_are_json_if_asked_for() {
    let serving = serve(&["--log", "json"]);
    serving.post(ASK);
    serving.signal("TERM");
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    let lines = log.lines().filter(|line| !line.starts_with("note: "));
    let parsed: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(parsed.iter().any(|line| line["fields"]["message"] == "finished"), "{log}");
}

#[test]
fn a_second_signal_stops_at_once() {
    let serving = serve(&["--log", "off"]);
    let long = ASK.replace("16", "1000");
    let mut stream = TcpStream::connect(&serving.at).unwrap();
    let head = format!("host: {}\r\ncontent-type: application/json\r\ncontent-length: {}", serving.at, long.len());
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n\r\n{long}").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    serving.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    serving.signal("INT");
    let (code, log) = serving.end();
    assert_eq!(code, Some(130), "{log}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}
