//! Cases from real bug reports of other servers. Each name holds the case's id.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, get, open, post, send, try_read};
use super::scripted::{Running, Script, embedded, real};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn chat(content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "max_tokens": 24})
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The chunks of a chat stream, checked for their shape; the text, the finish reason, the usage.
fn streamed(reply: &super::client::Reply) -> (String, Option<String>, Vec<Value>) {
    let events = reply.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let (mut text, mut finish) = (String::new(), None);
    for (at, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert!(chunk["id"].as_str().unwrap().starts_with("chatcmpl-") && chunk["id"] == chunks[0]["id"]);
        assert!(chunk["created"].is_u64() && chunk["model"].is_string() && chunk["choices"].is_array());
        let Some(choice) = chunk["choices"].get(0) else { continue };
        assert_eq!(choice["delta"].get("role").is_some(), at == 0, "the role comes first, once");
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert!(finish.replace(reason.to_owned()).is_none(), "one finish reason");
        }
    }
    (text, finish, chunks)
}

#[test]
fn f01_a_stream_has_the_shape_of_openais_chunks() {
    let server = real();
    let whole = post(server.at, CHAT, &chat("Name the months.")).ok();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    let reply = post(server.at, CHAT, &with(chat("Name the months."), json!({"stream": true})));
    let (text, finish, _) = streamed(&reply);
    assert_eq!(text, content(&whole), "a stream's text is the whole answer's");
    assert_eq!(finish.as_deref(), whole["choices"][0]["finish_reason"].as_str());
    let body = json!({"prompt": "2 + 3 =", "max_tokens": 8});
    let whole = post(server.at, TEXT, &body).ok();
    let events = post(server.at, TEXT, &with(body, json!({"stream": true}))).events();
    let chunks = events[..events.len() - 1].iter().map(|event| serde_json::from_str::<Value>(event).unwrap());
    let text: String = chunks.map(|chunk| chunk["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
}

#[test]
fn f03_stop_ends_the_text_and_nothing_of_it_is_streamed() {
    let server = Script::text("abcENDdef").serve();
    // Blocks of one position: the stop string lies over several of them.
    for block_length in [1, 2, 32] {
        for stop in [json!("END"), json!(["x", "END"]), json!(["ENDd"]), json!("NOT")] {
            let body = with(chat("hi"), json!({"stop": stop, "block_length": block_length}));
            let whole = post(server.at, CHAT, &body).ok();
            let (text, finish, chunks) = streamed(&post(server.at, CHAT, &with(body, json!({"stream": true}))));
            let wanted = if stop == "NOT" { "abcENDdef" } else { "abc" };
            assert_eq!((content(&whole), text.as_str()), (wanted, wanted), "{stop}");
            assert_eq!(finish.as_deref(), Some("stop"));
            let shown = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
            assert!(stop == "NOT" || shown.clone().all(|piece| !piece.contains('E')), "{stop}");
        }
    }
    for stop in [json!(["a", "b", "c", "d", "e"]), json!(""), json!([""]), json!(3)] {
        let param = post(server.at, CHAT, &with(chat("hi"), json!({"stop": stop}))).refused(400);
        assert_eq!(param.as_deref(), Some("stop"), "{stop}");
    }
}

#[test]
fn f03_stop_ends_the_work_as_well() {
    let script = Script::text("one STOP two three four five six seven eight");
    let steps = Arc::clone(&script.steps);
    let server = script.serve();
    let answer = post(server.at, CHAT, &with(chat("hi"), json!({"stop": "STOP", "max_tokens": 64}))).ok();
    assert_eq!(content(&answer), "one ");
    assert!(steps.load(Ordering::SeqCst) < 16, "{steps:?}");
    assert_eq!(answer["usage"]["steps"], steps.load(Ordering::SeqCst));
}

#[test]
fn f05_null_is_absent() {
    let server = Script::text("fine").serve();
    let nulls = json!({
        "stop": null, "max_tokens": null, "user": null, "logit_bias": {}, "tools": null, "response_format": null,
        "stream_options": null, "temperature": null, "seed": null, "n": null, "recipe": null, "unknown": null
    });
    let bare = json!({"messages": [{"role": "user", "content": "hi", "name": null, "tool_calls": null}]});
    let plain = post(server.at, CHAT, &bare).ok();
    assert_eq!(content(&post(server.at, CHAT, &with(bare, nulls)).ok()), content(&plain));
}

#[test]
fn f07_messages_of_all_kinds() {
    let server = Script::echo().serve();
    let said = |messages: Value| post(server.at, CHAT, &json!({"messages": messages, "max_tokens": 64}));
    let parts =
        said(json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]));
    let joined = said(json!([{"role": "user", "content": "a\nb"}]));
    assert_eq!(content(&parts.ok()), content(&joined.ok()), "parts are joined with a newline");
    let developer = said(json!([{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]));
    let system = said(json!([{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]));
    assert_eq!(content(&developer.ok()), content(&system.ok()), "developer is system");
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
    for (messages, param) in [
        (json!([]), "messages"),
        (json!([{"role": "user", "content": [{"type": "text", "text": "a"}, image]}]), "messages[0].content[1]"),
        (json!([{"role": "user"}]), "messages[0].content"),
        (json!([{"role": "user", "content": null}]), "messages[0].content"),
        (json!([{"role": "user", "content": 3}]), "messages[0].content"),
        (json!([{"role": "tool", "content": "x"}]), "messages[0].role"),
        (json!([{"role": "user", "content": "x"}, {"content": "x"}]), "messages[1].role"),
        (json!([{"role": "assistant", "content": "x", "tool_calls": [{"id": 1}]}]), "messages[0].tool_calls"),
        (json!("hi"), "messages"),
    ] {
        assert_eq!(said(messages.clone()).refused(400).as_deref(), Some(param), "{messages}");
    }
    let many: Vec<Value> = (0..5000).map(|i| json!({"role": "user", "content": format!("{i}")})).collect();
    let reply = said(json!(many));
    reply.refused(400);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn f08_usage_is_told_and_is_the_same_in_both_modes() {
    let server = real();
    let body = chat("What is 3 + 4?");
    let whole = post(server.at, CHAT, &body).ok();
    let usage = &whole["usage"];
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(number("total_tokens"), number("prompt_tokens") + number("completion_tokens"));
    assert!(number("nfe") >= 1 && number("rows") >= number("nfe"));
    let ids = post(server.at, "/api/tokenize", &json!({"messages": body["messages"]})).ok();
    assert_eq!(number("prompt_tokens"), ids["count"].as_u64().unwrap());
    let stream = with(body, json!({"stream": true}));
    let (_, _, chunks) = streamed(&post(server.at, CHAT, &stream));
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "none unless asked for");
    let asked = with(stream, json!({"stream_options": {"include_usage": true}}));
    let (_, _, chunks) = streamed(&post(server.at, CHAT, &asked));
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(&last["usage"], usage);
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
}

/// Two minutes of work for each request.
fn slow() -> Script {
    Script::of(|_, _| vec![20; 600]).slow(Duration::from_millis(100))
}

fn metric(server: &Running, name: &str) -> u64 {
    let text = String::from_utf8(get(server.at, "/metrics").body).unwrap();
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until `done`, at most `limit`.
pub(crate) fn within(limit: Duration, what: &str, done: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < limit, "{what} took longer than {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    started.elapsed()
}

#[test]
fn f09_the_work_ends_when_the_client_leaves() {
    for stream in [true, false] {
        let script = slow();
        let (steps, begun) = (Arc::clone(&script.steps), Arc::clone(&script.begun));
        let server = Running::start(Arc::new(script), |options| options.limits.parallel = 1);
        let body = with(chat("hi"), json!({"stream": stream, "max_tokens": 600})).to_string();
        let first = open(server.at, "POST", CHAT, &[], body.as_bytes());
        std::thread::sleep(Duration::from_secs(1));
        assert!(steps.load(Ordering::SeqCst) >= 2, "it works");
        let second = open(server.at, "POST", CHAT, &[], body.as_bytes());
        within(Duration::from_secs(5), "queueing", || metric(&server, "demask_runs_waiting") == 1);
        drop(first);
        within(Duration::from_secs(5), "beginning the second", || begun.load(Ordering::SeqCst) == 2);
        assert_eq!(metric(&server, "demask_runs_cancelled_total"), 1);
        drop(second);
        within(Duration::from_secs(5), "ending the second", || metric(&server, "demask_runs_running") == 0);
        let after = steps.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(steps.load(Ordering::SeqCst), after, "nothing goes on");
    }
}

#[test]
fn f09_a_client_that_leaves_the_queue_is_forgotten() {
    let script = slow();
    let begun = Arc::clone(&script.begun);
    let server = Running::start(Arc::new(script), |options| options.limits.parallel = 1);
    let body = with(chat("hi"), json!({"max_tokens": 600})).to_string();
    let first = open(server.at, "POST", CHAT, &[], body.as_bytes());
    within(Duration::from_secs(5), "beginning", || begun.load(Ordering::SeqCst) == 1);
    let waiting: Vec<TcpStream> = (0..8).map(|_| open(server.at, "POST", CHAT, &[], body.as_bytes())).collect();
    within(Duration::from_secs(5), "queueing", || metric(&server, "demask_runs_waiting") == 8);
    drop(waiting);
    within(Duration::from_secs(5), "forgetting", || metric(&server, "demask_runs_waiting") == 0);
    drop(first);
    within(Duration::from_secs(5), "ending", || metric(&server, "demask_runs_cancelled_total") == 9);
    assert_eq!(begun.load(Ordering::SeqCst), 1, "none of them was begun");
}

/// Threads and open files of this process.
#[cfg(target_os = "linux")]
fn resources() -> (usize, usize) {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

#[test]
fn f11_clients_that_leave_before_the_first_byte() {
    let server = Script::text("fine").slow(Duration::from_millis(1)).serve();
    let body = chat("hi").to_string();
    for round in 0..30 {
        let mut stream = open(server.at, "POST", CHAT, &[], body.as_bytes());
        if round % 2 == 0 {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = stream.read(&mut [0]);
        }
        drop(stream);
        let mut half = TcpStream::connect(server.at).unwrap();
        half.write_all(&b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-le"[..10 + round]).unwrap();
        drop(half);
        drop(open(server.at, "POST", CHAT, &[("content-length", "100")], b"{\"mess"));
    }
    assert_eq!(content(&post(server.at, CHAT, &chat("hi")).ok()), "fine");
    // Only connections of this server count: other tests have their own at the same time.
    within(Duration::from_secs(5), "closing", || metric(&server, "demask_connections") == 1);
    // A run notices after the step that it is in.
    let runs = || (metric(&server, "demask_runs_running"), metric(&server, "demask_runs_waiting"));
    within(Duration::from_secs(5), "ending", || runs() == (0, 0));
    #[cfg(target_os = "linux")]
    assert!(resources().0 < 2000 && resources().1 < 900, "{:?}", resources());
}

#[test]
fn f13_requests_at_the_same_time_dont_mix() {
    let server = real();
    let solo = content(&post(server.at, CHAT, &chat("List the planets separated by commas.")).ok()).to_owned();
    let at = server.at;
    let same: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || post(at, CHAT, &chat("List the planets separated by commas.")).ok()))
        .collect();
    for thread in same {
        assert_eq!(content(&thread.join().unwrap()), solo);
    }
    let echo = Script::echo().slow(Duration::from_millis(1)).serve();
    let at = echo.at;
    let each: Vec<_> = (0..8)
        .map(|i| {
            let marker = format!("marker {i}{i}{i}");
            let asked = with(chat(&marker), json!({"max_tokens": 48, "stream": i % 2 == 0}));
            std::thread::spawn(move || {
                let reply = post(at, CHAT, &asked);
                let text = if i % 2 == 0 { streamed(&reply).0 } else { content(&reply.ok()).to_owned() };
                assert!(text.contains(&marker), "{marker}: {text}");
                let others = (0..8).filter(|&j| j != i).all(|j| !text.contains(&format!("{j}{j}{j}")));
                assert!(others, "{marker}: {text}");
            })
        })
        .collect();
    each.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn f15_a_failure_is_no_text() {
    let server = Script::text("abcdefghijkl").broken_at(3).serve();
    let reply = post(server.at, CHAT, &with(chat("hi"), json!({"stream": true})));
    let events = reply.events();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert!(last["error"]["message"].as_str().unwrap().contains("step 3"), "{last}");
    assert!(last.get("choices").is_none());
    assert!(events.iter().all(|event| event != "[DONE]"));
    let text: String = events[..events.len() - 1]
        .iter()
        .filter_map(|event| {
            let chunk: Value = serde_json::from_str(event).unwrap();
            chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
        })
        .collect();
    assert!("abcdefghijkl".starts_with(&text) && !text.is_empty(), "{text:?}");
    post(server.at, CHAT, &chat("hi")).refused(500);
    // At the first step there is no stream yet: the status tells.
    let at_once = Script::text("abc").broken_at(0).serve();
    post(at_once.at, CHAT, &with(chat("hi"), json!({"stream": true}))).refused(500);
    get(server.at, "/health").ok();
}

#[test]
fn f19_other_sites_cant_use_it() {
    let server = Script::text("fine").serve();
    assert!(server.at.ip().is_loopback());
    let body = chat("hi").to_string();
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "0.0.0.0:1"] {
        let reply = send(server.at, "POST", CHAT, &[("host", host)], body.as_bytes());
        reply.refused(403);
        send(server.at, "GET", "/", &[("host", host)], b"").refused(403);
        send(server.at, "GET", "http://evil.example/health", &[], b"").refused(403);
    }
    send(server.at, "POST", CHAT, &[("host", &format!("localhost:{}", server.at.port()))], body.as_bytes()).ok();
    let origin = ("origin", "https://evil.example");
    let reply = send(server.at, "POST", CHAT, &[origin], body.as_bytes());
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let preflight = [origin, ("access-control-request-method", "POST")];
    let reply = send(server.at, "OPTIONS", CHAT, &preflight, b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (405, None));
    let simple = [origin, ("content-type", "text/plain")];
    send(server.at, "POST", CHAT, &simple, body.as_bytes()).refused(415);

    let open =
        Running::start(Arc::new(Script::text("fine")), |options| options.cors = vec!["http://app.example".into()]);
    let ours = [("origin", "http://app.example"), ("access-control-request-method", "POST")];
    let reply = send(open.at, "OPTIONS", CHAT, &ours, b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("http://app.example")));
    let reply = send(open.at, "POST", CHAT, &[origin], body.as_bytes());
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[test]
fn f21_small_endpoints() {
    let server = real();
    let list = get(server.at, "/v1/models").ok();
    assert_eq!(list["object"], "list");
    let model = &list["data"][0];
    assert!(model["id"].is_string() && model["created"].is_u64() && model["owned_by"].is_string());
    assert_eq!(model["object"], "model");
    let id = model["id"].as_str().unwrap();
    assert_eq!(get(server.at, &format!("/v1/models/{id}")).ok(), *model);
    get(server.at, "/v1/models/other").refused(404);
    let reply = post(server.at, "/v1/models", &json!({}));
    reply.refused(405);
    assert!(reply.header("allow").unwrap().contains("GET"));
    get(server.at, CHAT).refused(405);
    for path in ["/nothing", "/v1/models/", "/v1", "/v1/chat/completions/", "/page/none.js", "//", "/%00", "/../etc"] {
        get(server.at, path).refused(404);
    }
    let head = send(server.at, "HEAD", "/v1/models", &[], b"");
    assert_eq!(head.status, 200);
    send(server.at, "OPTIONS", "/v1/models", &[], b"").refused(405);
    let wrong = post(server.at, CHAT, &with(chat("hi"), json!({"model": "gpt-4"})));
    assert_eq!(wrong.refused(404).as_deref(), Some("model"));
    assert!(wrong.json()["error"]["message"].as_str().unwrap().contains(id), "it names the model that is served");
    post(server.at, CHAT, &with(chat("hi"), json!({"model": id}))).ok();
}

#[test]
fn f22_the_seed_is_used_and_told() {
    let server = Running::start(embedded(), |options| options.limits.parallel = 3);
    let asked = |seed: u64| with(chat("Tell me a fact."), json!({"seed": seed, "temperature": 0.8}));
    let first = post(server.at, CHAT, &asked(42)).ok();
    assert_eq!(first["choices"][0]["seed"], 42);
    let at = server.at;
    let others: Vec<_> = (0..4).map(|i| std::thread::spawn(move || post(at, CHAT, &asked_in(i)).ok())).collect();
    for _ in 0..3 {
        assert_eq!(content(&post(server.at, CHAT, &asked(42)).ok()), content(&first));
    }
    others.into_iter().for_each(|other| drop(other.join().unwrap()));
    // n answers have the next seeds.
    let three = post(server.at, CHAT, &with(asked(41), json!({"n": 3}))).ok();
    let choices = three["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|c| c["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [41, 42, 43]);
    assert_eq!(choices[1]["message"]["content"], first["choices"][0]["message"]["content"]);
}

fn asked_in(thread: u64) -> Value {
    with(chat("Tell me a fact."), json!({"seed": thread, "temperature": 0.9}))
}

#[test]
fn f23_escapes_in_json() {
    let server = Script::echo().serve();
    let raw = |body: &[u8]| send(server.at, "POST", CHAT, &[], body);
    let body = |text: &str| format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}], "max_tokens": 48}}"#);
    let said = |text: &str| content(&raw(body(text).as_bytes()).ok()).to_owned();
    assert!(said(r"a\u0000b").contains("a\0b"), "NUL is kept");
    assert!(said(r"\ud83e\udd99").contains('🦙'));
    raw(body(r"\ud83d").as_bytes()).refused(400);
    raw(&[body("x").as_bytes(), &[0xff]].concat()).refused(400);
    raw(&[b"\xff".as_slice(), body("x").as_bytes()].concat()).refused(400);
    raw(&["\u{feff}".as_bytes(), body("x").as_bytes()].concat()).refused(400);
    get(server.at, "/health").ok();
}

