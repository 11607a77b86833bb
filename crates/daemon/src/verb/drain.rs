//! `drain`: the session refuses further messages, works off its queue, and ends.

use std::sync::Arc;

use protocol::policy::DrainDeadline;
use protocol::request::Drain;
use protocol::{Reply, Session};

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::engine::{Daemon, Turn};
use crate::verb::transition::{decide_settled, is_in_transition};
use crate::verb::{one_turn, session_view};

/// Answers at once: queued messages are processed before the session ends.
pub(super) async fn drain(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Drain) -> Reply {
    let Drain { session: wanted, deadline_ms } = asked;
    let id = session_view::resolve(daemon, wanted).await?.id;
    let under = lock::current();
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        lock::check_unlocked(turn, session.id, under)?;
        let deadline = deadline_ms.map(|after_ms| DrainDeadline { since: turn.now(), after_ms });
        pool::session::drain(turn.pool(), session, deadline)
    };
    let decide = || one_turn::decide(daemon, op, id.into(), decide);
    decide_settled(daemon, id, is_in_transition, decide).await
}
