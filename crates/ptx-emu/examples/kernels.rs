//! Lists the kernels of PTX files, or says what in them isn't understood: `cargo run --example kernels FILE...`.

use std::process::ExitCode;

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let read = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"));
        match read.and_then(|text| ptx_emu::Module::parse(&path, &text).map_err(|error| error.to_string())) {
            Ok(module) => println!("{path}: {}", module.kernels().collect::<Vec<_>>().join(" ")),
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
