use std::collections::BTreeSet;

use arrow::array::{MapArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use quiver_types::logs::{MSG, RecordMarks};
use quiver_types::{Histogram, LabelSet, LogsBatch, ResetHint, Span, stale_nan};

use super::*;
use crate::memtable::logs::PreparedLogs;

const METRICS: [RecordKind; 4] =
    [RecordKind::Definitions, RecordKind::Samples, RecordKind::Histograms, RecordKind::Exemplars];
const LOGS: [RecordKind; 4] =
    [RecordKind::LogStreams, RecordKind::LogNames, RecordKind::LogRows, RecordKind::LogRequest];
const SPANS: [RecordKind; 2] = [RecordKind::SpanContexts, RecordKind::SpanRows];

/// The body that a call writes.
fn written(write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut Encoder::default(), &mut body);
    assert!(body.len().is_multiple_of(8), "{}", body.len());
    body
}

fn read(kind: RecordKind, flags: u16, body: &[u8]) -> Result<RecordBatch, BadBody> {
    decode(kind, kind.table().version, flags, &Buffer::from_vec(body.to_vec()))
}

fn samples(start_ts: Option<Vec<i64>>) -> Vec<u8> {
    let rows = SampleColumns {
        slots: vec![0, 7, u32::MAX].into(),
        ts: vec![i64::MIN, -1, i64::MAX].into(),
        values: vec![f64::NEG_INFINITY, -0.0, 1.5].into(),
        start_ts: start_ts.map(Into::into),
    };
    written(|encoder, out| encoder.samples(&rows, out))
}

/// The numbers of `docs/formats/wal.md`: files of older builds are read by them, so none may change.
#[test]
fn numbers_of_records_are_those_of_the_document() {
    for (table, kinds) in [(1, &METRICS[..]), (2, &[RecordKind::Metadata][..]), (3, &LOGS[..]), (4, &SPANS[..])] {
        for (number, kind) in kinds.iter().enumerate() {
            assert_eq!((kind.table().number, usize::from(kind.number())), (table, number), "{kind:?}");
            assert_eq!(RecordKind::of(table, number as u16), Some(*kind));
            let defines = number == 0 && matches!(table, 1 | 3);
            assert_eq!(kind.defines(), defines, "{kind:?}");
        }
        assert_eq!(RecordKind::of(table, kinds.len() as u16), None, "table {table}");
    }
    let numbers: BTreeSet<u16> = record_tables::TABLES.iter().map(|table| table.number).collect();
    assert_eq!(numbers.len(), record_tables::TABLES.len());
    for number in numbers {
        assert_eq!(RecordKind::of(number, 0), Some(RecordKind::Rows(number)));
        assert_eq!(RecordKind::of(number, 1), None);
    }
    assert_eq!((RecordKind::of(0, 0), RecordKind::of(u16::MAX, 0)), (None, None));
}

#[test]
fn definitions_come_back() {
    let definition = |slot, id, labels: &[u8], service: &str| Definition {
        slot,
        id: SeriesId(id),
        labels: labels.to_vec(),
        service: service.to_owned(),
    };
    let rows = [
        definition(0, 0, b"", ""),
        definition(5, u128::MAX, &[0, 255, 128], "wéb"),
        // Written again after a failed sync, with the same number.
        definition(5, 1 << 100, b"a", "b"),
    ];
    for kind in [RecordKind::Definitions, RecordKind::LogStreams] {
        let body = written(|encoder, out| encoder.definitions(kind, &rows, out));
        assert_eq!(read_definitions(&read(kind, 0, &body).unwrap()).unwrap(), rows);
    }
}

#[test]
fn samples_come_back_with_and_without_their_starts() {
    for (start_ts, flags) in [(None, 0), (Some(vec![0, i64::MIN, i64::MAX]), OPTIONAL)] {
        let back = read_samples(&read(RecordKind::Samples, flags, &samples(start_ts.clone())).unwrap()).unwrap();
        assert_eq!(back.slots.values().to_vec(), [0, 7, u32::MAX]);
        assert_eq!(back.ts.values().to_vec(), [i64::MIN, -1, i64::MAX]);
        let bits: Vec<u64> = back.values.values().iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, [f64::NEG_INFINITY, -0.0, 1.5].map(f64::to_bits));
        assert_eq!(back.start_ts.map(|starts| starts.values().to_vec()), start_ts);
    }
}

