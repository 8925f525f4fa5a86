//! How many warp-instructions the emulator executes in a second of a processor's time: `cargo run --release --example speed`.

#[path = "../tests/support/mod.rs"]
#[allow(clippy::unwrap_used, unreachable_pub, reason = "made for tests")]
mod support;

use ptx_emu::{Fault, Module};
use support::{Outcome, attention, gemm_q4, gemm_q8, module, rms_norm_q8};

type Launcher = fn(&Module) -> Result<Outcome, Fault>;

#[allow(clippy::print_stdout, reason = "a program for the terminal")]
fn main() -> Result<(), Fault> {
    let kernels: [(&str, Launcher); 4] = [
        ("gemm_q8", |module| gemm_q8(module, [128, 148, 1024], 1)),
        ("gemm_q4", |module| gemm_q4(module, [128, 148, 1024], 1)),
        ("attention", |module| attention(module, 4, 148, 1)),
        ("rows", |module| rms_norm_q8(module, [64, 4096], 1)),
    ];
    for (name, launch) in kernels {
        let module = module(name);
        let (mut best, mut instructions) = (f64::INFINITY, 0);
        for _ in 0..3 {
            let outcome = launch(&module)?;
            instructions = outcome.statistics.instructions;
            best = best.min(outcome.seconds);
        }
        println!("{name}: {instructions} warp-instructions, {:.2} million a second", instructions as f64 / best / 1e6);
    }
    Ok(())
}
