//! Filters select the same rows, and results have the same values, however rows are stored: live, or in a part as texts,
//! views or dictionary codes.

use arrow::array::{Array as _, RecordBatch};
use arrow::util::display::array_value_to_string;
use quiver_types::read_stats::Gate;
use quiver_types::spans::{AttributeKind, NumberedFilter, SpanColumn};
use quiver_types::{Error, ErrorKind, Result};
use tempfile::TempDir;
use uuid::Uuid;

use super::super::evaluation::{self, SpanSet};
use super::super::live::LiveRows;
use super::*;
use crate::cache::Caches;
use crate::io::LocalIo;
use crate::part::spans::{PartRows, SpanPartWriter, SpanRows, own_columns, sorted};
use crate::part::{Part, PartCompression, PartOrigin, PartSpec};

const SPANS: u64 = 120;

fn matching(set: &impl SpanSet, filter: &SpanFilter, access: &Access) -> Vec<bool> {
    evaluation::matching(set, filter, access, &ReadStats::default()).unwrap()
}

fn matching_of(keep: Vec<bool>, set: &impl SpanSet, filter: &SpanFilter, access: &Access) -> Vec<bool> {
    evaluation::matching_of(keep, set, filter, access, &ReadStats::default()).unwrap()
}

/// A live batch, and a part of its rows.
struct Both {
    _dir: TempDir,
    batch: SpansBatch,
    part: Part,
    /// Of each row of the part its place in the batch.
    order: Vec<usize>,
}

fn both() -> Both {
    let dir = tempfile::tempdir().unwrap();
    let batches = [batch(0, SPANS)];
    let spec = PartSpec {
        table: "spans".to_owned(),
        day: 19_675,
        level: 0,
        id: Uuid::now_v7(),
        origin: PartOrigin::Flushed {
            writer: Uuid::nil(),
            generation: 1,
            flush_id: Uuid::max(),
            output: 0,
            outputs: 1,
        },
        place: crate::part::Place::Store,
        window: 0,
        compression: PartCompression::Fresh,
    };
    let sorted = sorted(&batches, |_| true).unwrap();
    let order: Vec<usize> = sorted.rows.iter().map(|(_, row)| *row as usize).collect();
    let mut writer = SpanPartWriter::create(dir.path(), spec, own_columns(batches.iter()), true).unwrap();
    writer.push(&sorted.batches, &sorted.rows).unwrap();
    let meta = writer.finish().unwrap().unwrap();
    assert_eq!((meta.rows, order.len() as u64), (SPANS, SPANS));
    let io = Arc::new(LocalIo::new(dir.path(), dir.path()));
    let part = Part::new(meta, io, Arc::new(Caches::local(64 << 20)));
    drop(sorted);
    let [batch] = batches;
    Both { _dir: dir, batch, part, order }
}

impl Both {
    /// All rows of the part: as texts, as views, by codes.
    async fn rows(&self) -> [SpanRows; 3] {
        let stats = ReadStats::default();
        let schema = self.part.span_columns(&stats).await.unwrap();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let all = 0..SPANS;
        let all = std::slice::from_ref(&all);
        let texts = self.part.span_rows(all, &names, &stats).await.unwrap();
        let views = self.part.span_rows_viewed(all, &names, &stats).await.unwrap();
        let coded = self.part.span_rows_all_coded(all, &names, &stats).await.unwrap();
        [texts, views, coded].map(|rows| SpanRows::concat(&rows).unwrap())
    }
}

/// Filters beside those of [`cases`]: borders, nothing, and tests of other kinds.
fn more() -> Vec<SpanFilter> {
    let is = |text: &str| TextTest::Is(text.to_owned());
    let has = |place, key: &str, test| SpanFilter::Attribute { place, key: key.to_owned(), test };
    let (span, resource) = (Some(Place::Span), Some(Place::Resource));
    vec![
        SpanFilter::WithoutRepeats,
        SpanFilter::Overlaps(T0 + 60_000_000_000, T0 + 70_000_000_000),
        SpanFilter::Overlaps(T0 + 61_000_013_000, T0 + 61_000_013_000),
        SpanFilter::Received(T0 - 1),
        SpanFilter::Received(T0),
        SpanFilter::Message(is("failed")),
        SpanFilter::Message(is("")),
        SpanFilter::Name(TextTest::Contains("OST".to_owned())),
        SpanFilter::ScopeName(TextTest::Prefix("li".to_owned())),
        SpanFilter::ScopeVersion(is("1")),
        SpanFilter::Duration(0, 0),
        SpanFilter::Duration(i64::MIN, 3000),
        SpanFilter::And(Vec::new()),
        SpanFilter::Or(Vec::new()),
        SpanFilter::Kinds(Vec::new()),
        SpanFilter::Traces(Arc::default()),
        SpanFilter::EventName(is("other")),
        has(None, "double", AttributeTest::Number(3.0, 9.5)),
        has(span, "number", AttributeTest::Number(7.0, 11.0)),
        has(span, "number", AttributeTest::Text(TextTest::Prefix("1".to_owned()))),
        has(span, "text", AttributeTest::Text(TextTest::Contains("v1".to_owned()))),
        has(None, "bytes", AttributeTest::Exists),
        has(None, "flag", AttributeTest::Number(0.0, 1.0)),
        has(span, "r", AttributeTest::equals("1.0")),
        has(resource, "r", AttributeTest::equals("1")),
        has(None, "r", AttributeTest::equals("1")),
        has(resource, "service.name", AttributeTest::Exists),
        has(span, "service.name", AttributeTest::Exists),
        has(Some(Place::Scope), "number", AttributeTest::Exists),
        has(Some(Place::Event), "in.event", AttributeTest::Number(5.0, 50.0)),
        has(None, "missing", AttributeTest::Exists),
        SpanFilter::Not(Box::new(has(None, "mixed", AttributeTest::equals("5")))),
        SpanFilter::And(vec![
            SpanFilter::Status(0),
            SpanFilter::Or(vec![SpanFilter::Root, SpanFilter::Kinds(vec![3])]),
            SpanFilter::Not(Box::new(SpanFilter::Name(is("GET /")))),
        ]),
    ]
}

