//! Reads a session's output log ([`protocol::logs`]) while it is written, rotated, compressed and trimmed.
//! Synchronous; prints nothing.
//!
//! The modules in the order in which a reader uses them: `writer_state` tells whether output may still come,
//! `time_index` and `last_lines` find the offset to begin at, and `log_reader` reads the bytes from there. `clean` and
//! `emulator` (which gets tmux's `dialect`) turn them into text for people; `replay` is the end of a log as such text,
//! and `paused_line` the line in which a person may type.

#![warn(missing_docs)]

pub mod clean;
mod dialect;
pub mod emulator;
mod last_lines;
mod log_reader;
mod paused_line;
mod replay;
mod time_index;
mod writer_state;

pub use last_lines::last_lines;
pub use log_reader::{Reader, bounds};
pub use paused_line::{
    PausedLine, asks_about_line, has_line_editor, pastes_enabled, paused_line, was_line_taken,
};
pub use process::log_writer::{find_writer, hold, is_held, is_writer_lost};
pub use replay::replay;
pub use time_index::{Times, offset_at, recorded_start_offset, start_offset};
pub use writer_state::{should_wait, wait_for_writer};

#[cfg(test)]
mod tests;
