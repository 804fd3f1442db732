//! Serialized forms of what a scan of spans is asked for, where they differ from the types in memory.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::columns::{NumberedFilter, SpanColumn};
use super::schema::{CONTEXT_COLUMNS, SPAN_COLUMNS};
use super::{AttributeKind, Place};
use crate::{Error, Result};

/// A column; names are looked up when it is read.
#[derive(Debug, Serialize, Deserialize)]
enum ColumnForm {
    Own(String),
    Text(String),
    Duration,
    Context(String),
    Attribute(Place, String, AttributeKind),
    Coded(#[serde(with = "crate::nesting")] Box<ColumnForm>),
    Passes(NumberedFilter),
}

impl From<SpanColumn> for ColumnForm {
    fn from(column: SpanColumn) -> Self {
        match column {
            SpanColumn::Own(name) => Self::Own(name.to_owned()),
            SpanColumn::Text(name) => Self::Text(name.to_owned()),
            SpanColumn::Duration => Self::Duration,
            SpanColumn::Context(name) => Self::Context(name.to_owned()),
            SpanColumn::Attribute(place, key, kind) => Self::Attribute(place, key, kind),
            SpanColumn::Coded(of) => Self::Coded(Box::new((*of).into())),
            SpanColumn::Passes(one) => Self::Passes(one),
        }
    }
}

impl TryFrom<ColumnForm> for SpanColumn {
    type Error = Error;

    fn try_from(form: ColumnForm) -> Result<Self> {
        Ok(match form {
            ColumnForm::Own(name) => Self::Own(known(&SPAN_COLUMNS, &name)?),
            ColumnForm::Text(name) => Self::Text(known(&SPAN_COLUMNS, &name)?),
            ColumnForm::Duration => Self::Duration,
            ColumnForm::Context(name) => Self::Context(known(&CONTEXT_COLUMNS, &name)?),
            ColumnForm::Attribute(place, key, kind) => Self::Attribute(place, key, kind),
            ColumnForm::Coded(of) => Self::Coded(Box::new((*of).try_into()?)),
            ColumnForm::Passes(one) => Self::Passes(one),
        })
    }
}

impl Serialize for SpanColumn {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        ColumnForm::from(self.clone()).serialize(serializer)
    }
}

// Derived, names that are static would ask for bytes that are.
impl<'de> Deserialize<'de> for SpanColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        ColumnForm::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

