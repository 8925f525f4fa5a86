//! Models by name: from the words of a user to a file on disk.
//!
//! * [`ModelName`] is `owner/repo`, `owner/repo:QUANT`, `owner/repo@revision:QUANT`, or a short name from [`SHORT_NAMES`].
//! * [`Hub`] finds a model in the cache, lists what the hub has, and downloads.
//! * [`Cache`] is the folder that the Hugging Face tools share: `models--owner--repo/{blobs,refs,snapshots}`. What one of
//!   them has downloaded the others find.
//! * [`Settings`] come from the environment variables that those tools read.
//!
//! A server is hostile until its answers have been checked: names that leave the folder, hashes that are none, web pages
//! in place of files and wrong contents are refused, and what is downloaded has the file's name only once it is whole
//! and its SHA-256 is the one that the hub told. A download that broke off goes on where it stopped, in the same process
//! or in a later one; a lock keeps two processes from writing the same file.

#![forbid(unsafe_code)]

mod api;
mod cache;
mod choose;
mod download;
mod error;
mod health;
mod http;
mod hub;
mod name;
mod names_of_server;
mod records;
mod settings;
mod whole;

pub use cache::{Cache, CachedModel, Found, RepoCache};
pub use error::Error;
pub use health::{CacheFault, FaultKind};
pub use http::is_proxy;
pub use hub::{Event, Hub, Plan, RemoteFile};
pub use name::{ModelName, RepoId, SHORT_NAMES, ShortName};
pub use settings::{Patience, Settings, Token, can_write, free_space, own_folder};
pub use whole::write as write_whole;
