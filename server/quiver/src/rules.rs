//! `quiver rules`: checks rule files, and runs promtool's unit tests on the server's engines.

mod bench;
mod command;
pub(crate) mod files;
mod report;

use std::collections::HashSet;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use quiver_alerting::config::is_pattern;
use quiver_alerting::rules::{RuleFile, RuleGroup, duplicates, read_with};
use quiver_alerting::unit_tests::{self, Fault, Outcome, TestFile, TestGroup};
use quiver_api::alerting::rule_bench::RuleBench;
use quiver_types::time::duration::format_go;
use quiver_yaml::problem::UnknownFields;
use regex::Regex;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::terminal::{self, complain};

pub use bench::{Bounds, MemoryPart, StoreBench};
pub use command::RulesCommand;
pub use quiver_api::expression_checks::Languages;

/// The result of checking a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Valid: the number of rules, and warnings.
    Sound(usize, Vec<String>),
    /// Valid, but several rules write the same series.
    Lint(String),
    /// The errors.
    Failed(Vec<String>),
}

/// Reads a file.
fn text_of(path: &Path) -> Result<String, String> {
    quiver_files::read_given_text(path, quiver_files::TEXT_BYTES_MAX).map_err(|e| format!("{}: {e}", path.display()))
}

/// Parses a file, or standard input if there is no path.
fn load(path: Option<&Path>, unknown: UnknownFields) -> Result<RuleFile, Vec<String>> {
    let text = match path {
        Some(path) => text_of(path),
        None => std::io::read_to_string(std::io::stdin()).map_err(|e| format!("standard input: {e}")),
    };
    let told = |problems: quiver_yaml::problem::Problems| {
        let prefix = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
        problems.iter().map(|p| format!("{prefix}{p}")).collect::<Vec<_>>()
    };
    read_with(&text.map_err(|e| vec![e])?, &Languages, unknown).map_err(told)
}

/// Checks a rule file, or standard input if there is no path.
pub fn check(path: Option<&Path>, checks: &Checks) -> CheckOutcome {
    let file = match load(path, checks.unknown) {
        Ok(file) => file,
        Err(errors) => return CheckOutcome::Failed(errors),
    };
    let twice = if checks.lint == LintMode::None { Vec::new() } else { duplicates(&file) };
    if twice.is_empty() {
        return CheckOutcome::Sound(file.rule_count(), file.warnings);
    }
    let mut text = format!("lint error {} duplicate rule(s) found.\n", twice.len());
    for (name, labels) in twice {
        let _ = write!(text, "Metric: {name}\nLabel(s):\n");
        for (name, value) in labels {
            let _ = writeln!(text, "\t{name}: {value}");
        }
    }
    CheckOutcome::Lint(text + "Might cause inconsistency while recording expressions")
}

/// Options of the check.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checks {
    /// What is checked besides errors.
    pub lint: LintMode,
    /// Whether the exit code is 3 if the lint finds something.
    pub lint_fatal: bool,
    /// How unknown fields are treated.
    pub unknown: UnknownFields,
}

/// What is checked in valid files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LintMode {
    /// Everything.
    All,
    /// Rules that write the same series.
    #[default]
    DuplicateRules,
    /// Nothing.
    None,
}

/// Options of unit tests and their output.
#[derive(Debug, Default)]
pub struct Tests {
    /// Tests run if one of these matches their name; all if there are none.
    pub run: Vec<Regex>,
    /// Whether failures are shown as diffs.
    pub diff: bool,
    /// Whether begin and end of each test are printed, and the samples stored at its end.
    pub debug: bool,
    /// File for the results as `JUnit` XML.
    pub junit: Option<PathBuf>,
    /// How unknown fields are treated.
    pub unknown: UnknownFields,
}

