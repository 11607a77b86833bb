//! What a log writer is told: a directory, numbers and flags, for what is on tmux's command line can
//! be read by anybody.

use std::ffi::OsString;
use std::path::PathBuf;

use protocol::ids::Tag;
use protocol::logs;

/// Which log to write, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directory of the log.
    pub dir: PathBuf,
    /// `--tag HEX`: the incarnation that writes.
    pub tag: Option<Tag>,
    /// `--max-size BYTES`: what all files may have together.
    pub max_size: u64,
    /// `--keep N`: earlier parts that are kept; at least one.
    pub keep: u32,
    /// `--compress`: whether earlier parts are compressed.
    pub compress: bool,
    /// `--resumed`: an earlier writer of the same incarnation was lost.
    pub resumed: bool,
}

/// Less than this cannot hold a log and its times.
const MIN_SIZE: u64 = 4096;
/// More files than anybody looks through.
const MAX_KEEP: u32 = 999;
/// Share of the times in the whole: one in so many.
const TIMES_SHARE: u64 = 32;
/// What the times have at most, in bytes: a line each second for four hours.
const TIMES_MAX: u64 = 512 << 10;

impl Options {
    /// A log in this directory, kept as it is where nothing is said.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let (max_size, keep) = (logs::MAX_SIZE, logs::KEEP);
        Self { dir: dir.into(), tag: None, max_size, keep, compress: false, resumed: false }
    }

    /// From the words after the directory. A word that is none of these is passed over, so that a
    /// newer daemon never costs a pane its log.
    #[must_use]
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

    /// What the times may have, in bytes. While they are written anew there are two of them.
    pub(super) fn times(&self) -> u64 {
        (self.max_size() / TIMES_SHARE).min(TIMES_MAX)
    }

    /// What the log may have without its times, in bytes.
    fn bytes(&self) -> u64 {
        self.max_size() - 2 * self.times()
    }

    /// What each file of the log may have, in bytes: the parts, the one that is written to, and the one
    /// that is being compressed, which is there twice. As none has more, all never have more.
    pub(super) fn share(&self) -> u64 {
        (self.bytes() / (self.keep() + 1 + u64::from(self.compress))).max(1)
    }

    /// What the earlier parts may have together, in bytes.
    pub(super) fn parts(&self) -> u64 {
        self.keep() * self.share()
    }

    /// What the parts and the file that is written to may have together, in bytes.
    pub(super) fn settled(&self) -> u64 {
        self.bytes() - if self.compress { self.share() } else { 0 }
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

    fn parse(line: &str) -> Options {
        Options::parse("/l", line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn numbers_and_flags_in_any_order() {
        let tag = "ab".repeat(16);
        let all = parse(&format!("--resumed --keep 7 --max-size 9000 --tag {tag} --compress"));
        let expected = Options {
            tag: Some(Tag([0xab; 16])),
            max_size: 9000,
            keep: 7,
            compress: true,
            resumed: true,
            ..parse("")
        };
        assert_eq!(all, expected);
        assert_eq!(parse("--later 5 --keep many --tag"), Options::new("/l"), "what is no option is none");
    }

    #[test]
    fn the_shares_fit_into_the_whole() {
        for (max_size, keep) in [(0, 0), (5000, 3), (32 << 20, 4), (u64::MAX, u32::MAX)] {
            for compress in [false, true] {
                let options = Options { max_size, keep, compress, ..Options::new("/l") };
                let all = options.parts() + options.share() * (1 + u64::from(compress)) + 2 * options.times();
                assert!(all <= max_size.max(MIN_SIZE), "{options:?}");
                assert!(options.parts() + options.share() <= options.settled(), "{options:?}");
            }
        }
    }
}
