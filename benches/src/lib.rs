//! Shared data.
