//! Asks a model one question and shows every step: `cargo run --example ask -p demask -- FILE.gguf QUESTION`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

// ANCHOR: program
use std::ops::ControlFlow;

use demask::{Device, Message, Model, Request, Role};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (path, question) = arguments.next().zip(arguments.next()).ok_or("usage: ask FILE.gguf QUESTION")?;

    let model = Model::load(path, &Device::cpu(None)?)?;
    let prompt = model.chat_prompt(&[Message::new(Role::User, question)])?;
    let request = Request { max_tokens: 64, seed: 7, ..Request::default() };
    let answer = model.generate(&prompt, &request, &mut |step, canvas| {
        eprintln!("step {}: {} edits, {:?}", step.step, step.transfer.edits.len(), model.answer_text(canvas));
        ControlFlow::Continue(())
    })?;
    println!("{}", model.answer_text(&answer.canvas));
    Ok(())
}
// ANCHOR_END: program