/// Runs the tests of a file. Returns the name and outcome of each.
///
/// # Errors
/// The file cannot be read.
pub fn run_tests(path: &Path, how: &Tests, runtime: &Runtime) -> Result<Vec<(String, Outcome)>, Vec<String>> {
    let text = text_of(path).map_err(|e| vec![e])?;
    let texts = |p: quiver_yaml::problem::Problems| p.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut file: TestFile = unit_tests::read_with(&text, how.unknown).map_err(texts)?;
    // A test without a name has an empty one here, as in promtool.
    let name = |test: &TestGroup| if test.is_named { test.name.clone() } else { String::new() };
    file.tests.retain(|test| how.run.is_empty() || how.run.iter().any(|run| run.is_match(&name(test))));
    let paths = rule_files(&file, path.parent().unwrap_or(Path::new("")))?;
    let groups = paths.iter().try_fold(Vec::<RuleGroup>::new(), |mut groups, path| {
        groups.extend(load(Some(path), how.unknown)?.groups);
        Ok::<_, Vec<String>>(groups)
    });
    let outcomes = match groups {
        Ok(groups) => {
            let run = |test: &TestGroup| run_told(test, &file, &groups, runtime.handle(), how.debug);
            file.tests.iter().map(run).collect::<Vec<_>>()
        }
        // In promtool each test reads them, so each fails.
        Err(errors) => {
            let errors: Vec<Fault> = errors.into_iter().map(Fault::from).collect();
            file.tests.iter().map(|_| Outcome { errors: errors.clone(), cases: Vec::new() }).collect()
        }
    };
    Ok(file.tests.iter().map(|test| test.name.clone()).zip(outcomes).collect())
}

/// Finds the rule files that a test file names; prints patterns that match nothing.
fn rule_files(file: &TestFile, folder: &Path) -> Result<Vec<PathBuf>, Vec<String>> {
    let (mut out, mut seen) = (Vec::new(), HashSet::new());
    for pattern in &file.rule_files {
        if !is_pattern(pattern) {
            return Err(vec![format!("syntax error in pattern `{pattern}`")]);
        }
        let found = files::matching(&folder.join(pattern));
        if found.is_empty() {
            complain(format!("  WARNING: no file match pattern {}", folder.join(pattern).display()));
        }
        out.extend(files::unseen(found, &mut seen));
    }
    Ok(out)
}

/// Runs a test; with `debug` it prints begin, end, and the samples stored then.
fn run_told(test: &TestGroup, file: &TestFile, groups: &[RuleGroup], runtime: &Handle, debug: bool) -> Outcome {
    let began = Instant::now();
    if debug {
        complain(format!("DEBUG: Starting test {}", test.name));
    }
    let outcome = run_one(test, file, groups, runtime, &Bounds::default(), |outcome, bench| {
        if debug && outcome.cases.len() == test.alerts.len() + test.exprs.len() {
            complain(report::stored(test, bench));
        }
    });
    if debug {
        let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        complain(format!("DEBUG: Test {} finished, took {}", test.name, format_go(took)));
    }
    outcome
}

/// Runs a test; `look` gets the outcome and the store.
fn run_one(
    test: &TestGroup,
    file: &TestFile,
    groups: &[RuleGroup],
    runtime: &Handle,
    bounds: &Bounds,
    look: impl FnOnce(&Outcome, &StoreBench),
) -> Outcome {
    let step_ms = file.evaluation_interval_ms;
    match StoreBench::open(runtime.clone(), step_ms, bounds) {
        Ok(bench) => {
            let outcome = unit_tests::run(test, groups, &file.group_eval_order, step_ms, file.fuzzy_compare, &bench);
            look(&outcome, &bench);
            outcome
        }
        Err(e) => Outcome { errors: vec![e.into()], cases: Vec::new() },
    }
}

/// Most bytes that the outcomes of all tests of a request may take.
const TOLD_BYTES_MAX: usize = 16 << 20;

/// Runs unit tests that were sent to the server.
#[derive(Debug)]
pub struct ServerBench {
    /// The server's runtime, whose threads run the tests.
    pub runtime: Handle,
    /// Memory limits of a test.
    pub memory: MemoryPart,
}

