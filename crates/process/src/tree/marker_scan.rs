//! Finds every process on the machine that carries a tmux-pool environment marker.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use protocol::{OsBytes, ProcId, Tag};

use super::snapshot::Snapshot;

/// Meaning of a process's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// `POOL_INCARNATION`: belongs to an incarnation, or to a worker's claim.
    Incarnation(Tag),
    /// `POOL_TMUX_CLIENT`: a tmux client of this process. Its value is `PID.START`.
    Client(ProcId),
}

/// A process with a marker in its initial environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedProcess {
    /// Its identity.
    pub process: ProcId,
    pub marker: Marker,
    /// Socket of its pool: `POOL_SOCKET`.
    pub socket: Option<OsBytes>,
    /// Program name as the kernel keeps it.
    pub command: OsBytes,
}

/// Scans all processes repeatedly. Every scan after the first reads one small file per process, and two more
/// of each process that has called exec since.
#[derive(Debug, Default)]
pub struct MarkerScanner {
    previous: Option<Arc<Snapshot>>,
}

impl MarkerScanner {
    /// Returns all living processes of the caller's user that carry a marker, ordered by pid, except the
    /// caller.
    ///
    /// # Errors
    /// The processes cannot be listed, or descriptors or memory are exhausted.
    pub fn scan(&mut self) -> io::Result<Vec<MarkedProcess>> {
        let snapshot = Arc::new(Snapshot::take(self.previous.as_ref(), &|_| false)?);
        let pids = snapshot.entries.keys();
        let mut marked: Vec<MarkedProcess> = pids.filter_map(|pid| marked_process(&snapshot, *pid)).collect();
        marked.sort_unstable_by_key(|marked| marked.process);
        self.previous = Some(snapshot);
        Ok(marked)
    }
}

/// Returns the marker variables for a tmux client of `owner`, in the pool that listens on `socket`.
pub fn client_marker(owner: ProcId, socket: &Path) -> Vec<(&'static str, OsString)> {
    let marker = format!("{}.{}", owner.pid, owner.start);
    vec![("POOL_TMUX_CLIENT", marker.into()), ("POOL_SOCKET", socket.as_os_str().to_owned())]
}

fn marked_process(snapshot: &Snapshot, pid: u32) -> Option<MarkedProcess> {
    let entry =
        snapshot.entries.get(&pid).filter(|entry| pid != std::process::id() && entry.info.is_alive())?;
    let markers = entry.markers.as_ref()?;
    let client = || markers.client.filter(|_| !belongs_to_server(snapshot, entry.info.sid));
    let marker = markers.tag.map(Marker::Incarnation).or_else(|| client().map(Marker::Client))?;
    let (process, command) = (entry.info.id, entry.info.comm.clone());
    Some(MarkedProcess { process, marker, socket: markers.socket.clone(), command })
}

/// True if the leader of this session was started as a tmux client: the first client forks the server, which
/// leads a session of its own and keeps, like its children, the client's environment.
fn belongs_to_server(snapshot: &Snapshot, sid: u32) -> bool {
    let markers = snapshot.entries.get(&sid).and_then(|leader| leader.markers.as_ref());
    markers.is_some_and(|markers| markers.client.is_some())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
