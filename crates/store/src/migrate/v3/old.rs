//! What schema 3 had, as it was encoded: by places, not by names.

use std::collections::BTreeMap;

use protocol::activity::{Activity, Notes};
use protocol::life::{Account, Budget, Conversation, RestartPolicy, Usage};
use protocol::reply::{LockView, QueueCounts, TreeProcess};
use protocol::text::{Name, OsBytes};
use protocol::{Exit, Incarnation, Lifecycle, Reason, Seq, SessionId, Spec, Timestamp, Token};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Stamped {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) event: Event,
}

/// Encoded by their numbers: the ones of interest are the third and the 34th.
#[derive(Deserialize)]
pub(super) enum Event {
    N0,
    N1,
    SessionCreated(Box<Session>),
    N3,
    N4,
    N5,
    N6,
    N7,
    N8,
    N9,
    N10,
    N11,
    N12,
    N13,
    N14,
    N15,
    N16,
    N17,
    N18,
    N19,
    N20,
    N21,
    N22,
    N23,
    N24,
    N25,
    N26,
    N27,
    N28,
    N29,
    N30,
    N31,
    N32,
    SessionPolicyChanged { session: SessionId, policy: Policy },
}

/// Encoded by their numbers: the ones of interest are the fifth and the sixth.
#[derive(Deserialize)]
pub(super) enum Response {
    N0,
    N1,
    N2,
    N3,
    Session(Box<SessionView>),
    Sessions(Vec<SessionView>),
}

#[derive(Deserialize)]
pub(super) struct SessionView {
    session: Session,
    queue: QueueCounts,
    tmux_socket: OsBytes,
    lock: Option<(Token, String)>,
    current_dir: Option<OsBytes>,
    processes: Vec<TreeProcess>,
    usage: Option<Usage>,
    parkable: bool,
    slot_wait: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Session {
    id: SessionId,
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
    policy: Policy,
    budget: Budget,
    conversation: Option<Conversation>,
    account: Option<Account>,
}

#[derive(Deserialize)]
pub(super) struct Policy {
    restart: RestartPolicy,
    max_restarts: Option<u32>,
    idle_timeout_ms: Option<u64>,
    ttl_ms: Option<u64>,
    max_runtime_ms: Option<u64>,
    ephemeral: bool,
    pinned: bool,
}

impl From<SessionView> for protocol::reply::SessionView {
    fn from(old: SessionView) -> Self {
        Self {
            session: old.session.into(),
            queue: old.queue,
            tmux_socket: old.tmux_socket,
            lock: old.lock.map(held),
            current_dir: old.current_dir,
            processes: old.processes,
            usage: old.usage,
            parkable: old.parkable,
            slot_wait: old.slot_wait,
            activity: Activity::default(),
            notes: Notes::default(),
            thought: None,
            waits: None,
            confirm: String::new(),
            theme: None,
        }
    }
}

/// Only the pool's own operations held locks.
fn held((token, purpose): (Token, String)) -> LockView {
    LockView { token, purpose, holder: None, since: None, expires_at: None, inner: None, waiting: 0 }
}

impl From<Session> for protocol::Session {
    fn from(old: Session) -> Self {
        Self {
            id: old.id,
            name: old.name,
            workspace: old.workspace,
            dir: old.dir,
            spec: old.spec,
            labels: old.labels,
            lifecycle: old.lifecycle,
            reason: old.reason,
            detail: old.detail,
            incarnation: old.incarnation,
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
            policy: old.policy.into(),
            budget: old.budget,
            conversation: old.conversation,
            account: old.account,
            lock: None,
        }
    }
}

impl From<Policy> for protocol::life::Policy {
    fn from(old: Policy) -> Self {
        Self {
            restart: old.restart,
            max_restarts: old.max_restarts,
            idle_timeout_ms: old.idle_timeout_ms,
            ttl_ms: old.ttl_ms,
            max_runtime_ms: old.max_runtime_ms,
            ephemeral: old.ephemeral,
            pinned: old.pinned,
            reap: BTreeMap::new(),
        }
    }
}
