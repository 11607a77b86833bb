//! Harm: what happens to the daemon, the tmux server, the clock and the database of a run, until all faults end.

use std::time::Duration;

use protocol::{OsBytes, Request, Role};
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::Client;
use crate::daemon_process::DaemonProcess;
use crate::judge::timeline::Promises;
use crate::land::Land;
use crate::rng::Rng;
use crate::world::disk::{Fault, FaultKind};
use crate::world::machine::Kind;

/// Time after the end of a daemon within which every client has read the daemon's last answers.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Time between two standstills of the daemon, at least: its clients wait.
const STANDSTILL_PAUSE: Duration = Duration::from_secs(60);

/// The harms of a run so far.
#[derive(Default)]
pub(crate) struct Harms {
    count: u64,
    /// The copy of the database that somebody keeps.
    backup: Option<Backup>,
}

/// A copy of the database, with what was promised before and after it was made.
struct Backup {
    image: Vec<u8>,
    promised: (Promises, Promises),
}

impl Harms {
    /// Does some harm after a while, perhaps.
    pub(crate) async fn next(&mut self, land: &Land, daemon: DaemonProcess) -> DaemonProcess {
        let mut rng = land.rng(&format!("harm{}", self.count));
        sleep(Duration::from_millis(rng.between(1, 1 + land.climate.pause_ms))).await;
        stand_still(land, &daemon, self.count);
        let daemon = harm(land, daemon, (self.count, &mut rng)).await;
        let part = format!("backup:{}", self.count);
        let mut rng = land.rng(&part);
        self.count += 1;
        if !rng.per_mille(land.climate.backups) || !land.plan.has(&part) {
            return daemon;
        }
        match self.backup.take() {
            Some(backup) => put_back(land, daemon, (backup, &mut rng)).await,
            None => {
                self.backup = back_up(land).await;
                daemon
            }
        }
    }
}

/// Stops the whole daemon for a while, perhaps.
fn stand_still(land: &Land, daemon: &DaemonProcess, n: u64) {
    let part = format!("standstill:{n}");
    let mut rng = land.rng(&part);
    let may = !land.judge.stood_still_within(STANDSTILL_PAUSE);
    if may && rng.per_mille(land.climate.standstills) && land.plan.has(&part) {
        let until = Instant::now() + Duration::from_millis(rng.between(2000, 60_000));
        land.judge.count("fault:standstill");
        land.trace.tell(|| "poold stands still".to_owned());
        daemon.life.stand_still(until);
        land.judge.stands_still(until);
    }
}

