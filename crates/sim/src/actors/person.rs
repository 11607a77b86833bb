//! A person who starts programs of their own on the pool's tmux server, which the pool may adopt, also in its own
//! panes, and who types into the terminals of agents.

use std::time::Duration;

use protocol::{PaneId, ProcId};
use tokio::time::sleep;
use world::tasks::Tasks;

use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::Kind;

/// Names of a person's tmux sessions.
pub(crate) const NAMES: u64 = 3;

/// Maximum time for which a person's program runs in a pane of the pool, in milliseconds.
const RESPAWNED_MS: u64 = 60_000;

/// Starts programs and types now and then, until no more faults happen.
pub(crate) async fn run(land: Land) {
    let mut n = 0;
    while !land.heals() {
        let mut rng = land.rng(&format!("person{n}"));
        sleep(Duration::from_millis(rng.between(500, 20_000))).await;
        if land.suffers(&mut rng, land.climate.foreigners) && land.plan.has(&format!("foreign:{n}")) {
            start(&land, &format!("f{}", rng.below(NAMES)));
        }
        let mut rng = land.rng(&format!("typist{n}"));
        if land.suffers(&mut rng, land.climate.typing) && land.plan.has(&format!("typing:{n}")) {
            let stays = land.rng(&format!("draft{n}")).per_mille(600);
            land.life.spawn("typist", Box::pin(type_by_hand(land.clone(), rng, stays)));
        }
        let mut rng = land.rng(&format!("respawner{n}"));
        if land.suffers(&mut rng, land.climate.respawns) && land.plan.has(&format!("respawn:{n}")) {
            respawn(&land, &mut rng);
        }
        n += 1;
    }
}

/// Looks back in copy mode for a while, or begins a line, and enters or deletes it after a while.
async fn type_by_hand(land: Land, mut rng: Rng, stays: bool) {
    let pause = Duration::from_millis(rng.between(100, 30_000));
    if rng.per_mille(300) {
        let Some(pane) = land.tmux.enter_mode(&mut rng) else { return };
        land.judge.count("person:copy-mode");
        land.trace.tell(|| format!("somebody looks back in {}", pane.tag));
        sleep(pause).await;
        return land.tmux.leave_mode(pane);
    }
    let Some(pane) = land.tmux.begin_line(&mut rng, stays).await else { return };
    let enters = rng.per_mille(600);
    land.judge.count(if enters { "person:line" } else { "person:deleted-line" });
    if !stays {
        land.judge.count("person:draft");
    }
    sleep(pause).await;
    land.trace
        .tell(|| format!("somebody {} a line in {}", if enters { "enters" } else { "deletes" }, pane.tag));
    land.tmux.end_line(pane, enters).await;
}

fn start(land: &Land, name: &str) {
    let process = land.machine.start(Kind::Foreign, None, false);
    match land.tmux.add_foreign(name, process) {
        Some(pane) => {
            land.trace.tell(|| format!("somebody starts {name}: {process}"));
            land.judge.count("person:start");
            land.life.spawn("foreign", Box::pin(program(land.clone(), pane, process)));
        }
        None => land.machine.end(process),
    }
}

/// Starts a program in a pane of the pool, in place of what runs there, as `tmux respawn-pane -k` does.
fn respawn(land: &Land, rng: &mut Rng) {
    let process = land.machine.start(Kind::Foreign, None, false);
    let Some(pane) = land.tmux.respawn(rng, process) else { return land.machine.end(process) };
    land.trace.tell(|| format!("somebody starts {process} in the pane of {}", pane.tag));
    land.judge.count("person:respawn");
    let machine = land.machine.clone();
    land.later("respawned", rng.between(1, RESPAWNED_MS), move || machine.end(process));
    land.life.spawn("foreign", Box::pin(program(land.clone(), pane.pane, process)));
}

/// Runs until it is asked to end.
async fn program(land: Land, pane: PaneId, process: ProcId) {
    while land.machine.lives(process) && !land.machine.is_hung_up(process) {
        land.machine.changed().await;
    }
    land.machine.end(process);
    land.tmux.close_foreign(pane, process);
}
