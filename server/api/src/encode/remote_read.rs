//! Messages of Prometheus remote read: the request, and responses with samples (those with chunks: `packed_chunks`).
//!
//! Fields as in Prometheus 3.14 `prompb/remote.proto` and `prompb/types.proto`.

use quiver_ingest::wire::{BYTES, Reader, VARINT, WireError, put_varint, tag, varints};
use quiver_promql::kernel::SeriesSamples;
use quiver_promql::stored_samples::chunks::deltas;
use quiver_query::Pace;
use quiver_types::histogram::Span;
use quiver_types::matcher::Patterns;
use quiver_types::{Error, Histogram, MatchOp, Matcher, MillisRange, Result};

use super::protobuf::{put_double, put_doubles, put_message, put_sint, put_sints, put_text, put_uint};

/// Longest error text for a matcher, in bytes.
const ERROR_BYTES_MAX: usize = 1000;

/// Most queries per request; Prometheus sends one.
const QUERIES_MAX: usize = 1000;

/// Most matchers per query: two bytes on the wire become a hundred in memory.
const MATCHERS_MAX: usize = 1000;

/// How many of the client's response types an error lists if none is supported.
const TYPES_SHOWN: usize = 10;

/// The type of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseType {
    /// One message with all samples (`SAMPLES`).
    Samples,
    /// Frames of chunks.
    StreamedXorChunks,
}

/// A decoded remote read request.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    /// The queries, in the order of the request.
    pub(crate) queries: Vec<ReadQuery>,
    /// The first supported type in the client's list.
    pub(crate) response_type: ResponseType,
}

/// A query of a request. Of its hints only these are used; the others tell what the client does with the result.
#[derive(Debug)]
pub(crate) struct ReadQuery {
    /// What its series match, all of it.
    pub(crate) matchers: Vec<Matcher>,
    /// When: both ends are in it.
    pub(crate) range: MillisRange,
    /// The client looks for series (the hint `func` is `series`), and wants no samples of them.
    pub(crate) labels_only: bool,
}

/// Decodes a `prometheus.ReadRequest`; `pace` accounts for the work, and may end it.
///
/// # Errors
/// Invalid: not this message, an invalid matcher, or no supported response type. LimitExceeded: regular expressions
/// too large. Errors of `pace`.
pub(crate) fn decode(body: &[u8], pace: Option<&Pace>) -> Result<ReadRequest> {
    // The list of types may be as long as the body; only the first supported one counts.
    let (mut queries, mut others, mut known) = (Vec::new(), Vec::new(), None);
    let mut patterns = Patterns::default();
    let mut read = || -> Result<(), Fault> {
        let mut r = Reader::new(body);
        while !r.is_empty() {
            match r.tag()? {
                QUERIES if queries.len() == QUERIES_MAX => {
                    let text = format!("more than {QUERIES_MAX} queries in one request");
                    return Err(Fault::Refused(Error::invalid(text)));
                }
                QUERIES => queries.push(query(r.bytes()?, &mut patterns, pace)?),
                t if t >> 3 == 2 => varints(&mut r, t & 7, |n| {
                    if n <= 1 {
                        known.get_or_insert(n);
                    } else if others.len() < TYPES_SHOWN {
                        others.push(n);
                    }
                })?,
                other => r.skip(other, &[1, 2])?,
            }
        }
        Ok(())
    };
    read().map_err(|fault| match fault {
        Fault::Wire(e) => Error::invalid(format!("invalid protobuf: {e}")),
        Fault::Refused(e) => e,
    })?;
    let response_type = match known {
        None if !others.is_empty() => {
            let text = "server does not support any of the requested response types";
            return Err(Error::invalid(format!("{text}: {others:?}; supported: SAMPLES, STREAMED_XOR_CHUNKS")));
        }
        Some(1) => ResponseType::StreamedXorChunks,
        _ => ResponseType::Samples,
    };
    Ok(ReadRequest { queries, response_type })
}

const QUERIES: u32 = tag(1, BYTES);

enum Fault {
    Wire(WireError),
    Refused(Error),
}

impl From<WireError> for Fault {
    fn from(e: WireError) -> Self {
        Self::Wire(e)
    }
}

