//! Many clients at once on the real model: none is lost, and each gets the text that it gets alone. The example `load` does
//! the same for longer and watches the memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::post;
use super::scripted::{Running, embedded};

/// Different requests: prompts, recipes, temperatures, seeds.
fn asked(i: usize) -> Value {
    let prompts = ["What is 3 + 4?", "Name the months.", "Count from 1 to 10.", "What is the capital of France?"];
    let recipe = ["exact", "fast", "fastest", "d3llm"][i / 4 % 4];
    json!({
        "messages": [{"role": "user", "content": prompts[i % 4]}],
        "max_tokens": 32, "recipe": recipe, "seed": i % 3, "temperature": if i.is_multiple_of(5) { 0.7 } else { 0.0 }
    })
}

#[test]
fn many_clients_get_what_each_gets_alone() {
    let server = Running::start(embedded(), |options| options.limits.queue = 40);
    let at = server.at;
    let alone: HashMap<usize, String> =
        (0..24).map(|i| (i, text(&post(at, "/v1/chat/completions", &asked(i)).ok()))).collect();
    let alone = std::sync::Arc::new(alone);
    let until = Instant::now() + Duration::from_secs(4);
    let clients: Vec<_> = (0..64)
        .map(|client| {
            let alone = std::sync::Arc::clone(&alone);
            std::thread::spawn(move || {
                let (mut answered, mut refused) = (0, 0);
                let mut i = client;
                while Instant::now() < until || answered == 0 {
                    let reply = post(at, "/v1/chat/completions", &asked(i % 24));
                    match reply.status {
                        200 => {
                            assert_eq!(text(&reply.json()), alone[&(i % 24)], "request {}", i % 24);
                            answered += 1;
                            i += 1;
                        }
                        429 => {
                            refused += 1;
                            std::thread::sleep(Duration::from_millis(100));
                        }
                        other => panic!("{other}: {}", reply.json()),
                    }
                }
                (answered, refused)
            })
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for client in clients {
        let (a, r) = client.join().unwrap();
        answered += a;
        refused += r;
    }
    eprintln!("64 clients: {answered} answered, {refused} told to come back");
    assert!(answered >= 64);
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}
