//! `quiver rules`: checks rule files and runs promtool's unit tests with the engines that the server runs.

mod bench;
pub(crate) mod files;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quiver_alerting::config::is_pattern;
use quiver_alerting::rules::{RuleFile, RuleGroup, duplicates, read};
use quiver_alerting::unit_tests::{self, Outcome, TestFile};
use quiver_api::unit_test_api::RuleBench;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

pub use bench::{Bounds, MemoryPart, StoreBench};
pub use quiver_api::languages::Languages;

/// What came of checking a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// All is well: the number of rules, and what should be known.
    Sound(usize, Vec<String>),
    /// It is valid, but rules write the same series.
    Lint(String),
    /// What is wrong.
    Failed(Vec<String>),
}

/// Reads a text of the user.
fn text_of(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads the text of a file; without a path: the standard input.
fn load(path: Option<&Path>) -> Result<RuleFile, Vec<String>> {
    let text = match path {
        Some(path) => text_of(path),
        None => std::io::read_to_string(std::io::stdin()).map_err(|e| format!("standard input: {e}")),
    };
    let told = |problems: quiver_alerting::problem::Problems| {
        let prefix = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
        problems.iter().map(|p| format!("{prefix}{p}")).collect::<Vec<_>>()
    };
    read(&text.map_err(|e| vec![e])?, &Languages).map_err(told)
}

/// Checks a rule file; without a path: the standard input.
pub fn check(path: Option<&Path>) -> Checked {
    let file = match load(path) {
        Ok(file) => file,
        Err(errors) => return Checked::Failed(errors),
    };
    let twice = duplicates(&file);
    if twice.is_empty() {
        return Checked::Sound(file.rule_count(), file.warnings);
    }
    let mut text = format!("lint error {} duplicate rule(s) found.\n", twice.len());
    for (name, labels) in twice {
        let _ = write!(text, "Metric: {name}\nLabel(s):\n");
        for (name, value) in labels {
            let _ = writeln!(text, "\t{name}: {value}");
        }
    }
    Checked::Lint(text + "Might cause inconsistency while recording expressions")
}

/// Runs the tests of a file; gives what failed, as promtool tells it.
///
/// # Errors
/// The file or a rule file of it cannot be read.
#[allow(clippy::print_stderr, reason = "a command line speaks on its terminal")]
pub fn run_tests(path: &Path, runtime: &Runtime) -> Result<Vec<Outcome>, Vec<String>> {
    let text = text_of(path).map_err(|e| vec![e])?;
    let file: TestFile = unit_tests::read(&text).map_err(|p| p.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut groups: Vec<RuleGroup> = Vec::new();
    let mut seen = HashSet::new();
    for pattern in &file.rule_files {
        if !is_pattern(pattern) {
            return Err(vec![format!("syntax error in pattern `{pattern}`")]);
        }
        let found = files::matching(&folder.join(pattern));
        if found.is_empty() {
            eprintln!("  WARNING: no file match pattern {}", folder.join(pattern).display());
        }
        for path in files::unseen(found, &mut seen) {
            groups.extend(load(Some(&path))?.groups);
        }
    }
    Ok(run_all(&file, &groups, runtime.handle(), &Bounds::default()))
}

fn run_all(file: &TestFile, groups: &[RuleGroup], runtime: &Handle, bounds: &Bounds) -> Vec<Outcome> {
    let step_ms = file.evaluation_interval_ms;
    let run = |test| match StoreBench::open(runtime.clone(), step_ms, bounds) {
        Ok(bench) => unit_tests::run(test, groups, &file.group_eval_order, step_ms, file.fuzzy_compare, &bench),
        Err(e) => Outcome { errors: vec![e], cases: Vec::new() },
    };
    file.tests.iter().take_while(|_| !bounds.stop.is_cancelled()).map(run).collect()
}

/// Runs unit tests that are sent to the server, on its runtime.
#[derive(Debug)]
pub struct ServerBench {
    /// The server's.
    pub runtime: Handle,
    /// What a test may take beside all that the server does.
    pub memory: MemoryPart,
}

impl RuleBench for ServerBench {
    fn run(&self, file: &TestFile, groups: &[RuleGroup], stop: &CancellationToken) -> Vec<Outcome> {
        run_all(file, groups, &self.runtime, &Bounds { memory: Some(self.memory), stop: stop.clone() })
    }
}

/// Checks files as `promtool check rules` does, without any the standard input; gives the exit code.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its terminal")]
pub fn check_command(paths: &[PathBuf], lint_fatal: bool) -> u8 {
    let mut code = 0;
    let files = if paths.is_empty() { vec![None] } else { paths.iter().map(|path| Some(path.as_path())).collect() };
    for path in files {
        println!("Checking {}", path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string()));
        match check(path) {
            Checked::Sound(rules, warnings) => {
                for w in &warnings {
                    println!("  WARNING: {w}");
                }
                println!("  SUCCESS: {rules} rules found");
            }
            Checked::Lint(text) => {
                eprintln!("  FAILED:\n{text}");
                if lint_fatal && code == 0 {
                    code = 3;
                }
            }
            Checked::Failed(errors) => {
                eprintln!("  FAILED:\n{}", errors.join("\n"));
                code = 1;
            }
        }
        println!();
    }
    code
}

/// Runs tests as `promtool test rules` does; gives the exit code.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its terminal")]
pub fn test_command(paths: &[PathBuf], runtime: &Runtime) -> u8 {
    let mut code = 0;
    for path in paths {
        println!("Unit Testing:  {}", path.display());
        let errors: Vec<String> = match run_tests(path, runtime) {
            Ok(outcomes) => outcomes.into_iter().flat_map(|o| o.errors).collect(),
            Err(errors) => errors,
        };
        if errors.is_empty() {
            println!("  SUCCESS");
        } else {
            eprintln!("  FAILED:");
            for error in &errors {
                eprintln!("{error}");
                println!();
            }
            code = 1;
        }
        println!();
    }
    code
}
