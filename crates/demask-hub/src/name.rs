//! What users call models.

use std::fmt;
use std::str::FromStr;

use demask_gguf::escape;

use crate::error::Error;

/// A repository on the hub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoId {
    owner: String,
    name: String,
}

/// A model of a repository: `owner/repo`, optionally at a revision, optionally of a quantisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// Where it is.
    pub repo: RepoId,
    /// A branch, a tag or a commit; `main` if nothing is said.
    pub revision: Option<String>,
    /// A quantisation (`Q4_K_M`), or the name of a file in the repository.
    pub quant: Option<String>,
}

/// A name that stands for a repository.
pub struct ShortName {
    /// What users write.
    pub name: &'static str,
    /// The repository; none where nobody is known to have published GGUF files.
    pub repo: Option<&'static str>,
    /// What it is, in a line.
    pub about: &'static str,
}

/// Every short name. The repositories are ones that other projects name in their instructions.
pub static SHORT_NAMES: &[ShortName] = &[
    ShortName {
        name: "llada",
        repo: Some("mradermacher/LLaDA-8B-Instruct-GGUF"),
        about: "LLaDA 8B Instruct: general chat, English and Chinese",
    },
    ShortName {
        name: "llada-1.5",
        repo: Some("mradermacher/LLaDA-1.5-GGUF"),
        about: "LLaDA 1.5: the 8B model, aligned further",
    },
    ShortName {
        name: "dream",
        repo: Some("bartowski/Dream-org_Dream-v0-Instruct-7B-GGUF"),
        about: "Dream 7B Instruct: general chat, good at planning",
    },
    ShortName {
        name: "dream-coder",
        repo: Some("mradermacher/Dream-Coder-v0-Instruct-7B-GGUF"),
        about: "Dream-Coder 7B Instruct: writes code",
    },
    ShortName { name: "d3llm", repo: None, about: "d3LLM: LLaDA distilled for few steps; no GGUF files are known" },
];

impl RepoId {
    /// The names of the folder that caches it and of its page, as the hub spells them: `owner/repo`.
    fn new(owner: &str, name: &str) -> Result<RepoId, &'static str> {
        for part in [owner, name] {
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if part.is_empty() || part.len() > 96 || !part.bytes().all(legal) {
                return Err("owner and repository are 1 to 96 letters, digits, `-`, `_` or `.`");
            }
            // `--` separates the two in the cache, and the hub has no such names.
            if part.contains("--") || part.contains("..") || part.starts_with(['-', '.']) || part.ends_with(['-', '.'])
            {
                return Err("`--`, `..` and names that begin or end with `-` or `.` don't exist on the hub");
            }
        }
        Ok(RepoId { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// The name of its folder in the cache.
    pub fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.name)
    }

