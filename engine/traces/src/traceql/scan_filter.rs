//! Translates a query to a filter that the scan evaluates. The filter accepts at least the spans that the query
//! selects, and says whether it accepts others.

use std::sync::Arc;

use quiver_types::spans::{AttributeTest, KIND_NAMES, Place, SpanFilter, TextTest, hex, parse_hex};

use super::ast::{Check, Expr, Query, Relation, Spanset, Stage};
use super::fields::{Field, Intrinsic};

/// A filter, and whether it is exact.
type SpanScanFilter = (SpanFilter, bool);

impl Query {
    /// Gives a filter that at least one span of each wanted trace passes.
    pub(crate) fn filter(&self) -> SpanFilter {
        of_spans(&self.spans).0
    }

    /// Returns the filter of the wanted spans, if each span on its own decides whether it is wanted.
    pub fn exact_filter(&self) -> Option<SpanFilter> {
        let mut all = of_spans(&self.spans);
        for stage in &self.stages {
            let one = match stage {
                Stage::Select(_) => continue,
                Stage::Filter(expr) => of_expr(expr),
                _ => return None,
            };
            all = (all.0.and(one.0), all.1 && one.1);
        }
        all.1.then_some(all.0)
    }

    /// Gives a filter that every wanted span passes, where [`Query::filter`] is passed by one of each trace.
    pub(crate) fn wide_filter(&self) -> SpanFilter {
        fn of(spans: &Spanset) -> SpanFilter {
            match spans {
                Spanset::Filter(expr) => of_expr(expr).0,
                Spanset::Both(Relation::Structure { union: false, .. }, _, right) => of(right),
                Spanset::Both(_, left, right) => SpanFilter::Or(vec![of(left), of(right)]),
                Spanset::Piped(spans, _) => of(spans),
            }
        }
        of(&self.spans)
    }
}

fn of_spans(spans: &Spanset) -> SpanScanFilter {
    match spans {
        Spanset::Filter(expr) => of_expr(expr),
        Spanset::Both(Relation::Or, ..) => {
            let (mut exprs, mut parts) = (Vec::new(), Vec::new());
            alternatives(spans, &mut exprs, &mut parts);
            let mut any = together(exprs, Connective::Any);
            any.append(&mut parts);
            join(any, Connective::Any)
        }
        Spanset::Both(Relation::And, left, _) => (of_spans(left).0, false),
        Spanset::Both(Relation::Structure { .. }, _, right) => (of_spans(right).0, false),
        Spanset::Piped(spans, _) => (of_spans(spans).0, false),
    }
}

/// Takes sets of which each span is wanted apart: conditions, and what other sets are lowered to.
fn alternatives<'s>(spans: &'s Spanset, exprs: &mut Vec<&'s Expr>, parts: &mut Vec<SpanScanFilter>) {
    match spans {
        Spanset::Both(Relation::Or, left, right) => {
            alternatives(left, exprs, parts);
            alternatives(right, exprs, parts);
        }
        Spanset::Filter(Expr::Or(any)) => exprs.extend(any),
        Spanset::Filter(expr) => exprs.push(expr),
        other => parts.push(of_spans(other)),
    }
}

fn of_expr(expr: &Expr) -> SpanScanFilter {
    match expr {
        Expr::True => (SpanFilter::All, true),
        Expr::False => (SpanFilter::None, true),
        Expr::And(all) => join(together(all, Connective::All), Connective::All),
        Expr::Or(any) => join(together(any, Connective::Any), Connective::Any),
        Expr::Not(one) => match of_expr(one) {
            (filter, true) => (not(filter), true),
            _ => (SpanFilter::All, false),
        },
        Expr::Is(field, check) => of_check(field, check),
        Expr::Compare(..) => (SpanFilter::All, false),
    }
}

fn of_check(field: &Field, check: &Check) -> SpanScanFilter {
    match field {
        Field::Attribute(place, key) => of_attribute(*place, key, check),
        Field::Intrinsic(intrinsic) => of_intrinsic(*intrinsic, check),
    }
}

/// How conditions are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connective {
    All,
    Any,
}

/// Most tests of a value, beside those of a set that it may be in, between two looks whether the query goes on.
const TESTS_MAX: usize = 16;

