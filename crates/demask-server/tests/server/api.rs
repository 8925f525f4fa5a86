//! What the API offers beyond OpenAI's, who may use it, its limits and its description.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cases::within;
use super::client::{Answer, Reply, get, open, post, send, try_read};
use super::scripted::{Running, Script, embedded, real};

const CHAT: &str = "/v1/chat/completions";

fn chat(content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "max_tokens": 24})
}

/// Names and data of server-sent events.
fn named(reply: &Reply) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(&reply.body).unwrap();
    let events = text.split("\n\n").filter(|event| event.starts_with("event: "));
    events
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            (name["event: ".len()..].to_owned(), data)
        })
        .collect()
}

/// Applies the edits of a run to its canvas, as the page does; the tokens at the end.
fn replayed(events: &[(String, Value)]) -> Vec<u64> {
    assert_eq!(events[0].0, "start");
    let cells = events[0].1["canvas"].as_array().unwrap();
    let mut tokens: Vec<u64> = cells.iter().map(|cell| cell["token"].as_u64().unwrap()).collect();
    for (_, step) in events.iter().filter(|(name, _)| name == "step") {
        for edit in step["edits"].as_array().unwrap() {
            let position = edit["position"].as_u64().unwrap() as usize;
            assert_eq!(tokens[position], edit["from"].as_u64().unwrap());
            assert_eq!(cells[position]["open"], true, "only what was open is edited");
            tokens[position] = edit["to"].as_u64().unwrap();
        }
    }
    tokens
}

#[test]
fn denoise_streams_edits_that_make_the_canvas() {
    let server = real();
    for recipe in ["exact", "fast", "fastest", "d3llm"] {
        let body = json!({"messages": [{"role": "user", "content": "Count from 1 to 10."}], "recipe": recipe});
        let events = named(&post(server.at, "/api/denoise", &body));
        let (name, end) = events.last().unwrap();
        assert_eq!(name, "end");
        let told: String =
            events.iter().filter_map(|(_, data)| data["text"].as_str().filter(|_| data["step"].is_u64())).collect();
        let text = end["text"].as_str().unwrap();
        assert!(text.starts_with(&told), "text only grows: {told:?} {text:?}");
        let steps = events.iter().filter(|(name, _)| name == "step").count();
        assert_eq!(end["steps"], steps);
        let whole = post(server.at, CHAT, &json!({"messages": body["messages"], "recipe": recipe})).ok();
        assert_eq!(whole["choices"][0]["message"]["content"], text, "the same text as the other endpoint's");
        let tokens = replayed(&events);
        let start = events[0].1["prompt_tokens"].as_u64().unwrap() as usize;
        let visible = end["visible_tokens"].as_u64().unwrap() as usize;
        assert!(tokens.len() >= start + visible);
        assert_eq!(events[0].1["settings"]["recipe"], recipe);
        assert_eq!(events[0].1["settings"]["exact"], recipe == "exact");
    }
}

#[test]
fn denoise_fills_blanks() {
    let server = real();
    let body = json!({"text": "The capital of [[3]] is Copenhagen."});
    let events = named(&post(server.at, "/api/denoise", &body));
    let end = &events.last().unwrap().1;
    let text = end["text"].as_str().unwrap();
    assert!(text.starts_with("The capital of") && text.ends_with(" is Copenhagen."), "{text}");
    assert_eq!(end["blanks"].as_array().unwrap().len(), 1);
    for (body, param) in [
        (json!({"text": "no blank"}), "text"),
        (json!({"text": "[[0]]"}), "text"),
        (json!({"text": "[[999999]]"}), "text"),
        (json!({"text": "a [[2]]", "max_tokens": 3}), "max_tokens"),
        (json!({"text": "a [[2]]", "eos": "stop"}), "eos"),
        (json!({"text": "a [[2]]", "prompt": "b"}), "messages"),
        (json!({}), "messages"),
        (json!({"prompt": "a", "steps": 0}), "steps"),
        (json!({"prompt": "a", "block_length": 0}), "block_length"),
        (json!({"prompt": "a", "n": 2}), "n"),
    ] {
        assert_eq!(post(server.at, "/api/denoise", &body).refused(400).as_deref(), Some(param), "{body}");
    }
}

