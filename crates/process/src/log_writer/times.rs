//! `output.times`: an index of when each byte was written.
//!
//! A line is written ahead of the bytes of its time, so the bytes before its offset are older and those after
//! it are younger. When output resumes after a pause, a line with the time and end of the earlier output is
//! added first, so that a pause is never taken for output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use protocol::{Tag, logs};

use super::access::{open_file, open_with, remove};

/// Minimum time between two lines of continuous output, in milliseconds.
const INTERVAL_MS: u64 = 1000;

/// A line of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// End of the log at that time.
    pub offset: u64,
    /// Incarnation whose output begins here.
    pub tag: Option<Tag>,
}

impl TimeEntry {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(line).ok()?.split(' ');
        let (at, offset) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let tag = match words.next() {
            Some(tag) => Some(tag.parse().ok()?),
            None => None,
        };
        words.next().is_none().then_some(Self { at, offset, tag })
    }

    fn line(&self) -> String {
        let tag = self.tag.map(|tag| format!(" {tag}")).unwrap_or_default();
        format!("{} {}{tag}\n", self.at, self.offset)
    }
}

/// Reads the index of a log; empty if there is none.
pub fn read(dir: &Path) -> io::Result<Vec<TimeEntry>> {
    let mut text = Vec::new();
    match open_file(&dir.join(logs::TIMES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?.read_to_end(&mut text)?,
    };
    let mut entries: Vec<TimeEntry> = Vec::new();
    // The last line may be incomplete.
    for line in text.split_inclusive(|&b| b == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
        let entry = TimeEntry::parse(line);
        entries.extend(entry.filter(|entry| entries.last().is_none_or(|last| last.offset <= entry.offset)));
    }
    Ok(entries)
}

/// Returns the milliseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Decides which lines a writer adds.
#[derive(Debug, Default)]
pub(super) struct TimeRecorder {
    /// Time of the last line.
    last_line: u64,
    /// Time and end offset of the last write.
    last_write: Option<(u64, u64)>,
}

impl TimeRecorder {
    /// Returns the line at which the writer of an incarnation begins.
    pub(super) fn begin(&mut self, (at, offset): (u64, u64), tag: Option<Tag>) -> Vec<TimeEntry> {
        self.last_line = at;
        vec![TimeEntry { at, offset, tag }]
    }

    /// Returns the lines to add before a write at this offset.
    pub(super) fn before_write(&mut self, at: u64, offset: u64) -> Vec<TimeEntry> {
        // The absolute difference is used, so that a clock that was set back does not suppress lines.
        if at.abs_diff(self.last_line) < INTERVAL_MS {
            return Vec::new();
        }
        let mut entries = self.end_of_output(at, offset);
        entries.push(TimeEntry { at, offset, tag: None });
        self.last_line = at;
        entries
    }

    /// Records a write that ended at this offset.
    pub(super) fn after_write(&mut self, at: u64, offset: u64) {
        self.last_write = Some((at, offset));
    }

    /// True if the log ends before the end of the last write, because its end was cut off.
    pub(super) fn is_beyond(&self, end: u64) -> bool {
        self.last_write.is_some_and(|(_, written)| written > end)
    }

    /// Returns the line for the end of the output.
    pub(super) fn end(&mut self) -> Vec<TimeEntry> {
        self.end_of_output(u64::MAX, self.last_write.map_or(0, |(_, end)| end))
    }

    /// Returns the line for the end of the last write, if a pause followed it. None if another writer has
    /// written between it and `offset`: the age of those bytes is unknown.
    fn end_of_output(&self, now: u64, offset: u64) -> Vec<TimeEntry> {
        let last = self.last_write.filter(|(at, end)| *end == offset && now.abs_diff(*at) >= INTERVAL_MS);
        last.map(|(at, offset)| TimeEntry { at, offset, tag: None }).into_iter().collect()
    }
}

/// Appends lines. Drops the oldest if the index would exceed `max_size` bytes; skips the lines if that does
/// not suffice, or if the disk is full.
pub(super) fn append(dir: &Path, entries: &[TimeEntry], start: u64, max_size: u64) {
    let text: String = entries.iter().map(TimeEntry::line).collect();
    let length = fs::metadata(dir.join(logs::TIMES)).map_or(0, |found| found.len());
    // One more byte, to end a line that was cut off.
    let needed = text.len() as u64 + 1;
    if text.is_empty() || needed > max_size {
        return;
    }
    if length + needed > max_size {
        trim(dir, start, (max_size - needed).min(max_size / 2));
    }
    // The index is optional: the log goes on without it.
    drop(write(dir, &text, max_size));
}

fn write(dir: &Path, text: &str, max_size: u64) -> io::Result<()> {
    let path = dir.join(logs::TIMES);
    let mut file = open_with(OpenOptions::new().read(true).append(true).create(true).mode(0o600), &path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let text = if last == [b'\n'] { text.to_owned() } else { format!("\n{text}") };
    if length + text.len() as u64 <= max_size { file.write_all(text.as_bytes()) } else { Ok(()) }
}

/// Removes the lines that lie beyond the end of a log that has lost its last bytes, as after a power failure. Otherwise
/// the next lines would seem to go back. Returns true if there were any.
pub(super) fn cut(dir: &Path, end: u64) -> bool {
    let Ok(mut entries) = read(dir) else { return false };
    let whole = entries.len();
    entries.retain(|entry| entry.offset <= end);
    entries.len() < whole && replace(dir, &entries).is_ok()
}

/// Removes the lines that concern only bytes before `start`, and then, down to `max_size` bytes, lines that
/// are close to others. Always keeps the first line and the beginning of the newest incarnation.
pub(super) fn trim(dir: &Path, start: u64, max_size: u64) {
    let Ok(mut entries) = read(dir) else { return };
    // The first line with the newest tag: a writer that replaces a lost one repeats the tag during the
    // incarnation.
    let tag = entries.iter().rev().find_map(|entry| entry.tag);
    let newest = entries.iter().position(|entry| entry.tag.is_some() && entry.tag == tag);
    let first = entries.iter().rposition(|entry| entry.offset <= start).unwrap_or(0);
    let beginning = newest.map(|at| entries[at]);
    entries.drain(..first);
    let mut gap = INTERVAL_MS;
    while size(&entries) > max_size && entries.len() > 2 {
        gap = gap.saturating_mul(2);
        thin(&mut entries, gap);
    }
    if let Some(lost) = beginning.filter(|beginning| !entries.contains(beginning)) {
        let at = entries.partition_point(|entry| entry.offset < lost.offset);
        entries.insert(at, lost);
    }
    drop(replace(dir, &entries));
}

/// Keeps the first line, and lines that are at least `gap` milliseconds apart.
fn thin(entries: &mut Vec<TimeEntry>, gap: u64) {
    let mut last: Option<TimeEntry> = None;
    entries.retain(|entry| {
        let keep = last.is_none_or(|last| entry.at.abs_diff(last.at) >= gap);
        if keep {
            last = Some(*entry);
        }
        keep
    });
}

fn size(entries: &[TimeEntry]) -> u64 {
    entries.iter().map(|entry| entry.line().len() as u64).sum()
}

fn replace(dir: &Path, entries: &[TimeEntry]) -> io::Result<()> {
    let new = dir.join(logs::NEW_TIMES);
    remove(&new)?;
    let text: String = entries.iter().map(TimeEntry::line).collect();
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, dir.join(logs::TIMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, offset: u64) -> TimeEntry {
        TimeEntry { at, offset, tag: None }
    }

    #[test]
    fn a_line_a_second_and_one_for_each_pause() {
        let mut times = TimeRecorder::default();
        let tag = Some(Tag([1; 16]));
        assert_eq!(times.begin((10_000, 5), tag), [TimeEntry { at: 10_000, offset: 5, tag }]);
        let mut write = |at, offset| {
            let lines = times.before_write(at, offset);
            times.after_write(at, offset + 10);
            lines
        };
        assert_eq!(write(10_500, 5), []);
        assert_eq!(write(11_200, 15), [entry(11_200, 15)]);
        assert_eq!(write(11_900, 25), []);
        assert_eq!(write(99_000, 35), [entry(11_900, 35), entry(99_000, 35)], "after a pause");
        assert_eq!(write(99_100, 45), []);
        assert_eq!(write(200_000, 60), [entry(200_000, 60)], "another writer wrote in between");
        assert_eq!(write(20_000, 70), [entry(200_000, 70), entry(20_000, 70)], "the clock went back");
        assert_eq!(times.end(), [entry(20_000, 80)]);
        assert_eq!(TimeRecorder::default().end(), []);
    }

    #[test]
    fn only_whole_lines_that_go_on_count() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let tag = Tag([0xab; 16]);
        let text = format!("5 0 {tag}\n7 900\n8 90\nx\n\n9 1000 later\n10 1000\n11 12");
        fs::write(dir.path().join(logs::TIMES), text).unwrap();
        let known = [TimeEntry { tag: Some(tag), ..entry(5, 0) }, entry(7, 900), entry(10, 1000)];
        assert_eq!(read(dir.path()).unwrap(), known);
        append(dir.path(), &[entry(12, 2000)], 0, 1000);
        assert_eq!(read(dir.path()).unwrap().last(), Some(&entry(12, 2000)), "a cut line is ended first");
    }

    #[test]
    fn lines_beyond_the_end_of_the_log_hide_no_later_ones() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), &[entry(1, 0), entry(2, 50), entry(3, 60)], 0, 1000);
        assert!(!cut(dir.path(), 60) && cut(dir.path(), 50));
        append(dir.path(), &[entry(4, 50), entry(5, 55)], 0, 1000);
        let offsets: Vec<u64> = read(dir.path()).unwrap().iter().map(|entry| entry.offset).collect();
        assert_eq!(offsets, [0, 50, 50, 55]);
    }

    #[test]
    fn they_stay_below_their_bound_and_keep_the_newest_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let tag = Tag([3; 16]);
        append(dir.path(), &[TimeEntry { tag: Some(tag), ..entry(0, 0) }], 0, 1000);
        for n in 1..2000 {
            append(dir.path(), &[entry(n * 1000, n * 10)], 0, 1000);
            assert!(fs::metadata(dir.path().join(logs::TIMES)).unwrap().len() <= 1000);
        }
        let times = read(dir.path()).unwrap();
        assert!((10..60).contains(&times.len()), "{}", times.len());
        assert_eq!(times.last(), Some(&entry(1_999_000, 19_990)));
        assert_eq!(times[0].tag, Some(tag));
        let gaps = times.windows(2).map(|two| two[1].at - two[0].at);
        assert!(gaps.max().unwrap() <= 300_000, "evenly thinned: {times:?}");
        trim(dir.path(), 15_000, 1000);
        let times = read(dir.path()).unwrap();
        assert_eq!(times[0].tag, Some(tag));
        assert!(times[1].offset <= 15_000 && times[2].offset > 15_000, "{times:?}");
        append(dir.path(), &[entry(1, 99_999)], 0, 8);
        assert_eq!(read(dir.path()).unwrap(), times, "there is no room at all");
    }
}
