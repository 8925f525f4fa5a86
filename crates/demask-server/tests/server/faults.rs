//! Bad clients: whatever they do, the next good request is answered.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{get, open, post, send, try_read};
use super::scripted::Script;

const CHAT: &str = "/v1/chat/completions";
const PATHS: [&str; 4] = [CHAT, "/v1/completions", "/api/denoise", "/api/tokenize"];

fn good(at: SocketAddr) {
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4});
    let answer = post(at, CHAT, &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "fine");
}

/// Numbers that look random and are the same in every run (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[test]
fn a_run_that_panics_ends_alone() {
    let at_work = Script::text("fine").slow(Duration::from_millis(20)).panics_at(1).serve();
    let body = json!({"prompt": "hi", "max_tokens": 16, "n": 1});
    let asked = |body: &Value| post(at_work.at, "/v1/completions", body);
    let replies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| asked(&body))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (fine, failed): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!((fine.len(), failed.len()), (2, 1), "one run meets it");
    assert_eq!(failed[0].refused(500), None);
    assert!(fine.iter().all(|reply| reply.json()["choices"][0]["text"] == "fine"));
    let metrics = get(at_work.at, "/metrics");
    assert!(String::from_utf8(metrics.body).unwrap().contains("demask_runs_failed_total 1\n"));
    good(at_work.at);

    // In a stream, and before the first step.
    let streaming = Script::text("fine").panics_at(1).serve();
    let events = post(streaming.at, CHAT, &json!({"messages": [{"role": "user", "content": "hi"}], "stream": true}));
    let last: Value = serde_json::from_str(events.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["type"], "server_error");
    good(streaming.at);
    let starting = Script::of(|file, canvas| {
        let said = file.tokenizer().decode(canvas.tokens());
        assert!(!said.contains("break"), "a planted panic");
        file.tokenizer().encode("fine", demask::text::Specials::Text)
    });
    let starting = starting.serve();
    assert_eq!(post(starting.at, "/v1/completions", &json!({"prompt": "break"})).refused(500), None);
    good(starting.at);
}

#[test]
fn a_thousand_clients_that_leave_at_any_moment() {
    let server = Script::text("fine").slow(Duration::from_micros(300)).serve();
    let mut dice = Dice(1);
    for round in 0..1000 {
        let stream = dice.below(2) == 0;
        let path = *dice.of(&[CHAT, "/v1/completions", "/api/denoise"]);
        let mut body = json!({"max_tokens": 1 + dice.below(60)});
        match path {
            CHAT => body["messages"] = json!([{"role": "user", "content": "hi"}]),
            _ => body["prompt"] = json!("hi"),
        }
        if path != "/api/denoise" {
            body["stream"] = json!(stream);
        }
        let body = body.to_string();
        let cut = if dice.below(4) == 0 { dice.below(body.len()) } else { body.len() };
        let length = body.len().to_string();
        let mut client = open(server.at, "POST", path, &[("content-length", &length)], &body.as_bytes()[..cut]);
        if dice.below(2) == 0 {
            client.set_read_timeout(Some(Duration::from_millis(1 + dice.below(12) as u64))).unwrap();
            let mut some = vec![0; 1 + dice.below(400)];
            let _ = client.read(&mut some);
        }
        drop(client);
        if round % 50 == 49 {
            good(server.at);
        }
    }
    good(server.at);
}

/// A value that no field wants, or just might.
fn odd(dice: &mut Dice, depth: usize) -> Value {
    match dice.below(if depth > 3 { 9 } else { 12 }) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(dice.next()),
        3 => json!(-(dice.below(100) as i64)),
        4 => json!(1e308),
        5 => json!(0.5),
        6 => json!(""),
        7 => json!("\u{0}\u{202e}🦙<|eot_id|>[[3]]"),
        8 => json!("x".repeat(dice.below(300))),
        9 => json!([]),
        10 => Value::Array((0..dice.below(4)).map(|_| odd(dice, depth + 1)).collect()),
        _ => (0..dice.below(4))
            .map(|i| (["role", "content", "text", "type"][i].to_owned(), odd(dice, depth + 1)))
            .collect(),
    }
}