/// Breaks if an encoder leaves something of one body in the next.
#[test]
fn bodies_of_one_encoder_do_not_mix() {
    let exemplar = |slot, ts, value, labels| (slot, RunExemplar { ts, value, labels });
    let rows = [
        exemplar(3, 5, 0.5, LabelSet::default()),
        exemplar(3, 5, f64::INFINITY, LabelSet::from_pairs([("trace_id", "x"), ("a", "é")])),
    ];
    let metadata = MetricMetadata {
        metric: "up".to_owned(),
        metric_type: "gauge".to_owned(),
        help: String::new(),
        unit: "s".to_owned(),
    };
    let metadata = [(7, metadata, "web".to_owned())];
    let mut encoder = Encoder::default();
    for _ in 0..2 {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encoder.exemplars(&rows, &mut first);
        encoder.metadata(&metadata, &mut second);
        let back = read_exemplars(&read(RecordKind::Exemplars, 0, &first).unwrap()).unwrap();
        let plain = |rows: &[ExemplarRow]| -> Vec<(u32, i64, f64, LabelSet)> {
            rows.iter().map(|(slot, e)| (*slot, e.ts, e.value, e.labels.clone())).collect()
        };
        assert_eq!(plain(&back), plain(&rows));
        assert_eq!(read_metadata(&read(RecordKind::Metadata, 0, &second).unwrap()).unwrap(), metadata);
    }
}

#[test]
fn requests_come_back_with_their_answers() {
    let id = RequestId { caller: String::new(), path: "/insert/jsonline".to_owned(), key: "ключ".to_owned() };
    let answer = Answer { status: 599, content_type: String::new(), body: vec![0, 40, 255] };
    let request = AnsweredRequest { id, body_hash: 1 << 127, at: -1, answer };
    let body = written(|encoder, out| encoder.log_request(&request, out));
    assert_eq!(read_log_request(&read(RecordKind::LogRequest, 0, &body).unwrap()).unwrap(), request);
}

/// Breaks if a record of an earlier build is read by the columns of this one.
#[test]
fn rows_of_an_earlier_version_come_back_with_nothing_in_later_columns() {
    for table in record_tables::TABLES.into_iter().filter(|table| table.version > 1) {
        let before = table.columns_of(1);
        let columns = before.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8 => Arc::new(StringArray::from(vec![field.name().as_str()])) as ArrayRef,
            DataType::Map(entries, sorted) => {
                let none = new_empty_array(entries.data_type()).as_struct().clone();
                Arc::new(MapArray::new(Arc::clone(entries), OffsetBuffer::from_lengths([0]), none, None, *sorted))
                    as ArrayRef
            }
            other => cast(&Int64Array::from(vec![7]), other).unwrap(),
        });
        let old = RecordBatch::try_new(Arc::clone(&before), columns.collect()).unwrap();
        let body = written(|encoder, out| {
            (encoder.encode)(&old, out).unwrap();
            out.resize(out.len().next_multiple_of(8), 0);
        });
        let read = |version| decode(RecordKind::Rows(table.number), version, 0, &Buffer::from_vec(body.clone()));
        let now = read(1).unwrap();
        assert_eq!(now.schema().fields(), table.columns().fields());
        for (name, _) in table.added {
            let added = now.column_by_name(name).unwrap();
            let is_nothing = match added.as_string_opt::<i32>() {
                Some(texts) => texts.value(0).is_empty(),
                None => added.as_primitive::<Float64Type>().value(0).is_nan(),
            };
            assert!(is_nothing, "{name}");
        }
        assert_eq!(table.chosen(&now, &before.fields().iter().map(|f| &**f.name()).collect::<Vec<_>>()).unwrap(), old);
        assert!(read(table.version).is_err());
    }
}

/// A record with a good checksum may come of a build with a fault; it must be refused, not end the process.
#[test]
fn a_body_that_is_cut_is_refused_wherever() {
    let body = samples(Some(vec![1, 2, 3]));
    assert!(read(RecordKind::Samples, OPTIONAL, &body).is_ok());
    for length in 0..body.len() {
        assert!(read(RecordKind::Samples, OPTIONAL, &body[..length]).is_err(), "{length} of {} bytes", body.len());
    }
}

