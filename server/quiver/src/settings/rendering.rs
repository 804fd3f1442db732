//! Renders settings: the file to start from, the defaults that files are merged into, and the document.

use std::fmt::Write;

use super::live::is_live;
use super::{DOCS, SECTIONS};

pub(super) fn defaults() -> String {
    render(|_| {})
}

/// Writes all settings with their documentation, each at its default: a settings file to start from.
pub fn print_settings() -> String {
    let head =
        "# All settings of Quiver with their defaults. Environment: QUIVER_SECTION__KEY (QUIVER_HTTP__LISTEN).\n\n";
    let body = render(|docs| {
        let text = docs.trim_end().to_owned();
        *docs = text.lines().flat_map(|line| ["#", line, "\n"]).collect();
    });
    format!("{head}{body}")
}

fn render(mut doc: impl FnMut(&mut String)) -> String {
    let mut out = String::new();
    for (section, text) in SECTIONS {
        let mut text = (*text).to_owned();
        doc(&mut text);
        if text.starts_with('#') {
            out.push_str(&text);
        }
        let _ = writeln!(out, "[{section}]");
        for d in DOCS.iter().filter(|d| d.section == *section) {
            let mut text = d.doc.to_owned();
            doc(&mut text);
            if text.starts_with('#') {
                out.push_str(&text);
            }
            let _ = writeln!(out, "{} = {}", d.key, d.default);
        }
        out.push('\n');
    }
    out
}

/// Writes the whole of `docs/settings.md`; a test compares it with the file.
pub fn settings_document() -> String {
    let mut out = String::from(
        "# Settings\n\nGenerated from `server/quiver/src/settings.rs`. Order: defaults < file (`--config`) < environment \
         (`QUIVER_HTTP__LISTEN` for `http.listen`) < flags. `quiver --print-settings` writes a file to start from.\n\nSettings marked ↻ are read anew by SIGHUP and by \
         `POST /admin/reload`; the others need a restart. A file that is not valid changes nothing.\n",
    );
    for (section, text) in SECTIONS {
        let _ = write!(out, "\n## {section}\n\n{}\n\n| Setting | Default | Effect |\n|---|---|---|\n", text.trim());
        for d in DOCS.iter().filter(|d| d.section == *section) {
            let doc = d.doc.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            let mark = if is_live(section, d.key) { " ↻" } else { "" };
            let _ = writeln!(out, "| `{section}.{}`{mark} | `{}` | {doc} |", d.key, d.default);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_marks_what_is_read_anew() {
        let document = settings_document();
        for doc in DOCS {
            let begin = format!("| `{}.{}`", doc.section, doc.key);
            let rows: Vec<&str> = document.lines().filter(|line| line.starts_with(&begin)).collect();
            let [row] = rows[..] else { panic!("{begin}: {rows:?}") };
            assert_eq!(row.contains('↻'), is_live(doc.section, doc.key), "{row}");
            // A bar within a text would begin another column.
            assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
        }
    }

    #[test]
    fn a_printed_file_explains_each_setting() {
        let printed = print_settings();
        for doc in DOCS {
            let line = format!("{} = {}", doc.key, doc.default);
            let at = printed.lines().position(|l| l == line).unwrap_or_else(|| panic!("`{line}` is not printed"));
            assert!(printed.lines().nth(at - 1).is_some_and(|l| l.starts_with('#')), "`{line}` has no text");
        }
    }
}
