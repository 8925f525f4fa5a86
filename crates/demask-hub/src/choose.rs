//! Which files of a repository are meant: one model, of the quantisation that was asked for or of the usual one.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::name::RepoId;

/// What is taken if nothing is asked for, best first.
const USUAL: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// A model of a repository: one file, or all parts of a split one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSet {
    /// In the order of the parts.
    pub(crate) files: Vec<String>,
    /// How many there must be.
    pub(crate) parts: u32,
    /// The first part that isn't there.
    pub(crate) missing: Option<u32>,
    /// The quantisation by its name.
    pub(crate) quant: Option<String>,
}

impl FileSet {
    /// What users write behind the colon: the quantisation, or the file's name.
    pub(crate) fn label(&self) -> String {
        self.quant.clone().unwrap_or_else(|| base_name(&self.files[0]).to_owned())
    }
}

/// What files of one set have in common: depth of their folder, name without the number, count of the parts.
type SetKey = (usize, String, u32);

/// The models among the files of a repository, those nearest to its top first, then by name.
pub(crate) fn file_sets<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<FileSet> {
    let mut sets: BTreeMap<SetKey, Vec<(u32, &str)>> = BTreeMap::new();
    for name in names.into_iter().filter(|name| is_model(name)) {
        let depth = name.matches('/').count();
        match split_part(name) {
            Some((stem, part, count)) => sets.entry((depth, stem.to_owned(), count)).or_default().push((part, name)),
            None => sets.entry((depth, name.to_owned(), 0)).or_default().push((1, name)),
        }
    }
    let set = |((_, _, count), mut files): (SetKey, Vec<(u32, &str)>)| {
        files.sort_unstable();
        let parts = count.max(1);
        let missing = (1..=parts).find(|part| !files.iter().any(|(found, _)| found == part));
        let quant = quant_of(files[0].1);
        FileSet { files: files.into_iter().map(|(_, name)| name.to_owned()).collect(), parts, missing, quant }
    };
    sets.into_iter().map(set).collect()
}

/// The set that a user means.
pub(crate) fn choose<'a>(
    repo: &RepoId,
    names: impl IntoIterator<Item = &'a str>,
    quant: Option<&str>,
) -> Result<FileSet, Error> {
    let sets = file_sets(names);
    if sets.is_empty() {
        return Err(Error::NoGguf { repo: repo.to_string() });
    }
    let chosen = match quant {
        Some(quant) => sets.iter().find(|set| is_called(set, quant)),
        None => {
            let usual = USUAL.iter().find_map(|usual| sets.iter().find(|set| set.quant.as_deref() == Some(usual)));
            usual.or(sets.first())
        }
    };
    let Some(chosen) = chosen else {
        let mut has: Vec<String> = sets.iter().map(FileSet::label).collect();
        has.dedup();
        let has = demask_gguf::escape(has.join(", "));
        return Err(Error::NoQuant { repo: repo.to_string(), quant: quant.unwrap_or_default().to_owned(), has });
    };
    match chosen.missing {
        Some(part) => Err(Error::MissingPart {
            repo: repo.to_string(),
            file: demask_gguf::escape(base_name(&chosen.files[0])),
            part,
            count: chosen.parts,
        }),
        None => Ok(chosen.clone()),
    }
}

/// Whether a set is the one behind the colon: by quantisation, or by the name of its first file.
pub(crate) fn is_called(set: &FileSet, wanted: &str) -> bool {
    let file = &set.files[0];
    set.quant.as_deref().is_some_and(|quant| quant.eq_ignore_ascii_case(wanted))
        || file.eq_ignore_ascii_case(wanted)
        || base_name(file).eq_ignore_ascii_case(wanted)
}

/// The quantisation that a file's name tells: `Q4_K_M` of `LLaDA-8B-Instruct.Q4_K_M.gguf`, or else of its folder.
pub(crate) fn quant_of(name: &str) -> Option<String> {
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    name.rsplit('/').find_map(quant_in)
}

