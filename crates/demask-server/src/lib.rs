//! HTTP over demask: an API that OpenAI's clients speak, a stream of edits, and a page that draws them.
//!
//! One model, many requests: [`Server`] queues them, and one thread lets their runs take turns, a denoising step each.
//! What a run says depends on its request alone (with the recipe `auto`, also on what passes cost on this machine).
//! Everything that a client can send is bounded by [`Limits`], and a client that leaves takes its run with it.

#![forbid(unsafe_code)]

mod app;
mod engine;
mod failure;
mod fields;
mod guard;
mod job;
mod metrics;
mod native;
mod openai;
mod openapi;
mod options;
mod page;
mod runner;
mod runs;
mod server;
mod signals;
mod stop;
mod tuner;

pub use fields::setting_names;
pub use openapi::openapi;
pub use options::{Limits, Options};
pub use page::page_weight;
pub use runner::Runner;
pub use server::{ServeError, Server, check};
pub use signals::{Ending, serve};