#[test]
fn f25_what_would_change_the_answer_is_refused_by_name() {
    let server = Script::text("fine").serve();
    let tool = json!([{"type": "function", "function": {"name": "f"}}]);
    for (name, value) in [
        ("tools", tool.clone()),
        ("functions", tool),
        ("response_format", json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {}}})),
        ("response_format", json!({"type": "json_object"})),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
        ("best_of", json!(2)),
        ("audio", json!({"voice": "x", "format": "wav"})),
        ("modalities", json!(["audio"])),
        ("logit_bias", json!({"5": 10})),
        ("presence_penalty", json!(0.5)),
        ("reasoning_effort", json!("high")),
        ("foo", json!(1)),
        ("n", json!(0)),
        ("n", json!(1000)),
        ("top_p", json!(0.5)),
        ("max_completion_tokens", json!(3)),
        ("stream_options", json!({"include_usage": true})),
        ("stop", json!({"a": 1})),
        ("threshold", json!(0.5)),
    ] {
        let reply = post(server.at, CHAT, &with(chat("hi"), json!({ name: value })));
        let param = reply.refused(400).unwrap_or_else(|| panic!("{name}: {}", reply.json()));
        assert_eq!(param, name, "{}", reply.json());
    }
    let two = post(server.at, CHAT, &with(chat("hi"), json!({"n": 2}))).ok();
    assert_eq!(two["choices"].as_array().unwrap().len(), 2, "n is done, not refused");
    let ignored = json!({"user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "tools": [],
        "tool_choice": "auto", "logprobs": false, "presence_penalty": 0, "frequency_penalty": 0.0,
        "response_format": {"type": "text"}, "parallel_tool_calls": true});
    post(server.at, CHAT, &with(chat("hi"), ignored)).ok();
    for (name, value) in [("echo", json!(true)), ("logprobs", json!(1)), ("best_of", json!(3)), ("foo", json!("x"))] {
        let reply = post(server.at, TEXT, &json!({"prompt": "a", name: value}));
        assert_eq!(reply.refused(400).as_deref(), Some(name));
    }
}

#[test]
fn a_slow_reader_delays_nobody() {
    let script = Script::of(|_, _| vec![20; 900]);
    let server = Running::start(Arc::new(script), |options| options.limits.stall = Duration::from_secs(1));
    let body = with(chat("hi"), json!({"stream": true, "max_tokens": 900})).to_string();
    let idle: Vec<TcpStream> = (0..3).map(|_| open(server.at, "POST", CHAT, &[], body.as_bytes())).collect();
    let started = Instant::now();
    post(server.at, CHAT, &chat("hi")).ok();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let mut answers: Vec<_> = idle.into_iter().map(|stream| Answer::begin(stream).unwrap()).collect();
    assert!(answers.iter_mut().all(|answer| answer.status == 200 && answer.chunk().is_ok()));
    drop(answers);
    assert!(try_read(open(server.at, "GET", "/health", &[], b"")).is_ok());
}
