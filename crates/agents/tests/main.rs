//! Tests of the adapters.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod configuration;
mod gemini;
mod opencode;
mod payloads;
mod screens;
mod terminals;
mod texts;
mod transcripts;
