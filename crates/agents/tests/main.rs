//! Tests of the adapters.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod configuration;
mod gemini;
mod opencode;
mod payloads;
mod prompts;
mod screens;
mod terminal_marks;
mod transcripts;
