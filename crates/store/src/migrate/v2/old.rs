//! What schema 2 had, as it was encoded: by places, not by names.

use std::collections::BTreeMap;

use protocol::life::{Budget, Limits, Policy};
use protocol::reply::{QueueCounts, TreeProcess};
use protocol::session::Size;
use protocol::text::{Name, OsBytes};
use protocol::{
    Exit, Lifecycle, PaneId, ProcId, Reason, Seq, ServerId, SessionId, Tag, Timestamp, TmuxSessionId, Token,
};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Stamped {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) event: Event,
}

/// Encoded by their numbers: the one of interest is the third.
#[derive(Deserialize)]
pub(super) enum Event {
    N0,
    N1,
    SessionCreated(Box<Session>),
}

/// Encoded by their numbers: the one of interest is the fifth.
#[derive(Deserialize)]
pub(super) enum Response {
    N0,
    N1,
    N2,
    N3,
    Session(Box<SessionView>),
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "their places in the encoding")]
pub(super) struct SessionView {
    pub(super) session: Session,
    queue: QueueCounts,
    tmux_socket: OsBytes,
    lock: Option<(Token, String)>,
    current_dir: Option<OsBytes>,
    processes: Vec<TreeProcess>,
}

#[derive(Deserialize)]
pub(super) struct Session {
    pub(super) id: SessionId,
    name: Name,
    workspace: Name,
    dir: OsBytes,
    spec: Spec,
    labels: BTreeMap<String, String>,
    lifecycle: Lifecycle,
    reason: Option<Reason>,
    detail: Option<String>,
    incarnation: Option<Incarnation>,
    incarnations: u32,
    restarts: u32,
    exit: Option<Exit>,
    total_requests: u64,
    recovered: bool,
    created_at: Timestamp,
    changed_at: Timestamp,
    last_activity_at: Timestamp,
    verified_at: Option<Timestamp>,
    current_command: Option<OsBytes>,
    attached_clients: u32,
}

#[derive(Deserialize)]
struct Spec {
    agent: String,
    command: Vec<OsBytes>,
    cwd: OsBytes,
    env: Vec<(OsBytes, OsBytes)>,
    size: Size,
}

#[derive(Deserialize)]
struct Incarnation {
    tag: Tag,
    server: Option<ServerId>,
    session: Option<TmuxSessionId>,
    pane: Option<PaneId>,
    init: Option<ProcId>,
    agent: Option<ProcId>,
    started_at: Timestamp,
    missing_since: Option<Timestamp>,
    dead: bool,
}

impl From<Session> for protocol::Session {
    fn from(old: Session) -> Self {
        Self {
            id: old.id,
            name: old.name,
            workspace: old.workspace,
            dir: old.dir,
            spec: old.spec.into(),
            labels: old.labels,
            lifecycle: old.lifecycle,
            reason: old.reason,
            detail: old.detail,
            incarnation: old.incarnation.map(Into::into),
            incarnations: old.incarnations,
            restarts: old.restarts,
            exit: old.exit,
            total_requests: old.total_requests,
            recovered: old.recovered,
            created_at: old.created_at,
            changed_at: old.changed_at,
            last_activity_at: old.last_activity_at,
            verified_at: old.verified_at,
            current_command: old.current_command,
            attached_clients: old.attached_clients,
            policy: Policy::default(),
            budget: Budget::default(),
            conversation: None,
            account: None,
            lock: None,
        }
    }
}

impl From<Spec> for protocol::Spec {
    fn from(old: Spec) -> Self {
        Self {
            agent: old.agent,
            command: old.command,
            cwd: old.cwd,
            env: old.env,
            size: old.size,
            start_args: Vec::new(),
            resume_args: Vec::new(),
            limits: Limits::default(),
            context_limit: None,
        }
    }
}

impl From<Incarnation> for protocol::Incarnation {
    fn from(old: Incarnation) -> Self {
        Self {
            tag: old.tag,
            server: old.server,
            session: old.session,
            pane: old.pane,
            init: old.init,
            agent: old.agent,
            started_at: old.started_at,
            missing_since: old.missing_since,
            dead: old.dead,
            cgroup: None,
            unenforced: Vec::new(),
            resumed: false,
        }
    }
}
