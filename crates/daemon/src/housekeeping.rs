//! What goes out of retention: messages that are over, operation ids.

use std::fs::DirEntry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use tokio::time::sleep;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::{files, op};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two looks while there is much to forget.
const BUSY: Duration = Duration::from_millis(100);

/// Keeps house for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        let context = Arc::clone(&daemon);
        let Ok(more) = daemon.engine.turn(move |turn| tidy(turn, &context)).await else {
            return;
        };
        if let Some(keep) = daemon.loaded().life.keep_archives {
            let archives = daemon.paths.archives();
            files::elsewhere(move || forget_archives(&archives, keep)).await;
        }
        sleep(if more { BUSY } else { PAUSE }).await;
    }
}

/// Removes the archives that were written longer ago.
fn forget_archives(archives: &Path, keep: Duration) {
    let old = |entry: &DirEntry| {
        let written = entry.metadata().and_then(|found| found.modified());
        let named = entry.file_name().as_encoded_bytes().ends_with(b".tar.gz");
        named && written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep))
    };
    let entries = std::fs::read_dir(archives).into_iter().flatten().flatten();
    for entry in entries.filter(old) {
        match std::fs::remove_file(entry.path()) {
            Ok(()) => tracing::info!(path = %entry.path().display(), "an old archive was removed"),
            Err(error) => tracing::warn!(path = %entry.path().display(), %error, "an old archive stays"),
        }
    }
}

/// Does what is due. Answers whether there may be more.
fn tidy(turn: &mut Turn<'_>, daemon: &Daemon) -> bool {
    let rules = &daemon.loaded().settings.queue;
    let now = turn.now();
    let forgotten = queue::outdated(turn.pool(), rules, now);
    let more = !forgotten.is_empty();
    turn.emit_all(forgotten);
    if more {
        crate::crash::point("forget");
    }
    let over = op::outdated(turn.pool(), now);
    turn.emit_all(over);
    crate::gauge::forget(turn, daemon);
    turn.trim();
    if turn.rest.work.half_time(turn.mono()) {
        turn.age_operations();
    }
    more
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_archives_go() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["old.tar.gz", "new.tar.gz", "old.txt"] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            if name.starts_with("old") {
                file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
            }
        }
        forget_archives(dir.path(), Duration::from_secs(50));
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!((left("old.tar.gz"), left("new.tar.gz"), left("old.txt")), (false, true, true));
    }
}
