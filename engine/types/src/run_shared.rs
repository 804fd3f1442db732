//! State that the nodes of a plan share during one run.
//!
//! A plan is data: it may run several times, also concurrently, so its nodes hold no state. The engine passes one
//! [`RunShared`] to each run with the task; nodes that must coordinate (the partitions of one scan, all operators of a
//! query) do so through it. Rows and partial results are always passed as batches, never here.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

type SharedValue = Arc<dyn Any + Send + Sync>;

/// Values of one run, by type and node.
#[derive(Default)]
pub struct RunShared {
    kept: Mutex<HashMap<(TypeId, usize), Kept>>,
}

struct Kept {
    value: SharedValue,
    /// What identifies the node; none: the whole query. Held weakly, which keeps another one from getting its address.
    node: Option<Weak<dyn Any + Send + Sync>>,
}

impl Kept {
    fn is_used(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.strong_count() > 0)
    }
}

/// That a node was asked whether it is its first time.
struct Asked;

/// The key of values of the whole query, where others have the address of a node.
const QUERY: usize = 0;

impl RunShared {
    /// Makes the shared state of a run, with a value that all nodes can get by [`Self::of_query`].
    pub fn with<T: Any + Send + Sync>(value: Arc<T>) -> Self {
        let shared = Self::default();
        shared.lock().insert((TypeId::of::<T>(), QUERY), Kept { value, node: None });
        shared
    }

    /// Gives the value of this type that the run began with.
    pub fn of_query<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let value = Arc::clone(&self.lock().get(&(TypeId::of::<T>(), QUERY))?.value);
        value.downcast().ok()
    }

    /// Gives the value of this type that the partitions of a node share; the first one makes it. The node is
    /// identified by the address of `node`, data of its own that lives as long as it.
    pub fn of_node<N, T>(&self, node: &Arc<N>, make: impl FnOnce() -> T) -> Arc<T>
    where
        N: Any + Send + Sync,
        T: Any + Send + Sync,
    {
        let key = (TypeId::of::<T>(), Arc::as_ptr(node).cast::<()>() as usize);
        let mut all = self.lock();
        let value = if let Some(kept) = all.get(&key) {
            Arc::clone(&kept.value)
        } else {
            // A recursion makes nodes anew for each of its rounds: what those before shared is of no use any more.
            all.retain(|_, kept| kept.is_used());
            let node: Weak<N> = Arc::downgrade(node);
            let value: SharedValue = Arc::new(make());
            all.insert(key, Kept { value: Arc::clone(&value), node: Some(node) });
            value
        };
        value.downcast().expect("it is kept by its type")
    }

    /// Says whether the run asks this of a node for the first time.
    pub fn is_first<N: Any + Send + Sync>(&self, node: &Arc<N>) -> bool {
        let mut is_first = false;
        self.of_node::<N, Asked>(node, || {
            is_first = true;
            Asked
        });
        is_first
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(TypeId, usize), Kept>> {
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

    /// Breaks if a node gets the state of one that is gone, whose address it has.
    #[test]
    fn nodes_that_are_gone_take_their_state_with_them() {
        let run = RunShared::with(Arc::new(7_u32));
        for n in 0..100_u64 {
            let node = Arc::new(n);
            assert_eq!(*run.of_node(&node, || n), n);
            assert!(run.is_first(&node) && !run.is_first(&node));
            assert!(run.lock().len() <= 3, "those of the last node, and that of the query");
        }
        assert_eq!(run.of_query::<u32>().as_deref(), Some(&7));
    }

    #[test]
    fn what_a_run_begins_with_is_found_by_its_type() {
        let run = RunShared::with(Arc::new(7_u32));
        assert_eq!(run.of_query::<u32>().as_deref(), Some(&7));
        assert_eq!(run.of_query::<u64>(), None);
    }
}
