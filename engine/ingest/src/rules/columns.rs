//! Applies rules to many log records at once: one rule after the other, each to the records that it selects.
//!
//! A field is located once per record for all rules, and a test that several rules share is evaluated once. Everything
//! that conditions and methods search for in one field is found in one pass over its texts, so the cost of a rule depends
//! on what it finds and not on the number of rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use quiver_types::LogsBatch;
use quiver_types::condition::{FieldName, Fields, RequiredText, Screens, SharedCondition, SharedTests};
use quiver_types::extraction::{ConvertedValue, ExtractionRule, Record, RuleExtractor};
use serde_json::Value;

/// What is known of a test of a record.
pub(super) const UNKNOWN: u8 = 0;
pub(super) const HOLDS: u8 = 1;
pub(super) const FAILS: u8 = 2;

/// The field of a record that a name means.
pub(super) fn key_of(name: &FieldName) -> &str {
    match name {
        FieldName::Intrinsic(key) => key,
        FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => key,
    }
}

/// What all rules name and ask, numbered.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) fields: Vec<String>,
    numbers: HashMap<String, usize>,
    pub(super) tests: SharedTests,
    /// The field of each test.
    test_fields: Vec<usize>,
    /// Tests and conditions of each field.
    readers: Vec<(Vec<usize>, Vec<usize>)>,
    /// The different conditions, each with the fields that it looks at.
    pub(super) conditions: Vec<(SharedCondition, Vec<usize>)>,
    /// What many tests and sources look for in one field. Askers are the tests, and behind them the rules.
    pub(super) screens: Screens,
    /// The field of each screen.
    screen_fields: Vec<usize>,
    /// Askers of which one passes wherever a condition holds.
    musts: Vec<Option<Vec<usize>>>,
    /// By condition: its only test, where the screen of that says all of it.
    told: Vec<Option<usize>>,
    /// Severity, and what it is called otherwise, if a rule names it.
    severity: Option<[usize; 3]>,
}

/// A rule's part of it.
#[derive(Debug)]
pub(super) struct RulePlan {
    /// The place of its condition.
    pub(super) condition: Option<usize>,
    /// The asker that passes wherever its method finds something.
    pub(super) source: Option<usize>,
    reads: Vec<(FieldName, usize)>,
    writes: Vec<(String, usize)>,
}