    /// The repository of a folder in the cache.
    pub(crate) fn from_folder(folder: &str) -> Option<RepoId> {
        let (owner, name) = folder.strip_prefix("models--")?.split_once("--")?;
        RepoId::new(owner, name).ok()
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl ModelName {
    /// Whether a text is meant as a name on the hub and not as a path: one slash, and nothing that only paths have.
    pub fn looks_like_one(text: &str) -> bool {
        ModelName::from_str(text).is_ok()
    }

    /// Whether a text is a link, which no path is.
    pub fn is_link(text: &str) -> bool {
        text.starts_with("https://") || text.starts_with("http://")
    }

    /// The model behind a short name, which may be followed by `@revision` and `:QUANT`.
    pub fn from_short(text: &str) -> Result<ModelName, Error> {
        let end = text.find([':', '@']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let Some(row) = SHORT_NAMES.iter().find(|row| row.name.eq_ignore_ascii_case(name)) else {
            let known = SHORT_NAMES.iter().filter(|row| row.repo.is_some()).map(|row| row.name);
            return Err(Error::Unknown { name: escape(name), known: known.collect::<Vec<_>>().join(", ") });
        };
        match row.repo {
            Some(repo) => format!("{repo}{rest}").parse(),
            None => Err(Error::NoKnownFile {
                name: row.name.to_owned(),
                hint: "convert huggingface.co/d3LLM/d3LLM_LLaDA with llama.cpp's convert_hf_to_gguf.py and give its path, \
                       or run `llada` with `--recipe d3llm`"
                    .to_owned(),
            }),
        }
    }

    /// The same repository with nothing chosen.
    pub fn whole(repo: RepoId) -> ModelName {
        ModelName { repo, revision: None, quant: None }
    }

    /// The same model of a certain quantisation.
    pub(crate) fn with_quant(&self, quant: &str) -> ModelName {
        ModelName { quant: Some(quant.to_owned()), ..self.clone() }
    }
}

/// What follows the hub's address, which people copy along: `https://huggingface.co/owner/repo`, `hf.co/owner/repo:QUANT`.
fn without_host(text: &str) -> &str {
    let place = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    let name = place.strip_prefix("huggingface.co/").or_else(|| place.strip_prefix("hf.co/"));
    name.map(|name| name.trim_end_matches('/')).filter(|name| name.matches('/').count() == 1).unwrap_or(text)
}

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(text: &str) -> Result<ModelName, Error> {
        let fail = |reason: &str| Error::Name { given: escape(text), reason: reason.to_owned() };
        let text = without_host(text);
        if ModelName::is_link(text) {
            return Err(fail("it is a link to something else than a model's page on the hub"));
        }
        let (place, quant) = text.split_once(':').map_or((text, None), |(place, quant)| (place, Some(quant)));
        let (repo, revision) = place.split_once('@').map_or((place, None), |(repo, revision)| (repo, Some(revision)));
        let (owner, name) = repo.split_once('/').ok_or_else(|| fail("it has no `/`"))?;
        let repo = RepoId::new(owner, name).map_err(fail)?;
        for (what, part) in [("a revision", revision), ("a quantisation", quant)] {
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let ill =
                |part: &str| part.is_empty() || part.len() > 200 || !part.bytes().all(legal) || part.starts_with('.');
            if part.is_some_and(ill) {
                return Err(fail(&format!("{what} is letters, digits, `-`, `_` or `.`")));
            }
        }
        Ok(ModelName { repo, revision: revision.map(str::to_owned), quant: quant.map(str::to_owned) })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.quant {
            Some(quant) => write!(f, ":{quant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for text in ["a/b", "GSAI-ML/LLaDA-8B", "a/b:Q4_K_M", "a/b@v1.0", "a/b@main:Q8_0", "a/b:model.Q8_0.gguf"] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), text);
        }
        for text in ["https://huggingface.co/a/b:Q8_0", "http://hf.co/a/b:Q8_0", "hf.co/a/b:Q8_0"] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), "a/b:Q8_0");
        }
        assert_eq!("https://huggingface.co/a/b/".parse::<ModelName>().unwrap().to_string(), "a/b");
        for text in [
            "https://huggingface.co/a/b/resolve/main/m.gguf",
            "https://else.where/a/b",
            "http://",
            "a",
            "a/b/c",
            "/a",
            "a/",
            "a/b:",
            "a/b@",
            "a/..",
            "../b",
            "a/b:../x",
            "a/b@../x",
            "a--b/c",
            "a/b c",
            "ä/b",
            "-a/b",
            "a/b:c:d",
            "",
            "a/.b",
            "a/b@a/b",
        ] {
            assert!(text.parse::<ModelName>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_short_name_has_a_repository_or_says_so() {
        for row in SHORT_NAMES {
            match row.repo {
                Some(repo) => {
                    assert_eq!(ModelName::from_short(row.name).unwrap().to_string(), repo);
                    let quant = format!("{}:Q8_0", row.name.to_uppercase());
                    assert_eq!(ModelName::from_short(&quant).unwrap().to_string(), format!("{repo}:Q8_0"));
                }
                None => assert!(ModelName::from_short(row.name).unwrap_err().hint().unwrap().contains("convert")),
            }
        }
        let error = ModelName::from_short("lada").unwrap_err();
        assert!(error.to_string().contains("`lada`") && error.hint().unwrap().contains("llada, llada-1.5, dream"));
    }

    #[test]
    fn folders_name_their_repository() {
        let repo = "a.b/c-d".parse::<ModelName>().unwrap().repo;
        assert_eq!(repo.folder(), "models--a.b--c-d");
        assert_eq!(RepoId::from_folder(&repo.folder()), Some(repo));
        for folder in ["models--a", "datasets--a--b", "models--..--b", "models--a--b--c"] {
            assert_eq!(RepoId::from_folder(folder), None, "{folder}");
        }
    }
}
