//! `restart`: ends what runs, and starts the session again.

use crate::verb::ending::{Admit, doom, ended};
use std::sync::Arc;
use std::time::Duration;

use protocol::Reply;
use protocol::request::Restart;
use tokio::time::timeout;

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::hook_spool;

use crate::verb::start::{Again, Starting, start_again};

/// How long files of hooks may hold up a restart.
pub(crate) const HOOKS_LIMIT: Duration = Duration::from_secs(1);

/// Where it fails half-way the session is still to start again, and is once its last run is over.
pub(crate) async fn restart(daemon: &Arc<Daemon>, op: &Op, asked: Restart) -> Reply {
    let admit: Admit = |session| Ok(pool::admit::restart(session));
    let session = doom(daemon, op, (asked.session, asked.grace_ms), admit).await?;
    let ran = session.lifecycle.holds_slot();
    let claim = move |turn: &mut Turn<'_>| turn.volatile.scheduler.begin_start(session.id);
    let starting = daemon.engine.turn(claim).await?.then(|| Starting::new(daemon, session.id));
    ended(daemon, &session).await?;
    // Of the next incarnation what its hooks left says nothing.
    timeout(HOOKS_LIMIT, hook_spool::read_of(daemon, &[session.id])).await.ok();
    let again = Again { ended: ran, fresh: asked.fresh, wait_ms: asked.wait_slot_ms };
    let reply = start_again(daemon, op, session.id, again).await;
    drop(starting);
    reply
}
