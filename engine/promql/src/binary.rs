//! Binary operators on rows of values: float with float in dense loops, histograms where there are any.
//!
//! [`apply`] works on one pair of rows (or a row and a scalar); who pairs with whom is the planner's. Comparisons
//! without `bool` filter and keep the left value (the vector's, when the other side is a scalar).
//!
//! Semantics: Prometheus 3.14 `promql/engine.go`: `vectorElemBinop`, `VectorscalarBinop`, `scalarBinop`.
