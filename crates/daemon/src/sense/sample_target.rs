//! A running session, as the sampler needs it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::{Confirm, wiring};
use pool::{Agent, queue};
use process::inspect::tty::ShellState;
use protocol::{
    Activity, ActivityState, Incarnation, MessageId, Notes, OsBytes, Paths, ProcId, Session, SessionId, Tag,
    Timestamp,
};
use tmux::PaneRef;
use world::processes::Foreground;

use crate::engine::{Turn, pane_of, process_of};

/// A running session to be sampled.
pub(crate) struct SampleTarget {
    pub(crate) id: SessionId,
    pub(crate) tag: Tag,
    pub(crate) pane: Option<PaneRef>,
    /// The process of its program, or else of its init.
    pub(crate) process: Option<ProcId>,
    pub(crate) agent: Arc<Agent>,
    /// Start of its incarnation.
    pub(crate) started_at: Timestamp,
    /// True until the limit of its start.
    pub(crate) may_start: bool,
    /// The recorded activity of its agent.
    pub(crate) known: Activity,
    pub(crate) notes: Notes,
    /// True if a hook of this incarnation has reported.
    pub(crate) hooked: bool,
    /// True if a client is attached.
    pub(crate) attached: bool,
    /// A prompt that was typed and not confirmed.
    pub(crate) unconfirmed: Option<MessageId>,
    /// Time of the last activity that tmux knew of at the adoption; none for a session that the pool created.
    pub(crate) active_before_adoption: Option<Timestamp>,
    /// The shell, if the session is one.
    pub(crate) shell: Option<ShellProgram>,
    /// The current part of its log.
    pub(crate) log: PathBuf,
    /// The file in which its agent records its prompts.
    pub(crate) record: Option<PathBuf>,
}

impl SampleTarget {
    /// A running session without any record, for tests.
    #[cfg(test)]
    pub(crate) fn plain((id, tag): (SessionId, Tag), log: &std::path::Path) -> Self {
        Self {
            id,
            tag,
            pane: None,
            process: None,
            agent: Arc::default(),
            started_at: Timestamp(0),
            may_start: false,
            known: Activity::default(),
            notes: Notes::default(),
            hooked: false,
            attached: false,
            unconfirmed: None,
            active_before_adoption: None,
            shell: None,
            log: log.to_owned(),
            record: None,
        }
    }

    pub(crate) fn new(
        turn: &Turn<'_>,
        (paths, kind): (&Paths, &AgentKind),
        session: &Session,
    ) -> Option<Self> {
        let run = session.incarnation.as_ref()?;
        let known = turn.pool().activity_in(session.id, run.tag).cloned();
        let notes = turn.pool().notes(session.id).cloned().unwrap_or_default();
        let unconfirmed =
            queue::held_prompt(turn.pool(), session.id).filter(|open| open.state.is_unconfirmed());
        Some(Self {
            unconfirmed: unconfirmed.map(|open| open.id),
            id: session.id,
            tag: run.tag,
            pane: pane_of(run),
            process: process_of(run),
            hooked: notes.hooked == Some(run.tag),
            known: known.unwrap_or_default(),
            record: record_of(paths, session, &kind.agent, &notes),
            notes,
            agent: Arc::clone(&kind.agent),
            started_at: run.started_at,
            may_start: turn.age(run.started_at) < kind.ready_limit,
            attached: session.attached_clients > 0,
            active_before_adoption: run.is_adopted().then_some(session.last_activity_at.min(run.started_at)),
            shell: ShellProgram::of(turn, session, kind),
            log: paths.logs_of(session.id).join(protocol::logs::CURRENT),
        })
    }

    /// True if the session is this one, in the same incarnation.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        session.is_run(self.tag)
    }

    /// True if its agent has not reported or shown yet that it is ready, within the limit.
    pub(crate) fn is_starting(&self) -> bool {
        let unready = matches!(self.known.state, ActivityState::Unknown | ActivityState::Attention);
        self.agent.shows_composer() && !self.hooked && unready && self.may_start
    }
}

/// Returns the file in which an agent records its prompts: reported by its hooks, or chosen by its wiring.
pub(crate) fn record_of(paths: &Paths, session: &Session, agent: &Agent, notes: &Notes) -> Option<PathBuf> {
    let chosen = || wiring::prompt_history(agent.adapter, &paths.session(session.id)).filter(|_| agent.hooks);
    notes.transcript.as_ref().map(|path| path.as_path().to_owned()).or_else(chosen)
}

/// An agent kind, as configured.
pub(crate) struct AgentKind {
    pub(crate) agent: Arc<Agent>,
    /// Maximum duration of its start.
    pub(crate) ready_limit: Duration,
}

