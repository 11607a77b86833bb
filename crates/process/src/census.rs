//! Who on this machine bears a mark of ours, whether anybody remembers them or not.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;

use crate::look::Look;

pub use crate::serve::served;

/// What a process is marked as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It belongs to an incarnation, or to the work on a claim: `POOL_INCARNATION`.
    Incarnation(Tag),
    /// It is a tmux client of this process: `POOL_TMUX_CLIENT`, the number and the start with a dot between.
    Client(ProcId),
}

/// A process with a mark in the environment that it was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// Which.
    pub process: ProcId,
    /// The mark.
    pub mark: Mark,
    /// The socket of its pool.
    pub socket: Option<OsBytes>,
    /// Its name as the kernel keeps it.
    pub command: OsBytes,
}

/// Looks again and again. After the first time a look costs the reading of one small file a process, and two
/// more of each that has executed a program since.
#[derive(Debug, Default)]
pub struct Census {
    last: Option<Look>,
}

impl Census {
    /// All live processes of the caller's user that bear a mark now, by number; not the caller itself.
    ///
    /// # Errors
    /// Where the list of processes cannot be had, or descriptors or memory are short.
    pub fn look(&mut self) -> io::Result<Vec<Tagged>> {
        let look = Look::take(self.last.as_ref(), &|_| false)?;
        let mut tagged: Vec<Tagged> = look.all.keys().filter_map(|pid| tagged(&look, *pid)).collect();
        tagged.sort_unstable_by_key(|tagged| tagged.process);
        self.last = Some(look);
        Ok(tagged)
    }
}

/// What a tmux client of this process has in its environment, in the pool that listens here.
#[must_use]
pub fn client_mark(owner: ProcId, socket: &Path) -> Vec<(&'static str, OsString)> {
    let mark = format!("{}.{}", owner.pid, owner.start);
    vec![("POOL_TMUX_CLIENT", mark.into()), ("POOL_SOCKET", socket.as_os_str().to_owned())]
}

fn tagged(look: &Look, pid: u32) -> Option<Tagged> {
    let seen = look.all.get(&pid).filter(|seen| pid != std::process::id() && seen.now.is_alive())?;
    let marks = seen.marks.as_ref()?;
    let client = || marks.client.filter(|_| !is_of_a_server(look, seen.now.sid));
    let mark = marks.tag.map(Mark::Incarnation).or_else(|| client().map(Mark::Client))?;
    let (process, command) = (seen.now.id, seen.now.comm.clone());
    Some(Tagged { process, mark, socket: marks.socket.clone(), command })
}

/// The first client of a server becomes the server, which leads a session of its own: its environment, and
/// that of what it runs, keeps the mark of that client.
fn is_of_a_server(look: &Look, sid: u32) -> bool {
    let marks = look.all.get(&sid).and_then(|leader| leader.marks.as_ref());
    marks.is_some_and(|marks| marks.client.is_some())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "census_tests.rs"]
mod tests;
