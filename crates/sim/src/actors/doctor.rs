//! A doctor: makes something wrong that the pool has to notice, and asks whether it calls itself healthy.

use std::time::Duration;

use protocol::{Request, Response, Role};
use tokio::time::{Instant, sleep};
use world::tasks::Tasks;

use crate::client::Client;
use crate::climate::Climate;
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

/// Chance that a helper stays away for long, per mille of its absences.
const LONG: u64 = 150;

/// A trouble, each kind of which comes and goes independently of the others.
#[derive(Clone, Copy)]
enum Trouble {
    /// This helper of the daemon is away.
    Absence(&'static str),
    FullDisk,
    LongStop,
    /// Nothing is started, as somebody is about to stop the pool.
    Hold,
}

/// Makes trouble now and then, until no more faults happen.
pub(crate) fn start(land: &Land) {
    let Climate { absences: away, full_disks: full, long_stops: stops, holds, .. } = land.climate;
    let troubles = [
        (Trouble::Absence(WATCHER), away),
        (Trouble::Absence(REAPER), away),
        (Trouble::FullDisk, full),
        (Trouble::LongStop, stops),
        (Trouble::Hold, holds),
    ];
    for (trouble, chance) in troubles.into_iter().filter(|(_, chance)| *chance > 0) {
        land.life.spawn("doctor", Box::pin(run(land.clone(), trouble, chance)));
    }
}

/// Makes one kind of trouble now and then.
async fn run(land: Land, trouble: Trouble, chance: u64) {
    let name = match trouble {
        Trouble::Absence(helper) => format!("{helper}-away"),
        Trouble::FullDisk => "full-disk".to_owned(),
        Trouble::LongStop => "long-stop".to_owned(),
        Trouble::Hold => "hold".to_owned(),
    };
    let mut n = 0;
    while !land.heals() {
        let part = format!("{name}:{n}");
        let mut rng = land.rng(&part);
        sleep(Duration::from_millis(rng.between(500, 8000))).await;
        if land.suffers(&mut rng, chance) && land.plan.has(&part) {
            match trouble {
                Trouble::Absence(helper) => absence(&land, helper, &mut rng).await,
                Trouble::FullDisk => full_disk(&land, &mut rng).await,
                Trouble::LongStop => long_stop(&land).await,
                Trouble::Hold => hold(&land, &mut rng).await,
            }
        }
        n += 1;
    }
}

/// Keeps a helper of the daemon away for a while.
async fn absence(land: &Land, helper: &'static str, rng: &mut Rng) {
    let most = if rng.per_mille(LONG) { 60_000 } else { 10_000 };
    land.judge.count(format!("fault:absence of {helper}"));
    land.trace.tell(|| format!("{helper} is away"));
    land.set_away(helper, true);
    sleep(Duration::from_millis(rng.between(500, most))).await;
    if land.judge.helper_gone_for(helper, KNOWN_WITHIN) {
        check(land, helper, || land.judge.helper_gone_for(helper, KNOWN_WITHIN)).await;
    }
    land.set_away(helper, false);
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
    let (until, mut was_watched) = (Instant::now() + SILENT_WITHIN, true);
    while Instant::now() < until {
        sleep(Duration::from_millis(500)).await;
        was_watched &= !land.is_away(WATCHER);
        // Somebody else has continued it, or it has died.
        if !land.tmux.is_stopped() {
            return;
        }
    }
    // A watcher that has just come back may not have noticed yet.
    if was_watched {
        check(land, "", || land.tmux.is_stopped()).await;
    }
    land.tmux.set_stopped(false);
}

/// Begins to stop the pool, as `poolctl down` does, and calls it off after a while.
async fn hold(land: &Land, rng: &mut Rng) {
    let Some(mut client) = Client::connect(&land.net, Role::Client, None).await else { return };
    if matches!(client.call(None, Request::HoldStarts).await, Some(Ok(_))) {
        land.judge.count("person:down called off");
        land.trace.tell(|| "somebody begins to stop the pool".to_owned());
        sleep(Duration::from_millis(rng.between(100, 10_000))).await;
    }
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