fn known(columns: &[&'static str], name: &str) -> Result<&'static str> {
    let unknown = || Error::internal(format!("spans have no column `{name}`"));
    columns.iter().copied().find(|known| *known == name).ok_or_else(unknown)
}

/// A pattern: its text, compiled anew within the bounds of all others.
pub(super) mod regex {
    use std::sync::Arc;

    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::matcher::{WatchedRegex, affordable, builder};

    pub(in crate::spans) fn serialize<S: Serializer>(
        regex: &Arc<WatchedRegex>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if regex.has_flags() {
            let pattern = regex.as_str();
            return Err(S::Error::custom(format!("the pattern `{pattern}` has flags, which have no written form")));
        }
        serializer.serialize_str(regex.as_str())
    }

    pub(in crate::spans) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<WatchedRegex>, D::Error> {
        let pattern = String::deserialize(deserializer)?;
        affordable(&pattern).map_err(D::Error::custom)?;
        let regex = builder(&pattern).build().map_err(D::Error::custom)?;
        Ok(Arc::new(WatchedRegex::new(regex)))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Arc;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::matcher::{WatchedRegex, builder};
    use crate::spans::{AttributeTest, RollupRequest, SpanFilter, SpanRequest, TagRequest, TextTest, all_columns};
    use crate::{Access, AccessSegment, Matcher, SegmentRows};

    fn back<T: Serialize + DeserializeOwned>(value: &T) -> T {
        postcard::from_bytes(&postcard::to_allocvec(value).expect("written")).expect("read")
    }

    fn comes_back<T: Serialize + DeserializeOwned + Debug>(value: &T) {
        assert_eq!(format!("{:?}", back(value)), format!("{value:?}"));
    }

    fn pattern(text: &str) -> TextTest {
        TextTest::Regex(Arc::new(WatchedRegex::new(builder(text).build().expect("a pattern"))))
    }

    fn filter() -> SpanFilter {
        let of = |place, test| SpanFilter::Attribute { place, key: "k".to_owned(), test };
        SpanFilter::And(vec![
            SpanFilter::Traces(Arc::new(vec![[0; 16], [255; 16]])),
            SpanFilter::WithoutRepeats,
            SpanFilter::Starts(i64::MIN, -1),
            SpanFilter::Overlaps(0, i64::MAX),
            SpanFilter::Duration(5, 6),
            SpanFilter::Or(vec![
                SpanFilter::Service(TextTest::Is("ä\"".to_owned())),
                SpanFilter::Name(TextTest::Prefix(String::new())),
                SpanFilter::Message(TextTest::Contains("\n".to_owned())),
                SpanFilter::EventName(pattern("^(?i:a|b)$")),
                SpanFilter::ScopeName(TextTest::Is("lib".to_owned())),
                SpanFilter::ScopeVersion(TextTest::Is("1".to_owned())),
                SpanFilter::Name(TextTest::Lower("é".to_owned())),
            ]),
            SpanFilter::Not(Box::new(SpanFilter::Or(Vec::new()))),
            SpanFilter::Kinds(vec![0, 255]),
            SpanFilter::Status(2),
            SpanFilter::Root,
            SpanFilter::Received(i64::MAX),
            SpanFilter::All,
            SpanFilter::None,
            of(None, AttributeTest::Exists),
            of(Some(Place::Link), AttributeTest::Text(pattern("x+"))),
            of(Some(Place::Event), AttributeTest::equals("-0.0")),
            of(Some(Place::Span), AttributeTest::Text(TextTest::one_of(["b", "a"]))),
            of(Some(Place::Scope), AttributeTest::Number(f64::NEG_INFINITY, f64::MAX)),
            of(Some(Place::Resource), AttributeTest::Item(Box::new(AttributeTest::equals("q")))),
            of(None, AttributeTest::any_of(["b", "7"].map(AttributeTest::equals))),
            of(None, AttributeTest::any_of([AttributeTest::equals("x"), AttributeTest::Number(0.0, 1.0)])),
        ])
    }

    #[test]
    fn requests_come_back() {
        let mut columns = all_columns();
        columns.extend([SpanColumn::Text("name"), SpanColumn::Duration]);
        let attribute = SpanColumn::Attribute(Place::Resource, "host".to_owned(), AttributeKind::Double);
        columns.push(SpanColumn::Coded(Box::new(attribute)));
        columns.push(SpanColumn::Passes(NumberedFilter { number: 3, filter: Arc::new(filter()) }));
        comes_back(&SpanRequest { filter: filter(), columns });
        comes_back(&TagRequest { filter: filter(), place: Some(Place::Span), key: Some(String::new()) });
        comes_back(&TagRequest { filter: SpanFilter::All, place: None, key: None });
        for request in [
            RollupRequest::Graph(i64::MIN, 7),
            RollupRequest::Operations(0, 0),
            RollupRequest::Instances(-1, 1),
            RollupRequest::Services,
        ] {
            assert_eq!(back(&request), request);
        }
        let SpanFilter::EventName(TextTest::Regex(regex)) = back(&SpanFilter::EventName(pattern("^(?i)a.?$"))) else {
            panic!("another filter")
        };
        assert!(regex.is_match("AB") && !regex.is_match("xa"));
    }

    #[test]
    fn rights_come_back() {
        let within = |rows| AccessSegment { identity: "s 1".to_owned(), rows };
        for access in [
            Access::full(),
            Access::services(["a", "", "ä"]),
            Access::services(["a"]).narrowed(within(SegmentRows::Spans(filter()))),
            Access::full().narrowed(within(SegmentRows::Series(vec![vec![Matcher::equal("a", "b")], Vec::new()]))),
            Access::full().narrowed(within(SegmentRows::Logs(crate::logs::LogFilter::None))),
        ] {
            comes_back(&access);
            assert_eq!(back(&access), access);
        }
        assert!(!back(&Access::services(["a"])).allows("b"), "nobody sees more by it");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let folded = builder("a").case_insensitive(true).build().expect("a pattern");
        let test = TextTest::Regex(Arc::new(WatchedRegex::with_flags(folded)));
        assert!(postcard::to_allocvec(&test).is_err(), "its flags would be lost");
        let column = postcard::to_allocvec(&ColumnForm::Own("nothing".to_owned())).expect("written");
        assert!(postcard::from_bytes::<SpanColumn>(&column).is_err());
        let mut deep = SpanFilter::Root;
        for _ in 0..100_000 {
            deep = SpanFilter::Not(Box::new(deep));
        }
        assert!(postcard::to_allocvec(&deep).is_err(), "nobody could read it");
        // Levels are let go one by one: to drop them all at once takes as many frames as they are.
        while let SpanFilter::Not(inner) = deep {
            deep = *inner;
        }
        let short = postcard::to_allocvec(&SpanFilter::All).expect("written");
        assert!(postcard::from_bytes::<SpanRequest>(&short).is_err());
        let mut broken = postcard::to_allocvec(&TextTest::Is("x".into())).expect("written");
        broken[0] = 77;
        assert!(postcard::from_bytes::<TextTest>(&broken).is_err());
    }
}