#[test]
fn auto_goes_by_one_curve() {
    let auto = |tokens: usize| json!({"prompt": "a", "recipe": "auto", "max_tokens": tokens});
    let tuned = |at, body: &Value| {
        let events = named(&post(at, "/api/denoise", body));
        assert_eq!(events[0].1["settings"]["exact"], false);
        chosen_in(&events)
    };
    let flat = Script::text("fine");
    let measured = Arc::clone(&flat.measured);
    let flat = flat.serve();
    assert_eq!(tuned(flat.at, &json!({"prompt": "a", "recipe": "fast"})), Value::Null);
    assert_eq!(measured.load(Ordering::SeqCst), 0, "nothing is measured for those who never ask");
    // All that is free is taken; what the request says stays.
    assert_eq!(tuned(flat.at, &auto(128)), json!({"window": 128, "refresh": 1}));
    assert_eq!(tuned(flat.at, &auto(64)), json!({"window": 64, "refresh": 1}));
    let mine = json!({"prompt": "a", "recipe": "auto", "max_tokens": 128, "refresh": 5});
    assert_eq!(tuned(flat.at, &mine), json!({"window": 128, "refresh": 5}));
    let several = json!({"prompt": ["a", "b"], "n": 2, "recipe": "auto", "max_tokens": 8});
    assert_eq!(post(flat.at, "/v1/completions", &several).ok()["choices"].as_array().unwrap().len(), 4);
    let gap = json!({"prompt": "a", "suffix": "b", "recipe": "auto", "max_tokens": 8});
    assert_eq!(post(flat.at, "/v1/completions", &gap).status, 200);
    assert_eq!(tuned(flat.at, &json!({"text": "a [[9]] b", "recipe": "auto"}))["refresh"], 1);
    assert_eq!(measured.load(Ordering::SeqCst), 1);

    let steep = Script::text("fine").costs([(32, 0.1), (512, 6.4)]).serve();
    // What costs more is left: blocks of 8 have three steps, and each begins with a refresh anyway.
    assert_eq!(tuned(steep.at, &auto(256)), json!({"window": 32, "refresh": 3}));
    let wrong = json!({"prompt": "a", "recipe": "auto", "temperature": -1});
    assert_eq!(post(steep.at, "/api/denoise", &wrong).refused(400).as_deref(), Some("temperature"));
}

/// What the recipe `auto` chose.
fn chosen_in(events: &[(String, Value)]) -> Value {
    events.last().unwrap().1["tuned"].clone()
}

/// The real model is measured; whoever gives what was chosen gets the same text.
#[test]
fn auto_is_its_choice_given_by_hand() {
    let server = real();
    let ask = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Count from 1 to 10."}], "recipe": "auto"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        named(&post(server.at, "/api/denoise", &body))
    };
    let chosen = ask(json!({}));
    let tuned = chosen_in(&chosen);
    assert!(tuned["window"].as_u64().is_some_and(|window| window >= 32), "{tuned}");
    let by_hand = ask(tuned);
    assert_eq!(chosen_in(&by_hand), Value::Null, "with a window there is nothing to choose");
    assert_eq!(replayed(&by_hand), replayed(&chosen));
    assert_eq!(by_hand.last().unwrap().1["rows"], chosen.last().unwrap().1["rows"]);
}

