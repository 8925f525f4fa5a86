//! The documentation against the code: what is generated is up to date, what is written names everything there is.
//! `cargo xtask docs` runs this with `DEMASK_WRITE_DOCS`, which writes instead of comparing.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::fmt::Write as _;

use demask::diffusion::RECIPES;
use demask::model::ARCHITECTURES;
use demask::{CachePolicy, UnmaskRule};
use demask_compute::quant::QUANT_TYPES;
use harness::{commands, help, workspace};

/// Compares a file with what it should be, or makes it so.
fn check(path: &str, wanted: &str) {
    let file = workspace(path);
    if std::env::var_os("DEMASK_WRITE_DOCS").is_some() {
        std::fs::write(&file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let different = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{path} is out of date, run `cargo xtask docs`; first difference: {different:?}");
}

/// A file with the text between its markers `generated: NAME` and `end` replaced.
fn with_block(text: &str, name: &str, block: &str) -> String {
    let (before, rest) =
        text.split_once(&format!("<!-- generated: {name} -->\n")).unwrap_or_else(|| panic!("no {name}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    format!("{before}<!-- generated: {name} -->\n{block}<!-- end -->{after}")
}

fn check_blocks(path: &str, blocks: &[(&str, String)]) {
    let mut text = std::fs::read_to_string(workspace(path)).unwrap();
    for (name, block) in blocks {
        text = with_block(&text, name, block);
    }
    check(path, &text);
}

#[test]
fn the_command_reference_is_the_help_of_every_command() {
    let mut text = "# Commands\n\nThis page is generated from the program by `cargo xtask docs`.\n".to_owned();
    write!(text, "\n## demask\n\n```text\n{}```\n", help(&[])).unwrap();
    for command in commands() {
        write!(text, "\n## demask {command}\n\n```text\n{}```\n", help(&[&command])).unwrap();
    }
    check("docs/reference/commands.md", &text);
}

#[test]
fn the_tables_of_recipes_are_those_of_the_code() {
    let mut table = "| recipe | what it does | settings |\n|---|---|---|\n".to_owned();
    for row in &RECIPES {
        let flags = row.flags();
        let flags = if flags.is_empty() { "the model's own".to_owned() } else { format!("`{flags}`") };
        writeln!(table, "| `{}` | {} | {flags} |", row.name, row.description).unwrap();
    }
    check_blocks("docs/guides/recipes.md", &[("recipes", table)]);
}

#[test]
fn the_tables_of_models_and_weight_types_are_those_of_the_code() {
    let mut models = "| architecture | reference sampler | unmaskers of it, the default first | logits are shifted |\n|---|---|---|---|\n".to_owned();
    for row in ARCHITECTURES {
        let rules: Vec<String> = row.family.rules().iter().map(|rule| format!("`{}`", rule.name())).collect();
        let shifted = if row.shift_logits { "yes" } else { "no" };
        writeln!(models, "| `{}` | {} | {} | {shifted} |", row.name, row.family.name(), rules.join(", ")).unwrap();
    }
    let mut quants =
        "| type | bits | weights per quant block | bytes per quant block | multiplied in |\n|---|---|---|---|---|\n"
            .to_owned();
    for row in QUANT_TYPES {
        let bits = row.block_bytes as f64 * 8.0 / row.block_len as f64;
        let kind = if row.codes.is_some() { "int8" } else { "f32" };
        writeln!(quants, "| {} | {bits} | {} | {} | {kind} |", row.name, row.block_len, row.block_bytes).unwrap();
    }
    check_blocks("docs/reference/models.md", &[("architectures", models), ("quants", quants)]);
}

/// The first column of the table that follows a heading's columns.
fn first_column(text: &str, header: &str) -> Vec<String> {
    let (_, table) = text.split_once(header).unwrap_or_else(|| panic!("no table `{header}`"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_start_matches("| `").split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn every_unmasker_and_cache_policy_is_explained() {
    let text = std::fs::read_to_string(workspace("docs/guides/recipes.md")).unwrap();
    assert_eq!(first_column(&text, "| unmasker |"), UnmaskRule::ALL.map(|rule| rule.name().to_owned()));
    assert_eq!(first_column(&text, "| cache policy |"), CachePolicy::ALL.map(|policy| policy.name().to_owned()));
}

#[test]
fn copies_are_equal_to_what_they_are_copies_of() {
    let runs = std::fs::read_dir(workspace("bench/runs")).unwrap();
    let plots = runs.map(|run| run.unwrap().path().join("eval-heldout.svg")).filter(|path| path.exists());
    // The newest, by the date that its folder's name begins with.
    let plot = std::fs::read_to_string(plots.max().unwrap()).unwrap();
    check("docs/pictures/recipes.svg", &plot);
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    let docs = workspace("docs");
    let summary = std::fs::read_to_string(format!("{docs}/SUMMARY.md")).unwrap();
    let mut pages = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(&docs)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 15);
    let readmes =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "assets/README.md", "crates/demask-cli/README.md"];
    for page in pages.iter().cloned().chain(readmes.map(|name| workspace(name).into())) {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.strip_prefix(&docs).map_or(String::new(), |name| name.display().to_string());
        if !name.is_empty() && name != "SUMMARY.md" {
            assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
        }
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{}: the link to {target} leads nowhere", page.display());
        }
    }
}
