//! How the values of options are read, and what is said about those that can't be.

use demask::diffusion::RECIPES;
use demask::{CachePolicy, GpuLayers, UnmaskRule};

use super::settings::RecipeChoice;

/// The most that a count may be: more than any context, few enough to count through.
pub(super) const MOST: usize = 1_000_000;

pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse::<u64>() {
        Ok(n) if n <= MOST as u64 => Ok(n as usize),
        _ => Err(format!("it must be a whole number up to {MOST}")),
    }
}

pub(super) fn positive(text: &str) -> Result<usize, String> {
    count(text).ok().filter(|&n| n > 0).ok_or_else(|| format!("it must be a whole number from 1 to {MOST}"))
}

/// `NxK`, small enough to be made up in memory.
pub(super) fn shape(text: &str) -> Result<(usize, usize), String> {
    let sides = text.split_once('x').map(|(n, k)| (positive(n), positive(k)));
    match sides {
        Some((Ok(n), Ok(k))) if n * k <= 1 << 28 => Ok((n, k)),
        _ => Err("it must be rows and columns like 4096x4096, at most 2^28 weights".to_owned()),
    }
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err("it must be a whole number from 1 to 1024".to_owned()),
    }
}

pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 0 to {}", u64::MAX))
}

pub(crate) fn number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "it must be a number".to_owned())
}

pub(super) fn range(text: &str) -> Result<(usize, usize), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (count(first), count(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("it must be positions like 0,4-7".to_owned()),
    }
}

/// Token ids: `5` or `17-20`.
pub(super) fn token_range(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (count(first), count(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok((first as u32, last as u32)),
        _ => Err("it must be token ids like 5,17-20".to_owned()),
    }
}

/// Where a model runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    Auto,
    Cpu,
    Gpu(usize),
}

pub(super) fn device(text: &str) -> Result<DeviceChoice, String> {
    match text {
        "auto" => Ok(DeviceChoice::Auto),
        "cpu" => Ok(DeviceChoice::Cpu),
        "gpu" => Ok(DeviceChoice::Gpu(0)),
        _ => text
            .strip_prefix("gpu:")
            .and_then(|number| number.parse().ok())
            .map(DeviceChoice::Gpu)
            .ok_or_else(|| "it must be auto, cpu, gpu, or gpu:N with the number of a GPU".to_owned()),
    }
}

pub(super) fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" => Ok(GpuLayers::Auto),
        _ => text
            .parse()
            .ok()
            .filter(|&count| count > 0)
            .map(GpuLayers::Count)
            .ok_or_else(|| "it must be auto or a number over 0 (none: `--device cpu`)".to_owned()),
    }
}

pub(crate) fn recipe(text: &str) -> Result<RecipeChoice, String> {
    RecipeChoice::read(text)
}

pub(super) fn recipe_names() -> String {
    RECIPES.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

pub(super) fn unmask_rule(name: &str) -> Result<UnmaskRule, String> {
    UnmaskRule::from_name(name).ok_or_else(|| format!("it must be one of {}", unmask_names()))
}

fn unmask_names() -> String {
    UnmaskRule::ALL.map(UnmaskRule::name).join(", ")
}

pub(super) fn unmask_help() -> String {
    format!("Which positions a step decides: {} [default: the recipe's; exact: the model's reference]", unmask_names())
}

pub(super) fn cache_policy(name: &str) -> Result<CachePolicy, String> {
    CachePolicy::from_name(name)
        .ok_or_else(|| format!("it must be one of {}", CachePolicy::ALL.map(CachePolicy::name).join(", ")))
}
