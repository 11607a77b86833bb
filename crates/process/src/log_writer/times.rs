//! `output.times`: when which byte was written.
//!
//! A line comes before the bytes that are written at its time, so what is before its offset is older and
//! what is behind it younger. Where bytes come after a pause, a line with the end of what was before
//! precedes theirs: a pause is never taken for output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use protocol::ids::Tag;
use protocol::logs;

use super::open_as;

/// The least time between two lines of the same output, in milliseconds.
const PAUSE: u64 = 1000;

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// The end of the log then.
    pub offset: u64,
    /// The incarnation that begins here.
    pub tag: Option<Tag>,
}

impl Entry {
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

/// All that is known of a log; nothing where there is nothing.
///
/// # Errors
/// The file cannot be read.
pub fn read(dir: &Path) -> io::Result<Vec<Entry>> {
    let mut text = Vec::new();
    match super::open_file(&dir.join(logs::TIMES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?.read_to_end(&mut text)?,
    };
    let mut entries: Vec<Entry> = Vec::new();
    // The last line may not be whole yet.
    for line in text.split_inclusive(|&b| b == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
        let entry = Entry::parse(line);
        entries.extend(entry.filter(|entry| entries.last().is_none_or(|last| last.offset <= entry.offset)));
    }
    Ok(entries)
}

/// Milliseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What a writer still knows of the times that it wrote.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The time of the last line.
    line: u64,
    /// When bytes were written last, and where they ended.
    last: Option<(u64, u64)>,
}

impl Marks {
    /// An incarnation's writer begins.
    pub(super) fn begin(&mut self, (at, offset): (u64, u64), tag: Option<Tag>) -> Vec<Entry> {
        self.line = at;
        vec![Entry { at, offset, tag }]
    }

    /// The lines for bytes that are about to be written here.
    pub(super) fn before(&mut self, at: u64, offset: u64) -> Vec<Entry> {
        // A clock that went back is none to wait for.
        if at.abs_diff(self.line) < PAUSE {
            return Vec::new();
        }
        let mut entries = self.pause(at, offset);
        entries.push(Entry { at, offset, tag: None });
        self.line = at;
        entries
    }

    /// Bytes were written, and end here.
    pub(super) fn after(&mut self, at: u64, offset: u64) {
        self.last = Some((at, offset));
    }

    /// The line for the end of the last bytes, where nothing says so yet.
    pub(super) fn end(&mut self) -> Vec<Entry> {
        self.pause(u64::MAX, self.last.map_or(0, |(_, end)| end))
    }