impl Plan {
    /// Numbers what rules name and ask.
    pub(super) fn of<'a>(rules: impl Iterator<Item = &'a ExtractionRule>) -> (Self, Vec<RulePlan>) {
        let mut plan = Self::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        let (mut sources, mut askers) = (Vec::new(), HashMap::new());
        let planned = rules.enumerate().map(|(n, rule)| RulePlan {
            // Rules of many services search for the same text: each text is searched once, not once per service.
            source: rule.sought().map(|(field, sought)| {
                *askers.entry(format!("{field:?} {sought:?}")).or_insert_with(|| {
                    sources.push((field.clone(), n, sought.clone()));
                    n
                })
            }),
            condition: rule.condition().map(|condition| {
                let condition = plan.tests.add(condition);
                // Tests are numbers now: what reads alike is alike.
                *places.entry(format!("{condition:?}")).or_insert_with(|| {
                    plan.conditions.push((condition, Vec::new()));
                    plan.conditions.len() - 1
                })
            }),
            reads: rule.reads().map(|name| (name.clone(), plan.number(key_of(name)))).collect(),
            writes: rule.writes().map(|field| (field.to_owned(), plan.number(field))).collect(),
        });
        let mut planned: Vec<RulePlan> = planned.collect();
        for test in 0..plan.tests.len() {
            let key = key_of(plan.tests.field(test)).to_owned();
            let field = plan.number(&key);
            plan.test_fields.push(field);
        }
        for (condition, fields) in &mut plan.conditions {
            *fields = condition.tests().into_iter().map(|test| plan.test_fields[test]).collect();
        }
        if let Some(severity) = plan.numbers.get("severity").copied() {
            plan.severity = Some([severity, plan.number("severity_text"), plan.number("level")]);
        }
        plan.screen(sources, &mut planned);
        plan.readers = vec![(Vec::new(), Vec::new()); plan.fields.len()];
        for (test, field) in plan.test_fields.iter().enumerate() {
            plan.readers[*field].0.push(test);
        }
        for (place, (_, fields)) in plan.conditions.iter().enumerate() {
            for field in fields {
                plan.readers[*field].1.push(place);
            }
        }
        (plan, planned)
    }

    /// Puts together what tests and sources of rules look for.
    fn screen(&mut self, sources: Vec<(FieldName, usize, RequiredText)>, planned: &mut [RulePlan]) {
        let tests = self.tests.len();
        let of_test = |test: usize| Some((self.tests.field(test).clone(), test, self.tests.sought(test)?));
        let of_sources = sources.into_iter().map(|(field, rule, sought)| (field, tests + rule, sought));
        let screens = Screens::of((0..tests).filter_map(of_test).chain(of_sources));
        self.screens = screens;
        for place in 0..self.screens.len() {
            let key = key_of(self.screens.field(place)).to_owned();
            let field = self.number(&key);
            self.screen_fields.push(field);
        }
        let has = |asker: usize| self.screens.place(asker).is_some();
        self.musts = self.conditions.iter().map(|(condition, _)| condition.must(&has)).collect();
        let told = |test: &usize| has(*test) && self.tests.is_told(*test);
        self.told = self.conditions.iter().map(|(condition, _)| condition.only().filter(&told)).collect();
        for rule in planned {
            rule.source = rule.source.map(|source| tests + source).filter(|asker| has(*asker));
        }
    }

    fn number(&mut self, field: &str) -> usize {
        if let Some(known) = self.numbers.get(field) {
            return *known;
        }
        self.fields.push(field.to_owned());
        self.numbers.insert(field.to_owned(), self.fields.len() - 1);
        self.fields.len() - 1
    }

    /// The number of each name of a batch that rules know.
    pub(super) fn known(&self, batch: &LogsBatch) -> Vec<Option<usize>> {
        batch.names.iter().map(|name| self.numbers.get(&**name).copied()).collect()
    }
}

/// Where the value of a field of a record begins and ends in the values of its chunk.
#[derive(Debug, Clone, Copy)]
struct Cell {
    from: u32,
    to: u32,
}

impl Cell {
    /// The record does not have the field.
    const NOWHERE: Self = Self { from: u32::MAX, to: 0 };

    fn is_nowhere(self) -> bool {
        self.from > self.to
    }
}

/// What rules set of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set {
    /// The number of the record.
    pub(super) row: usize,
    /// The number that [`Plan`] gave the field.
    pub(super) field: usize,
    /// Where its text stands among all that was set; none: it is taken away.
    pub(super) value: Option<(usize, usize)>,
}

/// A group of records of a batch, with the values that rules set in them.
pub(super) struct Chunk<'a> {
    plan: &'a Plan,
    /// All values of these records.
    values: &'a [u8],
    /// The same as one text: that it is one is looked at once.
    texts: Option<&'a str>,
    rows: usize,
    /// What records have, by field and record; empty: none has the field.
    cells: Vec<Vec<Cell>>,
    /// What rules set: places in `set`, counted from 1; 0: nothing. Empty: in no record.
    overlay: Vec<Vec<u32>>,
    /// By test and record; empty until the first one is evaluated.
    answers: Vec<Vec<u8>>,
    /// By condition: records of the present service that fulfil it, if they are known.
    selected: Vec<Option<Vec<usize>>>,
    /// For each screen, whether it was already run over the records of the present service.
    screened: Vec<bool>,
    /// By asker: records that it may let pass.
    hits: Vec<Vec<usize>>,
    /// By field: records in which rules set it.
    changed: Vec<Vec<usize>>,
    set: Vec<Set>,
    /// The texts of all that was set.
    set_texts: String,
}

