//! demask and candle (its `QMatMul`) on the same quantised matrices, in turns, each in a process of its own.
//!
//!     cargo run --release --manifest-path bench/candle/Cargo.toml -- [--isa avx2] [--rounds 5] [--share -19] [--out FILE]
//!
//! Two threads, 148 rows. With `--isa avx2` both are held to AVX2. `--share` gives every measured process a scheduling
//! group of its own with that weight (Linux; needs root), so that other work on a busy machine disturbs less. What
//! counts is the ratio of medians. Both programs quantise the activations in the measured time.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Tensor};
use demask_compute::conformance::{Random, random_weights};
use demask_compute::cpu::CpuOptions;
use demask_compute::quant::QuantType;
use demask_compute::{Backend, Cpu};

const ROWS: usize = 148;
/// Type, n, k and the ratio to candle's time that demask means to stay below.
const MATRICES: [(&str, usize, usize, f64); 5] = [
    ("Q4_K", 4096, 4096, 0.6),
    ("Q4_K", 12288, 4096, 0.6),
    ("Q6_K", 4096, 4096, 0.75),
    ("Q6_K", 4096, 12288, 0.75),
    ("Q8_0", 4096, 4096, 1.0),
];
/// How long a process measures.
const BUDGET: Duration = Duration::from_millis(1500);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, program, ty, n, k] = &args[..]
        && command == "worker"
    {
        return worker(program, ty, n.parse()?, k.parse()?);
    }
    let option = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let rounds: usize = option("--rounds").map_or(Ok(5), |text| text.parse())?;
    let isa = option("--isa");
    let mut lines = vec![
        format!("demask and candle {} on {ROWS} rows, 2 threads, {}", candle_version(), isa.map_or("native", |isa| isa)),
        String::new(),
        "| matrix | demask ms | candle ms | ratio of medians | at most |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for (ty, n, k, bar) in MATRICES {
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (program, seconds) in ["demask", "candle"].iter().zip(&mut seconds) {
                seconds.push(measure(program, ty, n, k, isa, option("--share"))?);
            }
        }
        let [demask, candle] = seconds.map(median);
        let (ours, theirs, ratio) = (demask * 1e3, candle * 1e3, demask / candle);
        lines.push(format!("| {ty} {n} x {k} | {ours:.2} | {theirs:.2} | {ratio:.2} | {bar} |"));
        eprintln!("{}", lines[lines.len() - 1]);
    }
    let text = lines.join("\n") + "\n";
    match option("--out") {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

/// candle's version, from this package's lock file.
fn candle_version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"candle-core\"").skip(1);
    lines.next().and_then(|line| line.strip_prefix("version = ")).unwrap_or("?").trim_matches('"')
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median seconds per product of one program.
fn measure(program: &str, ty: &str, n: usize, k: usize, isa: Option<&String>, share: Option<&String>) -> Result<f64> {
    let exe = std::env::current_exe()?;
    // `setsid` gives the process its own scheduling group.
    let mut command = match share {
        Some(_) => {
            let mut command = Command::new("setsid");
            command.arg("--wait").arg(&exe);
            command
        }
        None => Command::new(&exe),
    };
    command.args(["worker", program, ty, &n.to_string(), &k.to_string()]);
    command.env("RAYON_NUM_THREADS", "2").env("CANDLE_NUM_THREADS", "2");
    if let Some(share) = share {
        command.env("SHARE", share);
    }
    if let Some(isa) = isa {
        command.env("DEMASK_ISA", isa);
        if isa == "avx2" {
            // The switch that candle's kernels were given.
            command.env("MISTRALRS_FORCE_AVX2", "1");
        }
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{program} on {ty} {n} x {k} failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn worker(program: &str, ty: &str, n: usize, k: usize) -> Result<()> {
    if let Ok(share) = std::env::var("SHARE") {
        std::fs::write("/proc/self/autogroup", share)?;
    }
    let (ty, dtype) = match ty {
        "Q4_K" => (QuantType::Q4K, GgmlDType::Q4K),
        "Q6_K" => (QuantType::Q6K, GgmlDType::Q6K),
        "Q8_0" => (QuantType::Q8_0, GgmlDType::Q8_0),
        _ => return Err(format!("unknown type {ty}").into()),
    };
    let weights = random_weights(ty, n, k, 1);
    let values = Random::new(2).values(ROWS * k);
    let seconds = match program {
        "demask" => {
            let cpu = Cpu::new(&CpuOptions { threads: Some(2), isa: None })?;
            let matrix = cpu.matrix(&weights)?;
            let (mut x, mut operand, mut out) = (cpu.rows(ROWS, k), cpu.operand(ROWS, k), cpu.rows(ROWS, n));
            cpu.write(&values, &mut x);
            times(|| {
                cpu.quantize(&x, &mut operand);
                cpu.linear(&operand, &matrix, None, &mut out);
                Ok(())
            })?
        }
        _ => {
            let data = std::borrow::Cow::Borrowed(&weights.bytes[..]);
            let tensor = QTensor::new(QStorage::from_data(data, &Device::Cpu, dtype)?, (n, k))?;
            let matrix = QMatMul::from_qtensor(tensor)?;
            let x = Tensor::from_vec(values, (ROWS, k), &Device::Cpu)?;
            times(|| {
                std::hint::black_box(matrix.forward(&x)?);
                Ok(())
            })?
        }
    };
    println!("{}", median(seconds));
    Ok(())
}

fn times(mut run: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    run()?; // whatever is set up once
    let (start, mut seconds) = (Instant::now(), Vec::new());
    while start.elapsed() < BUDGET || seconds.len() < 3 {
        let one = Instant::now();
        run()?;
        seconds.push(one.elapsed().as_secs_f64());
    }
    Ok(seconds)
}