    /// Bytes of somebody else's between the last ones and this offset are as young as anybody knows.
    fn pause(&self, now: u64, offset: u64) -> Vec<Entry> {
        let last = self.last.filter(|(at, end)| *end == offset && now.abs_diff(*at) >= PAUSE);
        last.map(|(at, offset)| Entry { at, offset, tag: None }).into_iter().collect()
    }
}

/// Appends lines, unless there is no room for them below `most` bytes even when the oldest are given
/// up, or the disk has none.
pub(super) fn append(dir: &Path, entries: &[Entry], start: u64, most: u64) {
    let text: String = entries.iter().map(Entry::line).collect();
    let length = fs::metadata(dir.join(logs::TIMES)).map_or(0, |found| found.len());
    // With the end of a line that was cut off.
    let needed = text.len() as u64 + 1;
    if text.is_empty() || needed > most {
        return;
    }
    if length + needed > most {
        trim(dir, start, (most - needed).min(most / 2));
    }
    // Times are a help: the log goes on without them.
    drop(write(dir, &text, most));
}

fn write(dir: &Path, text: &str, most: u64) -> io::Result<()> {
    let path = dir.join(logs::TIMES);
    let mut file = open_as(OpenOptions::new().read(true).append(true).create(true).mode(0o600), &path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let text = if last == [b'\n'] { text.to_owned() } else { format!("\n{text}") };
    if length + text.len() as u64 <= most { file.write_all(text.as_bytes()) } else { Ok(()) }
}

/// Forgets what is only about bytes before `start`, and where what is left has more than `most` bytes,
/// lines that are close to others. The first one and the newest beginning are always kept.
pub(super) fn trim(dir: &Path, start: u64, most: u64) {
    let Ok(mut entries) = read(dir) else { return };
    // A writer that takes over from one that was lost writes the tag once more, in the middle of its run.
    let tag = entries.iter().rev().find_map(|entry| entry.tag);
    let newest = entries.iter().position(|entry| entry.tag.is_some() && entry.tag == tag);
    let first = entries.iter().rposition(|entry| entry.offset <= start).unwrap_or(0);
    let beginning = newest.map(|at| entries[at]);
    entries.drain(..first);
    let mut gap = PAUSE;
    while size(&entries) > most && entries.len() > 2 {
        gap = gap.saturating_mul(2);
        thin(&mut entries, gap);
    }
    if let Some(lost) = beginning.filter(|beginning| !entries.contains(beginning)) {
        let at = entries.partition_point(|entry| entry.offset < lost.offset);
        entries.insert(at, lost);
    }
    drop(replace(dir, &entries));
}

/// Keeps lines that are so many milliseconds apart, and the first one.
fn thin(entries: &mut Vec<Entry>, gap: u64) {
    let mut last: Option<Entry> = None;
    entries.retain(|entry| {
        let keep = last.is_none_or(|last| entry.at.abs_diff(last.at) >= gap);
        if keep {
            last = Some(*entry);
        }
        keep
    });
}

fn size(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.line().len() as u64).sum()
}

fn replace(dir: &Path, entries: &[Entry]) -> io::Result<()> {
    let new = dir.join(logs::NEW_TIMES);
    super::files::remove(&new)?;
    let text: String = entries.iter().map(Entry::line).collect();
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, dir.join(logs::TIMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, offset: u64) -> Entry {
        Entry { at, offset, tag: None }
    }

    #[test]
    fn a_line_a_second_and_one_for_each_pause() {
        let mut marks = Marks::default();
        let tag = Some(Tag([1; 16]));
        assert_eq!(marks.begin((10_000, 5), tag), [Entry { at: 10_000, offset: 5, tag }]);
        let mut write = |at, offset| {
            let lines = marks.before(at, offset);
            marks.after(at, offset + 10);
            lines
        };
        assert_eq!(write(10_500, 5), []);
        assert_eq!(write(11_200, 15), [entry(11_200, 15)]);
        assert_eq!(write(11_900, 25), []);
        assert_eq!(write(99_000, 35), [entry(11_900, 35), entry(99_000, 35)], "after a pause");
        assert_eq!(write(99_100, 45), []);
        assert_eq!(write(200_000, 60), [entry(200_000, 60)], "somebody else wrote in between");
        assert_eq!(write(20_000, 70), [entry(200_000, 70), entry(20_000, 70)], "the clock went back");
        assert_eq!(marks.end(), [entry(20_000, 80)]);
        assert_eq!(Marks::default().end(), []);
    }

    #[test]
    fn only_whole_lines_that_go_on_count() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let tag = Tag([0xab; 16]);
        let text = format!("5 0 {tag}\n7 900\n8 90\nx\n\n9 1000 later\n10 1000\n11 12");
        fs::write(dir.path().join(logs::TIMES), text).unwrap();
        let known = [Entry { tag: Some(tag), ..entry(5, 0) }, entry(7, 900), entry(10, 1000)];
        assert_eq!(read(dir.path()).unwrap(), known);
        append(dir.path(), &[entry(12, 2000)], 0, 1000);
        assert_eq!(read(dir.path()).unwrap().last(), Some(&entry(12, 2000)), "a cut line is ended first");
    }

    #[test]
    fn they_stay_below_their_bound_and_keep_the_newest_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let tag = Tag([3; 16]);
        append(dir.path(), &[Entry { tag: Some(tag), ..entry(0, 0) }], 0, 1000);
        for n in 1..2000 {
            append(dir.path(), &[entry(n * 1000, n * 10)], 0, 1000);
            assert!(fs::metadata(dir.path().join(logs::TIMES)).unwrap().len() <= 1000);
        }
        let times = read(dir.path()).unwrap();
        assert!((10..60).contains(&times.len()), "{}", times.len());
        assert_eq!(times.last(), Some(&entry(1_999_000, 19_990)));
        assert_eq!(times[0].tag, Some(tag));
        let gaps = times.windows(2).map(|two| two[1].at - two[0].at);
        assert!(gaps.max().unwrap() <= 300_000, "everywhere as exact as anywhere: {times:?}");
        trim(dir.path(), 15_000, 1000);
        let times = read(dir.path()).unwrap();
        assert_eq!(times[0].tag, Some(tag));
        assert!(times[1].offset <= 15_000 && times[2].offset > 15_000, "{times:?}");
        append(dir.path(), &[entry(1, 99_999)], 0, 8);
        assert_eq!(read(dir.path()).unwrap(), times, "there is no room at all");
    }
}
