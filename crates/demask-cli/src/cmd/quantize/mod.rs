//! `demask quantize`: a model with wide weights into one with fewer bits.

mod mix;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use demask_compute::QuantType;
use demask_compute::cpu::threads;
use demask_gguf::{Gguf, TensorInfo, TensorType, Value, Writer, escape};

use super::writable::check_place;
use crate::args::QuantizeArgs;
use crate::consent::{self, NeedsYes};
use crate::failure::{Advised, Ended};
use crate::output::{self, size};
use crate::signals;
use crate::view::transfer::Transfer;

use mix::Mix;
pub(crate) use mix::Target;

/// Weights that a thread encodes at a time.
const PORTION: usize = 1 << 17;
/// Types that are taken as a source: nothing more is lost by reading them.
const SOURCES: [TensorType; 4] = [TensorType::F32, TensorType::F16, TensorType::BF16, TensorType::Q8_0];

/// What becomes of a tensor.
struct Step<'a> {
    tensor: &'a TensorInfo,
    ty: TensorType,
}

/// Runs the command.
pub(crate) fn run(args: &QuantizeArgs) -> Result<()> {
    let gguf = Gguf::open(&args.input)?;
    check_place(&args.output, parts(&args.input, gguf.parts()).iter().map(PathBuf::as_path))?;
    let mix = Mix::of(&gguf, args.ty)?;
    let steps = plan(&gguf, &mix)?;
    let bytes: u64 = steps.iter().map(|step| bytes_of(step.tensor, step.ty)).sum();
    if args.output.exists() && !args.force {
        let name = escape(args.output.as_os_str().as_encoded_bytes());
        let message = format!("`{name}` is there already, and not written over without a yes");
        consent::ask(&format!("Write over `{name}`?"), || NeedsYes::new(message, again(args)))?;
    }
    check_space(&args.output, bytes)?;
    signals::watch().context("cannot watch for Ctrl-C")?;
    let written = write(&gguf, &steps, args)?;
    let kinds = mix::counts(steps.iter().map(|step| step.ty));
    let weights: u64 = steps.iter().map(|step| step.tensor.elements()).sum();
    let bits = bytes as f64 * 8.0 / weights.max(1) as f64;
    let name = escape(args.output.as_os_str().as_encoded_bytes());
    output::line("note", &format!("{name}: {}, {bits:.2} bits per weight ({kinds})", size(written)));
    Ok(())
}

/// The types of all tensors; tensors whose rows don't fit theirs are told about.
fn plan<'a>(gguf: &'a Gguf, mix: &Mix) -> Result<Vec<Step<'a>>> {
    let mut substituted = Vec::new();
    let mut steps = Vec::new();
    for tensor in gguf.tensors() {
        let Some(wanted) = mix.wanted(tensor) else {
            steps.push(Step { tensor, ty: tensor.ty });
            continue;
        };
        if !SOURCES.contains(&tensor.ty) {
            let message = format!(
                "cannot quantise {}: tensor `{}` is {} already, and another rounding would add to its error",
                gguf.name(),
                escape(&tensor.name),
                tensor.ty
            );
            return Err(Advised::new(message, "start from a file with F32, F16, BF16 or Q8_0 weights").into());
        }
        let ty = mix::fitting(wanted, tensor.row_len());
        if ty != wanted {
            substituted.push(tensor);
        }
        steps.push(Step { tensor, ty });
    }
    if let Some(first) = substituted.first() {
        let message = format!(
            "{} tensors have rows that are no multiple of 256 and get a type with shorter quant blocks (the first is `{}`, {})",
            substituted.len(),
            escape(&first.name),
            first.shape()
        );
        output::line("warning", &message);
    }
    Ok(steps)
}

fn bytes_of(tensor: &TensorInfo, ty: TensorType) -> u64 {
    ty.row_bytes(tensor.row_len()).unwrap_or(0).saturating_mul(tensor.rows())
}

/// Every file of the input: none of them may be the output.
fn parts(input: &Path, count: usize) -> Vec<PathBuf> {
    let name = input.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let ending = name.len().checked_sub("00001-of-00002.gguf".len()).filter(|_| count > 1);
    match ending.and_then(|at| name.get(..at)) {
        Some(stem) => {
            (1..=count).map(|part| input.with_file_name(format!("{stem}{part:05}-of-{count:05}.gguf"))).collect()
        }
        None => vec![input.to_owned()],
    }
}

fn again(args: &QuantizeArgs) -> String {
    let (input, output) = (args.input.display(), args.output.display());
    format!("demask quantize {input} {output} --type {} --force", args.ty.name())
}

fn check_space(output: &Path, needed: u64) -> Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A system that doesn't tell is found out by writing.
    match demask_hub::free_space(folder) {
        Ok(free) if free < needed => {
            let message =
                format!("no space: {} are needed and {} are free in {}", size(needed), size(free), folder.display());
            Err(Advised::new(message, "write to another disk, or free some space").into())
        }
        _ => Ok(()),
    }
}

