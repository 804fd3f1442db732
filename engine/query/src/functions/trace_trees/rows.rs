//! Spans in the compact form that groups keep, and the tree that is built from them.

use std::collections::{BTreeSet, HashMap};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;

/// The arguments of an aggregate.
pub(super) struct Columns<'a> {
    ids: [&'a StringViewArray; 2],
    texts: [&'a StringViewArray; 4],
    times: [&'a Int64Array; 2],
    errors: &'a BooleanArray,
}

impl<'a> Columns<'a> {
    pub(super) fn of(values: &'a [ArrayRef]) -> Result<Self> {
        let [id, parent, kind, service, name, start, end, error, mark] = values else {
            return exec_err!("spans have nine columns here, not {}", values.len());
        };
        let text = |c: &'a ArrayRef| c.as_string_view_opt().ok_or_else(|| exec_datafusion_err!("a text of a span"));
        let time = |c: &'a ArrayRef| {
            c.as_primitive_opt::<Int64Type>().ok_or_else(|| exec_datafusion_err!("a time of a span is no number"))
        };
        Ok(Self {
            ids: [text(id)?, text(parent)?],
            texts: [text(kind)?, text(service)?, text(name)?, text(mark)?],
            times: [time(start)?, time(end)?],
            errors: error.as_boolean_opt().ok_or_else(|| exec_datafusion_err!("an error is a truth value"))?,
        })
    }

    /// Writes a row: ids, start, error with kind, duration, then texts behind their lengths. Numbers that are mostly small
    /// take as few bytes as they need.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        for ids in self.ids {
            let text = if ids.is_valid(row) { ids.value(row) } else { "" };
            out.extend_from_slice(&u64::from_str_radix(text, 16).unwrap_or(0).to_le_bytes());
        }
        let [start, end] = self.times.map(|times| if times.is_valid(row) { times.value(row) } else { 0 });
        out.extend_from_slice(&start.to_le_bytes());
        let [kind, service, name, mark] =
            self.texts.map(|texts| if texts.is_valid(row) { texts.value(row) } else { "" });
        let code = KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len());
        out.push((code as u8) << 1 | u8::from(self.errors.is_valid(row) && self.errors.value(row)));
        write_number(end.wrapping_sub(start) as u64, out);
        if code == KINDS.len() {
            write_text(kind, out);
        }
        for text in [service, name, mark] {
            write_text(text, out);
        }
    }
}

/// Kinds that are written as their places; others as texts.
const KINDS: [&str; 7] = ["", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];

/// Writes seven bits to a byte, the lowest first; the highest bit says that more follow.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// A span; empty texts are absent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span<'b> {
    pub(super) id: u64,
    /// 0: it is a root.
    pub(super) parent: u64,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) is_error: bool,
    pub(super) kind: &'b str,
    pub(super) service: &'b str,
    pub(super) name: &'b str,
    pub(super) mark: &'b str,
}

impl Span<'_> {
    /// Whether work enters a service with it.
    pub(super) fn is_entry(&self) -> bool {
        matches!(self.kind, "SERVER" | "CONSUMER") || self.parent == 0 && self.kind == "INTERNAL"
    }
}

/// Reads spans that [`Columns::write`] wrote.
fn read(mut bytes: &[u8]) -> Option<Vec<Span<'_>>> {
    fn whole<'b>(bytes: &mut &'b [u8]) -> Option<[u8; 8]> {
        let (head, rest): (&'b [u8; 8], &'b [u8]) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(*head)
    }
    fn byte<'b>(bytes: &mut &'b [u8]) -> Option<u8> {
        let (byte, rest): (&'b u8, &'b [u8]) = bytes.split_first()?;
        *bytes = rest;
        Some(*byte)
    }
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let next = byte(bytes)?;
            number |= u64::from(next & 0x7f).checked_shl(shift)?;
            if next < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }
    fn text<'b>(bytes: &mut &'b [u8]) -> Option<&'b str> {
        let length = usize::try_from(number(bytes)?).ok()?;
        let (text, rest): (&'b [u8], &'b [u8]) = bytes.split_at_checked(length)?;
        *bytes = rest;
        std::str::from_utf8(text).ok()
    }
    let mut spans = Vec::new();
    while !bytes.is_empty() {
        let (id, parent) = (u64::from_le_bytes(whole(&mut bytes)?), u64::from_le_bytes(whole(&mut bytes)?));
        let start = i64::from_le_bytes(whole(&mut bytes)?);
        let flags = byte(&mut bytes)?;
        let (code, is_error) = (usize::from(flags >> 1), flags & 1 != 0);
        let end = start.wrapping_add(number(&mut bytes)? as i64);
        let kind = if code < KINDS.len() { KINDS[code] } else { text(&mut bytes)? };
        let (service, name, mark) = (text(&mut bytes)?, text(&mut bytes)?, text(&mut bytes)?);
        spans.push(Span { id, parent, start, end, is_error, kind, service, name, mark });
    }
    Some(spans)
}

