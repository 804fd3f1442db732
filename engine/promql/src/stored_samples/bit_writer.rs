//! Writes bits, most significant first, in the format of Prometheus chunks (`tsdb/docs/bstream.md`).

/// Bytes, of which the last one may be incomplete.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Unused bits of the last byte.
    free: u32,
}

impl BitWriter {
    /// Starts with whole bytes.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, free: 0 }
    }

    /// Appends one bit.
    pub(crate) fn bit(&mut self, bit: bool) {
        self.bits(u64::from(bit), 1);
    }

    /// Appends the lowest `count` bits of a number.
    pub(crate) fn bits(&mut self, value: u64, mut count: u32) {
        while count > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let taken = count.min(self.free);
            let part = (value >> (count - taken)) & ((1 << taken) - 1);
            if let Some(last) = self.bytes.last_mut() {
                *last |= (part << (self.free - taken)) as u8;
            }
            self.free -= taken;
            count -= taken;
        }
    }

    /// Appends the bits of a double.
    pub(crate) fn double(&mut self, value: f64) {
        self.bits(value.to_bits(), 64);
    }

    /// Appends a varint of whole bytes, at any bit position.
    pub(crate) fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bits(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.bits(value, 8);
    }

    /// Appends a signed varint (zigzag).
    pub(crate) fn varint(&mut self, value: i64) {
        self.uvarint((value as u64) << 1 ^ (value >> 63) as u64);
    }

    /// Appends a signed number with a prefix that tells its number of bits (`chunkenc/varbit.go`: `putVarbitInt`).
    pub(crate) fn varbit(&mut self, value: i64) {
        self.prefixed(value as u64, |bits| fits(value, bits));
    }

    /// Appends an unsigned number with a prefix that tells its number of bits (`putVarbitUint`).
    pub(crate) fn uvarbit(&mut self, value: u64) {
        self.prefixed(value, |bits| value >> bits == 0);
    }

    /// Appends a number with the shortest prefix that fits.
    fn prefixed(&mut self, value: u64, fits: impl Fn(u32) -> bool) {
        /// Prefix, its length, and the number of bits that follow.
        const PREFIXES: [(u64, u32, u32); 7] = [
            (0b10, 2, 3),
            (0b110, 3, 6),
            (0b1110, 4, 9),
            (0b1_1110, 5, 12),
            (0b11_1110, 6, 18),
            (0b111_1110, 7, 25),
            (0b1111_1110, 8, 56),
        ];
        if value == 0 {
            return self.bit(false);
        }
        let shortest = PREFIXES.into_iter().find(|(_, _, bits)| fits(*bits));
        let (prefix, prefix_bits, bits) = shortest.unwrap_or((0xff, 8, 64));
        self.bits(prefix, prefix_bits);
        self.bits(value, bits);
    }

    /// Number of bytes so far.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes; unused bits of the last one are 0.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Tells whether a number fits into this many bits; the range is shifted up by one, as the format requires.
pub(crate) fn fits(value: i64, bits: u32) -> bool {
    let half = 1i64 << (bits - 1);
    -(half - 1) <= value && value <= half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        let mut w = BitWriter::new(vec![0xaa]);
        w.bit(true);
        w.bits(0b01, 2);
        w.bits(0x1ff, 9);
        w.bits(0, 4);
        w.uvarint(300);
        assert_eq!(w.len(), 5);
        assert_eq!(w.finish(), [0xaa, 0b1011_1111, 0b1111_0000, 0xac, 0x02]);
    }

    #[test]
    fn varbits() {
        let check = |value: i64, expected: &[u8]| {
            let mut w = BitWriter::default();
            w.varbit(value);
            assert_eq!(w.finish(), expected, "{value}");
        };
        check(0, &[0]);
        check(4, &[0b1010_0000]);
        check(-3, &[0b1010_1000]);
        check(5, &[0b1100_0010, 0b1000_0000]);
        check(i64::MIN, &[0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]);
        let mut w = BitWriter::default();
        w.uvarbit(7);
        w.uvarbit(8);
        assert_eq!(w.finish(), [0b1011_1110, 0b0010_0000]);
    }

    #[test]
    fn numbers_that_just_fit() {
        for bits in [3, 6, 9, 14, 17, 20, 56] {
            let half = 1_i64 << (bits - 1);
            assert!(fits(half, bits) && fits(-half + 1, bits) && !fits(half + 1, bits) && !fits(-half, bits), "{bits}");
        }
        let signed = |value: i64| {
            let mut w = BitWriter::default();
            w.varbit(value);
            w.len()
        };
        // Prefix and number: 5, 9, 13, 17, 24, 32, 64 and 72 bits.
        for (value, bytes) in
            [(4, 1), (5, 2), (-4, 2), (32, 2), (33, 2), (256, 2), (257, 3), (2048, 3), (2049, 3), (131_072, 3)]
        {
            assert_eq!(signed(value), bytes, "{value}");
        }
        assert_eq!((signed(131_073), signed(1 << 24), signed((1 << 24) + 1)), (4, 4, 8));
        assert_eq!((signed(1 << 55), signed((1 << 55) + 1), signed(i64::MAX)), (8, 9, 9));
        let unsigned = |value: u64| {
            let mut w = BitWriter::default();
            w.uvarbit(value);
            w.len()
        };
        assert_eq!((unsigned(0), unsigned(7), unsigned(63), unsigned(u64::MAX)), (1, 1, 2, 9));
        assert_eq!((unsigned((1 << 56) - 1), unsigned(1 << 56)), (8, 9));
    }

    #[test]
    fn varints_of_whole_bytes() {
        let of = |value: i64| {
            let mut w = BitWriter::default();
            w.varint(value);
            w.finish()
        };
        assert_eq!((of(0), of(-1), of(1), of(63), of(64)), (vec![0], vec![1], vec![2], vec![126], vec![0x80, 1]));
        assert_eq!(of(i64::MIN), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        // Wherever the bits stand.
        let mut w = BitWriter::default();
        w.bit(true);
        w.uvarint(300);
        w.double(-0.0);
        assert_eq!(w.finish(), [0b1101_0110, 0b0000_0001, 0b0100_0000, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
