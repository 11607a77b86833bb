//! Resource use of the processes of sessions.

use protocol::{Session, Usage};
use world::processes::{Processes, SessionProcesses};

/// Returns the resource use of the processes of each session; `None` for one that does not run.
pub(crate) fn of_sessions(processes: &dyn Processes, sessions: &[Session]) -> Vec<Option<Usage>> {
    let running = |session: &Session| {
        let run = session.running()?;
        Some(SessionProcesses { init: run.init?, agent: run.agent, cgroup: run.cgroup.clone() })
    };
    let running: Vec<Option<SessionProcesses>> = sessions.iter().map(running).collect();
    let measured: Vec<SessionProcesses> = running.iter().flatten().cloned().collect();
    let mut usage = processes.usage(&measured).into_iter();
    running.iter().map(|session| session.as_ref().and_then(|_| usage.next()?)).collect()
}
