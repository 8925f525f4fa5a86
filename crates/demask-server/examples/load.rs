//! Load: 64 clients for a minute on the embedded model. Every answer is compared with the one that the same request gets alone,
//! and the memory of the server, which is a process of its own, is watched.
//!
//! `cargo run --release -p demask-server --example load [SECONDS] [CLIENTS]`; exit code 1 if something is lost or differs,
//! or if the mean memory of the last third is more than 5 % above that of the first.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use demask::{Device, ModelFile};
use demask_server::{Options, Server};
use serde_json::{Value, json};

/// What makes this program the server.
const SERVER: &str = "--server";

/// Different requests.
const KINDS: usize = 24;

fn asked(i: usize) -> Value {
    let prompts = ["What is 3 + 4?", "Name the months.", "Count from 1 to 10.", "What is the capital of France?"];
    let recipe = ["exact", "fast", "fastest", "d3llm"][i / 4 % 4];
    json!({
        "messages": [{"role": "user", "content": prompts[i % 4]}],
        "max_tokens": 32, "recipe": recipe, "seed": i % 3, "temperature": if i.is_multiple_of(5) { 0.7 } else { 0.0 }
    })
}

/// Status and text. Every request has a connection of its own.
fn post(at: SocketAddr, body: &Value) -> std::io::Result<(u16, String)> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let broken = || std::io::Error::other(format!("broken answer {answer:?}"));
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let body: Value = serde_json::from_str(body)?;
    Ok((status, body["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()))
}

/// Resident memory of a process in bytes; 0 where the system doesn't say.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// Tells its address on stdout and serves until stdin ends, on a runtime like that of `demask serve`.
fn serve() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demask-tiny-q8_0.gguf");
    let device = Device::cpu(None).unwrap();
    let model = Arc::new(ModelFile::open(model).unwrap().load(&device, &mut |_, _| {}).unwrap());
    let mut options = Options::default();
    options.address.set_port(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::bind(options, model).await.unwrap();
        println!("{}", server.local_addr());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(end);
        });
        server.run(async { drop(ended.await) }).await;
    });
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SERVER) {
        serve();
        return ExitCode::SUCCESS;
    }
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let seconds = arguments.next().unwrap_or(60);
    let clients = arguments.next().unwrap_or(64);
    let program = std::env::current_exe().unwrap();
    let mut server = Command::new(program).arg(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let at: SocketAddr = said.trim().parse().expect("the server's address");
    let alone: HashMap<usize, String> = (0..KINDS).map(|i| (i, post(at, &asked(i)).unwrap().1)).collect();
    let alone = Arc::new(alone);

    let counts: Arc<Mutex<HashMap<&'static str, usize>>> = Arc::default();
    let finished = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    for client in 0..clients {
        let (alone, counts, finished) = (Arc::clone(&alone), Arc::clone(&counts), Arc::clone(&finished));
        std::thread::spawn(move || {
            let count = |what| *counts.lock().unwrap().entry(what).or_default() += 1;
            let mut i = client;
            while Instant::now() < until {
                let kind = i % KINDS;
                match post(at, &asked(kind)) {
                    Ok((200, text)) if text == alone[&kind] => count("answered"),
                    Ok((200, _)) => count("answered with another text"),
                    Ok((429 | 503, _)) => {
                        count("told to come back");
                        std::thread::sleep(Duration::from_millis(200));
                        continue;
                    }
                    Ok(_) => count("failed"),
                    Err(_) => count("lost"),
                }
                i += 1;
            }
            finished.fetch_add(1, Ordering::SeqCst);
        });
    }
    let mut memory = Vec::new();
    while finished.load(Ordering::SeqCst) < clients {
        std::thread::sleep(Duration::from_millis(250));
        memory.push(resident(server.id()));
    }
    drop(server.stdin.take());
    let ended = server.wait().unwrap();
    let third = memory.len() / 3;
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64 / f64::from(1 << 20);
    let series: Vec<u64> = memory.iter().step_by((memory.len() / 12).max(1)).map(|bytes| bytes >> 10).collect();
    println!("memory over time, KiB: {series:?}");
    let (first, last) = (mean(&memory[..third]), mean(&memory[memory.len() - third..]));
    let counts = counts.lock().unwrap();
    println!("{clients} clients, {seconds} s: {counts:?}");
    println!(
        "memory: {first:.1} MiB in the first third, {last:.1} MiB in the last ({:+.1} %)",
        (last / first - 1.0) * 100.0
    );
    let faults = ["answered with another text", "failed", "lost"].iter().any(|what| counts.contains_key(what));
    if faults || !ended.success() || last > first * 1.05 || !counts.contains_key("answered") {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
