//! The naive model: rows as maps of texts, filters as plain functions over them.

use std::collections::BTreeMap;

use quiver_types::logs::{
    FieldPattern, LogFilter, MatchHints, NumberRange, OBSERVED_TIME, RecordMarks, SEVERITY_NUMBER, STREAM, STREAM_ID,
    TIME, ValueMatcher, stream_text, words,
};
use quiver_types::{Access, LabelSet, LogsBatch};

use crate::logs::typed_text;

pub(in crate::logs) type Row = BTreeMap<String, String>;

#[derive(Debug, Clone, Default)]
pub(in crate::logs) struct ModelRow {
    pub(in crate::logs) time: i64,
    pub(in crate::logs) stream: Vec<(String, String)>,
    pub(in crate::logs) service: String,
    pub(in crate::logs) severity: u8,
    pub(in crate::logs) observed: i64,
    pub(in crate::logs) fields: Vec<(String, String)>,
}

pub(in crate::logs) fn row(time: i64, stream: &[(&str, &str)], service: &str) -> ModelRow {
    let stream = stream.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    ModelRow { time, stream, service: service.into(), ..ModelRow::default() }
}

impl ModelRow {
    pub(in crate::logs) fn field(&mut self, name: &str, value: &str) {
        self.fields.push((name.into(), value.into()));
    }

    pub(in crate::logs) fn labels(&self) -> LabelSet {
        LabelSet::from_pairs(self.stream.iter().map(|(n, v)| (n.as_str(), v.as_str())))
    }

    fn as_seen(&self) -> Row {
        let mut row: Row = self.fields.iter().cloned().collect();
        let mut time = String::new();
        typed_text::write_time(self.time, None, &mut time);
        row.insert(TIME.into(), time);
        row.insert(STREAM.into(), stream_text(&self.labels()));
        row.insert(STREAM_ID.into(), format!("{:?}", self.labels().id()));
        row
    }
}

#[derive(Debug, Default)]
pub(in crate::logs) struct Model {
    pub(in crate::logs) rows: Vec<ModelRow>,
}

impl Model {
    /// Rows in batches of some size, in their order.
    pub(in crate::logs) fn batches(&self, size: usize) -> Vec<LogsBatch> {
        self.rows.chunks(size).map(batch).collect()
    }

    /// Rows that match and may be seen.
    pub(in crate::logs) fn select(&self, access: &Access, filter: &LogFilter) -> Vec<Row> {
        let wanted = self.rows.iter().filter(|r| access.allows(&r.service) && matches(filter, r, &r.as_seen()));
        wanted.map(ModelRow::as_seen).collect()
    }
}

pub(in crate::logs) fn batch(rows: &[ModelRow]) -> LogsBatch {
    let mut batch = LogsBatch::default();
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    let mut services: BTreeMap<&str, u32> = BTreeMap::new();
    let mut streams: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for row in rows {
        for (name, value) in &row.fields {
            let name = *names.entry(name).or_insert_with(|| {
                batch.names.push(name.as_str().into());
                batch.names.len() as u32 - 1
            });
            batch.push_field(name, value);
        }
        let service = *services.entry(&row.service).or_insert_with(|| {
            batch.services.push(row.service.as_str().into());
            batch.services.len() as u32 - 1
        });
        let labels = row.labels();
        let stream =
            *streams.entry(labels.canonical().to_vec()).or_insert_with(|| batch.push_stream(labels.canonical()));
        batch.end_row(row.time, stream, service, RecordMarks { severity: row.severity, observed: row.observed });
    }
    batch
}

fn matches(filter: &LogFilter, row: &ModelRow, seen: &Row) -> bool {
    let get = |name: &str| -> String {
        match name {
            SEVERITY_NUMBER | OBSERVED_TIME => String::new(),
            _ => seen.get(name).cloned().unwrap_or_default(),
        }
    };
    match filter {
        LogFilter::All => true,
        LogFilter::None => false,
        LogFilter::And(all) => all.iter().all(|f| matches(f, row, seen)),
        LogFilter::Or(any) => any.iter().any(|f| matches(f, row, seen)),
        LogFilter::Not(one) => !matches(one, row, seen),
        LogFilter::Value { field: FieldPattern::Name(name), matcher } => matcher.matches(&get(name)),
        LogFilter::Value { field: FieldPattern::Prefix(prefix), matcher } => {
            seen.iter().any(|(name, value)| name.starts_with(prefix.as_str()) && matcher.matches(value))
        }
        LogFilter::Row { fields, matcher } => {
            let values: Vec<String> = fields.iter().map(|f| get(f)).collect();
            matcher.matches(&values.iter().map(String::as_str).collect::<Vec<_>>())
        }
        LogFilter::Time(ranges) => ranges.iter().any(|r| r.0 <= row.time && row.time <= r.1),
        LogFilter::TimeOf(predicate) => predicate.matches(row.time),
        LogFilter::Stream(selector) => {
            let labels = row.labels();
            selector.groups.is_empty()
                || selector.groups.iter().any(|g| g.iter().all(|m| m.matches(labels.get(&m.name))))
        }
        LogFilter::StreamIds(ids) => ids.contains(&row.labels().id()),
    }
}

/// The whole value.
#[derive(Debug)]
pub(in crate::logs) struct Equals(pub(in crate::logs) String);

impl ValueMatcher for Equals {
    fn matches(&self, value: &str) -> bool {
        value == self.0
    }

    fn hints(&self) -> MatchHints {
        let words = if self.0.is_empty() { vec![] } else { vec![words(&self.0).map(str::to_owned).collect()] };
        MatchHints { exact: Some(vec![self.0.clone()]), words, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("={:?}", self.0)
    }
}

/// Matches every value but the empty one.
#[derive(Debug)]
pub(in crate::logs) struct Any;

impl ValueMatcher for Any {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty()
    }

    fn hints(&self) -> MatchHints {
        MatchHints { present: true, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        "*".into()
    }
}

/// A whole word.
#[derive(Debug)]
pub(in crate::logs) struct Word(pub(in crate::logs) String);

impl ValueMatcher for Word {
    fn matches(&self, value: &str) -> bool {
        words(value).any(|w| w == self.0)
    }

    fn hints(&self) -> MatchHints {
        MatchHints { words: vec![vec![self.0.clone()]], ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        self.0.clone()
    }
}

/// A text anywhere.
#[derive(Debug)]
pub(in crate::logs) struct Contains(pub(in crate::logs) String);

impl ValueMatcher for Contains {
    fn matches(&self, value: &str) -> bool {
        value.contains(&self.0)
    }

    fn hints(&self) -> MatchHints {
        MatchHints { substring: Some(self.0.clone()), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("*{}*", self.0)
    }
}

/// A number, an address or a time between two bounds.
#[derive(Debug)]
pub(in crate::logs) struct Number(pub(in crate::logs) f64, pub(in crate::logs) f64);

impl ValueMatcher for Number {
    fn matches(&self, value: &str) -> bool {
        let number = value.parse::<f64>().ok().filter(|_| value.ends_with(|c: char| c.is_ascii_digit()));
        let number = number.or_else(|| typed_text::read_ipv4(value).map(f64::from));
        let number = number.or_else(|| typed_text::read_time_short(value).map(|t| t as f64));
        let number = number.or_else(|| typed_text::read_time(value).map(|t| t.0 as f64));
        number.is_some_and(|n| self.0 <= n && n <= self.1)
    }

    fn hints(&self) -> MatchHints {
        let number = Some(NumberRange { min: self.0, max: self.1 });
        MatchHints { number, number_decides: true, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("range[{}, {}]", self.0, self.1)
    }
}
