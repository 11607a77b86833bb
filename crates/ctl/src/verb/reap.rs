//! `reap`: what should be dead, and why; have it looked for and ended now.

use protocol::reap::Candidate;
use protocol::reply::Explained;
use protocol::{Request, Response, Timestamp};
use serde_json::{Value, json};

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::word;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::rfc3339;
use crate::show::{human, out, time};
use crate::verb::expect_session;

/// Look now for what should be dead, print it, and let the reaper end it
///
/// It is ended in the background; `poolctl events --follow` tells what comes of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do nothing: show what the reaper would do now, and why
    #[arg(long)]
    pub dry_run: bool,
    /// End what is found now whatever the limit of kills a minute says
    #[arg(long, conflicts_with = "dry_run")]
    pub force: bool,
    /// Do nothing: show for each rule why it does or does not apply to this session, and when it would
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["dry_run", "force"])]
    pub explain: Option<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Prints the candidates, or what each rule says.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if let Some(session) = &args.explain {
        return explain(context, session);
    }
    let mut client = context.client();
    let answer = if args.dry_run {
        client.ask(Request::Candidates)
    } else {
        client.change(&args.repeat, Request::Reap { force: args.force })
    };
    let candidates = match answer? {
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
            word(&candidate.kind),
            candidate.rule.map(|rule| rule.word().to_owned()).unwrap_or_default(),
            candidate.pane.map(|pane| pane.to_string()).unwrap_or_default(),
            candidate.init.map(|process| process.pid.to_string()).unwrap_or_default(),
            candidate.evidence.clone(),
        ]);
    }
    table.render()
}

fn explain(context: &Context, session: &str) -> Result<u8, Error> {
    let mut client = context.client();
    let session = context.session(session)?;
    let id = expect_session(client.ask(Request::Show(session))?)?.session.id;
    let rules = match client.ask(Request::Explain(id.into()))? {
        Response::Explained(rules) => rules,
        other => return Err(Error::unexpected(&other)),
    };
    if context.style.json {
        let rules: Vec<Value> = rules.iter().map(said).collect();
        out::json(&json!({"session": id, "rules": rules}))?;
    } else {
        out::text(&explained(&rules, context.style, time::now()))?;
    }
    Ok(exit::OK)
}

fn said(rule: &Explained) -> Value {
    json!({
        "rule": rule.rule,
        "action": rule.action,
        "by": rule.by,
        "applies": rule.applies,
        "why": rule.why,
        "at": rule.at.map(rfc3339),
    })
}

fn explained(rules: &[Explained], style: Style, now: Timestamp) -> String {
    let header: &[&str] = if style.quiet { &[] } else { &["RULE", "ACTION", "BY", "APPLIES", "WHEN", "WHY"] };
    let mut table = Table::new(header);
    for rule in rules {
        table.row([
            rule.rule.word().to_owned(),
            rule.action.word().to_owned(),
            rule.by.clone(),
            if rule.applies { "yes" } else { "no" }.to_owned(),
            rule.at.map(|at| human::due(at, style, now)).unwrap_or_default(),
            rule.why.clone(),
        ]);
    }
    table.render()
}