/// The spans of a trace with their parents.
#[derive(Debug)]
pub(super) struct Tree<'b> {
    /// By start, then id.
    pub(super) spans: Vec<Span<'b>>,
    /// Place of the parent of each, where it is stored.
    pub(super) parents: Vec<Option<usize>>,
    /// Of each the spans up to the root, the span itself counted.
    pub(super) depths: Vec<usize>,
    /// The nearest entry span at or above each.
    pub(super) entries: Vec<Option<usize>>,
}

impl<'b> Tree<'b> {
    /// Reads spans, merges reports, finds parents.
    pub(super) fn of(bytes: &'b [u8]) -> Result<Self> {
        let Some(mut reports) = read(bytes) else { return exec_err!("a state of spans is cut off") };
        reports.sort_by(|a, b| (a.id, a.kind, a.start, a.end).cmp(&(b.id, b.kind, b.start, b.end)));
        reports.dedup_by(|report, span| {
            let is_same = report.id == span.id && report.kind == span.kind;
            if is_same {
                span.end = span.end.max(report.end);
                span.is_error |= report.is_error;
                for (known, new) in
                    [(&mut span.service, report.service), (&mut span.name, report.name), (&mut span.mark, report.mark)]
                {
                    if known.is_empty() {
                        *known = new;
                    }
                }
                span.parent = if span.parent == 0 { report.parent } else { span.parent };
            }
            is_same
        });
        reports.sort_by(|a, b| (a.start, a.id, a.kind).cmp(&(b.start, b.id, b.kind)));
        let spans = reports;
        let mut by_id: HashMap<u64, Vec<usize>> = HashMap::with_capacity(spans.len());
        for (at, span) in spans.iter().enumerate() {
            by_id.entry(span.id).or_default().push(at);
        }
        let parents: Vec<Option<usize>> = (0..spans.len()).map(|at| parent(&spans, &by_id, at)).collect();
        let (depths, entries) = ways(&spans, &parents);
        Ok(Self { spans, parents, depths, entries })
    }

    /// Places of the children of each span.
    pub(super) fn children(&self) -> Vec<Vec<usize>> {
        let mut children = vec![Vec::new(); self.spans.len()];
        for (at, parent) in self.parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent].push(at);
            }
        }
        children
    }

    /// Duration of a span without the time in which a child runs; `children` are in order of their starts.
    pub(super) fn self_time(&self, at: usize, children: &[usize]) -> i64 {
        let span = &self.spans[at];
        let (mut covered, mut until) = (0, span.start);
        for child in children {
            let start = self.spans[*child].start.max(until);
            let end = self.spans[*child].end.min(span.end);
            if end > start {
                covered = end.saturating_sub(start).saturating_add(covered);
                until = end;
            }
        }
        (span.end.saturating_sub(span.start) - covered).max(0)
    }

    /// Gives the services of the spans, each once; a span without a service brings none.
    pub(super) fn services(&self) -> BTreeSet<&'b str> {
        self.spans.iter().map(|s| s.service).filter(|name| !name.is_empty()).collect()
    }
}

/// The parent of a span. An id that client and server share is that of the server to spans below.
fn parent(spans: &[Span<'_>], by_id: &HashMap<u64, Vec<usize>>, at: usize) -> Option<usize> {
    let span = &spans[at];
    let client = |places: &[usize]| places.iter().copied().find(|p| spans[*p].kind == "CLIENT");
    let own = by_id.get(&span.id).map(Vec::as_slice).unwrap_or_default();
    if span.kind == "SERVER"
        && let Some(client) = client(own)
    {
        return Some(client);
    }
    if span.parent == 0 {
        return None;
    }
    let places = by_id.get(&span.parent)?;
    places.iter().copied().find(|p| spans[*p].kind != "CLIENT").or_else(|| client(places)).filter(|p| *p != at)
}

/// Depth and entry of each span. Parents that go round in a circle end where they were seen before.
fn ways(spans: &[Span<'_>], parents: &[Option<usize>]) -> (Vec<usize>, Vec<Option<usize>>) {
    let mut depths = vec![0_usize; spans.len()];
    let mut entries = vec![None; spans.len()];
    let mut on_way = vec![false; spans.len()];
    for start in 0..spans.len() {
        let mut way = Vec::new();
        let mut at = Some(start);
        while let Some(here) = at.filter(|here| depths[*here] == 0 && !on_way[*here]) {
            on_way[here] = true;
            way.push(here);
            at = parents[here];
        }
        let above = at.filter(|above| depths[*above] > 0);
        let (mut depth, mut entry) = above.map_or((0, None), |above| (depths[above], entries[above]));
        for here in way.into_iter().rev() {
            depth += 1;
            if spans[here].is_entry() {
                entry = Some(here);
            }
            (depths[here], entries[here]) = (depth, entry);
        }
    }
    (depths, entries)
}
