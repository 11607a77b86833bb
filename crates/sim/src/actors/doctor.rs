//! A doctor: makes something wrong that the pool has to notice, and asks whether it calls itself healthy.

use std::time::Duration;

use protocol::{Request, Response, Role};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::land::Land;
use crate::rng::Rng;

/// The helpers of the daemon, as the status names them.
pub(crate) const WATCHER: &str = "tmux-watch";
pub(crate) const REAPER: &str = "reaper";

/// Free disk space, in bytes, below which the pool takes no messages.
pub(crate) const RESERVE: u64 = 64 << 20;

/// Time within which the pool has to know of a trouble.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// Time within which it has to know that tmux does not answer.
const SILENT_WITHIN: Duration = Duration::from_secs(40);

/// Makes trouble now and then, until no more faults happen.
pub(crate) async fn run(land: Land) {
    let mut n = 0;
    while !land.heals() {
        let mut rng = land.rng(&format!("doctor{n}"));
        sleep(Duration::from_millis(rng.between(500, 8000))).await;
        let happens = |chance: u64, what: &str, rng: &mut Rng| {
            land.suffers(rng, chance) && land.plan.has(&format!("{what}:{n}"))
        };
        if happens(land.climate.absences, "absence", &mut rng) {
            absence(&land, &mut rng).await;
        }
        if happens(land.climate.full_disks, "full-disk", &mut rng) {
            full_disk(&land, &mut rng).await;
        }
        if happens(land.climate.long_stops, "long-stop", &mut rng) {
            long_stop(&land).await;
        }
        n += 1;
    }
}

/// Keeps a helper of the daemon away for a while.
async fn absence(land: &Land, rng: &mut Rng) {
    let helper = if rng.per_mille(500) { WATCHER } else { REAPER };
    land.judge.count(format!("fault:absence of {helper}"));
    land.trace.tell(|| format!("{helper} is away"));
    land.set_away(Some(helper));
    sleep(Duration::from_millis(rng.between(500, 10_000))).await;
    if land.judge.helper_gone_for(helper, KNOWN_WITHIN) {
        check(land, helper, || land.judge.helper_gone_for(helper, KNOWN_WITHIN)).await;
    }
    land.set_away(None);
}

/// Fills the disk for a while.
async fn full_disk(land: &Land, rng: &mut Rng) {
    land.judge.count("fault:full-disk");
    land.trace.tell(|| "the disk is full".to_owned());
    land.machine.set_full(true);
    sleep(Duration::from_millis(rng.between(500, 20_000))).await;
    check(land, "new messages are refused", || land.machine.full_since().is_some()).await;
    land.machine.set_full(false);
}

/// Stops the tmux server until the pool has to have noticed.
async fn long_stop(land: &Land) {
    if !land.tmux.has_server() {
        return;
    }
    land.judge.count("fault:long-stop");
    land.trace.tell(|| "the tmux server stops for long".to_owned());
    land.tmux.set_stopped(true);
    let until = Instant::now() + SILENT_WITHIN;
    while Instant::now() < until {
        sleep(Duration::from_millis(500)).await;
        // Somebody else has continued it, or it has died.
        if !land.tmux.is_stopped() {
            return;
        }
    }
    check(land, "", || land.tmux.is_stopped()).await;
    land.tmux.set_stopped(false);
}

/// Checks that the status tells a problem with these words, while the trouble `lasts`.
async fn check(land: &Land, words: &str, lasts: impl Fn() -> bool) {
    let Some(mut client) = Client::connect(&land.net, Role::Client, None).await else { return };
    let Some(Ok(Response::Status(status))) = client.call(None, Request::Status).await else { return };
    if !lasts() || land.judge.stood_still_within(KNOWN_WITHIN) {
        return;
    }
    land.judge.count(format!("checked:unhealthy {words}"));
    if !status.problems.iter().any(|problem| problem.contains(words)) {
        let told = status.problems;
        land.judge.violated(format!("O3: the status tells nothing of a trouble ({words:?}): {told:?}"));
    }
}
