//! A person who decides on an agent's request for a permission soon after it is made.

use std::time::Duration;

use protocol::request::Approve;
use protocol::{Request, Role, SessionId};
use tokio::time::sleep;

use crate::client::Client;
use crate::judge::Judge;
use crate::land::Land;
use crate::rng::Rng;

/// Decides on this request, and checks that a decision that is acknowledged has reached its hook.
pub(crate) async fn run(land: Land, (session, ask): (SessionId, u64), mut rng: Rng) {
    sleep(Duration::from_millis(rng.between(50, 5000))).await;
    let Some(mut client) = Client::connect(&land.net, Role::Client, None).await else { return };
    let (deny, reason) = (rng.per_mille(300), Some(Judge::reason_for(ask)));
    let approve = Approve { session: session.into(), deny, ask: Some(ask), reason, answers: Vec::new() };
    land.judge.to_decide(ask, !deny);
    let reply = client.call(Some(land.operation()), Request::Approve(approve)).await;
    let is_done = matches!(reply, Some(Ok(_)));
    land.judge.count(if is_done { "person:approval" } else { "person:approval refused" });
    land.trace.tell(|| format!("somebody answers {ask} of {session}: {is_done}"));
    if is_done && !land.judge.has_decision(ask) {
        land.judge
            .violated(format!("O: the answer to {ask} of {session} is said to be given, and is not there"));
    }
}
