//! Output of `quiver rules test` beyond promtool's: diffs, and a file for CI servers.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use quick_xml::Writer;
use quick_xml::events::BytesText;
use quiver_alerting::rules::show_pairs;
use quiver_alerting::template::Time;
use quiver_alerting::text::{float_text, quote};
use quiver_alerting::unit_tests::{Fault, TestGroup};
use quiver_promql::QueryValue;
use quiver_types::time::duration::format_go;
use quiver_types::{Clock as _, SystemClock};
use similar::{ChangeTag, TextDiff};

use super::StoreBench;

/// Formats a failure as promtool does, or as a diff.
pub(super) fn fault_text(fault: &Fault, diff: bool) -> String {
    let Some([head, expected, got]) = fault.compared().filter(|_| diff) else { return fault.to_string() };
    let mut text = format!("{}\n        diff:", head.trim_end());
    for change in TextDiff::from_lines(&format!("{expected}\n"), &format!("{got}\n")).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        let _ = write!(text, "\n          {sign} {}", change.value().trim_end_matches('\n'));
    }
    text
}

/// Formats all samples in the store of a test at its end, as promtool's `--debug` does.
pub(super) fn stored(test: &TestGroup, bench: &StoreBench) -> String {
    // The full second after the end, which is the resolution of promtool's expression.
    let until_ms = (test.end_ms() / 1000 + 1) * 1000;
    let expr = format!("{{__name__=~\".+\"}}[{until_ms}ms]");
    let found = match bench.ask(&expr, test.start_ms + until_ms) {
        Ok(found) => found,
        Err(e) => return format!("DEBUG: Failed query exec, expr: {}, err: {e}", quote(&expr)),
    };
    let mut text = format!(
        "DEBUG: Dump of all data (input_series and rules) at {}:",
        format_go(until_ms.saturating_mul(1_000_000))
    );
    if let QueryValue::Samples(result) = &*found {
        for series in &result.series {
            let _ = write!(text, "\n{} =>", show_pairs(result.table.labels(series.row as usize)));
            for (ts, value) in series.ts.iter().zip(&series.values) {
                let value = if value.is_finite() { value.to_string() } else { float_text(*value) };
                let _ = write!(text, "\n{value} @[{ts}]");
            }
            for (ts, histogram) in series.hist_ts.iter().zip(&series.hists) {
                let _ = write!(text, "\n{} @[{ts}]", quiver_promql::histogram::text(histogram));
            }
        }
    }
    text
}

/// The results of a test file.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) path: PathBuf,
    /// Why no test ran.
    pub(super) error: Option<String>,
    /// Names of its tests, and the failures of each.
    pub(super) cases: Vec<(String, Vec<String>)>,
}

/// Writes the results as XML for CI servers, in the form of promtool's `--junit`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_junit(path: &Path, suites: &[Suite]) -> io::Result<()> {
    let mut writer = Writer::new(Vec::new());
    let now = Time::from_nanos(i128::from(SystemClock.now_ms()) * 1_000_000).format("2006-01-02T15:04:05");
    writer.create_element("testsuites").write_inner_content(|writer| {
        for suite in suites {
            write_suite(writer, suite, &now)?;
        }
        Ok(())
    })?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    std::fs::write(path, bytes)
}

fn write_suite(writer: &mut Writer<Vec<u8>>, suite: &Suite, now: &str) -> io::Result<()> {
    let failed: usize = suite.cases.iter().map(|(_, faults)| faults.len()).sum();
    let errors = usize::from(suite.error.is_some());
    let counts = [suite.cases.len() + errors, failed, errors].map(|count| count.to_string());
    let attributes = [
        ("name", suite.path.display().to_string()),
        ("tests", counts[0].clone()),
        ("failures", counts[1].clone()),
        ("errors", counts[2].clone()),
        ("skipped", "0".to_owned()),
        ("timestamp", now.to_owned()),
    ];
    let element = attributes.iter().fold(writer.create_element("testsuite"), |element, (name, value)| {
        element.with_attribute((*name, legal(value).as_str()))
    });
    element.write_inner_content(|writer| {
        for (name, faults) in &suite.cases {
            let case = writer.create_element("testcase").with_attribute(("name", legal(name).as_str()));
            case.write_inner_content(|writer| {
                for fault in faults {
                    writer.create_element("failure").write_text_content(BytesText::new(&legal(fault)))?;
                }
                Ok(())
            })?;
        }
        if let Some(error) = &suite.error {
            let case = writer.create_element("testcase").with_attribute(("name", "unknown"));
            case.write_inner_content(|writer| {
                writer.create_element("error").write_text_content(BytesText::new(&legal(error)))?;
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Replaces characters that XML 1.0 cannot contain, even escaped.
fn legal(text: &str) -> String {
    let held = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{FFFE}' | '\u{FFFF}'));
    text.chars().map(|c| if held(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.xml");
        let suites = [
            Suite {
                path: "a&b.yml".into(),
                error: None,
                cases: vec![
                    ("good".to_owned(), vec![]),
                    ("bad \u{1}".to_owned(), vec!["x < \"y\"".to_owned()]),
                    ("worse".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
                ],
            },
            Suite { path: "c.yml".into(), error: Some("no such file".to_owned()), cases: vec![] },
        ];
        write_junit(&path, &suites).expect("written");
        let text = std::fs::read_to_string(&path).expect("a file");
        for part in [
            "<testsuite name=\"a&amp;b.yml\" tests=\"3\" failures=\"3\" errors=\"0\" skipped=\"0\" timestamp=\"2",
            "<testcase name=\"bad \u{FFFD}\"><failure>x &lt; ",
            "<failure>a</failure><failure>b</failure></testcase>",
            "tests=\"1\" failures=\"0\" errors=\"1\"",
            "<testcase name=\"unknown\"><error>no such file</error>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn faults_without_a_comparison_are_told_as_they_are() {
        let fault = Fault::from("    rule: r, time: 1m, err: e".to_owned());
        assert_eq!(fault_text(&fault, true), fault_text(&fault, false));
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        for (text, expected) in [
            ("", ""),
            ("a\tb\r\n", "a\tb\r\n"),
            ("<&>\"'", "<&>\"'"),
            ("\0\u{8}\u{b}\u{1f}", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("\u{fffe}\u{ffff}", "\u{fffd}\u{fffd}"),
            ("é🙂\u{fffd}", "é🙂\u{fffd}"),
        ] {
            assert_eq!(legal(text), expected, "{text:?}");
        }
    }
}
