//! A sample of a session from outside: the output of its program, the agent's own record, its screen.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agents::transcript::{RecordedPrompt, TurnEnd};
use agents::{Adapter, transcript};
use pool::agent::{SILENCE, ScreenReading, TerminalMarks, WindowTitle};
use process::inspect::tty::{InputMode, ShellState};
use protocol::{ActivityState, Ask, Source, Timestamp};

use world::processes::{Foreground, Processes};

use world::clock::timestamp;

use crate::host::files;
use crate::sense::log_marks::LogMarks;
use crate::sense::sample_target::SampleTarget;

/// Bytes at the end of the agent's own record that are read.
const RECORD_TAIL: u64 = 128 << 10;

/// Bytes that are read while a prompt is expected in the record: enough for the longest prompt, escaped and recorded
/// several times, and for the entries after it.
const RECORD_TAIL_FOR_PROMPT: u64 = 2 << 20;

/// Maximum lag of a file's time behind the write: the resolution of the system's coarse clock.
const MTIME_LAG: Duration = Duration::from_millis(10);

/// Silence after which a working agent may have stopped without a report.
const STALL: Duration = Duration::from_secs(1);

/// Time after a shell's last output within which it may still begin to run something itself: that output may only be
/// the echo of its user's Enter.
const SHELL_REST: Duration = Duration::from_secs(3);

/// Number of prompts of a record that are kept.
const PROMPTS_MAX: usize = 8;

/// The state of a session between two samples.
#[derive(Default)]
pub(crate) struct SampleState {
    log: LogMarks,
    /// The record when it was last read: its length, its modification time, and how many bytes were to be
    /// read.
    record: (u64, u64, u64),
    record_path: Option<PathBuf>,
    screen_read_at: Option<Timestamp>,
    /// The findings so far, except for the marks and the title.
    found: Sample,
}

/// The result of a sample.
#[derive(Clone, Default)]
pub(crate) struct Sample {
    /// Time of the last output.
    pub(crate) quiet_since: Option<Timestamp>,
    /// True if there is any output: the log of an adopted session begins empty.
    pub(crate) has_output: bool,
    /// True if its log exists and cannot be examined.
    pub(crate) is_log_hidden: bool,
    pub(crate) marks: TerminalMarks,
    pub(crate) title: WindowTitle,
    pub(crate) screen: Option<ScreenReading>,
    /// The agent's last prompts, as its record has them.
    pub(crate) said: Arc<Vec<RecordedPrompt>>,
    /// The end of its last turn.
    pub(crate) ended: Option<TurnEnd>,
    pub(crate) tokens: Option<u64>,
    /// The program in the foreground of a shell's terminal.
    pub(crate) foreground: Option<Foreground>,
    /// The state of the shell that is in the foreground.
    pub(crate) shell: Option<ShellState>,
    /// True if the shell is known to edit its lines; `None` if nobody looked.
    pub(crate) edits_lines: Option<bool>,
    /// True if its program had ended by the end of the sample. Then its silence, or a shell that is alone in the
    /// terminal, says nothing of its activity.
    pub(crate) has_ended: bool,
}

impl SampleState {
    /// True if the agent's own record is worth reading: the agent has stopped, has fallen silent, or may have
    /// got a prompt that it did not confirm.
    pub(crate) fn wants_record(&self, target: &SampleTarget, now: Timestamp) -> bool {
        let silent = self.found.quiet_since.is_some_and(|since| since > now || now.since(since) >= STALL);
        let works = target.known.state.is_at_work();
        target.agent.adapter != Adapter::None && (!works || silent || target.unconfirmed.is_some())
    }

