//! `reap`: finds what should be ended, and why, and has it ended now.

use protocol::reap::Candidate;
use protocol::reply::Explained;
use protocol::{Request, Timestamp};
use serde_json::{Value, json};

use crate::calls::{self, expected};
use crate::show::json::json_name;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::rfc3339;
use crate::show::{out, time};
use crate::{Context, Error, Repeat};

/// Find what should be ended, print it, and let the reaper end it now
///
/// It is ended in the background; `poolctl events --follow` shows the result.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do nothing: show what the reaper would do now, and why
    #[arg(long)]
    dry_run: bool,
    /// End all of it now, beyond the limit of kills per minute
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,
    /// Do nothing: show for each rule whether, why and when it applies to this session
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["dry_run", "force"])]
    explain: Option<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Prints the candidates, or the verdict of each rule.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if let Some(session) = &args.explain {
        return explain(context, session);
    }
    let mut client = context.client();
    let answer = if args.dry_run {
        client.ask(Request::Candidates)
    } else {
        client.change(&args.repeat, Request::Reap { force: args.force })
    };
    let candidates = expected!(answer?, Candidates)?;
    if context.style.json {
        let candidates: Vec<Value> = candidates.iter().map(document).collect();
        out::json(&json!({"candidates": candidates}))?;
    } else {
        out::text(&table(&candidates, context.style.quiet))?;
    }
    Ok(())
}

fn document(candidate: &Candidate) -> Value {
    json!({
        "session": candidate.session,
        "name": candidate.name,
        "kind": candidate.kind,
        "rule": candidate.rule,
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
    let header: &[&str] =
        if quiet { &[] } else { &["SESSION", "NAME", "KIND", "RULE", "PANE", "PID", "EVIDENCE"] };
    let mut table = Table::new(header);
    for candidate in candidates {
        table.row([
            candidate.session.to_string(),
            candidate.name.to_string(),
            json_name(&candidate.kind),
            candidate.rule.map(|rule| rule.as_str().to_owned()).unwrap_or_default(),
            candidate.pane.map(|pane| pane.to_string()).unwrap_or_default(),
            candidate.init.map(|process| process.pid.to_string()).unwrap_or_default(),
            candidate.evidence.clone(),
        ]);
    }
    table.render()
}

fn explain(context: &Context, session: &str) -> Result<(), Error> {
    let mut client = context.client();
    let session = context.session(session)?;
    let id = calls::session(&mut client, session)?.session.id;
    let rules = expected!(client.ask(Request::Explain(id.into()))?, Explained)?;
    if context.style.json {
        let rules: Vec<Value> = rules.iter().map(rule_document).collect();
        out::json(&json!({"session": id, "rules": rules}))
    } else {
        out::text(&rule_table(&rules, context.style, time::now()))
    }
}

fn rule_document(rule: &Explained) -> Value {
    json!({
        "rule": rule.rule,
        "action": rule.action,
        "by": rule.by,
        "applies": rule.applies,
        "why": rule.why,
        "at": rule.at.map(rfc3339),
    })
}

fn rule_table(rules: &[Explained], style: Style, now: Timestamp) -> String {
    let header: &[&str] = if style.quiet { &[] } else { &["RULE", "ACTION", "BY", "APPLIES", "WHEN", "WHY"] };
    let mut table = Table::new(header);
    for rule in rules {
        table.row([
            rule.rule.as_str().to_owned(),
            rule.action.as_str().to_owned(),
            rule.by.clone(),
            if rule.applies { "yes" } else { "no" }.to_owned(),
            rule.at.map(|at| time::due(at, style, now)).unwrap_or_default(),
            rule.why.clone(),
        ]);
    }
    table.render()
}