fn write(gguf: &Gguf, steps: &[Step<'_>], args: &QuantizeArgs) -> Result<u64> {
    let threads = args.threads.unwrap_or_else(threads::available);
    let (progress, failure) = (std::cell::RefCell::new(Transfer::new()), std::cell::Cell::new(None));
    let all: u64 = steps.iter().map(|step| step.tensor.byte_len()).sum();
    let done = std::cell::Cell::new(0u64);
    // Made after what its closures borrow.
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        // What speaks of the file and not of the model is written anew.
        if !key.starts_with("split.") && !matches!(key, "general.file_type" | "general.quantization_version") {
            writer.add(key, value.clone())?;
        }
    }
    writer.add("general.file_type", Value::U32(args.ty.file_type()))?;
    writer.add("general.quantization_version", Value::U32(2))?;
    for step in steps {
        let (progress, failure, done) = (&progress, &failure, &done);
        writer.tensor_with(&step.tensor.name, &step.tensor.dims, step.ty, move |out| {
            let mut advance = |bytes: u64| {
                done.set(done.get() + bytes);
                progress.borrow_mut().work("quantising", done.get(), all);
            };
            convert(gguf, step, threads, out, &mut advance).map_err(|fault| {
                let kind = match &fault {
                    Fault::Io(error) => error.kind(),
                    _ => io::ErrorKind::Other,
                };
                failure.set(Some(fault));
                io::Error::new(kind, "stopped")
            })
        })?;
    }
    let written = writer.save(&args.output);
    drop(writer);
    drop(progress);
    match failure.into_inner() {
        Some(Fault::Interrupted) => {
            output::line("note", "stopped: nothing was written");
            Err(Ended::Interrupted.into())
        }
        Some(Fault::NotFinite(name)) => {
            let message = format!(
                "cannot quantise {}: tensor `{}` holds numbers that are not finite",
                gguf.name(),
                escape(&name)
            );
            Err(Advised::new(message, "the file may be damaged; get it again").into())
        }
        Some(Fault::Io(error)) => {
            Err(error).with_context(|| format!("cannot write {}", escape(args.output.as_os_str().as_encoded_bytes())))
        }
        None => Ok(written?),
    }
}

/// Why a tensor isn't written.
enum Fault {
    Io(io::Error),
    NotFinite(String),
    Interrupted,
}

/// Writes a tensor in its new type, portion by portion.
fn convert(
    gguf: &Gguf,
    step: &Step<'_>,
    threads: usize,
    out: &mut dyn io::Write,
    advance: &mut dyn FnMut(u64),
) -> Result<(), Fault> {
    let bytes = gguf.bytes(step.tensor);
    let known = |ty: TensorType| QuantType::from_name(ty.name());
    let (from, to) = match (known(step.tensor.ty), known(step.ty)) {
        (Some(from), Some(to)) if step.ty != step.tensor.ty => (from, to),
        _ => {
            for chunk in bytes.chunks(1 << 22) {
                if signals::interrupted() {
                    return Err(Fault::Interrupted);
                }
                out.write_all(chunk).map_err(Fault::Io)?;
                advance(chunk.len() as u64);
            }
            return Ok(());
        }
    };
    // Rows end on the quant blocks of both types, so that a portion of whole 256s of weights does, too; the last one is
    // what is left, which is whole rows.
    let weights = step.tensor.elements() as usize;
    let size = |ty: QuantType, weights: usize| ty.row_bytes(weights).unwrap_or(0);
    for start in (0..weights).step_by(PORTION * threads) {
        if signals::interrupted() {
            return Err(Fault::Interrupted);
        }
        let end = weights.min(start + PORTION * threads);
        let source = &bytes[size(from, start)..size(from, end)];
        let mut encoded = vec![0; size(to, end - start)];
        let finite = std::thread::scope(|scope| {
            let pieces = source.chunks(size(from, PORTION)).zip(encoded.chunks_mut(size(to, PORTION)));
            let workers: Vec<_> = pieces.map(|(source, out)| scope.spawn(|| encode(from, to, source, out))).collect();
            workers.into_iter().all(|worker| worker.join().is_ok_and(|finite| finite))
        });
        if !finite {
            return Err(Fault::NotFinite(step.tensor.name.clone()));
        }
        out.write_all(&encoded).map_err(Fault::Io)?;
        advance(source.len() as u64);
    }
    Ok(())
}

/// Encodes a portion; whether all its weights are finite.
fn encode(from: QuantType, to: QuantType, source: &[u8], out: &mut [u8]) -> bool {
    let row = from.row();
    let mut values = vec![0.0; source.len() / row.block_bytes * row.block_len];
    from.decode(source, &mut values);
    let finite = values.iter().all(|value| value.is_finite());
    if finite {
        to.encode(&values, out);
    }
    finite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_split_input_are_known() {
        let names = |input: &str, count| -> Vec<String> {
            parts(Path::new(input), count).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("/m/x-00002-of-00002.gguf", 2), ["/m/x-00001-of-00002.gguf", "/m/x-00002-of-00002.gguf"]);
        assert_eq!(names("/m/x.gguf", 1), ["/m/x.gguf"]);
    }
}
