//! `label_replace` and `label_join`: they compute new label columns; values are unchanged.

use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::matcher::{WatchedRegex, compile, compiled_bytes, few_groups};
use quiver_types::series::LabelColumn;
use quiver_types::{Error, ErrorKind, Result, SeriesTable};

use super::labels::{Values, group_apart};
use super::template::Template;
use super::{Planner, Scope, VectorPlan, failed};
use crate::ast::Text;
use crate::functions::SpecialKind;
use crate::nodes::rows::MapRows;

/// Maximum length of a label value made by a function. Stored values are far shorter; values that double with each call
/// would soon exceed any memory.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Cost of matching a byte with capture groups, relative to copying it.
const MATCH_COST: usize = 16;
/// Values up to this length are matched with any pattern.
const MATCH_BYTES_FREE: usize = 1 << 10;
/// Longer values are matched only if their length times the size of the compiled pattern is at most this, as each byte
/// may have to be compared with each state.
const MATCH_BYTES_MAX: usize = 1 << 32;
/// An invalid pattern, used instead of patterns that are not UTF-8, which Go rejects.
const INVALID_PATTERN: &str = "(";

/// A label that takes the place of one, or is added.
struct NewLabel<'a> {
    name: &'a str,
    column: LabelColumn,
    /// Rows whose value was made, one entry per row; the others have kept theirs.
    changed: &'a [bool],
}

impl Planner {
    /// Checks the texts of `label_replace` or `label_join`.
    pub(crate) fn check_relabelling(&self, kind: SpecialKind, texts: &[&Text]) -> Result<()> {
        let name = if kind == SpecialKind::LabelReplace { "label_replace" } else { "label_join" };
        let [dst, rest @ ..] = texts else { return Err(super::unexpected("string")) };
        if let (SpecialKind::LabelReplace, Some(pattern)) = (kind, rest.last()) {
            self.pattern(pattern)?;
        } else {
            for source in rest.iter().skip(1) {
                label_name(source, "source", name)?;
            }
        }
        label_name(dst, "destination", name)?;
        Ok(())
    }

    /// Plans `label_replace(v, dst, replacement, src, regex)`.
    pub(crate) fn label_replace(&self, vector: VectorPlan, texts: &[&Text], scope: Scope) -> Result<VectorPlan> {
        let [dst, replacement, src, pattern] = texts else { return Err(super::unexpected("string")) };
        let regex = self.pattern(pattern)?;
        let dst = label_name(dst, "destination", "label_replace")?;
        let (table, room) = (&vector.table, &self.room);
        let (template, mut places) = (Template::new(replacement.shown(), regex.regex()), regex.group_places());
        room.take_codes(table.len())?;
        let absent = LabelColumn { values: Arc::new(vec![Arc::from("")]), codes: Arc::new(vec![0; table.len()]) };
        // No series has a label whose name is not UTF-8.
        let source = src.name().and_then(|src| table.column(src)).unwrap_or(&absent);
        let mut values = Values::new(room);
        // Match each distinct value of the source label once.
        let mut replaced: Vec<Option<u32>> = Vec::with_capacity(source.values.len());
        room.take(source.values.len() * size_of::<Option<u32>>())?;
        let mut text = String::new();
        for value in source.values.iter() {
            room.did_text(value.len() * MATCH_COST)?;
            room.did(2 * template.len())?;
            matchable(pattern.shown(), value)?;
            let is_matched = regex.may_match(value) && regex.find(value, 0, &mut places);
            replaced.push(if is_matched {
                let bytes = bounded(template.size(value, &places))?;
                room.did_text(bytes)?;
                text.clear();
                template.expand(value, &places, &mut text);
                Some(values.code(&text)?)
            } else {
                None
            });
        }
        let old = table.column(dst).unwrap_or(&absent);
        room.take_codes(table.len() + old.values.len())?;
        let mut kept: Vec<Option<u32>> = vec![None; old.values.len()];
        let mut codes = Vec::with_capacity(table.len());
        for piece in room.pieces(table.len()) {
            for row in piece? {
                let code = match replaced[source.codes[row] as usize] {
                    Some(code) => code,
                    None => match &mut kept[old.codes[row] as usize] {
                        Some(code) => *code,
                        unknown => *unknown.insert(values.code(old.value(row))?),
                    },
                };
                codes.push(code);
            }
        }
        let matched: Vec<bool> = source.codes.iter().map(|&code| replaced[code as usize].is_some()).collect();
        let label = NewLabel { name: dst, column: values.column(codes), changed: &matched };
        self.relabel(vector, label, scope, format!("label_replace {dst}"))
    }

