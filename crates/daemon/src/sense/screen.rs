//! One look at a session from outside: what its program wrote, what its agent recorded.

use pool::activity;
use protocol::ActivityState;
use protocol::activity::Source;
use std::fs::Metadata;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agents::terminal_marks::{Mark, Scanner, title_wants_attention};
use agents::transcript::{RecordedPrompt, TurnEnd};
use agents::{Adapter, transcript};
use nix::fcntl::OFlag;
use pool::activity::{Look, Marks, SILENCE, Title};
use protocol::{OsBytes, Timestamp};

use crate::host::files;
use crate::sense::subject::Subject;

/// The most that is read of what was written between two looks: the newest marks are at the end.
const PIECE: u64 = 256 << 10;

/// The end of it in which the title of an agent's window is looked for: one that asks writes nothing else.
const TITLE: u64 = 1 << 10;

/// The end of the agent's own record that is read.
const RECORD: u64 = 128 << 10;

/// And while a prompt is looked for in it: the longest one, escaped, more than once, and what comes after it.
const RECORD_OF_PROMPT: u64 = 2 << 20;

/// A file may bear a time that is so much earlier than when it was written: the system's coarse clock.
const COARSE: Duration = Duration::from_millis(10);

/// Silence after which an agent at work may have stopped without a word.
const STILL: Duration = Duration::from_secs(1);

/// Prompts of a record that are remembered.
const SAID_MAX: usize = 8;

/// What is remembered of a session from look to look.
#[derive(Default)]
pub(crate) struct Watched {
    scanner: Scanner,
    /// The log: which file, and how much of it was read.
    log: (u64, u64),
    /// The record when it was last read: length, when it was last written, and how much of it was read.
    record: (u64, u64, u64),
    pub(crate) quiet_since: Option<Timestamp>,
    marks: Marks,
    title: Title,
    look: Option<Look>,
    looked_at: Option<Timestamp>,
    said: Arc<Vec<RecordedPrompt>>,
    ended: Option<TurnEnd>,
    tokens: Option<u64>,
    /// The program in the foreground of a shell's terminal.
    front: Option<OsBytes>,
}

/// What was found.
pub(crate) struct Found {
    pub(crate) quiet_since: Option<Timestamp>,
    pub(crate) marks: Marks,
    pub(crate) title: Title,
    pub(crate) look: Option<Look>,
    /// What was said to the agent last, as its record has it, and how its last turn ended.
    pub(crate) said: Arc<Vec<RecordedPrompt>>,
    pub(crate) ended: Option<TurnEnd>,
    pub(crate) tokens: Option<u64>,
    pub(crate) front: Option<OsBytes>,
}

impl Watched {
    /// Whether its agent's own record is worth reading: it has stopped, or fallen silent, or may have got a prompt of
    /// which it said nothing.
    pub(crate) fn wants_record(&self, subject: &Subject, now: Timestamp) -> bool {
        let silent = self.quiet_since.is_some_and(|since| now.since(since) >= STILL);
        let works = subject.known.state.is_at_work();
        subject.agent.adapter != Adapter::None && (!works || silent || subject.unconfirmed.is_some())
    }

    /// Whether only its screen tells what it does now.
    pub(crate) fn wants_glance(&self, subject: &Subject, now: Timestamp) -> bool {
        if !subject.agent.shows_composer() {
            return false;
        }
        if !subject.hooked {
            return subject.is_starting(now) || self.wrote_since_look();
        }
        let works = subject.known.state.is_at_work();
        let asks = subject.known.state == ActivityState::Attention && subject.known.source == Source::Screen;
        if (asks || subject.known.state == ActivityState::Busy) && self.wants_look_for_title(now) {
            return true;
        }
        let last =
            subject.notes.heard_at.into_iter().chain(self.quiet_since).chain([subject.known.since]).max();
        let silent = last.is_some_and(|last| now.since(last) >= activity::SILENCE);
        works && silent && self.looked_at() <= last
    }

    pub(crate) fn found(&self) -> Found {
        Found {
            quiet_since: self.quiet_since,
            marks: self.marks.clone(),
            title: self.title,
            look: self.look.clone(),
            said: Arc::clone(&self.said),
            ended: self.ended.clone(),
            tokens: self.tokens,
            front: self.front.clone(),
        }
    }

    /// When somebody last began to look at its screen, and saw it.
    pub(crate) fn looked_at(&self) -> Option<Timestamp> {
        self.looked_at
    }

    /// Whether it wrote something after its screen was last looked at.
    pub(crate) fn wrote_since_look(&self) -> bool {
        self.looked_at.is_none_or(|at| self.quiet_since.is_some_and(|wrote| wrote.after(COARSE) >= at))
    }

    /// Whether the title of its window says that it asks, and its screen was not looked at since, or is to be again.
    pub(crate) fn wants_look_for_title(&self, now: Timestamp) -> bool {
        let Title::Asks(since) = self.title else { return false };
        self.looked_at.is_none_or(|at| at <= since || now.since(at) >= SILENCE)
    }

    /// Its screen was looked at, from then on.
    pub(crate) fn glanced(&mut self, look: Look, began: Timestamp) {
        (self.look, self.looked_at) = (Some(look), Some(began));
    }

    /// Reads what is new.
    pub(crate) fn read(&mut self, subject: &Subject, now: Timestamp) {
        let init = subject.shell.as_ref().and_then(|shell| shell.init);
        let front = init.and_then(|init| process::inspect::program::foreground(init).ok().flatten());
        self.front = front.map(|front| front.command);
        if subject.attached {
            // Somebody is there who hears it.
            self.marks.bell_at = None;
        }
        if let Ok(found) = std::fs::metadata(&subject.log) {
            self.quiet_since = Some(written_at(&found));
            match subject.agent.adapter {
                Adapter::None => self.read_log(subject, &found, now),
                Adapter::Codex if subject.known.state.is_at_work() => self.read_title(subject, &found, now),
                _ => {}
            }
        }
        if let Some(path) = subject.record.as_ref().filter(|_| self.wants_record(subject, now)) {
            let most = if subject.unconfirmed.is_some() { RECORD_OF_PROMPT } else { RECORD };
            self.read_record(subject.agent.adapter, path, most);
        }
    }

