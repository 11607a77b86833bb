//! The watcher: one at a time; a stream of snapshots and diffs with a number each. A gap, or a
//! diff without a snapshot before it, is answered with the wish for a snapshot.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::{Peer, Sight};
use protocol::diff::Change;
use protocol::reply::{WatchSetup, WatcherCommand};
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxState, TmuxTransport};
use protocol::{Call, ErrorCode, Event, Frame, Hello, Refusal, Reply, Request, Response, Role, frame, parts};
use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::context::Daemon;
use crate::engine::{Sighting, Turn};
use crate::net::connection::{Connection, done as done_reply};
use crate::sense::observe::{LOOK_AGAIN, take_in};
use crate::sense::snapshot;

/// Silence of a watcher after which it is taken for dead, at least: tmux's own deadline twice.
const SILENCE: Duration = Duration::from_secs(10);

/// The most panes, and the most tmux sessions, of one snapshot: a hundred times what tmux itself bears well.
const PANES_MAX: usize = 100_000;

pub(crate) async fn admit(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    pid: Option<u32>,
) -> Result<(), Refusal> {
    let build = hello.build.clone();
    let takes_over = hello.role == Role::NextWatcher;
    let take = move |turn: &mut Turn<'_>| {
        if let Some(other) = turn.volatile.observed.watcher().cloned() {
            let who = who(other.pid);
            if !takes_over {
                let why = format!("{who} watches already; --take-over takes its place");
                return Err(Refusal::new(ErrorCode::Conflict, why));
            }
            turn.emit(Event::WatcherLost { reason: format!("{who} made room for {}", self::who(pid)) });
        }
        let now = turn.now();
        turn.volatile.observed.watcher_connected(Peer { connection: id, build: build.clone(), pid }, now);
        turn.emit(Event::WatcherConnected { build });
        Ok(())
    };
    daemon.engine.turn(take).await??;
    daemon.watched.send_replace(Some(id));
    Ok(())
}

pub(crate) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let why = watch(daemon, &mut connection).await;
    daemon.watched.send_if_modified(|watched| {
        let mine = *watched == Some(connection.id);
        if mine {
            *watched = None;
        }
        mine
    });
    connection.registration.ends(why);
}

fn who(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another one".to_owned(), |pid| format!("pid {pid}"))
}

/// The connection ended; if it was the watcher's, there is none now.
pub(crate) fn forget(turn: &mut Turn<'_>, id: u64, reason: String) {
    let now = turn.now();
    if turn.volatile.observed.connection_ended(id, now) {
        turn.emit(Event::WatcherLost { reason });
    }
}

/// Serves it until it ends. Answers why it did.
async fn watch(daemon: &Arc<Daemon>, connection: &mut Connection) -> String {
    let config = daemon.config.borrow().config.clone();
    let heartbeat = config.heartbeat().unwrap_or(Duration::from_secs(2));
    let setup = WatchSetup {
        binary: daemon.device.binary.clone().into(),
        socket: daemon.tmux_socket(),
        heartbeat_ms: u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX),
        own: daemon.device.own,
        means: config.means().unwrap_or_default(),
        sweep_ms: config.sweep().unwrap_or_default(),
    };
    let mut asked = daemon.snapshots.subscribe();
    if *asked.borrow() > 0 {
        // Asked of the one before, it may be waited for still.
        asked.mark_changed();
    }
    let silence = SILENCE.max(heartbeat * 5);
    let mut deadline = Instant::now() + silence;
    let (mine, mut watched) = (connection.id, daemon.watched.subscribe());
    let mut stream = Stream { connection: connection.id, ..Stream::default() };
    if connection.outbox.send(Frame::Command(WatcherCommand::Watch(setup))).await.is_err() {
        return "it went away".to_owned();
    }
    loop {
        let payload = tokio::select! {
            payload = timeout_at(deadline, connection.reader.next()) => payload,
            _ = asked.changed() => {
                let n = *asked.borrow_and_update();
                if connection.outbox.send(Frame::Command(WatcherCommand::Snapshot { n })).await.is_err() {
                    return "it went away".to_owned();
                }
                continue;
            }
            () = async { drop(watched.wait_for(|other| other.is_some_and(|other| other > mine)).await) } => {
                let gone = Err(Refusal::new(ErrorCode::Conflict, "another watcher has taken over"));
                // No call has this number: it says why the connection ends.
                drop(connection.outbox.reply(0, gone));
                return "it made room for another".to_owned();
            }
        };
        deadline = Instant::now() + silence;
        let call = match payload {
            Err(_) => return "it was silent for too long".to_owned(),
            Ok(Ok(None)) => return "it went away".to_owned(),
            Ok(Ok(Some(payload))) => frame::decode::<Call>(&payload),
            Ok(Err(error)) => Err(error),
        };
        let call = match call {
            Ok(call) => call,
            Err(error) => return format!("it sent something else: {error}"),
        };
        let reply = match call.request {
            Request::Observe(observe) => stream.take(daemon, observe.within_bounds()).await,
            Request::WatchingBy(means) => stream.watching_by(daemon, means).await,
            _ => Err(Refusal::new(ErrorCode::Usage, "a watcher only observes")),
        };
        let replaced = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        if connection.outbox.reply(call.id, reply).is_err() || replaced {
            return "it went away".to_owned();
        }
    }
}

