//! Events of the parser to a tree.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::{Key, Node, NodeKind, ScalarLayout, indents};
use crate::problem::{Code, Place, Problem};

/// Deepest nesting of sequences and mappings, anchors expanded.
pub const DEPTH_MAX: usize = 64;

/// Most nodes, after anchors are expanded.
pub const NODES_MAX: usize = 250_000;

/// Most bytes of texts that anchors take beside what is written: each holds a copy, and so does each place that names it.
pub const COPIED_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are read again for the sake of lines that stand no deeper than their key.
const AGAIN_BYTES_MAX: usize = 16 << 20;

/// Reads all documents of a text.
///
/// # Errors
/// Malformed: syntax, a control character, a duplicate key, a foreign tag, too deep, too many nodes.
pub fn read(text: &str) -> Result<Vec<Node>, Problem> {
    read_by(text, Manner::Ours)
}

/// Reads the first document of a text by the rules of Go where those are wider than ours: equal keys stand one after the
/// other, and what follows the document is nobody's matter.
///
/// # Errors
/// As [`read`].
pub fn read_first(text: &str) -> Result<Option<Node>, Problem> {
    read_by(text, Manner::Gos).map(|mut documents| documents.pop())
}

/// Whose rules apply to a text: ours, or those of Go's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Manner {
    #[default]
    Ours,
    Gos,
}

fn read_by(text: &str, manner: Manner) -> Result<Vec<Node>, Problem> {
    if let Some(at) = text.find(is_control) {
        return Err(malformed(place_of(&text[..at]), "control characters are not allowed"));
    }
    let (mut text, mut again) = (Cow::Borrowed(text), 0);
    loop {
        let problem = match documents(&text, manner) {
            Ok(documents) => return Ok(documents),
            Err(problem) => problem,
        };
        again += text.len();
        let moved = if again <= AGAIN_BYTES_MAX { indents::moved(&text, &problem) } else { None };
        let Some(moved) = moved else { return Err(problem) };
        text = Cow::Owned(moved);
    }
}

fn documents(text: &str, manner: Manner) -> Result<Vec<Node>, Problem> {
    let mut reader = Reader { manner, ..Reader::default() };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| malformed(place(e.marker()), e.info()))?;
        reader.event(event, &span)?;
        if manner == Manner::Gos && !reader.documents.is_empty() {
            break;
        }
    }
    Ok(reader.documents)
}

/// A list or mapping under way.
enum OpenCollection {
    List(Vec<Node>),
    Map { pairs: Vec<(Key, Node)>, keys: HashSet<String>, key: Option<Key>, merged: Vec<(Key, Node)> },
}

/// What an anchor stands for.
struct AnchorTarget {
    node: Node,
    extent: Extent,
}

struct Frame {
    open: OpenCollection,
    place: Place,
    anchor: usize,
}

#[derive(Default)]
struct Reader {
    documents: Vec<Node>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, AnchorTarget>,
    nodes: usize,
    /// Bytes of texts in copies.
    copied_bytes: usize,
    manner: Manner,
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line() as u32, column: marker.col() as u32 + 1 }
}

/// Says whether a character may stand in YAML only as an escape. The parser takes some of them.
fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}')
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Gives the place behind a text.
fn place_of(before: &str) -> Place {
    let line = before.rsplit('\n').next().unwrap_or(before);
    Place { line: before.matches('\n').count() as u32 + 1, column: line.chars().count() as u32 + 1 }
}

fn layout(text: &str, style: ScalarStyle, span: &Span) -> ScalarLayout {
    let is_line = span.start.line() == span.end.line();
    let length = span.end.col().saturating_sub(span.start.col());
    let chars = text.chars().count();
    match style {
        ScalarStyle::Literal => ScalarLayout::Block,
        ScalarStyle::Plain if is_line && length == chars => ScalarLayout::Bare,
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted if is_line && length == chars + 2 => ScalarLayout::Quoted,
        _ => ScalarLayout::Other,
    }
}

fn malformed(place: Place, message: impl Into<String>) -> Problem {
    Problem { place, path: String::new(), code: Code::Malformed, message: message.into() }
}

