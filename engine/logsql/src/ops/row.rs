//! Which functions of `rowfn` the row pipes are, over which fields.

use std::borrow::Cow;
use std::sync::Arc;

use quiver_types::Error;
use quiver_types::logs::LogFilter;

use super::cells::{Cells, Compute};
use crate::ast::{FieldPattern, Overwrite, RowPipe};
use crate::error::Result;
use crate::kernels::values::push_f64;
use crate::rowfn;

/// Makes the function of a pipe whose fields are known by name; none for pipes that look at all fields or make fields
/// that nobody knows beforehand.
pub(crate) fn cells(pipe: &RowPipe, condition: Option<LogFilter>, now_ns: i64) -> Result<Option<Cells>> {
    let one = |from: &str, to: &str, write: fn(&str, &mut String)| {
        Some(of(vec![from], vec![to], move || Box::new(move |values, out| write(values[0], &mut out[0]))))
    };
    let cells = match pipe {
        RowPipe::Extract { pattern, from, overwrite } => Some(extract(pattern, from, *overwrite)?),
        RowPipe::ExtractRegexp { pattern, from, overwrite } => Some(extract_regexp(pattern, from, *overwrite)?),
        RowPipe::Format { template, to, overwrite } => Some(format(template, to, *overwrite)?),
        RowPipe::Math(items) => Some(math(items, now_ns)),
        RowPipe::Replace { old, new, at, limit } => {
            let replace = Arc::new(rowfn::Replace::new(old, new, *limit));
            Some(of(vec![at], vec![at], move || {
                let replace = Arc::clone(&replace);
                Box::new(move |values, out| replace.apply(values[0], &mut out[0]))
            }))
        }
        RowPipe::ReplaceRegexp { pattern, new, at, limit } => {
            let replace = Arc::new(rowfn::ReplaceRegexp::new(pattern, new, *limit).map_err(Error::invalid)?);
            Some(of(vec![at], vec![at], move || {
                let replace = Arc::clone(&replace);
                Box::new(move |values, out| replace.apply(values[0], &mut out[0]))
            }))
        }
        RowPipe::CollapseNums { at, prettify: false } => one(at, at, |v, out| rowfn::collapse_nums(v, false, out)),
        RowPipe::CollapseNums { at, prettify: true } => one(at, at, |v, out| rowfn::collapse_nums(v, true, out)),
        RowPipe::UnpackWords { from, to, drop_duplicates: false } => {
            one(from, to, |v, out| rowfn::unpack_words(v, false, out))
        }
        RowPipe::UnpackWords { from, to, drop_duplicates: true } => {
            one(from, to, |v, out| rowfn::unpack_words(v, true, out))
        }
        RowPipe::JsonArrayLen { from, to } => {
            one(from, to, |v, out| out.push_str(&rowfn::json_array_len(v).to_string()))
        }
        RowPipe::JsonArrayConcat { separator, from, to } => {
            Some(with_separator(separator, from, to, rowfn::json_array_concat))
        }
        RowPipe::Split { separator, from, to } => Some(with_separator(separator, from, to, rowfn::split)),
        RowPipe::Len { from, to } => one(from, to, |v, out| out.push_str(&v.len().to_string())),
        RowPipe::Hash { from, to } => one(from, to, |v, out| out.push_str(&rowfn::hash(v).to_string())),
        RowPipe::Decolorize(field) => one(field, field, rowfn::decolorize),
        RowPipe::TimeAdd { shift, at } => {
            let shift_ns = shift.value;
            Some(of(vec![at], vec![at], move || {
                Box::new(move |values, out| rowfn::time_add(values[0], shift_ns, &mut out[0]))
            }))
        }
        RowPipe::Coalesce { fields, default, to } => coalesce(fields, default, to),
        RowPipe::PackJson { .. }
        | RowPipe::PackLogfmt { .. }
        | RowPipe::UnpackJson(_)
        | RowPipe::UnpackLogfmt(_)
        | RowPipe::UnpackSyslog { .. }
        | RowPipe::Unroll(_)
        | RowPipe::DropEmptyFields => None,
    };
    Ok(cells.map(|cells| Cells { condition, ..cells }))
}

fn of<S: Into<String>>(
    sources: Vec<S>,
    targets: Vec<S>,
    compute: impl Fn() -> Compute + Send + Sync + 'static,
) -> Cells {
    Cells {
        sources: sources.into_iter().map(Into::into).collect(),
        targets: targets.into_iter().map(Into::into).collect(),
        overwrite: Overwrite::Always,
        condition: None,
        compute: Arc::new(compute),
    }
}

