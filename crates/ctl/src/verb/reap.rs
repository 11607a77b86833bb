//! `reap`: what the reaper would do now.

use protocol::reap::Candidate;
use protocol::{Request, Response};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::word;
use crate::show::out;
use crate::show::table::Table;

/// Show what the reaper would do now, and why
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do nothing
    #[arg(long, required = true)]
    pub dry_run: bool,
}

/// Prints the candidates.
pub(crate) fn run(context: &Context, _: &Args) -> Result<u8, Error> {
    let candidates = match context.client().ask(Request::Candidates)? {
        Response::Candidates(candidates) => candidates,
        other => return Err(Error::unexpected(&other)),
    };
    if context.style.json {
        let candidates: Vec<Value> = candidates.iter().map(document).collect();
        out::json(&json!({"candidates": candidates}))?;
    } else {
        out::text(&table(&candidates, context.style.quiet))?;
    }
    Ok(exit::OK)
}

fn document(candidate: &Candidate) -> Value {
    json!({
        "session": candidate.session,
        "name": candidate.name,
        "kind": candidate.kind,
        "evidence": candidate.evidence,
        "incarnation": candidate.tag,
        "server_pid": candidate.server.map(|server| server.process.pid),
        "pane_id": candidate.pane,
        "init_pid": candidate.init.map(|process| process.pid),
        "agent_pid": candidate.agent.map(|process| process.pid),
        "grace_ms": candidate.grace_ms,
        "remove_pane": candidate.remove_pane,
        "cgroup": candidate.cgroup,
    })
}

fn table(candidates: &[Candidate], quiet: bool) -> String {
    let header: &[&str] = if quiet { &[] } else { &["SESSION", "NAME", "KIND", "PANE", "PID", "EVIDENCE"] };
    let mut table = Table::new(header);
    for candidate in candidates {
        table.row([
            candidate.session.to_string(),
            candidate.name.to_string(),
            word(&candidate.kind),
            candidate.pane.map(|pane| pane.to_string()).unwrap_or_default(),
            candidate.init.map(|process| process.pid.to_string()).unwrap_or_default(),
            candidate.evidence.clone(),
        ]);
    }
    table.render()
}
