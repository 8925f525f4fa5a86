//! What neither rustfmt nor clippy sees.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Lines of a Rust file outside tests.
const HARD_CAP: usize = 800;
/// Lines of the two texts that read like the paper.
const PAPER_CAP: usize = 120;
const PAPER: &[&str] = &[
    "crates/demask/src/diffusion/generate.rs",
    "crates/demask/src/model/llada.rs",
    "crates/demask/src/model/dream.rs",
];
/// Where unsafe code may stand.
const UNSAFE: &[&str] = &[
    "crates/demask-gguf/src/mmap.rs",
    "crates/demask-compute/src/cpu/pointers.rs",
    "crates/demask-compute/src/cpu/pool.rs",
    "crates/demask-compute/src/cpu/shared.rs",
    "crates/demask-compute/src/cpu/x86/",
    "crates/demask-compute/src/cpu/arm/",
    "crates/demask-compute/tests/",
    "crates/demask-gpu/src/cuda/",
];
/// Paths that belong to one machine, and words that mean unfinished work. Split so that this file passes itself.
const BANNED: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("TO", "DO"), concat!("FIX", "ME")];

pub(crate) fn tidy(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for name in tracked_files(root)? {
        let path = root.join(&name);
        let Ok(text) = std::fs::read_to_string(&path) else { continue }; // binary, or deleted but not committed
        check_text(&name, &text, &mut faults);
        if name.ends_with(".rs") {
            check_rust(&name, &text, &mut faults);
        }
    }
    faults.extend(crate::figures::stale(root)?);
    if faults.is_empty() {
        return Ok(());
    }
    bail!("tidy: {} fault(s)\n  {}", faults.len(), faults.join("\n  "))
}

/// Files that git knows.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output
        .stdout
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

fn check_text(name: &str, text: &str, faults: &mut Vec<String>) {
    let prose =
        [".rs", ".py", ".md", ".toml", ".sh", ".yml"].iter().any(|end| name.ends_with(end)) || name.starts_with(".ci/");
    if !prose {
        return;
    }
    for (number, line) in (1..).zip(text.lines()) {
        for word in BANNED.iter().filter(|word| line.contains(**word)) {
            faults.push(format!("{name}:{number}: `{word}`"));
        }
        if line.ends_with([' ', '\t']) && !name.ends_with(".md") {
            faults.push(format!("{name}:{number}: space at the end of the line"));
        }
    }
}

fn check_rust(name: &str, text: &str, faults: &mut Vec<String>) {
    let is_test = name.contains("/tests/") || name.ends_with("tests.rs") || name.contains("/fuzz/");
    let lines = text.lines().take_while(|line| line.trim() != "mod tests {").count();
    let cap = if PAPER.contains(&name) { PAPER_CAP } else { HARD_CAP };
    if !is_test && lines > cap {
        faults.push(format!("{name}: {lines} lines outside tests, at most {cap}"));
    }
    let opening = text.lines().find(|line| !line.starts_with("#!") && !line.is_empty()).unwrap_or_default();
    if !(opening.starts_with("//!") || opening.starts_with("/*!")) {
        faults.push(format!("{name}: does not open with what it is for (`//! ...`)"));
    }
    if UNSAFE.iter().any(|place| name.starts_with(place)) {
        return;
    }
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        if ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"].iter().any(|word| code.contains(word))
            && !name.starts_with("xtask/")
        {
            faults.push(format!("{name}:{number}: unsafe code outside the listed files"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_text(name, text, &mut faults);
        check_rust(name, text, &mut faults);
        faults
    }

    #[test]
    fn each_rule_bites() {
        assert!(faults("crates/x/src/a.rs", "//! A.\n\nfn a() {}\n").is_empty());
        assert_eq!(faults("crates/x/src/a.rs", "fn a() {}\n").len(), 1, "no opening");
        assert_eq!(faults("crates/x/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n").len(), 1, "unsafe");
        assert_eq!(faults("crates/x/src/a.rs", &format!("//! A.\n{}", "\n".repeat(HARD_CAP + 1))).len(), 1, "long");
        assert_eq!(faults("crates/x/src/a.rs", &format!("//! See {}me/x.\n", "/ho")).len(), 1, "a machine's path");
        assert!(faults("crates/demask-gguf/src/mmap.rs", "//! A.\nfn a() { unsafe { b() } }\n").is_empty());
    }
}
