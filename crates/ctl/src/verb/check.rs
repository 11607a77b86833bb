//! `check`: reads every record of the database.

use std::ffi::OsStr;

use protocol::reply::Checked;
use protocol::{ErrorCode, Request, counted};
use serde_json::json;

use crate::calls::expected;
use crate::show::{escape, out};
use crate::up::programs;
use crate::{Context, Error, exit};

/// Read every record of the database; exit 9 if one is damaged
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without poold, which must not run; the default if it does not run
    #[arg(long)]
    offline: bool,
    /// Discard the quarantined records for good, without poold, which must not run
    #[arg(long)]
    discard: bool,
}

/// Prints the damaged records.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    if args.discard {
        programs::run_poold(context, &[OsStr::new("--discard-quarantined")], |said| json!({"said": said}))?;
        return Ok(exit::OK);
    }
    let mut client = context.unlimited_client();
    if args.offline || !client.is_listening() {
        // A damaged record is an error.
        let document = |said: &str| json!({"records": null, "bytes": null, "problems": [], "quarantined": [], "said": said});
        programs::run_poold(context, &[OsStr::new("--check")], document)?;
        return Ok(exit::OK);
    }
    let progress = context.progress("the check");
    let checked = expected!(client.ask(Request::Check)?, Checked)?;
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
        (0, 0) => "no damage".to_owned(),
        (damaged, quarantined) => {
            format!(
                "{}, {} quarantined",
                counted(damaged as u64, "problem"),
                counted(quarantined as u64, "record")
            )
        }
    };
    context.say(&format!("{}, {bytes} bytes: {found}", counted(*records, "record")))
}
