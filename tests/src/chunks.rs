//! Decodes responses of remote read: frames of chunks, implemented from the format's documents, independent of the
//! server's code.

/// A chunk of a series: encoding, first and last time, bytes.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// 1: floats, 2: histogram, 3: histogram of floats.
    pub encoding: u64,
    /// Time of the first sample.
    pub min_ms: i64,
    /// Time of the last sample.
    pub max_ms: i64,
    /// Bytes.
    pub data: Vec<u8>,
}

/// A frame: number of the query, labels of its series, chunks.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Number of the query.
    pub query: u64,
    /// Labels in order.
    pub labels: Vec<(String, String)>,
    /// Chunks in order.
    pub chunks: Vec<Chunk>,
}

/// A field of a message: number, and a number or bytes.
#[derive(Debug, Clone)]
pub enum Field {
    /// Varint or eight bytes.
    Number(u64),
    /// Text, message, packed list.
    Bytes(Vec<u8>),
}

impl Field {
    /// The number, or 0.
    pub fn number(&self) -> u64 {
        if let Self::Number(n) = self { *n } else { 0 }
    }

    /// The bytes, or none.
    pub fn bytes(&self) -> &[u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }
}

/// Takes a varint off the front.
pub fn take_varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// Gives the fields of a message.
pub fn fields(mut message: &[u8]) -> Vec<(u64, Field)> {
    let mut out = Vec::new();
    while !message.is_empty() {
        let key = take_varint(&mut message);
        let value = match key & 7 {
            0 => Field::Number(take_varint(&mut message)),
            1 => {
                let (head, rest) = message.split_at(8);
                message = rest;
                Field::Number(u64::from_le_bytes(head.try_into().expect("eight bytes")))
            }
            2 => {
                let len = take_varint(&mut message) as usize;
                let (head, rest) = message.split_at(len);
                message = rest;
                Field::Bytes(head.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, value));
    }
    out
}

/// Gives the labels that stand in field 1 of a series.
pub fn labels(series: &[(u64, Field)]) -> Vec<(String, String)> {
    let text = |pair: &[(u64, Field)], number: u64| {
        let found = pair.iter().find(|(n, _)| *n == number);
        found.map(|(_, f)| String::from_utf8(f.bytes().to_vec()).expect("text")).unwrap_or_default()
    };
    let pairs = series.iter().filter(|(n, _)| *n == 1).map(|(_, f)| fields(f.bytes()));
    pairs.map(|pair| (text(&pair, 1), text(&pair, 2))).collect()
}

/// Reads all frames of an answer; their checksums must be right.
pub fn frames(mut body: &[u8]) -> Vec<Frame> {
    let mut out = Vec::new();
    while !body.is_empty() {
        let len = take_varint(&mut body) as usize;
        let (sum, rest) = body.split_at(4);
        let (data, rest) = rest.split_at(len);
        body = rest;
        assert_eq!(sum, crc32c(data).to_be_bytes(), "checksum");
        let message = fields(data);
        let series: Vec<_> = message.iter().filter(|(n, _)| *n == 1).map(|(_, f)| fields(f.bytes())).collect();
        assert_eq!(series.len(), 1, "clients read one series of a frame");
        let chunks = series[0].iter().filter(|(n, _)| *n == 2).map(|(_, f)| {
            let chunk = fields(f.bytes());
            let number = |n: u64| chunk.iter().find(|(field, _)| *field == n).map_or(0, |(_, f)| f.number());
            let data = chunk.iter().find(|(n, _)| *n == 4).map(|(_, f)| f.bytes().to_vec()).unwrap_or_default();
            Chunk { encoding: number(3), min_ms: number(1) as i64, max_ms: number(2) as i64, data }
        });
        out.push(Frame {
            query: message.iter().find(|(n, _)| *n == 2).map_or(0, |(_, f)| f.number()),
            labels: labels(&series[0]),
            chunks: chunks.collect(),
        });
    }
    out
}

/// CRC-32C, bit by bit.
fn crc32c(data: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |s, _| if s & 1 == 1 { s >> 1 ^ 0x82f6_3b78 } else { s >> 1 })
    };
    !data.iter().fold(u32::MAX, step)
}

/// Bits, most significant first.
struct Bits<'a>(&'a [u8], usize);

impl Bits<'_> {
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |value, _| {
            let bit = self.0[self.1 / 8] >> (7 - self.1 % 8) & 1;
            self.1 += 1;
            value << 1 | u64::from(bit)
        })
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.take(8);
            value |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn signed(&mut self, bits: u32) -> i64 {
        let value = self.take(bits) as i64;
        if bits < 64 && value > 1 << (bits - 1) { value - (1 << bits) } else { value }
    }
}

/// Reads a chunk of floats: time and bits of the value.
pub fn floats(data: &[u8]) -> Vec<(i64, u64)> {
    let count = u16::from_be_bytes([data[0], data[1]]);
    let mut r = Bits(&data[2..], 0);
    let (mut t, mut delta, mut v, mut window) = (0i64, 0i64, 0u64, (0u32, 0u32));
    let mut out = Vec::new();
    for i in 0..count {
        if i == 0 {
            let raw = r.varint();
            t = (raw >> 1) as i64 ^ -((raw & 1) as i64);
            v = r.take(64);
            out.push((t, v));
            continue;
        }
        if i == 1 {
            delta = r.varint() as i64;
        } else {
            let ones = (0..4).take_while(|_| r.take(1) == 1).count();
            let bits = [0, 14, 17, 20, 64][ones];
            delta += if bits == 0 { 0 } else { r.signed(bits) };
        }
        t += delta;
        if r.take(1) == 1 {
            if r.take(1) == 1 {
                let leading = r.take(5) as u32;
                let significant = match r.take(6) as u32 {
                    0 => 64,
                    n => n,
                };
                window = (leading, 64 - leading - significant);
            }
            v ^= r.take(64 - window.0 - window.1) << window.1;
        }
        out.push((t, v));
    }
    out
}
