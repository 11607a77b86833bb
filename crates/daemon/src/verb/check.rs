//! `check`: reads every record, and compares it with memory.

use std::sync::Arc;

use protocol::{Reply, Response};
use store::maintenance;

use crate::engine::Daemon;
use crate::host::blocking_pool::{self, Purpose};
use crate::verb::database;

pub(super) async fn check(daemon: &Arc<Daemon>) -> Reply {
    let reader = database::reader(daemon).await?;
    let checked = daemon
        .blocking
        .without_timeout(Purpose::DatabaseCopies, move || maintenance::check(&reader))
        .await
        .map_err(blocking_pool::refusal)?;
    checked.map(Response::Checked).map_err(|error| database::refusal(&error))
}