#[test]
fn a_body_of_another_form_is_refused() {
    let body = samples(None);
    let check = |at: usize, byte: u8, why: &str| {
        let mut body = body.clone();
        body[at] = byte;
        assert_eq!(read(RecordKind::Samples, 0, &body).unwrap_err(), bad(why));
    };
    check(0, 0, "no continuation marker");
    check(3, 0, "no continuation marker");
    // The length of the metadata, little endian.
    check(7, 0x7f, "metadata runs past the end");
    // Its flag promises a column that it does not have.
    assert!(read(RecordKind::Samples, OPTIONAL, &body).is_err());
    assert!(read(RecordKind::Metadata, 0, &body).is_err());
}

/// Rows with the marks that are given: time, severity, time of observation.
fn log_rows(rows: &[(i64, u8, i64)]) -> LogRows {
    let names = [MSG, "é", "empty"].map(Into::into).to_vec();
    let mut batch = LogsBatch { services: vec!["web".into()], names, ..LogsBatch::default() };
    let streams = [("a", "x"), ("a", "y")].map(|pair| batch.push_stream(LabelSet::from_pairs([pair]).canonical()));
    for (n, &(time, severity, observed)) in rows.iter().enumerate() {
        for name in 0..n % 3 {
            batch.push_field(name as u32, ["text", "тест"][name]);
        }
        batch.end_row(time, streams[n % 2], 0, RecordMarks { severity, observed });
    }
    PreparedLogs::new(batch).unwrap().rows
}

#[test]
fn log_rows_come_back_with_the_marks_that_they_have() {
    let check = |rows: &[(i64, u8, i64)], flags: u16, columns: usize| {
        let rows = log_rows(rows);
        assert_eq!(rows.flags(), flags);
        let names = written(|encoder, out| encoder.log_names(&rows, out));
        let names = read_log_names(&read(RecordKind::LogNames, 0, &names).unwrap()).unwrap();
        assert_eq!(names.iter().flatten().collect::<Vec<_>>(), [MSG, "é", "empty"]);
        let body = written(|encoder, out| encoder.log_rows(&rows, out));
        let batch = read(RecordKind::LogRows, flags, &body).unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (rows.len(), columns));
        let back = read_log_rows(&batch, &names).unwrap();
        assert_eq!((&*back.time, &*back.slots), (&*rows.time, &*rows.slots));
        assert_eq!((&*back.offsets, &*back.field_names), (&*rows.offsets, &*rows.field_names));
        assert_eq!(back.values.iter().collect::<Vec<_>>(), rows.values.iter().collect::<Vec<_>>());
        // No severity beside a time of observation is written as 0, which is none.
        let severity = |rows: &LogRows| rows.severity.as_ref().map_or_else(|| vec![0; rows.len()], |s| s.to_vec());
        assert_eq!(severity(&back), severity(&rows));
        assert_eq!(back.observed.map(|o| o.to_vec()), rows.observed.map(|o| o.to_vec()));
    };
    check(&[(i64::MIN, 0, 0), (i64::MAX, 0, 0), (0, 0, 0), (-1, 0, 0)], 0, 3);
    check(&[(1, 0, 0), (2, 24, 0)], OPTIONAL, 4);
    check(&[(1, 0, -7), (2, 0, 0)], OPTIONAL | OPTIONAL_2, 5);
    check(&[(1, 1, 0), (2, 255, i64::MAX)], OPTIONAL | OPTIONAL_2, 5);
}

