//! Where the limits of this process's control groups stand in the file system.

use std::path::{Path, PathBuf};

/// A folder with limits that hold for this process.
pub(super) struct Group {
    pub(super) folder: PathBuf,
    /// Whether it is of the unified hierarchy (version 2).
    pub(super) unified: bool,
}

impl Group {
    /// The first line of one of the folder's files.
    pub(super) fn read(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.join(name)).ok()?;
        Some(text.trim().to_owned())
    }
}

/// Every folder on the process's path, from the top down, in which `controller` (`cpu`, `memory`) may have limits. The
/// tightest one holds. Reads `proc/self/cgroup` and `sys/fs/cgroup` below `root`.
pub(super) fn groups(root: &Path, controller: &str) -> Vec<Group> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let base = root.join("sys/fs/cgroup");
    let mut groups = Vec::new();
    // Inside a container the path may be another one than outside: the top folder always counts.
    let top = ["0::/".to_owned(), format!("1:{controller}:/")];
    for line in text.lines().map(str::to_owned).chain(top) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mut folder, unified) = match controllers {
            "" => (base.clone(), true),
            list if list.split(',').any(|c| c == controller) => (base.join(controller), false),
            _ => continue,
        };
        groups.push(Group { folder: folder.clone(), unified });
        for part in path.split('/').filter(|part| !part.is_empty() && *part != "..") {
            folder.push(part);
            groups.push(Group { folder: folder.clone(), unified });
        }
    }
    groups
}
