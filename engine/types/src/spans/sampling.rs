//! What the trace state of a span tells of its sampling (OpenTelemetry, consistent probability sampling).

/// Thresholds and random numbers have so many bits.
const BITS: u32 = 56;
const DIGITS: usize = 14;

/// How many spans one stands for, by the threshold `ot=th:` of its trace state; 1 where there is none.
pub fn sample_weight(trace_state: &str) -> f64 {
    weight_of(vendor(trace_state))
}

/// Like [`sample_weight`], but a whole number where the trace state has a random number (`rv:`), by which it is rounded up or
/// down: sums are whole, and right in the mean.
pub fn whole_sample_weight(trace_state: &str) -> f64 {
    let vendor = vendor(trace_state);
    let weight = weight_of(vendor);
    let random = member(vendor, "rv:").filter(|digits| digits.len() == DIGITS).and_then(number);
    let Some(random) = random else { return weight };
    // A double has 53 bits, so the number loses its lowest three.
    let share = (random >> 3) as f64 / (1_u64 << (BITS - 3)) as f64;
    weight.floor() + if share < weight.fract() { 1.0 } else { 0.0 }
}

/// The part of OpenTelemetry.
fn vendor(trace_state: &str) -> &str {
    trace_state.split(',').find_map(|member| member.trim().strip_prefix("ot=")).unwrap_or_default()
}

fn member<'v>(vendor: &'v str, name: &str) -> Option<&'v str> {
    vendor.split(';').find_map(|pair| pair.trim().strip_prefix(name))
}

/// Reads digits, whose trailing zeros may be left out.
fn number(digits: &str) -> Option<u64> {
    let is_sane = (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_sane.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    Some(number << (4 * (DIGITS - digits.len())))
}

fn weight_of(vendor: &str) -> f64 {
    // Subtracted as integers: a double cannot tell the greatest threshold from 2^56, and the difference would be 0.
    let all = 1_u64 << BITS;
    let rejected = member(vendor, "th:").and_then(number);
    rejected.map_or(1.0, |rejected| all as f64 / (all - rejected) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_rounded_by_the_random_number() {
        // A threshold of 3/5 lets two of five pass.
        for (state, expected) in [
            ("", 1.0),
            ("x=1", 1.0),
            ("ot=th:8", 2.0),
            ("a=b, ot=rv:00000000000000;th:c", 4.0),
            ("ot=th:8;rv:ffffffffffffff", 2.0),
            ("ot=th:99999999999999;rv:00000000000000", 3.0),
            ("ot=th:99999999999999;rv:ffffffffffffff", 2.0),
            ("ot=rv:7fffffffffffff;th:99999999999999", 3.0),
            // Not a valid random number: `rv` must have 14 digits.
            ("ot=th:8;rv:1", 2.0),
            ("ot=th:nothex;rv:00000000000000", 1.0),
        ] {
            assert_eq!(whole_sample_weight(state), expected, "{state}");
        }
        let weight = sample_weight("ot=th:99999999999999;rv:00000000000000");
        assert!((weight - 2.5).abs() < 1e-9, "{weight}");
        assert_eq!(whole_sample_weight("ot=th:99999999999999"), weight);
    }
}