impl<'a> Chunk<'a> {
    /// Finds what rules name in `rows` records from `first` on; `known` is what [`Plan::known`] gave.
    pub(super) fn new(
        plan: &'a Plan,
        batch: &'a LogsBatch,
        known: &[Option<usize>],
        first: usize,
        rows: usize,
    ) -> Self {
        let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); plan.fields.len()];
        let (values, base) = values_of(batch, first, rows);
        let mut end = 0;
        for row in 0..rows {
            for field in fields_of(batch, first + row) {
                let cell = Cell { from: end, to: batch.value_ends[field] - base };
                end = cell.to;
                let Some(number) = known[batch.field_names[field] as usize] else { continue };
                let column = &mut cells[number];
                if column.is_empty() {
                    column.resize(rows, Cell::NOWHERE);
                }
                // The first one counts.
                if column[row].is_nowhere() {
                    column[row] = cell;
                }
            }
        }
        if let Some([severity, text, level]) = plan.severity {
            let mut column = std::mem::take(&mut cells[severity]);
            column.resize(rows, Cell::NOWHERE);
            for (row, cell) in column.iter_mut().enumerate() {
                for other in [text, level] {
                    if cell.is_nowhere() {
                        // Who sends severity calls it so or otherwise.
                        *cell = cells[other].get(row).copied().unwrap_or(Cell::NOWHERE);
                    }
                }
            }
            cells[severity] = column;
        }
        let (answers, selected) = (vec![Vec::new(); plan.tests.len()], vec![None; plan.conditions.len()]);
        let askers = (0..plan.screens.len()).flat_map(|place| plan.screens.askers(place));
        let hits = vec![Vec::new(); askers.max().map_or(0, |last| last + 1)];
        let (screened, changed) = (vec![false; plan.screens.len()], vec![Vec::new(); plan.fields.len()]);
        let (texts, overlay) = (std::str::from_utf8(values).ok(), vec![Vec::new(); plan.fields.len()]);
        let (set, set_texts) = (Vec::new(), String::new());
        Self { plan, values, texts, rows, cells, overlay, answers, selected, screened, hits, changed, set, set_texts }
    }

    fn text(&self, field: usize, row: usize) -> Option<&str> {
        if let Some(at) = self.overlay[field].get(row).and_then(|place| place.checked_sub(1)) {
            return self.set[at as usize].value.map(|(from, to)| &self.set_texts[from..to]);
        }
        let cell = self.cells[field].get(row).filter(|cell| !cell.is_nowhere())?;
        let range = cell.from as usize..cell.to as usize;
        let text = self.texts.and_then(|texts| texts.get(range.clone()));
        // Decoders have checked it; what is no text reads as an empty one.
        Some(text.unwrap_or_else(|| std::str::from_utf8(&self.values[range]).unwrap_or_default()))
    }

    /// Says whether no record has a field.
    fn is_nowhere(&self, field: usize) -> bool {
        self.cells[field].is_empty() && self.overlay[field].is_empty()
    }

    fn ask(&mut self, test: usize, row: usize) -> bool {
        let plan = self.plan;
        let field = plan.test_fields[test];
        if !plan.tests.is_shared(test) || self.is_nowhere(field) {
            return plan.tests.passes(test, self.text(field, row));
        }
        if self.answers[test].is_empty() {
            self.answers[test].resize(self.rows, UNKNOWN);
        }
        match self.answers[test][row] {
            UNKNOWN => {
                let passes = plan.tests.passes(test, self.text(field, row));
                self.answers[test][row] = if passes { HOLDS } else { FAILS };
                passes
            }
            answer => answer == HOLDS,
        }
    }

    fn set(&mut self, field: usize, row: usize, made: &ConvertedValue<'_>) {
        let from = self.set_texts.len();
        let is_there = match made {
            ConvertedValue::Text(text) => {
                self.set_texts.push_str(text);
                true
            }
            ConvertedValue::Other(value) => match &**value {
                Value::Null => false,
                // Most of what is no text: it needs no serializer.
                Value::Number(number) => write!(self.set_texts, "{number}").is_ok(),
                other => write!(self.set_texts, "{other}").is_ok(),
            },
        };
        let value = is_there.then_some((from, self.set_texts.len()));
        let column = &mut self.overlay[field];
        if column.is_empty() {
            *column = vec![0; self.rows];
        }
        if let Some(at) = column[row].checked_sub(1) {
            self.set[at as usize].value = value;
        } else {
            self.set.push(Set { row, field, value });
            column[row] = self.set.len() as u32;
        }
        if self.plan.screen_fields.contains(&field) {
            self.changed[field].push(row);
        }
        let (tests, conditions) = &self.plan.readers[field];
        for test in tests {
            if let Some(answer) = self.answers[*test].get_mut(row) {
                *answer = UNKNOWN;
            }
        }
        for place in conditions {
            self.selected[*place] = None;
        }
    }

    /// Goes on with the records of another service.
    pub(super) fn begin(&mut self) {
        self.forget();
        for place in (0..self.screened.len()).filter(|place| self.screened[*place]) {
            self.plan.screens.askers(place).iter().for_each(|asker| self.hits[*asker].clear());
        }
        self.screened.fill(false);
        self.changed.iter_mut().for_each(Vec::clear);
    }

    /// Forgets which records fulfil conditions: those that are looked at are fewer now.
    pub(super) fn forget(&mut self) {
        self.selected.fill(None);
    }

    /// Forgets what tests said, too: some of it was said by work that was stopped.
    pub(super) fn doubt(&mut self) {
        self.forget();
        self.answers.iter_mut().for_each(Vec::clear);
    }

    /// Gives those of some records that one of some askers may let pass; all others fail them. `rows` are all that are
    /// looked at, and these among them.
    fn candidates(&mut self, askers: &[usize], rows: &[usize], of: &[usize]) -> Vec<usize> {
        let mut found = Vec::new();
        for asker in askers {
            let Some(place) = self.plan.screens.place(*asker) else { return of.to_vec() };
            self.look(place, rows);
            found.extend_from_slice(&self.hits[*asker]);
            // Records that rules changed since then must be checked, too.
            found.extend_from_slice(&self.changed[self.plan.screen_fields[place]]);
        }
        // What one asker has is in order.
        if !found.is_sorted_by(|one, next| one < next) {
            found.sort_unstable();
            found.dedup();
        }
        let mut rest = of;
        found.retain(|row| {
            rest = &rest[rest.partition_point(|other| other < row)..];
            rest.first() == Some(row)
        });
        found
    }

    /// Looks at records through a screen, once. Records are in order, and fewer from rule to rule.
    fn look(&mut self, place: usize, rows: &[usize]) {
        if std::mem::replace(&mut self.screened[place], true) {
            return;
        }
        let (plan, field) = (self.plan, self.plan.screen_fields[place]);
        let mut hits = std::mem::take(&mut self.hits);
        for row in rows {
            let Some(text) = self.text(field, *row) else { continue };
            plan.screens.find(place, text, &mut |asker| {
                if hits[asker].last() != Some(row) {
                    hits[asker].push(*row);
                }
            });
        }
        self.hits = hits;
    }

    /// Gives those of some records that fulfil the condition of a rule. What a rule does to one record changes no other, so
    /// that all may be asked before the first is changed.
    pub(super) fn select(&mut self, planned: &RulePlan, rows: &[usize]) -> Vec<usize> {
        let found = self.fulfilling(planned, rows);
        match planned.source {
            // Where the method finds nothing the rule does nothing.
            Some(asker) if !found.is_empty() => self.candidates(&[asker], rows, &found),
            _ => found,
        }
    }

    fn fulfilling(&mut self, planned: &RulePlan, rows: &[usize]) -> Vec<usize> {
        let Some(place) = planned.condition else { return rows.to_vec() };
        if let Some(known) = &self.selected[place] {
            return known.clone();
        }
        let plan = self.plan;
        let (condition, fields) = &plan.conditions[place];
        let candidates = plan.musts[place].as_ref().map(|askers| self.candidates(askers, rows, rows));
        let rows = candidates.as_deref().unwrap_or(rows);
        let is_told = plan.told[place].is_some_and(|test| self.changed[plan.test_fields[test]].is_empty());
        let found: Vec<usize> = if is_told {
            rows.to_vec()
        } else if fields.iter().all(|field| self.is_nowhere(*field)) {
            // No record has any of its fields: it says the same of all.
            let holds = condition.holds(&mut |test| plan.tests.passes(test, None));
            if holds { rows.to_vec() } else { Vec::new() }
        } else if let Some(test) = condition.only() {
            let field = plan.test_fields[test];
            rows.iter().copied().filter(|row| plan.tests.passes(test, self.text(field, *row))).collect()
        } else {
            rows.iter().copied().filter(|row| condition.holds(&mut |test| self.ask(test, *row))).collect()
        };
        self.selected[place] = Some(found.clone());
        found
    }

    /// Applies a rule to a record that fulfils its condition. Gives how many targets could not be written; none: it did not
    /// match.
    pub(super) fn apply(&mut self, rule: &mut RuleExtractor<'_>, planned: &RulePlan, row: usize) -> Option<u64> {
        rule.extract(&mut At { chunk: self, planned, row }, None)
    }

    /// Gives what was set, record by record, each in the order of the rules, and the texts of it; records are counted from
    /// the first one of the chunk.
    pub(super) fn into_set(self) -> (Vec<Set>, String) {
        // Where each record's begin: they are counted, which takes less than to sort them.
        let mut next = vec![0_usize; self.rows + 1];
        for set in &self.set {
            next[set.row + 1] += 1;
        }
        for row in 0..self.rows {
            next[row + 1] += next[row];
        }
        let mut sorted = self.set.clone();
        for set in self.set {
            let place = &mut next[set.row];
            sorted[*place] = set;
            *place += 1;
        }
        (sorted, self.set_texts)
    }
}

