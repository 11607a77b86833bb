//! Agents that ended instead of resuming their conversation: their output and their own record tell whether the
//! conversation still exists.

use std::io;
use std::path::Path;
use std::sync::Arc;

use agents::transcript::says_conversation_missing;
use protocol::{SessionId, Tag};

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Maximum bytes of the agent's output that are read.
const OUTPUT_MAX: usize = 64 << 10;

/// Decides whether the conversation is lost; if so, the session is started with a new one.
pub(crate) async fn check(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) {
    let context = Arc::clone(daemon);
    let known = move |turn: &mut Turn<'_>| {
        let adapter = context.loaded().settings.agent_of(turn.pool().session(session)?).adapter;
        Some((adapter, turn.pool().notes(session).and_then(|notes| notes.transcript.clone())))
    };
    let Ok(Some((adapter, record))) = daemon.engine.turn(known).await else { return };
    let logs = daemon.paths.logs_of(session);
    let sample = move || {
        let gone = record.is_some_and(|path| is_gone(path.as_path()));
        gone || output(&logs, tag).is_ok_and(|output| says_conversation_missing(adapter, &output))
    };
    // If the files do not answer, the conversation counts as resumable.
    let lost = daemon.blocking.with_timeout(Purpose::Logs, sample).await.unwrap_or(false);
    let context = Arc::clone(daemon);
    daemon.engine.post(move |turn| {
        let settings = &context.loaded().settings;
        if pool::slots::conversation_checked(turn, settings, (session, tag), lost) {
            tracing::warn!(%session, "its agent no longer finds its conversation; it begins a new one");
        }
    });
}

/// True if the file is missing although its directory exists: an unmounted directory proves nothing.
fn is_gone(path: &Path) -> bool {
    let missing = std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    missing && path.parent().is_some_and(Path::is_dir)
}

/// Returns the beginning of this incarnation's output.
fn output(logs: &Path, tag: Tag) -> io::Result<Vec<u8>> {
    let Some(begin) = logs::recorded_start_offset(logs, tag)? else { return Ok(Vec::new()) };
    let (mut reader, mut output, mut block) = (logs::Reader::new(logs, begin), Vec::new(), vec![0; 16 << 10]);
    while output.len() < OUTPUT_MAX {
        match reader.read(&mut block)? {
            0 => break,
            count => output.extend_from_slice(&block[..count]),
        }
    }
    Ok(output)
}
