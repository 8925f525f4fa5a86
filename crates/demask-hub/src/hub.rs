//! The hub as its users see it: find, plan, pull.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::{self, ListedFile};
use crate::cache::{Cache, Found, RepoCache};
use crate::choose;
use crate::error::Error;
use crate::http::{Failure, Http};
use crate::name::ModelName;
use crate::names_of_server::{check_commit, check_etag, is_sha256};
use crate::records::Records;
use crate::settings::Settings;
use crate::whole;

/// Characters of a file's name that stand as they are in an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// Left free on a disk that is downloaded to.
const SPARE: u64 = 16 << 20;

/// What happens during a download.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants say it
pub enum Event<'a> {
    /// A file begins; `done` of its bytes were here already.
    File { name: &'a str, done: u64, size: u64 },
    /// So many bytes of it are here now.
    Bytes { done: u64 },
    /// Its hash is computed over bytes that are here: so many so far.
    Hashing { name: &'a str, done: u64, size: u64 },
    /// Another try follows after `wait`.
    Retry { reason: &'a str, wait: Duration },
    /// A file starts over from its beginning.
    Restart { name: &'a str, reason: &'a str },
    /// Another process downloads the same file.
    Waiting { name: &'a str },
    /// The file could not be linked to its place and was copied.
    Copied { name: &'a str },
    /// The file is whole and in its place; whether the hub told a hash that it could be checked against.
    Done { name: &'a str, verified: bool },
}

/// Receives events.
pub(crate) type Events<'a> = &'a mut dyn FnMut(Event<'_>);

/// A file of the hub, and what it says of it.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// Its name in the repository.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it must hash to, if the hub tells.
    pub sha256: Option<String>,
    /// The name of its blob.
    pub(crate) etag: String,
}

/// What a pull will fetch.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The model's full name.
    pub model: ModelName,
    /// The commit that the revision stands for.
    pub commit: String,
    /// Its files in the order of their parts.
    pub files: Vec<RemoteFile>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that aren't here yet.
    pub missing: u64,
}

/// A hub and the cache of what came from it.
pub struct Hub {
    pub(crate) settings: Settings,
    pub(crate) cache: Cache,
    pub(crate) records: Records,
    pub(crate) http: Http,
}

impl Hub {
    /// A hub by its settings; nothing is asked yet.
    pub fn new(settings: Settings) -> Hub {
        Hub {
            cache: Cache::new(&settings.cache),
            records: Records::new(&settings.records),
            http: Http::new(&settings),
            settings,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// A model that is whole on disk; nothing is asked.
    pub fn find(&self, model: &ModelName) -> Option<Found> {
        self.cache.find(model)
    }

    /// Asks which files a model has, how large they are and which of them are here.
    ///
    /// # Errors
    /// When the hub can't be asked, doesn't have the model, or answers what no hub would.
    pub fn plan(&self, model: &ModelName, events: Events<'_>) -> Result<Plan, Error> {
        if self.settings.offline {
            return Err(Error::Offline { what: model.to_string() });
        }
        let revision = model.revision.as_deref().unwrap_or("main");
        let endpoint = &self.settings.endpoint;
        let listing = self.retry(events, || api::list(&self.http, endpoint, &model.repo, revision))?;
        let names = listing.files.iter().map(|file| file.name.as_str());
        let set = choose::choose(&model.repo, names, model.quant.as_deref())?;
        let mut plan = Plan {
            model: model.with_quant(&set.label()),
            commit: listing.commit,
            files: Vec::new(),
            bytes: 0,
            missing: 0,
        };
        let repo = self.cache.repo(&model.repo);
        for name in &set.files {
            let listed = listing.files.iter().find(|file| file.name == *name).expect("it was chosen from these");
            let file = self.retry(events, || self.ask(&plan, listed))?;
            plan.bytes = plan.bytes.saturating_add(file.size);
            plan.missing = plan.missing.saturating_add(self.missing(&repo, &plan.commit, &file));
            plan.files.push(file);
        }
        Ok(plan)
    }

    /// Fetches what isn't here, checks everything, and returns where it is.
    ///
    /// # Errors
    /// When the disk is too small or full, the hub can't be reached for long or sends something else; what is here by then
    /// stays, and the next pull goes on from there.
    pub fn pull(&self, plan: &Plan, events: Events<'_>) -> Result<Found, Error> {
        self.check_space(plan)?;
        let repo = self.cache.repo(&plan.model.repo);
        let mut files = Vec::new();
        for file in &plan.files {
            files.push(self.fetch(&repo, plan, file, events)?);
        }
        self.remember_revision(&repo, plan)?;
        Ok(Found { model: plan.model.clone(), commit: plan.commit.clone(), files })
    }

    /// The address of a file.
    pub(crate) fn address(&self, plan: &Plan, name: &str) -> String {
        let name = utf8_percent_encode(name, PLAIN);
        format!("{}/{}/resolve/{}/{name}", self.settings.endpoint, plan.model.repo, plan.commit)
    }

    /// One question about one file, and its answer against the listing.
    fn ask(&self, plan: &Plan, listed: &ListedFile) -> Result<RemoteFile, Failure> {
        let reply = self.http.head(&self.address(plan, &listed.name))?;
        let host = reply.host.clone();
        let file = demask_gguf::escape(&listed.name);
        if reply.status != 200 {
            let what = format!("{file} of {}", plan.model.repo);
            let with_token = self.http.has_token();
            return Err(api::refusal(&reply, &self.settings.endpoint, &plan.model.repo, &what, with_token).into());
        }
        let html = reply.media_type().contains("html");
        let told = reply.told;
        if let Some(commit) = &told.commit {
            check_commit(&host, commit)?;
        }
        let portal = |expected: &str| {
            let found = if html { "a web page (HTML)" } else { "an answer without one" }.to_owned();
            Error::Portal { host: host.clone(), expected: expected.to_owned(), found }
        };
        let etag = told.etag.ok_or_else(|| portal(&format!("an entity tag of {file}")))?;
        check_etag(&host, &etag)?;
        let size = told.size.or(listed.size).ok_or_else(|| portal(&format!("the size of {file}")))?;
        let contradiction = |expected: String, found: String| {
            Failure::Final(Error::Contradiction { host: host.clone(), file: file.clone(), expected, found })
        };
        if let Some(listed) = listed.size.filter(|&listed| listed != size) {
            if html {
                return Err(portal(&format!("the headers of {file}")).into());
            }
            return Err(contradiction(format!("{listed} bytes"), format!("{size} bytes")));
        }
        let by_etag = is_sha256(&etag).then(|| etag.to_ascii_lowercase());
        if let (Some(listed), Some(told)) = (&listed.sha256, &by_etag)
            && listed != told
        {
            return Err(contradiction(format!("SHA-256 {listed}"), told.clone()));
        }
        Ok(RemoteFile { name: listed.name.clone(), size, sha256: listed.sha256.clone().or(by_etag), etag })
    }

    /// Bytes of a file that are still to come.
    fn missing(&self, repo: &RepoCache, commit: &str, file: &RemoteFile) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len());
        let place = repo.snapshot(commit).join(&file.name);
        if size(place) == Some(file.size) || size(repo.blob(&file.etag)) == Some(file.size) {
            return 0;
        }
        file.size - size(repo.unfinished(&file.etag)).filter(|&half| half <= file.size).unwrap_or(0)
    }

    fn check_space(&self, plan: &Plan) -> Result<(), Error> {
        if plan.missing == 0 {
            return Ok(());
        }
        fs::create_dir_all(&self.settings.cache).map_err(Error::io("create", &self.settings.cache))?;
        // A system that doesn't tell is found out by writing.
        let Ok(free) = (self.settings.free_space)(&self.settings.cache) else { return Ok(()) };
        let needed = plan.missing.saturating_add(SPARE.min(plan.missing / 16));
        if needed <= free {
            return Ok(());
        }
        let folder = self.settings.cache.clone();
        Err(Error::Space { what: plan.model.to_string(), needed, free, folder })
    }

    fn remember_revision(&self, repo: &RepoCache, plan: &Plan) -> Result<(), Error> {
        let revision = plan.model.revision.as_deref().unwrap_or("main");
        if revision == plan.commit {
            return Ok(());
        }
        let path = repo.reference(revision);
        whole::write(&path, plan.commit.as_bytes()).map_err(Error::io("write", &path))
    }

    /// Tries until it works, fails for good, or has failed too often in a row.
    pub(crate) fn retry<T>(
        &self,
        events: Events<'_>,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let mut tries = Tries::default();
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(failure) => tries.failed(self, failure, events)?,
            }
        }
    }
}

/// Failures in a row.
#[derive(Default)]
pub(crate) struct Tries {
    failed: u32,
}

impl Tries {
    /// Something came: the count begins again.
    pub(crate) fn progressed(&mut self) {
        self.failed = 0;
    }

    /// Waits before another try, or gives the failure back if there is to be none.
    pub(crate) fn failed(&mut self, hub: &Hub, failure: Failure, events: Events<'_>) -> Result<(), Error> {
        let (error, wait) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing { error, wait } => (error, wait),
        };
        let patience = &hub.settings.patience;
        self.failed += 1;
        if self.failed >= patience.tries {
            return Err(error);
        }
        let doubled = patience.first_wait.saturating_mul(1 << (self.failed - 1).min(16));
        let wait = wait.unwrap_or(doubled).min(patience.longest_wait);
        events(Event::Retry { reason: &error.to_string(), wait });
        std::thread::sleep(wait);
        Ok(())
    }
}
