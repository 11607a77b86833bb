//! Resource use of the processes of a session.

use process::tree::Table;
use protocol::Session;
use protocol::usage::Usage;

/// Returns the resource use of a session's processes, while it runs.
pub(crate) fn usage_in(table: &Table, session: &Session) -> Option<Usage> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot())?;
    process::inspect::usage::usage_in(
        table,
        run.init?,
        run.agent,
        run.cgroup.as_ref().map(|path| path.as_path()),
    )
}