#[test]
fn completions_take_prompts_of_all_forms() {
    let server = real();
    let text = |body: Value| post(server.at, "/v1/completions", &body).ok();
    let one = text(json!({"prompt": "2 + 3 =", "max_tokens": 8}));
    assert_eq!(one["object"], "text_completion");
    let ids = post(server.at, "/api/tokenize", &json!({"text": "2 + 3 ="})).ok();
    for prompt in [json!(["2 + 3 ="]), ids["tokens"].clone(), json!([ids["tokens"]])] {
        assert_eq!(text(json!({"prompt": prompt, "max_tokens": 8}))["choices"][0]["text"], one["choices"][0]["text"]);
    }
    let four = text(json!({"prompt": ["a", "2 + 3 ="], "n": 2, "max_tokens": 8}));
    let choices = four["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|c| c["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(choices[2]["text"], one["choices"][0]["text"]);
    let gap = text(json!({"prompt": "The capital of", "suffix": " is Copenhagen.", "max_tokens": 3}));
    assert!(gap["choices"][0]["text"].is_string());
    for (body, param) in [
        (json!({}), Some("prompt")),
        (json!({"prompt": []}), Some("prompt")),
        (json!({"prompt": 3}), Some("prompt")),
        (json!({"prompt": [99_999_999]}), None),
        (json!({"prompt": "x", "suffix": "y", "eos": "stop"}), Some("eos")),
    ] {
        assert_eq!(post(server.at, "/v1/completions", &body).refused(400).as_deref(), param, "{body}");
    }
    // B06: the mask among raw ids would be a position that is neither given nor open.
    let mask = super::scripted::file().spec().mask_token;
    let masked = post(server.at, "/v1/completions", &json!({"prompt": [1, mask]}));
    assert_eq!(masked.refused(400).as_deref(), Some("prompt"));
    assert!(masked.json()["error"]["message"].as_str().unwrap().contains("token 1 (from 0)"));
    let long = post(server.at, "/v1/completions", &json!({"prompt": "a", "suffix": "b ".repeat(5000)}));
    long.refused(400);
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn b04_names_of_special_tokens_are_text_unless_asked() {
    let server = real();
    let tokens = |body: Value| post(server.at, "/api/tokenize", &body).ok();
    let text = tokens(json!({"text": "<|eot_id|>"}));
    let special = tokens(json!({"text": "<|eot_id|>", "special": true}));
    assert!(text["count"].as_u64().unwrap() > special["count"].as_u64().unwrap());
    let chat = tokens(json!({"messages": [{"role": "user", "content": "<|eot_id|>"}]}));
    let plain = tokens(json!({"messages": [{"role": "user", "content": "x"}]}));
    let ends = |reply: &Value| {
        let texts = reply["texts"].as_array().unwrap();
        texts.iter().filter(|text| **text == "<|eot_id|>").count()
    };
    assert_eq!(ends(&chat), ends(&plain), "a message can't end its turn");
    for body in [json!({}), json!({"text": "a", "messages": []}), json!({"text": "a", "x": 1}), json!({"text": 1})] {
        post(server.at, "/api/tokenize", &body).refused(400);
    }
}

#[test]
fn a_key_is_asked_for_where_there_is_one() {
    let server = Running::start(Arc::new(Script::text("fine")), |options| options.api_key = Some("secret".into()));
    let body = chat("hi").to_string();
    let with = |headers: &[(&str, &str)]| send(server.at, "POST", CHAT, headers, body.as_bytes());
    for headers in [&[][..], &[("authorization", "Bearer wrong")], &[("authorization", "secret")]] {
        let reply = with(headers);
        reply.refused(401);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
    }
    with(&[("authorization", "Bearer secret")]).ok();
    with(&[("authorization", "bearer  secret ")]).ok();
    for path in ["/v1/models", "/api/models", "/metrics"] {
        get(server.at, path).refused(401);
        assert_eq!(send(server.at, "GET", path, &[("authorization", "Bearer secret")], b"").status, 200);
    }
    for path in ["/", "/page/app.js", "/health", "/openapi.json"] {
        assert_eq!(get(server.at, path).status, 200, "{path}");
    }
}

#[test]
fn more_than_the_queue_holds_is_told_to_come_back() {
    let server =
        Running::start(Arc::new(Script::of(|_, _| vec![20; 600]).slow(Duration::from_millis(50))), |options| {
            options.limits.parallel = 1;
            options.limits.queue = 2;
            options.limits.choices = 8;
        });
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 600}).to_string();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let stream = open(server.at, "POST", CHAT, &[], body.as_bytes());
            std::thread::sleep(Duration::from_millis(300));
            stream
        })
        .collect();
    let reply = post(server.at, CHAT, &chat("hi"));
    reply.refused(429);
    assert!(reply.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    let stream = post(server.at, "/api/denoise", &json!({"prompt": "hi"}));
    stream.refused(429);
    // All runs of a request fit, or none is taken; what never fits is another matter.
    post(server.at, CHAT, &json!({"messages": [{"role": "user", "content": "hi"}], "n": 3, "max_tokens": 1}))
        .refused(429);
    post(server.at, CHAT, &json!({"messages": [{"role": "user", "content": "hi"}], "n": 8, "max_tokens": 1}))
        .refused(400);
    drop(waiting);
    within(Duration::from_secs(5), "making room", || {
        post(
            server.at,
            CHAT,
            &json!({"messages": [{"role": "user",
        "content": "hi"}], "max_tokens": 1}),
        )
        .status
            == 200
    });
    post(server.at, CHAT, &json!({"messages": [{"role": "user", "content": "hi"}], "n": 2, "max_tokens": 1})).ok();
}

