//! What sessions use: `stats`, and a part of `show`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use process::tree::Table;
use protocol::reply::UsageView;
use protocol::usage::Usage;
use protocol::{ErrorCode, Refusal, Reply, Response, Session, SessionRef};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::disk_usage::disk_use;
use crate::sense::usage;

/// How long counting the files of one session may take.
const DISK_LIMIT: Duration = Duration::from_millis(500);

pub(super) async fn usage(daemon: &Arc<Daemon>, wanted: Option<SessionRef>) -> Reply {
    let find = move |turn: &mut Turn<'_>| match wanted {
        Some(wanted) => Ok(vec![pool::admit::resolve(turn.pool(), &wanted)?.clone()]),
        None => Ok(turn.pool().sessions().filter(|s| s.lifecycle.holds_slot()).cloned().collect()),
    };
    let sessions: Vec<Session> = daemon.engine.turn(find).await??;
    let look = move || {
        let table = Table::read().ok();
        let measured = |s: &Session| measured_in(table.as_ref(), s);
        let shown = |s: &Session| UsageView { session: s.id, name: s.name.clone(), usage: measured(s) };
        sessions.iter().map(shown).collect()
    };
    match blocking::limited(Purpose::Processes, look).await {
        Some(views) => Ok(Response::Usage(views)),
        None => Err(Refusal::new(ErrorCode::Failed, "the process table or the file system does not answer")),
    }
}

/// What a session uses now; nothing but disk where it does not run.
pub(super) fn measured(session: &Session) -> Usage {
    measured_in(Table::read().ok().as_ref(), session)
}

fn measured_in(table: Option<&Table>, session: &Session) -> Usage {
    let dir = session.dir.as_path();
    let until = |limit: Duration| Instant::now() + limit;
    Usage {
        disk: disk_use(dir, until(DISK_LIMIT)),
        log: disk_use(&dir.join("logs"), until(DISK_LIMIT)),
        ..table.and_then(|table| usage::usage_in(table, session)).unwrap_or_default()
    }
}
