//! A hub on loopback that can misbehave: it cuts, stalls, lies, redirects, limits and sends the wrong thing.
//!
//! Each request goes to a hook first, which may answer in the hub's place.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first byte that is asked for.
    pub fn from(&self) -> u64 {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        range.and_then(|range| range.split('-').next()?.parse().ok()).unwrap_or(0)
    }

    pub fn is_data(&self) -> bool {
        self.method == "GET" && !self.path.starts_with("/api/")
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Action {
    /// As a hub does.
    Normal,
    /// As a hub does, but only so many bytes of the body, then the connection ends.
    Cut(usize),
    /// The same, but then nothing comes for as long.
    Stall(usize, Duration),
    /// As a hub does, but a body is sent from its beginning whatever range is asked for.
    NoRange,
    /// Something else: status, headers, body.
    Answer(u16, Vec<(String, String)>, Vec<u8>),
}

pub fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Action {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Action::Answer(status, headers, body.to_vec())
}

type Hook = Box<dyn FnMut(&Request, usize) -> Action + Send>;

#[derive(Clone)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub etag: String,
    pub size: u64,
}

#[derive(Default)]
pub struct Repo {
    pub commit: String,
    pub files: BTreeMap<String, Entry>,
}

#[derive(Default)]
struct State {
    repos: BTreeMap<String, Repo>,
    log: Vec<Request>,
    storage: Option<String>,
    prefix: String,
}

