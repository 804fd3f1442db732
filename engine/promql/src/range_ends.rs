//! What stands at the ends of a range: the modifiers `anchored` and `smoothed` of selectors.

use serde::{Deserialize, Serialize};

/// Where the values at both ends of a selector's range come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum RangeEnds {
    /// The range has its samples and nothing else.
    #[default]
    Samples,
    /// `anchored`: each end has the value of the newest sample up to there.
    Anchored,
    /// `smoothed`: values at the ends, or at the step, are interpolated between the samples around.
    Smoothed,
}

impl RangeEnds {
    /// The modifier, as it is written; empty without one.
    pub fn word(self) -> &'static str {
        match self {
            Self::Samples => "",
            Self::Anchored => "anchored",
            Self::Smoothed => "smoothed",
        }
    }

    /// Whether the ends have values of their own, for which samples outside of the range are read.
    pub fn are_extended(self) -> bool {
        self != Self::Samples
    }

    /// Whether they are interpolated, also from the samples after the range.
    pub fn are_smoothed(self) -> bool {
        self == Self::Smoothed
    }

    /// How far before and after the range samples are read, in milliseconds.
    pub fn reach_ms(self, lookback_ms: i64) -> (i64, i64) {
        match self {
            Self::Samples => (0, 0),
            Self::Anchored => (lookback_ms, 0),
            Self::Smoothed => (lookback_ms, lookback_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_of_the_range_is_read_where_it_counts() {
        let of = |ends: RangeEnds| (ends.word(), ends.are_extended(), ends.are_smoothed(), ends.reach_ms(5));
        assert_eq!(of(RangeEnds::default()), ("", false, false, (0, 0)));
        assert_eq!(of(RangeEnds::Anchored), ("anchored", true, false, (5, 0)));
        assert_eq!(of(RangeEnds::Smoothed), ("smoothed", true, true, (5, 5)));
    }
}