impl RuleBench for ServerBench {
    fn run(&self, file: &TestFile, groups: &[RuleGroup], stop: &CancellationToken) -> Vec<Outcome> {
        let mut told_bytes_left = TOLD_BYTES_MAX;
        let run = |test| {
            let told_bytes_max = Some(told_bytes_left);
            let bounds = Bounds { memory: Some(self.memory), told_bytes_max, stop: stop.clone() };
            let outcome = run_one(test, file, groups, &self.runtime, &bounds, |_, _| ());
            told_bytes_left = told_bytes_left.saturating_sub(outcome.bytes());
            outcome
        };
        file.tests.iter().take_while(|_| !stop.is_cancelled()).map(run).collect()
    }
}

/// Checks files, or standard input if there are none, as `promtool check rules` does; returns the exit code.
pub fn check_command(paths: &[PathBuf], checks: &Checks) -> u8 {
    let mut code = 0;
    let files = if paths.is_empty() { vec![None] } else { paths.iter().map(|path| Some(path.as_path())).collect() };
    for path in files {
        let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        tell(format!("Checking {name}"));
        match check(path, checks) {
            CheckOutcome::Sound(rules, warnings) => {
                for w in &warnings {
                    tell(format!("  WARNING: {w}"));
                }
                tell(format!("  SUCCESS: {rules} rules found"));
            }
            CheckOutcome::Lint(text) => {
                complain(format!("  FAILED:\n{text}"));
                if checks.lint_fatal && code == 0 {
                    code = 3;
                }
            }
            CheckOutcome::Failed(errors) => {
                complain(format!("  FAILED:\n{}", errors.join("\n")));
                code = 1;
            }
        }
        tell("");
    }
    code
}

/// Runs tests as `promtool test rules` does; returns the exit code.
pub fn test_command(paths: &[PathBuf], how: &Tests, runtime: &Runtime) -> u8 {
    let mut suites = Vec::new();
    for path in paths {
        tell(format!("Unit Testing:  {}", path.display()));
        let (outcomes, error) = match run_tests(path, how, runtime) {
            Ok(outcomes) => (outcomes, None),
            Err(errors) => (Vec::new(), Some(errors.join("\n"))),
        };
        let told = |outcome: Outcome| outcome.errors.iter().map(|fault| report::fault_text(fault, how.diff)).collect();
        let cases: Vec<(String, Vec<String>)> =
            outcomes.into_iter().map(|(name, outcome)| (name, told(outcome))).collect();
        let faults: Vec<&String> = error.iter().chain(cases.iter().flat_map(|(_, faults)| faults)).collect();
        if faults.is_empty() {
            tell("  SUCCESS");
        } else {
            complain("  FAILED:");
            for fault in faults {
                complain(fault);
                tell("");
            }
        }
        tell("");
        suites.push(report::Suite { path: path.clone(), error, cases });
    }
    let is_good =
        |suite: &report::Suite| suite.error.is_none() && suite.cases.iter().all(|(_, faults)| faults.is_empty());
    let mut code = u8::from(!suites.iter().all(is_good));
    if let Some(path) = &how.junit
        && let Err(e) = report::write_junit(path, &suites)
    {
        complain(format!("cannot write {}: {e}", path.display()));
        code = 1;
    }
    code
}

