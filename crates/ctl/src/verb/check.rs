//! `check`: reads every record of the database.

use std::ffi::OsStr;

use protocol::reply::Checked;
use protocol::{ErrorCode, Request, Response};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out};
use crate::up::programs;

/// Read every record of the database; exit 9 where one is damaged
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without poold, which must not run; also where none is there
    #[arg(long)]
    pub offline: bool,
}

/// Prints what is found.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.patient_client();
    if args.offline || !client.anybody_there() {
        let said = programs::have_poold(context, &[OsStr::new("--check")])?;
        // Anything else would have been a failure.
        out::json(&json!({"said": said, "problems": [], "quarantined": []}))?;
        return Ok(exit::OK);
    }
    let progress = context.progress("the check");
    let checked = match client.ask(Request::Check)? {
        Response::Checked(checked) => checked,
        other => return Err(Error::unexpected(&other)),
    };
    drop(progress);
    print(context, &checked)?;
    let sound = checked.problems.is_empty() && checked.quarantined.is_empty();
    Ok(if sound { exit::OK } else { ErrorCode::Storage.exit_code() })
}

fn print(context: &Context, checked: &Checked) -> Result<(), Error> {
    let Checked { records, bytes, problems, quarantined } = checked;
    if context.style.json {
        let document = json!({
            "records": records, "bytes": bytes, "problems": problems, "quarantined": quarantined,
        });
        return out::json(&document);
    }
    for (what, lines) in [("problem", problems), ("quarantined", quarantined)] {
        for line in lines {
            out::line(&format!("{what}: {}", escape::line(line)))?;
        }
    }
    let found = match (problems.len(), quarantined.len()) {
        (0, 0) => "all sound".to_owned(),
        (damaged, aside) => format!("{damaged} problems, {aside} records put aside"),
    };
    context.say(&format!("{records} records, {bytes} bytes: {found}"))
}
