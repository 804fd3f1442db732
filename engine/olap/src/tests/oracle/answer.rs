//! The expected result of a question, and how an actual result differs from it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::slice::from_ref;

use serde_json::Value;

use super::evaluate::{Group, Oracle, Refusal, Stage, Table};
use super::measures::{Agg, Body};
use super::operators::{holds, range};
use super::question::{Cond, Member, Question, TimeAsk};
use super::time::{Range, about, wall, written};
use super::tree::Tree;
use super::value::Val;
use super::world::World;

/// Rows of one query.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) members: Vec<String>,
    /// The rows; where their order does not count, those that the answer takes its `count` from.
    pub(crate) rows: Vec<Vec<Val>>,
    /// How many rows the answer has.
    pub(crate) count: usize,
    /// Whether their order counts.
    pub(crate) ordered: bool,
    pub(crate) total: Option<usize>,
}

fn ends(value: &Value, oracle: &Oracle<'_>) -> Range {
    match value {
        Value::Array(list) => range(list, oracle.tz),
        one => range(from_ref(one), oracle.tz),
    }
}

/// Answers a question: one result, or one for each range that it compares.
pub(crate) fn answers(world: &World, question: &Question) -> Result<Vec<Expected>, Refusal> {
    let oracle = Oracle { world, tz: question.tz, services: question.services.as_deref() };
    let compared = question.times.iter().position(|t| !t.compare.is_empty());
    let Some(at) = compared else { return Ok(vec![oracle.answer(question)?]) };
    let each = question.times[at].compare.iter().map(|one| {
        let mut question = question.clone();
        question.times[at] = TimeAsk { range: Some(one.clone()), compare: Vec::new(), ..question.times[at].clone() };
        let mut expected = oracle.answer(&question)?;
        let (start, end) = ends(one, &oracle);
        let name = format!("{} - {}", written(start), written(end - 1));
        expected.members.push("compareDateRange".to_owned());
        expected.rows.iter_mut().for_each(|row| row.push(Val::Text(name.clone())));
        Ok(expected)
    });
    each.collect()
}

