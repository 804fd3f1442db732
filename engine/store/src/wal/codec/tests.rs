use std::collections::BTreeSet;

use arrow::compute::cast;
use quiver_types::LabelSet;

use super::*;

const METRICS: [Kind; 4] = [Kind::Definitions, Kind::Samples, Kind::Histograms, Kind::Exemplars];
const LOGS: [Kind; 4] = [Kind::LogStreams, Kind::LogNames, Kind::LogRows, Kind::LogRequest];
const SPANS: [Kind; 2] = [Kind::SpanContexts, Kind::SpanRows];

/// The body that a call writes.
fn written(write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut Encoder::default(), &mut body);
    assert!(body.len().is_multiple_of(8), "{}", body.len());
    body
}

fn read(kind: Kind, flags: u16, body: &[u8]) -> Result<RecordBatch, BadBody> {
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
    for (table, kinds) in [(1, &METRICS[..]), (2, &[Kind::Metadata][..]), (3, &LOGS[..]), (4, &SPANS[..])] {
        for (number, kind) in kinds.iter().enumerate() {
            assert_eq!((kind.table().number, usize::from(kind.number())), (table, number), "{kind:?}");
            assert_eq!(Kind::of(table, number as u16), Some(*kind));
            let defines = number == 0 && matches!(table, 1 | 3);
            assert_eq!(kind.defines(), defines, "{kind:?}");
        }
        assert_eq!(Kind::of(table, kinds.len() as u16), None, "table {table}");
    }
    let numbers: BTreeSet<u16> = history::TABLES.iter().map(|table| table.number).collect();
    assert_eq!(numbers.len(), history::TABLES.len());
    for number in numbers {
        assert_eq!(Kind::of(number, 0), Some(Kind::Rows(number)));
        assert_eq!(Kind::of(number, 1), None);
    }
    assert_eq!((Kind::of(0, 0), Kind::of(u16::MAX, 0)), (None, None));
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
    for kind in [Kind::Definitions, Kind::LogStreams] {
        let body = written(|encoder, out| encoder.definitions(kind, &rows, out));
        assert_eq!(read_definitions(&read(kind, 0, &body).unwrap()).unwrap(), rows);
    }
}

#[test]
fn samples_come_back_with_and_without_their_starts() {
    for (start_ts, flags) in [(None, 0), (Some(vec![0, i64::MIN, i64::MAX]), OPTIONAL)] {
        let back = read_samples(&read(Kind::Samples, flags, &samples(start_ts.clone())).unwrap()).unwrap();
        assert_eq!(back.slots.values().to_vec(), [0, 7, u32::MAX]);
        assert_eq!(back.ts.values().to_vec(), [i64::MIN, -1, i64::MAX]);
        let bits: Vec<u64> = back.values.values().iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, [f64::NEG_INFINITY, -0.0, 1.5].map(f64::to_bits));
        assert_eq!(back.start_ts.map(|starts| starts.values().to_vec()), start_ts);
    }
}

/// Breaks where an encoder leaves something of one body in the next.
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
        let back = read_exemplars(&read(Kind::Exemplars, 0, &first).unwrap()).unwrap();
        let plain = |rows: &[ExemplarRow]| -> Vec<(u32, i64, f64, LabelSet)> {
            rows.iter().map(|(slot, e)| (*slot, e.ts, e.value, e.labels.clone())).collect()
        };
        assert_eq!(plain(&back), plain(&rows));
        assert_eq!(read_metadata(&read(Kind::Metadata, 0, &second).unwrap()).unwrap(), metadata);
    }
}

#[test]
fn requests_come_back_with_their_answers() {
    let id = RequestId { caller: String::new(), path: "/insert/jsonline".to_owned(), key: "ключ".to_owned() };
    let answer = Answer { status: 599, content_type: String::new(), body: vec![0, 40, 255] };
    let request = AnsweredRequest { id, body_hash: 1 << 127, at: -1, answer };
    let body = written(|encoder, out| encoder.log_request(&request, out));
    assert_eq!(read_log_request(&read(Kind::LogRequest, 0, &body).unwrap()).unwrap(), request);
}

/// Breaks where a record of an earlier build is read by the columns of this one.
#[test]
fn rows_of_an_earlier_version_come_back_with_nothing_in_later_columns() {
    for table in history::TABLES.into_iter().filter(|table| table.version > 1) {
        let before = table.columns_of(1);
        let columns = before.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8 => Arc::new(StringArray::from(vec![field.name().as_str()])) as ArrayRef,
            other => cast(&Int64Array::from(vec![7]), other).unwrap(),
        });
        let old = RecordBatch::try_new(Arc::clone(&before), columns.collect()).unwrap();
        let body = written(|encoder, out| {
            (encoder.encode)(&old, out).unwrap();
            out.resize(out.len().next_multiple_of(8), 0);
        });
        let read = |version| decode(Kind::Rows(table.number), version, 0, &Buffer::from_vec(body.clone()));
        let now = read(1).unwrap();
        assert_eq!(now.schema().fields(), table.columns().fields());
        for (name, _) in table.added {
            assert!(now.column_by_name(name).unwrap().as_primitive::<Float64Type>().value(0).is_nan(), "{name}");
        }
        assert_eq!(table.chosen(&now, &before.fields().iter().map(|f| &**f.name()).collect::<Vec<_>>()).unwrap(), old);
        assert!(read(table.version).is_err());
    }
}

/// A record with a good checksum may come of a build with a fault; it must be refused, not end the process.
#[test]
fn a_body_that_is_cut_is_refused_wherever() {
    let body = samples(Some(vec![1, 2, 3]));
    assert!(read(Kind::Samples, OPTIONAL, &body).is_ok());
    for length in 0..body.len() {
        assert!(read(Kind::Samples, OPTIONAL, &body[..length]).is_err(), "{length} of {} bytes", body.len());
    }
}

#[test]
fn a_body_of_another_form_is_refused() {
    let body = samples(None);
    let check = |at: usize, byte: u8, why: &str| {
        let mut body = body.clone();
        body[at] = byte;
        assert_eq!(read(Kind::Samples, 0, &body).unwrap_err(), bad(why));
    };
    check(0, 0, "no continuation marker");
    check(3, 0, "no continuation marker");
    // The length of the metadata, little endian.
    check(7, 0x7f, "metadata runs past the end");
    // Its flag promises a column that it does not have.
    assert!(read(Kind::Samples, OPTIONAL, &body).is_err());
    assert!(read(Kind::Metadata, 0, &body).is_err());
}
