//! Parses the data point messages of OTLP metrics into structs that are reused. Exemplars are not parsed here: they
//! are read from the message once their series is known.

use super::any_value;
use super::labels::Attributes;
use crate::histogram::BUCKETS_MAX;
use crate::wire::{self, BYTES, FIXED64, Reader, VARINT, WireError, tag, zigzag};

/// The flag "no recorded value".
pub(super) const NO_RECORDED_VALUE: u64 = 1;

/// Fields that all points have.
#[derive(Debug, Default)]
pub(super) struct Common<'a> {
    pub(super) attributes: Attributes<'a>,
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
    pub(super) flags: u64,
}

impl<'a> Common<'a> {
    fn clear(&mut self) {
        self.attributes.clear();
        (self.start_ns, self.time_ns, self.flags) = (0, 0, 0);
    }

    pub(super) fn ts(&self) -> i64 {
        (self.time_ns / 1_000_000) as i64
    }

    pub(super) fn start_ts(&self) -> i64 {
        (self.start_ns / 1_000_000) as i64
    }

    pub(super) fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }

    /// Reads a field that all points have; `false` if it is another one. Start and time are fields 2 and 3 in all
    /// messages; the numbers of attributes and flags differ.
    fn field(&mut self, r: &mut Reader<'a>, field: u32, attributes: u32, flags: u32) -> Result<bool, WireError> {
        match field {
            START => self.start_ns = r.fixed64()?,
            TIME => self.time_ns = r.fixed64()?,
            _ if field == tag(attributes, BYTES) => self.attributes.push(any_value::key_value(r.bytes()?)?),
            _ if field == tag(flags, VARINT) => self.flags = r.varint()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

const START: u32 = tag(2, FIXED64);
const TIME: u32 = tag(3, FIXED64);

/// A `NumberDataPoint` of a gauge or a sum; integers are read as doubles.
#[derive(Debug, Default)]
pub(super) struct NumberPoint<'a> {
    pub(super) common: Common<'a>,
    pub(super) value: Option<f64>,
}

impl<'a> NumberPoint<'a> {
    /// Number of the field `exemplars`.
    pub(super) const EXEMPLARS: u32 = 5;

    pub(super) fn read(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        const AS_DOUBLE: u32 = tag(4, FIXED64);
        const AS_INT: u32 = tag(6, FIXED64);
        const EXEMPLAR: u32 = tag(NumberPoint::EXEMPLARS, BYTES);
        self.common.clear();
        self.value = None;
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                AS_DOUBLE => self.value = Some(r.double()?),
                AS_INT => self.value = Some(r.fixed64()? as i64 as f64),
                EXEMPLAR => drop(r.bytes()?),
                _ if self.common.field(&mut r, tag, 7, 8)? => {}
                _ => r.skip(tag, &[2, 3, 4, 5, 6, 7, 8])?,
            }
        }
        Ok(())
    }
}

/// A `HistogramDataPoint`, with explicit bounds.
#[derive(Debug, Default)]
pub(super) struct HistogramPoint<'a> {
    pub(super) common: Common<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) counts: Vec<u64>,
    pub(super) bounds: Vec<f64>,
    pub(super) oversized: bool,
}

impl<'a> HistogramPoint<'a> {
    pub(super) const EXEMPLARS: u32 = 8;

    pub(super) fn read(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        const COUNT: u32 = tag(4, FIXED64);
        const SUM: u32 = tag(5, FIXED64);
        const EXEMPLAR: u32 = tag(HistogramPoint::EXEMPLARS, BYTES);
        self.common.clear();
        self.counts.clear();
        self.bounds.clear();
        (self.count, self.sum, self.oversized) = (0, None, false);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                COUNT => self.count = r.fixed64()?,
                SUM => self.sum = Some(r.double()?),
                EXEMPLAR => drop(r.bytes()?),
                _ if self.common.field(&mut r, tag, 9, 10)? => {}
                _ if tag >> 3 == 6 => {
                    wire::fixed64s(&mut r, tag & 7, |v| push(&mut self.counts, v, &mut self.oversized))?;
                }
                _ if tag >> 3 == 7 => wire::fixed64s(&mut r, tag & 7, |v| {
                    push(&mut self.bounds, f64::from_bits(v), &mut self.oversized);
                })?,
                _ => r.skip(tag, &[2, 3, 4, 5, 8, 9, 10])?,
            }
        }
        Ok(())
    }
}