/// How large a value is.
#[derive(Debug, Clone, Copy)]
struct Extent {
    nodes: usize,
    /// Lists and mappings that stand one within the other.
    depth: usize,
    text_bytes: usize,
}

impl Extent {
    fn of(node: &Node) -> Self {
        let leaf = |text_bytes: usize| Self { nodes: 1, depth: 0, text_bytes };
        let of_pair = |(key, value): &(Key, Node)| Self::of(value).and(leaf(key.text.len()));
        let within = match &node.kind {
            NodeKind::Null => return leaf(0),
            NodeKind::Scalar { text, .. } => return leaf(text.len()),
            NodeKind::List(items) => items.iter().map(Self::of).fold(leaf(0), Self::and),
            NodeKind::Map(pairs) => pairs.iter().map(of_pair).fold(leaf(0), Self::and),
        };
        Self { depth: within.depth + 1, ..within }
    }

    fn and(self, other: Self) -> Self {
        Self {
            nodes: self.nodes + other.nodes,
            depth: self.depth.max(other.depth),
            text_bytes: self.text_bytes + other.text_bytes,
        }
    }
}

impl Reader {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Problem> {
        let place = place(&span.start);
        match event {
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::Alias(anchor) => {
                let extent = self.anchors.get(&anchor).map(|known| known.extent);
                let Some(extent) = extent else {
                    return Err(malformed(place, "an anchor holds itself"));
                };
                self.count_copy(extent, place)?;
                // Each could stand as deep within the next as a list may: whoever walks the tree has no stack for that.
                if self.frames.len() + extent.depth > DEPTH_MAX {
                    return Err(malformed(place, format!("nested deeper than {DEPTH_MAX}")));
                }
                let kind = self.anchors[&anchor].node.kind.clone();
                self.value(Node { place, kind }, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), place)?;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let layout = layout(&text, style, span);
                let kind =
                    if null { NodeKind::Null } else { NodeKind::Scalar { text: text.into_owned(), plain, layout } };
                self.one(place)?;
                self.value(Node { place, kind }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                is_text(tag.as_deref(), place)?;
                self.push(OpenCollection::List(Vec::new()), place, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                is_text(tag.as_deref(), place)?;
                let open =
                    OpenCollection::Map { pairs: Vec::new(), keys: HashSet::new(), key: None, merged: Vec::new() };
                self.push(open, place, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn one(&mut self, place: Place) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(malformed(place, format!("more than {NODES_MAX} nodes")));
        }
        Ok(())
    }

    /// Counts a copy before it is made: a few lines of anchors of anchors stand for millions of nodes, and two bytes that
    /// name an anchor for megabytes of text.
    fn count_copy(&mut self, extent: Extent, place: Place) -> Result<(), Problem> {
        self.nodes += extent.nodes;
        if self.nodes > NODES_MAX {
            return Err(malformed(place, format!("more than {NODES_MAX} nodes")));
        }
        self.copied_bytes += extent.text_bytes;
        if self.copied_bytes > COPIED_BYTES_MAX {
            return Err(malformed(place, format!("anchors stand for more than {COPIED_BYTES_MAX} bytes of texts")));
        }
        Ok(())
    }

    fn push(&mut self, open: OpenCollection, place: Place, anchor: usize) -> Result<(), Problem> {
        self.one(place)?;
        if self.frames.len() >= DEPTH_MAX {
            return Err(malformed(place, format!("nested deeper than {DEPTH_MAX}")));
        }
        self.frames.push(Frame { open, place, anchor });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Problem> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let kind = match frame.open {
            OpenCollection::List(items) => NodeKind::List(items),
            OpenCollection::Map { mut pairs, keys, merged, .. } => {
                // What the mapping says itself wins over what is merged into it; of several the first wins.
                let mut keys = keys;
                pairs.extend(merged.into_iter().filter(|(key, _)| keys.insert(key.text.clone())));
                NodeKind::Map(pairs)
            }
        };
        self.value(Node { place: frame.place, kind }, frame.anchor)
    }

    fn value(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        if anchor > 0 {
            let extent = Extent::of(&node);
            self.count_copy(extent, node.place)?;
            self.anchors.insert(anchor, AnchorTarget { node: node.clone(), extent });
        }
        let Some(frame) = self.frames.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut frame.open {
            OpenCollection::List(items) => items.push(node),
            OpenCollection::Map { pairs, keys, key, merged } => match key.take() {
                None => *key = Some(as_key(node)?),
                // Between quotes it is a name like others, as in Go.
                Some(name) if name.plain && name.text == "<<" => merge(node, merged)?,
                Some(name) => {
                    // A key that is nothing names nothing: its pair is left out, as in Go.
                    let is_nothing = name.plain && name.text.is_empty();
                    let text = if is_nothing { "~" } else { name.text.as_str() };
                    if !keys.insert(text.to_owned()) && self.manner == Manner::Ours {
                        return Err(malformed(name.place, format!("key `{text}` is given more than once")));
                    }
                    if !is_nothing {
                        pairs.push((name, node));
                    }
                }
            },
        }
        Ok(())
    }
}

fn as_key(node: Node) -> Result<Key, Problem> {
    match node.kind {
        NodeKind::Scalar { text, plain, .. } => Ok(Key { text, plain, place: node.place }),
        NodeKind::Null => Ok(Key { text: String::new(), plain: true, place: node.place }),
        NodeKind::List(_) | NodeKind::Map(_) => Err(malformed(node.place, "a key must be a scalar")),
    }
}

fn merge(node: Node, merged: &mut Vec<(Key, Node)>) -> Result<(), Problem> {
    match node.kind {
        NodeKind::Map(pairs) => merged.extend(pairs),
        NodeKind::List(items) if items.iter().all(|i| matches!(i.kind, NodeKind::Map(_))) => {
            items.into_iter().try_for_each(|item| merge(item, merged))?;
        }
        _ => return Err(malformed(node.place, "what is merged by `<<` must be a mapping or a list of them")),
    }
    Ok(())
}

/// What `!!` stands for.
const CORE: &str = "tag:yaml.org,2002:";

/// Says whether a tag makes a text of a scalar.
fn is_text(tag: Option<&Tag>, place: Place) -> Result<bool, Problem> {
    let Some(tag) = tag else { return Ok(false) };
    let (handle, suffix) = match (tag.handle.as_str(), tag.suffix.strip_prefix(CORE)) {
        // As in `!<tag:yaml.org,2002:str>`.
        ("", Some(name)) => (CORE, name),
        (handle, _) => (handle, tag.suffix.as_str()),
    };
    match (handle, suffix) {
        (CORE, "str") | ("" | "!", "" | "!") => Ok(true),
        (CORE, "int" | "float" | "bool" | "null" | "map" | "seq") => Ok(false),
        (handle, suffix) => Err(malformed(place, format!("unknown tag `{handle}{suffix}`"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn error(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    #[test]
    fn places_and_documents() {
        let documents = read("a: 1\nb:\n  - x\n---\nc: 'd'\n").expect("valid");
        assert_eq!(documents.len(), 2);
        let b = documents[0].get("b").expect("there");
        let NodeKind::List(items) = &b.kind else { panic!("{b:?}") };
        assert_eq!(items[0].place, Place { line: 3, column: 5 });
        assert_eq!(read("").expect("valid"), []);
    }

    #[test]
    fn anchors_and_merges() {
        let text = "base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\nlist: [*b, *b]\n";
        let node = read(text).expect("valid").remove(0);
        let more = node.get("more").expect("there");
        assert_eq!((more.get("x").and_then(Node::integer), more.get("y").and_then(Node::integer)), (Some(1), Some(3)));
        let node = read("\"<<\": {x: 1}").expect("valid").remove(0);
        assert!(node.get("<<").is_some() && node.get("x").is_none(), "quoted, it is a name");
    }

    #[test]
    fn pairs_without_a_key() {
        let node = read("a: 1\n~: x\nb: {null: y, '': z}").expect("valid").remove(0);
        assert!(matches!(&node.kind, NodeKind::Map(pairs) if pairs.len() == 2), "{node:?}");
        let b = node.get("b").expect("there");
        assert!(matches!(&b.kind, NodeKind::Map(pairs) if pairs.len() == 1), "{b:?}");
        assert_eq!(b.get("").and_then(Node::text), Some("z"));
        assert!(error("~: 1\n~: 2").contains("given more than once"));
    }

    #[test]
    fn the_first_document_as_go_reads_it() {
        let pairs = |text: &str| match read_first(text).expect(text).map(|node| node.kind) {
            Some(NodeKind::Map(pairs)) => pairs.len(),
            _ => 0,
        };
        assert_eq!([pairs("a: 1\na: 2"), pairs("a: 1\n---\nb: 2"), pairs("# c\n")], [2, 1, 0]);
        assert!(read_first("a: [").is_err());
    }

    #[test]
    fn refused() {
        assert_eq!(error("a: 1\na: 2"), "2:1: key `a` is given more than once");
        assert!(error("a: !foo 1").contains("unknown tag"), "{}", error("a: !foo 1"));
        assert!(error("a: !<tag:yaml.org,2002:foo> 1").contains("unknown tag"));
        assert!(read("a: !<tag:yaml.org,2002:str> 1\nb: !!str 1").is_ok());
        for text in ["a: 1\nb: x\u{7}y", "a: 1\nb: \"\u{7f}\"", "a: 1\nb: x\u{9f}"] {
            assert!(error(text).ends_with("control characters are not allowed") && error(text).starts_with("2:"));
        }
        assert!(read("a: \"\\a\\x7f\u{85}\t\u{a0}\"\r\n").is_ok());
        assert!(error("a: [1").starts_with("2:1: ") || error("a: [1").starts_with("1:"), "{}", error("a: [1"));
        assert!(error(&"[".repeat(100)).contains("nested deeper"));
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        (1..9).for_each(|i| {
            let item = format!("*a{}", i - 1);
            let _ = writeln!(bomb, "a{i}: &a{i} [{}]", vec![item; 10].join(","));
        });
        assert!(error(&bomb).contains("more than 250000 nodes"));
    }

    /// A text within so many lists.
    fn within(lists: usize, inner: &str) -> String {
        format!("{}{inner}{}", "[".repeat(lists), "]".repeat(lists))
    }

    #[test]
    fn anchors_nest_no_deeper_than_what_is_written_out() {
        assert!(read(&within(DEPTH_MAX, "x")).is_ok());
        assert!(error(&within(DEPTH_MAX + 1, "x")).ends_with("nested deeper than 64"));
        // The mapping around both is a level, too.
        let text = |first, second| format!("a: &a {}\nb: {}\n", within(first, "x"), within(second, "*a"));
        assert!(read(&text(33, 30)).is_ok());
        let refused = error(&text(33, 31));
        assert!(refused.starts_with("2:") && refused.ends_with("nested deeper than 64"), "{refused}");
        // Some thousand levels in 60 lines, of few nodes.
        let mut deep = format!("a0: &a0 {}\n", within(60, "x"));
        (1..60).for_each(|i| {
            let inner = within(60, &format!("*a{}", i - 1));
            let _ = writeln!(deep, "a{i}: &a{i} {inner}");
        });
        assert!(error(&deep).starts_with("2:"), "{}", error(&deep));
    }

    /// Breaks if an anchor of a long text is copied for each of the bytes that name it.
    #[test]
    fn anchors_stand_for_no_more_text_than_could_be_sent() {
        let long = "x".repeat(1 << 20);
        let named = |times: usize| format!("a: &a {long}\nb: [{}]\n", vec!["*a"; times].join(","));
        // The anchor holds one copy itself.
        assert!(read(&named(3)).is_ok());
        let refused = error(&named(4));
        assert!(refused.starts_with("2:") && refused.ends_with("more than 4194304 bytes of texts"), "{refused}");
        // Each anchor around it holds another one, and keys are texts, too.
        let around = |levels: usize| format!("a: {}{long}{}\n", "&a [".repeat(levels), "]".repeat(levels));
        assert!(read(&around(4)).is_ok());
        assert!(error(&around(5)).ends_with("bytes of texts"));
        let keys = |times: usize| format!("a: &a\n  ? {long}\n  : 1\nb: [{}]\n", vec!["*a"; times].join(","));
        assert!(error(&keys(4)).ends_with("bytes of texts"), "{}", error(&keys(4)));
        let merged = format!("a: &a {{x: {long}}}\nb: {{<<: [*a, *a, *a, *a]}}\n");
        assert!(error(&merged).ends_with("bytes of texts"));
        // The next document begins anew with its anchors, not with what was copied.
        assert!(error(&[named(2), named(2)].join("---\n")).ends_with("bytes of texts"));
    }

    #[test]
    fn anchors_stand_for_what_came_before() {
        let one = |text: &str, name: &str| {
            let root = read(text).unwrap_or_else(|e| panic!("{text}: {e}")).remove(0);
            root.get(name).and_then(Node::integer)
        };
        assert_eq!(one("a: &x 1\nb: *x\n", "b"), Some(1));
        assert_eq!(one("a: &x 1\nb: &x 2\nc: *x\n", "c"), Some(2), "the last one of a name");
        // Of several mappings the first wins, and over all of them what stands there itself.
        let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\n";
        let root = read(text).expect("valid").remove(0);
        let c = root.get("c").expect("there");
        assert_eq!(["x", "y", "z"].map(|name| c.get(name).and_then(Node::integer)), [Some(0), Some(1), Some(2)]);
        assert!(matches!(&c.kind, NodeKind::Map(pairs) if pairs.len() == 3), "{c:?}");
        assert!(error("a: &x [*x]").contains("an anchor holds itself"));
        for text in ["a: *x", "a: &x 1\n---\nb: *x\n", "c: {<<: 1}", "c: {<<: [{x: 1}, 2]}", "c: {<<: ~}"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(error("c: {<<: 1}").ends_with("must be a mapping or a list of them"));
        assert!(error("? [a]\n: 1\n").ends_with("a key must be a scalar"));
    }

    #[test]
    fn tags_say_what_is_a_text() {
        let text = "a: !!str 1\nb: !!str null\nc: !!int 5\nd: ! true\ne: !!map {f: 1}\n";
        let root = read(text).expect("valid").remove(0);
        let get = |name: &str| root.get(name).expect(name);
        assert_eq!((get("a").number(), get("a").text()), (None, Some("1")));
        assert_eq!((get("b").is_null(), get("b").text()), (false, Some("null")));
        assert_eq!((get("c").number(), get("d").truth()), (Some(5.0), None));
        assert_eq!(get("e").get("f").and_then(Node::integer), Some(1));
        assert!(error("a: !!binary aGk=").contains("unknown tag"));
    }

    #[test]
    fn places_count_characters() {
        assert_eq!(error("é: \u{7}"), "1:4: control characters are not allowed");
        assert_eq!(error("a: 1\nüä: 1\nüä: 2"), "3:1: key `üä` is given more than once");
        let root = read("é: [ü, x]").expect("valid").remove(0);
        let Some(NodeKind::List(items)) = root.get("é").map(|node| &node.kind) else { panic!("{root:?}") };
        assert_eq!(items.iter().map(|item| item.place.column).collect::<Vec<_>>(), [5, 8]);
    }

    #[test]
    fn how_texts_lie_in_the_file() {
        let text =
            "a: plain é\nb: 'one two'\nc: \"x\\ny\"\nd: 'it''s'\ne: |\n  line\nf: >\n  folded\ng: one\n  two\nh: ''\n";
        let root = read(text).expect("valid").remove(0);
        for (name, text, expected) in [
            ("a", "plain é", ScalarLayout::Bare),
            ("b", "one two", ScalarLayout::Quoted),
            ("c", "x\ny", ScalarLayout::Other),
            ("d", "it's", ScalarLayout::Other),
            ("e", "line\n", ScalarLayout::Block),
            ("f", "folded\n", ScalarLayout::Other),
            ("g", "one two", ScalarLayout::Other),
            ("h", "", ScalarLayout::Quoted),
        ] {
            let found = root.get(name).map(|node| &node.kind);
            let Some(NodeKind::Scalar { text: found, layout, .. }) = found else { panic!("{name}: {found:?}") };
            assert_eq!((found.as_str(), *layout), (text, expected), "{name}");
        }
    }
}
