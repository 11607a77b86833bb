//! Command line of the log writer: a directory, numbers and flags only, because every user can read tmux's
//! command line.

use std::ffi::OsString;
use std::path::PathBuf;

use protocol::{Tag, logs};

/// Location and limits of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// Directory of the log.
    pub dir: PathBuf,
    /// `--tag HEX`: the incarnation whose output is written.
    pub tag: Option<Tag>,
    /// `--max-size BYTES`: maximum size of all files together.
    pub max_size: u64,
    /// `--keep N`: maximum number of earlier parts; at least one.
    pub keep: u32,
    /// `--compress`: compress earlier parts.
    pub compress: bool,
    /// `--resumed`: an earlier writer was lost.
    pub resumed: bool,
}

/// Minimum of the maximum size, in bytes: room for a log and its times.
const MIN_SIZE: u64 = 4096;
/// Maximum number of earlier parts.
const MAX_KEEP: u32 = 999;
/// Divisor of the maximum size that gives the share of the times.
const TIMES_DIVISOR: u64 = 32;
/// Maximum size of the times, in bytes: a line per second for four hours.
const TIMES_MAX: u64 = 512 << 10;

impl WriterOptions {
    /// Returns the default options for a log in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let (max_size, keep) = (logs::MAX_SIZE, logs::KEEP);
        Self { dir: dir.into(), tag: None, max_size, keep, compress: false, resumed: false }
    }

    /// Parses the arguments after the directory. Unknown ones are ignored, so that a newer daemon does not
    /// break the log of a pane.
    pub fn parse(dir: impl Into<PathBuf>, words: impl IntoIterator<Item = OsString>) -> Self {
        let mut options = Self::new(dir);
        let mut words = words.into_iter().map(|word| word.into_string().unwrap_or_default());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--tag" => options.tag = words.next().and_then(|tag| tag.parse().ok()),
                "--max-size" => set(&mut options.max_size, words.next()),
                "--keep" => set(&mut options.keep, words.next()),
                "--compress" => options.compress = true,
                "--resumed" => options.resumed = true,
                _ => {}
            }
        }
        options
    }

    pub(super) fn keep(&self) -> u64 {
        self.keep.clamp(1, MAX_KEEP).into()
    }

    fn max_size(&self) -> u64 {
        self.max_size.max(MIN_SIZE)
    }

    /// Maximum size of the times, in bytes. A second copy exists while they are rewritten.
    pub(super) fn max_times_size(&self) -> u64 {
        (self.max_size() / TIMES_DIVISOR).min(TIMES_MAX)
    }

    /// Maximum size of the output files together, in bytes, without the times.
    fn max_output_size(&self) -> u64 {
        self.max_size() - 2 * self.max_times_size()
    }

    /// Maximum size of each output file, in bytes: the parts, the current file, and the second copy of a part
    /// that is being compressed. It bounds the total size.
    pub(super) fn max_file_size(&self) -> u64 {
        (self.max_output_size() / (self.keep() + 1 + u64::from(self.compress))).max(1)
    }

    /// Maximum size of the earlier parts together, in bytes.
    pub(super) fn max_parts_size(&self) -> u64 {
        self.keep() * self.max_file_size()
    }

    /// Maximum size of the parts and the current file together, in bytes, without the copy under compression.
    pub(super) fn max_size_without_copy(&self) -> u64 {
        self.max_output_size() - if self.compress { self.max_file_size() } else { 0 }
    }
}

fn set<T: std::str::FromStr>(value: &mut T, word: Option<String>) {
    if let Some(number) = word.and_then(|word| word.parse().ok()) {
        *value = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> WriterOptions {
        WriterOptions::parse("/l", line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn numbers_and_flags_in_any_order() {
        let tag = "ab".repeat(16);
        let all = parse(&format!("--resumed --keep 7 --max-size 9000 --tag {tag} --compress"));
        let expected = WriterOptions {
            tag: Some(Tag([0xab; 16])),
            max_size: 9000,
            keep: 7,
            compress: true,
            resumed: true,
            ..parse("")
        };
        assert_eq!(all, expected);
        assert_eq!(parse("--later 5 --keep many --tag"), WriterOptions::new("/l"), "unknown or invalid");
    }

    #[test]
    fn the_shares_fit_into_the_whole() {
        for (max_size, keep) in [(0, 0), (5000, 3), (32 << 20, 4), (u64::MAX, u32::MAX)] {
            for compress in [false, true] {
                let options = WriterOptions { max_size, keep, compress, ..WriterOptions::new("/l") };
                let (parts, file) = (options.max_parts_size(), options.max_file_size());
                let all = parts + file * (1 + u64::from(compress)) + 2 * options.max_times_size();
                assert!(all <= max_size.max(MIN_SIZE), "{options:?}");
                assert!(parts + file <= options.max_size_without_copy(), "{options:?}");
            }
        }
    }
}
