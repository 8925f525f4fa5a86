//! A hub client with a cache of its own, impatient enough for tests.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use demask_hub::{Error, Found, Hub, ModelName, Patience, Settings, Token};
use tempfile::TempDir;

/// A scratch folder and the settings that point there.
pub struct Place {
    pub folder: TempDir,
    pub settings: Settings,
}

impl Place {
    pub fn new(endpoint: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap().to_owned();
        let variables = [("HF_HOME", root.clone()), ("XDG_CACHE_HOME", root), ("HF_ENDPOINT", endpoint.to_owned())];
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let mut settings = Settings::from_variables(&get).unwrap();
        settings.patience = Patience {
            tries: 3,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_secs(2),
            connect: Duration::from_secs(5),
            stall: Duration::from_millis(400),
        };
        Place { folder, settings }
    }

    pub fn with_token(mut self, token: &str) -> Place {
        self.settings.token = Token::new(token);
        self
    }

    pub fn hub(&self) -> Hub {
        Hub::new(self.settings.clone())
    }

    /// Plans and pulls; what happened comes along.
    pub fn pull(&self, model: &str) -> (Result<Found, Error>, Vec<String>) {
        let mut events = Vec::new();
        let hub = self.hub();
        let mut note = |event: demask_hub::Event<'_>| events.push(format!("{event:?}"));
        let found = hub.plan(&name(model), &mut note).and_then(|plan| hub.pull(&plan, &mut note));
        (found, events)
    }

    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("hub")
    }

    /// Every file and link below the scratch folder, relative to it.
    pub fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.folder.path(), self.folder.path(), &mut found);
        found.sort();
        found
    }

    /// The same without locks and records, and below the repository's folder.
    pub fn repo_tree(&self) -> Vec<String> {
        let below = |path: &String| path.strip_prefix("hub/models--o--r/").map(str::to_owned);
        self.tree().iter().filter_map(below).collect()
    }
}

pub fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            walk(root, &entry.path(), found);
        } else {
            found.push(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}