#[test]
fn log_rows_are_read_with_names_for_all_their_fields() {
    let rows = log_rows(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
    let body = written(|encoder, out| encoder.log_rows(&rows, out));
    let batch = read(RecordKind::LogRows, 0, &body).unwrap();
    // Two names are in use, the third is not.
    assert!(read_log_rows(&batch, &StringArray::from(vec!["a", "b"])).is_ok());
    for names in [vec!["a"], vec![]] {
        assert_eq!(read_log_rows(&batch, &StringArray::from(names)).unwrap_err(), bad("a field without a name"));
    }
    assert!(read_log_rows(&read(RecordKind::Samples, 0, &samples(None)).unwrap(), &rows.names).is_err());
}

#[test]
fn histograms_come_back_bit_by_bit() {
    let spans = |offset| vec![Span { offset, length: 1 }, Span { offset: 7, length: 0 }];
    let exponential = Histogram {
        schema: -4,
        zero_threshold: f64::MIN_POSITIVE,
        zero_count: 2.0,
        count: f64::MAX,
        sum: f64::from_bits(u64::MAX),
        positive_spans: spans(i32::MIN),
        positive: vec![-0.0],
        negative_spans: spans(i32::MAX),
        negative: vec![f64::INFINITY],
        custom_bounds: Vec::new(),
        reset_hint: ResetHint::Gauge,
        float: true,
    };
    let custom = Histogram {
        schema: quiver_types::histogram::CUSTOM_SCHEMA,
        custom_bounds: vec![0.5, 1e300],
        reset_hint: ResetHint::NotReset,
        ..Histogram::default()
    };
    let all = [exponential, Histogram::default(), custom, Histogram { sum: stale_nan(), ..Histogram::default() }];
    let rows: Vec<HistogramRow> = (0..)
        .zip(&all)
        .map(|(slot, histogram)| HistogramRow { slot, ts: i64::MIN, start_ts: -1, histogram: histogram.clone() })
        .collect();
    let body = written(|encoder, out| encoder.histograms(&rows, out));
    let back = read_histograms(&read(RecordKind::Histograms, 0, &body).unwrap()).unwrap();
    assert_eq!(back.len(), all.len());
    for (row, (slot, histogram)) in back.iter().zip((0..).zip(&all)) {
        assert_eq!((row.slot, row.ts, row.start_ts), (slot, i64::MIN, -1));
        let told =
            |h: &Histogram| (h.canonical_bytes(), h.reset_hint, h.float, h.sum.to_bits(), h.custom_bounds.clone());
        assert_eq!(told(&row.histogram), told(histogram), "{slot}");
    }
}

/// The columns of requests, each as often as there are statuses.
fn requests(statuses: &[u32]) -> Vec<u8> {
    let text = || -> ArrayRef { Arc::new(StringArray::from(vec!["t"; statuses.len()])) };
    let mut hashes = FixedSizeBinaryBuilder::new(16);
    for _ in statuses {
        hashes.append_value([0u8; 16]).unwrap();
    }
    let columns: Vec<ArrayRef> = vec![
        text(),
        text(),
        text(),
        Arc::new(hashes.finish()),
        Arc::new(Int64Array::from(vec![0; statuses.len()])),
        Arc::new(UInt32Array::from(statuses.to_vec())),
        text(),
        Arc::new(BinaryArray::from_iter_values(statuses.iter().map(|_| b"body"))),
    ];
    written(|encoder, out| encoder.write(RecordKind::LogRequest, 0, columns, out))
}

#[test]
fn a_write_has_one_request_with_a_status_that_there_is() {
    let read = |statuses: &[u32]| read_log_request(&read(RecordKind::LogRequest, 0, &requests(statuses)).unwrap());
    assert_eq!(read(&[u32::from(u16::MAX)]).unwrap().answer.status, u16::MAX);
    assert_eq!(read(&[1 << 16]).unwrap_err(), bad("a status is too large"));
    assert_eq!(read(&[]).unwrap_err(), bad("not one request"));
    assert_eq!(read(&[200, 200]).unwrap_err(), bad("not one request"));
}

/// Breaks if bytes that a fault of ours, or of the memory, has changed end the process instead of being refused: what is
/// read of them may be other values, no more.
#[test]
fn a_body_with_a_changed_byte_is_read_or_refused() {
    let rows = log_rows(&[(1, 3, 9), (2, 0, 0), (3, 0, 0)]);
    let flags = rows.flags();
    let body = written(|encoder, out| encoder.log_rows(&rows, out));
    let mut refused = 0;
    let places = || (0..body.len()).step_by(2);
    for place in places() {
        let mut body = body.clone();
        body[place] = !body[place];
        let back = read(RecordKind::LogRows, flags, &body).and_then(|batch| read_log_rows(&batch, &rows.names));
        refused += usize::from(back.is_err());
    }
    assert!(refused > 0 && refused < places().count(), "{refused} of {} bytes", body.len());
}