    /// True if only its screen tells what the agent does now.
    pub(crate) fn wants_screen(&self, target: &SampleTarget, now: Timestamp) -> bool {
        if !target.agent.shows_composer() {
            return false;
        }
        if !target.hooked {
            return target.is_starting() || self.wrote_since_screen_read(now);
        }
        let works = target.known.state.is_at_work();
        // An answer at the terminal is reported by no hook, but the agent goes to work after it, and writes. That of a
        // question may be told by the title.
        let is_untold =
            |ask: &Ask| ask.is_left_to_terminal() || !ask.answerable && self.log.title == WindowTitle::Unread;
        if target.known.ask.as_ref().is_some_and(is_untold) && self.wrote_since_screen_read(now) {
            return true;
        }
        let asks = target.known.state == ActivityState::Attention && target.known.source == Source::Screen;
        if (asks || target.known.state == ActivityState::Busy) && self.is_title_unresolved(now) {
            return true;
        }
        let ended =
            target.known.state == ActivityState::Unknown && target.agent.adapter.outlives_conversation();
        let told =
            target.notes.heard_at.into_iter().chain(self.found.quiet_since).chain([target.known.since]);
        let last = told.filter(|at| *at <= now).max();
        let silent = last.is_none_or(|last| now.since(last) >= SILENCE);
        (works || ended) && silent && self.screen_read_at(now) <= last
    }

    /// Returns the result of the last sample.
    pub(crate) fn sample(&self) -> Sample {
        Sample { marks: self.log.marks.clone(), title: self.log.title, ..self.found.clone() }
    }

    /// Returns when the last successful read of its screen began; `None` without one, or if that time is ahead of the
    /// clock, which was then set back.
    fn screen_read_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.screen_read_at.filter(|at| *at <= now)
    }

    /// True if it wrote something after its screen was last read.
    fn wrote_since_screen_read(&self, now: Timestamp) -> bool {
        self.screen_read_at(now)
            .is_none_or(|at| self.found.quiet_since.is_some_and(|wrote| wrote.after(MTIME_LAG) >= at))
    }

    /// True if the window's title says that the agent asks, and its screen was not read since, or is due
    /// again.
    fn is_title_unresolved(&self, now: Timestamp) -> bool {
        let WindowTitle::Asks(since) = self.log.title else { return false };
        self.screen_read_at(now).is_none_or(|at| at <= since || now.since(at) >= SILENCE)
    }

    /// Stores the interpretation of its screen; the read began at this time.
    pub(crate) fn set_screen(&mut self, screen: ScreenReading, began: Timestamp) {
        (self.found.screen, self.screen_read_at) = (Some(screen), Some(began));
    }

    /// Reads what is new in its files, and whether its program runs.
    pub(crate) fn read(&mut self, processes: &dyn Processes, target: &SampleTarget, now: Timestamp) {
        self.read_files(processes, target, now);
        // Read last: if the program still lives now, it lived during all the reads before.
        self.found.has_ended = target.process.is_some_and(|process| processes.has_exited(process));
    }

    fn read_files(&mut self, processes: &dyn Processes, target: &SampleTarget, now: Timestamp) {
        let init = target.shell.as_ref().and_then(|shell| shell.init);
        self.found.foreground = init.and_then(|init| processes.foreground(init));
        if target.attached {
            // An attached client hears the bell itself.
            self.log.marks.bell_at = None;
        }
        let log = std::fs::metadata(&target.log);
        let is_hidden = log.as_ref().is_err_and(|error| error.kind() != ErrorKind::NotFound);
        self.found.is_log_hidden = is_hidden;
        if is_hidden && self.found.quiet_since.is_some() {
            // A log that cannot be examined counts as just written.
            self.found.quiet_since = Some(now);
        }
        if let Ok(meta) = log {
            self.found.has_output = self.found.has_output || meta.len() > 0 || files::has_output(&target.log);
            let before = target.active_before_adoption.filter(|_| !self.found.has_output);
            self.found.quiet_since = quiet_since((&target.log, &meta, now), before);
            match target.agent.adapter {
                Adapter::None => self.log.read_marks(target, &meta, now),
                Adapter::Codex if target.known.state.is_at_work() => self.log.read_title(target, &meta, now),
                _ => {}
            }
        }
        self.read_shell(processes, target, now);
        self.follow_record(target.record.as_ref());
        if let Some(path) = target.record.as_ref().filter(|_| self.wants_record(target, now)) {
            let max = if target.unconfirmed.is_some() { RECORD_TAIL_FOR_PROMPT } else { RECORD_TAIL };
            self.read_record(target.agent.adapter, path, max);
        }
    }

    /// Determines whether a shell in the foreground itself runs something. A shell that has been quiet at its prompt is
    /// not looked at.
    fn read_shell(&mut self, processes: &dyn Processes, target: &SampleTarget, now: Timestamp) {
        let Some(shell) = &target.shell else { return };
        let is_in_front = shell.is_in_foreground(self.found.foreground.as_ref()) == Some(true);
        let stays =
            self.found.shell.is_some_and(|state| !shell.runs_builtin(self.found.foreground.as_ref(), &state));
        if !is_in_front || !stays || self.found.quiet_since.is_none_or(|at| now.since(at) < SHELL_REST) {
            let found =
                shell.program.filter(|_| is_in_front).and_then(|program| processes.shell_state(program));
            self.found.shell = found.map(|state| with_question(state, target));
        }
        if self.found.shell.is_some_and(|state| state.is_at_line_editor()) {
            self.found.edits_lines = Some(true);
        }
        // The shell may have been at its line editor before this start of the daemon, and have run something since.
        let logs = target.log.parent().filter(|_| shell.is_line_editor);
        self.found.edits_lines.get_or_insert_with(|| {
            logs.is_some_and(|logs| logs::has_line_editor(logs, target.tag).unwrap_or_default())
        });
    }

    /// Forgets what the record of another conversation said.
    fn follow_record(&mut self, path: Option<&PathBuf>) {
        if self.record_path.as_ref() != path {
            (self.record, self.record_path) = (Default::default(), path.cloned());
            (self.found.said, self.found.ended, self.found.tokens) = Default::default();
        }
    }

    fn read_record(&mut self, adapter: Adapter, path: &Path, max: u64) {
        let Ok(meta) = std::fs::metadata(path) else { return };
        let state = (meta.len(), written_at(&meta).0, max);
        if self.record == state {
            return;
        }
        let Ok(tail) = files::read_range(path, meta.len().saturating_sub(max), max) else { return };
        self.record = state;
        let mut said = transcript::prompts(adapter, &tail);
        said.drain(..said.len().saturating_sub(PROMPTS_MAX));
        // A last entry without a time was written when the file was.
        if let Some(last) = said.last_mut() {
            last.at = last.at.or(Some(written_at(&meta)));
        }
        self.found.said = Arc::new(said);
        self.found.ended = transcript::turn_end(adapter, &tail);
        self.found.tokens = transcript::tokens(adapter, &tail).or(self.found.tokens);
    }
}