fn quant_in(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let begins = |at: usize| at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
    let mut found = None;
    for at in (0..bytes.len()).filter(|&at| begins(at)) {
        let length = bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let word = text[at..at + length].to_ascii_uppercase();
        let digits = ["IQ", "TQ", "Q"].iter().find_map(|prefix| word.strip_prefix(prefix));
        let is_quant = digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            || ["F16", "BF16", "F32", "FP16", "FP32", "MXFP4", "MXFP4_MOE"].contains(&word.as_str());
        if is_quant {
            found = Some(word);
        }
    }
    found
}

/// Weights that can be run; other GGUF files of a repository are companions.
fn is_model(name: &str) -> bool {
    let base = base_name(name).to_ascii_lowercase();
    base.ends_with(".gguf") && !base.starts_with("mmproj") && !base.contains("imatrix")
}

fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Stem, number and count of `NAME-00001-of-00003.gguf`.
fn split_part(name: &str) -> Option<(&str, u32, u32)> {
    let stem = name.strip_suffix(".gguf")?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (stem, part) = stem.rsplit_once('-')?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 5);
    let (part, count) = (number(part)?, number(count)?);
    (part >= 1 && part <= count).then_some((stem, part, count))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chosen(names: &[&str], quant: Option<&str>) -> Result<Vec<String>, Error> {
        let repo = "a/b".parse::<crate::ModelName>().unwrap().repo;
        choose(&repo, names.iter().copied(), quant).map(|set| set.files)
    }

    #[test]
    fn quantisations_are_read_off_names() {
        for (name, quant) in [
            ("LLaDA-8B-Instruct.Q4_K_M.gguf", Some("Q4_K_M")),
            ("Dream-org_Dream-v0-Instruct-7B-Q4_K_M.gguf", Some("Q4_K_M")),
            ("x-q8_0.gguf", Some("Q8_0")),
            ("x_q8_0.gguf", Some("Q8_0")),
            ("LLaDA.i1-IQ4_XS.gguf", Some("IQ4_XS")),
            ("x-bf16.gguf", Some("BF16")),
            ("Q6_K/x-00001-of-00002.gguf", Some("Q6_K")),
            ("x-Q5_K_M-00001-of-00002.gguf", Some("Q5_K_M")),
            ("llada-8b.gguf", None),
            ("sequence.gguf", None),
        ] {
            assert_eq!(quant_of(name).as_deref(), quant, "{name}");
        }
    }

    #[test]
    fn the_usual_quantisation_is_taken() {
        let (q4, q8, q2) = ("m.Q4_K_M.gguf", "m.Q8_0.gguf", "m.Q2_K.gguf");
        assert_eq!(chosen(&[q2, q8, q4, "README.md"], None).unwrap(), [q4]);
        assert_eq!(chosen(&[q2, q8], None).unwrap(), [q8]);
        assert_eq!(chosen(&["z.gguf", q2, "mmproj-F16.gguf", "a.imatrix.gguf"], None).unwrap(), [q2]);
        assert_eq!(chosen(&[q2, q8, q4], Some("q8_0")).unwrap(), [q8]);
        assert_eq!(chosen(&[q2, q8, q4], Some("m.Q2_K.gguf")).unwrap(), [q2]);
        let error = chosen(&[q2, q8, q4], Some("Q4_K")).unwrap_err();
        assert_eq!(error.to_string(), "a/b has no file of quantisation Q4_K; it has Q2_K, Q4_K_M, Q8_0");
        assert!(matches!(chosen(&["README.md"], None), Err(Error::NoGguf { .. })));
    }

    #[test]
    fn parts_stay_together() {
        let names = ["m-Q4_K_M-00002-of-00002.gguf", "m-Q4_K_M-00001-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"];
        let both = ["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"];
        assert_eq!(chosen(&names, None).unwrap(), both);
        let error = chosen(&names, Some("Q8_0")).unwrap_err();
        assert_eq!(error.to_string(), "a/b lacks part 2 of 2 of m-Q8_0-00001-of-00002.gguf");
    }
}
