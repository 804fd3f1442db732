//! The text format of Prometheus, as own metrics are written in it.

use std::fmt::Write;

/// Writes one metric with its `# HELP` and `# TYPE` lines.
pub fn write_metric(out: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}