/// A record of a chunk, as one rule sees it.
struct At<'c, 'a> {
    chunk: &'c mut Chunk<'a>,
    planned: &'c RulePlan,
    row: usize,
}

impl Fields for At<'_, '_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let (_, field) = self.planned.reads.iter().find(|(known, _)| known == name)?;
        self.chunk.text(*field, self.row).map(Cow::Borrowed)
    }
}

impl Record for At<'_, '_> {
    fn set(&mut self, field: &str, value: &Value) {
        if let Some(place) = self.planned.writes.iter().position(|(known, _)| known == field) {
            self.write(place, field, &ConvertedValue::of(value));
        }
    }

    fn read(&self, place: usize, _: &FieldName) -> Option<Cow<'_, str>> {
        self.chunk.text(self.planned.reads[place].1, self.row).map(Cow::Borrowed)
    }

    fn write(&mut self, place: usize, _: &str, made: &ConvertedValue<'_>) {
        self.chunk.set(self.planned.writes[place].1, self.row, made);
    }
}

/// Numbers of the fields of a record.
fn fields_of(batch: &LogsBatch, row: usize) -> Range<usize> {
    let start = if row == 0 { 0 } else { batch.field_ends[row - 1] as usize };
    start..batch.field_ends[row] as usize
}

/// Where the values of so many fields end.
pub(super) fn end_of(batch: &LogsBatch, fields: usize) -> u32 {
    fields.checked_sub(1).map_or(0, |last| batch.value_ends[last])
}

/// The values of some records, and where they begin.
fn values_of(batch: &LogsBatch, first: usize, rows: usize) -> (&[u8], u32) {
    let fields = fields_of(batch, first).start..fields_of(batch, first + rows - 1).end;
    let (start, end) = (end_of(batch, fields.start), end_of(batch, fields.end));
    (&batch.values[start as usize..end as usize], start)
}
