//! Compares the activity and the inbox with the agents that rest at the end of a run: they neither work nor ask.

use std::collections::BTreeSet;

use protocol::{Lifecycle, Request, Response, SessionId, SessionView};

use crate::client::Client;
use crate::land::Land;
use crate::world::machine::Kind;

/// The kinds of items of the inbox by which agents ask.
const ASKS: [&str; 2] = ["permission", "question"];

/// Returns what is said of an agent that rests, and is not so. It may not have been reported yet.
pub(crate) async fn contradiction(
    land: &Land,
    client: &mut Client,
    sessions: &[SessionView],
) -> Option<String> {
    let resting: Vec<&SessionView> = sessions.iter().filter(|found| rests(land, found)).collect();
    land.judge.count("checked:agents that rest");
    let works = |found: &&&SessionView| found.activity.state.is_at_work();
    if let Some(found) = resting.iter().find(works) {
        let (name, activity) = (&found.session.name, &found.activity);
        return Some(format!("the agent of {name} rests, and is said to be {activity:?}"));
    }
    let ids: BTreeSet<SessionId> = resting.iter().map(|found| found.session.id).collect();
    let Some(Ok(Response::Inbox(items))) = client.call(None, Request::Inbox).await else { return None };
    let asks = items.iter().find(|item| ASKS.contains(&item.kind.as_str()) && ids.contains(&item.session));
    asks.map(|item| format!("the agent of {} rests, and the inbox has {item:?}", item.name))
}

/// True if the agent of a session runs, reports what it does, and is in no turn.
fn rests(land: &Land, found: &SessionView) -> bool {
    let session = &found.session;
    let Some(run) = session.incarnation.as_ref().filter(|_| session.lifecycle == Lifecycle::Live) else {
        return false;
    };
    let runs = land.machine.living().iter().any(|of| of.kind == Kind::Agent && of.tag == Some(run.tag));
    runs && land.judge.is_at_rest(run.tag, session.id)
}
