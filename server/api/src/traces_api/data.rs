//! The data of an answer: kept as what the engine gave, and written row by row when it is sent.

use axum::response::Response;
use quiver_traces::{JsonWriter, TraceError};
use serde_json::Value;

use super::Call;

/// What an answer tells, and about how many values that are.
pub(super) struct Data {
    values: usize,
    write: Box<dyn FnOnce(&mut JsonWriter<'_>) + Send>,
}

impl Data {
    /// Takes what a function writes, of about so many values.
    pub(super) fn written(values: usize, write: impl FnOnce(&mut JsonWriter<'_>) + Send + 'static) -> Self {
        Self { values, write: Box::new(write) }
    }

    /// Takes what is short enough to be JSON at once.
    pub(super) fn short(value: Value) -> Self {
        Self::written(0, move |w| w.raw(value))
    }

    /// Takes rows, each of which becomes JSON when its turn comes.
    pub(super) fn rows<T: Send + 'static>(rows: Vec<T>, row: impl Fn(T) -> Value + Send + 'static) -> Self {
        Self::written(rows.len(), move |w| {
            w.array(|w| {
                for one in rows {
                    if w.is_closed() {
                        return;
                    }
                    w.raw(row(one));
                }
            });
        })
    }
}

impl Call {
    /// Wraps data of an answer, which may be written while it is read.
    pub(super) fn answer_data(
        &self,
        data: Data,
        range: Option<(i64, i64)>,
        cursor: Option<String>,
    ) -> Result<Response, TraceError> {
        let meta = self.meta(range, cursor);
        self.written(data.values, move |w| {
            w.object(|w| {
                w.key("data");
                (data.write)(w);
                w.key("meta").raw(&meta);
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is written, as text.
    fn text_of(data: Data) -> (usize, String) {
        let mut w = JsonWriter::default();
        (data.write)(&mut w);
        (data.values, String::from_utf8(w.finish().expect("JSON")).expect("JSON"))
    }

    #[test]
    fn rows_are_a_list() {
        let row = |n: u8| json!({"n": n, "text": format!("\"{n}")});
        assert_eq!(
            text_of(Data::rows(vec![1, 2], row)),
            (2, r#"[{"n":1,"text":"\"1"},{"n":2,"text":"\"2"}]"#.to_owned())
        );
        assert_eq!(text_of(Data::rows(Vec::new(), row)), (0, "[]".to_owned()));
        assert_eq!(text_of(Data::short(json!({"a": [null]}))), (0, r#"{"a":[null]}"#.to_owned()));
        let all = text_of(Data::written(7, |w| w.array(|w| [1, 2].iter().for_each(|n| w.quoted(n)))));
        assert_eq!(all, (7, r#"["1","2"]"#.to_owned()));
    }

    /// Breaks if rows are still written as JSON after their reader has left.
    #[test]
    fn nothing_is_made_for_who_went_away() {
        let made = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&made);
        let data = Data::rows(vec![(); 1000], move |()| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Value::from("x".repeat(100_000))
        });
        let mut w = JsonWriter::pieces(|_| Err(quiver_traces::ReaderClosed));
        (data.write)(&mut w);
        assert!(w.finish().is_err());
        assert!(made.load(std::sync::atomic::Ordering::Relaxed) < 5);
    }
}
