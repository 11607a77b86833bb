//! A subscriber: follows the events, and goes on after the last one that it has seen.

use std::time::Duration;

use protocol::request::Subscribe;
use protocol::{Call, Frame, Request, Role, Seq, frame};
use tokio::time::sleep;

use crate::client::Client;
use crate::land::Land;

/// Follows, for ever.
pub(crate) async fn run(land: Land) {
    let mut rng = land.rng("subscriber");
    loop {
        if let Some(client) = Client::connect(&land.net, Role::Subscriber, None).await {
            follow(&land, client).await;
        }
        sleep(Duration::from_millis(rng.between(20, 3000))).await;
    }
}

async fn follow(land: &Land, mut client: Client) -> Option<()> {
    let seen = land.judge.seen();
    let since = (seen != Seq(0)).then_some(seen);
    let call = Call { id: 1, op: None, lock: None, request: Request::Subscribe(Subscribe { since }) };
    client.send(&frame::encode(&call).ok()?).await?;
    loop {
        match client.frame().await? {
            Frame::Event { snapshot: true, .. } => {}
            Frame::Event { stamped, .. } => {
                land.judge.count(format!("event:{}", stamped.event.kind().as_str()));
                land.judge.saw(stamped.seq, false);
            }
            Frame::Synced { seq } => land.judge.saw(seq, true),
            _ => return None,
        }
    }
}
