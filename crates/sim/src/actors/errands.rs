//! Requests of clients: messages, settings of sessions, terminals, questions.

use std::collections::BTreeMap;

use protocol::policy::RestartPolicy;
use protocol::request::{
    Capture, ClearContext, Extent, Keys, Label, List, Messages, Prune, Resize, Send, Update,
};
use protocol::thought::{Publish, StreamPosition};
use protocol::{MessageId, OsBytes, Request, SessionRef, Size};

use crate::rng::Rng;

/// The agent's command for a new conversation.
pub(crate) const CLEAR: &str = "/clear";

/// The prompt that tells the agent to continue.
pub(crate) const GO_ON: &str = "go on";

/// Returns a request that changes something about a session, with its name.
pub(super) fn change(rng: &mut Rng, session: SessionRef) -> (&'static str, Request) {
    match rng.below(9) {
        0 => ("update", Request::Update(update(rng, session))),
        1 => {
            let set = BTreeMap::from([("team".to_owned(), rng.below(3).to_string())]);
            ("label", Request::Label(Label { session, set, remove: Vec::new() }))
        }
        2 => ("keys", Request::Keys(Keys { session, keys: vec!["Escape".to_owned()] })),
        3 => {
            let (cols, rows) = (80 + u16::from(rng.per_mille(500)), 24);
            ("resize", Request::Resize(Resize { session, size: Size { cols, rows } }))
        }
        4 => ("dismiss", Request::Dismiss(session)),
        5 => ("clear", Request::Clear(session)),
        6 => ("clear-context", Request::ClearContext(ClearContext { session, origin: "sim".to_owned() })),
        8 => ("publish", Request::Publish(Box::new(thought(rng, session)))),
        _ => ("compact", Request::Compact),
    }
}

fn thought(rng: &mut Rng, target: SessionRef) -> Publish {
    let place = StreamPosition { stream: rng.below(3).to_string(), seq: rng.between(1, 20) };
    let text = Some(rng.below(5).to_string());
    Publish { text, place: rng.per_mille(500).then_some(place), ..Publish::to(target) }
}

pub(super) fn update(rng: &mut Rng, session: SessionRef) -> Update {
    let policy = rng.pick(&[RestartPolicy::No, RestartPolicy::OnFailure, RestartPolicy::Always]).copied();
    Update {
        session,
        restart: policy.filter(|_| rng.per_mille(500)),
        max_restarts: rng.per_mille(500).then(|| u32::try_from(rng.below(3)).unwrap_or(0)),
        idle_timeout_ms: rng.per_mille(300).then(|| rng.between(2000, 60_000)),
        ttl_ms: None,
        max_runtime_ms: rng.per_mille(300).then(|| rng.between(5000, 120_000)),
        reap: BTreeMap::new(),
    }
}

/// Returns a request that changes nothing.
pub(super) fn question(rng: &mut Rng, session: SessionRef, sent: &[MessageId]) -> Request {
    match rng.below(14) {
        0 => Request::Explain(session),
        1 => Request::Usage(Some(session)),
        2 => Request::Usage(None),
        3 => Request::Inbox,
        4 => Request::Generators,
        5 => Request::Snapshot(List { all: true, ..List::default() }),
        6 => Request::Candidates,
        7 => Request::Capture(Capture { session, extent: Extent::Visible, ansi: false }),
        8 => Request::Messages(Messages { session, kinds: Vec::new(), states: Vec::new(), limit: 10 }),
        9 => Request::Logs(session),
        10 => Request::Terminal(session),
        11 => Request::Prune(Prune { older_ms: 0, archive: false, purge: false, dry_run: true }),
        12 => rng.pick(sent).map_or(Request::Check, |id| Request::Body(*id)),
        _ => Request::List(List { all: true, ..List::default() }),
    }
}

/// Returns a message without a time limit, at most once in doubt, in its order.
pub(super) fn message(session: SessionRef, body: String, kind: &str) -> Send {
    Send {
        session,
        body: OsBytes(body.into_bytes()),
        kind: kind.to_owned(),
        origin: "sim".to_owned(),
        enter: true,
        ..Send::default()
    }
}
