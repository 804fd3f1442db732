//! What each pipe needs of the rows before it, given what is needed of those after it.

use quiver_types::logs::{MSG, STREAM, STREAM_ID, TIME};

use super::filter::add_needs;
use crate::ast::pipe::Stats;
use crate::ast::{FieldPattern, Filter, MathExpr, Overwrite, PatternPair, Pipe, RowPipe, StatsFunc, Unpack};
use crate::kernels::golang_regex;
use crate::needs::Needs;
use crate::rowfn::template;

/// What the rows before a pipe need to have.
pub(crate) fn before(pipe: &Pipe, after: &Needs) -> Needs {
    let mut needs = after.clone();
    match pipe {
        Pipe::Fields(patterns) => return fields(patterns, after),
        Pipe::Delete(patterns) => patterns.iter().for_each(|pattern| needs.remove_pattern(pattern)),
        Pipe::Copy(pairs) => pairs.iter().rev().for_each(|pair| moved(&mut needs, pair, false)),
        Pipe::Rename(pairs) => pairs.iter().rev().for_each(|pair| moved(&mut needs, pair, true)),
        Pipe::Filter(filter) => add_needs(filter, &mut needs),
        // How many rows there are does not depend on their order.
        Pipe::Sort(sort) if after.is_empty() && sort.partition_by.is_empty() => {}
        Pipe::Sort(sort) => {
            if let Some(rank) = &sort.rank {
                needs.remove(rank);
            }
            if sort.by.is_empty() {
                needs.add_needs(&Needs::all());
            }
            needs.add_all(sort.by.iter().map(|(name, _)| name.as_str()));
            needs.add_all(sort.partition_by.iter().map(String::as_str));
        }
        Pipe::Limit(_) | Pipe::Offset(_) | Pipe::Sample(_) => {}
        Pipe::Uniq(uniq) => return Needs::of(&uniq.by),
        Pipe::Top(top) => return Needs::of(&top.by),
        Pipe::FieldValues { field, .. } => return Needs::of([field]),
        Pipe::FieldNames { .. } | Pipe::Facets(_) => return Needs::all(),
        Pipe::Stats(stats) => return of_stats(stats, after),
        Pipe::WindowStats { by, calls, .. } => {
            calls.iter().for_each(|call| needs.remove(&call.name));
            needs.add_all(by.iter().map(String::as_str));
            for field in calls.iter().flat_map(|call| &call.fields) {
                // Counting rows looks at no field.
                if !field.is_all() || calls.iter().any(|c| c.fields.contains(field) && !counts_rows(c)) {
                    needs.add_pattern(field);
                }
            }
        }
        Pipe::Join(join) => needs.add_all(join.by.iter().map(String::as_str)),
        Pipe::Union(_) => {}
        Pipe::StreamContext(_) => needs.add_all([TIME, STREAM_ID]),
        Pipe::Rows(_) | Pipe::GenerateSequence(_) | Pipe::BlockStats | Pipe::BlocksCount(_) | Pipe::QueryStats => {
            return Needs::default();
        }
        Pipe::SetStreamFields { fields, condition } => {
            needs.remove(STREAM);
            needs.remove(STREAM_ID);
            fields.iter().for_each(|field| needs.add_pattern(field));
            of_condition(condition.as_ref(), &mut needs);
            if condition.is_some() {
                needs.add_all([STREAM, STREAM_ID]);
            }
        }
        Pipe::Row { pipe, condition } => of_row(pipe, condition.as_ref(), after, &mut needs),
    }
    needs
}

