//! How much memory this process may still use.

use std::path::Path;

use super::cgroup::{Group, groups};

/// Bytes that can be allocated without swapping: what the system has available, within the tightest control group limit;
/// `None` where the system doesn't say.
pub fn available() -> Option<u64> {
    available_under(Path::new("/"))
}

/// The same with another root folder, for tests: reads `proc/meminfo`, `proc/self/cgroup` and `sys/fs/cgroup` below it.
pub fn available_under(root: &Path) -> Option<u64> {
    let limits = groups(root, "memory");
    limits.iter().filter_map(free_in).chain(system(root)).min()
}

/// `MemAvailable`.
fn system(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a group's limit leaves: file pages are given back on demand, so they don't count as used.
fn free_in(group: &Group) -> Option<u64> {
    let (limit, usage, file) = match group.unified {
        true => ("memory.max", "memory.current", "file"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
    };
    // Without a limit the file says `max`, or (version 1) a number close to 2^63.
    let limit = group.read(limit)?.parse::<u64>().ok().filter(|&limit| limit < 1 << 62)?;
    let usage = group.read(usage)?.parse::<u64>().ok()?;
    let statistics = group.read("memory.stat").unwrap_or_default();
    let cached = statistics
        .lines()
        .find_map(|line| line.split_once(' ').filter(|(name, _)| *name == file))
        .and_then(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine(files: &[(&str, String)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let memory = ("proc/meminfo", format!("MemTotal: 99 kB\nMemAvailable: {} kB\n", 8 * GIB / 1024));
        for (name, text) in files.iter().chain([&memory]) {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn group(folder: &str, max: &str) -> Vec<(&'static str, String)> {
        let leak = |name: &str| -> &'static str { Box::leak(format!("sys/fs/cgroup/{folder}{name}").into_boxed_str()) };
        vec![
            (leak("memory.max"), max.to_owned()),
            (leak("memory.current"), (19 * GIB / 10).to_string()),
            (leak("memory.stat"), format!("anon 5\nfile {}\nkernel 7\n", 3 * GIB / 2)),
        ]
    }

    #[test]
    fn case_e05_limits_of_the_container() {
        let near = |found: Option<u64>, wanted: f64| {
            let found = found.unwrap() as f64 / GIB as f64;
            assert!((found - wanted).abs() < 0.001, "{found} GiB, wanted {wanted}");
        };
        near(available_under(machine(&[]).path()), 8.0);
        near(available_under(machine(&group("", &(2 * GIB).to_string())).path()), 1.6);
        near(available_under(machine(&group("", "max")).path()), 8.0);
        let mut nested = vec![("proc/self/cgroup", "0::/a/b\n".to_owned())];
        nested.extend(group("a/", &(2 * GIB).to_string()));
        nested.extend(group("a/b/", "max"));
        near(available_under(machine(&nested).path()), 1.6);
        let v1 = |limit: u64| {
            let base = "sys/fs/cgroup/memory/memory";
            let leak = |name: &str| -> &'static str { Box::leak(format!("{base}.{name}").into_boxed_str()) };
            machine(&[
                (leak("limit_in_bytes"), limit.to_string()),
                (leak("usage_in_bytes"), (19 * GIB / 10).to_string()),
                (leak("stat"), format!("cache 0\ntotal_cache {}\n", 3 * GIB / 2)),
            ])
        };
        near(available_under(v1(2 * GIB).path()), 1.6);
        near(available_under(v1(0x7fff_ffff_ffff_f000).path()), 8.0);
    }
}