fn with_separator(separator: &str, from: &str, to: &str, write: fn(&str, &str, &mut String)) -> Cells {
    let separator = separator.to_owned();
    of(vec![from], vec![to], move || {
        let separator = separator.clone();
        Box::new(move |values, out| write(values[0], &separator, &mut out[0]))
    })
}

/// Copies what an unpacker found to the targets.
fn take(names: &[String], found: &rowfn::Fields, out: &mut [String]) {
    for (name, out) in names.iter().zip(out) {
        out.push_str(found.get(name).unwrap_or(""));
    }
}

fn extract(pattern: &str, from: &str, overwrite: Overwrite) -> Result<Cells> {
    let extract = Arc::new(rowfn::Extract::new(pattern).map_err(Error::invalid)?);
    let names = crate::rows::unique(extract.names().map(str::to_owned));
    let targets = names.clone();
    let cells = of(vec![from.to_owned()], targets, move || {
        let (extract, names, mut found) = (Arc::clone(&extract), names.clone(), rowfn::Fields::default());
        Box::new(move |values, out| {
            found.clear();
            extract.apply(values[0], &mut found);
            take(&names, &found, out);
        })
    });
    Ok(Cells { overwrite, ..cells })
}

fn extract_regexp(pattern: &str, from: &str, overwrite: Overwrite) -> Result<Cells> {
    let extract = rowfn::ExtractRegexp::new(pattern).map_err(Error::invalid)?;
    let names = crate::rows::unique(extract.names().map(str::to_owned));
    let (targets, pattern) = (names.clone(), pattern.to_owned());
    let cells = of(vec![from.to_owned()], targets, move || {
        // It keeps buffers, so each partition has its own; the pattern was compiled before, so it compiles.
        let (mut extract, names) = (rowfn::ExtractRegexp::new(&pattern).ok(), names.clone());
        let mut found = rowfn::Fields::default();
        Box::new(move |values, out| {
            found.clear();
            if let Some(extract) = &mut extract {
                extract.apply(values[0], &mut found);
            }
            take(&names, &found, out);
        })
    });
    Ok(Cells { overwrite, ..cells })
}

fn format(template: &str, to: &str, overwrite: Overwrite) -> Result<Cells> {
    let format = Arc::new(rowfn::Format::new(template).map_err(Error::invalid)?);
    let sources: Vec<String> = format.fields().map(str::to_owned).collect();
    let cells = of(sources, vec![to.to_owned()], move || {
        let format = Arc::clone(&format);
        Box::new(move |values, out| format.apply(|i| Cow::Borrowed(values[i]), &mut out[0]))
    });
    Ok(Cells { overwrite, ..cells })
}

/// Expressions are computed one after the other: each sees the results before it.
fn math(items: &[(crate::ast::MathExpr, String)], now_ns: i64) -> Cells {
    let mut sources = Vec::new();
    let compiled: Vec<rowfn::math::Expr> =
        items.iter().map(|(expr, _)| rowfn::math::Expr::compile(expr, &mut sources)).collect();
    let compiled = Arc::new(compiled);
    let targets: Vec<String> = items.iter().map(|(_, name)| name.clone()).collect();
    // Which earlier result a field is, the last one of that name.
    let names = (sources.clone(), targets.clone());
    of(sources, targets, move || {
        let compiled = Arc::clone(&compiled);
        let (sources, targets) = names.clone();
        let ctx = rowfn::math::Context::new(now_ns, now_ns as u64);
        let mut results = vec![f64::NAN; targets.len()];
        Box::new(move |values, out| {
            for (i, expr) in compiled.iter().enumerate() {
                let field = |source: usize| match targets[..i].iter().rposition(|name| *name == sources[source]) {
                    Some(earlier) => results[earlier],
                    None => rowfn::math::field_value(values[source]),
                };
                results[i] = expr.evaluate(&field, &ctx);
            }
            for (value, out) in results.iter().zip(out) {
                push_f64(out, *value);
            }
        })
    })
}

fn coalesce(fields: &[FieldPattern], default: &str, to: &str) -> Option<Cells> {
    let sources: Option<Vec<String>> = fields.iter().map(|field| field.name().map(str::to_owned)).collect();
    let default = default.to_owned();
    Some(of(sources?, vec![to.to_owned()], move || {
        let default = default.clone();
        Box::new(move |values, out| out[0].push_str(rowfn::coalesce(values.iter().copied(), &default)))
    }))
}