    fn read_log(&mut self, subject: &Subject, found: &Metadata, now: Timestamp) {
        let (file, read) = self.log;
        let from = if file == found.ino() { read } else { 0 };
        if found.len() <= from {
            self.log = (found.ino(), found.len());
            return;
        }
        let from = from.max(found.len().saturating_sub(PIECE));
        let Ok(piece) = piece(&subject.log, from, found.len() - from) else { return };
        self.log = (found.ino(), found.len());
        for mark in self.scanner.feed(&piece) {
            self.take(mark, subject.attached, now);
        }
    }

    /// What the title of its window says now.
    fn read_title(&mut self, subject: &Subject, found: &Metadata, now: Timestamp) {
        let state = (found.ino(), found.len());
        if self.log == state {
            return;
        }
        let Ok(tail) = piece(&subject.log, found.len().saturating_sub(TITLE), TITLE) else { return };
        self.log = state;
        for mark in Scanner::new().feed(&tail) {
            let Mark::Title(title) = mark else { continue };
            self.title = match (title_wants_attention(subject.agent.adapter, &title), self.title) {
                (true, asked @ Title::Asks(_)) => asked,
                (true, _) => Title::Asks(now),
                (false, _) => Title::Other(now),
            };
        }
    }

    fn take(&mut self, mark: Mark, attached: bool, now: Timestamp) {
        // Of two of one look the later one counts.
        let newest = self.marks.prompt_at.max(self.marks.command_at);
        let now = newest.map_or(now, |newest| now.max(Timestamp(newest.0 + 1)));
        match mark {
            Mark::PromptStart | Mark::PromptEnd => self.marks.prompt_at = Some(now),
            Mark::CommandStart => (self.marks.command_at, self.marks.code) = (Some(now), None),
            Mark::CommandEnd(code) => (self.marks.prompt_at, self.marks.code) = (Some(now), code),
            Mark::Bell if !attached => self.marks.bell_at = Some(now),
            _ => {}
        }
    }

    fn read_record(&mut self, adapter: Adapter, path: &Path, most: u64) {
        let Ok(found) = std::fs::metadata(path) else { return };
        let state = (found.len(), written_at(&found).0, most);
        if self.record == state {
            return;
        }
        let Ok(tail) = piece(path, found.len().saturating_sub(most), most) else { return };
        self.record = state;
        let mut said = transcript::prompts(adapter, &tail);
        said.drain(..said.len().saturating_sub(SAID_MAX));
        // A last entry without a time was written when the file was.
        if let Some(last) = said.last_mut() {
            last.at = last.at.or(Some(written_at(&found)));
        }
        self.said = Arc::new(said);
        self.ended = transcript::turn_end(adapter, &tail);
        self.tokens = transcript::tokens(adapter, &tail).or(self.tokens);
    }
}

fn written_at(found: &Metadata) -> Timestamp {
    let modified = found.modified().unwrap_or(std::time::UNIX_EPOCH);
    crate::host::clock::timestamp(modified)
}

fn piece(path: &Path, from: u64, most: u64) -> std::io::Result<Vec<u8>> {
    let (mut file, _) = files::open_regular(path, OFlag::empty())?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn line(text: &str) -> String {
        let said = serde_json::json!({
            "type": "user", "timestamp": "2026-01-02T03:04:05Z",
            "message": { "role": "user", "content": text },
        });
        format!("{said}\n")
    }

    #[test]
    fn the_longest_prompt_is_found_in_a_record_while_it_is_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let long = "a \"line\"\n".repeat(30_000);
        fs::write(&path, line("first") + &line(&long) + &line(&long)).unwrap();
        let mut watched = Watched::default();
        watched.read_record(Adapter::Claude, &path, RECORD);
        assert_eq!(watched.found().said.len(), 0, "it begins before what is read of it");
        // The file is the same: what is looked for has changed.
        watched.read_record(Adapter::Claude, &path, RECORD_OF_PROMPT);
        let texts: Vec<String> = watched.found().said.iter().map(|said| said.text.clone()).collect();
        assert_eq!(texts, ["first".to_owned(), long.clone(), long]);
    }

    #[test]
    fn what_is_no_file_is_no_record_and_what_failed_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut watched = Watched::default();
        watched.read_record(Adapter::Claude, &path, RECORD);
        assert_eq!((watched.found().said.len(), watched.record), (0, Default::default()));
        fs::remove_file(&path).unwrap();
        fs::write(&path, line("hello")).unwrap();
        watched.read_record(Adapter::Claude, &path, RECORD);
        assert_eq!(watched.found().said[0].text, "hello");
    }

    #[test]
    fn what_is_written_while_somebody_looks_is_looked_at_again() {
        let at = |ms: u64| Timestamp(1_000_000 + ms);
        let mut watched = Watched::default();
        assert!(watched.wrote_since_look());
        let look = Look {
            at: at(120),
            composer: agents::screen::Composer::Empty,
            dialog: None,
            works: None,
            background: None,
        };
        watched.glanced(look, at(100));
        for (wrote, again) in [(0, false), (95, true), (100, true), (110, true)] {
            watched.quiet_since = Some(at(wrote));
            assert_eq!(watched.wrote_since_look(), again, "{wrote}");
        }
    }
}
