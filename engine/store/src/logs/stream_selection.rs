//! Selects the streams that pass a condition, using posting lists of parts or of live rows. Each distinct value is
//! tested once, without holding a lock that writers need.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use hashbrown::HashMap;
use quiver_types::logs::{LogFilter, StreamId, StreamSelector, ValueMatcher};
use quiver_types::{MatchOp, Matcher, ReadStats, Result};
use tokio::sync::Mutex;

use super::stream_values::StreamValue;
use crate::memtable::log_streams::{LiveStream, runs_of};
use crate::part::logs::{KIND_LABEL, KIND_SERVICE, LabelRuns, StreamSet, StreamSetBuilder};

/// Up to this many values named by a matcher are looked up one by one.
const EXACT_MAX: usize = 1024;
/// Identifiers are looked up one by one if there is at most one for this many streams.
const ID_SHARE: usize = 64;

/// A condition on the stream of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamTest<'a> {
    /// Its labels match.
    Selector(&'a StreamSelector),
    /// The identifier is one of these.
    Ids(&'a [StreamId]),
    /// A value derived from the stream matches.
    Value(&'a StreamValue, &'a dyn ValueMatcher),
}

/// Cache key of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TestKey {
    Selector(StreamSelector),
    Ids(Vec<StreamId>),
    Value(StreamValue, String),
}

impl StreamTest<'_> {
    /// Tells whether a stream passes.
    pub(crate) fn passes(&self, stream: &LiveStream) -> bool {
        match self {
            Self::Selector(selector) => selects(selector, stream),
            Self::Ids(ids) => ids.contains(&stream.id),
            Self::Value(value, matcher) => matcher.matches(&value.of(stream)),
        }
    }

    fn key(&self) -> TestKey {
        match self {
            Self::Selector(selector) => TestKey::Selector((*selector).clone()),
            Self::Ids(ids) => TestKey::Ids(ids.to_vec()),
            Self::Value(value, matcher) => TestKey::Value((*value).clone(), matcher.describe()),
        }
    }
}

/// Tells whether a stream has the labels that a selector requires.
pub(crate) fn selects(selector: &StreamSelector, stream: &LiveStream) -> bool {
    selector.selects(|name| stream.labels.get(name))
}

/// The streams that have a value of a label, in a part or in a generation.
pub(crate) enum ValueStreams<'p> {
    Part(LabelRuns<'p>),
    Live(&'p [u32]),
}

impl ValueStreams<'_> {
    fn each(self, visit: impl FnMut(Range<u32>)) {
        match self {
            Self::Part(runs) => runs.each(visit),
            Self::Live(slots) => runs_of(slots).for_each(visit),
        }
    }
}

