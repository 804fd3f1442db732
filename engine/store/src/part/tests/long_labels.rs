//! Series with very large labels.

use super::*;

/// Breaks if series are written, or their labels are read, so many at a time whatever they take.
#[test]
fn series_of_long_labels_are_written_and_read_few_at_a_time() {
    const SERIES: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    // 40 KiB of labels each, all different.
    let run = |n: usize| {
        let names: Vec<String> = (0..20).map(|label| format!("l{label:02}")).collect();
        let values: Vec<String> = (0..20).map(|label| format!("{:08x}", n * 20 + label).repeat(256)).collect();
        let labels = names.iter().zip(&values).map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs: Vec<(&str, &str)> = std::iter::once(("__name__", "m")).chain(labels).collect();
        let mut run = series(&pairs, "web");
        run.samples.push(1000, n as f64, 0);
        run
    };
    let runs = sorted((0..SERIES).map(run).collect());
    let meta = write(dir.path(), 1, &runs);
    let (part, stats) = (open(dir.path(), &meta), ReadStats::default());
    let footer = block_on(part.footer(meta.file("series").unwrap(), &stats)).unwrap();
    assert!(footer.group_starts().len() > 2, "row groups end by their bytes, too: {:?}", footer.group_starts());
    let some = block_on(part.series_within(0..SERIES as u32, 4 << 20, &stats)).unwrap();
    assert!((1..200).contains(&some.end) && some.start == 0, "{some:?}");
    assert_eq!(block_on(part.series_within(7..SERIES as u32, 1, &stats)).unwrap(), 7..8);
    let read = block_on(read_all(&part)).unwrap();
    assert!(read.iter().map(bits).eq(runs.iter().map(bits)), "series differ");
    block_on(part.verify()).unwrap();
    // The first time, footers are read, too.
    block_on(part.confirm_series(&stats)).unwrap();
    let (confirmed, of_index) = (ReadStats::default(), ReadStats::default());
    assert_eq!(block_on(part.confirm_series(&confirmed)).unwrap(), SERIES as u64);
    let index = block_on(part.label_index(&of_index)).unwrap();
    assert_eq!(block_on(index.count(&of_index)).unwrap(), 21 * SERIES as u64);
    let reads = confirmed.objects_read.load(Relaxed) - of_index.objects_read.load(Relaxed);
    assert!(reads >= 6, "24 MiB of labels were confirmed by {reads} reads");
}