/// A body that may be good, is mostly bad, and sometimes isn't JSON.
fn malformed(dice: &mut Dice) -> Vec<u8> {
    let mut names: Vec<&str> = demask_server::setting_names();
    names.extend([
        "messages",
        "prompt",
        "text",
        "suffix",
        "stop",
        "n",
        "stream",
        "stream_options",
        "model",
        "tools",
        "foo",
    ]);
    let mut body = json!({});
    match dice.below(4) {
        0 => body["messages"] = json!([{"role": "user", "content": "hi"}]),
        1 => body["prompt"] = json!("hi"),
        2 => body["text"] = json!("a [[2]] b"),
        _ => {}
    }
    for _ in 0..dice.below(4) {
        let name = *dice.of(&names);
        body[name] = odd(dice, 0);
    }
    // What is asked for by accident is small.
    if body["max_tokens"].as_u64().is_none_or(|n| n > 4) {
        body["max_tokens"] = json!(2);
    }
    let mut bytes = body.to_string().into_bytes();
    match dice.below(6) {
        0 => bytes.truncate(dice.below(bytes.len())),
        1 => {
            for _ in 0..1 + dice.below(8) {
                let at = dice.below(bytes.len());
                bytes[at] = dice.next() as u8;
            }
        }
        2 => bytes.extend((0..dice.below(50)).map(|_| dice.next() as u8)),
        3 => bytes = [b"[".repeat(dice.below(2000)), b"{\"a\":".repeat(dice.below(300)), bytes].concat(),
        _ => {}
    }
    bytes
}

#[test]
fn ten_thousand_malformed_bodies() {
    let server = Script::text("fine").serve();
    let at = server.at;
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut dice = Dice(thread);
                let mut counts = std::collections::BTreeMap::<u16, usize>::new();
                // One connection for many requests, as real clients have it.
                let mut connection: Option<TcpStream> = None;
                for round in 0..2500 {
                    let (path, body) = (*dice.of(&PATHS), malformed(&mut dice));
                    let reply = kept_alive(at, &mut connection, path, &body);
                    assert!(reply.0 < 500, "{path} {:?}: {reply:?}", String::from_utf8_lossy(&body));
                    *counts.entry(reply.0).or_default() += 1;
                    if reply.0 >= 400 {
                        let error: Value = serde_json::from_slice(&reply.1).unwrap();
                        assert!(error["error"]["message"].is_string(), "{error}");
                    }
                    if round % 500 == 499 {
                        good(at);
                    }
                }
                counts
            })
        })
        .collect();
    let mut all = std::collections::BTreeMap::<u16, usize>::new();
    for thread in threads {
        thread.join().unwrap().into_iter().for_each(|(status, count)| *all.entry(status).or_default() += count);
    }
    eprintln!("malformed bodies by status: {all:?}");
    assert_eq!(all.values().sum::<usize>(), 10_000);
    assert!(all[&400] > 5000, "most are refused: {all:?}");
    good(at);
}

/// Sends a request on a connection that stays open; status and body.
fn kept_alive(at: SocketAddr, connection: &mut Option<TcpStream>, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    use super::client::Answer;
    let stream = connection.get_or_insert_with(|| TcpStream::connect(at).unwrap());
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Answer::begin(stream.try_clone().unwrap()).unwrap();
    let mut text = Vec::new();
    while let Some(chunk) = answer.chunk().unwrap() {
        text.extend(chunk);
        if answer.headers.iter().any(|(name, _)| name == "content-length") {
            break;
        }
    }
    (answer.status, text)
}

#[test]
fn broken_http() {
    let server = Script::text("fine").serve();
    let mut dice = Dice(7);
    for round in 0..300 {
        let mut request =
            format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}").into_bytes();
        match round % 5 {
            0 => request = (0..dice.below(300)).map(|_| dice.next() as u8).collect(),
            1 => {
                for _ in 0..1 + dice.below(5) {
                    let at = dice.below(request.len());
                    request[at] = dice.next() as u8;
                }
            }
            2 => request.splice(20..20, vec![b'a'; dice.below(200_000)]).for_each(drop),
            3 => request = b"GET / HTTP/1.1\r\n".iter().copied().chain(b"x: y\r\n".repeat(dice.below(500))).collect(),
            _ => {
                request =
                    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n")
                        .into()
            }
        }
        let mut stream = TcpStream::connect(server.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = stream.write_all(&request);
        let _ = stream.read(&mut [0; 512]);
    }
    good(server.at);
}

#[test]
fn oversize_bodies_and_slow_readers() {
    let server = Script::text("fine").serve();
    let long = json!({"messages": [{"role": "user", "content": "x".repeat(5 << 20)}]}).to_string();
    for _ in 0..3 {
        send(server.at, "POST", CHAT, &[], long.as_bytes()).refused(413);
    }
    let idle: Vec<_> = (0..20)
        .map(|_| open(server.at, "POST", "/api/denoise", &[], br#"{"prompt": "hi", "max_tokens": 900}"#))
        .collect();
    good(server.at);
    for stream in idle {
        assert_eq!(try_read(stream).unwrap().status, 200);
    }
    get(server.at, "/health").ok();
}
