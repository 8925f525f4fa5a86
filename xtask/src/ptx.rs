//! Whether the PTX that is checked in is what its sources give: every `kernels/build.sh` is run into an empty folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The compiler that made the PTX. Other versions give other texts.
const CLANG: &str = "clang++-19";

/// Whether the compiler is here.
pub(crate) fn can_check() -> bool {
    Command::new(CLANG).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Rebuilds every folder of kernels and compares.
pub(crate) fn check(root: &Path) -> Result<()> {
    if !can_check() {
        bail!("cannot start `{CLANG}`, which compiles the kernels (Debian: apt-get install clang-19)");
    }
    let scratch = root.join("target/ptx");
    let mut faults = Vec::new();
    for (index, script) in scripts(&root.join("crates"))?.into_iter().enumerate() {
        let out = scratch.join(index.to_string());
        if out.exists() {
            std::fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
        }
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let status = Command::new("bash")
            .arg(&script)
            .arg(&out)
            .status()
            .with_context(|| format!("cannot start {}", script.display()))?;
        if !status.success() {
            bail!("{} failed", script.display());
        }
        let folder = script.parent().unwrap_or(root);
        let checked_in = if folder.join("ptx").is_dir() { folder.join("ptx") } else { folder.to_path_buf() };
        let (old, new) = (texts(&checked_in)?, texts(&out)?);
        for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
            let what = match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) if old == new => continue,
                (Some(_), Some(_)) => "is not what its source gives",
                (Some(_), None) => "is made by nothing",
                _ => "is not checked in",
            };
            faults.push(format!("{}: {what}", checked_in.join(name).display()));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("ptx: {} fault(s); run the build.sh beside it\n  {}", faults.len(), faults.join("\n  "))
}

/// All `kernels/build.sh` below a folder.
fn scripts(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("kernels/build.sh") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The PTX files of a folder, by name.
fn texts(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut texts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        if path.extension().is_some_and(|end| end == "ptx") {
            let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text);
        }
    }
    Ok(texts)
}
