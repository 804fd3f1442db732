//! Log rows as JSON lines: one object per row; all values are strings, and empty fields are left out.

use quiver_logsql::Rows;
use quiver_logsql::kernels::values::push_json_string;
use quiver_types::Result;

/// Appends rows; a row without fields is left out.
pub(crate) fn push_rows(out: &mut String, rows: &Rows) -> Result<()> {
    rows.each_row(|fields| {
        let begin = out.len();
        for (name, value) in fields {
            out.push(if out.len() == begin { '{' } else { ',' });
            push_json_string(out, name);
            out.push(':');
            push_json_string(out, value);
        }
        if out.len() > begin {
            out.push_str("}\n");
        }
    })
}