fn query(message: &[u8], patterns: &mut Patterns, pace: Option<&Pace>) -> Result<ReadQuery, Fault> {
    const START: u32 = tag(1, VARINT);
    const END: u32 = tag(2, VARINT);
    const MATCHERS: u32 = tag(3, BYTES);
    const HINTS: u32 = tag(4, BYTES);
    let (mut start, mut end, mut matchers) = (0, 0, Vec::new());
    let (mut hinted, mut labels_only) = (MillisRange::ALL, false);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            START => start = r.varint()? as i64,
            END => end = r.varint()? as i64,
            MATCHERS if matchers.len() == MATCHERS_MAX => {
                let text = format!("more than {MATCHERS_MAX} matchers in one query");
                return Err(Fault::Refused(Error::invalid(text)));
            }
            MATCHERS => matchers.push(matcher(r.bytes()?, patterns, pace)?),
            HINTS => (hinted, labels_only) = hints(r.bytes()?)?,
            other => r.skip(other, &[1, 2, 3, 4])?,
        }
    }
    // Prometheus sends the time range of the whole query, and that of the single selector in the hints.
    let range = MillisRange::new(start.max(hinted.min), end.min(hinted.max));
    Ok(ReadQuery { matchers, range, labels_only })
}

/// Reads the times of `prometheus.ReadHints`, all time if it has none; and whether series are looked for.
fn hints(message: &[u8]) -> Result<(MillisRange, bool), WireError> {
    const FUNC: u32 = tag(2, BYTES);
    const START: u32 = tag(3, VARINT);
    const END: u32 = tag(4, VARINT);
    let (mut range, mut is_of_series) = (MillisRange::ALL, false);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            START => range.min = r.varint()? as i64,
            END => range.max = r.varint()? as i64,
            FUNC => is_of_series = r.bytes()? == b"series",
            other => r.skip(other, &[2, 3, 4])?,
        }
    }
    Ok((range, is_of_series))
}

fn matcher(message: &[u8], patterns: &mut Patterns, pace: Option<&Pace>) -> Result<Matcher, Fault> {
    const KIND: u32 = tag(1, VARINT);
    const NAME: u32 = tag(2, BYTES);
    const VALUE: u32 = tag(3, BYTES);
    let (mut kind, mut name, mut value): (u64, &[u8], &[u8]) = (0, b"", b"");
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            KIND => kind = r.varint()?,
            NAME => name = r.bytes()?,
            VALUE => value = r.bytes()?,
            other => r.skip(other, &[1, 2, 3])?,
        }
    }
    let fault = |text: String| Fault::Refused(Error::invalid(text));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| fault("matcher is not UTF-8".to_owned()));
    let op = match kind {
        0 => MatchOp::Equal,
        1 => MatchOp::NotEqual,
        2 => MatchOp::Regex,
        3 => MatchOp::NotRegex,
        other => return Err(fault(format!("invalid matcher type {other}"))),
    };
    // The error repeats the regular expression, which may be long.
    let short = |mut error: Error| {
        let end = error.message.floor_char_boundary(ERROR_BYTES_MAX);
        error.message.truncate(end);
        Fault::Refused(error)
    };
    if kind >= 2 {
        // Compiling each of them may take long.
        pace.map_or(Ok(()), Pace::check).map_err(Fault::Refused)?;
    }
    patterns.matcher(text(name)?, op, text(value)?).map_err(short)
}

/// Appends a series with its samples to a `prometheus.QueryResult`.
pub(crate) fn put_series<'a>(
    out: &mut Vec<u8>,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    samples: &SeriesSamples<'_>,
) {
    put_message(out, 1, |series| {
        put_labels(series, labels);
        for (&ts, &value) in samples.ts.iter().zip(samples.values) {
            put_message(series, 2, |sample| {
                put_double(sample, 1, value);
                put_uint(sample, 2, ts as u64);
            });
        }
        for (&ts, histogram) in samples.hist_ts.iter().zip(samples.hists) {
            put_message(series, 4, |out| put_histogram(out, ts, histogram));
        }
    });
}

/// Appends labels as field 1.
pub(super) fn put_labels<'a>(out: &mut Vec<u8>, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, value) in labels {
        put_message(out, 1, |label| {
            put_text(label, 1, name);
            put_text(label, 2, value);
        });
    }
}

