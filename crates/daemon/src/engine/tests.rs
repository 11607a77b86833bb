//! An engine for unit tests of what happens in turns.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::lock::LockTable;
use pool::queue::{self, Body, EarlierMessages, SendInputs, SendOutcome};
use pool::session::{CreateInputs, CreateOutcome, create};
use pool::{Settings, Volatile};
use protocol::request::{self, New};
use protocol::{Event, MessageId, OpId, SessionId, Tag};
use store::{Loaded, Store};
use tokio::sync::mpsc;
use tokio::time::Instant;
use world::clock::{Clock, SystemClock};

use crate::config::Config;
use crate::engine::turn::JournalRetention;
use crate::engine::{Engine, EngineHandle, Publisher, Turn};
use crate::host::clock;

/// Opens a database.
pub(crate) fn open_database(path: &Path) -> (Store, Loaded) {
    // A program that another test starts holds its lock, too, between fork and exec.
    let open = |_| {
        let opened = Store::open(path, |_| {}).ok();
        opened.or_else(|| {
            std::thread::sleep(Duration::from_millis(10));
            None
        })
    };
    (0..500).find_map(open).unwrap()
}

/// Creates an engine with an empty pool, and its database in this directory.
pub(crate) fn engine(dir: &Path, publish: Publisher) -> Engine {
    let (store, loaded) = open_database(&dir.join("pool.redb"));
    let reading = clock::read(&SystemClock);
    let volatile = Volatile::new(LockTable::new(loaded.pool.epoch()), reading.wall);
    let retention = JournalRetention { events: 10, age: Duration::from_secs(60) };
    let clocks: (Arc<dyn Clock>, _, _) = (Arc::new(SystemClock), reading, Instant::now());
    Engine::new((loaded.pool, store, volatile), publish, retention, clocks)
}

/// Starts an engine with an empty pool, as a task.
pub(crate) fn start() -> EngineHandle {
    let (dir, publish) = (tempfile::tempdir().unwrap(), Publisher::new());
    let engine = engine(dir.path(), publish.clone());
    let (queue, work) = mpsc::unbounded_channel();
    let task = async move {
        engine.run_as_task(work).await;
        drop(dir);
    };
    drop(tokio::spawn(task));
    EngineHandle::new(Arc::new(queue), publish)
}

/// Returns the settings of an empty configuration.
pub(crate) fn settings() -> Settings {
    Config::default().settings(Path::new("/sessions"), 0o022).unwrap()
}

/// Creates a session with this name, whose program has not begun.
pub(crate) fn session(turn: &mut Turn<'_>, name: &str) -> SessionId {
    let asked = New { name: Some(name.to_owned()), command: vec!["cat".into()], ..New::default() };
    create_session(turn, &settings(), &asked)
}

/// Creates a session, whose program has not begun.
pub(crate) fn create_session(turn: &mut Turn<'_>, settings: &Settings, asked: &New) -> SessionId {
    let tag = Tag([u8::try_from(turn.pool().next_session()).unwrap(); 16]);
    let now = turn.now();
    let inputs = CreateInputs { tag, now, stamp: "", conversation: "", ahead: 0, tmux_names: &[] };
    let created = create(turn.pool(), settings, asked, &inputs).unwrap();
    let CreateOutcome::Create(made) = created else { panic!("{created:?}") };
    turn.emit_all(made.events);
    made.session
}

/// Queues a message of this kind and with this text.
pub(crate) fn queue_message(turn: &mut Turn<'_>, to: SessionId, (kind, text): (&str, &str)) -> MessageId {
    let (rules, record) = (settings().queue, turn.pool().session(to).unwrap().clone());
    let send =
        request::Send { session: to.into(), kind: kind.to_owned(), enter: true, ..request::Send::default() };
    let (body, op) = (Body { bytes: text.into(), digest: 1 }, OpId::Named(kind.to_owned()));
    let sending = SendInputs { session: &record, send: &send, body: &body, op: &op };
    let (place, earlier) = ((turn.next_seq(), turn.now()), EarlierMessages::default());
    let sent = queue::send(turn.pool(), &rules, sending, earlier, place).unwrap();
    let SendOutcome::Queued(message) = sent else { panic!("{sent:?}") };
    let id = message.id;
    turn.emit(Event::MessageQueued(message));
    turn.keep_body(id, body.bytes);
    id
}
