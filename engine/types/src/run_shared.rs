//! State that the nodes of a plan share during one run.
//!
//! A plan is data: it may run several times, also concurrently, so its nodes hold no state. The engine passes one
//! [`RunShared`] to each run with the task; nodes that must coordinate (the partitions of one scan, all operators of a
//! query) do so through it. Rows and partial results are always passed as batches, never here.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

type SharedValue = Arc<dyn Any + Send + Sync>;

/// Values of one run, by type and node.
#[derive(Default)]
pub struct RunShared {
    kept: Mutex<HashMap<(TypeId, usize), SharedValue>>,
}

/// The key of values of the whole query, where others have the address of a node.
const QUERY: usize = 0;

impl RunShared {
    /// Makes the shared state of a run, with a value that all nodes can get by [`Self::of_query`].
    pub fn with<T: Any + Send + Sync>(value: Arc<T>) -> Self {
        let shared = Self::default();
        shared.lock().insert((TypeId::of::<T>(), QUERY), value);
        shared
    }

    /// Gives the value of this type that the run began with.
    pub fn of_query<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.lock().get(&(TypeId::of::<T>(), QUERY)).cloned().and_then(|kept| kept.downcast().ok())
    }

    /// Gives the value of this type that the partitions of a node share; the first one makes it. The node is
    /// identified by the address of `node`, data of its own that lives as long as the plan.
    pub fn of_node<N, T: Any + Send + Sync>(&self, node: &Arc<N>, make: impl FnOnce() -> T) -> Arc<T> {
        let key = (TypeId::of::<T>(), Arc::as_ptr(node).cast::<()>() as usize);
        let kept = Arc::clone(self.lock().entry(key).or_insert_with(|| Arc::new(make())));
        kept.downcast().expect("it is kept by its type")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(TypeId, usize), SharedValue>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RunShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunShared").field("kept", &self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_node_meet_and_nodes_do_not() {
        let (one, other, run) = (Arc::new("node"), Arc::new("node"), RunShared::default());
        let first = run.of_node(&one, || Mutex::new(1));
        *first.lock().unwrap() += 1;
        assert_eq!(*run.of_node(&one, || Mutex::new(1)).lock().unwrap(), 2);
        assert_eq!(*run.of_node(&other, || Mutex::new(1)).lock().unwrap(), 1);
        assert_eq!(*RunShared::default().of_node(&one, || Mutex::new(1)).lock().unwrap(), 1, "another run");
    }

    #[test]
    fn what_a_run_begins_with_is_found_by_its_type() {
        let run = RunShared::with(Arc::new(7_u32));
        assert_eq!(run.of_query::<u32>().as_deref(), Some(&7));
        assert_eq!(run.of_query::<u64>(), None);
    }
}