/// Lowers conditions that are joined, those on one field together: its values are decoded and looked at once for all of
/// them. Of alternatives these are values that pass a test, of conditions that must all hold values that fail one.
fn together<'e>(parts: impl IntoIterator<Item = &'e Expr>, joined: Connective) -> Vec<SpanScanFilter> {
    let mut out = Vec::new();
    let mut by_field: Vec<(usize, &Field, Vec<&AttributeTest>)> = Vec::new();
    for part in parts {
        let tested = match part {
            Expr::Is(field, Check::Passes(test)) if joined == Connective::Any => Some((field, test)),
            Expr::Is(field @ Field::Attribute(..), Check::Fails(test)) if joined == Connective::All => {
                Some((field, test))
            }
            _ => None,
        };
        let Some((field, test)) = tested.filter(|(field, test)| goes_together(field, test)) else {
            out.push(of_expr(part));
            continue;
        };
        if let Some((_, _, tests)) = by_field.iter_mut().find(|(_, known, _)| *known == field) {
            tests.push(test);
        } else {
            by_field.push((out.len(), field, vec![test]));
            // Its place; what stands there is known at the end.
            out.push((SpanFilter::All, true));
        }
    }
    for (place, field, tests) in by_field {
        let is_value =
            |test: &&AttributeTest| matches!(test, AttributeTest::Equals(..) | AttributeTest::Text(TextTest::Is(_)));
        let (values, others): (Vec<&AttributeTest>, Vec<&AttributeTest>) = tests.into_iter().partition(is_value);
        let values = (!values.is_empty()).then(|| one_of(&values));
        let tests: Vec<AttributeTest> = values.into_iter().chain(others.into_iter().cloned()).collect();
        let groups = tests.chunks(TESTS_MAX).map(|tests| {
            let test = AttributeTest::any_of(tests.iter().cloned());
            of_check(field, &if joined == Connective::Any { Check::Passes(test) } else { Check::Fails(test) })
        });
        out[place] = join(groups.collect(), joined);
    }
    out
}

/// Joins what was lowered.
fn join(mut parts: Vec<SpanScanFilter>, joined: Connective) -> SpanScanFilter {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let is_exact = parts.iter().all(|part| part.1);
    let filters = parts.into_iter().map(|part| part.0);
    match joined {
        Connective::All => (filters.fold(SpanFilter::All, SpanFilter::and), is_exact),
        Connective::Any => (SpanFilter::Or(filters.collect()), is_exact),
    }
}

/// Says whether several such tests of the field can be one. The service and what spans have beside attributes are texts
/// with tests of their own.
fn goes_together(field: &Field, test: &AttributeTest) -> bool {
    match field {
        Field::Attribute(_, key) => key != "service.name" || matches!(test, AttributeTest::Equals(_, None)),
        Field::Intrinsic(
            Intrinsic::Name
            | Intrinsic::StatusMessage
            | Intrinsic::EventName
            | Intrinsic::ScopeName
            | Intrinsic::ScopeVersion,
        ) => matches!(test, AttributeTest::Text(TextTest::Is(_))),
        Field::Intrinsic(_) => false,
    }
}

/// The test that a value is one of these.
fn one_of(tests: &[&AttributeTest]) -> AttributeTest {
    if let [one] = tests {
        return (*one).clone();
    }
    let text = |test: &&AttributeTest| match test {
        AttributeTest::Text(TextTest::Is(text)) => Some(text.clone()),
        _ => None,
    };
    match tests.iter().map(text).collect::<Option<Vec<String>>>() {
        Some(texts) => AttributeTest::Text(TextTest::one_of(texts.iter().map(String::as_str))),
        None => AttributeTest::any_of(tests.iter().map(|test| (*test).clone())),
    }
}

fn not(filter: SpanFilter) -> SpanFilter {
    SpanFilter::Not(Box::new(filter))
}

fn of_attribute(place: Option<Place>, key: &str, check: &Check) -> SpanScanFilter {
    let at = |place, test| SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test };
    let there = |place| at(place, AttributeTest::Exists);
    // Of a list one item is enough.
    let item = |place, test: &AttributeTest| at(place, AttributeTest::Item(Box::new(test.clone())));
    let of = |place| match check {
        Check::Passes(test) => item(place, test),
        Check::Fails(test) => there(place).and(not(item(place, test))),
        Check::There => there(place),
        Check::Missing => not(there(place)),
    };
    match place {
        Some(Place::Resource) if key == "service.name" => match check {
            Check::Passes(test) => of_service(test).map_or((SpanFilter::All, false), |filter| (filter, true)),
            Check::Fails(test) => of_service(test).map_or((SpanFilter::All, false), |filter| (not(filter), true)),
            // Every span has one.
            Check::There => (SpanFilter::All, true),
            Check::Missing => (SpanFilter::None, true),
        },
        // Of several events one may pass and another not.
        Some(place @ (Place::Event | Place::Link)) => match check {
            Check::Fails(_) => (there(place), false),
            _ => (of(place), true),
        },
        Some(place) => (of(place), true),
        None if key == "service.name" => match check {
            Check::Passes(test) | Check::Fails(test) => {
                let Some(service) = of_service(test) else { return (SpanFilter::All, false) };
                let service = if matches!(check, Check::Passes(_)) { service } else { not(service) };
                (SpanFilter::Or(vec![of(Place::Span), not(there(Place::Span)).and(service)]), true)
            }
            Check::There => (SpanFilter::All, true),
            Check::Missing => (SpanFilter::None, true),
        },
        None => match check {
            Check::Missing => (of(Place::Span).and(of(Place::Resource)), true),
            _ => (SpanFilter::Or(vec![of(Place::Span), not(there(Place::Span)).and(of(Place::Resource))]), true),
        },
    }
}

