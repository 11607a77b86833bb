//! The rules of the reaper, evaluated at each interval.

use std::sync::Arc;

use tokio::time::sleep;

use crate::effect::reap_round;
use crate::engine::Daemon;
use crate::loops::orphans;

/// Evaluates the rules, and scans for orphans, until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(evaluate_rules(&daemon), orphans::run(&daemon));
}

async fn evaluate_rules(daemon: &Arc<Daemon>) {
    loop {
        sleep(daemon.loaded().daemon.reap_interval).await;
        if !reap_round::round(daemon, false).await {
            return;
        }
    }
}