    /// Compiles the pattern of a call, once for all calls with the same pattern.
    fn pattern(&self, pattern: &Text) -> Result<WatchedRegex> {
        let text = pattern.name().unwrap_or(INVALID_PATTERN);
        if let Some(regex) = self.patterns.lock().get(text) {
            return Ok(regex.clone());
        }
        self.run.pace().check()?;
        let regex = compile(text).map_err(|e| match e.kind {
            ErrorKind::Invalid => failed(format!("invalid regular expression in label_replace(): {}", pattern.shown())),
            _ => e,
        })?;
        few_groups(&regex)?;
        let regex = WatchedRegex::new(regex);
        self.patterns.lock().insert(text.to_owned(), regex.clone());
        Ok(regex)
    }

    /// Plans `label_join(v, dst, separator, src…)`.
    pub(crate) fn label_join(&self, vector: VectorPlan, texts: &[&Text], scope: Scope) -> Result<VectorPlan> {
        let [dst, separator, sources @ ..] = texts else { return Err(super::unexpected("string")) };
        let sources: Vec<&str> =
            sources.iter().map(|source| label_name(source, "source", "label_join")).collect::<Result<_>>()?;
        let dst = label_name(dst, "destination", "label_join")?;
        let (table, room) = (&vector.table, &self.room);
        let columns: Vec<Option<&LabelColumn>> = sources.iter().map(|source| table.column(source)).collect();
        room.take_codes(table.len())?;
        let (mut values, mut codes) = (Values::new(room), Vec::with_capacity(table.len()));
        let mut text = String::new();
        for row in 0..table.len() {
            room.did(columns.len())?;
            let parts = || columns.iter().map(|column| column.map_or("", |c| &**c.value(row)));
            let separators = separator.shown().len().saturating_mul(columns.len().saturating_sub(1));
            bounded(separators.saturating_add(parts().map(str::len).sum()))?;
            text.clear();
            for (i, part) in parts().enumerate() {
                text.push_str(if i == 0 { "" } else { separator.shown() });
                text.push_str(part);
            }
            codes.push(values.code(&text)?);
        }
        let matched = vec![true; table.len()];
        let label = NewLabel { name: dst, column: values.column(codes), changed: &matched };
        self.relabel(vector, label, scope, format!("label_join {dst}"))
    }

    fn relabel(&self, vector: VectorPlan, label: NewLabel<'_>, scope: Scope, shown: String) -> Result<VectorPlan> {
        let NewLabel { name, column, changed } = label;
        self.room.take(2 * vector.table.len() + vector.table.names().len() * size_of::<LabelColumn>())?;
        let table = vector.table.with_column(name, Some(column));
        let drop_name = if name == METRIC_NAME {
            Arc::new(vector.drop_name.iter().zip(changed).map(|(&drop, &changed)| drop && !changed).collect())
        } else {
            Arc::clone(&vector.drop_name)
        };
        self.merge_rows(vector, table, drop_name, scope, shown)
    }

    /// Replaces the table of a vector by one with the same number of rows, and merges rows whose labels are now equal.
    pub(crate) fn merge_rows(
        &self,
        mut vector: VectorPlan,
        table: SeriesTable,
        drop_name: Arc<Vec<bool>>,
        scope: Scope,
        shown: String,
    ) -> Result<VectorPlan> {
        let groups = group_apart(&self.room, &table, &drop_name)?;
        if !groups.merges() {
            vector.table = Arc::new(table);
            vector.drop_name = drop_name;
            return Ok(vector);
        }
        let (histograms, ordered) = (vector.histograms, vector.ordered);
        let merged = Arc::new(self.room.rows_of(&table, &groups.first)?);
        let drop_name = Arc::new(groups.first.iter().map(|&r| drop_name[r as usize]).collect());
        let map = MapRows { steps: scope.grid.steps, histograms, to: Arc::new(groups.ids), merges: true, shown };
        let plan = self.node(map, vec![self.finish(vector, scope)?])?;
        Ok(VectorPlan { ordered, ..VectorPlan::new(plan, merged, drop_name, histograms) })
    }
}

/// The label name in a string argument; an error if it is not valid.
fn label_name<'a>(text: &'a Text, role: &str, function: &str) -> Result<&'a str> {
    let name = text.name().filter(|name| !name.is_empty());
    name.ok_or_else(|| failed(format!("invalid {role} label name in {function}(): {}", text.shown())))
}

/// Refuses to match a long value with a large pattern, which could take very long.
fn matchable(pattern: &str, value: &str) -> Result<()> {
    if value.len() <= MATCH_BYTES_FREE || value.len().saturating_mul(compiled_bytes(pattern)) <= MATCH_BYTES_MAX {
        return Ok(());
    }
    let text = format!("a label value of {} bytes is too long for a regular expression of that size", value.len());
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Refuses a label value before it becomes too long.
fn bounded(bytes: usize) -> Result<usize> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(bytes);
    }
    let text = format!("a label value of {bytes} bytes is too long, at most {VALUE_BYTES_MAX} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}
