//! The watcher: reports the state of tmux when something changes, when asked, and at intervals.

use std::time::Duration;

use protocol::reply::WatcherCommand;
use protocol::request::{Observe, View};
use protocol::{Call, Frame, Request, Role, frame, millis};
use tmux::{Driver, listing};
use tokio::time::{Instant, sleep, timeout};
use world::clock::Clock;

use crate::actors::doctor::WATCHER;
use crate::client::Client;
use crate::land::Land;
use crate::rng::Rng;

/// Time between two reports.
const HEARTBEAT: Duration = Duration::from_millis(1500);

/// Watches, for ever.
pub(crate) async fn run(land: Land) {
    let mut rng = land.rng("watcher");
    loop {
        let watcher = rng.next();
        if !land.is_away(WATCHER)
            && let Some(client) = Client::connect(&land.net, Role::Watcher, None).await
        {
            land.judge.helper(WATCHER, true);
            watch(&land, client, watcher, &mut rng).await;
            land.judge.helper(WATCHER, false);
        }
        sleep(Duration::from_millis(rng.between(20, 500))).await;
    }
}

async fn watch(land: &Land, mut client: Client, watcher: u64, rng: &mut Rng) -> Option<()> {
    let (mut asked, mut call) = (0, 0);
    while !land.is_away(WATCHER) {
        let began = Instant::now();
        let listed = land.tmux.observe().await;
        let state = listing::observed_state(listed, |pid| land.machine.identify(pid));
        call += 1;
        if land.suffers(rng, land.climate.helper_faults) {
            // A report is lost: there is a gap.
            call += 1;
        }
        if land.suffers(rng, land.climate.helper_faults) {
            sleep(Duration::from_millis(rng.between(100, 20_000))).await;
        }
        if land.suffers(rng, land.climate.helper_faults) {
            return None;
        }
        let observe = Observe {
            watcher,
            seq: call,
            asked,
            age_ms: millis(began.elapsed()),
            sent_at_ms: Some(millis(land.clock.awake())),
            complete: true,
            view: View::Snapshot { state, part: 0, more: false },
        };
        if land.suffers(rng, land.climate.helper_faults) {
            // On a busy machine the report waits in the socket.
            sleep(Duration::from_millis(rng.between(10, 3000))).await;
        }
        let report = Call { id: call, op: None, lock: None, request: Request::Observe(observe) };
        client.send(&frame::encode(&report).ok()?).await?;
        let until = Instant::now() + HEARTBEAT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, client.frame()).await {
                Err(_) => break,
                Ok(Some(Frame::Command(WatcherCommand::Snapshot { n }))) => {
                    asked = n;
                    break;
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
            }
        }
    }
    None
}