/// Returns the time of the last output. While the log of an adopted session is empty, that is its last activity in
/// tmux.
fn quiet_since(
    (log, meta, now): (&Path, &Metadata, Timestamp),
    active_before_adoption: Option<Timestamp>,
) -> Option<Timestamp> {
    active_before_adoption.or_else(|| files::written(log, meta, now))
}

/// Takes into account what the log of a zsh tells of its questions.
fn with_question(state: ShellState, target: &SampleTarget) -> ShellState {
    let logs = target.log.parent().filter(|_| state.mode == InputMode::ZshLineEditor);
    state.with_question(logs.is_some_and(|logs| logs::asks_about_line(logs, target.tag).unwrap_or_default()))
}

fn written_at(meta: &Metadata) -> Timestamp {
    let modified = meta.modified().unwrap_or(std::time::UNIX_EPOCH);
    timestamp(modified)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::activity::AskKind;
    use protocol::{Activity, SessionId, Tag};

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
        let mut state = SampleState::default();
        state.read_record(Adapter::Claude, &path, RECORD_TAIL);
        assert_eq!(state.sample().said.len(), 0, "it begins before the part that is read");
        // A larger part of the same file is read.
        state.read_record(Adapter::Claude, &path, RECORD_TAIL_FOR_PROMPT);
        let texts: Vec<String> = state.sample().said.iter().map(|said| said.text.clone()).collect();
        assert_eq!(texts, ["first".to_owned(), long.clone(), long]);
    }

    #[test]
    fn w24_what_the_record_of_another_conversation_said_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        fs::write(&path, line("hello")).unwrap();
        let mut state = SampleState::default();
        for (path, prompts) in [(&path, 1), (&path, 1), (&dir.path().join("next"), 0)] {
            state.follow_record(Some(path));
            state.read_record(Adapter::Claude, path, RECORD_TAIL);
            state.found.tokens = Some(9).filter(|_| prompts > 0);
            assert_eq!((state.sample().said.len(), state.sample().tokens.is_some()), (prompts, prompts > 0));
        }
    }

    #[test]
    fn w10_an_adopted_program_is_as_silent_as_it_was_in_tmux() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "").unwrap();
        let before = Timestamp(1_000);
        let meta = fs::metadata(&log).unwrap();
        let now = Timestamp(u64::MAX);
        assert_eq!(quiet_since((&log, &meta, now), Some(before)), Some(before));
        assert!(quiet_since((&log, &meta, now), None).is_some_and(|wrote| wrote > before));
    }

    #[test]
    fn a_log_that_cannot_be_looked_at_any_more_counts_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("logs/output.log");
        let target = SampleTarget::plain((SessionId(1), Tag([1; 16])), &log);
        let processes = world::processes::SystemProcesses;
        let mut state = SampleState::default();
        let mut quiet_since = |now| {
            state.read(&processes, &target, Timestamp(now));
            state.sample().quiet_since
        };
        assert_eq!(quiet_since(1), None, "there is none yet");
        fs::create_dir(dir.path().join("logs")).unwrap();
        fs::write(&log, "text").unwrap();
        assert!(quiet_since(2) > Some(Timestamp(3)), "it was written at this time");
        fs::rename(dir.path().join("logs"), dir.path().join("away")).unwrap();
        fs::write(dir.path().join("logs"), "a file in its place").unwrap();
        assert_eq!(quiet_since(3), Some(Timestamp(3)));
        assert!(state.sample().is_log_hidden);
    }

    #[test]
    fn only_a_regular_file_is_a_record_and_a_failed_read_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut state = SampleState::default();
        state.read_record(Adapter::Claude, &path, RECORD_TAIL);
        assert_eq!((state.sample().said.len(), state.record), (0, Default::default()));
        fs::remove_file(&path).unwrap();
        fs::write(&path, line("hello")).unwrap();
        state.read_record(Adapter::Claude, &path, RECORD_TAIL);
        assert_eq!(state.sample().said[0].text, "hello");
    }

    #[test]
    fn the_screen_is_read_again_once_a_request_may_be_answered_at_the_terminal() {
        let at = |ms: u64| Timestamp(1_000_000 + ms);
        let mut target = SampleTarget::plain((SessionId(1), Tag([1; 16])), Path::new("log"));
        target.agent = Arc::new(pool::Agent { adapter: Adapter::Claude, ..pool::Agent::default() });
        target.hooked = true;
        let mut state = SampleState::default();
        state.found.quiet_since = Some(at(9_900));
        for (kind, answerable, is_read) in [
            (AskKind::Permission, true, false),
            (AskKind::Permission, false, true),
            (AskKind::Question, true, false),
            (AskKind::Question, false, true),
        ] {
            let ask = Ask { id: 1, kind, text: String::new(), tool: None, answerable };
            target.known =
                Activity { state: ActivityState::Attention, ask: Some(ask), ..Activity::default() };
            assert_eq!(state.wants_screen(&target, at(10_000)), is_read, "{kind:?} {answerable}");
        }
        state.screen_read_at = Some(at(9_950));
        assert!(!state.wants_screen(&target, at(10_000)), "it wrote nothing since");
    }

    #[test]
    fn output_during_a_read_of_the_screen_has_it_read_again() {
        let at = |ms: u64| Timestamp(1_000_000 + ms);
        let mut state = SampleState::default();
        let now = at(10_000);
        assert!(state.wrote_since_screen_read(now));
        let screen = ScreenReading { at: at(120), ..ScreenReading::default() };
        state.set_screen(screen, at(100));
        for (wrote, again) in [(0, false), (95, true), (100, true), (110, true)] {
            state.found.quiet_since = Some(at(wrote));
            assert_eq!(state.wrote_since_screen_read(now), again, "{wrote}");
        }
        assert!(state.wrote_since_screen_read(at(50)), "the clock was set back since");
    }
}