impl Oracle<'_> {
    fn stage_of(&self, question: &Question) -> Stage {
        let plain = |of: &Member| Group { name: self.world.full(of.0, &of.1), of: of.clone(), grain: None };
        let mut groups: Vec<Group> = question.dims.iter().map(plain).collect();
        for time in &question.times {
            let Some(grain) = time.grain else { continue };
            let name = format!("{}.{grain}", self.world.full(time.model, "at"));
            if !groups.iter().any(|g| g.name == name) {
                groups.push(Group { name, of: (time.model, "at".to_owned()), grain: Some(grain) });
            }
        }
        let ranges = question.times.iter().filter_map(|t| Some((t.model, ends(t.range.as_ref()?, self))));
        Stage {
            groups,
            filters: question.filters.iter().filter(|f| !f.is_having()).cloned().collect(),
            segments: question.segments.clone(),
            ranges: ranges.collect(),
            shift: None,
        }
    }

    /// Measures that are not asked for, but sorted or filtered by.
    fn later(&self, question: &Question) -> Vec<Member> {
        let leaves = question.filters.iter().filter(|f| f.is_having()).flat_map(Cond::leaves);
        let mut later: Vec<Member> =
            leaves.filter_map(|c| if let Cond::Leaf { of, .. } = c { Some(of.clone()) } else { None }).collect();
        for (name, _) in question.order.iter().flatten() {
            let (model, member) = name.split_once('.').unwrap();
            let model = self.world.names.iter().position(|n| n == model).unwrap();
            if self.world.models[model].measures.iter().any(|m| m.name == member) {
                later.push((model, member.to_owned()));
            }
        }
        later.retain(|of| !question.measures.contains(of));
        later
    }

    fn answer(&self, question: &Question) -> Result<Expected, Refusal> {
        let stage = self.stage_of(question);
        let mut members: Vec<String> = stage.groups.iter().map(|g| g.name.clone()).collect();
        members.extend(question.measures.iter().map(|of| self.world.full(of.0, &of.1)));
        let table = if question.ungrouped {
            self.ungrouped(&stage, question)?
        } else {
            let table = self.stage(&stage, &question.measures, &self.later(question))?;
            self.kept(table, question)
        };
        let total = question.total.then_some(table.rows.len());
        let mut rows = table.rows;
        let order = self.order(question, &stage);
        rows.sort_by(|a, b| {
            let each = order.iter().map(|(key, descends)| match key {
                Key::Group(i) => a.0[*i].order(&b.0[*i], *descends),
                Key::Measure(of) => a.1[of].order(&b.1[of], *descends),
            });
            each.fold(Ordering::Equal, Ordering::then)
        });
        let (offset, limit) = (question.offset as usize, question.limit.map_or(10_000, |n| n as usize));
        let ordered = !question.ungrouped && !order.is_empty();
        let count = rows.len().saturating_sub(offset).min(limit);
        let (from, most) = if ordered { (offset, limit) } else { (0, usize::MAX) };
        let mut rows: Vec<Vec<Val>> = rows
            .into_iter()
            .skip(from)
            .take(most)
            .map(|(group, values)| {
                group.into_iter().chain(question.measures.iter().map(|of| values[of].clone())).collect()
            })
            .collect();
        self.repeat_times(question, &stage, &mut members, &mut rows);
        Ok(Expected { members, rows, count, ordered, total })
    }

    /// The finest bucket stands for the plain time, too.
    fn repeat_times(&self, question: &Question, stage: &Stage, members: &mut Vec<String>, rows: &mut [Vec<Val>]) {
        for time in question.times.iter().filter(|t| t.grain.is_some()) {
            let of = (time.model, "at".to_owned());
            let name = self.world.full(of.0, "at");
            if members.contains(&name) {
                continue;
            }
            let own = stage.groups.iter().enumerate().filter(|(_, g)| g.of == of && g.grain.is_some());
            let (finest, _) = own.min_by_key(|(_, g)| about(g.grain.unwrap())).unwrap();
            members.push(name);
            for row in rows.iter_mut() {
                row.push(row[finest].clone());
            }
        }
    }

    fn kept(&self, mut table: Table, question: &Question) -> Table {
        fn fits(cond: &Cond, value: &dyn Fn(&Member) -> Val, oracle: &Oracle<'_>) -> bool {
            match cond {
                Cond::All(inner) => inner.iter().all(|c| fits(c, value, oracle)),
                Cond::Any(inner) => inner.iter().any(|c| fits(c, value, oracle)),
                Cond::Leaf { of, op, values, .. } => holds(op, values, &value(of), oracle.tz),
            }
        }
        for filter in question.filters.iter().filter(|f| f.is_having()) {
            table.rows.retain(|(_, values)| fits(filter, &|of| values[of].clone(), self));
        }
        table
    }

    /// Rows as they are: a measure gives what it would count or add up.
    fn ungrouped(&self, stage: &Stage, question: &Question) -> Result<Table, Refusal> {
        let mut order = Vec::new();
        question.measures.iter().for_each(|of| self.of_measure(of, &mut order));
        question.dims.iter().for_each(|of| self.of_dim(of, &mut order));
        question.segments.iter().for_each(|of| self.of_segment(of, &mut order));
        question.filters.iter().for_each(|f| self.of_filter(f, &mut order));
        // An entry without buckets and range asks for nothing.
        let asks = |t: &&TimeAsk| t.grain.is_some() || t.range.is_some() || !t.compare.is_empty();
        question.times.iter().filter(asks).for_each(|t| self.of_dim(&(t.model, "at".to_owned()), &mut order));
        let tree = Tree::of(self.world, &order).ok_or(Refusal::NoPath)?;
        let mut table = Table::default();
        for row in self.rows(stage, &tree, None)? {
            let groups = stage.groups.iter().map(|g| self.group(stage, g, &row)).collect::<Result<Vec<_>, _>>()?;
            let mut values = BTreeMap::new();
            for of in &question.measures {
                let Body::Rows { agg, arg, filters, .. } = &self.world.measure(of).body else { unreachable!() };
                let mut is_counted = row[of.0].is_some();
                for filter in filters {
                    is_counted &= self.ex(stage, filter, &row)? == Val::Bool(true);
                }
                let value = match arg {
                    _ if !is_counted => Val::Null,
                    Some(arg) if *agg != Agg::Count => self.ex(stage, arg, &row)?,
                    _ => Val::Int(1),
                };
                values.insert(of.clone(), value);
            }
            table.rows.push((groups, values));
        }
        Ok(table)
    }

    fn order(&self, question: &Question, stage: &Stage) -> Vec<(Key, bool)> {
        if question.ungrouped {
            return Vec::new();
        }
        let groups = || (0..stage.groups.len()).map(|i| (Key::Group(i), false));
        let mut keys = if let Some(order) = &question.order {
            order.iter().map(|(name, descends)| (self.key(name, stage), *descends)).collect()
        } else {
            let time = stage.groups.iter().position(|g| g.grain.is_some());
            // Of several granularities of one time dimension the finest.
            let finest = |at: usize| {
                let own = stage.groups.iter().enumerate().filter(|(_, g)| g.grain.is_some());
                let own = own.filter(|(_, g)| g.of == stage.groups[at].of);
                own.min_by_key(|(_, g)| about(g.grain.unwrap())).map(|(i, _)| i)
            };
            match (time.and_then(finest), question.measures.first()) {
                (Some(at), _) => vec![(Key::Group(at), false)],
                (None, Some(of)) if !question.dims.is_empty() => vec![(Key::Measure(of.clone()), true)],
                _ => groups().take(1).collect(),
            }
        };
        if !keys.is_empty() {
            keys.extend(groups());
        }
        keys
    }

    fn key(&self, name: &str, stage: &Stage) -> Key {
        if let Some(at) = stage.groups.iter().position(|g| g.name == name) {
            return Key::Group(at);
        }
        let (model, member) = name.split_once('.').unwrap();
        let model = self.world.names.iter().position(|n| n == model).unwrap();
        let of = (model, member.to_owned());
        let own = stage.groups.iter().enumerate().filter(|(_, g)| g.of == of && g.grain.is_some());
        match own.min_by_key(|(_, g)| about(g.grain.unwrap())) {
            Some((at, _)) => Key::Group(at),
            None => Key::Measure(of),
        }
    }

    /// A cell as an answer writes it; none: any number that is as large.
    fn shown(value: &Val) -> Option<Value> {
        Some(match value {
            Val::Null => Value::Null,
            Val::Bool(is) => (*is).into(),
            // Exact in every client: as text.
            Val::Int(n) => n.to_string().into(),
            Val::Num(_) => return None,
            Val::Text(text) => text.as_str().into(),
            Val::Time(at) => written(wall(chrono_tz::Tz::UTC, *at)).into(),
            Val::Wall(at) => written(*at).into(),
        })
    }

    fn same(wanted: &Val, got: &Value) -> bool {
        let Some(shown) = Self::shown(wanted) else {
            let number = got.as_f64().or_else(|| got.as_str()?.parse().ok());
            let wanted = wanted.number().unwrap();
            return number.is_some_and(|n| n == wanted || (n - wanted).abs() <= 1e-9 * n.abs().max(wanted.abs()));
        };
        shown == *got
    }
}

