//! `demask bench`: its output, not its figures.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::process::Stdio;

use harness::{demask, run};

const QUICK: [&str; 11] =
    ["bench", "--rows", "1,7", "--repeat", "2", "--shapes", "64x256", "--product-rows", "3", "--budget-ms", "3"];

#[test]
fn every_weight_type_and_row_count_is_measured() {
    let json = run(&[&QUICK[..], &["--json"]].concat()).succeeded().json();
    let types: Vec<&str> = json["products"].as_array().unwrap().iter().map(|p| p["ty"].as_str().unwrap()).collect();
    assert_eq!(types.len(), 15, "{types:?}");
    assert!(json["products"].as_array().unwrap().iter().all(|p| p["gmacs"].as_f64().unwrap() > 0.0));
    let passes = json["forward"]["passes"].as_array().unwrap();
    assert_eq!(passes.iter().map(|p| p["rows"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 7]);
    assert!(passes.iter().all(|p| p["seconds"].as_array().unwrap().len() == 2));

    let outcome = run(&[&QUICK[..], &["--forward-only"]].concat()).succeeded();
    let table = outcome.text();
    assert!(table.contains("demask-tiny") && !table.contains("Q4_K"), "{table}");
}

#[test]
fn e11_a_reader_that_leaves_is_no_failure() {
    let mut child = demask().args(QUICK).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panic"), "{stderr}");
}