pub struct FakeHub {
    pub url: String,
    state: Arc<Mutex<State>>,
    hook: Arc<Mutex<Hook>>,
    stop: Arc<AtomicBool>,
}

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that look like a GGUF file from outside, the same for the same seed.
pub fn blob(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = b"GGUF".to_vec();
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl FakeHub {
    pub fn start() -> FakeHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let hook: Arc<Mutex<Hook>> = Arc::new(Mutex::new(Box::new(|_, _| Action::Normal)));
        let stop = Arc::new(AtomicBool::new(false));
        let (s, h, e) = (Arc::clone(&state), Arc::clone(&hook), Arc::clone(&stop));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if e.load(Ordering::Relaxed) {
                    return;
                }
                let (s, h) = (Arc::clone(&s), Arc::clone(&h));
                std::thread::spawn(move || {
                    let _ = stream.map(|stream| serve(stream, &s, &h));
                });
            }
        });
        FakeHub { url, state, hook, stop }
    }

    /// A file of a repository.
    pub fn file(&self, repo: &str, name: &str, bytes: &[u8]) -> &FakeHub {
        let entry = Entry { bytes: bytes.to_vec(), etag: sha256(bytes), size: bytes.len() as u64 };
        self.entry(repo, name, entry)
    }

    pub fn entry(&self, repo: &str, name: &str, entry: Entry) -> &FakeHub {
        let mut state = self.state.lock().unwrap();
        let repo = state.repos.entry(repo.to_owned()).or_default();
        if repo.commit.is_empty() {
            repo.commit = COMMIT.to_owned();
        }
        repo.files.insert(name.to_owned(), entry);
        self
    }

    pub fn commit(&self, repo: &str, commit: &str) {
        self.state.lock().unwrap().repos.get_mut(repo).unwrap().commit = commit.to_owned();
    }

    /// Sends clients to another host for the bytes, as the hub does.
    pub fn storage(&self, url: &str) {
        self.state.lock().unwrap().storage = Some(url.to_owned());
    }

    /// Answers below a path only.
    pub fn prefix(&self, prefix: &str) {
        self.state.lock().unwrap().prefix = prefix.to_owned();
    }

    /// Decides about each request; the second argument counts them from 0.
    pub fn hook(&self, hook: impl FnMut(&Request, usize) -> Action + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    pub fn log(&self) -> Vec<Request> {
        self.state.lock().unwrap().log.clone()
    }

    pub fn clear_log(&self) {
        self.state.lock().unwrap().log.clear();
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, hook: &Mutex<Hook>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader)? {
        let count = {
            let mut state = state.lock().unwrap();
            state.log.push(request.clone());
            state.log.len() - 1
        };
        let action = (hook.lock().unwrap())(&request, count);
        let ends = matches!(action, Action::Cut(_) | Action::Stall(..));
        let ignore_range = matches!(action, Action::NoRange);
        let (status, headers, body) = match &action {
            Action::Answer(status, headers, body) => (*status, headers.clone(), body.clone()),
            _ => normal(&request, &state.lock().unwrap(), ignore_range),
        };
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        let mut length = None;
        for (name, value) in &headers {
            head.push_str(&format!("{name}: {value}\r\n"));
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(());
            }
        }
        if length.is_none() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let body = if request.method == "HEAD" { &[][..] } else { &body[..] };
        match action {
            Action::Cut(after) => stream.write_all(&body[..after.min(body.len())])?,
            Action::Stall(after, wait) => {
                stream.write_all(&body[..after.min(body.len())])?;
                stream.flush()?;
                std::thread::sleep(wait);
            }
            _ => stream.write_all(body)?,
        }
        stream.flush()?;
        if ends {
            let _ = stream.shutdown(Shutdown::Both);
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut request = Request { method: method.to_owned(), path: path.to_owned(), headers: BTreeMap::new() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    Ok(Some(request))
}

type Answer = (u16, Vec<(String, String)>, Vec<u8>);

fn normal(request: &Request, state: &State, ignore_range: bool) -> Answer {
    let owned = |headers: &[(&str, String)]| -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let missing = |code: &str| (404, owned(&[("x-error-code", code.to_owned())]), Vec::new());
    let Some(path) = request.path.strip_prefix(&state.prefix) else { return missing("NoSuchPath") };
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts[..] {
        ["api", "models", owner, name, "revision", revision] => {
            let Some(repo) = state.repos.get(&format!("{owner}/{name}")) else { return missing("RepoNotFound") };
            if revision != "main" && revision != repo.commit {
                return missing("RevisionNotFound");
            }
            let siblings: Vec<serde_json::Value> = repo
                .files
                .iter()
                .map(|(name, entry)| {
                    let lfs = serde_json::json!({"sha256": entry.etag, "size": entry.size, "pointerSize": 134});
                    let lfs = if entry.etag.len() == 64 { lfs } else { serde_json::Value::Null };
                    serde_json::json!({"rfilename": name, "size": entry.size, "lfs": lfs})
                })
                .collect();
            let json = serde_json::json!({"id": format!("{owner}/{name}"), "sha": repo.commit, "siblings": siblings});
            let headers = owned(&[("content-type", "application/json; charset=utf-8".to_owned())]);
            (200, headers, json.to_string().into_bytes())
        }
        [owner, name, "resolve", _, ..] if parts.len() >= 5 => {
            let Some(repo) = state.repos.get(&format!("{owner}/{name}")) else { return missing("RepoNotFound") };
            let file = decode(&parts[4..].join("/"));
            let Some(entry) = repo.files.get(&file) else { return missing("EntryNotFound") };
            let mut headers = owned(&[("x-repo-commit", repo.commit.clone())]);
            match &state.storage {
                Some(storage) => {
                    headers.extend(owned(&[
                        ("x-linked-etag", format!("\"{}\"", entry.etag)),
                        ("x-linked-size", entry.size.to_string()),
                        ("location", format!("{storage}/blob/{}", entry.etag)),
                    ]));
                    (302, headers, Vec::new())
                }
                None => send(entry, request, headers, ignore_range),
            }
        }
        ["blob", etag] => {
            let mut entries = state.repos.values().flat_map(|repo| repo.files.values());
            match entries.find(|entry| entry.etag == etag) {
                Some(entry) => send(entry, request, Vec::new(), ignore_range),
                None => missing("EntryNotFound"),
            }
        }
        _ => missing("NoSuchPath"),
    }
}

fn send(entry: &Entry, request: &Request, mut headers: Vec<(String, String)>, ignore_range: bool) -> Answer {
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
    add("etag", format!("\"{}\"", entry.etag));
    add("content-type", "application/octet-stream".to_owned());
    let (from, size) = (request.from() as usize, entry.bytes.len());
    if request.method == "HEAD" {
        add("content-length", entry.size.to_string());
        return (200, headers, Vec::new());
    }
    if from == 0 || ignore_range {
        return (200, headers, entry.bytes.clone());
    }
    if from >= size {
        return (416, headers, Vec::new());
    }
    add("content-range", format!("bytes {from}-{}/{size}", size - 1));
    (206, headers, entry.bytes[from..].to_vec())
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' && tail.len() >= 2 {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}
