//! `demask quantize` against llama.cpp's quantiser: the same types, and no larger error.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod harness;

use std::path::Path;

use demask_compute::QuantType;
use demask_gguf::{Gguf, TensorInfo};
use harness::{fixture, run, workspace};

fn values(gguf: &Gguf, tensor: &TensorInfo) -> Vec<f32> {
    let mut values = vec![0.0; tensor.elements() as usize];
    QuantType::from_name(tensor.ty.name()).unwrap().decode(&gguf.bytes(tensor), &mut values);
    values
}

fn rms(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}

#[test]
fn types_and_errors_are_llama_cpps() {
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(workspace("fixtures/golden/quantize.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (source, types) in golden.as_object().unwrap() {
        let before = Gguf::open(workspace(source)).unwrap();
        for (ty, tensors) in types.as_object().unwrap() {
            let out = folder.path().join(format!("{ty}.gguf"));
            let outcome =
                run(&["quantize", &workspace(source), out.to_str().unwrap(), "--type", ty, "--force"]).succeeded();
            assert!(outcome.stderr.contains("bits per weight"), "{}", outcome.stderr);
            let after = Gguf::open(&out).unwrap();
            assert_eq!(after.tensors().len(), tensors.as_object().unwrap().len());
            let (mut worst, mut ours, mut theirs) = (0.0f64, 0.0, 0.0);
            for tensor in after.tensors() {
                let wanted = &tensors[&tensor.name];
                assert_eq!(tensor.ty.name(), wanted["type"], "{source} {ty} {}", tensor.name);
                let error = rms(&values(&after, tensor), &values(&before, before.tensor(&tensor.name).unwrap()));
                let bar = wanted["rms"].as_f64().unwrap();
                assert!(error <= bar * 1.02 + 1e-12, "{source} {ty} {}: {error}, llama.cpp {bar}", tensor.name);
                worst = worst.max(error / bar.max(1e-12));
                (ours, theirs) = (ours + error, theirs + bar);
            }
            let all = if theirs > 0.0 { ours / theirs } else { 1.0 };
            eprintln!("{source} {ty}: error {all:.4} of llama.cpp's over all tensors, at most {worst:.4} of one");
            assert!((0.98..=1.02).contains(&all), "{source} {ty}: {all} of llama.cpp's error");
            let file_type = after.metadata().u32("general.file_type").unwrap().unwrap();
            assert_eq!(
                file_type,
                match ty.as_str() {
                    "Q4_K_M" => 15,
                    "Q5_K_M" => 17,
                    "Q6_K" => 18,
                    _ => 7,
                }
            );
        }
    }
}

#[test]
fn what_was_written_runs() {
    let folder = tempfile::tempdir().unwrap();
    let source = workspace("assets/demask-tiny-q8_0.gguf");
    for ty in ["q4_k_m", "Q6_K"] {
        let out = folder.path().join("out.gguf");
        let out = out.to_str().unwrap();
        run(&["quantize", &source, out, "--type", ty, "--force", "--threads", "3"]).succeeded();
        let outcome = run(&["run", "-n", "48", "List the planets separated by commas.", "-m", out]).succeeded();
        assert!(outcome.text().contains("Mercury, Venus, Earth"), "{ty}: {}", outcome.text());
    }
    // Threads change nothing.
    let bytes = |threads: &str| {
        let out = folder.path().join(threads);
        run(&["quantize", &source, out.to_str().unwrap(), "--type", "Q4_K_M", "-t", threads]).succeeded();
        std::fs::read(out).unwrap()
    };
    assert!(bytes("1") == bytes("5"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn wrong_uses_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = inside("model.gguf");
    std::fs::copy(fixture("tiny-llada-f32"), &model).unwrap();
    let before = std::fs::read(&model).unwrap();
    run(&["quantize", &model, &model, "--type", "Q8_0", "--force"]).refused(1, &["this command reads from it"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&model, inside("link.gguf")).unwrap();
        run(&["quantize", &model, &inside("link.gguf"), "--type", "Q8_0", "-f"])
            .refused(1, &["this command reads from it"]);
    }
    assert_eq!(std::fs::read(&model).unwrap(), before);
    run(&["quantize", &model, &inside("out.gguf")]).refused(2, &["--type"]);
    run(&["quantize", &model, &inside("out.gguf"), "--type", "Q3_K"])
        .refused(2, &["--type Q3_K", "Q4_K_M, Q5_K_M, Q6_K, Q8_0"]);
    run(&["quantize", &model, &inside("no/out.gguf"), "--type", "Q8_0"]).refused(1, &["no such folder"]);
    run(&["quantize", &inside("none.gguf"), &inside("out.gguf"), "--type", "Q8_0"]).refused(1, &["none.gguf"]);

    std::fs::write(inside("out.gguf"), b"mine").unwrap();
    let outcome = run(&["quantize", &model, &inside("out.gguf"), "--type", "Q8_0"]);
    outcome.refused(3, &["is there already", "without a yes"]);
    assert!(outcome.stderr.contains("--type Q8_0 --force` does it"), "{}", outcome.stderr);
    assert_eq!(std::fs::read(inside("out.gguf")).unwrap(), b"mine");
    run(&["quantize", &model, &inside("out.gguf"), "--type", "Q8_0", "--force"]).succeeded();

    let outcome = run(&["quantize", &fixture("tiny-llada-q4_k_m"), &inside("q.gguf"), "--type", "Q4_K_M"]);
    outcome.refused(1, &["is Q", "already", "tiny-llada-q4_k_m.gguf"]);
    assert!(!Path::new(&inside("q.gguf")).exists());
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = Gguf::open(fixture("tiny-llada-f32")).unwrap();
    let mut writer = demask_gguf::Writer::new();
    for (key, value) in source.metadata().iter() {
        writer.add(key, value.clone()).unwrap();
    }
    for tensor in source.tensors() {
        let mut bytes = source.bytes(tensor).to_vec();
        if tensor.name == "blk.1.ffn_up.weight" {
            bytes[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        writer.tensor(&tensor.name, &tensor.dims, tensor.ty, bytes).unwrap();
    }
    let (model, out) = (folder.path().join("nan.gguf"), folder.path().join("out.gguf"));
    writer.save(&model).unwrap();
    let outcome = run(&["quantize", model.to_str().unwrap(), out.to_str().unwrap(), "--type", "Q8_0"]);
    outcome.refused(1, &["blk.1.ffn_up.weight", "not finite", "nan.gguf"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half is left");
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_half() {
    let folder = tempfile::tempdir().unwrap();
    let model = harness::enlarged(folder.path(), "tiny-llada-f32", 4 << 30);
    let out = folder.path().join("out.gguf");
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut child = harness::demask()
        .args(["quantize", model.to_str().unwrap(), out.to_str().unwrap(), "--type", "Q8_0"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while files() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(files(), 1, "only what it read is left");
}
