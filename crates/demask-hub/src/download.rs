//! One file: under its lock, from where it broke off, checked, and only then given its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use demask_gguf::Destination;
use sha2::{Digest as _, Sha256};

use crate::api;
use crate::cache::RepoCache;
use crate::error::Error;
use crate::http::{self, Failure, Reply};
use crate::hub::{Event, Events, Hub, Plan, RemoteFile, Tries};
use crate::records::{Record, Verified};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// A download on its way: the half file and what it hashes to so far.
struct Half {
    file: File,
    path: PathBuf,
    done: u64,
    hash: Sha256,
    /// Whether any of it is from an earlier connection.
    pieced: bool,
}

impl Hub {
    /// Makes sure that a file is in its place and right, and returns the place.
    pub(crate) fn fetch(
        &self,
        repo: &RepoCache,
        plan: &Plan,
        file: &RemoteFile,
        events: Events<'_>,
    ) -> Result<PathBuf, Error> {
        let place = repo.snapshot(&plan.commit).join(&file.name);
        if self.is_right(&place, file, events)? {
            events(Event::Done { name: &file.name, verified: file.sha256.is_some() });
            return Ok(place);
        }
        let _lock = self.lock(repo, file, events)?;
        self.drop_outdated(repo, plan, file);
        let blob = repo.blob(&file.etag);
        // Whoever had the lock may have fetched it; another revision may share it.
        if self.is_right(&place, file, events)? {
            // Nothing is left to do.
        } else if self.is_right(&blob, file, events)? {
            self.put_in_place(&blob, &place, false, file, events)?;
        } else {
            self.remember(plan, file, None);
            let half = self.download(repo, plan, file, events)?;
            fs::rename(&half, &blob).map_err(Error::io("rename", &half))?;
            if file.sha256.is_some()
                && let Ok(meta) = fs::metadata(&blob)
            {
                self.remember(plan, file, Some(Verified::of(&meta)));
            }
            self.put_in_place(&blob, &place, true, file, events)?;
        }
        events(Event::Done { name: &file.name, verified: file.sha256.is_some() });
        Ok(place)
    }

    /// Whether a file is there with the right size and hash. One with a wrong hash is removed.
    fn is_right(&self, path: &Path, file: &RemoteFile, events: Events<'_>) -> Result<bool, Error> {
        let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else { return Ok(false) };
        if meta.len() != file.size {
            remove_with_target(path)?;
            return Ok(false);
        }
        let Some(expected) = &file.sha256 else { return Ok(true) };
        if self.records.is_verified(&file.etag, &meta) {
            return Ok(true);
        }
        let mut tell = |done| events(Event::Hashing { name: &file.name, done, size: file.size });
        let found = hash_file(path, &mut tell).map_err(Error::io("read", path))?;
        if found == *expected {
            let record = self.records.get(&file.etag);
            if let Some(mut record) = record {
                record.verified = Some(Verified::of(&meta));
                self.records.put(&file.etag, &record);
            }
            return Ok(true);
        }
        events(Event::Restart { name: &file.name, reason: "the file in the cache is damaged" });
        remove_with_target(path)?;
        Ok(false)
    }

    fn remember(&self, plan: &Plan, file: &RemoteFile, verified: Option<Verified>) {
        let model = plan.model.to_string();
        let record = Record { model, file: file.name.clone(), sha256: file.sha256.clone(), verified };
        self.records.put(&file.etag, &record);
    }