fn put_histogram(out: &mut Vec<u8>, ts: i64, h: &Histogram) {
    let spans = |out: &mut Vec<u8>, field: u32, spans: &[Span]| {
        for span in spans {
            put_message(out, field, |message| {
                put_sint(message, 1, i64::from(span.offset));
                put_uint(message, 2, u64::from(span.length));
            });
        }
    };
    // One of the two counts must be written, since it tells the kind of the histogram.
    let count = |out: &mut Vec<u8>, int: u32, value: f64| {
        if h.float {
            put_double(out, int + 1, value);
        } else {
            put_varint(out, u64::from(tag(int, VARINT)));
            put_varint(out, value as u64);
        }
    };
    count(out, 1, h.count);
    put_double(out, 3, h.sum);
    put_sint(out, 4, i64::from(h.schema));
    put_double(out, 5, h.zero_threshold);
    count(out, 6, h.zero_count);
    for (field, side, counts) in [(8, &h.negative_spans, &h.negative), (11, &h.positive_spans, &h.positive)] {
        spans(out, field, side);
        if h.float {
            put_doubles(out, field + 2, counts);
        } else {
            put_sints(out, field + 1, deltas(counts));
        }
    }
    put_uint(out, 14, h.reset_hint as u64);
    put_uint(out, 15, ts as u64);
    put_doubles(out, 16, &h.custom_bounds);
}

#[cfg(test)]
mod tests {
    use quiver_ingest::wire::put_bytes;
    use quiver_query::{Limits, QueryContext};
    use quiver_types::Access;

    use super::*;

    fn request(accepted: &[u64], kind: u64, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_message(&mut out, 1, |query| {
            put_uint(query, 1, 5);
            put_uint(query, 2, -1i64 as u64);
            put_message(query, 3, |matcher| {
                put_uint(matcher, 1, kind);
                put_text(matcher, 2, "job");
                put_bytes(matcher, 3, value);
            });
        });
        put_message(&mut out, 2, |packed| accepted.iter().for_each(|n| put_varint(packed, *n)));
        out
    }

    #[test]
    fn requests() {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let pace = Pace::new(&ctx, "a test");
        let decode = |body: &[u8]| decode(body, Some(&pace));
        let read = decode(&request(&[7, 1, 0], 3, b"a.*")).unwrap();
        assert_eq!(read.response_type, ResponseType::StreamedXorChunks);
        let [ReadQuery { matchers, range, labels_only: false }] = &read.queries[..] else { panic!("{read:?}") };
        assert_eq!((range.min, range.max), (5, -1));
        assert_eq!(matchers, &[Matcher::new("job", MatchOp::NotRegex, "a.*").unwrap()]);
        assert_eq!(decode(&request(&[], 0, b"a")).unwrap().response_type, ResponseType::Samples);
        // The list may be unpacked, too.
        assert_eq!(decode(&[16, 1, 16, 0]).unwrap().response_type, ResponseType::StreamedXorChunks);
        let refused = |body: &[u8], text: &str| {
            let e = decode(body).unwrap_err();
            assert!(e.message.contains(text), "{e}");
        };
        refused(&request(&[2], 0, b"a"), "requested response types");
        let many = decode(&request(&vec![9; 10_000], 0, b"a")).unwrap_err();
        assert!(many.message.len() < 1000, "{many}");
        refused(&request(&[0], 4, b"a"), "invalid matcher type 4");
        refused(&request(&[0], 2, b"("), "invalid regular expression");
        refused(&request(&[0], 0, b"\xff"), "UTF-8");
        refused(b"\x0a\x05", "invalid protobuf");
        refused(&[10_u8, 0].repeat(QUERIES_MAX + 1), "more than 1000 queries");
        ctx.cancel.cancel();
        refused(&request(&[0], 2, b"a.*"), "canceled");
    }

