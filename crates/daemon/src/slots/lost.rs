//! Agents that ended instead of taking their conversation up: whether it is still there, by what they wrote and by their
//! own record.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use agents::transcript::says_missing;
use pool::{Settings, resume};
use protocol::{Session, SessionId, Tag};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::slow::{self, Purpose};

/// The most that is read of what such an agent wrote.
const OUTPUT_MAX: usize = 64 << 10;

/// Whether it is not known yet that the conversation of this session is lost, or is not: nothing follows from its end until
/// then.
pub(crate) fn is_undecided(turn: &Turn<'_>, settings: &Settings, session: &Session) -> bool {
    let tag = session.incarnation.as_ref().map(|run| run.tag);
    let judged = tag.is_some_and(|tag| turn.rest.view.slots.resumes.get(&tag) == Some(&true));
    !judged && resume::broke_off(turn.pool(), settings, session)
}

/// The sessions of which that is so, and those of them that somebody has to look at from here on.
pub(super) fn undecided(
    turn: &mut Turn<'_>,
    settings: &Settings,
) -> (BTreeSet<SessionId>, Vec<(SessionId, Tag)>) {
    let broken = turn.pool().sessions().filter(|session| resume::broke_off(turn.pool(), settings, session));
    let broken: Vec<(SessionId, Tag)> =
        broken.filter_map(|session| Some((session.id, session.incarnation.as_ref()?.tag))).collect();
    let resumes = &mut turn.rest.view.slots.resumes;
    resumes.retain(|tag, _| broken.iter().any(|(_, ended)| ended == tag));
    let open = broken.into_iter().filter(|(_, tag)| resumes.get(tag) != Some(&true)).collect::<Vec<_>>();
    let undecided = open.iter().map(|(session, _)| *session).collect();
    let new = open.into_iter().filter(|(_, tag)| resumes.insert(*tag, false).is_none()).collect();
    (undecided, new)
}

/// Looks, and decides: where its conversation is lost, the session is started with a new one.
pub(super) async fn judge(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) {
    let context = Arc::clone(daemon);
    let known = move |turn: &mut Turn<'_>| {
        let adapter = context.loaded().settings.agent_of(turn.pool().session(session)?).adapter;
        Some((adapter, turn.pool().notes(session).and_then(|notes| notes.transcript.clone())))
    };
    let Ok(Some((adapter, record))) = daemon.engine.turn(known).await else { return };
    let logs = daemon.log_options(session).dir;
    let look = move || {
        let gone = record.is_some_and(|path| is_gone(path.as_path()));
        gone || output(&logs, tag).is_ok_and(|output| says_missing(adapter, &output))
    };
    // Files that do not answer tell nothing.
    let lost = slow::limited(Purpose::Logs, look).await.unwrap_or(false);
    let context = Arc::clone(daemon);
    daemon.engine.post(move |turn| {
        turn.rest.view.slots.resumes.insert(tag, true);
        turn.stir();
        let settings = &context.loaded().settings;
        let ended = turn.pool().session(session).filter(|s| resume::broke_off(turn.pool(), settings, s));
        let same = ended.filter(|s| s.incarnation.as_ref().is_some_and(|run| run.tag == tag));
        let Some(record) = same.filter(|_| lost) else { return };
        tracing::warn!(%session, "its agent finds its conversation no more; it begins a new one");
        let events = resume::lost(turn.pool(), record, turn.now());
        turn.emit_all(events);
    });
}

/// Whether there is nothing of this name where others of its kind are: one that is not mounted is not gone.
fn is_gone(path: &Path) -> bool {
    let missing = std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    missing && path.parent().is_some_and(Path::is_dir)
}

/// The beginning of what this incarnation wrote.
fn output(logs: &Path, tag: Tag) -> io::Result<Vec<u8>> {
    let Some(begin) = logs::known_begin_of(logs, tag)? else { return Ok(Vec::new()) };
    let (mut reader, mut output, mut block) = (logs::Reader::new(logs, begin), Vec::new(), vec![0; 16 << 10]);
    while output.len() < OUTPUT_MAX {
        match reader.read(&mut block)? {
            0 => break,
            count => output.extend_from_slice(&block[..count]),
        }
    }
    Ok(output)
}
