//! Problems of the pool's workers.

use pool::Pool;
use protocol::Session;

/// Number of failures in a row from which on a worker that is still restarted is a problem.
const FAILURES: u32 = 3;

/// Returns the workers that fail repeatedly or are no longer started, each with what to do.
pub(super) fn problems(pool: &Pool) -> impl Iterator<Item = String> {
    pool.workers().filter_map(|(host, worker)| {
        let name = &worker.name;
        let logs = format!("`poolctl worker logs {name}` may tell why");
        let again = format!("`poolctl worker start {name}` tries again");
        let budget = &host.budget;
        if pool::session::is_held_as_copy(host) {
            return Some(format!(
                "worker {name}: not started, as this pool is a copy or was restored; {again}"
            ));
        }
        let last = last_end(host);
        if budget.exhausted {
            let why =
                format!("it failed too often (last: {last}), and its messages wait or went to its fallback");
            return Some(format!("worker {name}: {why}; {logs}, {again}"));
        }
        let failures = budget.failures;
        let is_failing = budget.due_at.is_some() && failures >= FAILURES;
        let why = format!(
            "it failed {failures} times in a row (last: {last}), and is tried with growing pauses while messages wait"
        );
        is_failing.then(|| format!("worker {name}: {why}; {logs}"))
    })
}

fn last_end(host: &Session) -> String {
    let exit = host.exit.map(|exit| format!("exit {}", exit.shell_code()));
    host.detail.clone().or(exit).unwrap_or_else(|| "no exit code is known".to_owned())
}
