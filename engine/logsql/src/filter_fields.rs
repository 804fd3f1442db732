//! Which fields a filter reads.

use quiver_types::logs::{STREAM, STREAM_ID, TIME};

use crate::ast::filter::{Filter, Test};
use crate::required_fields::Needs;

/// Adds the fields that a filter looks at.
pub(crate) fn add_needs(filter: &Filter, needs: &mut Needs) {
    match filter {
        Filter::All => {}
        Filter::And(inner) | Filter::Or(inner) => inner.iter().for_each(|f| add_needs(f, needs)),
        Filter::Not(inner) => add_needs(inner, needs),
        Filter::Field { field, test } => {
            needs.add_pattern(field);
            if let Test::EqField(other) | Test::LeField(other) | Test::LtField(other) = test {
                needs.add(other);
            }
        }
        Filter::Stream(_) => needs.add(STREAM),
        Filter::StreamId(_) => needs.add(STREAM_ID),
        Filter::Time(_) => needs.add(TIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_text::parse_filter;

    #[test]
    fn fields_that_filters_look_at() {
        let needs = |text: &str| {
            let mut needs = Needs::default();
            add_needs(&parse_filter(text).expect("it is read").expect("a filter"), &mut needs);
            let groups = needs.prefixes.iter().map(|prefix| format!("{prefix}*"));
            needs.names.iter().cloned().chain(groups).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(needs("*"), "");
        assert_eq!(needs("word"), "_msg");
        assert_eq!(needs("a:x or !(b:y c*:z) or *:w"), "a b * c*");
        assert_eq!(needs("a:eq_field(b) c:le_field(d) e:lt_field(f)"), "a b c d e f");
        assert_eq!(needs("{a=b} _stream_id:in() _time:5m"), "_stream _stream_id _time");
        assert_eq!(needs("a:in(b:c | fields d)"), "a");
    }
}
