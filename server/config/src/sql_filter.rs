//! Translates a filter, `q` and what the caller may see into SQL over the indexes of values and texts, which the
//! database runs instead of reading the whole family.
//!
//! The indexes only preselect: each entity that is found is checked again, except for counts where the index is exact.

use std::ops::Range;

use quiver_database::{Argument, Connection, Statement, statement};
use quiver_types::Right;
use serde_json::Value;

use crate::config::Config;
use crate::distinct_texts::Words;
use crate::entity_place::Place;
use crate::families::RESOURCES;
use crate::family::Caller;
use crate::filter::{Filter, Op};
use crate::json::{time_of, time_text};
use crate::problem::Result;
use crate::sort_encoding::{behind, encoded, encoded_to};
use crate::text_index::BETWEEN;
use crate::time_filters::{column_of, holding};
use crate::value_index::{EXACT_MAX, Form};

mod id_select;

use id_select::{FieldCondition, IdSelection, Select, SelectedIds};

/// Most values of a filter that is looked up: statements have limits, of values and of depth.
const ARGUMENTS_MAX: usize = 800;
/// Texts of a field that are listed, at most.
const LISTED_MAX: usize = 100;
/// Entities that are read without asking whether a walk in the order of the list would be shorter.
const RARE: usize = if cfg!(test) { 5 } else { 1000 };
/// Entities of which so many pass that a walk which reads each on its way finds them sooner than the database gathers them.
const MANY: usize = if cfg!(test) { 30 } else { 30_000 };
/// The same of a walk that looks each up in an index.
const MANY_LOOKED_UP: usize = if cfg!(test) { 30 } else { 10_000 };
/// The first time with a year of four digits, and the first behind all of them, Unix milliseconds.
const FOUR_DIGITS: (i64, i64) = (-62_167_219_200_000, 253_402_300_800_000);

/// What is asked of the database before a filter is narrowed.
#[derive(Debug, Default)]
pub(crate) struct FilterLookups {
    /// The days in which entities were made and changed, if parts of these times are looked for.
    pub(crate) days: Range<i64>,
    /// The texts of fields that have few, if parts of these are looked for.
    pub(crate) words: Words,
}

/// How much a filter leaves of a family.
#[derive(Debug)]
pub(crate) enum Share {
    /// Few entities, by the part of the condition that alone says so.
    Few(CandidateSet),
    /// Some, so that the condition belongs into the statement that walks through an index.
    Part,
    /// Many, or as many as nobody has counted.
    Many,
}

/// What a filter leaves of a family, as far as the index knows it.
#[derive(Debug, Clone)]
pub(crate) struct CandidateSet {
    known: IdSelection,
    /// Whether exactly these entities pass; else others may be among them.
    pub(crate) exact: bool,
}

impl CandidateSet {
    /// The statement that counts the entities of a place that pass, where the index knows exactly which.
    pub(crate) fn count(&self, place: &Place) -> Statement {
        let (sql, values) = match &self.known {
            IdSelection::Ids(select) if select.once => {
                let count = statement(format!("SELECT count(*) FROM ({}) AS found", select.sql));
                return select.values.iter().cloned().fold(count, Statement::bind);
            }
            _ => self.condition(),
        };
        let select = statement(format!("SELECT count(*) FROM entity WHERE family = ? AND owner = ?{sql}"));
        values.into_iter().fold(select.bind(place.family.name).bind(&place.owner), Statement::bind)
    }

    /// All or any of some, or the only one.
    fn joined(mut parts: Vec<Self>, of: fn(Vec<IdSelection>) -> IdSelection, exact: bool) -> Self {
        let exact = exact && parts.iter().all(|one| one.exact);
        let known = match (parts.len(), parts.pop()) {
            (1, Some(one)) => one.known,
            (_, last) => of(parts.into_iter().chain(last).map(|one| one.known).collect()),
        };
        Self { known, exact }
    }

    /// A condition on rows of `entity`, and its values.
    pub(crate) fn condition(&self) -> (String, Vec<Argument>) {
        let (mut sql, mut arguments) = (" AND ".to_owned(), Vec::new());
        self.known.write(None, &mut sql, &mut arguments);
        (sql, arguments)
    }