#[tokio::test]
async fn filters_take_the_same_rows_live_and_in_parts() {
    let both = both();
    let rows = both.rows().await;
    let filters = cases().into_iter().map(|(filter, _)| filter).chain(more());
    let (mut some, mut none) = (0, 0);
    for filter in filters {
        for access in [Access::full(), Access::services(["b"]), Access::services(["", "a"])] {
            let live = matching(&LiveRows::new(&both.batch), &filter, &access);
            let expected: Vec<bool> = both.order.iter().map(|&row| live[row]).collect();
            *(if live.contains(&true) { &mut some } else { &mut none }) += 1;
            for (rows, how) in rows.iter().zip(["as texts", "as views", "by codes"]) {
                let found = matching(&PartRows::new(rows), &filter, &access);
                assert_eq!(found, expected, "{filter} {how} for {access:?}");
            }
        }
    }
    assert!(some > 90 && none > 20, "{some} and {none}: both happen");
}

/// Columns that an answer may have.
fn columns() -> Vec<SpanColumn> {
    let attribute = |place, key: &str, kind| SpanColumn::Attribute(place, key.to_owned(), kind);
    let coded = |of: SpanColumn| SpanColumn::Coded(Box::new(of));
    let (text, int, double) = (AttributeKind::Text, AttributeKind::Int, AttributeKind::Double);
    let mut all = all_columns();
    all.extend([
        SpanColumn::Text("name"),
        SpanColumn::Text("status_message"),
        SpanColumn::Duration,
        attribute(Place::Span, "number", int),
        attribute(Place::Span, "number", double),
        attribute(Place::Span, "double", double),
        attribute(Place::Span, "mixed", text),
        attribute(Place::Span, "bytes", text),
        attribute(Place::Span, "list", text),
        attribute(Place::Span, "flag", text),
        attribute(Place::Span, "rare", text),
        attribute(Place::Span, "missing", double),
        attribute(Place::Resource, "host.name", text),
        attribute(Place::Resource, "r", int),
        coded(SpanColumn::Context("service")),
        coded(SpanColumn::Text("name")),
        coded(attribute(Place::Span, "text", text)),
        coded(attribute(Place::Span, "mixed", text)),
        coded(attribute(Place::Resource, "missing", text)),
    ]);
    // What a filter says of a row, as it says when the rows are picked by it.
    let filters = cases().into_iter().map(|(filter, _)| filter).chain(more()).enumerate();
    all.extend(filters.map(|(number, filter)| SpanColumn::Passes(NumberedFilter { number, filter: Arc::new(filter) })));
    all
}

/// The values of the one column of a batch, whatever they are stored as.
fn values(batch: &RecordBatch) -> Vec<Option<String>> {
    let column = batch.column(0);
    // A text by codes is null where its code is.
    let value = |row: usize| column.is_valid(row).then(|| array_value_to_string(column, row).unwrap());
    (0..batch.num_rows()).map(value).collect()
}

