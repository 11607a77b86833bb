//! `worker add`: a worker that the pool starts by itself.

use std::sync::Arc;

use protocol::request::AddWorker;
use protocol::{Event, Reply};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::sense::user_dirs;
use crate::verb::session_view;

pub(super) async fn add(daemon: &Arc<Daemon>, op: &ClientOperation, asked: AddWorker) -> Reply {
    user_dirs::check(daemon, asked.cwd.as_path()).await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let (settings, poolctl) = (context.settings(), context.poolctl());
        let session = pool::worker::configure::add(turn.pool(), &settings, &poolctl, &asked, turn.now())?;
        let id = session.id;
        turn.emit(Event::SessionCreated(Box::new(session)));
        let reply = session_view::reply(turn, &context, id);
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}
