//! Information about the process and its machine.

use std::fs;

use quiver_api::metrics::write_metric;
use quiver_types::{Result, failpoint};

use crate::control_group;

/// Version of the product.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arms the fail points that the environment variable names, in any crate.
///
/// # Errors
/// Invalid: there is no such fail point.
pub fn arm_failpoints() -> Result<()> {
    let text = std::env::var(failpoint::VARIABLE).unwrap_or_default();
    let lists = [
        quiver_store::failpoint::NAMES,
        quiver_query::failpoint::NAMES,
        quiver_config::failpoint::NAMES,
        quiver_auth::failpoint::NAMES,
        quiver_alertd::failpoint::NAMES,
    ];
    failpoint::arm(&text, &lists)
}

/// The memory available to the process in bytes: what its control groups allow, or else that of the machine.
pub fn memory_total_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    });
    let machine = machine.unwrap_or(4 << 30);
    control_group::memory_limit_bytes().map_or(machine, |group| group.min(machine))
}

/// The resident memory of the process in bytes; `None` if the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The part of it that is not backed by a file, unlike the executable.
pub fn anonymous_bytes() -> Option<u64> {
    status_bytes("RssAnon:")
}

/// The part of it that is backed by files: nearly all of it pages of the executable.
pub fn file_bytes() -> Option<u64> {
    status_bytes("RssFile:")
}

fn status_bytes(line: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|l| l.strip_prefix(line))?;
    Some(kib.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// The number of threads that can run in parallel.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the soft limit of open files as far as allowed, and returns it; `None` if there is no limit, or the system
/// does not tell.
pub fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
        return current;
    }
    maximum
}

/// Writes metrics of the process under the usual names (`process_…`).
pub fn write_metrics(out: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name in parentheses, which may contain blanks; so count from after it.
    let fields: Vec<f64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect())
        .unwrap_or_default();
    let field = |n: usize| fields.get(n).copied().unwrap_or(0.0);
    // USER_HZ is 100 in every Linux ABI that Rust's standard library supports.
    let ticks = 100.0;
    let fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let one = |v: f64| vec![(String::new(), v)];
    write_metric(out, "process_cpu_seconds_total", "counter", "CPU time used.", &one((field(11) + field(12)) / ticks));
    write_metric(
        out,
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory.",
        &one(resident_bytes().unwrap_or(0) as f64),
    );
    write_metric(out, "process_threads", "gauge", "Threads.", &one(field(17)));
    write_metric(out, "process_open_fds", "gauge", "Open file descriptors.", &one(fds as f64));
    if tikv_jemalloc_ctl::epoch::advance().is_ok() {
        let allocated = tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0) as f64;
        write_metric(out, "quiver_memory_allocated_bytes", "gauge", "Bytes in live allocations.", &one(allocated));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQLite and zstd allocate in C, as tests do, which have no allocator of their own.
    #[test]
    fn allocations_of_c_are_counted() {
        let allocated = || {
            tikv_jemalloc_ctl::epoch::advance().unwrap();
            tikv_jemalloc_ctl::stats::allocated::read().unwrap()
        };
        let before = allocated();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let grown = allocated().saturating_sub(before);
        assert!(grown > 48 << 20, "{grown} bytes for {}", held.len());
    }

    #[test]
    fn figures_are_there() {
        assert!(memory_total_bytes() > 1 << 20);
        let mut out = String::new();
        write_metrics(&mut out);
        let rss = out.lines().find_map(|l| l.strip_prefix("process_resident_memory_bytes ")).unwrap();
        assert!(rss.parse::<f64>().unwrap() > 1e6, "{rss}");
    }
}
