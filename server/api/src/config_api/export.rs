//! The text of an export, as JSON or YAML. It stays compressed until the client reads it, and its memory is counted.

use std::fmt::{self, Write as _};
use std::io;
use std::iter::once;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures::stream;
use quiver_config::{CompressedExport, ExportWriter, Problem, ProblemKind, Result};
use quiver_ingest::DecodeRoom;
use serde_json::{Map, Value, json};

use super::yaml;

/// The format that an export states.
pub(super) const FORMAT: &str = "quiver/1";

/// Most bytes that one export takes: texts of configuration shrink to a tenth.
const BYTES_MAX: usize = 64 << 20;

/// How an export is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Yaml,
}

/// Writes the entities of an export.
pub(super) struct Writer {
    form: Form,
    count: usize,
    room: Arc<dyn DecodeRoom>,
}

impl Writer {
    pub(super) fn new(form: Form, room: Arc<dyn DecodeRoom>) -> Self {
        Self { form, count: 0, room }
    }

    /// Adds what stands around the entities.
    pub(super) fn end(self, family: &str, exported: CompressedExport) -> ExportBody {
        let (head, tail) = match self.form {
            Form::Json => (format!("{{\"family\":{},\"format\":{},\"items\":[", json!(family), json!(FORMAT)), "]}"),
            Form::Yaml => {
                let items = if exported.entities() == 0 { "items: []\n" } else { "items:\n" };
                (yaml::write(&json!({"family": family, "format": FORMAT})) + items, "")
            }
        };
        ExportBody { form: self.form, head, tail, exported: Arc::new(exported), room: self.room }
    }
}

impl ExportWriter for Writer {
    fn write(&mut self, entity: Map<String, Value>, out: &mut String) {
        let entity = Value::Object(entity);
        match self.form {
            Form::Json => {
                let comma = if self.count == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{entity}");
            }
            Form::Yaml => yaml::entry(&entity, 1, out),
        }
        self.count += 1;
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        if bytes > BYTES_MAX {
            let text =
                format!("the export takes more than {BYTES_MAX} bytes of memory; export it in parts, by filters");
            return Err(Problem::new(ProblemKind::Invalid, "LIMIT_EXCEEDED", text));
        }
        if self.room.hold(bytes) {
            return Ok(());
        }
        let text = "the memory for exports is used up by those that are read slowly, try again later";
        Err(Problem::new(ProblemKind::Busy, "STORE_BUSY", text))
    }
}

/// An export as it is sent.
#[derive(Clone)]
pub(crate) struct ExportBody {
    form: Form,
    head: String,
    tail: &'static str,
    exported: Arc<CompressedExport>,
    room: Arc<dyn DecodeRoom>,
}

impl fmt::Debug for ExportBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportBody").field("form", &self.form).field("exported", &self.exported).finish_non_exhaustive()
    }
}

impl ExportBody {
    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            Form::Json => "application/json",
            Form::Yaml => "application/yaml",
        }
    }

    /// The body; each piece is decompressed when the client has read those before it.
    pub(super) fn body(self) -> Body {
        let Self { head, tail, exported, room, .. } = self;
        let texts = (0..exported.pieces()).map(move |at| {
            let _counted = &room;
            exported.piece(at).map(Bytes::from)
        });
        let whole = |text: Bytes| once(Ok::<Bytes, io::Error>(text));
        let all = whole(Bytes::from(head)).chain(texts).chain(whole(Bytes::from_static(tail.as_bytes())));
        Body::from_stream(stream::iter(all))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// So many bytes.
    struct Room(usize);

    impl DecodeRoom for Room {
        fn hold(&self, bytes: usize) -> bool {
            bytes <= self.0
        }
    }

    /// Would fail if commas, indentation or the frame differed between an export in pieces and one that is written whole.
    #[tokio::test]
    async fn pieces_make_the_whole() {
        for (count, form) in [0, 1, 2, 5].into_iter().flat_map(|n| [(n, Form::Json), (n, Form::Yaml)]) {
            let item = |n: usize| json!({"id": n.to_string(), "labels": {}, "list": [{"a": "- "}, [1]], "none": null});
            let items: Vec<Value> = (0..count).map(item).collect();
            let mut writer = Writer::new(form, Arc::new(Room(0)));
            let mut texts = Vec::new();
            for item in &items {
                let mut text = String::new();
                writer.write(item.as_object().cloned().expect("an object"), &mut text);
                texts.push(text);
            }
            let sent = writer.end("groups", CompressedExport::for_tests(texts));
            let body = sent.body().collect().await.expect("a body").to_bytes();
            let whole = json!({"format": FORMAT, "family": "groups", "items": items});
            let expected = if form == Form::Json { whole.to_string() } else { yaml::write(&whole) };
            assert_eq!(String::from_utf8_lossy(&body), expected, "{count} {form:?}");
        }
    }

    #[test]
    fn what_an_export_takes_is_bounded() {
        let code = |room: usize, bytes: usize| {
            let mut writer = Writer::new(Form::Json, Arc::new(Room(room)));
            writer.hold(bytes).err().map(|problem| problem.code)
        };
        assert_eq!(code(1000, 1000), None);
        assert_eq!(code(1000, 1001), Some("STORE_BUSY"));
        assert_eq!(code(usize::MAX, BYTES_MAX), None);
        assert_eq!(code(usize::MAX, BYTES_MAX + 1), Some("LIMIT_EXCEEDED"));
    }
}
