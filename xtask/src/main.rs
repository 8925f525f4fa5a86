//! Project checks: `cargo xtask ci` is the whole gate, `cargo xtask tidy` its quick part.

mod dist;
mod figures;
mod model;
mod pictures;
mod ptx;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask <task>

  ci      everything that must hold: fmt, tidy, clippy, rustdoc, tests, tests with the scalar kernels forced
  ptx     whether the PTX of the kernels is what clang 19 makes of their sources
  docs    write the generated pages of docs/ (tests say when they are out of date)
  pictures
          draw the pictures of docs/ and of the README from a run of the embedded model
  dist    static Linux binaries for x86-64 and aarch64, packed, in target/dist
  tidy    file sizes, unsafe only where it is listed, no paths of one machine, files that say what they are for
  figures [--measure]
          the recipes' figures, from the newest bench/runs/*/eval-heldout.json into `--recipe list` and docs/benchmarks.md;
          --measure: run `demask eval` anew first (release build, minutes)
  model SHAPE FILE
          a full-size model with random weights, for measuring: llada-8b (4.9 GB), dream-7b (4.7 GB)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci(),
        ["ptx"] => ptx::check(&root()),
        ["docs"] => docs(),
        ["pictures"] => pictures::pictures(),
        ["dist"] => dist::dist(),
        ["tidy"] => tidy::tidy(&root()),
        ["figures"] => figures::write(&root(), false),
        ["figures", "--measure"] => figures::write(&root(), true),
        ["model", shape, file] => model::write(shape, Path::new(file)),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

#[expect(clippy::print_stderr, reason = "a task's only output")]
fn report(message: &str) {
    eprintln!("{message}");
}

fn ci() -> Result<()> {
    cargo(&["fmt", "--all", "--", "--check"], &[])?;
    tidy::tidy(&root())?;
    if ptx::can_check() || std::env::var_os("DEMASK_REQUIRE_CLANG").is_some() {
        ptx::check(&root())?;
    } else {
        report("--- NOT CHECKED for want of clang 19: whether the PTX of the kernels is what their sources give");
    }
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo(&["test", "--workspace"], &[])?;
    // The fallback of every machine must give the same answers. The emulated GPU has nothing to do with it and takes minutes.
    let emulated =
        ["logits_equal_the_oracles_and_the_cpus", "generations_equal_the_oracles", "tokens_drawn_on_the_device"];
    let tests = ["test", "--package", "demask-compute", "--package", "demask", "--"];
    let skip: Vec<&str> = emulated.iter().flat_map(|name| ["--skip", name]).collect();
    cargo(&[&tests[..], &skip].concat(), &[("DEMASK_ISA", "scalar")])
}

fn docs() -> Result<()> {
    cargo(&["test", "--package", "demask-cli", "--test", "docs"], &[("DEMASK_WRITE_DOCS", "1")])
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let shown: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value:?} ")).collect();
    let shown = format!("{}cargo {}", shown.concat(), arguments.join(" "));
    report(&format!("--- {shown}"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed");
    }
    Ok(())
}
