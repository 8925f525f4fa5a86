//! The hub's listing of a repository.

use std::io::Read as _;

use serde::Deserialize;

use crate::error::Error;
use crate::http::{self, Failure, Http, Reply};
use crate::name::RepoId;
use crate::names_of_server::{check_commit, check_file, is_sha256};

/// The longest listing that is read.
const LONGEST: u64 = 32 << 20;

/// What a repository holds at a commit.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<ListedFile>,
}

/// A file of a listing.
pub(crate) struct ListedFile {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    pub(crate) sha256: Option<String>,
}

#[derive(Deserialize)]
struct Model {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Asks for the listing once.
pub(crate) fn list(http: &Http, endpoint: &str, repo: &RepoId, revision: &str) -> Result<Listing, Failure> {
    let url = format!("{endpoint}/api/models/{repo}/revision/{revision}?blobs=true");
    let reply = http.get(&url, None)?;
    if reply.status != 200 {
        let what = if revision == "main" { repo.to_string() } else { format!("{repo} at revision {revision}") };
        return Err(refusal(&reply, endpoint, repo, &what, http.has_token()).into());
    }
    let (host, media) = (reply.host.clone(), reply.media_type().to_owned());
    let mut text = Vec::new();
    let read = reply.body.into_reader().take(LONGEST + 1).read_to_end(&mut text);
    if let Err(error) = read {
        let error = Error::Unreachable { host, reason: http::body_reason(&error) };
        return Err(Failure::Passing { error, wait: None });
    }
    let wrong =
        |found: String| Error::Portal { host: host.clone(), expected: "a list of files (JSON)".to_owned(), found };
    if text.len() as u64 > LONGEST {
        return Err(wrong(format!("more than {LONGEST} bytes")).into());
    }
    let model: Model = serde_json::from_slice(&text).map_err(|error| wrong(what_came(&media, &text, &error)))?;
    Ok(checked(model, &host)?)
}

fn what_came(media: &str, text: &[u8], error: &serde_json::Error) -> String {
    if media.contains("html") || text.trim_ascii_start().starts_with(b"<") {
        "a web page (HTML)".to_owned()
    } else if error.is_data() {
        format!("other JSON ({error})")
    } else {
        format!("something else ({})", demask_gguf::escape(if media.is_empty() { "without a type" } else { media }))
    }
}

fn checked(model: Model, host: &str) -> Result<Listing, Error> {
    check_commit(host, &model.sha)?;
    let mut files = Vec::new();
    for sibling in model.siblings {
        check_file(host, &sibling.rfilename)?;
        let (sha256, lfs_size) = sibling.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
        if let Some(value) = sha256.as_ref().filter(|value| !is_sha256(value)) {
            let value = demask_gguf::escape(value.chars().take(80).collect::<String>());
            let reason = "it must be 64 hexadecimal digits";
            return Err(Error::Hostile { host: host.to_owned(), what: "the SHA-256", value, reason });
        }
        let sha256 = sha256.map(|sha256| sha256.to_ascii_lowercase());
        files.push(ListedFile { name: sibling.rfilename, size: lfs_size.or(sibling.size), sha256 });
    }
    Ok(Listing { commit: model.sha.to_ascii_lowercase(), files })
}

/// Why the hub doesn't give something.
pub(crate) fn refusal(reply: &Reply, endpoint: &str, repo: &RepoId, what: &str, with_token: bool) -> Error {
    let gated = || Error::Gated { repo: repo.to_string(), page: format!("{endpoint}/{repo}"), with_token };
    let not_found = || Error::NotFound { what: what.to_owned(), with_token };
    match (reply.header("x-error-code").unwrap_or_default(), reply.status) {
        ("GatedRepo", _) => gated(),
        ("RepoNotFound" | "RevisionNotFound" | "EntryNotFound", _) | (_, 404 | 410) => not_found(),
        (_, 401) if with_token => Error::Token { repo: repo.to_string() },
        (_, 401) => not_found(),
        (_, 403) => gated(),
        (_, status) => Error::Status {
            host: reply.host.clone(),
            status,
            request: format!("the request for {what}"),
            message: http::message(reply),
        },
    }
}
