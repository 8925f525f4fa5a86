//! How many threads to use: the physical cores that the process may run on, within its cgroup's CPU quota.

use std::collections::HashSet;
use std::path::Path;

use super::cgroup::{Group, groups};

/// The default thread count of this process, at least 1.
pub fn available() -> usize {
    available_under(Path::new("/"))
}

/// Logical CPUs that this process may run on: more threads than that are never faster.
pub fn runnable() -> usize {
    let listed = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| allowed(&status));
    listed.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |cpus| cpus.len().max(1))
}

/// [`available`] with another root folder, for tests: reads `proc/self/{status,cgroup}`, `sys/devices/system/cpu` and
/// `sys/fs/cgroup` below it.
pub fn available_under(root: &Path) -> usize {
    let cores =
        physical_cores(root).or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    match quota(root) {
        Some(quota) => cores.min(quota.max(1)),
        None => cores,
    }
}

/// Distinct (package, core) pairs among the CPUs of the affinity mask; `None` where the system doesn't say.
fn physical_cores(root: &Path) -> Option<usize> {
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let cpus = allowed(&status)?;
    let read = |cpu: usize, name: &str| {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"));
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let cores: HashSet<(Option<String>, Option<String>, usize)> = cpus
        .iter()
        .map(|&cpu| match (read(cpu, "physical_package_id"), read(cpu, "core_id")) {
            (package, Some(core)) => (package, Some(core), 0),
            (package, None) => (package, None, cpu),
        })
        .collect();
    (!cores.is_empty()).then_some(cores.len())
}

/// The CPUs of a `proc/self/status`.
fn allowed(status: &str) -> Option<Vec<usize>> {
    cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// Parses `0-3,8,10-11`; `None` if it isn't such a list.
pub fn cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<usize>().ok()?);
        cpus.extend((first..=last).take(1 << 16));
    }
    Some(cpus)
}

/// CPUs by the tightest quota of the process's control groups, rounded down; `None` if there is none.
fn quota(root: &Path) -> Option<usize> {
    let quotas = groups(root, "cpu").into_iter().filter_map(|group| quota_of(&group));
    quotas.min_by(f64::total_cmp).map(|cpus| cpus as usize)
}

fn quota_of(group: &Group) -> Option<f64> {
    let (quota, period) = match group.unified {
        true => group.read("cpu.max")?.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
        false => (group.read("cpu.cfs_quota_us")?, group.read("cpu.cfs_period_us")?),
    };
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn machine(cpus: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{cpus}\n"));
        files.iter().for_each(|(name, text)| write(name, text));
        root
    }

    #[test]
    fn case_e01_quota_of_the_container() {
        for (max, wanted) in [("200000 100000", 2), ("765000 100000", 7), ("max 100000", 16), ("1000 100000", 1)] {
            let root = machine("0-15", &[("sys/fs/cgroup/cpu.max", max)]);
            assert_eq!(available_under(root.path()), wanted, "cgroup v2 {max}");
        }
        let nested = machine(
            "0-15",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/cpu.max", "300000 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(available_under(nested.path()), 3, "the tightest limit on the path");
        for (quota, wanted) in [("400000", 4), ("-1", 16)] {
            let files =
                [("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota), ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")];
            assert_eq!(available_under(machine("0-15", &files).path()), wanted, "cgroup v1 {quota}");
        }
    }

    #[test]
    fn hyper_threads_share_a_core() {
        let names: Vec<(String, String)> = (0..4)
            .map(|cpu| (format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), (cpu / 2).to_string()))
            .collect();
        let files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (&**name, &**text)).collect();
        assert_eq!(available_under(machine("0-3", &files).path()), 2);
        assert_eq!(available_under(machine("1", &files).path()), 1, "affinity");
    }

    #[test]
    fn case_e34_cpu_lists() {
        assert_eq!(cpu_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpu_list("0,2,4\n"), Some(vec![0, 2, 4]));
        assert_eq!(cpu_list(""), Some(vec![]));
        assert_eq!(cpu_list("a-b"), None);
    }
}
