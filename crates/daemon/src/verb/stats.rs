//! `stats`: the resource usage of one session, or of all that run, and of those whose messages stand still.

use std::sync::Arc;

use protocol::reply::UsageView;
use protocol::{Refusal, Reply, Response, Session, SessionRef};

use crate::engine::{Daemon, Turn};
use crate::verb::{attention, session_usage};

pub(super) async fn stats(daemon: &Arc<Daemon>, wanted: Option<SessionRef>) -> Reply {
    let loaded = daemon.loaded();
    let find = move |turn: &mut Turn<'_>| {
        let stuck = attention::stuck(turn, &loaded.settings.queue);
        let is_listed = |s: &&Session| {
            let runs = s.worker.is_none() && s.lifecycle.holds_slot();
            runs || stuck.iter().any(|lane| lane.session == s.id)
        };
        let sessions = match wanted {
            Some(wanted) => vec![pool::session::resolve(turn.pool(), &wanted)?.clone()],
            None => turn.pool().sessions().filter(is_listed).cloned().collect(),
        };
        Ok((sessions, stuck))
    };
    let (sessions, stuck): (Vec<Session>, _) = daemon.engine.turn(find).await??;
    let sessions: Arc<[Session]> = sessions.into();
    let Some(measured) = session_usage::measure(daemon, &sessions).await else {
        return Err(Refusal::failed("the process table does not answer; try again once it does"));
    };
    let view = |(s, usage): (&Session, _)| {
        let stuck = stuck.iter().filter(|lane| lane.session == s.id).cloned().collect();
        UsageView { session: s.id, name: s.name.clone(), usage, stuck }
    };
    Ok(Response::Usage(sessions.iter().zip(measured).map(view).collect()))
}
