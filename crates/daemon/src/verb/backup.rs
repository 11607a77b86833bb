//! `backup`: a consistent copy of the database while it is in use.

use std::sync::Arc;

use protocol::{OsBytes, Refusal, Reply, Response};
use store::{StoreError, maintenance};

use crate::engine::Daemon;
use crate::host::blocking_pool::{self, Purpose};
use crate::verb::database;

pub(super) async fn backup(daemon: &Arc<Daemon>, path: OsBytes) -> Reply {
    if !path.as_path().is_absolute() {
        return Err(Refusal::usage("the path of a backup is absolute"));
    }
    let reader = database::reader(daemon).await?;
    let file = path.as_path().display().to_string();
    let made = daemon.blocking.without_timeout(Purpose::DatabaseCopies, move || {
        maintenance::backup(&reader, path.as_path())
            .and_then(|()| Ok(std::fs::metadata(path.as_path())?.len()))
    });
    let bytes = made.await.map_err(blocking_pool::refusal)?.map_err(|error| match error {
        StoreError::Io(error) => Refusal::failed(format!("{file}: {error}")),
        other => database::refusal(&other),
    })?;
    Ok(Response::Text(format!("{bytes} bytes")))
}