    /// The same for a statement that goes through an index in its order, to be asked of each entry: a condition without the
    /// last words would be joined by PostgreSQL, with the whole table and without its order. `field`: the index is that of
    /// its values.
    pub(crate) fn on_the_way(&self, field: Option<&str>) -> (String, Vec<Argument>) {
        let (mut sql, mut arguments) = (" AND (".to_owned(), Vec::new());
        self.known.write(field, &mut sql, &mut arguments);
        sql.push_str(") IS TRUE");
        (sql, arguments)
    }

    /// Whether the index of a field's values tells of each entry whether it may pass.
    pub(crate) fn asks(&self, field: &str) -> bool {
        self.known.asks(field)
    }

    /// What the index knows of a filter, of the text that `q` looks for, and of what rights let a caller see; `asked`: that of
    /// [`Config::asked`].
    pub(crate) fn of(
        filter: Option<&Filter>,
        contains: Option<&str>,
        place: &Place,
        caller: &Caller,
        asked: &FilterLookups,
    ) -> Option<Self> {
        let wanted = filter.and_then(|filter| filter.narrowed(place, asked));
        let found = contains.and_then(|text| worded(place, text));
        let sees_all = place.family.shows_all(caller);
        let seen = if sees_all { None } else { Self::seen(place, caller) };
        let exact = wanted.is_some() == filter.is_some()
            && found.is_some() == contains.is_some()
            && (sees_all || seen.is_some());
        let parts: Vec<Self> = wanted.into_iter().chain(found).chain(seen).collect();
        if parts.is_empty() {
            return None;
        }
        let found = Self::joined(parts, IdSelection::All, exact);
        if found.condition().1.len() <= ARGUMENTS_MAX {
            return Some(found);
        }
        // Lists of texts may be what makes it too long.
        let without = FilterLookups { days: asked.days.clone(), words: Words::new() };
        if asked.words.is_empty() { None } else { Self::of(filter, contains, place, caller, &without) }
    }

    /// What a caller sees by the services that he may see. In other families these are patterns, or follow from other
    /// entities.
    fn seen(place: &Place, caller: &Caller) -> Option<Self> {
        if place.family.name != RESOURCES.name {
            return None;
        }
        let patterns = caller.rights.access(Right::View, place.family.domain).patterns();
        let one = |pattern: &String| {
            let (op, text) = pattern.strip_suffix('*').map_or((Op::Eq, pattern.as_str()), |text| (Op::Starts, text));
            compared(place, "service", op, &Value::String(text.to_owned()), &FilterLookups::default())
        };
        let parts = patterns.iter().map(one).collect::<Option<Vec<_>>>()?;
        // What begins alike need not be the name of a service.
        let exact = patterns.iter().all(|pattern| !pattern.ends_with('*'));
        (!parts.is_empty()).then(|| Self::joined(parts, IdSelection::Any, exact))
    }

    /// The entities that have a value in a field of the index, as it is encoded.
    pub(crate) fn with_value(place: &Place, field: &str, value: &str) -> Self {
        Self::selected(ids(place, field, "value = ?", vec![value.to_owned()], true))
    }

    /// Those that have one in a column of their own.
    pub(crate) fn with_column(place: &Place, column: &str, value: Argument) -> Self {
        Self::selected(ids_by_column(place, column, "=", value))
    }

    /// The same for a walk through `walked`: where many pass each is asked by itself, which ends with the page; to gather
    /// them first takes the longer the more there are.
    pub(crate) async fn for_a_walk(self, db: &mut Connection) -> Result<Self> {
        let IdSelection::Ids(select) = &self.known else { return Ok(self) };
        if !select.once || select.count(MANY_LOOKED_UP, db).await? < MANY_LOOKED_UP {
            return Ok(self);
        }
        Ok(Self { known: IdSelection::Each(select.clone()), exact: self.exact })
    }

    /// What both leave.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::joined(vec![self, other], IdSelection::All, true)
    }

    fn exact(known: IdSelection) -> Self {
        Self { known, exact: true }
    }

    fn selected(select: Select) -> Self {
        Self::exact(IdSelection::Ids(select))
    }

    fn not(self) -> Option<Self> {
        self.exact.then(|| Self::exact(IdSelection::Not(Box::new(self.known))))
    }
}