#[test]
fn time_has_a_limit_while_waiting_and_while_running() {
    let server =
        Running::start(Arc::new(Script::of(|_, _| vec![20; 600]).slow(Duration::from_millis(50))), |options| {
            options.limits.parallel = 1;
            options.limits.time = Duration::from_secs(1);
        });
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 600});
    let at = server.at;
    let started = Instant::now();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let body = body.clone();
            std::thread::spawn(move || post(at, CHAT, &body))
        })
        .collect();
    for thread in threads {
        let reply = thread.join().unwrap();
        reply.refused(503);
        assert!(reply.header("retry-after").is_some());
        assert_eq!(reply.json()["error"]["code"], "timeout");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn bodies_have_a_limit_and_must_arrive() {
    let server = Running::start(Arc::new(Script::text("fine")), |options| {
        options.limits.body = 10_000;
        options.limits.arrival = Duration::from_secs(1);
    });
    let long = chat(&"x".repeat(200_000)).to_string();
    let reply = send(server.at, "POST", CHAT, &[], long.as_bytes());
    reply.refused(413);
    let mut chunked = open(server.at, "POST", CHAT, &[("transfer-encoding", "chunked"), ("content-length", "")], b"");
    let _ = chunked.write_all(b"zz\r\n");
    drop(chunked);
    let half = open(server.at, "POST", CHAT, &[("content-length", "500")], b"{");
    try_read(half).unwrap().refused(408);
    // A head that never ends is cut off.
    let mut slow = std::net::TcpStream::connect(server.at).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let started = Instant::now();
    let _ = std::io::Read::read_to_end(&mut slow, &mut Vec::new());
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    post(server.at, CHAT, &chat("hi")).ok();
}

#[test]
fn shutting_down_finishes_what_runs() {
    let script = Script::text("abcdefghijklmnop").slow(Duration::from_millis(100));
    let begun = Arc::clone(&script.begun);
    let mut server = Running::start(Arc::new(script), |options| options.limits.parallel = 1);
    let at = server.at;
    let body = chat("hi");
    let stream = json!({"messages": body["messages"], "max_tokens": 24, "stream": true}).to_string();
    let running = std::thread::spawn(move || try_read(open(at, "POST", CHAT, &[], stream.as_bytes())).unwrap());
    within(Duration::from_secs(5), "beginning", || begun.load(Ordering::SeqCst) == 1);
    let waiting = std::thread::spawn(move || post(at, CHAT, &body));
    std::thread::sleep(Duration::from_millis(300));
    server.ask_to_stop();
    waiting.join().unwrap().refused(503);
    let events = running.join().unwrap().events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "what ran came to its end");
    server.wait();
    assert!(std::net::TcpStream::connect(at).is_err(), "nobody listens any more");
}

#[test]
fn the_document_describes_every_route() {
    let server = Script::text("fine").serve();
    let document = get(server.at, "/openapi.json").ok();
    assert_eq!(document, demask_server::openapi());
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let paths = document["paths"].as_object().unwrap();
    let described: Vec<&str> = paths.keys().map(String::as_str).collect();
    for path in [
        CHAT,
        "/v1/completions",
        "/v1/models",
        "/v1/models/{id}",
        "/api/denoise",
        "/api/tokenize",
        "/api/models",
        "/metrics",
        "/health",
        "/openapi.json",
        "/",
        "/page/{name}",
    ] {
        assert!(described.contains(&path), "{path} is not in {described:?}");
    }
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["summary"].is_string() && operation["responses"].is_object(), "{method} {path}");
            let real = path.replace("{id}", "demask-tiny").replace("{name}", "app.js");
            let reply = send(server.at, &method.to_uppercase(), &real, &[], b"{}");
            assert!(![404, 405].contains(&reply.status) || path.contains("{id}"), "{method} {path}: {}", reply.status);
        }
    }
    // Every reference leads somewhere, and requests tell the settings with their defaults.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} leads nowhere");
    }
    for body in ["ChatRequest", "CompletionRequest", "DenoiseRequest"] {
        let properties = &document["components"]["schemas"][body]["properties"];
        for name in demask_server::setting_names() {
            assert!(properties[name]["description"].is_string(), "{body} lacks {name}");
        }
        assert_eq!(properties["max_tokens"]["default"], 128);
        assert_eq!(properties["seed"]["default"], 42);
    }
}

#[test]
fn the_page_comes_with_a_strict_policy() {
    let server = Script::text("fine").serve();
    let page = get(server.at, "/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let html = String::from_utf8(page.body.clone()).unwrap();
    let mut bytes = html.len();
    for name in html.split("/page/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let file = get(server.at, &format!("/page/{name}"));
        assert_eq!(file.status, 200, "{name}");
        bytes += file.body.len();
    }
    assert!(bytes < 150_000 && demask_server::page_weight() < 150_000, "{bytes}");
    let tag = page.header("etag").unwrap();
    assert_eq!(send(server.at, "GET", "/", &[("if-none-match", tag)], b"").status, 304);
}

#[test]
fn health_and_models_tell_what_is_served() {
    let server = Running::start(embedded(), |options| options.alias = Some("toy".into()));
    let health = get(server.at, "/health").ok();
    assert_eq!((health["status"].as_str(), health["model"].as_str()), (Some("ok"), Some("toy")));
    let models = get(server.at, "/api/models").ok();
    let model = &models["models"][0];
    assert_eq!(model["id"], "toy");
    let recipes = model["recipes"].as_array().unwrap().iter().map(|recipe| recipe["name"].as_str().unwrap());
    assert_eq!(recipes.collect::<Vec<_>>(), ["exact", "fast", "fastest", "auto", "d3llm"]);
    assert_eq!(model["unmaskers"][0], "low-confidence");
    assert!(model["settings"]["threshold"].is_object());
    let mut answer = Answer::begin(open(server.at, "GET", "/metrics", &[], b"")).unwrap();
    assert!(String::from_utf8(answer.chunk().unwrap().unwrap()).unwrap().ends_with("# EOF\n"));
}
