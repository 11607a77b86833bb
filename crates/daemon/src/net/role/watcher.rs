//! The watcher, of which there is one at a time: a stream of numbered snapshots and diffs. A gap, or a diff
//! without a snapshot before it, is answered with a request for a snapshot.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::{self, Observer, Peer, Report};
use protocol::diff::Change;
use protocol::reply::{WatchSetup, WatcherCommand};
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxState, TmuxTransport};
use protocol::{
    Call, ErrorCode, Event, Frame, Hello, Refusal, Reply, Request, Response, Role, Session, frame, view_parts,
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::DaemonSettings;
use crate::engine::{Daemon, ObservedTmux, Turn};
use crate::net::answer::answer_call;
use crate::net::connection::Connection;
use crate::sense::observe::{RECHECK_DELAYS, take_in};
use crate::sense::tmux_snapshot;

/// Minimum silence after which a watcher counts as dead: twice the deadline of its requests to tmux.
const SILENCE: Duration = Duration::from_secs(10);

/// Maximum number of panes, and of tmux sessions, in a snapshot: a hundred times what tmux itself handles
/// well.
const PANES_MAX: usize = 100_000;

pub(super) async fn register(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    pid: Option<u32>,
) -> Result<(), Refusal> {
    let build = hello.build.clone();
    let takes_over = hello.role == Role::NextWatcher;
    let register = move |turn: &mut Turn<'_>| {
        if let Some(other) = turn.volatile.observed.watcher().cloned() {
            let who = watcher_name(other.pid);
            if !takes_over {
                let why = format!("{who} watches already; --take-over takes its place");
                return Err(Refusal::conflict(why));
            }
            turn.emit(Event::WatcherLost { reason: format!("{who} made room for {}", watcher_name(pid)) });
        }
        let now = turn.now();
        turn.volatile.observed.watcher_connected(Peer { connection: id, build: build.clone(), pid }, now);
        turn.emit(Event::WatcherConnected { build });
        Ok(())
    };
    daemon.engine.turn(register).await??;
    daemon.watcher_connection.send_replace(Some(id));
    Ok(())
}

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let why = watch(daemon, &mut connection).await;
    daemon.watcher_connection.send_if_modified(|watched| {
        let mine = *watched == Some(connection.id);
        if mine {
            *watched = None;
        }
        mine
    });
    connection.registration.set_reason(why);
}

/// Returns how a watcher is named to people.
fn watcher_name(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another one".to_owned(), |pid| format!("pid {pid}"))
}

/// Serves the watcher until its connection ends. Returns why it ended.
async fn watch(daemon: &Arc<Daemon>, connection: &mut Connection) -> String {
    let mut config = daemon.config.subscribe();
    let own = daemon.loaded();
    let setup = setup(daemon, &own.daemon).await;
    let mut asked = daemon.snapshots.subscribe();
    if *asked.borrow() > 0 {
        // A request that the previous watcher did not answer may still be waited for.
        asked.mark_changed();
    }
    let silence = SILENCE.max(own.daemon.watch_heartbeat * 5);
    let mut deadline = Instant::now() + silence;
    let (mine, mut watched) = (connection.id, daemon.watcher_connection.subscribe());
    let mut stream = Stream { connection: connection.id, ..Stream::default() };
    if connection.outbox.send(Frame::Command(WatcherCommand::Watch(setup))).await.is_err() {
        return "it disconnected".to_owned();
    }
    loop {
        let payload = tokio::select! {
            biased;
            () = async { drop(watched.wait_for(|other| other.is_some_and(|other| other > mine)).await) } => {
                let gone = Err(Refusal::conflict("another watcher has taken over"));
                // No call has the id 0: the answer says why the connection ends.
                drop(connection.outbox.reply(0, gone));
                return "it made room for another".to_owned();
            }
            _ = asked.changed() => {
                let n = *asked.borrow_and_update();
                if connection.outbox.send(Frame::Command(WatcherCommand::Snapshot { n })).await.is_err() {
                    return "it disconnected".to_owned();
                }
                continue;
            }
            _ = config.changed() => {
                // The watcher connects again, and is given the new settings then.
                if daemon.loaded().config.watch != own.config.watch {
                    return "its settings have changed".to_owned();
                }
                continue;
            }
            payload = timeout_at(deadline, connection.reader.next()) => payload,
        };
        deadline = Instant::now() + silence;
        let call = match payload {
            Err(_) => return "it was silent for too long".to_owned(),
            Ok(Ok(None)) => return "it disconnected".to_owned(),
            Ok(Ok(Some(payload))) => frame::decode::<Call>(&payload),
            Ok(Err(error)) => Err(error),
        };
        let call = match call {
            Ok(call) => call,
            Err(error) => return format!("it sent something unreadable: {error}"),
        };
        let reply = match call.request {
            Request::Observe(observe) => stream.take(daemon, observe.within_bounds()).await,
            Request::WatchingBy(means) => stream.watching_by(daemon, means).await,
            _ => Err(Refusal::usage("a watcher only observes")),
        };
        let replaced = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        if answer_call(daemon, &connection.outbox, (call.id, reply)).is_err() || replaced {
            return "it disconnected".to_owned();
        }
    }
}

