//! What the index of values knows of a filter, and of what a caller sees: statements that the database goes through instead
//! of the whole family.
//!
//! It only narrows: each entity that is found is asked again, but where only a number is asked for and all is known exactly.

use quiver_database::{Argument, Statement, statement};
use quiver_types::Right;
use serde_json::Value;

use crate::document::{Config, Place};
use crate::families::RESOURCES;
use crate::family::Caller;
use crate::filter::{Filter, Op};
use crate::json::time_of;
use crate::problem::Result;
use crate::values::{CHARS_MAX, Form, LABEL_CHARS_MAX, behind, encoded, encoded_to};

/// Most values of a filter that is looked up: statements have limits, of values and of depth.
const ARGUMENTS_MAX: usize = 800;
/// Entities that are read without asking whether a walk in the order of the list would be shorter.
const RARE: usize = if cfg!(test) { 5 } else { 1000 };

/// What the index knows of a filter: which ids pass, or may pass.
#[derive(Debug, Clone)]
enum Known {
    /// A statement that selects ids, and its values; `true`: each id once.
    Ids(String, Vec<Argument>, bool),
    All(Vec<Known>),
    Any(Vec<Known>),
    Not(Box<Known>),
}

/// What a filter leaves of a family, as far as the index knows it.
#[derive(Debug, Clone)]
pub(crate) struct Narrowed {
    known: Known,
    /// Whether exactly these entities pass; else others may be among them.
    pub(crate) exact: bool,
}

impl Known {
    fn write_all(list: &[Self], between: &str, sql: &mut String, arguments: &mut Vec<Argument>) {
        for (n, one) in list.iter().enumerate() {
            sql.push_str(if n == 0 { "(" } else { between });
            one.write(sql, arguments);
        }
        sql.push(')');
    }

    /// One statement that selects all ids; none: it takes conditions. One list of ids can be gone through; where several
    /// are tried one after the other the whole family is.
    fn select(&self) -> Option<(String, Vec<Argument>)> {
        match self {
            Self::Ids(select, values, _) => Some((select.clone(), values.clone())),
            Self::Any(any) => {
                let parts = any.iter().map(Self::select).collect::<Option<Vec<_>>>()?;
                let (selects, values): (Vec<String>, Vec<Vec<Argument>>) = parts.into_iter().unzip();
                Some((selects.join(" UNION ALL "), values.concat()))
            }
            Self::All(_) | Self::Not(_) => None,
        }
    }

    fn write(&self, sql: &mut String, arguments: &mut Vec<Argument>) {
        if let Some((select, values)) = self.select() {
            sql.push_str("id IN (");
            sql.push_str(&select);
            sql.push(')');
            arguments.extend(values);
            return;
        }
        match self {
            Self::All(all) => Self::write_all(all, " AND ", sql, arguments),
            Self::Any(any) => Self::write_all(any, " OR ", sql, arguments),
            Self::Not(inner) => {
                sql.push_str("NOT (");
                inner.write(sql, arguments);
                sql.push(')');
            }
            // It is a statement itself.
            Self::Ids(..) => {}
        }
    }

    fn selects(&self, into: &mut Vec<(String, Vec<Argument>)>) {
        if let Some(select) = self.select() {
            into.push(select);
            return;
        }
        match self {
            Self::All(list) | Self::Any(list) => list.iter().for_each(|one| one.selects(into)),
            // That few are left out says that many stay.
            Self::Not(_) | Self::Ids(..) => {}
        }
    }

    /// How many pass at most, by how many each select gives, and the part of it that says so.
    fn least(&self, counts: &mut impl Iterator<Item = usize>) -> (usize, Self) {
        if self.select().is_some() {
            return (counts.next().unwrap_or(usize::MAX), self.clone());
        }
        match self {
            Self::All(all) => {
                let parts: Vec<_> = all.iter().map(|one| one.least(counts)).collect();
                let least = parts.into_iter().min_by_key(|(count, _)| *count);
                least.unwrap_or_else(|| (usize::MAX, self.clone()))
            }
            Self::Any(any) => {
                let (counts, parts): (Vec<_>, Vec<_>) = any.iter().map(|one| one.least(counts)).unzip();
                (counts.into_iter().fold(0, usize::saturating_add), Self::Any(parts))
            }
            Self::Not(_) | Self::Ids(..) => (usize::MAX, self.clone()),
        }
    }
}

impl Narrowed {
    /// The statement that counts the entities of a place that pass, where the index knows exactly which.
    pub(crate) fn count(&self, place: &Place) -> Statement {
        let (sql, values) = match &self.known {
            Known::Ids(select, values, true) => {
                return values
                    .iter()
                    .cloned()
                    .fold(statement(format!("SELECT count(*) FROM ({select}) AS found")), Statement::bind);
            }
            _ => self.condition(),
        };
        let select = statement(format!("SELECT count(*) FROM entity WHERE family = ? AND owner = ?{sql}"));
        values.into_iter().fold(select.bind(place.family.name).bind(&place.owner), Statement::bind)
    }

    /// All or any of some, or the only one.
    fn joined(mut parts: Vec<Self>, of: fn(Vec<Known>) -> Known, exact: bool) -> Self {
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
        self.known.write(&mut sql, &mut arguments);
        (sql, arguments)
    }

