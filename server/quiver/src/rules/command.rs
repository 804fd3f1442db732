//! The command-line arguments of `quiver rules`.

#![allow(clippy::doc_markdown, reason = "doc comments of options are the text of `--help`")]

use std::path::PathBuf;

use clap::Subcommand;
use quiver_yaml::problem::UnknownFields;
use regex::Regex;
use tokio::runtime::Runtime;

use super::{Checks, LintMode, Tests, check_command, test_command};

/// The subcommands of `quiver rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Check rule files of Prometheus or vmalert, as `promtool check rules` does.
    Check {
        /// Rule files (YAML) [default: read from standard input].
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// What to warn about in valid files.
        #[arg(long, value_enum, default_value = "duplicate-rules")]
        lint: LintMode,
        /// Exit with status 3 if the lint finds something.
        #[arg(long)]
        lint_fatal: bool,
        /// Accept unknown fields, which a newer Prometheus may have.
        #[arg(long)]
        ignore_unknown_fields: bool,
    },
    /// Run unit tests of rules, as `promtool test rules` does, with the server's own engines over temporary stores.
    Test {
        /// Test files (YAML), which name the rule files that they test.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Run only tests whose names match; may be repeated.
        #[arg(long, value_name = "REGEX")]
        run: Vec<Regex>,
        /// Show failures as a diff: `-` expected, `+` got.
        #[arg(long)]
        diff: bool,
        /// Print when each test begins and ends, and all samples stored at its end.
        #[arg(long)]
        debug: bool,
        /// Also write the results as JUnit XML, for CI servers.
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Accept unknown fields, which a newer Prometheus may have.
        #[arg(long)]
        ignore_unknown_fields: bool,
    },
}

impl RulesCommand {
    /// Runs the subcommand; gives the exit code. Only unit tests need a runtime.
    ///
    /// # Errors
    /// The runtime cannot be created.
    pub fn run<E>(&self, runtime: impl FnOnce() -> Result<Runtime, E>) -> Result<u8, E> {
        Ok(match self {
            Self::Check { files, lint, lint_fatal, ignore_unknown_fields } => {
                let unknown = unknown_fields(*ignore_unknown_fields);
                check_command(files, &Checks { lint: *lint, lint_fatal: *lint_fatal, unknown })
            }
            Self::Test { files, run, diff, debug, junit, ignore_unknown_fields } => {
                let unknown = unknown_fields(*ignore_unknown_fields);
                let how = Tests { run: run.clone(), diff: *diff, debug: *debug, junit: junit.clone(), unknown };
                test_command(files, &how, &runtime()?)
            }
        })
    }
}

fn unknown_fields(ignored: bool) -> UnknownFields {
    if ignored { UnknownFields::Ignored } else { UnknownFields::Refused }
}