/// The names that a pipe itself speaks of: they get columns wherever a map of other fields is.
pub(crate) fn mentioned(pipe: &Pipe, needs: &mut Needs) {
    let nothing = Needs::default();
    let mut own = before(pipe, &nothing);
    match pipe {
        Pipe::Row { pipe, condition } => {
            own.add_all(targets(pipe).iter().map(String::as_str));
            own.add_all(sources(pipe).iter().map(String::as_str));
            of_condition(condition.as_ref(), &mut own);
        }
        Pipe::Copy(pairs) | Pipe::Rename(pairs) => {
            own.add_all(pairs.iter().flat_map(|pair| [&pair.source, &pair.target]).filter_map(FieldPattern::name));
        }
        Pipe::Fields(patterns) | Pipe::Delete(patterns) => own.add_all(patterns.iter().filter_map(FieldPattern::name)),
        Pipe::WindowStats { calls, .. } => own.add_all(calls.iter().map(|call| call.name.as_str())),
        Pipe::Sort(sort) => own.add_all(sort.rank.iter().map(String::as_str)),
        Pipe::SetStreamFields { .. } => own.add_all([STREAM, STREAM_ID]),
        _ => {}
    }
    needs.names.extend(own.names);
}

/// Whether the rows after a pipe have nothing of those before it but what the pipe says.
pub(crate) fn is_barrier(pipe: &Pipe) -> bool {
    matches!(
        pipe,
        Pipe::Uniq(_)
            | Pipe::Top(_)
            | Pipe::FieldValues { .. }
            | Pipe::FieldNames { .. }
            | Pipe::Facets(_)
            | Pipe::Stats(_)
            | Pipe::Rows(_)
            | Pipe::GenerateSequence(_)
            | Pipe::BlockStats
            | Pipe::BlocksCount(_)
            | Pipe::QueryStats
    )
}

fn counts_rows(call: &crate::ast::pipe::WindowCall) -> bool {
    call.func == crate::ast::pipe::WindowFunc::Count && call.fields.iter().any(FieldPattern::is_all)
}

fn fields(patterns: &[FieldPattern], after: &Needs) -> Needs {
    let mut needs = Needs::default();
    for pattern in patterns {
        match pattern {
            FieldPattern::Name(name) if after.has(name) => needs.add(name),
            FieldPattern::Name(_) => {}
            FieldPattern::Prefix(prefix) => {
                needs.names.extend(after.names.iter().filter(|name| name.starts_with(prefix.as_str())).cloned());
                for own in &after.prefixes {
                    if own.starts_with(prefix.as_str()) {
                        needs.prefixes.insert(own.clone());
                    } else if prefix.starts_with(own.as_str()) {
                        needs.prefixes.insert(prefix.clone());
                    }
                }
                needs.unneeded.extend(after.unneeded.iter().cloned());
            }
        }
    }
    needs
}

fn moved(needs: &mut Needs, pair: &PatternPair, rename: bool) {
    match (&pair.source, &pair.target) {
        (FieldPattern::Name(source), FieldPattern::Name(target)) => {
            if source == target {
                return;
            }
            let wanted = needs.has(target);
            needs.remove(target);
            if rename {
                needs.remove(source);
            }
            if wanted {
                needs.add(source);
            }
        }
        (FieldPattern::Prefix(_), target) => {
            let wanted = match target {
                FieldPattern::Name(target) => needs.has(target),
                FieldPattern::Prefix(target) => needs.has_any(target),
            };
            if wanted {
                needs.add_pattern(&pair.source);
            } else if rename {
                needs.remove_pattern(&pair.source);
            }
        }
        (FieldPattern::Name(_), FieldPattern::Prefix(_)) => {}
    }
}

fn of_condition(condition: Option<&Filter>, needs: &mut Needs) {
    if let Some(filter) = condition {
        add_needs(filter, needs);
    }
}

fn of_stats(stats: &Stats, after: &Needs) -> Needs {
    let mut needs = Needs::of(stats.by.iter().map(|by| &by.field));
    for call in stats.calls.iter().filter(|call| after.has(&call.name)) {
        of_condition(call.condition.as_ref(), &mut needs);
        match &call.func {
            StatsFunc::Rate => {}
            StatsFunc::Count(fields) if fields.iter().any(FieldPattern::is_all) => {}
            func => {
                let (names, patterns) = args(func);
                needs.add_all(names.iter().map(String::as_str));
                patterns.iter().for_each(|pattern| needs.add_pattern(pattern));
            }
        }
    }
    needs
}

