use std::collections::BTreeMap;

use quiver_types::LabelSet;
use quiver_types::logs::{FieldPattern, MatchHints};

use super::*;

/// Streams whose postings are made anew for each question.
struct Streams(Vec<LiveStream>);

/// One of each kind: labels that are missing, services that are none, two streams of one identifier.
fn streams() -> Streams {
    let mut all = Vec::new();
    for a in ["", "x", "y", "xy"] {
        for b in ["", "1"] {
            for service in ["", "web", "x"] {
                let pairs = [("a", a), ("b", b)].into_iter().filter(|(_, value)| !value.is_empty());
                let labels = LabelSet::from_pairs(pairs);
                all.push(LiveStream { id: labels.id(), labels, service: service.into() });
            }
        }
    }
    Streams(all)
}

#[async_trait]
impl Postings for Streams {
    async fn streams(&self) -> Result<usize> {
        Ok(self.0.len())
    }

    async fn each_value(&self, kind: u8, label: &str, only: Option<&str>, visit: &mut VisitValue<'_>) -> Result<()> {
        let mut values: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (slot, stream) in (0..).zip(&self.0) {
            if kind == KIND_SERVICE {
                values.entry(&stream.service).or_default().push(slot);
            } else if stream.labels.iter().any(|(name, _)| name == label) {
                values.entry(stream.labels.get(label)).or_default().push(slot);
            }
        }
        for (value, slots) in values {
            if only.is_none_or(|only| only == value) {
                visit(value, ValueStreams::Live(&slots));
            }
        }
        Ok(())
    }

    async fn with_id(&self, id: StreamId) -> Result<Vec<u32>> {
        Ok((0..).zip(&self.0).filter(|(_, stream)| stream.id == id).map(|(slot, _)| slot).collect())
    }

    async fn each_text(&self, value: &StreamValue, visit: &mut VisitText<'_>) -> Result<()> {
        for (slot, stream) in (0..).zip(&self.0) {
            visit(slot, &value.of(stream));
        }
        Ok(())
    }
}

/// Checks that postings choose the streams that pass one by one.
async fn check(test: StreamTest<'_>) {
    let all = streams();
    let set = choose(test, &all).await.unwrap();
    for (slot, stream) in (0..).zip(&all.0) {
        assert_eq!(set.contains(slot), test.passes(stream), "{stream:?} and {test:?}");
    }
}

fn matchers() -> Vec<Matcher> {
    let mut all = Vec::new();
    for name in ["a", "b", "missing"] {
        for value in ["", "x", "z"] {
            all.extend([MatchOp::Equal, MatchOp::NotEqual].map(|op| Matcher::new(name, op, value).unwrap()));
        }
        for value in ["", "x|1", ".*", ".+", "x?"] {
            all.extend([MatchOp::Regex, MatchOp::NotRegex].map(|op| Matcher::new(name, op, value).unwrap()));
        }
    }
    all
}

#[tokio::test]
async fn selectors_choose_the_streams_that_pass() {
    let all = matchers();
    let select = |groups: Vec<Vec<Matcher>>| StreamSelector { groups };
    check(StreamTest::Selector(&select(vec![]))).await;
    check(StreamTest::Selector(&select(vec![vec![]]))).await;
    for first in &all {
        check(StreamTest::Selector(&select(vec![vec![first.clone()]]))).await;
        for second in &all {
            check(StreamTest::Selector(&select(vec![vec![first.clone(), second.clone()]]))).await;
            check(StreamTest::Selector(&select(vec![vec![first.clone()], vec![second.clone()]]))).await;
        }
    }
}

#[tokio::test]
async fn identifiers_choose_all_streams_that_have_them() {
    let known: Vec<StreamId> = streams().0.iter().map(|stream| stream.id).collect();
    let unknown = StreamId::from_bytes([7; 16]);
    for ids in [vec![], vec![unknown], vec![known[0]], vec![known[3], known[3], unknown, known[9]], known.clone()] {
        check(StreamTest::Ids(&ids)).await;
    }
    // So many that streams are asked for theirs instead.
    let mut many: Vec<StreamId> = (0..=EXACT_MAX as u32).map(|n| StreamId::of(&n.to_be_bytes())).collect();
    check(StreamTest::Ids(&many)).await;
    many.extend([known[0], known[6]]);
    check(StreamTest::Ids(&many)).await;
}

/// Takes some texts, and may say so beforehand.
#[derive(Debug)]
struct OneOf {
    texts: &'static [&'static str],
    /// What it says of texts that match; `None`: nothing.
    exact: Option<&'static [&'static str]>,
}