/// A line of a report, whose outcome the exit code says, too.
fn tell(line: impl Display) {
    let _ = terminal::say(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str, checks: Checks) -> CheckOutcome {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        std::fs::write(&path, text).unwrap();
        check(Some(&path), &checks)
    }

    #[test]
    fn sound_files() {
        let rules =
            "groups: [{name: g, rules: [{alert: A, expr: up == 0}, {record: 'a:b', expr: sum(up)}]}, {name: h}]";
        assert_eq!(checked(rules, Checks::default()), CheckOutcome::Sound(2, Vec::new()));
        assert_eq!(checked("", Checks::default()), CheckOutcome::Sound(0, Vec::new()));
        let warned = "groups: [{name: g, headers: [x], rules: [{alert: A, expr: up}]}]";
        let CheckOutcome::Sound(1, warnings) = checked(warned, Checks::default()) else { panic!("it is sound") };
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn faults_name_file_and_place() {
        for (text, place) in [
            ("groups: [{name: g, rules: [{alert: A, expr: 'up =='}]}]", ": 1:"),
            ("groups:\n- name: g\n  rules:\n  - {alert: A, expr: up, fro: 1m}\n", ": 4:"),
            ("groups: [", ": "),
            ("groups: [{name: g, rules: [{alert: A, expr: up, for: soon}]}]", ": 1:"),
        ] {
            let CheckOutcome::Failed(errors) = checked(text, Checks::default()) else { panic!("{text}") };
            assert!(errors.iter().all(|e| e.contains(&format!("rules.yml{place}"))), "{text}: {errors:?}");
        }
        let CheckOutcome::Failed(errors) = check(Some(Path::new("/nowhere/rules.yml")), &Checks::default()) else {
            panic!("there is no such file")
        };
        assert!(errors.len() == 1 && errors[0].starts_with("/nowhere/rules.yml: "), "{errors:?}");
        let own = "groups: [{name: g, rules: [{alert: A, expr: up, fro: 1m}]}]";
        let ignored = Checks { unknown: UnknownFields::Ignored, ..Checks::default() };
        assert_eq!(checked(own, ignored), CheckOutcome::Sound(1, Vec::new()));
    }

    /// As in promtool: the later of two rules overwrites the earlier one.
    #[test]
    fn rules_that_write_the_same() {
        let file = |one: &str, other: &str| {
            format!("groups: [{{name: g, rules: [{{{one}, expr: up}}, {{{other}, expr: up}}]}}]")
        };
        let twice = file("record: 'a:b', labels: {x: '1', w: '2'}", "record: 'a:b', labels: {w: '2', x: '1'}");
        let told = "lint error 1 duplicate rule(s) found.\nMetric: a:b\nLabel(s):\n\tw: 2\n\tx: 1\n\
            Might cause inconsistency while recording expressions";
        assert_eq!(checked(&twice, Checks::default()), CheckOutcome::Lint(told.to_owned()));
        let all = Checks { lint: LintMode::All, ..Checks::default() };
        assert!(matches!(checked(&twice, all), CheckOutcome::Lint(_)));
        let none = Checks { lint: LintMode::None, ..Checks::default() };
        assert_eq!(checked(&twice, none), CheckOutcome::Sound(2, Vec::new()));
        for (one, other) in [
            ("record: 'a:b'", "record: 'a:c'"),
            ("record: 'a:b'", "record: 'a:b', labels: {x: '1'}"),
            ("record: 'a:b', labels: {x: '1'}", "record: 'a:b', labels: {x: '2'}"),
            ("record: A", "alert: A"),
        ] {
            assert_eq!(
                checked(&file(one, other), Checks::default()),
                CheckOutcome::Sound(2, Vec::new()),
                "{one} | {other}"
            );
        }
    }

    #[test]
    fn files_of_rules_that_tests_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yml", "b.yml"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = |patterns: &str| {
            let file = unit_tests::read(&format!("rule_files: {patterns}")).unwrap();
            let found = rule_files(&file, dir.path())?;
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            Ok::<_, Vec<String>>(found.iter().map(name).collect::<Vec<_>>())
        };
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(found("[]"), names(&[]));
        assert_eq!(found("['*.yml']"), names(&["a.yml", "b.yml"]));
        assert_eq!(found("[b.yml, '*.yml', './a.yml']"), names(&["b.yml", "a.yml"]), "each once");
        assert_eq!(found("[none.yml]"), names(&[]));
        assert_eq!(found("['[a']"), Err(vec!["syntax error in pattern `[a`".to_owned()]));
    }
}