/// The ids of entities that have some values in a field.
fn ids(place: &Place, field: &str, of_value: &str, values: Vec<String>, once: bool) -> Select {
    let sql = format!("SELECT id FROM entity_value WHERE family = ? AND owner = ? AND field = ? AND {of_value}");
    let before = [place.family.name, place.owner.as_str(), field].map(Argument::from);
    let values: Vec<Argument> = values.into_iter().map(Argument::Text).collect();
    let has_one = matches!(place.family.form_of(field), Some(Form::One { .. }));
    let of = has_one.then(|| FieldCondition {
        field: field.to_owned(),
        condition: of_value.to_owned(),
        values: values.clone(),
    });
    Select { once, of, ..Select::new(sql, before.into_iter().chain(values).collect()) }
}

/// The same by a column of the entity.
fn ids_by_column(place: &Place, column: &str, sign: &str, value: impl Into<Argument>) -> Select {
    let sql = format!("SELECT id FROM entity WHERE family = ? AND owner = ? AND {column} {sign} ?");
    Select::new(sql, vec![place.family.name.into(), place.owner.as_str().into(), value.into()])
}

/// The entities whose time, as it is shown, begins with a text.
fn times_with(place: &Place, column: &str, prefix: &str) -> Option<CandidateSet> {
    // What begins so has a year of four digits.
    if !prefix.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let sql = format!("SELECT id FROM entity WHERE family = ? AND owner = ? AND {column} >= ? AND {column} < ?");
    let values = vec![
        place.family.name.into(),
        place.owner.as_str().into(),
        first_at(prefix).into(),
        first_at(&behind(prefix)).into(),
    ];
    Some(CandidateSet::selected(Select::new(sql, values)))
}

/// The entities whose time, as it is shown, holds a part or ends with it.
fn times_with_part(place: &Place, column: &str, op: Op, part: &str, days: &Range<i64>) -> Option<CandidateSet> {
    let condition = holding(column, op, part, days)?;
    let sql = format!("SELECT id FROM entity WHERE family = ? AND owner = ? AND ({condition})");
    Some(CandidateSet::selected(Select::new(sql, vec![place.family.name.into(), place.owner.as_str().into()])))
}

