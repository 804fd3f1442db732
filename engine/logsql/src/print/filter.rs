//! Canonical text of filters.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;

use super::word;
use crate::ast::{Filter, PatternPlace, StreamFilter, StreamMatch, StreamOp, Test, TimeFilter, Values};
use crate::lexer::quote;

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::And(all) => {
                for (i, filter) in all.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { " " })?;
                    if matches!(filter, Self::Or(_)) { write!(f, "({filter})")? } else { write!(f, "{filter}")? }
                }
                Ok(())
            }
            Self::Or(any) => {
                for (i, filter) in any.iter().enumerate() {
                    write!(f, "{}{filter}", if i == 0 { "" } else { " or " })?;
                }
                Ok(())
            }
            Self::Not(inner) if matches!(**inner, Self::And(_) | Self::Or(_)) => write!(f, "!({inner})"),
            Self::Not(inner) => write!(f, "!{inner}"),
            Self::Field { field, test } => {
                // `*` alone would be every row.
                if field.name() != Some(MSG) || *test == Test::Prefix(String::new()) {
                    write!(f, "{field}:")?;
                }
                write!(f, "{test}")
            }
            Self::Stream(stream) => write!(f, "{stream}"),
            Self::StreamId(Values::List(ids)) if ids.len() == 1 => write!(f, "_stream_id:{}", word(&ids[0])),
            Self::StreamId(values) => write!(f, "_stream_id:in({values})"),
            Self::Time(time) => write!(f, "_time:{time}"),
        }
    }
}

impl Display for Values {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(values) => f.write_str(&values.iter().map(|v| word(v)).collect::<Vec<_>>().join(",")),
            Self::Subquery(query) => write!(f, "{query}"),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let texts = |texts: &[String]| texts.iter().map(|v| word(v)).collect::<Vec<_>>().join(",");
        let prefix = |text: &str| if text.is_empty() { String::new() } else { word(text) };
        match self {
            Self::Phrase(text) => f.write_str(&word(text)),
            Self::Prefix(text) => write!(f, "{}*", prefix(text)),
            Self::Substring(text) => write!(f, "*{}*", word(text)),
            Self::AnyCasePhrase(text) => write!(f, "i({})", word(text)),
            Self::AnyCasePrefix(text) => write!(f, "i({}*)", prefix(text)),
            Self::Exact(text) => write!(f, "={}", word(text)),
            Self::ExactPrefix(text) => write!(f, "={}*", word(text)),
            Self::In(values) => write!(f, "in({values})"),
            Self::ContainsAll(values) => write!(f, "contains_all({values})"),
            Self::ContainsAny(values) => write!(f, "contains_any({values})"),
            Self::EqualsCommonCase(values) => write!(f, "equals_common_case({})", texts(values)),
            Self::ContainsCommonCase(values) => write!(f, "contains_common_case({})", texts(values)),
            Self::Sequence(phrases) => write!(f, "seq({})", texts(phrases)),
            Self::Regexp(text) => write!(f, "~{}", word(text)),
            Self::Range { text, .. } => f.write_str(text),
            Self::TextCompare { op, value } => write!(f, "{}{}", op.as_str(), word(value)),
            Self::Ipv4Range { min, max } => {
                let address = |n: u32| std::net::Ipv4Addr::from(n);
                write!(f, "ipv4_range({}, {})", address(*min), address(*max))
            }
            Self::Ipv6Range { min, max } => {
                let address = |n: u128| quote(&std::net::Ipv6Addr::from(n).to_string());
                write!(f, "ipv6_range({}, {})", address(*min), address(*max))
            }
            Self::StringRange { min, max } => write!(f, "string_range({}, {})", word(min), word(max)),
            Self::LenRange { min, max } => write!(f, "len_range({}, {})", min.text, max.text),
            Self::EqField(other) => write!(f, "eq_field({})", word(other)),
            Self::LeField(other) => write!(f, "le_field({})", word(other)),
            Self::LtField(other) => write!(f, "lt_field({})", word(other)),
            Self::ValueType(name) => write!(f, "value_type({})", word(name)),
            Self::PatternMatch { place, pattern } => {
                let name = match place {
                    PatternPlace::Any => "pattern_match",
                    PatternPlace::Full => "pattern_match_full",
                    PatternPlace::Prefix => "pattern_match_prefix",
                    PatternPlace::Suffix => "pattern_match_suffix",
                };
                write!(f, "{name}({})", word(pattern))
            }
            Self::JsonArrayContainsAny(values) => write!(f, "json_array_contains_any({})", texts(values)),
        }
    }
}

impl Display for TimeFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { text, .. } | Self::DayRange { text, .. } | Self::WeekRange { text, .. } => f.write_str(text),
        }
    }
}

impl Display for StreamFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let group = |group: &Vec<StreamMatch>| group.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{{{}}}", self.groups.iter().map(group).collect::<Vec<_>>().join(" or "))
    }
}

impl Display for StreamMatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&word(&self.label))?;
        let texts = |texts: &[String]| texts.iter().map(|v| quote(v)).collect::<Vec<_>>().join(",");
        match &self.op {
            StreamOp::Equal(value) => write!(f, "={}", quote(value)),
            StreamOp::NotEqual(value) => write!(f, "!={}", quote(value)),
            StreamOp::Regexp(text) => write!(f, "=~{}", quote(text)),
            StreamOp::NotRegexp(text) => write!(f, "!~{}", quote(text)),
            StreamOp::In(values) => write!(f, " in ({})", texts(values)),
            StreamOp::NotIn(values) => write!(f, " not_in ({})", texts(values)),
        }
    }
}
