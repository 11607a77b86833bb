//! `stats`: the resource usage of one or all running sessions.

use std::sync::Arc;

use protocol::reply::UsageView;
use protocol::{ErrorCode, Refusal, Reply, Response, Session, SessionRef};

use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::host::blocking_pool::Purpose;
use crate::verb::usage;

pub(super) async fn stats(daemon: &Arc<Daemon>, wanted: Option<SessionRef>) -> Reply {
    let find = move |turn: &mut Turn<'_>| match wanted {
        Some(wanted) => Ok(vec![pool::session::resolve(turn.pool(), &wanted)?.clone()]),
        None => Ok(turn.pool().sessions().filter(|s| s.lifecycle.holds_slot()).cloned().collect()),
    };
    let sessions: Vec<Session> = daemon.engine.turn(find).await??;
    let processes = daemon.processes();
    let measure = move || {
        let view = |(s, usage): (&Session, _)| UsageView { session: s.id, name: s.name.clone(), usage };
        sessions.iter().zip(usage::measure(&*processes, &sessions)).map(view).collect()
    };
    match daemon.blocking.with_timeout(Purpose::Processes, measure).await {
        Some(views) => Ok(Response::Usage(views)),
        None => Err(Refusal::new(ErrorCode::Failed, "the process table or the file system does not answer")),
    }
}