    /// What the index knows of a filter, and of what rights let a caller see.
    pub(crate) fn of(filter: Option<&Filter>, place: &Place, caller: &Caller) -> Option<Self> {
        let wanted = filter.and_then(|filter| filter.narrowed(place));
        let sees_all = place.family.shows_all(caller);
        let seen = if sees_all { None } else { Self::seen(place, caller) };
        let exact = wanted.is_some() == filter.is_some() && (sees_all || seen.is_some());
        let parts: Vec<Self> = wanted.into_iter().chain(seen).collect();
        if parts.is_empty() {
            return None;
        }
        let found = Self::joined(parts, Known::All, exact);
        (found.condition().1.len() <= ARGUMENTS_MAX).then_some(found)
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
            compared(place, "service", op, &Value::String(text.to_owned()))
        };
        let parts = patterns.iter().map(one).collect::<Option<Vec<_>>>()?;
        // What begins alike need not be the name of a service.
        let exact = patterns.iter().all(|pattern| !pattern.ends_with('*'));
        (!parts.is_empty()).then(|| Self::joined(parts, Known::Any, exact))
    }

    fn exact(known: Known) -> Self {
        Self { known, exact: true }
    }

    fn not(self) -> Option<Self> {
        self.exact.then(|| Self::exact(Known::Not(Box::new(self.known))))
    }
}

/// The ids of entities that have some values in a field.
fn ids(place: &Place, field: &str, of_value: &str, values: Vec<String>, once: bool) -> Known {
    let sql = format!("SELECT id FROM entity_value WHERE family = ? AND owner = ? AND field = ? AND {of_value}");
    let before = [place.family.name, place.owner.as_str(), field].map(Argument::from);
    Known::Ids(sql, before.into_iter().chain(values.into_iter().map(Argument::Text)).collect(), once)
}

/// The same by a column of the entity.
fn ids_by_column(place: &Place, column: &str, sign: &str, value: impl Into<Argument>) -> Known {
    let sql = format!("SELECT id FROM entity WHERE family = ? AND owner = ? AND {column} {sign} ?");
    Known::Ids(sql, vec![place.family.name.into(), place.owner.as_str().into(), value.into()], true)
}

impl Filter {
    fn narrowed(&self, place: &Place) -> Option<Narrowed> {
        match self {
            Self::All(list) => {
                let parts: Vec<Narrowed> = list.iter().filter_map(|one| one.narrowed(place)).collect();
                let exact = parts.len() == list.len();
                (!parts.is_empty()).then(|| Narrowed::joined(parts, Known::All, exact))
            }
            Self::Any(list) if !list.is_empty() => {
                let parts = list.iter().map(|one| one.narrowed(place)).collect::<Option<Vec<_>>>()?;
                Some(Narrowed::joined(parts, Known::Any, true))
            }
            Self::Not(inner) => inner.narrowed(place)?.not(),
            Self::Present(path) => {
                let once = place.family.form_of(path)? != Form::Each;
                let (none, empty) = (encoded(&Value::Null), encoded(&Value::String(String::new())));
                Some(Narrowed::exact(ids(place, path, "value > ? AND value <> ?", vec![none, empty], once)))
            }
            Self::Compare(path, op, value) => compared(place, path, *op, value),
            Self::In(path, values) if !values.is_empty() => {
                let parts = values.iter().map(|value| compared(place, path, Op::Eq, value));
                Some(Narrowed::joined(parts.collect::<Option<Vec<_>>>()?, Known::Any, true))
            }
            Self::Any(_) | Self::In(..) => None,
        }
    }
}

fn compared(place: &Place, path: &str, op: Op, value: &Value) -> Option<Narrowed> {
    if op == Op::Ne {
        return compared(place, path, Op::Eq, value)?.not();
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
        return Some(Narrowed::exact(ids_by_column(place, column, sign, ms)));
    }
    if path == "id" && op == Op::Eq {
        return Some(Narrowed::exact(ids_by_column(place, "id", sign, value.as_str()?)));
    }
    let form = place.family.form_of(path)?;
    let chars = if path.starts_with("labels.") { LABEL_CHARS_MAX } else { CHARS_MAX };
    let once = form != Form::Each;
    let is_whole = value.as_str().is_none_or(|text| text.chars().count() < chars);
    let text = encoded_to(value, chars);
    match op {
        Op::Eq => {
            // An entity without the label has no row, nor has one with an empty list.
            if value.is_null() && form == Form::Each {
                return None;
            }
            Some(Narrowed { known: ids(place, path, "value = ?", vec![text], true), exact: is_whole })
        }
        Op::Starts if value.is_string() && is_whole => {
            let end = behind(&text);
            Some(Narrowed::exact(ids(place, path, "value >= ? AND value < ?", vec![text, end], once)))
        }
        Op::Gt | Op::Ge | Op::Lt | Op::Le if is_whole && !value.is_null() => {
            // Only values of the same class are less or greater.
            let class = text.chars().next()?.to_string();
            let condition = format!("value {sign} ? AND value >= ? AND value < ?");
            let end = behind(&class);
            Some(Narrowed::exact(ids(place, path, &condition, vec![text, class, end], once)))
        }
        _ => None,
    }
}

fn column_of(path: &str) -> Option<&'static str> {
    match path {
        "createdAt" => Some("created_ms"),
        "updatedAt" => Some("updated_ms"),
        _ => None,
    }
}

impl Config {
    /// The part of a condition that alone leaves few entities; none: each leaves many.
    pub(crate) async fn rare(&self, narrowed: &Narrowed) -> Result<Option<Narrowed>> {
        let mut selects = Vec::new();
        narrowed.known.selects(&mut selects);
        let mut counts = Vec::with_capacity(selects.len());
        for (select, values) in selects {
            let sql = format!("SELECT count(*) FROM ({select} LIMIT ?) AS few");
            let count = values.into_iter().fold(statement(sql), Statement::bind).bind(RARE as i64);
            let count: i64 = count.fetch_one(&self.pool).await?.try_get(0)?;
            counts.push(count as usize);
        }
        let (count, known) = narrowed.known.least(&mut counts.into_iter());
        Ok((count < RARE).then_some(Narrowed { known, exact: false }))
    }
}
