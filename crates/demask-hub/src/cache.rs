//! The folder that all tools of the hub share: where a model lies in it, which models it holds, and how one is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::choose::{self, file_sets};
use crate::error::Error;
use crate::name::{ModelName, RepoId};
use crate::names_of_server::check_commit;

/// The ending of a download that isn't whole yet.
pub(crate) const UNFINISHED: &str = ".incomplete";
/// Folders in folders that are looked into.
const DEEPEST: usize = 8;

/// The cache of all repositories.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A model that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its full name.
    pub model: ModelName,
    /// The commit that it is of.
    pub commit: String,
    /// Its files in the order of their parts; a reader of GGUF wants the first.
    pub files: Vec<PathBuf>,
}

/// A line of a list of models.
#[derive(Clone, Debug)]
pub struct CachedModel {
    /// What users write to run it.
    pub model: ModelName,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Their size.
    pub bytes: u64,
    /// When the newest of them was changed.
    pub changed: Option<SystemTime>,
    /// Whether no part is missing.
    pub is_whole: bool,
}

/// What goes when a model is removed.
#[derive(Clone, Debug)]
pub struct Removal {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Bytes that become free.
    pub bytes: u64,
    repo: RepoCache,
}

/// The cache of one repository.
#[derive(Clone, Debug)]
pub struct RepoCache {
    /// `models--owner--repo`.
    pub folder: PathBuf,
    locks: PathBuf,
    repo: RepoId,
}

impl Cache {
    /// The cache in a folder, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The part that belongs to a repository.
    pub fn repo(&self, repo: &RepoId) -> RepoCache {
        let name = repo.folder();
        RepoCache { locks: self.root.join(".locks").join(&name), folder: self.root.join(name), repo: repo.clone() }
    }

    /// Every repository that has a folder, by name.
    pub fn repos(&self) -> Vec<RepoCache> {
        let names = folders_in(&self.root);
        let mut repos: Vec<RepoId> = names.iter().filter_map(|name| RepoId::from_folder(name)).collect();
        repos.sort();
        repos.iter().map(|repo| self.repo(repo)).collect()
    }

    /// A model that is whole on disk. Without a quantisation that is the usual one among those here.
    pub fn find(&self, model: &ModelName) -> Option<Found> {
        let repo = self.repo(&model.repo);
        let commits = match &model.revision {
            Some(revision) => repo.commit_of(revision).into_iter().collect(),
            None => repo.commits(),
        };
        commits.into_iter().find_map(|commit| repo.find(&commit, model))
    }

    /// Every model, by name; of a model that several commits hold, the newest.
    pub fn models(&self) -> Vec<CachedModel> {
        self.repos().iter().flat_map(RepoCache::models).collect()
    }