/// The fields of a stats function: those that come first by name, then the list.
pub(crate) fn args(func: &StatsFunc) -> (Vec<String>, Vec<FieldPattern>) {
    match func {
        StatsFunc::Count(fields)
        | StatsFunc::CountEmpty(fields)
        | StatsFunc::Sum(fields)
        | StatsFunc::Avg(fields)
        | StatsFunc::Stddev(fields)
        | StatsFunc::Min(fields)
        | StatsFunc::Max(fields)
        | StatsFunc::Median(fields)
        | StatsFunc::Quantile { fields, .. }
        | StatsFunc::RateSum(fields)
        | StatsFunc::UniqValues { fields, .. }
        | StatsFunc::Values { fields, .. }
        | StatsFunc::RowAny(fields)
        | StatsFunc::Any(fields)
        | StatsFunc::SumLen(fields) => (Vec::new(), fields.clone()),
        StatsFunc::JsonValues { fields, sort, .. } => {
            (sort.iter().map(|(name, _)| name.clone()).collect(), fields.clone())
        }
        StatsFunc::CountUniq { fields, .. } | StatsFunc::CountUniqHash { fields, .. } => (fields.clone(), Vec::new()),
        StatsFunc::RowMin { by, fields } | StatsFunc::RowMax { by, fields } => (vec![by.clone()], fields.clone()),
        StatsFunc::FieldMin { by, field } | StatsFunc::FieldMax { by, field } => {
            (vec![by.clone(), field.clone()], Vec::new())
        }
        StatsFunc::Histogram(field) => (vec![field.clone()], Vec::new()),
        StatsFunc::Rate => (Vec::new(), Vec::new()),
    }
}

fn of_row(pipe: &RowPipe, condition: Option<&Filter>, after: &Needs, needs: &mut Needs) {
    match pipe {
        RowPipe::DropEmptyFields => {
            // Which rows go depends on all fields.
            needs.add_needs(&Needs::all());
        }
        RowPipe::PackJson { fields, to } | RowPipe::PackLogfmt { fields, to } => {
            if after.has(to) {
                needs.remove(to);
                let all = [FieldPattern::all()];
                let fields = if fields.is_empty() { &all[..] } else { fields };
                fields.iter().for_each(|field| needs.add_pattern(field));
            }
        }
        RowPipe::UnpackJson(unpack) | RowPipe::UnpackLogfmt(unpack) | RowPipe::UnpackSyslog { unpack, .. } => {
            of_unpack(unpack, condition, after, needs);
        }
        RowPipe::Unroll(fields) => {
            needs.add_all(fields.iter().map(String::as_str));
            of_condition(condition, needs);
        }
        _ => {
            let made = targets(pipe);
            let wanted = made.iter().any(|name| after.has(name));
            let kept = condition.is_some() || overwrite(pipe) != Overwrite::Always;
            if !wanted {
                return;
            }
            if !kept {
                made.iter().for_each(|name| needs.remove(name));
            }
            needs.add_all(sources(pipe).iter().map(String::as_str));
            if kept {
                needs.add_all(made.iter().map(String::as_str));
            }
            of_condition(condition, needs);
        }
    }
}

fn of_unpack(unpack: &Unpack, condition: Option<&Filter>, after: &Needs, needs: &mut Needs) {
    let wanted = if unpack.fields.is_empty() {
        after.has_any(&unpack.result_prefix)
    } else {
        unpack.fields.iter().any(|field| match field {
            FieldPattern::Name(name) => after.has(&format!("{}{name}", unpack.result_prefix)),
            FieldPattern::Prefix(prefix) => after.has_any(&format!("{}{prefix}", unpack.result_prefix)),
        })
    };
    if wanted {
        needs.add(&unpack.from);
        of_condition(condition, needs);
    }
}

fn overwrite(pipe: &RowPipe) -> Overwrite {
    match pipe {
        RowPipe::Extract { overwrite, .. }
        | RowPipe::ExtractRegexp { overwrite, .. }
        | RowPipe::Format { overwrite, .. } => *overwrite,
        _ => Overwrite::Always,
    }
}

