//! An agent's record of its conversation, which it reads whenever it resumes. The wiring sets it for agents that
//! cannot be told which conversation to resume.

use std::io::ErrorKind;
use std::path::Path;

use agents::{Adapter, wiring};
use protocol::SessionId;

use crate::engine::Daemon;
use crate::host::blocking_pool::Purpose;

/// Renames the record in the directory of a session, so that the next conversation begins without it. Blocks. A link in
/// its place is renamed, not followed.
///
/// # Errors
/// A sentence: the record is still there.
pub(super) fn set_aside(adapter: Adapter, dir: &Path) -> Result<(), String> {
    let Some((record, former)) = wiring::chat_history(adapter, dir) else { return Ok(()) };
    match std::fs::rename(&record, former) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(format!("cannot rename {}: {e}", record.display())),
        _ => Ok(()),
    }
}

/// Does the same for a running agent that was told to begin a fresh conversation.
pub(crate) async fn forget(daemon: &Daemon, session: SessionId, adapter: Adapter) {
    let dir = daemon.paths.session(session);
    let work = move || set_aside(adapter, &dir);
    let done = daemon.blocking.with_timeout(Purpose::Launch, work).await;
    let done = done.unwrap_or_else(|| Err("the file system does not answer".to_owned()));
    if let Err(why) = done {
        tracing::warn!(%session, why, "its next start may continue the conversation that was to be forgotten");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_record_of_the_last_conversation_is_set_aside_and_what_it_links_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (record, former) = (at("aider.chat.history.md"), at("aider.chat.history.former.md"));
        assert_eq!(set_aside(Adapter::Aider, dir.path()), Ok(()), "there is none");
        for text in ["the first", "the second"] {
            fs::write(&record, text).unwrap();
            assert_eq!(set_aside(Adapter::Claude, dir.path()), Ok(()));
            assert!(record.exists(), "it is another agent's");
            assert_eq!(set_aside(Adapter::Aider, dir.path()), Ok(()));
            assert!(!record.exists());
            assert_eq!(fs::read_to_string(&former).unwrap(), text);
        }
        fs::write(at("other"), "of its user").unwrap();
        symlink("other", &record).unwrap();
        assert_eq!(set_aside(Adapter::Aider, dir.path()), Ok(()));
        assert!(
            fs::symlink_metadata(&record).is_err() && fs::symlink_metadata(&former).unwrap().is_symlink()
        );
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "of its user");
        fs::remove_file(&former).unwrap();
        fs::create_dir(&former).unwrap();
        fs::write(&record, "the third").unwrap();
        assert!(set_aside(Adapter::Aider, dir.path()).unwrap_err().starts_with("cannot rename "));
    }
}
