//! The words of `quiver rules` on the command line.

#![allow(clippy::doc_markdown, reason = "the docs of options are the text of `--help`")]

use std::path::PathBuf;

use clap::Subcommand;
use quiver_yaml::problem::UnknownFields;
use regex::Regex;
use tokio::runtime::Runtime;

use super::{Checks, Lint, Tests, check_command, test_command};

/// What is to be done with files of rules.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say whether rule files of Prometheus or vmalert are valid, as `promtool check rules` does.
    Check {
        /// Rule files (YAML); without any, the standard input is checked.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// What to look for in valid files.
        #[arg(long, value_enum, default_value = "duplicate-rules")]
        lint: Lint,
        /// Exit with 3 where it is found.
        #[arg(long)]
        lint_fatal: bool,
        /// Take fields that nobody knows: a younger Prometheus may have them.
        #[arg(long)]
        ignore_unknown_fields: bool,
    },
    /// Run unit tests of rules, as `promtool test rules` does, with the engines of the server over temporary stores.
    Test {
        /// Files of tests (YAML), which name their rule files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Run only tests in whose names this is found; may repeat.
        #[arg(long, value_name = "REGEX")]
        run: Vec<Regex>,
        /// Show failures as lines that differ: `-` expected, `+` got.
        #[arg(long)]
        diff: bool,
        /// Tell when tests begin and end, and all samples that are stored then.
        #[arg(long)]
        debug: bool,
        /// Write the results as XML for CI servers, too.
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Take fields that nobody knows: a younger Prometheus may have them.
        #[arg(long)]
        ignore_unknown_fields: bool,
    },
}

impl RulesCommand {
    /// Does it; gives the exit code. Unit tests alone need a runtime.
    ///
    /// # Errors
    /// When that cannot be made.
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
