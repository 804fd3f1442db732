//! `label_replace` and `label_join`: new columns of labels, no numbers.

use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::matcher::REGEX_BYTES_MAX;
use quiver_types::series::LabelColumn;
use quiver_types::{Result, SeriesTable};

use super::labels::{self, group};
use super::{Planner, Scope, VectorPlan, failed};
use crate::nodes::rows::MapRows;

impl Planner {
    /// Plans `label_replace(v, dst, replacement, src, regex)`.
    pub(crate) fn label_replace(&self, vector: VectorPlan, texts: &[String], scope: Scope) -> Result<VectorPlan> {
        let [dst, replacement, src, pattern] = texts else { return Err(super::unexpected("string")) };
        let regex = regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|_| failed(format!("invalid regular expression in label_replace(): {pattern}")))?;
        valid_label_name(dst, "destination", "label_replace")?;
        let replacement = go_template(replacement);
        let table = &vector.table;
        let absent = LabelColumn { values: Arc::new(vec![Arc::from("")]), codes: Arc::new(vec![0; table.len()]) };
        let source = table.column(src).unwrap_or(&absent);
        // One match per distinct value of the source label.
        let replaced: Vec<Option<String>> = source
            .values
            .iter()
            .map(|value| {
                regex.captures(value).map(|captures| {
                    let mut out = String::new();
                    captures.expand(&replacement, &mut out);
                    out
                })
            })
            .collect();
        let old = table.column(dst).unwrap_or(&absent);
        let new = |row: usize| replaced[source.codes[row] as usize].as_deref();
        let column = labels::column((0..table.len()).map(|row| new(row).unwrap_or_else(|| old.value(row))));
        let matched: Vec<bool> = (0..table.len()).map(|row| new(row).is_some()).collect();
        self.relabel(vector, dst, column, &matched, scope, format!("label_replace {dst}"))
    }

    /// Plans `label_join(v, dst, separator, src…)`.
    pub(crate) fn label_join(&self, vector: VectorPlan, texts: &[String], scope: Scope) -> Result<VectorPlan> {
        let [dst, separator, sources @ ..] = texts else { return Err(super::unexpected("string")) };
        for source in sources {
            valid_label_name(source, "source", "label_join")?;
        }
        valid_label_name(dst, "destination", "label_join")?;
        let table = &vector.table;
        let joined: Vec<String> = (0..table.len())
            .map(|row| sources.iter().map(|s| table.value(row, s)).collect::<Vec<_>>().join(separator))
            .collect();
        let column = labels::column(joined.iter().map(String::as_str));
        let matched = vec![true; table.len()];
        self.relabel(vector, dst, column, &matched, scope, format!("label_join {dst}"))
    }

    fn relabel(
        &self,
        vector: VectorPlan,
        dst: &str,
        column: LabelColumn,
        changed: &[bool],
        scope: Scope,
        shown: String,
    ) -> Result<VectorPlan> {
        let table = vector.table.with_column(dst, Some(column));
        let drop_name = if dst == METRIC_NAME {
            Arc::new(vector.drop_name.iter().zip(changed).map(|(&drop, &changed)| drop && !changed).collect())
        } else {
            Arc::clone(&vector.drop_name)
        };
        self.merge_rows(vector, table, drop_name, scope, shown)
    }

    /// Gives a vector a new table of as many rows, and merges rows whose labels are equal now.
    pub(crate) fn merge_rows(
        &self,
        mut vector: VectorPlan,
        table: SeriesTable,
        drop_name: Arc<Vec<bool>>,
        scope: Scope,
        shown: String,
    ) -> Result<VectorPlan> {
        let groups = group(&table, |_| true);
        if !groups.merges() {
            vector.table = Arc::new(table);
            vector.drop_name = drop_name;
            return Ok(vector);
        }
        let (histograms, ordered) = (vector.histograms, vector.ordered);
        let merged = Arc::new(table.take(&groups.first));
        let drop_name = Arc::new(groups.first.iter().map(|&r| drop_name[r as usize]).collect());
        let map = MapRows { steps: scope.grid.steps, histograms, to: Arc::new(groups.ids), merges: true, shown };
        let plan = self.node(map, vec![self.finish(vector, scope)?])?;
        Ok(VectorPlan { ordered, ..VectorPlan::new(plan, merged, drop_name, histograms) })
    }
}

fn valid_label_name(name: &str, role: &str, function: &str) -> Result<()> {
    if name.is_empty() {
        return Err(failed(format!("invalid {role} label name in {function}(): {name}")));
    }
    Ok(())
}

/// Writes a template of Go's `regexp.Expand` in the crate's form. Both read `$1x` as the group named `1x`; a `$` that
/// starts no reference stands for itself.
fn go_template(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push_str("$$");
            rest = after;
            continue;
        }
        let word = |s: &str| s.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(s.len());
        if let Some(inner) = rest.strip_prefix('{') {
            let len = word(inner);
            if len > 0 && inner[len..].starts_with('}') {
                out.push_str(&format!("${{{}}}", &inner[..len]));
                rest = &inner[len + 1..];
                continue;
            }
        } else {
            let len = word(rest);
            if len > 0 {
                out.push_str(&format!("${{{}}}", &rest[..len]));
                rest = &rest[len..];
                continue;
            }
        }
        out.push_str("$$");
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let check = |text: &str, expected: &str| {
            let regex = regex::Regex::new("^(?s:(a)(?P<name>b))$").unwrap();
            let mut out = String::new();
            regex.captures("ab").unwrap().expand(&go_template(text), &mut out);
            assert_eq!(out, expected, "{text}");
        };
        check("$1-$name", "a-b");
        check("${1}x$$", "ax$");
        check("$1x", "");
        check("x", "x");
    }
}
