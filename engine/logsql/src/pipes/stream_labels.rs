//! The labels of a row's stream as a JSON array, which the endpoints of stream fields count.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::STREAM;
use serde::{Deserialize, Serialize};

use super::row_pipe::{RowPipe, of_one};
use crate::error::Result;
use crate::kernels::values::push_json_string;
use crate::ops::computed_fields::Compute;
use crate::parser::PipeDef;
use crate::print::word;
use crate::stream_text;

/// The names of the labels of a row's stream, or the value of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLabels {
    /// The label whose value is told; none: the names of all.
    pub label: Option<String>,
    /// The result field.
    pub to: String,
}

/// It is no pipe by name: requests put it into queries.
pub(super) const DEFS: &[PipeDef] = &[];

impl Display for StreamLabels {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("stream_labels")?;
        if let Some(label) = &self.label {
            write!(f, "({})", word(label))?;
        }
        write!(f, " as {}", word(&self.to))
    }
}

impl RowPipe for StreamLabels {
    const KIND: &'static str = "stream_labels";

    fn sources(&self) -> Vec<String> {
        vec![STREAM.to_owned()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let label = self.label.clone();
        Ok(of_one(move |stream, out| {
            out.push('[');
            for (name, value) in stream_text::parse(stream) {
                let told = match &label {
                    None => &name,
                    Some(label) if *label == name => &value,
                    Some(_) => continue,
                };
                if out.len() > 1 {
                    out.push(',');
                }
                push_json_string(out, told);
            }
            out.push(']');
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Pipe;
    use crate::counting::by_stream_labels;
    use crate::pipes::rows::Rows;
    use crate::pipes::testing::run_pipes;

    fn counted(label: Option<&str>) -> Vec<String> {
        let row = |stream: &str| vec![(STREAM.to_owned(), stream.to_owned())];
        let streams = ["{a=\"1\",b=\"x,y\"}", "{a=\"2\"}", "{a=\"1\",b=\"x,y\"}", "", "{}"];
        let mut pipes: Vec<Pipe> = vec![Rows(streams.map(row).to_vec()).into()];
        pipes.extend(by_stream_labels(label, "v", "n"));
        let mut found = run_pipes(pipes);
        found.sort();
        found
    }

    #[test]
    fn labels_of_streams_are_counted() {
        assert_eq!(counted(None), ["n=2 v=b", "n=3 v=a"]);
        assert_eq!(counted(Some("a")), ["n=1 v=2", "n=2 v=1"]);
        assert_eq!(counted(Some("b")), ["n=2 v=x,y"]);
        assert_eq!(counted(Some("c")), [""; 0]);
    }

    #[test]
    fn plans_tell_it() {
        let shown =
            |label: Option<&str>| StreamLabels { label: label.map(str::to_owned), to: "v".to_owned() }.to_string();
        assert_eq!([shown(None), shown(Some("b c"))], ["stream_labels as v", "stream_labels(\"b c\") as v"]);
    }
}
