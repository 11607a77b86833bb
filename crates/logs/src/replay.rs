//! The end of a log as text.

use std::io;
use std::path::Path;

use crate::emulator::Emulator;
use crate::log_reader;

/// Bytes at the end of the log that are read: most of them may be control sequences.
const BYTES: u64 = 64 * 1024;

/// Returns the last characters of a log, without control sequences, as a terminal with this number of rows and
/// columns showed them.
pub fn replay(dir: &Path, (rows, columns): (u16, u16), characters: usize) -> io::Result<String> {
    // Up to the present end only: a program may write faster than this reads.
    let (start, end) = log_reader::bounds(dir)?;
    let bytes = log_reader::read_range(dir, end.saturating_sub(BYTES).max(start), end)?;
    let mut emulator = Emulator::new(rows, columns);
    let mut text = emulator.write(&bytes);
    text.extend(emulator.end());
    Ok(last_characters(&String::from_utf8_lossy(&text), characters))
}

fn last_characters(text: &str, most: usize) -> String {
    let start = text.char_indices().rev().take(most).last().map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_counted_in_characters() {
        let text = format!("{}é{}", "a".repeat(300), "日".repeat(499));
        assert_eq!(last_characters(&text, 500), format!("é{}", "日".repeat(499)));
        assert_eq!((last_characters("ab", 500), last_characters("", 500)), ("ab".to_owned(), String::new()));
    }

    #[test]
    fn the_end_of_a_log_is_text() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(replay(dir.path(), (24, 80), 5).unwrap(), "", "of no log");
        let long = "\x1b[1mbold\x1b[0m\r\n".repeat(10_000);
        std::fs::write(dir.path().join(protocol::logs::CURRENT), format!("{long}\x1b]0;title\x07end"))
            .unwrap();
        assert_eq!(replay(dir.path(), (24, 80), 12).unwrap(), "old\nbold\nend");
    }
}