    #[test]
    fn times_of_hints() {
        let check = |hinted: &[(u32, i64)], expected: (i64, i64)| {
            let mut body = Vec::new();
            put_message(&mut body, 1, |query| {
                put_uint(query, 1, 100);
                put_uint(query, 2, 200);
                put_message(query, 4, |hints| {
                    put_text(hints, 2, "rate");
                    for (field, ms) in hinted {
                        put_uint(hints, *field, *ms as u64);
                    }
                });
            });
            let read = decode(&body, None).unwrap();
            let ReadQuery { range, labels_only, .. } = &read.queries[0];
            assert_eq!((range.min, range.max, *labels_only), (expected.0, expected.1, false), "{hinted:?}");
        };
        check(&[], (100, 200));
        check(&[(1, 15), (3, 120), (4, 150), (7, 30)], (120, 150));
        // Hints only narrow the range.
        check(&[(3, -5), (4, 300)], (100, 200));
        check(&[(4, 150)], (100, 150));
        check(&[(3, 210), (4, 220)], (210, 200));
    }

    #[test]
    fn hints_about_series() {
        let decode = |function: &str| {
            let mut body = Vec::new();
            put_message(&mut body, 1, |query| put_message(query, 4, |hints| put_text(hints, 2, function)));
            decode(&body, None).unwrap().queries.remove(0).labels_only
        };
        assert_eq!(["series", "", "rate", "Series"].map(decode), [true, false, false, false]);
    }