/// Appends to a list that must not become much larger than the message.
fn push<T>(list: &mut Vec<T>, value: T, oversized: &mut bool) {
    if list.len() < BUCKETS_MAX {
        list.push(value);
    } else {
        *oversized = true;
    }
}

/// Buckets of one side of an exponential histogram.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl Buckets {
    fn read(&mut self, message: &[u8], oversized: &mut bool) -> Result<(), WireError> {
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                0x08 => self.offset = zigzag(r.varint()?) as i32,
                _ if tag >> 3 == 2 => wire::varints(&mut r, tag & 7, |v| push(&mut self.counts, v, oversized))?,
                _ => r.skip(tag, &[1])?,
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.offset = 0;
        self.counts.clear();
    }
}

/// An `ExponentialHistogramDataPoint`, with buckets that follow from its scale.
#[derive(Debug, Default)]
pub(super) struct ExponentialPoint<'a> {
    pub(super) common: Common<'a>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Buckets,
    pub(super) negative: Buckets,
    pub(super) oversized: bool,
}

impl<'a> ExponentialPoint<'a> {
    pub(super) const EXEMPLARS: u32 = 11;

    pub(super) fn read(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        const COUNT: u32 = tag(4, FIXED64);
        const SUM: u32 = tag(5, FIXED64);
        const SCALE: u32 = tag(6, VARINT);
        const ZERO_COUNT: u32 = tag(7, FIXED64);
        const POSITIVE: u32 = tag(8, BYTES);
        const NEGATIVE: u32 = tag(9, BYTES);
        const EXEMPLAR: u32 = tag(ExponentialPoint::EXEMPLARS, BYTES);
        const ZERO_THRESHOLD: u32 = tag(14, FIXED64);
        self.common.clear();
        self.positive.clear();
        self.negative.clear();
        (self.count, self.sum, self.scale) = (0, None, 0);
        (self.zero_count, self.zero_threshold, self.oversized) = (0, 0.0, false);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                COUNT => self.count = r.fixed64()?,
                SUM => self.sum = Some(r.double()?),
                SCALE => self.scale = zigzag(r.varint()?) as i32,
                ZERO_COUNT => self.zero_count = r.fixed64()?,
                POSITIVE => self.positive.read(r.bytes()?, &mut self.oversized)?,
                NEGATIVE => self.negative.read(r.bytes()?, &mut self.oversized)?,
                ZERO_THRESHOLD => self.zero_threshold = r.double()?,
                EXEMPLAR => drop(r.bytes()?),
                _ if self.common.field(&mut r, tag, 1, 10)? => {}
                _ => r.skip(tag, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14])?,
            }
        }
        Ok(())
    }
}

/// A `SummaryDataPoint`, with quantiles that the sender computed.
#[derive(Debug, Default)]
pub(super) struct SummaryPoint<'a> {
    pub(super) common: Common<'a>,
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Quantiles with their values.
    pub(super) quantiles: Vec<(f64, f64)>,
    pub(super) oversized: bool,
}

impl<'a> SummaryPoint<'a> {
    pub(super) fn read(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        const COUNT: u32 = tag(4, FIXED64);
        const SUM: u32 = tag(5, FIXED64);
        const QUANTILE: u32 = tag(6, BYTES);
        self.common.clear();
        self.quantiles.clear();
        (self.count, self.sum, self.oversized) = (0, 0.0, false);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                COUNT => self.count = r.fixed64()?,
                SUM => self.sum = r.double()?,
                QUANTILE => {
                    let pair = quantile(r.bytes()?)?;
                    push(&mut self.quantiles, pair, &mut self.oversized);
                }
                _ if self.common.field(&mut r, tag, 7, 8)? => {}
                _ => r.skip(tag, &[2, 3, 4, 5, 6, 7, 8])?,
            }
        }
        Ok(())
    }
}

fn quantile(message: &[u8]) -> Result<(f64, f64), WireError> {
    let mut pair = (0.0, 0.0);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x09 => pair.0 = r.double()?,
            0x11 => pair.1 = r.double()?,
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok(pair)
}
