//! Samples for the tests of this crate.

use protocol::reply::{Capacity, Component, QueueCounts, Status, TmuxStatus, TransportHealth};
use protocol::tmux::TmuxTransport;
use protocol::{
    Activity, Epoch, Incarnation, Lifecycle, Limits, Message, MessageId, MessageStatus, Notes, PaneId,
    ProcId, Seq, ServerId, Session, SessionId, SessionView, Size, Spec, Tag, Timestamp, TmuxSessionId,
};

/// A live session with one secret in its environment.
pub(crate) fn session(name: &str) -> SessionView {
    let at = Timestamp(1_700_000_000_000);
    let incarnation = Incarnation {
        server: Some(ServerId { process: ProcId { pid: 50, start: 5 }, started_at: 1_700_000_000 }),
        session: Some(TmuxSessionId(3)),
        pane: Some(PaneId(4)),
        init: Some(ProcId { pid: 60, start: 6 }),
        agent: Some(ProcId { pid: 61, start: 7 }),
        ..Incarnation::intended(Tag([7; 16]), at)
    };
    let spec = Spec {
        agent: "shell".into(),
        command: vec!["sh".into()],
        cwd: "/tmp".into(),
        env: vec![("PASSWORD".into(), "hunter2".into())],
        size: Size { cols: 200, rows: 50 },
        start_args: Vec::new(),
        resume_args: Vec::new(),
        limits: Limits::default(),
        context_limit: None,
        separate_stderr: false,
    };
    let (id, names) = (SessionId(1), (name.parse().unwrap(), name.parse().unwrap()));
    let intended = Session::intended(id, names, "/state/sessions/sess_1".into(), spec, incarnation);
    let session = Session {
        lifecycle: Lifecycle::Live,
        verified_at: Some(at),
        current_command: Some("sh".into()),
        ..intended
    };
    SessionView {
        session,
        queue: QueueCounts::default(),
        tmux_socket: "/state/run/tmux.sock".into(),
        lock: None,
        current_dir: Some("/tmp/sub".into()),
        processes: Vec::new(),
        usage: None,
        parkable: false,
        slot_wait: None,
        activity: Activity::default(),
        notes: Notes::default(),
        thought: None,
        waits: None,
        confirm: "none".into(),
        theme: None,
        replay: None,
        transport_health: TransportHealth::default(),
        plan: None,
        files: Vec::new(),
        error_patterns: Vec::new(),
    }
}

/// A queued message of `sess_1`.
pub(crate) fn message(id: u64) -> Message {
    Message {
        id: MessageId(id),
        session: SessionId(1),
        ordinal: 1,
        kind: "prompt".into(),
        key: None,
        op: None,
        origin: "cli".into(),
        cause: None,
        hops: 0,
        priority: 0,
        size: 5,
        digest: 1,
        enter: true,
        max_attempts: 5,
        created_at: Timestamp(1_700_000_000_000),
        expires_at: None,
        in_doubt: None,
        status: MessageStatus { changed_at: Timestamp(1_700_000_000_000), ..MessageStatus::default() },
        steps: Vec::new(),
        deadline_at: None,
    }
}

/// The status of a healthy pool with one session.
pub(crate) fn status() -> Status {
    let component = |name: &str| Component {
        name: name.into(),
        connected: true,
        build: Some("0.1.0".into()),
        pid: Some(70),
        since: Timestamp(0),
    };
    let server = ServerId { process: ProcId { pid: 50, start: 5 }, started_at: 1_700_000_000 };
    Status {
        pool: "default".into(),
        build: "poold 0.1.0".into(),
        process: ProcId { pid: 40, start: 4 },
        epoch: Epoch(1),
        seq: Seq(9),
        started_at: Timestamp(0),
        components: vec![component("tmux-watch"), component("reaper")],
        tmux: TmuxStatus {
            socket: "/state/run/tmux.sock".into(),
            state: "up".into(),
            detail: None,
            means: Some(TmuxTransport::Native),
            open_files: Some((37, 65_536)),
            server: Some(server),
            seen_at: None,
        },
        sessions: vec![("live".into(), 1)],
        slots_used: 1,
        slots_max: 16,
        queue: QueueCounts::default(),
        foreign: Vec::new(),
        database_bytes: 1024,
        quarantined: 0,
        free_bytes: Some(8 << 30),
        breakers: Vec::new(),
        generators: 0,
        state_dir: "/state".into(),
        problems: Vec::new(),
        room: Capacity::default(),
        asking: Vec::new(),
        inbox: 0,
        stuck: Vec::new(),
    }
}
