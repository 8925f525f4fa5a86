//! The server from outside: cases from real bug reports, faults, load, the API's description.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod api;
mod cases;
mod client;
mod faults;
mod load;
mod outside;
mod scripted;