/// Makes a backup, as `poolctl backup` does. `None` if the daemon does not answer.
async fn back_up(land: &Land) -> Option<Backup> {
    let path = land.paths.state.join("backup");
    let before = land.judge.promises();
    let mut client = Client::connect(&land.net, Role::Client, None).await?;
    client.call(None, Request::Backup { path: OsBytes::from(path.as_os_str()) }).await?.ok()?;
    let promised = (before, land.judge.promises());
    let image = std::fs::read(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    land.judge.count("person:backup");
    land.trace.tell(|| "somebody makes a backup".to_owned());
    Some(Backup { image, promised })
}

/// Ends the daemon, and puts the backup in the place of its database.
async fn put_back(land: &Land, daemon: DaemonProcess, (backup, rng): (Backup, &mut Rng)) -> DaemonProcess {
    land.judge.count("person:put-back");
    if rng.per_mille(500) {
        end(land, &daemon).await;
    }
    daemon.kill(land).await;
    if rng.per_mille(500) {
        land.tmux.kill_server();
    }
    sleep(LAST_WORDS).await;
    land.medium.replace(backup.image);
    land.judge.went_back(backup.promised);
    land.trace.tell(|| "somebody puts the backup back".to_owned());
    DaemonProcess::start(land, None)
}

/// Does some harm, perhaps.
async fn harm(land: &Land, daemon: DaemonProcess, (n, rng): (u64, &mut Rng)) -> DaemonProcess {
    let climate = &land.climate;
    let happens =
        |rng: &mut Rng, chance, what| rng.per_mille(chance) && land.plan.has(&format!("{what}:{n}"));
    if happens(rng, climate.server_deaths, "server-death") {
        land.trace.tell(|| "the tmux server dies".to_owned());
        land.judge.count("fault:server-death");
        land.tmux.kill_server();
    }
    if happens(rng, climate.server_stops, "server-stop") {
        land.trace.tell(|| "the tmux server stops".to_owned());
        land.judge.count("fault:server-stop");
        land.tmux.set_stopped(true);
        let (tmux, for_ms) = (land.tmux.clone(), rng.between(100, 20_000));
        land.later("continue", for_ms, move || tmux.set_stopped(false));
    }
    if happens(rng, climate.socket_losses, "socket-loss") {
        land.trace.tell(|| "the socket of tmux is gone".to_owned());
        land.judge.count("fault:socket-loss");
        land.tmux.set_unreachable(true);
        let (tmux, for_ms) = (land.tmux.clone(), rng.between(100, 20_000));
        land.later("socket", for_ms, move || tmux.set_unreachable(false));
    }
    if happens(rng, climate.clock_steps, "clock") {
        let by = i64::try_from(rng.between(0, 7_200_000)).unwrap_or(0) - 3_600_000;
        land.trace.tell(|| format!("the clock is set by {by} ms"));
        land.judge.count("fault:clock");
        land.clock.step(by);
    }
    if happens(rng, climate.process_kills, "process-kill")
        && let Some(killed) = rng.pick(&land.machine.living()).filter(|found| is_fair_game(found.kind))
    {
        land.trace.tell(|| format!("{:?} {} is killed", killed.kind, killed.id));
        land.judge.count(format!("fault:kill-{:?}", killed.kind));
        land.machine.kill(killed.id);
    }
    if happens(rng, climate.attaches, "attach") {
        land.judge.count("person:attach");
        land.tmux.attach_somewhere(rng);
    }
    if happens(rng, climate.kills, "daemon-kill") {
        return kill_daemon(land, daemon, rng).await;
    }
    revive(land, daemon).await
}

/// True for processes that somebody may kill by hand.
fn is_fair_game(kind: Kind) -> bool {
    matches!(kind, Kind::Init | Kind::Agent | Kind::Host | Kind::Worker | Kind::Foreign)
}

/// Starts the daemon again if it has ended.
pub(crate) async fn revive(land: &Land, daemon: DaemonProcess) -> DaemonProcess {
    match daemon.result() {
        None if !daemon.life.is_dead() => daemon,
        result => {
            land.trace.tell(|| format!("poold has ended: {result:?}"));
            daemon.kill(land).await;
            DaemonProcess::start(land, None)
        }
    }
}

async fn kill_daemon(land: &Land, daemon: DaemonProcess, rng: &mut Rng) -> DaemonProcess {
    let is_dirty = rng.per_mille(land.climate.dirty_deaths);
    let mut next_fault = None;
    if is_dirty {
        let kind = if rng.per_mille(700) { FaultKind::Death } else { FaultKind::Failure };
        let fault = Fault { after: rng.below(12), kind };
        land.judge.count(format!("fault:disk-{kind:?}"));
        land.trace.tell(|| format!("the disk: {fault:?}"));
        daemon.faults.plan(fault);
        let until = Instant::now() + Duration::from_secs(5);
        while !daemon.life.is_dead() && daemon.result().is_none() && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        if rng.per_mille(200) {
            next_fault = Some(Fault { after: rng.below(40), kind: FaultKind::Death });
        }
    } else if rng.per_mille(200) {
        land.judge.count("fault:stop");
        land.trace.tell(|| "poold is told to end".to_owned());
        end(land, &daemon).await;
    } else {
        land.judge.count("fault:kill");
    }
    daemon.kill(land).await;
    if is_dirty && rng.per_mille(500) {
        land.judge.count("fault:power");
        land.trace.tell(|| "the power is cut".to_owned());
        land.medium.cut_power(rng);
        land.tmux.kill_server();
        land.machine.reboot();
        land.tear_files();
        land.clock.reboot();
    }
    sleep(Duration::from_millis(rng.below(3000))).await;
    DaemonProcess::start(land, next_fault)
}

/// Tells the daemon to end, and waits until it has.
async fn end(land: &Land, daemon: &DaemonProcess) {
    if let Some(until) = daemon.life.still_until() {
        sleep_until(until).await;
    }
    daemon.stop();
    land.judge.note_stopping(!daemon.faults.is_planned());
    let until = Instant::now() + Duration::from_secs(10);
    while daemon.result().is_none() && !daemon.life.is_dead() && Instant::now() < until {
        sleep(Duration::from_millis(20)).await;
    }
    land.judge.note_stopping(false);
    if daemon.result().is_none() && !daemon.life.is_dead() {
        land.judge.violated("O2: poold did not end within 10 s of being told to".to_owned());
    }
}
