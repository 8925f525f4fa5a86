//! What `--help` says of the commands around models: a change shows up in the snapshots.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::run;

#[test]
fn commands_around_models_explain_themselves() {
    for command in ["pull", "list", "rm", "setup", "doctor", "quantize"] {
        let outcome = run(&[command, "--help"]).succeeded();
        insta::assert_snapshot!(format!("help-{command}"), outcome.text());
        assert!(outcome.text().contains("Examples:") && outcome.text().lines().all(|line| line.chars().count() <= 100));
    }
}
