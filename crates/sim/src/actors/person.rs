//! A person who starts programs of their own on the pool's tmux server, which the pool may adopt.

use std::time::Duration;

use protocol::ProcId;
use protocol::ids::PaneId;
use tokio::time::sleep;
use world::tasks::Tasks;

use crate::land::Land;
use crate::world::machine::Kind;

/// Names of a person's tmux sessions.
pub(crate) const NAMES: u64 = 3;

/// Starts programs now and then, until no more faults happen.
pub(crate) async fn run(land: Land) {
    let mut n = 0;
    while !land.heals() {
        let mut rng = land.rng(&format!("person{n}"));
        sleep(Duration::from_millis(rng.between(500, 20_000))).await;
        if land.suffers(&mut rng, land.climate.foreigners) && land.plan.has(&format!("foreign:{n}")) {
            start(&land, &format!("f{}", rng.below(NAMES)));
        }
        n += 1;
    }
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

/// Runs until it is asked to end.
async fn program(land: Land, pane: PaneId, process: ProcId) {
    while land.machine.lives(process) && !land.machine.is_hung_up(process) {
        land.machine.changed().await;
    }
    land.machine.end(process);
    land.tmux.close_foreign(pane, process);
}
