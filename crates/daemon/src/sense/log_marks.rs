//! Marks in the log of a session: of its shell, its bell, the title of its window.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use agents::terminal_marks::{Mark, Scanner, title_wants_attention};
use pool::agent::{ShellMark, TerminalMarks, WindowTitle};
use protocol::{AskKind, Timestamp};

use crate::host::files;
use crate::sense::sample_target::SampleTarget;

/// Maximum bytes of new output read in one sample: the newest marks are at the end.
const OUTPUT_MAX: u64 = 256 << 10;

/// Bytes that are read at once.
const READ_BLOCK: usize = 16 << 10;

/// Length of the end of the output, in bytes, in which the window title of an agent is looked for: an agent that asks
/// writes nothing after the title.
const TITLE_TAIL: u64 = 1 << 10;

/// Time in which the log writer of a new incarnation starts.
const WRITER_START: Duration = Duration::from_secs(5);

/// Largest difference between the recorded time of a bell and the time in the log's index, for them to be the same
/// bell.
const BELL_TIMES: Duration = Duration::from_secs(2);

/// The marks that were read so far.
#[derive(Default)]
pub(super) struct LogMarks {
    scanner: Scanner,
    /// The current file when it was last read: its inode, and its length.
    version: (u64, u64),
    /// The offset in the log up to which it was read.
    offset: Option<u64>,
    pub(super) marks: TerminalMarks,
    pub(super) title: WindowTitle,
}

impl LogMarks {
    /// Reads the marks in the output since the last sample. Marks from before the first sample of an incarnation, or
    /// from before a start of the daemon, get their times from the log's index.
    pub(super) fn read_marks(&mut self, target: &SampleTarget, meta: &Metadata, now: Timestamp) {
        let version = (meta.ino(), meta.len());
        if self.version == version {
            return;
        }
        let dir = target.log.parent().unwrap_or(&target.log);
        let Ok((_, end)) = logs::bounds(dir) else { return };
        if self.offset.is_some_and(|offset| offset > end) {
            // A log that was removed begins anew.
            (self.offset, self.marks) = (Some(0), TerminalMarks::default());
        }
        let is_first = self.offset.is_none();
        let from = match self.offset {
            Some(offset) => offset,
            None => match logs::recorded_start_offset(dir, target.tag).ok().flatten() {
                Some(start) => start,
                // Its log writer has not started: the log still ends with an earlier incarnation.
                None if now >= target.started_at && now.since(target.started_at) < WRITER_START => return,
                None => 0,
            },
        };
        let mut reader = logs::Reader::new(dir, from.max(end.saturating_sub(OUTPUT_MAX)));
        let (mut times, mut block) = (is_first.then(|| logs::Times::new(dir)), vec![0; READ_BLOCK]);
        while reader.offset() < end {
            let count = match reader.read(&mut block) {
                Ok(0) => break,
                Ok(count) => count,
                // After an error, the next sample reads the whole end of the log again.
                Err(_) => return *self = Self::default(),
            };
            let begin = reader.offset() - count as u64;
            for (end, mark) in self.scanner.feed_with_ends(&block[..count]) {
                let end = begin + end as u64;
                let written = times.as_mut().and_then(|times| times.at(end - 1));
                let at = written.map_or(now, |at| at.max(target.started_at).min(now));
                self.apply(mark, ShellMark { end, at }, target.attached);
            }
        }
        (self.version, self.offset) = (version, Some(reader.offset()));
        if is_first {
            self.take_in_recorded_bell(target);
        }
    }

    /// Uses the recorded time of a bell in place of the log's, unless the log has a clearly later bell: the times in
    /// the index are exact to a second only.
    fn take_in_recorded_bell(&mut self, target: &SampleTarget) {
        let asked = target.known.ask.as_ref().filter(|ask| ask.kind == AskKind::Bell && !target.attached);
        if let Some(recorded) = asked.map(|ask| Timestamp(ask.id)) {
            let later = self.marks.bell_at.filter(|at| at.since(recorded) > BELL_TIMES);
            self.marks.bell_at = later.or(Some(recorded));
        }
    }

    /// Reads the current title of its window.
    pub(super) fn read_title(&mut self, target: &SampleTarget, meta: &Metadata, now: Timestamp) {
        let state = (meta.ino(), meta.len());
        if self.version == state {
            return;
        }
        let Ok(tail) = files::read_range(&target.log, meta.len().saturating_sub(TITLE_TAIL), TITLE_TAIL)
        else {
            return;
        };
        self.version = state;
        for mark in Scanner::new().feed(&tail) {
            let Mark::Title(title) = mark else { continue };
            self.title = match (title_wants_attention(target.agent.adapter, &title), self.title) {
                (true, asked @ WindowTitle::Asks(_)) => asked,
                (true, _) => WindowTitle::Asks(now),
                (false, _) => WindowTitle::Other(now),
            };
        }
    }

    fn apply(&mut self, mark: Mark, place: ShellMark, attached: bool) {
        match mark {
            Mark::PromptStart | Mark::PromptEnd => self.marks.prompt = Some(place),
            Mark::CommandStart => (self.marks.command, self.marks.code) = (Some(place), None),
            Mark::CommandEnd(code) => (self.marks.prompt, self.marks.code) = (Some(place), code),
            Mark::Bell if !attached => return self.marks.bell_at = Some(place.at),
            _ => return,
        }
        self.marks.bell_at = None;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::logs::{CURRENT, part_name};
    use protocol::{SessionId, Tag};

    use super::*;

    #[test]
    fn marks_are_ordered_by_their_place_in_the_log_whatever_the_clock_shows() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(CURRENT);
        let (target, mut read) =
            (SampleTarget::plain((SessionId(1), Tag([7; 16])), &log), LogMarks::default());
        let mut sample = |output: &str, at: u64| {
            fs::write(&log, output).unwrap();
            read.read_marks(&target, &fs::metadata(&log).unwrap(), Timestamp(at));
            let place = |mark: Option<ShellMark>| mark.map(|mark| (mark.end, mark.at.0));
            let marks = &read.marks;
            (place(marks.prompt), place(marks.command), marks.bell_at.map(|at| at.0))
        };
        let at = 3_600_000;
        let (prompt, command) = ("\x1b]133;A\x07$ ", "\x1b]133;C\x07");
        assert_eq!(sample(prompt, at), (Some((8, at)), None, None));
        let rung = format!("{prompt}\x07");
        assert_eq!(sample(&rung, 5000), (Some((8, at)), None, Some(5000)), "the clock was set back");
        let run = format!("{rung}{command}");
        assert_eq!(sample(&run, 6000), (Some((8, at)), Some((19, 6000)), None), "a mark answers the bell");
        fs::rename(&log, dir.path().join(part_name(0, false))).unwrap();
        assert_eq!(sample(prompt, 7000), (Some((27, 7000)), Some((19, 6000)), None), "after a rotation");
        fs::remove_dir_all(dir.path()).unwrap();
        fs::create_dir(dir.path()).unwrap();
        assert_eq!(sample(command, 8000), (None, Some((8, 8000)), None), "the log was removed");
    }
}