    /// What would go with a model; with all of its repository if no quantisation is named. Nothing if none of it is here.
    pub fn removal(&self, model: &ModelName) -> Option<Removal> {
        let repo = self.repo(&model.repo);
        if !repo.folder.is_dir() {
            return None;
        }
        let Some(quant) = &model.quant else {
            let bytes = files_below(&repo.folder).iter().map(|(path, _)| own_size(path)).sum();
            return Some(Removal { paths: vec![repo.folder.clone(), repo.locks.clone()], bytes, repo });
        };
        let (mut gone, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let mut paths = Vec::new();
        for commit in folders_in(&repo.folder.join("snapshots")) {
            let snapshot = repo.snapshot(&commit);
            let files = files_below(&snapshot);
            let names: Vec<&str> = files.iter().map(|(_, name)| name.as_str()).collect();
            let ours: BTreeSet<String> = file_sets(names)
                .into_iter()
                .filter(|set| choose::is_called(set, quant))
                .flat_map(|set| set.files)
                .collect();
            for (path, name) in files {
                let etag = etag_of(&path);
                if ours.contains(&name) {
                    gone.extend(etag);
                    paths.push(path);
                } else {
                    kept.extend(etag);
                }
            }
        }
        if paths.is_empty() {
            return None;
        }
        paths.extend(gone.difference(&kept).map(|etag| repo.blob(etag)).filter(|blob| blob.is_file()));
        let bytes = paths.iter().map(|path| own_size(path)).sum();
        Some(Removal { paths, bytes, repo })
    }

    /// Downloads that aren't whole, with their sizes.
    pub fn unfinished(&self) -> Vec<(PathBuf, u64)> {
        let of = |repo: &RepoCache| {
            let entries = fs::read_dir(repo.folder.join("blobs")).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            let half = paths.filter(|path| path.to_string_lossy().ends_with(UNFINISHED));
            let mut half: Vec<_> = half.map(|path| (path.clone(), own_size(&path))).collect();
            half.sort();
            half
        };
        self.repos().iter().flat_map(of).collect()
    }
}

impl RepoCache {
    /// The repository.
    pub fn id(&self) -> &RepoId {
        &self.repo
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    pub(crate) fn unfinished(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{etag}{UNFINISHED}"))
    }

    pub(crate) fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    pub(crate) fn reference(&self, revision: &str) -> PathBuf {
        self.folder.join("refs").join(revision)
    }

    /// The commit that a revision stood for when it was fetched.
    fn commit_of(&self, revision: &str) -> Option<String> {
        let text = fs::read_to_string(self.reference(revision)).unwrap_or_else(|_| revision.to_owned());
        let commit = text.trim();
        (check_commit("", commit).is_ok() && self.snapshot(commit).is_dir()).then(|| commit.to_owned())
    }

    /// Every commit: that of `main` first, then the newest.
    fn commits(&self) -> Vec<String> {
        let main = self.commit_of("main");
        let changed = |commit: &String| fs::metadata(self.snapshot(commit)).and_then(|meta| meta.modified()).ok();
        let mut commits = folders_in(&self.folder.join("snapshots"));
        commits
            .sort_by_key(|commit| (main.as_ref() != Some(commit), std::cmp::Reverse(changed(commit)), commit.clone()));
        commits
    }

    fn find(&self, commit: &str, model: &ModelName) -> Option<Found> {
        let names = self.readable(commit);
        let names = names.iter().map(|(_, name)| name.as_str());
        // Of several, one that isn't whole doesn't count.
        let whole = file_sets(names).into_iter().filter(|set| set.missing.is_none()).flat_map(|set| set.files);
        let whole: Vec<String> = whole.collect();
        let set = choose::choose(&self.repo, whole.iter().map(String::as_str), model.quant.as_deref()).ok()?;
        let snapshot = self.snapshot(commit);
        Some(Found {
            model: model.with_quant(&set.label()),
            commit: commit.to_owned(),
            files: set.files.iter().map(|name| snapshot.join(name)).collect(),
        })
    }

    /// Files of a commit whose bytes are here.
    fn readable(&self, commit: &str) -> Vec<(PathBuf, String)> {
        let mut files = files_below(&self.snapshot(commit));
        files.retain(|(path, _)| path.is_file());
        files
    }

    fn models(&self) -> Vec<CachedModel> {
        let mut models: BTreeMap<String, CachedModel> = BTreeMap::new();
        for commit in self.commits() {
            let snapshot = self.snapshot(&commit);
            let files = self.readable(&commit);
            for set in file_sets(files.iter().map(|(_, name)| name.as_str())) {
                let files: Vec<PathBuf> = set.files.iter().map(|name| snapshot.join(name)).collect();
                let meta: Vec<fs::Metadata> = files.iter().filter_map(|path| fs::metadata(path).ok()).collect();
                models.entry(set.label()).or_insert_with(|| CachedModel {
                    model: ModelName::whole(self.repo.clone()).with_quant(&set.label()),
                    files,
                    bytes: meta.iter().map(fs::Metadata::len).sum(),
                    changed: meta.iter().filter_map(|meta| meta.modified().ok()).max(),
                    is_whole: set.missing.is_none(),
                });
            }
        }
        models.into_values().collect()
    }
}

impl Removal {
    /// Removes it, and what is empty then.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn carry_out(&self) -> Result<(), Error> {
        for path in &self.paths {
            let removed = match fs::symlink_metadata(path) {
                Err(_) => Ok(()),
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
                Ok(_) => fs::remove_file(path),
            };
            removed.map_err(Error::io("remove", path))?;
        }
        for path in &self.paths {
            // Folders above it that are empty now; the first that isn't ends the walk.
            let mut folder = path.parent();
            while let Some(empty) = folder.filter(|folder| folder.starts_with(&self.repo.folder)) {
                if fs::remove_dir(empty).is_err() {
                    break;
                }
                folder = empty.parent();
            }
        }
        let holds = |name: &str| !files_below(&self.repo.folder.join(name)).is_empty();
        if self.repo.folder.is_dir() && !holds("blobs") && !holds("snapshots") {
            fs::remove_dir_all(&self.repo.folder).map_err(Error::io("remove", &self.repo.folder))?;
            let _ = fs::remove_dir_all(&self.repo.locks);
        }
        Ok(())
    }
}

/// The blob that a file of a snapshot links to.
pub(crate) fn etag_of(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    let in_blobs = target.parent().and_then(Path::file_name) == Some(OsStr::new("blobs"));
    in_blobs.then(|| target.file_name()?.to_str().map(str::to_owned)).flatten()
}

/// The size of a file itself; a link has none.
fn own_size(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 })
}

/// Names of folders in a folder, sorted; those that are no UTF-8 aren't ours.
fn folders_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|ty| ty.is_dir()));
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Files (and links) below a folder with their names relative to it, sorted. Linked folders aren't entered.
pub(crate) fn files_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(folder, "", 0, &mut found);
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found
}

fn walk(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (Ok(name), Ok(ty)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        let name = format!("{prefix}{name}");
        if !ty.is_dir() {
            found.push((entry.path(), name));
        } else if depth < DEEPEST {
            walk(&entry.path(), &format!("{name}/"), depth + 1, found);
        }
    }
}