/// A shell: a program that is in the foreground of its terminal while it waits for a command.
pub(crate) struct ShellProgram {
    /// The process id of its init, in the same terminal.
    pub(crate) init: Option<u32>,
    /// Its program, which leads its process group.
    pub(crate) program: Option<ProcId>,
    /// The name of its program.
    pub(crate) own: OsString,
    /// True if it is one that edits its lines.
    pub(crate) is_line_editor: bool,
    /// True if it was seen at its line editor, or has just started, and may still run its user's start files.
    pub(crate) edits_lines: bool,
    /// The program that the watcher last saw in the foreground; under load, this may be half a minute old.
    pub(crate) last_seen: Option<OsBytes>,
}

impl ShellProgram {
    pub(crate) fn of(turn: &Turn<'_>, session: &Session, kind: &AgentKind) -> Option<Self> {
        if session.spec.agent != "shell" && kind.agent.confirm != Confirm::Prompt {
            return None;
        }
        let own = session.spec.command.first()?.as_path().file_name()?.to_owned();
        let run = session.incarnation.as_ref();
        let init = run.and_then(|run| run.init).map(|init| init.pid);
        let program = run.and_then(|run| run.agent);
        let is_line_editor = is_line_editor(&session.spec.command);
        let is_known = |run: &Incarnation| {
            turn.age(run.started_at) < kind.ready_limit || turn.volatile.prompts.has_line_editor(run.tag)
        };
        let edits_lines = is_line_editor && run.is_some_and(is_known);
        Some(Self {
            init,
            program,
            own,
            is_line_editor,
            edits_lines,
            last_seen: session.current_command.clone(),
        })
    }

    /// True if the shell is in the foreground. This is told by the process group found just now, because the name of
    /// the program may differ from that of its command (`env dash`); otherwise by the name of the program that was seen
    /// last. `None` if neither is known.
    pub(crate) fn is_in_foreground(&self, found: Option<&Foreground>) -> Option<bool> {
        if let Some((found, program)) = found.zip(self.program) {
            return Some(found.group == program.pid);
        }
        let command = found.map(|found| &found.command).or(self.last_seen.as_ref())?;
        Some(is_same_program(&self.own, command.as_os_str()))
    }

    /// True if the shell waits for a command: it is in the foreground, and runs nothing in itself.
    pub(crate) fn is_at_prompt(
        &self,
        found: Option<&Foreground>,
        state: Option<&ShellState>,
    ) -> Option<bool> {
        let runs = state.is_some_and(|state| self.runs_builtin(found, state));
        self.is_in_foreground(found).map(|own| own && !runs)
    }

    /// True if the shell, which is in the foreground, itself runs something or `$(…)`. Another program may have taken
    /// its place since (`exec`).
    pub(crate) fn runs_builtin(&self, found: Option<&Foreground>, state: &ShellState) -> bool {
        let is_own = found.is_none_or(|found| is_same_program(&self.own, found.command.as_os_str()));
        !state.in_foreground || self.edits_lines && is_own && !state.edits_line()
    }
}

/// Shells that edit their lines, and show what is typed as it is.
const LINE_EDITORS: [&str; 3] = ["bash", "zsh", "fish"];

/// Their options with a value.
const WITH_VALUE: [&[u8]; 7] = [b"--rcfile", b"--init-file", b"-o", b"+o", b"-O", b"+O", b"-C"];

/// True if a command is such a shell for a person: it runs no script, and its line editor is not turned off.
pub(crate) fn is_line_editor(command: &[OsBytes]) -> bool {
    let Some((program, words)) = command.split_first() else { return false };
    let is_editor = |name: &OsStr| LINE_EDITORS.iter().any(|editor| name == *editor);
    let mut has_value = false;
    program.as_path().file_name().is_some_and(is_editor)
        && words.iter().all(|word| {
            let is_value = std::mem::replace(&mut has_value, WITH_VALUE.contains(&word.0.as_slice()));
            let is_option = matches!(word.0.first(), Some(b'-' | b'+'));
            is_value || is_option && !matches!(word.0.as_slice(), b"-c" | b"--noediting")
        })
}

/// True if both are the same program: the kernel keeps 15 bytes of a name, and that of a login shell begins
/// with a dash.
pub(crate) fn is_same_program(own: &OsStr, foreground: &OsStr) -> bool {
    let short = |name: &OsStr| {
        let name = name.as_bytes();
        let name = name.strip_prefix(b"-").unwrap_or(name);
        name[..name.len().min(15)].to_vec()
    };
    short(own) == short(foreground)
}

#[cfg(test)]
mod tests {
    use super::is_line_editor;

    #[test]
    fn a_shell_for_a_person_edits_its_lines() {
        let edits = |line: &str| is_line_editor(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        for line in ["bash", "/bin/bash --norc -i", "zsh -l", "fish", "bash --rcfile rc -i", "bash -o vi"] {
            assert!(edits(line), "{line}");
        }
        for line in ["dash", "bash repl.sh", "bash -c ls", "bash --noediting", "env bash", "python3 -q"] {
            assert!(!edits(line), "{line}");
        }
    }
}
