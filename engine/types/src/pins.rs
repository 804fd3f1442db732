//! Gives numbers to what a process holds in memory, so that a serialized plan can refer to it: snapshots, selections of
//! series, configuration.
//!
//! References are weak: a number resolves as long as something else, normally the query that wrote the plan, holds its
//! object.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::{Error, Result};

/// Numbers and what they stand for.
#[derive(Default)]
pub struct Pins {
    kept: Mutex<PinTable>,
}

#[derive(Default)]
struct PinTable {
    last: u64,
    pins: HashMap<u64, Pin>,
}

struct Pin {
    /// Its address, which is not reused while the `Weak` exists.
    place: usize,
    /// A `Weak` of its type.
    weak: Box<dyn Any + Send>,
    is_held: fn(&(dyn Any + Send)) -> bool,
}

fn is_held<T: ?Sized + 'static>(weak: &(dyn Any + Send)) -> bool {
    weak.downcast_ref::<Weak<T>>().is_some_and(|weak| weak.strong_count() > 0)
}

impl Pins {
    /// The numbers of this process.
    pub fn of_process() -> &'static Self {
        static PINS: LazyLock<Pins> = LazyLock::new(Pins::default);
        &PINS
    }

    /// Gives the number of an object; the same object always gets the same number. Drops entries of objects that no
    /// longer exist.
    pub fn pin<T: ?Sized + Send + Sync + 'static>(&self, value: &Arc<T>) -> u64 {
        let place = Arc::as_ptr(value).cast::<()>().addr();
        let mut kept = self.lock();
        kept.pins.retain(|_, pin| (pin.is_held)(&*pin.weak));
        let known = kept.pins.iter().find(|(_, pin)| pin.place == place && pin.weak.is::<Weak<T>>());
        if let Some((number, _)) = known {
            return *number;
        }
        kept.last += 1;
        let number = kept.last;
        kept.pins.insert(number, Pin { place, weak: Box::new(Arc::downgrade(value)), is_held: is_held::<T> });
        number
    }

    /// Gives the object that a number stands for.
    ///
    /// # Errors
    /// Internal: there is no object of this type with this number, or it no longer exists.
    pub fn pinned<T: ?Sized + Send + Sync + 'static>(&self, number: u64) -> Result<Arc<T>> {
        let kept = self.lock();
        let weak = kept.pins.get(&number).and_then(|pin| pin.weak.downcast_ref::<Weak<T>>());
        let gone = || Error::internal(format!("what a written plan calls {number} is not held any more"));
        weak.and_then(Weak::upgrade).ok_or_else(gone)
    }

    fn lock(&self) -> MutexGuard<'_, PinTable> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins").field("kept", &self.lock().pins.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_what_is_held() {
        let pins = Pins::default();
        let (text, whole): (Arc<str>, Arc<u32>) = ("text".into(), Arc::new(7));
        let (first, second) = (pins.pin(&text), pins.pin(&whole));
        assert_eq!(&*pins.pinned::<str>(first).unwrap(), "text");
        assert_eq!(pins.pinned::<u32>(second).unwrap(), whole);
        assert!(pins.pinned::<u32>(first).is_err() && pins.pinned::<str>(second).is_err(), "of another type");
        assert!(pins.pinned::<str>(0).is_err());
        drop(text);
        assert!(pins.pinned::<str>(first).is_err(), "nobody holds it");
        assert_eq!(pins.pin(&Arc::clone(&whole)), second, "it is known");
        assert_eq!(pins.lock().pins.len(), 1, "what nobody holds is forgotten");
        let shown = Arc::clone(&whole) as Arc<dyn fmt::Debug + Send + Sync>;
        let third = pins.pin(&shown);
        assert!(third != first && third != second, "it is another type, and no number comes twice");
        assert_eq!(format!("{:?}", pins.pinned::<dyn fmt::Debug + Send + Sync>(third).unwrap()), "7");
    }
}
