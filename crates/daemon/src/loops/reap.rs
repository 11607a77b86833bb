//! The reaper's rules, asked at each interval.

use std::sync::Arc;

use tokio::time::sleep;

use crate::effect::rules;
use crate::engine::context::Daemon;
use crate::loops::orphans;

/// Asks the rules, and looks for orphans, until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(ask_rules(&daemon), orphans::run(&daemon));
}

async fn ask_rules(daemon: &Arc<Daemon>) {
    loop {
        sleep(daemon.loaded().life.interval).await;
        if !rules::round(daemon, false).await {
            return;
        }
    }
}