    /// Takes the lock that the other tools take too, for as long as the result lives.
    fn lock(&self, repo: &RepoCache, file: &RemoteFile, events: Events<'_>) -> Result<Option<File>, Error> {
        let path = repo.lock(&file.etag);
        let folder = path.parent().expect("it lies in a folder");
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(Error::io("open", &path))?;
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => {}
            // Some network file systems have no locks; one process at a time is right without.
            Err(TryLockError::Error(_)) => return Ok(None),
        }
        events(Event::Waiting { name: &file.name });
        lock.lock().map_err(Error::io("lock", &path))?;
        Ok(Some(lock))
    }

    /// Half files of an earlier state of the same file go: nothing will finish them.
    fn drop_outdated(&self, repo: &RepoCache, plan: &Plan, file: &RemoteFile) {
        for entry in fs::read_dir(repo.folder.join("blobs")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let etag = name.to_str().and_then(|name| name.strip_suffix(crate::cache::UNFINISHED));
            let Some(etag) = etag.filter(|etag| *etag != file.etag) else { continue };
            let ours = |record: &Record| record.file == file.name && record.model == plan.model.to_string();
            if self.records.get(etag).as_ref().is_some_and(ours) && fs::remove_file(entry.path()).is_ok() {
                self.records.forget(etag);
            }
        }
    }

    /// Fetches all bytes, however many connections that takes, checks them and hands them to the disk.
    fn download(&self, repo: &RepoCache, plan: &Plan, file: &RemoteFile, events: Events<'_>) -> Result<PathBuf, Error> {
        let mut half = Half::open(repo.unfinished(&file.etag), file, events)?;
        events(Event::File { name: &file.name, done: half.done, size: file.size });
        let mut tries = Tries::default();
        // Only what nobody had before counts as progress: a server that always starts over is given up.
        let mut most = half.done;
        let mut may_restart = true;
        loop {
            while half.done < file.size {
                let attempt = self.attempt(plan, file, &mut half, events);
                if half.done > most {
                    most = half.done;
                    tries.progressed();
                }
                let Err(failure) = attempt else { continue };
                let failure = match failure {
                    Failure::Passing { error, wait } if half.done > 0 => {
                        let (done, size, reason) = (half.done, file.size, cause(error));
                        let file = demask_gguf::escape(&file.name);
                        Failure::Passing { error: Error::Interrupted { file, done, size, reason }, wait }
                    }
                    other => other,
                };
                tries.failed(self, failure, events)?;
                half.pieced |= half.done > 0;
            }
            let found = hex(&half.hash.clone().finalize());
            match &file.sha256 {
                Some(expected) if *expected != found => {
                    let again = half.pieced && std::mem::take(&mut may_restart);
                    half.clear()?;
                    if !again {
                        let _ = fs::remove_file(&half.path);
                        let file = demask_gguf::escape(&file.name);
                        return Err(Error::Hash { file, expected: expected.clone(), found });
                    }
                    // Its pieces may be of different states of the file; in one piece it gets one more chance.
                    events(Event::Restart { name: &file.name, reason: "its pieces don't fit together" });
                    events(Event::Bytes { done: 0 });
                }
                _ => {
                    half.file.sync_all().map_err(Error::io("write", &half.path))?;
                    return Ok(half.path);
                }
            }
        }
    }

    /// One connection: appends what comes.
    fn attempt(&self, plan: &Plan, file: &RemoteFile, half: &mut Half, events: Events<'_>) -> Result<(), Failure> {
        let reply = self.http.get(&self.address(plan, &file.name), Some(half.done))?;
        match reply.status {
            206 if half.done > 0 => check_range(&reply, file, half.done)?,
            200 => {
                if half.done > 0 {
                    events(Event::Restart { name: &file.name, reason: "the server can't continue in the middle" });
                    half.clear()?;
                    events(Event::Bytes { done: 0 });
                }
            }
            416 => {
                events(Event::Restart { name: &file.name, reason: "the server has another length" });
                half.clear()?;
                let reason = "it refused the range".to_owned();
                return Err(Failure::Passing { error: Error::Unreachable { host: reply.host, reason }, wait: None });
            }
            _ => {
                let what = format!("{} of {}", demask_gguf::escape(&file.name), plan.model.repo);
                let (endpoint, token) = (&self.settings.endpoint, self.http.has_token());
                return Err(api::refusal(&reply, endpoint, &plan.model.repo, &what, token).into());
            }
        }
        check_body(&reply, file, half.done)?;
        half.append(reply, file, events)
    }

    /// Gives a blob its name in a snapshot: a link; where there are none the file itself.
    fn put_in_place(
        &self,
        blob: &Path,
        place: &Path,
        fresh: bool,
        file: &RemoteFile,
        events: Events<'_>,
    ) -> Result<(), Error> {
        let folder = place.parent().expect("it lies in a folder");
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let up = "../".repeat(2 + file.name.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{}", file.etag));
        // Made under another name and renamed: whoever reads the place meanwhile finds the old or the new file.
        let new = Destination::beside(place);
        let _ = fs::remove_file(&new);
        if self.settings.links && (symlink(&target, &new).is_ok() || fs::hard_link(blob, &new).is_ok()) {
            return fs::rename(&new, place).map_err(Error::io("replace", place));
        }
        if fresh {
            return fs::rename(blob, place).map_err(Error::io("rename", blob));
        }
        events(Event::Copied { name: &file.name });
        fs::copy(blob, &new).and_then(|_| fs::rename(&new, place)).map_err(|error| {
            let _ = fs::remove_file(&new);
            Error::io("copy", blob)(error)
        })
    }
}

impl Half {
    /// What is there of an earlier try, hashed; one that is too long begins anew.
    fn open(path: PathBuf, file: &RemoteFile, events: Events<'_>) -> Result<Half, Error> {
        let folder = path.parent().expect("it lies in a folder");
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut opened = open.map_err(Error::io("create", &path))?;
        let mut hash = Sha256::new();
        let mut tell = |done| events(Event::Hashing { name: &file.name, done, size: file.size });
        let done = feed(&mut opened, &mut hash, &mut tell).map_err(Error::io("read", &path))?;
        let mut half = Half { file: opened, path, done, hash, pieced: done > 0 };
        if half.done > file.size {
            half.clear()?;
        }
        Ok(half)
    }