/// Lowers a test of the service, which is a text that every span has.
fn of_service(test: &AttributeTest) -> Option<SpanFilter> {
    Some(SpanFilter::Service(match test {
        AttributeTest::Text(test) => test.clone(),
        AttributeTest::Equals(text, None) => TextTest::Is(text.clone()),
        AttributeTest::OneOf(set) if set.numbers().is_empty() => {
            TextTest::one_of(set.texts().iter().map(String::as_str))
        }
        _ => return None,
    }))
}

fn of_intrinsic(intrinsic: Intrinsic, check: &Check) -> SpanScanFilter {
    // Every span has one, which may be empty.
    let text = |make: fn(TextTest) -> SpanFilter| match check {
        Check::Passes(AttributeTest::Text(test)) => (make(test.clone()), true),
        Check::Fails(AttributeTest::Text(test)) => (not(make(test.clone())), true),
        Check::There => (SpanFilter::All, true),
        Check::Missing => (SpanFilter::None, true),
        _ => (SpanFilter::All, false),
    };
    let word = |filter: fn(&str) -> Option<SpanFilter>| match check {
        Check::Passes(AttributeTest::Equals(word, _)) => filter(word).map_or((SpanFilter::All, false), |f| (f, true)),
        Check::Fails(AttributeTest::Equals(word, _)) => {
            filter(word).map_or((SpanFilter::All, false), |f| (not(f), true))
        }
        Check::There => (SpanFilter::All, true),
        Check::Missing => (SpanFilter::None, true),
        _ => (SpanFilter::All, false),
    };
    match intrinsic {
        Intrinsic::Name => text(SpanFilter::Name),
        Intrinsic::StatusMessage => text(SpanFilter::Message),
        Intrinsic::EventName => match check {
            Check::Passes(AttributeTest::Text(test)) => (SpanFilter::EventName(test.clone()), true),
            // Of several events one may pass and another not.
            _ => (SpanFilter::All, false),
        },
        Intrinsic::ScopeName => text(SpanFilter::ScopeName),
        Intrinsic::ScopeVersion => text(SpanFilter::ScopeVersion),
        Intrinsic::Status => word(|word| {
            let state = ["unset", "ok", "error"].iter().position(|s| *s == word)?;
            Some(SpanFilter::Status(state as u8))
        }),
        Intrinsic::Kind => word(|word| match word {
            "unspecified" => Some(SpanFilter::Kinds(vec![0])),
            word => Some(SpanFilter::Kinds(vec![KIND_NAMES.iter().position(|k| *k == word)? as u8])),
        }),
        Intrinsic::Duration => match check {
            // Whole nanoseconds: of the bounds those within count.
            Check::Passes(AttributeTest::Number(min, max)) => {
                (SpanFilter::Duration(min.ceil() as i64, max.floor() as i64), true)
            }
            Check::Fails(AttributeTest::Number(min, max)) => {
                (not(SpanFilter::Duration(min.ceil() as i64, max.floor() as i64)), true)
            }
            Check::There => (SpanFilter::All, true),
            _ => (SpanFilter::All, false),
        },
        Intrinsic::ParentId => match check {
            Check::Missing => (SpanFilter::Root, true),
            Check::There => (not(SpanFilter::Root), true),
            _ => (SpanFilter::All, false),
        },
        Intrinsic::NestedSetParent => match check {
            // Below 0 there is -1 alone.
            Check::Passes(AttributeTest::Number(min, max)) if *min <= -1.0 && (-1.0..0.0).contains(max) => {
                (SpanFilter::Root, true)
            }
            _ => (SpanFilter::All, false),
        },
        // Not exact: who counts spans one by one would count reports that were sent again, which look-ups read.
        Intrinsic::TraceId => match check {
            Check::Passes(AttributeTest::Text(TextTest::Is(text))) => match parse_hex::<16>(text) {
                // In any other form the text is that of no trace.
                Some(id) if hex(&id) == *text => (SpanFilter::Traces(Arc::new(vec![id])), false),
                _ => (SpanFilter::None, false),
            },
            _ => (SpanFilter::All, false),
        },
        // What of the trace is asked is known when it is assembled.
        _ => (SpanFilter::All, false),
    }
}