/// Called with a value and the streams that have it.
pub(crate) type VisitValue<'v> = dyn for<'p> FnMut(&str, ValueStreams<'p>) + Send + 'v;

/// Called with a stream and a text.
pub(crate) type VisitText<'v> = dyn for<'t> FnMut(u32, &'t str) + Send + 'v;

/// Access to numbered streams and the posting lists of their labels.
#[async_trait]
pub(crate) trait Postings: Send + Sync {
    /// Number of streams.
    async fn streams(&self) -> Result<usize>;

    /// Calls a function for each value of a label or of services ([`KIND_LABEL`], [`KIND_SERVICE`]); with `only`, for
    /// that value alone.
    async fn each_value(&self, kind: u8, label: &str, only: Option<&str>, visit: &mut VisitValue<'_>) -> Result<()>;

    /// The streams with an identifier.
    async fn with_id(&self, id: StreamId) -> Result<Vec<u32>>;

    /// Calls a function for each stream with the text of a value.
    async fn each_text(&self, value: &StreamValue, visit: &mut VisitText<'_>) -> Result<()>;
}

/// Results of conditions, shared by all blocks of a scan.
#[derive(Debug, Default)]
pub(crate) struct StreamTestCache(Mutex<HashMap<TestKey, Arc<StreamSet>>>);

impl StreamTestCache {
    /// The streams that pass a condition.
    pub(crate) async fn of(
        &self,
        test: StreamTest<'_>,
        postings: &dyn Postings,
        stats: &ReadStats,
    ) -> Result<Arc<StreamSet>> {
        let key = test.key();
        // Holding the lock makes others with the same condition wait for the result.
        let mut known = self.0.lock().await;
        if let Some(set) = known.get(&key) {
            return Ok(Arc::clone(set));
        }
        stats.take(StreamSet::bytes_of(postings.streams().await?))?;
        let set = Arc::new(choose(test, postings).await?);
        known.insert(key, Arc::clone(&set));
        Ok(set)
    }

    /// The only streams whose rows may match a filter; `None` if the filter does not restrict them. `of_stream` tells
    /// how a field depends on the stream.
    pub(crate) async fn may_match(
        &self,
        filter: &LogFilter,
        of_stream: &(dyn Fn(&str) -> Option<StreamValue> + Sync),
        postings: &dyn Postings,
        stats: &ReadStats,
    ) -> Result<Option<Arc<StreamSet>>> {
        use quiver_types::logs::FieldPattern;
        Ok(match filter {
            LogFilter::Stream(selector) => Some(self.of(StreamTest::Selector(selector), postings, stats).await?),
            LogFilter::StreamIds(ids) => Some(self.of(StreamTest::Ids(ids), postings, stats).await?),
            LogFilter::Not(one) if matches!(**one, LogFilter::Stream(_) | LogFilter::StreamIds(_)) => {
                let set = Box::pin(self.may_match(one, of_stream, postings, stats)).await?;
                set.map(|set| Arc::new(set.not()))
            }
            LogFilter::Value { field: FieldPattern::Name(name), matcher } => match of_stream(name) {
                Some(value @ (StreamValue::Label(_) | StreamValue::Service | StreamValue::Id)) => {
                    Some(self.of(StreamTest::Value(&value, &**matcher), postings, stats).await?)
                }
                _ => None,
            },
            LogFilter::And(all) => {
                let mut both: Option<Arc<StreamSet>> = None;
                for one in all {
                    let own = Box::pin(self.may_match(one, of_stream, postings, stats)).await?;
                    both = match (both, own) {
                        (Some(a), Some(b)) => Some(Arc::new(a.and(&b))),
                        (a, b) => a.or(b),
                    };
                }
                both
            }
            LogFilter::Or(any) => {
                let mut either = StreamSet::none(postings.streams().await?);
                for one in any {
                    match Box::pin(self.may_match(one, of_stream, postings, stats)).await? {
                        Some(own) => either = either.or(&own),
                        None => return Ok(None),
                    }
                }
                Some(Arc::new(either))
            }
            _ => None,
        })
    }
}

/// The streams of services that a caller may see.
pub(crate) async fn allowed(postings: &dyn Postings, access: &quiver_types::Access) -> Result<StreamSet> {
    holding(postings, KIND_SERVICE, "", None, &|service| access.allows(service)).await
}

async fn choose(test: StreamTest<'_>, postings: &dyn Postings) -> Result<StreamSet> {
    let streams = postings.streams().await?;
    match test {
        StreamTest::Selector(selector) if selector.groups.is_empty() => Ok(StreamSet::all(streams)),
        StreamTest::Selector(selector) => {
            let mut any = StreamSet::none(streams);
            for group in &selector.groups {
                let mut all = StreamSet::all(streams);
                for matcher in group {
                    all = all.and(&by_matcher(postings, matcher).await?);
                }
                any = any.or(&all);
            }
            Ok(any)
        }
        StreamTest::Ids(ids) => by_ids(postings, ids).await,
        StreamTest::Value(value, matcher) => by_value(postings, value, matcher).await,
    }
}

/// The streams that have a value which passes.
async fn holding(
    postings: &dyn Postings,
    kind: u8,
    label: &str,
    only: Option<&str>,
    passes: &(dyn Fn(&str) -> bool + Sync),
) -> Result<StreamSet> {
    let mut set = StreamSetBuilder::new(postings.streams().await?);
    let each = &mut |value: &str, holders: ValueStreams<'_>| {
        if passes(value) {
            holders.each(|run| set.add(run));
        }
    };
    postings.each_value(kind, label, only, each).await?;
    Ok(set.finish())
}

/// The streams whose value passes; streams without one are tested with the empty text.
async fn passing(
    postings: &dyn Postings,
    kind: u8,
    label: &str,
    passes: &(dyn Fn(&str) -> bool + Sync),
) -> Result<StreamSet> {
    if passes("") {
        return Ok(holding(postings, kind, label, None, &|value| !passes(value)).await?.not());
    }
    holding(postings, kind, label, None, passes).await
}

async fn by_matcher(postings: &dyn Postings, matcher: &Matcher) -> Result<StreamSet> {
    let (name, value) = (&matcher.name, &matcher.value);
    let exact = match matcher.op {
        MatchOp::Equal | MatchOp::NotEqual if value.is_empty() => {
            holding(postings, KIND_LABEL, name, None, &|_| true).await?.not()
        }
        MatchOp::Equal | MatchOp::NotEqual => holding(postings, KIND_LABEL, name, Some(value), &|_| true).await?,
        MatchOp::Regex | MatchOp::NotRegex => {
            return passing(postings, KIND_LABEL, name, &|value| matcher.matches(value)).await;
        }
    };
    Ok(if matcher.op == MatchOp::Equal { exact } else { exact.not() })
}

async fn by_ids(postings: &dyn Postings, ids: &[StreamId]) -> Result<StreamSet> {
    let streams = postings.streams().await?;
    let mut set = StreamSetBuilder::new(streams);
    if ids.len() > EXACT_MAX && ids.len() > streams / ID_SHARE {
        let wanted: HashSet<String> = ids.iter().map(|id| format!("{id:?}")).collect();
        let each = &mut |stream: u32, id: &str| {
            if wanted.contains(id) {
                set.add(stream..stream + 1);
            }
        };
        postings.each_text(&StreamValue::Id, each).await?;
    } else {
        for id in ids {
            postings.with_id(*id).await?.into_iter().for_each(|stream| set.add(stream..stream + 1));
        }
    }
    Ok(set.finish())
}

async fn by_value(postings: &dyn Postings, value: &StreamValue, matcher: &dyn ValueMatcher) -> Result<StreamSet> {
    let streams = postings.streams().await?;
    let (kind, label) = match value {
        StreamValue::Same(value) => {
            return Ok(if matcher.matches(value) { StreamSet::all(streams) } else { StreamSet::none(streams) });
        }
        StreamValue::Label(name) => (KIND_LABEL, name.as_str()),
        StreamValue::Service => (KIND_SERVICE, ""),
        StreamValue::Text | StreamValue::Id => {
            let exact = matcher.hints().exact.filter(|texts| *value == StreamValue::Id && texts.len() <= EXACT_MAX);
            if let Some(texts) = exact {
                let ids = texts.iter().filter(|text| matcher.matches(text)).filter_map(|text| read_id(text));
                return by_ids(postings, &ids.collect::<Vec<_>>()).await;
            }
            let mut set = StreamSetBuilder::new(streams);
            let each = &mut |stream: u32, text: &str| {
                if matcher.matches(text) {
                    set.add(stream..stream + 1);
                }
            };
            postings.each_text(value, each).await?;
            return Ok(set.finish());
        }
    };
    let hints = matcher.hints();
    match hints.exact.filter(|texts| texts.len() <= EXACT_MAX && !matcher.matches("")) {
        Some(texts) => {
            let mut any = StreamSet::none(streams);
            for text in texts.iter().filter(|text| matcher.matches(text)) {
                any = any.or(&holding(postings, kind, label, Some(text), &|_| true).await?);
            }
            Ok(any)
        }
        None => passing(postings, kind, label, &|value| matcher.matches(value)).await,
    }
}

/// Parses an identifier in its displayed form.
fn read_id(text: &str) -> Option<StreamId> {
    let mut bytes = Vec::with_capacity(16);
    if !super::typed_text::read_hex(text, &mut bytes) {
        return None;
    }
    bytes.try_into().ok().map(StreamId::from_bytes)
}

#[cfg(test)]
mod tests;
