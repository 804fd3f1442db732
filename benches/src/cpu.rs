//! CPU time of the process: what the goals of the issue are stated in, which a wall clock on two cores does not show.

use std::io::Write;
use std::time::Instant;

/// CPU seconds that the process used so far, threads that ended included; to a hundredth, so measure many runs.
pub fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The name in parentheses may hold blanks; user and system time are the 12th and 13th field behind it.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2));
    fields.into_iter().flatten().filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Runs something a number of times; says what one run costs in CPU and wall time.
pub fn report(name: &str, runs: u32, mut run: impl FnMut()) {
    let (began, before) = (Instant::now(), seconds());
    (0..runs).for_each(|_| run());
    let (wall, cpu) = (began.elapsed().as_secs_f64(), seconds() - before);
    let (wall, cpu) = (wall / f64::from(runs) * 1e3, cpu / f64::from(runs) * 1e3);
    say(&format!("{name}: {cpu:.3} ms CPU, {wall:.3} ms wall, mean of {runs} runs"));
}

/// Runs something over samples once; says what a million of them costs.
pub fn report_samples(name: &str, samples: usize, run: impl FnOnce()) {
    let (began, before) = (Instant::now(), seconds());
    run();
    let (wall, cpu, millions) = (began.elapsed().as_secs_f64(), seconds() - before, samples as f64 / 1e6);
    say(&format!(
        "{name}: {:.3} s CPU, {:.3} s wall per million samples, over {millions} million",
        cpu / millions,
        wall / millions
    ));
}

/// Writes a line of the report.
pub fn say(text: &str) {
    writeln!(std::io::stdout(), "cpu: {text}").expect("standard output is open");
}
