//! What was answered, and the file that keeps it.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use demask_gguf::{Gguf, escape};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::items::Item;
use crate::failure::Misuse;
use crate::output;
use crate::prompt::read_bounded;

/// A file is written at most this often.
const PERIOD: Duration = Duration::from_secs(5);

/// What was measured: results of one heading belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Heading {
    /// `eval`.
    pub(super) kind: String,
    pub(super) version: String,
    pub(super) model: ModelHeading,
    pub(super) data: DataHeading,
    pub(super) device: String,
    pub(super) threads: usize,
    pub(super) runs: Vec<RunHeading>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelHeading {
    pub(super) name: String,
    pub(super) architecture: String,
    pub(super) quantisation: String,
    pub(super) fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DataHeading {
    pub(super) file: String,
    pub(super) items: usize,
    pub(super) fingerprint: String,
}

/// A recipe and the settings that it stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunHeading {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) settings: Value,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) correct: bool,
    pub(super) answer: String,
    pub(super) steps: usize,
    pub(super) nfe: usize,
    pub(super) rows: usize,
    pub(super) commits: usize,
    pub(super) visible_tokens: usize,
    pub(super) seconds: f64,
}

/// All answers, by item and run.
pub(super) struct Results {
    heading: Heading,
    table: Vec<Vec<Option<Record>>>,
    /// Answers to items that aren't asked this time.
    others: Vec<Record>,
    saved: Instant,
}

/// The file, as it is read.
#[derive(Deserialize)]
struct Kept {
    #[serde(flatten)]
    heading: Heading,
    results: Vec<Record>,
}

/// The file, as it is written.
#[derive(Serialize)]
struct Keeps<'a, S> {
    #[serde(flatten)]
    heading: &'a Heading,
    summary: S,
    results: Vec<&'a Record>,
}

impl Results {
    /// No answer yet.
    pub(super) fn new(heading: Heading, items: usize) -> Results {
        let table = vec![vec![None; heading.runs.len()]; items];
        Results { heading, table, others: Vec::new(), saved: Instant::now() }
    }

    /// Takes over the answers of a file from before; refused if they were given to something else.
    pub(super) fn resume(&mut self, path: &Path, items: &[Item]) -> Result<()> {
        let name = escape(path.as_os_str().as_encoded_bytes());
        let text = match fs::File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => read_bounded(file.with_context(|| format!("cannot read `{name}`"))?, &format!("`{name}`"))?,
        };
        let Ok(kept) = serde_json::from_slice::<Kept>(&text) else {
            bail!("`{name}` is there already, and holds no results of `demask eval`");
        };
        let (old, new) = (&kept.heading, &self.heading);
        let names = |heading: &Heading| heading.runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>().join(",");
        let differs = if old.model != new.model {
            format!("another model ({})", escape(&old.model.name))
        } else if old.data.fingerprint != new.data.fingerprint {
            format!("other items ({})", escape(&old.data.file))
        } else if names(old) != names(new) {
            format!("other recipes ({})", escape(names(old)))
        } else if let Some((run, _)) = old.runs.iter().zip(&new.runs).find(|(old, new)| old != new) {
            format!("other settings of {}", escape(&run.name))
        } else {
            String::new()
        };
        if !differs.is_empty() {
            let hint = "name another file with `--out`, or delete this one";
            return Err(Misuse::new(format!("`{name}` holds results of {differs}"), hint).into());
        }
        if (&old.device, old.threads, &old.version) != (&new.device, new.threads, &new.version) {
            let message =
                format!("`{name}` was begun by demask {} on {}: its times are mixed", old.version, escape(&old.device));
            output::line("warning", &message);
        }
        let places: HashMap<&str, usize> = items.iter().enumerate().map(|(at, item)| (item.id.as_str(), at)).collect();
        for record in kept.results {
            let run = self.heading.runs.iter().position(|run| run.name == record.run);
            match (places.get(record.id.as_str()), run) {
                (Some(&item), Some(run)) => self.table[item][run] = Some(record),
                _ => self.others.push(record),
            }
        }
        Ok(())
    }

    pub(super) fn heading(&self) -> &Heading {
        &self.heading
    }

    pub(super) fn get(&self, item: usize, run: usize) -> Option<&Record> {
        self.table.get(item)?.get(run)?.as_ref()
    }

    pub(super) fn set(&mut self, item: usize, run: usize, record: Record) {
        self.table[item][run] = Some(record);
    }

    /// How many answers there are.
    pub(super) fn len(&self) -> usize {
        self.table.iter().flatten().flatten().count()
    }

    /// The items that every run has answered, with their answers.
    pub(super) fn complete(&self) -> impl Iterator<Item = (usize, Vec<&Record>)> {
        self.table
            .iter()
            .enumerate()
            .filter_map(|(at, row)| Some((at, row.iter().map(Option::as_ref).collect::<Option<_>>()?)))
    }

    /// Whether it is time to write the file.
    pub(super) fn is_due(&self) -> bool {
        self.saved.elapsed() >= PERIOD
    }

    /// Writes the file; a failure leaves the one before.
    pub(super) fn save(&mut self, path: &Path, summary: impl Serialize) -> Result<()> {
        let results = self.table.iter().flatten().flatten().chain(&self.others).collect();
        let keeps = Keeps { heading: &self.heading, summary, results };
        serde_json::to_vec_pretty(&keeps)
            .map_err(std::io::Error::from)
            .and_then(|json| demask_hub::write_whole(path, &json))
            .with_context(|| format!("cannot write `{}`", escape(path.as_os_str().as_encoded_bytes())))?;
        self.saved = Instant::now();
        Ok(())
    }
}

/// Tells two things apart (FNV-1a, 64 bits). No defence against people who want them to be equal.
pub(super) struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Takes a part, and where it ends.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// A text's.
    pub(super) fn of_text(text: &str) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(text.as_bytes());
        fingerprint
    }

    /// The same, with its bits mixed (SplitMix64): neighbours lie far apart.
    pub(super) fn lot(&self) -> u64 {
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A model's: its tensors, the first bytes of each, and its template.
    pub(super) fn of_model(gguf: &Gguf) -> String {
        let mut fingerprint = Fingerprint::default();
        for tensor in gguf.tensors() {
            fingerprint.add(format!("{} {:?} {}", tensor.name, tensor.dims, tensor.ty.name()).as_bytes());
            let bytes = gguf.bytes(tensor);
            fingerprint.add(&bytes[..bytes.len().min(4096)]);
        }
        let template = gguf.metadata().string("tokenizer.chat_template").ok().flatten();
        fingerprint.add(template.unwrap_or_default().as_bytes());
        fingerprint.to_string()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
