//! reap
