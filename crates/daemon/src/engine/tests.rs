//! An engine for unit tests of what happens in turns.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::lock::LockTable;
use pool::session::{CreateInputs, CreateOutcome, create};
use pool::{Settings, Volatile};
use protocol::request::New;
use protocol::{SessionId, Tag};
use store::Store;
use tokio::sync::mpsc;
use tokio::time::Instant;
use world::clock::{Clock, SystemClock};

use crate::config::Config;
use crate::engine::turn::JournalRetention;
use crate::engine::{Engine, EngineHandle, Publisher, Turn};
use crate::host::clock;

/// Creates an engine with an empty pool, and its database in this directory.
pub(crate) fn engine(dir: &Path, publish: Publisher) -> Engine {
    // A program that another test starts holds its lock, too, between fork and exec.
    let open = |_| {
        let opened = Store::open(&dir.join("pool.redb"), |_| {}).ok();
        opened.or_else(|| {
            std::thread::sleep(Duration::from_millis(10));
            None
        })
    };
    let (store, loaded) = (0..500).find_map(open).unwrap();
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
    let tag = Tag([u8::try_from(turn.pool().next_session()).unwrap(); 16]);
    let asked = New { name: Some(name.to_owned()), command: vec!["cat".into()], ..New::default() };
    let now = turn.now();
    let inputs = CreateInputs { tag, now, stamp: "", conversation: "", ahead: 0, tmux_names: &[] };
    let created = create(turn.pool(), &settings(), &asked, &inputs).unwrap();
    let CreateOutcome::Create(made) = created else { panic!("{created:?}") };
    turn.emit_all(made.events);
    made.session
}
