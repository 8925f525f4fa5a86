//! Release builds: static Linux binaries, packed with what belongs to them. Rust brings the linker and the C library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{report, root};

/// What is built.
struct Target {
    name: &'static str,
    /// Compiles the little C and assembly that the cryptography of downloads has.
    compiler: &'static str,
    /// Runs it on another processor.
    emulator: &'static str,
}

const TARGETS: &[Target] = &[
    Target { name: "x86_64-unknown-linux-musl", compiler: "musl-gcc", emulator: "qemu-x86_64" },
    Target { name: "aarch64-unknown-linux-musl", compiler: "aarch64-linux-gnu-gcc", emulator: "qemu-aarch64" },
];
/// What a binary must answer before it is packed.
const QUESTION: &str = "What is 2 + 3?";
const ANSWER: &str = "2 + 3 = 5";
const SHELLS: &[(&str, &str)] = &[("bash", "demask.bash"), ("zsh", "_demask"), ("fish", "demask.fish")];

/// Builds, tries and packs every target into `target/dist`.
pub(crate) fn dist() -> Result<()> {
    let root = root();
    let target_dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let out = target_dir.join("dist");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut archives = Vec::new();
    for Target { name: target, compiler, emulator } in TARGETS {
        build(target, compiler)?;
        let binary = target_dir.join(target).join("release/demask");
        let bytes = std::fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
        ensure!(is_static(&bytes), "{} asks for a dynamic loader or isn't a 64-bit ELF file", binary.display());
        let native = target.starts_with(std::env::consts::ARCH);
        let runner = if native { None } else { find(emulator) };
        if native || runner.is_some() {
            let answer = output(runner.as_deref(), &binary, &["run", "--seed", "1", QUESTION])?;
            ensure!(String::from_utf8_lossy(&answer).trim() == ANSWER, "{target} answers {answer:?}");
            report(&format!("{target}: {:.1} MB, static, answers right", bytes.len() as f64 / 1e6));
        } else {
            report(&format!(
                "{target}: {:.1} MB, static, not tried: there is no {emulator} here",
                bytes.len() as f64 / 1e6
            ));
        }
        archives.push(pack(&out, target, &binary, runner.as_deref().filter(|_| !native), native)?);
    }
    let sums =
        Command::new("sha256sum").args(&archives).current_dir(&out).output().context("cannot start sha256sum")?;
    ensure!(sums.status.success(), "sha256sum failed");
    std::fs::write(out.join("SHA256SUMS"), &sums.stdout).context("cannot write SHA256SUMS")?;
    report(&format!("{} and SHA256SUMS are in {}", archives.join(", "), out.display()));
    Ok(())
}

fn build(target: &str, compiler: &str) -> Result<()> {
    let name = target.replace('-', "_");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    if std::env::var_os(format!("CC_{name}")).is_none() && find(compiler).is_some() {
        // The compiler of a glibc system would call functions that only glibc has.
        command.env(format!("CC_{name}"), compiler).env(format!("CFLAGS_{name}"), "-U_FORTIFY_SOURCE");
    }
    let status = command
        .args(["build", "--release", "--package", "demask-cli", "--target", target])
        .env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), "rust-lld")
        .env(
            format!("CARGO_TARGET_{}_RUSTFLAGS", name.to_uppercase()),
            "-C target-feature=+crt-static -C strip=symbols",
        )
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the build for {target} failed; it needs `rustup target add {target}` and a C compiler, {compiler}");
    }
    Ok(())
}

/// Whether an ELF file names no loader (no program header of type PT_INTERP).
fn is_static(elf: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let u64_at = |at: usize| elf.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")) as usize);
    let u16_at = |at: usize| elf.get(at..at + 2).map(|b| u16::from_le_bytes(b.try_into().expect("2 bytes")) as usize);
    let (true, Some(table), Some(size), Some(count)) =
        (elf.starts_with(b"\x7fELF\x02\x01"), u64_at(32), u16_at(54), u16_at(56))
    else {
        return false;
    };
    (0..count)
        .all(|n| elf.get(table + n * size..).is_some_and(|header| header.get(..4) != Some(&PT_INTERP.to_le_bytes())))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn output(runner: Option<&Path>, binary: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut words: Vec<OsString> = runner.iter().map(OsString::from).collect();
    words.push(binary.into());
    let output = Command::new(&words[0]).args(&words[1..]).args(arguments).stdin(std::process::Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", words[0].display()))?;
    ensure!(
        output.status.success(),
        "{} {arguments:?} failed: {}",
        binary.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// The archive's name.
fn pack(out: &Path, target: &str, binary: &Path, runner: Option<&Path>, native: bool) -> Result<String> {
    let name = format!("demask-{}-{target}", env!("CARGO_PKG_VERSION"));
    let folder = out.join(&name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("completions")).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::copy(binary, folder.join("demask")).context("cannot copy the binary")?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(root().join(file), folder.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    // A binary that can't run here gets the pages of one that can: they are the same.
    let speaks = if native || runner.is_some() { binary.to_owned() } else { host_binary(out)? };
    for (shell, file) in SHELLS {
        std::fs::write(folder.join("completions").join(file), output(runner, &speaks, &["completions", shell])?)?;
    }
    let man = folder.join("man/man1");
    output(runner, &speaks, &["man", "--out", &man.display().to_string()])?;
    let archive = format!("{name}.tar.gz");
    // The same input gives the same archive.
    let status = Command::new("tar")
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mtime=@0",
            "-I",
            "gzip -n",
            "-cf",
            &archive,
            &name,
        ])
        .current_dir(out)
        .status()
        .context("cannot start tar")?;
    ensure!(status.success(), "tar failed");
    Ok(archive)
}

fn host_binary(out: &Path) -> Result<PathBuf> {
    let native = TARGETS.iter().find(|target| target.name.starts_with(std::env::consts::ARCH));
    let native = native.context("this processor has no target of its own")?;
    Ok(out.with_file_name(native.name).join("release/demask"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_found() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        assert!(is_static(&elf));
        elf[64 + 56] = 3;
        assert!(!is_static(&elf));
        assert!(!is_static(b"#!/bin/sh"));
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
        assert_eq!(is_static(&own), cfg!(target_feature = "crt-static"));
    }
}