/// The first time whose text is not less than one: texts of times are in the order of times.
fn first_at(text: &str) -> i64 {
    let (mut low, mut high) = FOUR_DIGITS;
    while low < high {
        let middle = low + (high - low) / 2;
        if time_text(middle).as_str() < text {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A condition on a text that holds another one. Unlike `LIKE` it knows no wildcards.
fn holds(text: &str, needle: &str) -> (String, Vec<String>) {
    if needle.is_empty() {
        return ("1 = 1".to_owned(), Vec::new());
    }
    (format!("instr({text}, ?) > 0"), vec![needle.to_owned()])
}

/// The entities in whose names or description a text stands, both in lower case.
fn worded(place: &Place, text: &str) -> Option<CandidateSet> {
    if text.contains(BETWEEN) || !place.family.has_words() {
        return None;
    }
    let (condition, values) = holds("words", text);
    let sql = format!("SELECT id FROM entity_text WHERE family = ? AND owner = ? AND {condition}");
    let before = [place.family.name, place.owner.as_str()].map(Argument::from);
    let arguments = before.into_iter().chain(values.into_iter().map(Argument::Text)).collect();
    Some(CandidateSet::selected(Select::new(sql, arguments).scanning()))
}

/// The entities whose names or description, whatever the case, have what one of these fields is compared with: others may
/// be among them.
fn worded_within(place: &Place, path: &str, op: Op, text: &str) -> Option<CandidateSet> {
    let is_searched = place.family.searched().contains(&path);
    // How a sigma is written in lower case depends on what stands behind it.
    if !is_searched || text.is_empty() || text.contains('Σ') {
        return None;
    }
    match op {
        Op::Eq | Op::Starts | Op::Contains | Op::Ends => {
            Some(CandidateSet { exact: false, ..worded(place, &text.to_lowercase())? })
        }
        _ => None,
    }
}

/// The entities that have one of the texts of a field which hold another one, or end with it; none: these are many.
fn with_word(place: &Place, path: &str, op: Op, part: &str, words: &[String]) -> Option<CandidateSet> {
    // The first character says that it is a text.
    let has = |text: &str| if op == Op::Ends { text.ends_with(part) } else { text.contains(part) };
    let found: Vec<String> = words.iter().filter(|word| has(&word[1..])).cloned().collect();
    if found.len() > LISTED_MAX {
        return None;
    }
    let once = found.len() < 2 || place.family.form_of(path) != Some(Form::Each);
    let condition = match found.len() {
        0 => "1 = 0".to_owned(),
        many => format!("value IN ({})", vec!["?"; many].join(", ")),
    };
    Some(CandidateSet::selected(ids(place, path, &condition, found, once)))
}

/// The entities that have a text in a field which holds another one, or ends with it; of what is `cut` nobody knows.
fn with_part(place: &Place, path: &str, op: Op, part: &str, cut: Option<usize>) -> CandidateSet {
    let once = place.family.form_of(path) != Some(Form::Each);
    // The first character says that it is a text; what begins otherwise is not found there.
    let text = if part.starts_with('3') { "substr(value, 2)" } else { "value" };
    let (mut condition, values) = match part.chars().count() {
        chars @ 1.. if op == Op::Ends => {
            let last = format!("length(value) > {chars} AND substr(value, length(value) - {}) = ?", chars - 1);
            (last, vec![part.to_owned()])
        }
        _ => holds(text, part),
    };
    if let Some(chars) = cut {
        condition = format!("({condition} OR length(value) > {chars})");
    }
    let condition = format!("value >= '3' AND value < '4' AND {condition}");
    CandidateSet {
        known: IdSelection::Ids(ids(place, path, &condition, values, once).scanning()),
        exact: cut.is_none(),
    }
}

impl Filter {
    fn narrowed(&self, place: &Place, asked: &FilterLookups) -> Option<CandidateSet> {
        match self {
            Self::All(list) => {
                let parts: Vec<CandidateSet> = list.iter().filter_map(|one| one.narrowed(place, asked)).collect();
                let exact = parts.len() == list.len();
                (!parts.is_empty()).then(|| CandidateSet::joined(parts, IdSelection::All, exact))
            }
            Self::Any(list) if !list.is_empty() => {
                let parts = list.iter().map(|one| one.narrowed(place, asked)).collect::<Option<Vec<_>>>()?;
                Some(CandidateSet::joined(parts, IdSelection::Any, true))
            }
            Self::Not(inner) => inner.narrowed(place, asked)?.not(),
            Self::Present(path) => {
                let once = place.family.form_of(path)? != Form::Each;
                let (none, empty) = (encoded(&Value::Null), encoded(&Value::String(String::new())));
                Some(CandidateSet::selected(ids(place, path, "value > ? AND value <> ?", vec![none, empty], once)))
            }
            Self::Compare(path, op, value) => compared(place, path, *op, value, asked),
            Self::In(path, values) if !values.is_empty() => {
                let parts = values.iter().map(|value| compared(place, path, Op::Eq, value, asked));
                Some(CandidateSet::joined(parts.collect::<Option<Vec<_>>>()?, IdSelection::Any, true))
            }
            Self::Any(_) | Self::In(..) => None,
        }
    }
}

fn compared(place: &Place, path: &str, op: Op, value: &Value, asked: &FilterLookups) -> Option<CandidateSet> {
    if op == Op::Ne {
        return compared(place, path, Op::Eq, value, asked)?.not();
    }
    let sign = match op {
        Op::Eq => "=",
        Op::Gt => ">",
        Op::Ge => ">=",
        Op::Lt => "<",
        Op::Le => "<=",
        _ => "",
    };
    if let (Some(column), false) = (column_of(path), sign.is_empty()) {
        let ms = time_of(value.as_str()?)?;
        return Some(CandidateSet::selected(ids_by_column(place, column, sign, ms)));
    }
    if let (Some(column), Op::Starts) = (column_of(path), op) {
        return times_with(place, column, value.as_str()?);
    }
    if let (Some(column), Op::Contains | Op::Ends) = (column_of(path), op) {
        return times_with_part(place, column, op, value.as_str()?, &asked.days);
    }
    if path == "id" && op == Op::Eq {
        return Some(CandidateSet::selected(ids_by_column(place, "id", sign, value.as_str()?)));
    }
    let Some(form) = place.family.form_of(path) else { return worded_within(place, path, op, value.as_str()?) };
    // The index cannot distinguish larger whole numbers.
    if value.as_f64().is_some_and(|number| number.abs() >= EXACT_MAX as f64) {
        return None;
    }
    let chars = place.family.chars_of(path);
    let once = form != Form::Each;
    let is_whole = value.as_str().is_none_or(|text| text.chars().count() < chars);
    let text = encoded_to(value, chars);
    match op {
        Op::Eq => {
            // An entity without the label has no row, nor has one with an empty list.
            if value.is_null() && form == Form::Each {
                return None;
            }
            Some(CandidateSet { exact: is_whole, ..CandidateSet::with_value(place, path, &text) })
        }
        Op::Starts if value.is_string() && is_whole => {
            let end = behind(&text);
            Some(CandidateSet::selected(ids(place, path, "value >= ? AND value < ?", vec![text, end], once)))
        }
        Op::Gt | Op::Ge | Op::Lt | Op::Le if is_whole && !value.is_null() => {
            // Only values of the same class are less or greater.
            let class = text.chars().next()?.to_string();
            let condition = format!("value {sign} ? AND value >= ? AND value < ?");
            let end = behind(&class);
            Some(CandidateSet::selected(ids(place, path, &condition, vec![text, class, end], once)))
        }
        Op::Contains | Op::Ends => {
            let part = value.as_str()?;
            let words = asked.words.get(path);
            if let Some(known) = words.and_then(|words| with_word(place, path, op, part, words)) {
                return Some(known);
            }
            Some(with_part(place, path, op, part, place.family.may_be_cut(path).then_some(chars)))
        }
        _ => None,
    }
}

impl Config {
    /// What is to be known of a place before a filter is narrowed.
    pub(crate) async fn asked(&self, place: &Place, filter: Option<&Filter>) -> Result<FilterLookups> {
        Ok(FilterLookups { days: self.days(place, filter).await?, words: self.words(place, filter).await? })
    }

    /// How much a condition leaves to a walk in the order of a field. Where that is little its ids are kept: what gave them
    /// may have gone through all entries of a field, and need not do so again.
    pub(crate) async fn share(&self, narrowed: &CandidateSet, walked: Option<&str>) -> Result<Share> {
        let mut selects = Vec::new();
        narrowed.known.selects(&mut selects);
        let mut all = Vec::with_capacity(selects.len());
        for select in selects {
            let rows = select.first("id", RARE).fetch_packed("id", &self.pool).await?;
            if rows.len() < RARE {
                let ids: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
                all.push(SelectedIds { count: ids.len(), ids: Some(ids) });
                continue;
            }
            let count = if walked.is_some_and(|field| select.asks(field)) {
                // The walk finds them, however many they are.
                RARE
            } else if select.scans {
                // To count these costs as much as to find them, and a walk shows soon enough whether they are many.
                MANY
            } else {
                select.count(MANY, &self.pool).await?
            };
            all.push(SelectedIds { count, ids: None });
        }
        let (count, known) = narrowed.known.least(&mut all.into_iter());
        Ok(match count {
            ..RARE => Share::Few(CandidateSet { known, exact: false }),
            RARE..MANY => Share::Part,
            _ => Share::Many,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_what_they_begin_with() {
        let range = |prefix: &str| [first_at(prefix), first_at(&behind(prefix))].map(time_text);
        let check = |prefix: &str, from: &str, to: &str| assert_eq!(range(prefix), [from, to], "{prefix}");
        check("2027-01-15T08", "2027-01-15T08:00:00.000Z", "2027-01-15T09:00:00.000Z");
        check("2027-0", "2027-01-01T00:00:00.000Z", "2027-10-01T00:00:00.000Z");
        check("2027-01-15T08:00:05.12", "2027-01-15T08:00:05.120Z", "2027-01-15T08:00:05.130Z");
        check("2027-01-15T08:00:05.123Z", "2027-01-15T08:00:05.123Z", "2027-01-15T08:00:05.124Z");
        assert_eq!(first_at("9"), first_at("9000"));
        assert_eq!(first_at(&behind("9")), FOUR_DIGITS.1);
        // Nothing begins so.
        assert_eq!(first_at("2027-01-15 "), first_at(&behind("2027-01-15 ")));
    }
}
