//! Faults of a GPU, of its driver and of its size, through a driver that has no card: one line each, and what to do.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Outcome, demask, finish, fixture};

/// Builds the driver into a folder of its own.
fn driver(folder: &Path, flags: &[&str]) -> PathBuf {
    let place = folder.join(format!("driver{}", flags.concat()));
    std::fs::create_dir_all(&place).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_driver/cuda.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(place.join("libcuda.so.1")).args(flags).arg(source);
    assert!(cc.status().unwrap().success(), "cc builds the fake driver");
    place
}

fn with_driver(driver: &Path, fault: &str, device: &[&str], file: &str) -> Outcome {
    let model = fixture(file);
    let args = ["run", "-m", &model, "-n", "8", "--no-chat", "hi"];
    finish(demask().args(args).args(device).env("LD_LIBRARY_PATH", driver).env("FAKE_CUDA", fault))
}

#[test]
fn every_fault_is_one_line_and_says_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, missing) = (driver(folder.path(), &[]), driver(folder.path(), &["-DMISSING"]));
    let gpu = ["--device", "gpu"];
    for (driver, fault, device, words, hint) in [
        (&missing, "none", &gpu[..], &["too old", "cuLaunchKernel"][..], "--device cpu"),
        (&whole, "no-device", &gpu, &["finds none"], "--device cpu"),
        (&whole, "no-card-0", &gpu, &["finds none"], "--device cpu"),
        (&whole, "old", &gpu, &["too old", "11.8", "12.0"], "--device cpu"),
        (&whole, "old-card", &gpu, &["Fake Card", "7.5", "8.0"], "--device cpu"),
        (&whole, "none", &["--device", "gpu:3"], &["GPU 3", "there is one"], "--device gpu:N"),
        (&whole, "tiny", &gpu, &["Fake Card", "1 layer", "GB are free"], "--device cpu"),
        (&whole, "oom=5", &gpu, &["out of memory", "MB were asked for"], "--gpu-layers"),
        (&whole, "oom=60", &gpu, &["out of memory", "MB were asked for"], "--gpu-layers"),
        (&whole, "lost=0", &gpu, &["lost", "launch failure"], "--device cpu"),
        (&whole, "lost=20", &gpu, &["lost", "launch failure"], "--device cpu"),
        (&whole, "bad-ptx", &gpu, &["compiling the kernels", "ptxas fatal: what is this second line"], "--device cpu"),
    ] {
        let outcome = with_driver(driver, fault, device, "tiny-llada-q8_0");
        outcome.refused(1, words);
        let hints = outcome.stderr.lines().filter(|line| line.starts_with("hint: "));
        assert!(hints.clone().any(|line| line.contains(hint)), "{fault}: {}", outcome.stderr);
    }
}

#[test]
fn memory_may_run_out_and_the_card_may_be_lost_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(folder.path(), &[]);
    for (fault, words, hint, least) in
        [("oom", ["out of memory", "MB were asked for"], "--gpu-layers", 40), ("lost", ["lost", "launch"], "cpu", 200)]
    {
        // Later and later, until the run comes to its end.
        let mut at = 0;
        loop {
            let (fault, device) = (format!("answers,{fault}={at}"), ["--device", "gpu", "--json"]);
            let outcome = with_driver(&driver, &fault, &device, "tiny-llada-q8_0");
            if outcome.code == Some(0) {
                break;
            }
            outcome.refused(1, &words);
            assert!(outcome.stderr.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)));
            at += 1 + at / 8;
        }
        assert!(at > least, "{fault} at {at} does no harm");
    }
}

#[test]
fn text_that_was_final_before_the_card_was_lost_stays() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(folder.path(), &[]);
    let outcome = with_driver(&driver, "answers,lost=100", &["--device", "gpu"], "tiny-llada-q8_0");
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let text = outcome.text().strip_suffix('\n').unwrap();
    assert!(!text.is_empty() && text.chars().all(|c| c == '('), "{text:?}");
    assert!(outcome.stderr.contains("error: the GPU was lost while "), "{}", outcome.stderr);
}

#[test]
fn a_run_on_the_gpu_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(folder.path(), &[]);
    for (device, temperature) in [("gpu", "0"), ("gpu:0", "0.7"), ("auto", "0")] {
        let args = ["--device", device, "--json", "--temperature", temperature];
        let outcome = with_driver(&driver, "answers", &args, "tiny-llada-q8_0").succeeded();
        let note = outcome.stderr.lines().find(|line| line.starts_with("note: ")).unwrap_or_default();
        assert!(note.contains("Fake Card") && note.contains("all 2 layers"), "{}", outcome.stderr);
        assert!(outcome.json()["peak_gpu_bytes"].as_u64().unwrap() > 100_000, "{}", outcome.text());
    }
}

#[test]
fn without_a_driver_gpu_is_refused_and_auto_runs_on_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), "not a library").unwrap();
    let outcome = with_driver(folder.path(), "none", &["--device", "gpu"], "tiny-llada-q8_0");
    outcome.refused(1, &["cannot use a GPU", "driver"]);
    let outcome = with_driver(folder.path(), "none", &["--device", "auto"], "tiny-llada-q8_0").succeeded();
    assert!(!outcome.stderr.contains("GPU"), "{}", outcome.stderr);
}

#[test]
fn auto_says_why_it_does_not_take_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(folder.path(), &[]);
    for (fault, words) in [("old-card", "7.5"), ("tiny", "GB are free"), ("old", "too old")] {
        let outcome = with_driver(&driver, fault, &["--device", "auto"], "tiny-llada-q8_0").succeeded();
        let note = outcome.stderr.lines().find(|line| line.starts_with("note: ")).unwrap_or_default();
        assert!(note.contains("running on the CPU") && note.contains(words), "{fault}: {}", outcome.stderr);
    }
}

#[test]
fn layers_that_do_not_fit_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(folder.path(), &[]);
    // All layers of a tiny model fit beside the spare room of a small card, its head doesn't.
    let outcome = with_driver(&driver, "small", &["--device", "gpu", "--gpu-layers", "99"], "tiny-llada-q8_0");
    outcome.refused(1, &["GB are free"]);
    assert!(outcome.stderr.contains("--gpu-layers 2"), "{}", outcome.stderr);
    let outcome = with_driver(&driver, "none", &["--device", "cpu", "--gpu-layers", "1"], "tiny-llada-q8_0");
    outcome.refused(2, &["--gpu-layers", "--device cpu"]);
    let outcome = with_driver(&driver, "none", &["--device", "tpu"], "tiny-llada-q8_0");
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn equal_steps_become_a_graph() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, log) = (driver(folder.path(), &[]), folder.path().join("log"));
    let model = fixture("tiny-llada-q8_0");
    let args = ["bench", "-m", &model, "--device", "gpu", "--forward-only", "--rows", "8", "--repeat", "5"];
    let mut command = demask();
    command.args(args).env("LD_LIBRARY_PATH", driver).env("FAKE_CUDA", "none").env("FAKE_CUDA_LOG", &log);
    finish(&mut command).succeeded();
    let counts: Vec<u64> =
        std::fs::read_to_string(log).unwrap().split(' ').map(|count| count.parse().unwrap()).collect();
    // The first pass gets its scratch memory on the way, the second is seen for the first time, the third makes a graph.
    assert_eq!(counts, [1, 3], "graphs and their launches");
}