/// The fields that a row pipe makes, where they are known.
pub(crate) fn targets(pipe: &RowPipe) -> Vec<String> {
    match pipe {
        RowPipe::Extract { pattern, .. } => template::fields(pattern),
        RowPipe::ExtractRegexp { pattern, .. } => golang_regex::compile(pattern)
            .map(|regex| regex.capture_names().flatten().map(str::to_owned).collect())
            .unwrap_or_default(),
        RowPipe::Math(items) => items.iter().map(|(_, name)| name.clone()).collect(),
        RowPipe::Replace { at, .. } | RowPipe::ReplaceRegexp { at, .. } | RowPipe::CollapseNums { at, .. } => {
            vec![at.clone()]
        }
        RowPipe::TimeAdd { at, .. } | RowPipe::Decolorize(at) => vec![at.clone()],
        RowPipe::Format { to, .. }
        | RowPipe::PackJson { to, .. }
        | RowPipe::PackLogfmt { to, .. }
        | RowPipe::UnpackWords { to, .. }
        | RowPipe::JsonArrayLen { to, .. }
        | RowPipe::JsonArrayConcat { to, .. }
        | RowPipe::Len { to, .. }
        | RowPipe::Hash { to, .. }
        | RowPipe::Coalesce { to, .. }
        | RowPipe::Split { to, .. } => vec![to.clone()],
        RowPipe::Unroll(fields) => fields.clone(),
        RowPipe::UnpackJson(unpack) | RowPipe::UnpackLogfmt(unpack) | RowPipe::UnpackSyslog { unpack, .. } => {
            let names = unpack.fields.iter().filter_map(FieldPattern::name);
            names.map(|name| format!("{}{name}", unpack.result_prefix)).collect()
        }
        RowPipe::DropEmptyFields => Vec::new(),
    }
}

/// The fields that a row pipe reads, where they are known.
fn sources(pipe: &RowPipe) -> Vec<String> {
    match pipe {
        RowPipe::Extract { from, .. }
        | RowPipe::ExtractRegexp { from, .. }
        | RowPipe::UnpackWords { from, .. }
        | RowPipe::JsonArrayLen { from, .. }
        | RowPipe::JsonArrayConcat { from, .. }
        | RowPipe::Len { from, .. }
        | RowPipe::Hash { from, .. }
        | RowPipe::Split { from, .. } => vec![from.clone()],
        RowPipe::Format { template, .. } => template::fields(template),
        RowPipe::Math(items) => {
            let mut names = Vec::new();
            items.iter().for_each(|(expr, _)| math_fields(expr, &mut names));
            names
        }
        RowPipe::Coalesce { fields, .. } => fields.iter().filter_map(FieldPattern::name).map(str::to_owned).collect(),
        RowPipe::UnpackJson(unpack) | RowPipe::UnpackLogfmt(unpack) | RowPipe::UnpackSyslog { unpack, .. } => {
            vec![unpack.from.clone()]
        }
        RowPipe::PackJson { fields, .. } | RowPipe::PackLogfmt { fields, .. } => {
            fields.iter().filter_map(FieldPattern::name).map(str::to_owned).collect()
        }
        RowPipe::Replace { .. }
        | RowPipe::ReplaceRegexp { .. }
        | RowPipe::CollapseNums { .. }
        | RowPipe::TimeAdd { .. }
        | RowPipe::Decolorize(_)
        | RowPipe::Unroll(_) => targets(pipe),
        RowPipe::DropEmptyFields => vec![MSG.to_owned()],
    }
}

fn math_fields(expr: &MathExpr, names: &mut Vec<String>) {
    match expr {
        MathExpr::Field(name) => names.push(name.clone()),
        MathExpr::Binary { left, right, .. } => {
            math_fields(left, names);
            math_fields(right, names);
        }
        MathExpr::Negate(inner) => math_fields(inner, names),
        MathExpr::Call { args, .. } => args.iter().for_each(|arg| math_fields(arg, names)),
        MathExpr::Number(_) => {}
    }
}