/// Returns the parameters of watching.
async fn setup(daemon: &Daemon, settings: &DaemonSettings) -> WatchSetup {
    let own = daemon.device.own;
    let on_record = move |turn: &mut Turn<'_>| observe::server_on_record(turn.pool(), turn.volatile, own);
    WatchSetup {
        binary: daemon.device.binary.clone().into(),
        socket: daemon.tmux_socket(),
        heartbeat_ms: protocol::time::millis(settings.watch_heartbeat),
        own,
        means: settings.watch_transport,
        sweep_ms: settings.watch_sweep_ms,
        // A stopping engine does not answer.
        server: daemon.engine.turn(on_record).await.ok().flatten(),
    }
}

/// The stream of a watcher.
#[derive(Default)]
struct Stream {
    connection: u64,
    watcher: u64,
    seq: u64,
    /// True if the observed state is that of its last snapshot with all diffs since.
    in_sync: bool,
    /// The number of a requested snapshot that a newer observation overtook. The next snapshot answers that request as
    /// well.
    asked: u64,
    /// The parts received of an incomplete snapshot, and the number of the next part.
    partial: Option<(u32, TmuxState)>,
}

impl Stream {
    /// Applies an observation.
    async fn take(&mut self, daemon: &Arc<Daemon>, observe: Observe) -> Reply {
        let follows = observe.watcher == self.watcher && Some(observe.seq) == self.seq.checked_add(1);
        if observe.watcher == self.watcher && observe.seq <= self.seq {
            // A repetition, or overtaken by a newer one.
            return if self.in_sync || self.partial.is_some() {
                Ok(Response::Done)
            } else {
                self.lost_sync()
            };
        }
        (self.watcher, self.seq) = (observe.watcher, observe.seq);
        if !follows {
            self.partial = None;
        }
        let report = match observe.view {
            View::Snapshot { part, .. } if self.partial.as_ref().map_or(0, |(next, _)| *next) != part => {
                return self.lost_sync();
            }
            View::Snapshot { state, part, more } => {
                let whole = view_parts::join(self.partial.take().map(|(_, before)| before), state);
                if whole.panes.len() > PANES_MAX || whole.sessions.len() > PANES_MAX {
                    let why = format!("a snapshot of over {PANES_MAX} panes or sessions");
                    return Err(Refusal::usage(why));
                }
                if more {
                    (self.in_sync, self.partial) = (false, Some((part.saturating_add(1), whole)));
                    return Ok(Response::Done);
                }
                Report::Snapshot(whole)
            }
            _ if !follows || !self.in_sync => return self.lost_sync(),
            // Only a complete observation proves that a server exists, or none does.
            View::Diff(changes) if !observe.complete && changes.iter().any(is_about_a_server) => {
                return self.lost_sync();
            }
            View::Diff(changes) => Report::Diff(changes),
            View::Unchanged => Report::Unchanged,
            View::Alive => Report::Alive,
        };
        let sighting = ObservedTmux {
            report,
            complete: observe.complete,
            age: Duration::from_millis(observe.age_ms),
            by: Observer::Watcher(self.connection),
        };
        let asked = observe.asked.max(self.asked);
        let (connection, received) = (self.connection, Instant::now());
        let (clock, sent_at) =
            (Arc::clone(&daemon.world.clock), observe.sent_at_ms.map(Duration::from_millis));
        let is_whole = matches!(sighting.report, Report::Snapshot(_));
        let admit = move |turn: &mut Turn<'_>| {
            still_watcher(turn, connection)?;
            let out_of_sync = turn.volatile.observed.take_resync() && !is_whole;
            // The observation has aged while it waited to be read and for the engine. If `sent_at` is later than now,
            // it is of another boot.
            let since_sent = sent_at.and_then(|sent_at| clock.awake().checked_sub(sent_at));
            let age = sighting.age + since_sent.unwrap_or_else(|| received.elapsed());
            Ok((!out_of_sync).then_some(ObservedTmux { age, ..sighting }))
        };
        let done = move |turn: &mut Turn<'_>| {
            if is_whole && turn.volatile.observed.snapshot_received(asked) {
                turn.wake();
            }
        };
        let taken = take_in(daemon, admit, done).await?;
        self.in_sync = taken.admitted;
        if is_whole {
            self.asked = if taken.admitted { 0 } else { asked };
        }
        if taken.is_missing {
            daemon.world.spawn("recheck", recheck(Arc::clone(daemon)));
        }
        if self.in_sync { Ok(Response::Done) } else { self.lost_sync() }
    }

    /// Requests a snapshot.
    fn lost_sync(&mut self) -> Reply {
        (self.in_sync, self.partial) = (false, None);
        Ok(Response::SendSnapshot)
    }

    /// Records the transport in use.
    async fn watching_by(&self, daemon: &Arc<Daemon>, means: TmuxTransport) -> Reply {
        let connection = self.connection;
        let note = move |turn: &mut Turn<'_>| {
            still_watcher(turn, connection)?;
            turn.volatile.observed.set_transport(means);
            Ok(Response::Done)
        };
        daemon.engine.turn(note).await?
    }
}

