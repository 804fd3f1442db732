//! Parts with too many streams to be read at once.

use std::collections::BTreeMap;

use quiver_types::{SeriesId, read_stats};

use super::*;

const STREAMS: u32 = 2500;

fn pod(n: u32) -> String {
    format!("pod-{n:05}")
}

/// Of most streams the application; three values.
fn app(n: u32) -> &'static str {
    if n.is_multiple_of(7) { "" } else { ["a0", "a1", "a2"][n as usize % 3] }
}

fn of(n: u32) -> Arc<LiveStream> {
    let pod = pod(n);
    stream(&[("app", app(n)), ("pod", &pod)], ["", "web"][n as usize % 2])
}

/// A part with a row for each stream.
fn part(root: &Path) -> Arc<Part> {
    let mut writer = LogPartWriter::new(root, logs_spec(), LogColumns::default(), Optional::default()).unwrap();
    let (severity, observed, columns) = (Vec::new(), Vec::new(), Vec::new());
    let time = (0..i64::from(STREAMS)).collect();
    let streams = (0..STREAMS).map(|n| (of(n), 1)).collect();
    writer.write(GroupColumns { time, streams, severity, observed, columns, overflow: None }).unwrap();
    open(root, &writer.finish().unwrap())
}

/// The streams of each value of a label, or of the services.
fn values(part: &Part, kind: u8, label: &str, only: Option<&str>) -> BTreeMap<String, Vec<u32>> {
    let mut out = BTreeMap::new();
    let mut visit = |value: &str, runs: LabelRuns<'_>| {
        let mut streams = Vec::new();
        runs.each(|run| streams.extend(run));
        assert!(out.insert(value.to_owned(), streams).is_none(), "{value} comes once");
    };
    block_on(part.each_label_value(kind, label, only, &ReadStats::default(), &mut visit)).unwrap();
    out
}

#[test]
fn blocks_divide_streams_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(dir.path());
    let stats = ReadStats::default();
    assert!(part.has_labels() && logs(&part).streams.is_none());
    let blocks = block_on(part.stream_blocks(&stats)).unwrap();
    assert_eq!(blocks.streams(), STREAMS);
    assert_eq!([0, 1023, 1024, 2499].map(|stream| blocks.of_stream(stream)), [0, 0, 1, 2]);
    assert_eq!([0, 1, 2, 3].map(|block| blocks.streams_of(block)), [0..1024, 1024..2048, 2048..2500, 2500..2500]);
    assert_eq!([0, 1023, 1024, 2499].map(|row| blocks.of_row(row)), [0, 0, 1, 2]);
    assert_eq!([0, 2, 3, u32::MAX].map(|block| blocks.first_row(block)), [0, 2048, 2500, 2500]);
}

#[test]
fn columns_of_blocks_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(dir.path());
    let stats = ReadStats::default();
    let blocks = block_on(part.stream_blocks(&stats)).unwrap();
    let read = |wanted: &[u32]| {
        let columns = StreamColumns::Ids;
        let batches = block_on(part.stream_columns(&blocks, wanted, columns, &stats)).unwrap();
        for (batch, block) in batches.iter().zip(wanted) {
            let ids = batch.column(0).as_fixed_size_binary();
            let expected = blocks.streams_of(*block).map(|n| of(n).id.to_bytes());
            assert!(ids.iter().flatten().eq(expected.map(|id| id.to_vec())), "block {block}");
        }
        (batches.len(), read_stats::get(&stats.stream_blocks_read))
    };
    assert_eq!(read(&[2]), (1, 1));
    assert_eq!(read(&[0, 2]), (2, 2), "one of them is known");
    assert_eq!(read(&[0, 1, 2]), (3, 3));
    assert_eq!(read(&[]), (0, 3));
    let services = block_on(part.stream_columns(&blocks, &[1], StreamColumns::Services, &stats)).unwrap();
    assert_eq!(services[0].column(0).as_string::<i32>().value(1), "web");
}

#[test]
fn streams_are_found_by_label_and_service() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(dir.path());
    let mut apps: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    (0..STREAMS).filter(|n| !app(*n).is_empty()).for_each(|n| apps.entry(app(n).to_owned()).or_default().push(n));
    assert_eq!(values(&part, KIND_LABEL, "app", None), apps);
    assert_eq!(values(&part, KIND_LABEL, "app", Some("a1")), BTreeMap::from([("a1".to_owned(), apps["a1"].clone())]));
    // Values of many pages.
    let pods = values(&part, KIND_LABEL, "pod", None);
    assert!(
        pods.iter().map(|(pod, streams)| (pod.clone(), streams.clone())).eq((0..STREAMS).map(|n| (pod(n), vec![n])))
    );
    for n in (0..STREAMS).step_by(311).chain([1023, 1024, 2047, 2048, STREAMS - 1]) {
        let found = values(&part, KIND_LABEL, "pod", Some(&pod(n)));
        assert_eq!(found, BTreeMap::from([(pod(n), vec![n])]));
    }
    for (label, value) in [("app", "a"), ("app", "a3"), ("pod", "pod-02500"), ("zone", "x")] {
        assert!(values(&part, KIND_LABEL, label, Some(value)).is_empty(), "{label}={value}");
    }
    let services = values(&part, KIND_SERVICE, "", None);
    assert_eq!(services.keys().collect::<Vec<_>>(), ["", "web"]);
    assert!(services["web"].iter().copied().eq((1..STREAMS).step_by(2)));
}

#[test]
fn labels_are_told_of_each_stream() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(dir.path());
    let stats = ReadStats::default();
    let blocks = block_on(part.stream_blocks(&stats)).unwrap();
    let codes = |label: &str| block_on(part.label_codes(&blocks, label, &stats)).unwrap();
    let apps = codes("app");
    assert_eq!(apps.values.iter().map(|v| &**v).collect::<Vec<_>>(), ["", "a0", "a1", "a2"]);
    for n in 0..STREAMS {
        assert_eq!(&*apps.values[apps.of_stream[n as usize] as usize], app(n), "{n}");
    }
    assert!(Arc::ptr_eq(&apps, &codes("app")), "it is kept");
    let none = codes("zone");
    assert!(none.values.len() == 1 && none.of_stream.iter().all(|code| *code == 0));
}

#[test]
fn streams_are_found_by_their_identifier() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(dir.path());
    let stats = ReadStats::default();
    let blocks = block_on(part.stream_blocks(&stats)).unwrap();
    let find = |id: SeriesId| block_on(part.streams_with_id(&blocks, id, &stats)).unwrap();
    for n in (0..STREAMS).step_by(83) {
        assert_eq!(find(of(n).id), [n]);
    }
    for other in [SeriesId(0), SeriesId(u128::MAX), SeriesId(of(7).id.0 ^ 1)] {
        assert!(find(other).is_empty(), "{other:?}");
    }
}
