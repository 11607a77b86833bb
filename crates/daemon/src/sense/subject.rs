//! A running session, as it is looked at.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::{Confirm, wiring};
use pool::{Agent, queue};
use protocol::paths::Paths;
use protocol::{Activity, ActivityState, MessageId, Notes, OsBytes, Session, SessionId, Tag, Timestamp};
use tmux::PaneRef;

use crate::engine::Turn;
use crate::engine::context::pane_of;

/// A running session, as it is looked at.
pub(crate) struct Subject {
    pub(crate) id: SessionId,
    pub(crate) tag: Tag,
    pub(crate) pane: Option<PaneRef>,
    pub(crate) agent: Arc<Agent>,
    /// Start of its incarnation.
    pub(crate) started_at: Timestamp,
    /// Until when its start may take.
    pub(crate) start_limit: Timestamp,
    /// What is known of its agent.
    pub(crate) known: Activity,
    pub(crate) notes: Notes,
    pub(crate) hooked: bool,
    pub(crate) attached: bool,
    /// A prompt that was typed, and that it has not confirmed.
    pub(crate) unconfirmed: Option<MessageId>,
    /// Set where the session is a shell.
    pub(crate) shell: Option<Shell>,
    pub(crate) log: PathBuf,
    /// The file in which its agent records its prompts.
    pub(crate) record: Option<PathBuf>,
}

impl Subject {
    pub(crate) fn new(turn: &Turn<'_>, (paths, kind): (&Paths, &Kind), session: &Session) -> Option<Self> {
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
            hooked: notes.hooked == Some(run.tag),
            known: known.unwrap_or_default(),
            record: record_of(paths, session, &kind.agent, &notes),
            notes,
            agent: Arc::clone(&kind.agent),
            started_at: run.started_at,
            start_limit: run.started_at.after(kind.ready_limit),
            attached: session.attached_clients > 0,
            shell: Shell::of(session, &kind.agent),
            log: paths.session(session.id).join("logs").join(protocol::logs::CURRENT),
        })
    }

    /// Whether this is its session, in the same incarnation.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        session.incarnation.as_ref().is_some_and(|run| run.tag == self.tag)
    }

    /// Whether it is an agent that has not said or shown yet that it is ready.
    pub(crate) fn is_starting(&self, now: Timestamp) -> bool {
        let unready = matches!(self.known.state, ActivityState::Unknown | ActivityState::Attention);
        self.agent.shows_composer() && !self.hooked && unready && now < self.start_limit
    }
}

/// The file in which an agent records its prompts: as its hooks said, or as its wiring chose.
pub(crate) fn record_of(paths: &Paths, session: &Session, agent: &Agent, notes: &Notes) -> Option<PathBuf> {
    let chosen = || wiring::prompt_history(agent.adapter, &paths.session(session.id)).filter(|_| agent.hooks);
    notes.transcript.as_ref().map(|path| path.as_path().to_owned()).or_else(chosen)
}

/// An agent kind, as it is configured.
pub(crate) struct Kind {
    pub(crate) agent: Arc<Agent>,
    /// How long its start may take.
    pub(crate) ready_limit: Duration,
}

/// A session's own program, which is in the foreground of its terminal while it waits for a command.
pub(crate) struct Shell {
    /// Its init, in the same terminal.
    pub(crate) init: Option<u32>,
    /// The name of its program.
    pub(crate) own: OsString,
    /// The program that the watcher saw in the foreground last, under load half a minute ago or more.
    pub(crate) seen: Option<OsBytes>,
}

impl Shell {
    pub(crate) fn of(session: &Session, agent: &Agent) -> Option<Self> {
        if session.spec.agent != "shell" && agent.confirm != Confirm::Prompt {
            return None;
        }
        let own = session.spec.command.first()?.as_path().file_name()?.to_owned();
        let init = session.incarnation.as_ref().and_then(|run| run.init).map(|init| init.pid);
        Some(Self { init, own, seen: session.current_command.clone() })
    }

    /// Compares its program with the one found in the foreground just now, else with the one seen there last.
    pub(crate) fn is_in_front(&self, found: Option<&OsBytes>) -> Option<bool> {
        let command = found.or(self.seen.as_ref())?;
        Some(is_same_program(&self.own, command.as_os_str()))
    }
}

/// Whether a program is the one in the foreground: the kernel keeps 15 bytes of a name, a login shell has a dash.
pub(crate) fn is_same_program(own: &OsStr, foreground: &OsStr) -> bool {
    let short = |name: &OsStr| {
        let name = name.as_bytes();
        let name = name.strip_prefix(b"-").unwrap_or(name);
        name[..name.len().min(15)].to_vec()
    };
    short(own) == short(foreground)
}