impl ValueMatcher for OneOf {
    fn matches(&self, value: &str) -> bool {
        self.texts.contains(&value)
    }

    fn hints(&self) -> MatchHints {
        let exact = self.exact.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        MatchHints { exact, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

#[tokio::test]
async fn values_choose_the_streams_that_pass() {
    let own = |name: &str| StreamValue::Label(name.to_owned());
    let values = [own("a"), own("missing"), StreamValue::Service, StreamValue::Id, StreamValue::Text];
    let same = ["", "x"].map(|text| StreamValue::Same(text.into()));
    let matchers = [
        OneOf { texts: &[], exact: None },
        OneOf { texts: &["x", "xy"], exact: None },
        OneOf { texts: &["x", "xy"], exact: Some(&["x", "xy"]) },
        // What is said beforehand may be more than what matches.
        OneOf { texts: &["x"], exact: Some(&["x", "y", "web", "nothing"]) },
        // A value that is missing is the empty text.
        OneOf { texts: &["", "web"], exact: None },
        OneOf { texts: &["", "web"], exact: Some(&["", "web"]) },
        OneOf { texts: &["{a=\"x\"}", "{}"], exact: None },
    ];
    for value in values.iter().chain(&same) {
        for matcher in &matchers {
            check(StreamTest::Value(value, matcher)).await;
        }
    }
}

/// Whether rows of a stream match a filter, as far as the stream decides.
fn holds(filter: &LogFilter, stream: &LiveStream) -> bool {
    match filter {
        LogFilter::Stream(selector) => selector.selects(|name| stream.labels.get(name)),
        LogFilter::StreamIds(ids) => ids.contains(&stream.id),
        LogFilter::Value { field: FieldPattern::Name(name), matcher } => matcher.matches(stream.labels.get(name)),
        LogFilter::And(all) => all.iter().all(|one| holds(one, stream)),
        LogFilter::Or(any) => any.iter().any(|one| holds(one, stream)),
        LogFilter::Not(one) => !holds(one, stream),
        other => panic!("not of this test: {other}"),
    }
}

/// Breaks if a stream is ruled out of which rows match: those rows would be missing from answers.
#[tokio::test]
async fn no_stream_with_rows_that_match_is_ruled_out() {
    let stream = |matcher| LogFilter::Stream(StreamSelector { groups: vec![vec![matcher]] });
    let value = |texts: &'static [&'static str]| LogFilter::Value {
        field: FieldPattern::Name("a".to_owned()),
        matcher: Arc::new(OneOf { texts, exact: None }),
    };
    let ids = LogFilter::StreamIds(vec![streams().0[4].id]);
    let mut filters = vec![stream(Matcher::equal("b", "1")), ids, value(&["x"]), value(&["", "y"])];
    filters.extend(filters.clone().into_iter().map(|one| LogFilter::Not(Box::new(one))));
    let mut both = vec![LogFilter::And(vec![]), LogFilter::Or(vec![])];
    for a in &filters {
        for b in &filters {
            both.push(LogFilter::And(vec![a.clone(), b.clone()]));
            both.push(LogFilter::Or(vec![a.clone(), b.clone()]));
        }
    }
    filters.extend(both);
    let (all, chosen, stats) = (streams(), StreamTestCache::default(), ReadStats::default());
    let of_stream = |name: &str| Some(StreamValue::Label(name.to_owned()));
    let mut told = 0;
    for filter in &filters {
        let Some(set) = chosen.may_match(filter, &of_stream, &all, &stats).await.unwrap() else { continue };
        told += 1;
        for (slot, stream) in (0..).zip(&all.0) {
            assert!(set.contains(slot) || !holds(filter, stream), "{stream:?} and {filter}");
        }
    }
    // The denial of a value rules nothing out, alone or beside an alternative; all else does.
    assert!(told > filters.len() / 2, "{told} of {}", filters.len());
    let denied = &filters[6];
    assert!(chosen.may_match(denied, &of_stream, &all, &stats).await.unwrap().is_none(), "{denied}");
}

#[tokio::test]
async fn services_that_the_caller_may_see_are_allowed() {
    let all = streams();
    let cases: [&[&str]; 4] = [&[], &["web"], &["web", "x"], &["nobody"]];
    for visible in cases {
        let access = quiver_types::Access::services(visible.iter().copied());
        let set = allowed(&all, &access).await.unwrap();
        for (slot, stream) in (0..).zip(&all.0) {
            assert_eq!(set.contains(slot), visible.contains(&&*stream.service), "{stream:?} and {visible:?}");
        }
    }
}