    fn clear(&mut self) -> Result<(), Error> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cleared.map_err(Error::io("empty", &self.path))?;
        (self.done, self.hash, self.pieced) = (0, Sha256::new(), false);
        Ok(())
    }

    fn append(&mut self, reply: Reply, file: &RemoteFile, events: Events<'_>) -> Result<(), Failure> {
        let host = reply.host;
        let mut body = reply.body.into_reader();
        let mut buffer = vec![0; CHUNK];
        let passing =
            |reason: String| Failure::Passing { error: Error::Unreachable { host: host.clone(), reason }, wait: None };
        if self.done == 0 {
            // The first bytes say what it is: nothing else is written.
            let mut head = Vec::new();
            let read = body.by_ref().take(HEAD).read_to_end(&mut head);
            if let Err(error) = read {
                return Err(passing(http::body_reason(&error)));
            }
            check_head(&head, file, &host)?;
            self.write(&head, file, &host)?;
        }
        while self.done < file.size {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Err(passing("it closed the connection".to_owned())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(passing(http::body_reason(&error))),
            };
            self.write(&buffer[..read], file, &host)?;
            events(Event::Bytes { done: self.done });
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], file: &RemoteFile, host: &str) -> Result<(), Error> {
        if self.done + bytes.len() as u64 > file.size {
            let (expected, found) = (format!("{} bytes", file.size), "more".to_owned());
            let file = demask_gguf::escape(&file.name);
            return Err(Error::Contradiction { host: host.to_owned(), file, expected, found });
        }
        // After a failed write nobody knows how much is there: the next try hashes what is.
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.hash.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }
}

/// Bytes that tell what a file is.
const HEAD: u64 = 64;

fn check_head(head: &[u8], file: &RemoteFile, host: &str) -> Result<(), Error> {
    let starts = |prefix: &[u8]| head.len() >= prefix.len() && head[..prefix.len()].eq_ignore_ascii_case(prefix);
    let found = if head.starts_with(b"GGUF") || head.len() < 4 {
        return Ok(());
    } else if starts(b"version https://git-lfs") {
        "a Git LFS pointer in place of the file"
    } else if head.trim_ascii_start().starts_with(b"<") {
        "a web page (HTML)"
    } else if starts(b"PK\x03\x04") {
        "a ZIP archive"
    } else {
        "bytes that are no GGUF file"
    };
    let expected = demask_gguf::escape(&file.name);
    Err(Error::Portal { host: host.to_owned(), expected, found: found.to_owned() })
}

/// A body of a length that can't be right isn't read.
fn check_body(reply: &Reply, file: &RemoteFile, done: u64) -> Result<(), Error> {
    let name = demask_gguf::escape(&file.name);
    if reply.media_type().contains("html") {
        let found = "a web page (HTML)".to_owned();
        return Err(Error::Portal { host: reply.host.clone(), expected: name, found });
    }
    let length = reply.header("content-length").and_then(|text| text.trim().parse::<u64>().ok());
    match length {
        // One that is too short is read for what it is: the head tells pages and pointers apart.
        Some(length) if length != file.size - done && (done > 0 || length > file.size || length >= 4096) => {
            let (expected, found) = (format!("{} bytes to come", file.size - done), length.to_string());
            Err(Error::Contradiction { host: reply.host.clone(), file: name, expected, found })
        }
        _ => Ok(()),
    }
}

/// `bytes 100-199/200`: begins where we are, and the whole has the right length.
fn check_range(reply: &Reply, file: &RemoteFile, done: u64) -> Result<(), Error> {
    let text = reply.header("content-range").unwrap_or_default();
    let parsed = text.trim().strip_prefix("bytes ").and_then(|range| {
        let (span, whole) = range.split_once('/')?;
        let first = span.split_once('-')?.0.trim().parse::<u64>().ok()?;
        Some((first, whole.trim().parse::<u64>().ok()))
    });
    match parsed {
        Some((first, whole)) if first == done && whole.is_none_or(|whole| whole == file.size) => Ok(()),
        _ => Err(Error::Contradiction {
            host: reply.host.clone(),
            file: demask_gguf::escape(&file.name),
            expected: format!("bytes {done}-{} of {}", file.size - 1, file.size),
            found: format!("`{}`", demask_gguf::escape(text.chars().take(60).collect::<String>())),
        }),
    }
}

/// The reason inside a passing error.
fn cause(error: Error) -> String {
    match error {
        Error::Unreachable { host, reason } => format!("{host}: {reason}"),
        other => other.to_string(),
    }
}

/// Removes a file, and the blob that it links to.
fn remove_with_target(path: &Path) -> Result<(), Error> {
    let target = fs::canonicalize(path).ok().filter(|_| crate::cache::etag_of(path).is_some());
    fs::remove_file(path).map_err(Error::io("remove", path))?;
    match target {
        Some(target) => fs::remove_file(&target).map_err(Error::io("remove", target)),
        None => Ok(()),
    }
}

/// The SHA-256 of a file; `tell` hears how far it is.
pub(crate) fn hash_file(path: &Path, tell: &mut dyn FnMut(u64)) -> io::Result<String> {
    let mut hash = Sha256::new();
    feed(&mut File::open(path)?, &mut hash, tell)?;
    Ok(hex(&hash.finalize()))
}

fn feed(file: &mut File, hash: &mut Sha256, tell: &mut dyn FnMut(u64)) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(done),
            Ok(read) => {
                hash.update(&buffer[..read]);
                done += read as u64;
                tell(done);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(unix)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

#[cfg(windows)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, place)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
