//! The text of a histogram, which `count_values` makes a label value of.
//!
//! Source: Prometheus 3.14 `FloatHistogram.String`, `Bucket.String`.

use std::fmt::Write;

use quiver_types::Histogram;
use quiver_types::go_format::float_text;

use super::buckets::{Bucket, negative, positive, zero};

/// Writes count, sum and all populated buckets in ascending order.
pub fn text(h: &Histogram) -> String {
    let mut out = format!("{{count:{}, sum:{}", float_text(h.count), float_text(h.sum));
    let mut write = |b: &Bucket| {
        let open = if b.lower_inclusive { '[' } else { '(' };
        let close = if b.upper_inclusive { ']' } else { ')' };
        let (lower, upper, count) = (float_text(b.lower), float_text(b.upper), float_text(b.count));
        write!(out, ", {open}{lower},{upper}{close}:{count}").expect("writing to a string cannot fail");
    };
    let below: Vec<Bucket> = negative(h).filter(|b| b.count != 0.0).collect();
    below.iter().rev().for_each(&mut write);
    if h.zero_count != 0.0 {
        write(&zero(h));
    }
    positive(h).filter(|b| b.count != 0.0).for_each(|b| write(&b));
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{exponential, with_negative, with_zero};
    use super::*;

    #[test]
    fn buckets_ascend() {
        let h = with_negative(with_zero(exponential(0, 1, &[1.0, 0.0, 2.0]), 0.001, 3.0), 1, &[4.0]);
        assert_eq!(text(&h), "{count:10, sum:6, [-2,-1):4, [-0.001,0.001]:3, (1,2]:1, (4,8]:2}");
    }

    #[test]
    fn custom_buckets_reach_to_infinity() {
        let custom = super::super::testing::custom(&[1.0, 2.5], &[2.0, 0.0, 3.0]);
        assert_eq!(text(&custom), "{count:5, sum:10, [-Inf,1]:2, (2.5,+Inf]:3}");
        let h = Histogram { sum: f64::NAN, ..exponential(0, 1, &[0.5, 1e6]) };
        assert_eq!(text(&h), "{count:1.0000005e+06, sum:NaN, (1,2]:0.5, (2,4]:1e+06}");
        // A difference may have fewer than none.
        let h = with_zero(exponential(0, -1, &[-1.0]), 0.25, -2.0);
        assert_eq!(text(&h), "{count:-3, sum:-2, [-0.25,0.25]:-2, (0.25,0.5]:-1}");
    }

    #[test]
    fn negative_buckets_come_from_afar() {
        let h = with_negative(exponential(0, 1, &[]), 0, &[1.0, 0.0, 2.0]);
        assert_eq!(text(&h), "{count:3, sum:0, [-4,-2):2, [-1,-0.5):1}");
    }
}