/// True if the change says that a server exists, or none does.
fn is_about_a_server(change: &Change) -> bool {
    matches!(change, Change::Server(Server::Up(_) | Server::Absent))
}

/// Refuses observations of a watcher that was replaced.
fn still_watcher(turn: &Turn<'_>, connection: u64) -> Result<(), Refusal> {
    match turn.volatile.observed.watcher() {
        Some(watcher) if watcher.connection == connection => Ok(()),
        other => {
            let who = watcher_name(other.as_ref().and_then(|other| other.pid));
            Err(Refusal::conflict(format!("{who} has taken over")))
        }
    }
}

/// Looks at tmux again until nothing is missing any more, or its absence can be proved.
async fn recheck(daemon: Arc<Daemon>) {
    for delay in RECHECK_DELAYS {
        sleep(delay).await;
        drop(tmux_snapshot::take(&daemon).await);
        if !daemon.engine.turn(has_missing).await.unwrap_or(false) {
            return;
        }
    }
}

/// True if an incarnation is missing whose end is not proved.
fn has_missing(turn: &mut Turn<'_>) -> bool {
    let is_missing = |session: &Session| {
        let missing = session.incarnation.as_ref().is_some_and(|run| run.missing_since.is_some());
        session.lifecycle.holds_slot() && missing
    };
    turn.pool().sessions().any(is_missing)
}
