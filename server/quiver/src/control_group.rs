//! How much memory the control groups of the process allow it, as systemd (`MemoryMax=`) and containers set it.

use std::fs;
use std::path::{Component, Path};

/// Where the kernel tells which groups the process is in, and where their files are mounted.
const MEMBERSHIP: &str = "/proc/self/cgroup";
const MOUNTED: &str = "/sys/fs/cgroup";
/// Files with limits in bytes, in version 2. Above the second the kernel slows the group down until it has given back
/// enough, which serves nobody either.
const LIMITS: [&str; 2] = ["memory.max", "memory.high"];
/// The same in version 1.
const OLD_LIMITS: [&str; 1] = ["memory.limit_in_bytes"];

/// Returns the least limit in bytes of the groups that the process belongs to; `None`: there is none, or the system does
/// not tell.
pub fn memory_limit_bytes() -> Option<u64> {
    least(&fs::read_to_string(MEMBERSHIP).unwrap_or_default(), Path::new(MOUNTED))
}

/// The least limit of all groups in a membership (lines `number:controllers:path`) and of the groups around them.
fn least(membership: &str, mounted: &Path) -> Option<u64> {
    let mut least = of_files(mounted, &LIMITS);
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (top, files) = match controllers {
            "" => (mounted.to_owned(), &LIMITS[..]),
            named if named.split(',').any(|one| one == "memory") => (mounted.join("memory"), &OLD_LIMITS[..]),
            _ => continue,
        };
        // A container may see its own group as the top one, while the path is that of the machine.
        let mut group = top.clone();
        let mut limits = vec![of_files(&top, files)];
        for name in Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))) {
            group.push(name);
            limits.push(of_files(&group, files));
        }
        least = limits.into_iter().flatten().chain(least).min();
    }
    least
}

/// The least of the limits in a folder; the word `max` and 0, with which nothing could run, are none.
fn of_files(group: &Path, files: &[&str]) -> Option<u64> {
    let read = |name: &&str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    files.iter().filter_map(read).filter(|limit| *limit > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(membership: &str, files: &[(&str, &str)], expected: Option<u64>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        assert_eq!(least(membership, dir.path()), expected, "{membership:?} {files:?}");
    }

    /// A service of systemd is in a group below the top one, which has no limit itself.
    #[test]
    fn groups_below_the_top() {
        let service = "0::/system.slice/quiver.service\n";
        check(service, &[("system.slice/quiver.service/memory.max", "1073741824")], Some(1 << 30));
        check(
            service,
            &[("system.slice/memory.max", "500"), ("system.slice/quiver.service/memory.max", "max")],
            Some(500),
        );
        let (max, high) = ("system.slice/quiver.service/memory.max", "system.slice/quiver.service/memory.high");
        check(service, &[(max, "1000"), (high, "800")], Some(800));
        check(service, &[(max, "1000"), (high, "max")], Some(1000));
        check(service, &[(max, "max"), (high, "max"), ("other.slice/memory.max", "7")], None);
        check(service, &[(max, "0")], None);
        check(service, &[], None);
    }

    #[test]
    fn containers_see_their_own_group_at_the_top() {
        check("0::/\n", &[("memory.max", "4096")], Some(4096));
        check("", &[("memory.max", "4096")], Some(4096));
        check("0::/../../other\n", &[("memory.max", "4096")], Some(4096));
        check("4:memory:/docker/1f\n0::/\n", &[("memory/memory.limit_in_bytes", "4096")], Some(4096));
    }

    #[test]
    fn groups_of_version_1() {
        let membership = "9:name=systemd:/\n5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n0::/\n";
        let (outer, inner) = ("memory/a/memory.limit_in_bytes", "memory/a/b/memory.limit_in_bytes");
        check(membership, &[(outer, "9223372036854771712"), (inner, "2048")], Some(2048));
        check(membership, &[(outer, "1024"), (inner, "2048")], Some(1024));
        check("3:memory_other:/a\n", &[(outer, "1024")], None);
        // A path may hold colons.
        check("4:memory:/a:b\n", &[("memory/a:b/memory.limit_in_bytes", "12")], Some(12));
    }

    #[test]
    fn what_this_machine_says_is_read() {
        assert!(memory_limit_bytes().is_none_or(|limit| limit > 0));
    }
}
