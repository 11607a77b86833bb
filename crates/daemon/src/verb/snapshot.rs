//! `ls --full`: sessions with the ends of their output and the colours of their repositories. Files are read
//! outside of the engine, and only those that may have changed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::request::List;
use protocol::{Reply, Response, SessionView};
use tokio::time::timeout;

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::{BlockingPool, Purpose};
use crate::host::display_cache::LogOf;
use crate::verb::session_view;

/// Time that the answer waits for files; what is not read by then is shown as it was.
const FILES_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn snapshot(daemon: &Arc<Daemon>, filter: List) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| {
        let views = session_view::listed(turn, &context, &filter);
        let logs: Vec<LogOf> = views.iter().map(|view| log_of(turn, &context, view)).collect();
        (views, logs)
    };
    let (mut views, logs) = daemon.engine.turn(read).await?;
    let dirs: BTreeSet<PathBuf> = views.iter().map(dir_of).collect();
    let dirs = dirs.into_iter().collect();
    tokio::join!(read_logs(daemon, logs), read_themes(daemon, dirs));
    for view in &mut views {
        view.replay = daemon.displayed.replay(view.session.id);
        view.theme = daemon.displayed.theme(&dir_of(view));
    }
    Ok(Response::Sessions(views))
}

/// The directory whose repository's colours a session has.
fn dir_of(view: &SessionView) -> PathBuf {
    view.current_dir.as_ref().unwrap_or(&view.session.spec.cwd).as_path().to_owned()
}

fn log_of(turn: &Turn<'_>, daemon: &Daemon, view: &SessionView) -> LogOf {
    let session = &view.session;
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    let seen = run.and_then(|run| turn.volatile.observed.pane_of(run));
    let size =
        seen.map_or((session.spec.size.rows, session.spec.size.cols), |pane| (pane.height, pane.width));
    LogOf { session: session.id, dir: daemon.paths.logs_of(session.id), size }
}

async fn read_logs(daemon: &Daemon, logs: Vec<LogOf>) {
    let cache = Arc::clone(&daemon.displayed);
    read_in_time(&daemon.blocking, Purpose::Logs, move || cache.read_replays(&logs)).await;
}

async fn read_themes(daemon: &Daemon, dirs: Vec<PathBuf>) {
    let (cache, now) = (Arc::clone(&daemon.displayed), daemon.world.clock.awake());
    read_in_time(&daemon.blocking, Purpose::Theme, move || cache.read_themes(&dirs, now)).await;
}

/// Reads files for at most [`FILES_LIMIT`]; afterwards the thread goes on alone.
async fn read_in_time(blocking: &BlockingPool, purpose: Purpose, read: impl FnOnce() + Send + 'static) {
    timeout(FILES_LIMIT, blocking.with_timeout(purpose, read)).await.ok();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use world::World;

    use super::*;

    /// Less than any other limit of blocking work, and more than a busy machine needs.
    const SOON: Duration = Duration::from_secs(6);

    #[tokio::test]
    async fn w26_files_that_do_not_answer_keep_no_list_waiting() {
        let blocking = BlockingPool::new(World::system());
        for purpose in [Purpose::Logs, Purpose::Theme] {
            let (begun, has_begun) = mpsc::channel();
            let (answer, waits) = mpsc::channel::<()>();
            let hangs = move || {
                begun.send(()).unwrap();
                waits.recv().ok();
            };
            let read = read_in_time(&blocking, purpose, hangs);
            assert!(timeout(SOON, read).await.is_ok(), "the list waits for {purpose:?}");
            has_begun.recv().unwrap();
            drop(answer);
        }
    }
}
