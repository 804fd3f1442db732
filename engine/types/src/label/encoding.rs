//! The serialized form of a label set: its pairs. They are put in canonical form when read, so their order does not
//! matter.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LabelSet;

impl Serialize for LabelSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.iter().collect::<Vec<_>>().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LabelSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(Cow<'_, str>, Cow<'_, str>)>::deserialize(deserializer)?;
        Ok(Self::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_back() {
        let long = "x".repeat(300);
        for set in [LabelSet::default(), LabelSet::from_pairs([("__name__", "m"), ("ä b", long.as_str())])] {
            let bytes = postcard::to_allocvec(&set).expect("written");
            let back: LabelSet = postcard::from_bytes(&bytes).expect("read");
            assert_eq!((back.id(), &back), (set.id(), &set));
        }
    }
}