/// What a watcher sent so far.
#[derive(Default)]
struct Stream {
    connection: u64,
    watcher: u64,
    seq: u64,
    /// Whether the state is that of its last snapshot with all that followed.
    in_step: bool,
    /// The parts of a snapshot that is not whole yet, and the number of the next.
    coming: Option<(u32, TmuxState)>,
}

impl Stream {
    async fn take(&mut self, daemon: &Arc<Daemon>, observe: Observe) -> Reply {
        let follows = observe.watcher == self.watcher && Some(observe.seq) == self.seq.checked_add(1);
        if observe.watcher == self.watcher && observe.seq <= self.seq {
            // Taken in already, or too late to be.
            return if self.in_step || self.coming.is_some() { done_reply() } else { self.lost_step() };
        }
        (self.watcher, self.seq) = (observe.watcher, observe.seq);
        if !follows {
            self.coming = None;
        }
        let sight = match observe.view {
            View::Snapshot { part, .. } if self.coming.as_ref().map_or(0, |(next, _)| *next) != part => {
                return self.lost_step();
            }
            View::Snapshot { state, part, more } => {
                let whole = parts::join(self.coming.take().map(|(_, before)| before), state);
                if whole.panes.len() > PANES_MAX || whole.sessions.len() > PANES_MAX {
                    let why = format!("a snapshot of over {PANES_MAX} panes or sessions");
                    return Err(Refusal::new(ErrorCode::Usage, why));
                }
                if more {
                    (self.in_step, self.coming) = (false, Some((part.saturating_add(1), whole)));
                    return done_reply();
                }
                Sight::Whole(whole)
            }
            _ if !follows || !self.in_step => return self.lost_step(),
            // Only a whole look tells that there is a server, or none.
            View::Diff(changes) if !observe.complete && changes.iter().any(is_about_a_server) => {
                return self.lost_step();
            }
            View::Diff(changes) => Sight::Changes(changes),
            View::Unchanged => Sight::Same,
            View::Alive => Sight::Alive,
        };
        let sighting =
            Sighting { sight, complete: observe.complete, age: Duration::from_millis(observe.age_ms) };
        let (asked, connection, received) = (observe.asked, self.connection, Instant::now());
        let is_whole = matches!(sighting.sight, Sight::Whole(_));
        let admit = move |turn: &mut Turn<'_>| {
            still_watcher(turn, connection)?;
            let out_of_step = turn.volatile.observed.take_resync() && !is_whole;
            // It grew older while the engine was at something else.
            let age = sighting.age + received.elapsed();
            Ok((!out_of_step).then_some(Sighting { age, ..sighting }))
        };
        let done = move |turn: &mut Turn<'_>| {
            if is_whole && turn.volatile.observed.snapshot_received(asked) {
                turn.wake();
            }
        };
        let taken = take_in(daemon, admit, done).await?;
        self.in_step = taken.admitted;
        if taken.is_missing {
            let daemon = Arc::clone(daemon);
            tokio::spawn(async move {
                sleep(LOOK_AGAIN).await;
                drop(snapshot::take(&daemon).await);
            });
        }
        if self.in_step { done_reply() } else { self.lost_step() }
    }

    fn lost_step(&mut self) -> Reply {
        (self.in_step, self.coming) = (false, None);
        Ok(Response::SendSnapshot)
    }

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

fn is_about_a_server(change: &Change) -> bool {
    matches!(change, Change::Server(Server::Up(_) | Server::Absent))
}

/// Refuses what comes from a watcher whose place was taken.
fn still_watcher(turn: &Turn<'_>, connection: u64) -> Result<(), Refusal> {
    match turn.volatile.observed.watcher() {
        Some(watcher) if watcher.connection == connection => Ok(()),
        other => {
            let who = who(other.as_ref().and_then(|other| other.pid));
            Err(Refusal::new(ErrorCode::Conflict, format!("{who} has taken over")))
        }
    }
}
