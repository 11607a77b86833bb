//! system tests