#[tokio::test]
async fn answers_have_the_same_values_live_and_in_parts() {
    let both = both();
    let [texts, views, _] = both.rows().await;
    let (live, stats) = (LiveRows::new(&both.batch), ReadStats::default());
    for third in [None, Some(0), Some(2)] {
        let keep = |row: usize| third.is_none_or(|third| row % 3 == third);
        let kept_live: Vec<bool> = (0..both.order.len()).map(keep).collect();
        let kept: Vec<bool> = both.order.iter().map(|&row| keep(row)).collect();
        // The kept rows of the part as places among the kept ones of the batch.
        let place = |row: usize| (0..row).filter(|&row| keep(row)).count();
        let places: Vec<usize> = both.order.iter().filter(|&&row| keep(row)).map(|&row| place(row)).collect();
        for column in columns() {
            let column = std::slice::from_ref(&column);
            let of_live = live.project(&kept_live, column, &stats).unwrap();
            let of_live_values = values(&of_live);
            let expected: Vec<Option<String>> = places.iter().map(|&at| of_live_values[at].clone()).collect();
            for (rows, views) in [(&texts, false), (&views, true)] {
                if views && !column[0].takes_views() {
                    continue;
                }
                let found = rows.filter(&kept).unwrap().project(column, &stats).unwrap();
                assert_eq!(found.schema(), of_live.schema());
                assert_eq!(values(&found), expected, "{column:?}, views: {views}");
            }
        }
    }
}

#[tokio::test]
async fn values_of_another_type_are_told_alike() {
    let both = both();
    let [texts, views, _] = both.rows().await;
    let mixed = SpanColumn::Attribute(Place::Span, "mixed".to_owned(), AttributeKind::Int);
    let mixed = std::slice::from_ref(&mixed);
    let (all, stats) = (vec![true; both.order.len()], ReadStats::default());
    let expected = LiveRows::new(&both.batch).project(&all, mixed, &stats).unwrap_err();
    assert!(expected.message.contains("`five`"), "{}", expected.message);
    for rows in [texts, views] {
        let error = rows.project(mixed, &stats).unwrap_err();
        assert_eq!((error.kind(), error.message), (expected.kind(), expected.message.clone()));
    }
    // No column at all is still so many rows.
    let rows = LiveRows::new(&both.batch).project(&all, &[], &stats).unwrap();
    assert_eq!((rows.num_rows(), rows.num_columns()), (SPANS as usize, 0));
}

/// Filters within filters take what their parts take, put together.
#[test]
fn conditions_are_put_together_in_any_way() {
    let batch = batch(0, 60);
    let (live, full) = (LiveRows::new(&batch), Access::full());
    let leaf = |filter: SpanFilter| {
        let rows = matching(&live, &filter, &full);
        (filter, rows)
    };
    let leaves: Vec<(SpanFilter, Vec<bool>)> = cases().into_iter().map(|(filter, _)| leaf(filter)).collect();
    let mut seed = 11u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..300 {
        let count = 1 + random(6);
        let mut pile: Vec<_> = (0..count).map(|_| leaves[random(leaves.len())].clone()).collect();
        while pile.len() > 1 || random(3) == 0 {
            let parts = pile.split_off(pile.len() - 1 - random(pile.len()));
            let (filters, taken): (Vec<SpanFilter>, Vec<Vec<bool>>) = parts.into_iter().unzip();
            let each = |of: fn(&[Vec<bool>], usize) -> bool| -> Vec<bool> {
                (0..batch.len()).map(|row| of(&taken, row)).collect()
            };
            pile.push(match random(3) {
                0 => (SpanFilter::And(filters), each(|taken, row| taken.iter().all(|one| one[row]))),
                1 => (SpanFilter::Or(filters), each(|taken, row| taken.iter().any(|one| one[row]))),
                _ => {
                    let not = SpanFilter::Not(Box::new(SpanFilter::Or(filters)));
                    (not, each(|taken, row| !taken.iter().any(|one| one[row])))
                }
            });
        }
        let (filter, expected) = &pile[0];
        assert_eq!(matching(&live, filter, &full), *expected, "{filter}");
        // Rows that were left out before stay so.
        let odd: Vec<bool> = (0..batch.len()).map(|row| row % 2 == 1).collect();
        let both: Vec<bool> = expected.iter().zip(&odd).map(|(one, other)| *one && *other).collect();
        assert_eq!(matching_of(odd, &live, filter, &full), both, "{filter}");
    }
}

/// A query that has ended.
#[derive(Debug)]
struct Ended;

impl Gate for Ended {
    fn take(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Cancelled, "it ended"))
    }
}

/// Hundreds of conditions are not all tested for a caller who is gone.
#[test]
fn a_long_filter_ends_with_its_query() {
    let batch = batch(0, SPANS);
    let (live, stats) = (LiveRows::new(&batch), ReadStats::default());
    stats.set_gate(Arc::new(Ended));
    let with = |conditions: usize| {
        let one = |n: usize| SpanFilter::Attribute { place: None, key: format!("k{n}"), test: AttributeTest::Exists };
        let or = SpanFilter::Or((0..conditions).map(one).collect());
        evaluation::matching(&live, &SpanFilter::Not(Box::new(or)), &Access::full(), &stats).map(|keep| keep.len())
    };
    assert_eq!(with(10).ok(), Some(SPANS as usize), "short work does not ask");
    assert_eq!(with(10_000).map_err(|e| e.kind), Err(ErrorKind::Cancelled));
}
