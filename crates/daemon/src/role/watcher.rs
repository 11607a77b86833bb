//! The watcher: one at a time; a stream of snapshots and diffs with a number each. A gap, or a
//! diff without a snapshot before it, is answered with the wish for a snapshot.

use std::sync::Arc;
use std::time::Duration;

use protocol::reply::{Ask, WatchSetup};
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxState};
use protocol::{Call, ErrorCode, Event, Frame, Hello, Refusal, Reply, Request, Response, frame};
use tokio::time::timeout;

use crate::conn::{Connection, done};
use crate::context::Daemon;
use crate::view::{self, Peer};

/// Silence of a watcher after which it is taken for dead, at least: tmux's own deadline twice.
const SILENCE: Duration = Duration::from_secs(10);

pub(super) async fn admit(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    pid: Option<u32>,
) -> Result<(), Refusal> {
    let build = hello.build.clone();
    let take = move |turn: &mut crate::engine::Turn<'_>| {
        if let Some(other) = &turn.rest.view.watcher {
            let who = other.pid.map_or_else(|| "another one".to_owned(), |pid| format!("pid {pid}"));
            return Err(Refusal::new(ErrorCode::Conflict, format!("{who} watches already")));
        }
        turn.rest.view.watcher = Some(Peer { connection: id, build: build.clone(), pid });
        turn.rest.view.watcher_since = turn.now();
        // What another one saw last says nothing about now.
        let server = Server::Unknown("tmux-watch has only just connected".to_owned());
        turn.rest.view.state = TmuxState { server, ..TmuxState::default() };
        turn.emit(Event::WatcherConnected { build });
        Ok(())
    };
    daemon.engine.turn(take).await?
}

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let why = watch(daemon, &mut connection).await;
    connection.registration.ends(why);
}

/// The connection ended; if it was the watcher's, there is none now.
pub(super) fn forget(turn: &mut crate::engine::Turn<'_>, id: u64, reason: String) {
    if turn.rest.view.watcher.as_ref().is_some_and(|w| w.connection == id) {
        turn.rest.view.watcher = None;
        turn.rest.view.watcher_since = turn.now();
        turn.emit(Event::WatcherLost { reason });
    }
}

/// Serves it until it ends. Answers why it did.
async fn watch(daemon: &Arc<Daemon>, connection: &mut Connection) -> String {
    let heartbeat = daemon.config.borrow().config.heartbeat().unwrap_or(Duration::from_secs(2));
    let setup = WatchSetup {
        binary: daemon.device.binary.clone().into(),
        socket: daemon.tmux_socket(),
        heartbeat_ms: u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX),
    };
    let mut asked = daemon.snapshots.subscribe();
    asked.mark_unchanged();
    let mut stream = Stream::default();
    if connection.outbox.send(Frame::Ask(Ask::Watch(setup))).await.is_err() {
        return "it went away".to_owned();
    }
    loop {
        let payload = tokio::select! {
            payload = timeout(SILENCE.max(heartbeat * 5), connection.reader.next()) => payload,
            _ = asked.changed() => {
                let n = *asked.borrow_and_update();
                if connection.outbox.send(Frame::Ask(Ask::Snapshot { n })).await.is_err() {
                    return "it went away".to_owned();
                }
                continue;
            }
        };
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
            Request::Observe(observe) => stream.take(daemon, observe).await,
            _ => Err(Refusal::new(ErrorCode::Usage, "a watcher only observes")),
        };
        if connection.outbox.reply(call.id, reply).await.is_err() {
            return "it went away".to_owned();
        }
    }
}

/// What a watcher sent so far.
#[derive(Default)]
struct Stream {
    watcher: u64,
    seq: u64,
    state: Option<TmuxState>,
    /// The parts of a snapshot that is not whole yet.
    coming: Option<TmuxState>,
}

impl Stream {
    async fn take(&mut self, daemon: &Arc<Daemon>, observe: Observe) -> Reply {
        let follows = observe.watcher == self.watcher && observe.seq == self.seq + 1;
        (self.watcher, self.seq) = (observe.watcher, observe.seq);
        if !follows {
            self.coming = None;
        }
        match observe.view {
            View::Snapshot { state, more } => {
                let whole = join(self.coming.take(), state);
                if more {
                    self.coming = Some(whole);
                    return done();
                }
                self.state = Some(whole);
            }
            View::Diff(_) | View::Unchanged if !follows || self.state.is_none() => {
                self.state = None;
                return Ok(Response::SendSnapshot);
            }
            View::Diff(changes) => {
                let state = self.state.get_or_insert_default();
                changes.into_iter().for_each(|change| state.apply(change));
            }
            View::Unchanged => {}
        }
        let (state, asked, run) =
            (self.state.clone().unwrap_or_default(), observe.asked, daemon.paths.run.clone());
        let age = Duration::from_millis(observe.age_ms);
        let apply = move |turn: &mut crate::engine::Turn<'_>| {
            view::observe(turn, &run, state, age);
            if asked > turn.rest.view.answered {
                turn.rest.view.answered = asked;
                turn.stir();
            }
        };
        daemon.engine.turn(apply).await?;
        done()
    }
}

fn join(before: Option<TmuxState>, part: TmuxState) -> TmuxState {
    let Some(mut whole) = before else { return part };
    whole.server = part.server;
    whole.sessions.extend(part.sessions);
    whole.panes.extend(part.panes);
    whole
}
