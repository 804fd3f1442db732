//! `format`: a text made of fields.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use quiver_types::Error;
use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional};
use super::syntax::{condition_text, overwrite, overwrite_text, template, unless};
use crate::ast::{Filter, Overwrite};
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::word;
use crate::row_functions;
use crate::series_columns::StatsColumns;

/// `format [if (f)] "t" [as f]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Format {
    /// Text with `<field>` and `<prefix:field>`; checked when parsed.
    pub template: String,
    /// The result field.
    pub to: String,
    /// Whether a result takes the place of a value that the row has already.
    pub overwrite: Overwrite,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["format"], doc: "Makes a text of fields, which stand as `<field>` in it.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let text = template(parser, "a text such as `\"<host>:<port>\"`")?;
    row_functions::Format::new(&text).map_err(|fault| parser.fault_at(begin, fault))?;
    row_functions::template::fields(&text).iter().try_for_each(|name| parser.count_read(name))?;
    let to = if parser.skip("as") { parser.field()? } else { MSG.to_owned() };
    Ok(Format { template: text, to, overwrite: overwrite(parser), condition }.into())
}

impl Display for Format {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (condition, to) = (condition_text(self.condition.as_ref()), unless(&self.to, MSG, "as"));
        write!(f, "format{condition} {}{to}{}", word(&self.template), overwrite_text(self.overwrite))
    }
}

impl RowPipe for Format {
    const KIND: &'static str = "format";

    fn sources(&self) -> Vec<String> {
        row_functions::Format::new(&self.template)
            .map_or_else(|_| Vec::new(), |f| f.fields().map(str::to_owned).collect())
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let format = row_functions::Format::new(&self.template).map_err(Error::invalid)?;
        Ok(Box::new(move |values, out| format.apply(|i| Cow::Borrowed(values[i]), &mut out[0])))
    }

    fn overwrite(&self) -> Overwrite {
        self.overwrite
    }

    conditional!();

    fn follow(&self, columns: &mut StatsColumns) -> quiver_types::Result<()> {
        columns.add_label(self, &self.to)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("format '<a>:<b>' as c", "format \"<a>:<b>\" as c"),
            ("format if (a:b) 'x' as c keep_original_fields", "format if (a:b) x as c keep_original_fields"),
        ]);
        reads(&[("format <a>*", "format \"<a>*\""), ("format '(<a>, <b>)'", "format \"(<a>, <b>)\"")]);
        refuses(&[("format", "a text such as"), ("format '<a'", "<a")]);
        refuses(&[("format (", "a text such as"), ("format <a>,<b>", "unexpected `,`"), ("format '<a>', b", "`,`")]);
        gives("format '<a>:<b> <a>' as c | fields c", &["a=1 b=2", "b=3"], &["c='1:2 1'", "c=':3 '"]);
        gives("format '<uc:a>' as a", &["a=get"], &["a=GET"]);
        gives("format if (a:1) 'y' as b", &["a=1 b=x", "a=2 b=x"], &["a=1 b=y", "a=2 b=x"]);
    }
}