    /// Reads the fields of a message: number, bytes, and the integer.
    fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>, u64)> {
        let (mut r, mut out) = (Reader::new(message), Vec::new());
        while !r.is_empty() {
            let tag = r.tag().unwrap();
            out.push(match tag & 7 {
                VARINT => (tag >> 3, Vec::new(), r.varint().unwrap()),
                BYTES => (tag >> 3, r.bytes().unwrap().to_vec(), 0),
                _ => (tag >> 3, Vec::new(), r.fixed64().unwrap()),
            });
        }
        out
    }

    fn series(samples: &SeriesSamples<'_>) -> Vec<(u32, Vec<u8>, u64)> {
        let mut out = Vec::new();
        put_series(&mut out, [("a", "1"), ("b", "")].into_iter(), samples);
        let whole = fields(&out);
        assert_eq!((whole.len(), whole[0].0), (1, 1));
        fields(&whole[0].1)
    }

    fn histogram(float: bool) -> Histogram {
        Histogram {
            schema: 3,
            count: 9.0,
            sum: -0.5,
            zero_threshold: 0.125,
            zero_count: 0.0,
            positive_spans: vec![Span { offset: -1, length: 3 }],
            positive: vec![2.0, 5.0, 1.0],
            negative_spans: vec![Span { offset: 0, length: 1 }],
            negative: vec![1.0],
            reset_hint: quiver_types::ResetHint::NotReset,
            float,
            ..Histogram::default()
        }
    }

    #[test]
    fn series_have_labels_and_samples() {
        let none = SeriesSamples { ts: &[], values: &[], start_ts: &[], hist_ts: &[], hists: &[], hist_start_ts: &[] };
        let labels = [(1, vec![10, 1, b'a', 18, 1, b'1'], 0), (1, vec![10, 1, b'b', 18, 0], 0)];
        assert_eq!(series(&none), labels);
        let samples = SeriesSamples { ts: &[-1, 0], values: &[0.0, f64::NAN], ..none };
        let found = series(&samples);
        assert_eq!(found[..2], labels);
        // A value of 0 is written; a time of 0 is not.
        assert_eq!(fields(&found[2].1), [(1, Vec::new(), 0), (2, Vec::new(), u64::MAX)]);
        assert_eq!(fields(&found[3].1), [(1, Vec::new(), f64::NAN.to_bits())]);
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn histograms_say_of_which_kind_they_are() {
        let of = |float: bool| {
            let mut out = Vec::new();
            put_histogram(&mut out, 1500, &histogram(float));
            fields(&out)
        };
        let bits = |value: f64| (Vec::new(), value.to_bits());
        let doubles = |values: &[f64]| (values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(), 0);
        let field = |number: u32, (bytes, value): (Vec<u8>, u64)| (number, bytes, value);
        let (negative, positive) = ((vec![16, 1], 0), (vec![8, 1, 16, 3], 0));
        let common = [(3, bits(-0.5)), (4, (Vec::new(), 6)), (5, bits(0.125))];
        let tail = [(14, (Vec::new(), 2)), (15, (Vec::new(), 1500))];
        let whole: Vec<_> = [(1, (Vec::new(), 9))]
            .into_iter()
            .chain(common.clone())
            .chain([(6, (Vec::new(), 0)), (8, negative.clone()), (9, (vec![2], 0))])
            // Counts as differences: 2, 3, -4.
            .chain([(11, positive.clone()), (12, (vec![4, 6, 7], 0))])
            .chain(tail.clone())
            .map(|(number, held)| field(number, held))
            .collect();
        assert_eq!(of(false), whole);
        let floats: Vec<_> = [(2, bits(9.0))]
            .into_iter()
            .chain(common)
            .chain([(7, bits(0.0)), (8, negative), (10, doubles(&[1.0]))])
            .chain([(11, positive), (13, doubles(&[2.0, 5.0, 1.0]))])
            .chain(tail)
            .map(|(number, held)| field(number, held))
            .collect();
        assert_eq!(of(true), floats);
    }

    #[test]
    fn bounds_of_custom_buckets_stand() {
        let h = Histogram {
            schema: quiver_types::histogram::CUSTOM_SCHEMA,
            custom_bounds: vec![0.5, 1.0],
            ..histogram(true)
        };
        let samples =
            SeriesSamples { ts: &[], values: &[], start_ts: &[], hist_ts: &[7], hists: &[h], hist_start_ts: &[] };
        let found = series(&samples);
        let shown = fields(&found[2].1);
        assert_eq!(found[2].0, 4);
        let bounds = shown.iter().find(|f| f.0 == 16).map(|f| f.1.clone());
        assert_eq!(bounds, Some([0.5_f64.to_le_bytes(), 1.0_f64.to_le_bytes()].concat()));
        assert_eq!(shown.iter().find(|f| f.0 == 15).map(|f| f.2), Some(7));
    }

    #[test]
    fn requests_that_leave_things_out() {
        let none = decode(b"", None).unwrap();
        assert!(none.queries.is_empty());
        assert_eq!(none.response_type, ResponseType::Samples);
        // An empty query: at time 0, without matchers.
        let bare = decode(&[10, 0], None).unwrap();
        let [ReadQuery { matchers, range, .. }] = &bare.queries[..] else { panic!("{bare:?}") };
        assert_eq!((matchers.len(), range.min, range.max), (0, 0, 0));
        // The default type of a matcher is equality; the default name is empty.
        let bare = decode(&[10, 2, 26, 0], None).unwrap();
        assert_eq!(bare.queries[0].matchers, [Matcher::equal("", "")]);
        // Unknown fields are skipped; known ones of the wrong type are errors.
        assert_eq!(decode(&[10, 2, 0x50, 7, 0x50, 1], None).unwrap().queries.len(), 1);
        for wrong in [&[8, 0][..], &[10, 2, 10, 0], &[10, 2, 24, 0], &[10, 4, 26, 2, 18, 9], &[17, 1]] {
            let told = decode(wrong, None).unwrap_err();
            assert!(told.message.starts_with("invalid protobuf: "), "{wrong:?}: {told}");
        }
    }

    #[test]
    fn matchers_are_bounded() {
        let query = |count: usize| {
            let mut out = Vec::new();
            put_message(&mut out, 1, |query| query.extend_from_slice(&[26_u8, 0].repeat(count)));
            decode(&out, None)
        };
        assert_eq!(query(MATCHERS_MAX).unwrap().queries[0].matchers.len(), MATCHERS_MAX);
        assert_eq!(query(MATCHERS_MAX + 1).unwrap_err().message, "more than 1000 matchers in one query");
        // The error text for a long regular expression is cut between characters.
        let long = decode(&request(&[], 2, format!("({}", "é".repeat(20_000)).as_bytes()), None).unwrap_err();
        assert!(long.message.len() <= ERROR_BYTES_MAX, "{} bytes", long.message.len());
    }

    #[test]
    fn the_first_response_type_that_is_known_counts() {
        for (accepted, expected) in [
            (vec![], ResponseType::Samples),
            (vec![0], ResponseType::Samples),
            (vec![1], ResponseType::StreamedXorChunks),
            (vec![0, 1], ResponseType::Samples),
            (vec![1, 0], ResponseType::StreamedXorChunks),
            (vec![u64::MAX, 5, 1], ResponseType::StreamedXorChunks),
        ] {
            assert_eq!(decode(&request(&accepted, 0, b"a"), None).unwrap().response_type, expected, "{accepted:?}");
        }
    }
}