/// What rows are sorted by.
enum Key {
    Group(usize),
    Measure(Member),
}

/// Members and rows of an answer, in the order that it has them in.
fn read(data: &Value) -> Option<(Vec<String>, Vec<Vec<Value>>)> {
    let names =
        |list: &Value| list.as_array()?.iter().map(|n| n.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    if let Some(rows) = data.as_array() {
        let members = rows.first().and_then(Value::as_object).map(|row| row.keys().cloned().collect());
        let rows = rows.iter().map(|row| Some(row.as_object()?.values().cloned().collect())).collect::<Option<_>>()?;
        return Some((members.unwrap_or_default(), rows));
    }
    let list = |v: &Value| v.as_array().cloned();
    let members = names(&data["members"])?;
    if let Some(rows) = data["dataset"].as_array() {
        return Some((members, rows.iter().map(list).collect::<Option<_>>()?));
    }
    let columns: Vec<Vec<Value>> = data["columns"].as_array()?.iter().map(list).collect::<Option<_>>()?;
    let count = columns.first().map_or(0, Vec::len);
    let row = |i: usize| columns.iter().map(|c| c.get(i).cloned()).collect::<Option<Vec<_>>>();
    Some((members, (0..count).map(row).collect::<Option<_>>()?))
}

/// Says how one result of an answer differs from what it must be.
pub(crate) fn differs(question: &Question, expected: &Expected, got: &Value) -> Option<String> {
    let Some((mut members, mut rows)) = read(&got["data"]) else { return Some(format!("unreadable {}", got["data"])) };
    let wanted: Vec<String> = if expected.count == 0 { Vec::new() } else { expected.members.clone() };
    if question.format.is_none_or(|f| f == "default") {
        // Objects have no order.
        let places: Option<Vec<usize>> = wanted.iter().map(|w| members.iter().position(|m| m == w)).collect();
        if let Some(places) = places.filter(|p| p.len() == members.len()) {
            members = places.iter().map(|i| members[*i].clone()).collect();
            rows = rows.iter().map(|row| places.iter().map(|i| row[*i].clone()).collect()).collect();
        }
    }
    let show = |text: &str| {
        let shown = |row: &Vec<Val>| row.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
        let wanted: Vec<String> = expected.rows.iter().map(shown).collect();
        let got: Vec<String> = rows.iter().map(|row| Value::from(row.clone()).to_string()).collect();
        Some(format!(
            "{text}\n  want {:?}\n    {}\n  got\n    {}",
            expected.members,
            wanted.join("\n    "),
            got.join("\n    ")
        ))
    };
    if members != wanted {
        return show(&format!("members {members:?}"));
    }
    let same = |wanted: &[Val], got: &[Value]| wanted.iter().zip(got).all(|(w, g)| Oracle::same(w, g));
    let fits = if expected.ordered {
        expected.rows.iter().zip(&rows).all(|(w, g)| same(w, g))
    } else {
        // By the cells that are written exactly: of many rows few are left to compare.
        let inexact = |i: usize| expected.rows.iter().any(|row| matches!(row[i], Val::Num(_)));
        let exact: Vec<usize> = (0..members.len()).filter(|i| !inexact(*i)).collect();
        let mut left: BTreeMap<String, Vec<&Vec<Val>>> = BTreeMap::new();
        for row in &expected.rows {
            let key: Vec<Option<Value>> = exact.iter().map(|i| Oracle::shown(&row[*i])).collect();
            left.entry(format!("{key:?}")).or_default().push(row);
        }
        let take = |got: &Vec<Value>| {
            let key: Vec<Option<Value>> = exact.iter().map(|i| Some(got[*i].clone())).collect();
            let Some(alike) = left.get_mut(&format!("{key:?}")) else { return false };
            alike.iter().position(|w| same(w, got)).map(|i| alike.swap_remove(i)).is_some()
        };
        rows.iter().all(take)
    };
    if expected.count != rows.len() || !fits {
        return show("rows");
    }
    let total = expected.total.map_or(Value::Null, Into::into);
    (got["total"] != total).then(|| format!("total {}, not {total}", got["total"]))
}
