//! The commands that the configuration has run before something is ended, and after. They get what it is about in
//! their environment, and the whole candidate as JSON on their standard input.

use std::process::Stdio;
use std::time::Duration;

use protocol::OsBytes;
use protocol::reap::{Lease, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long one may take. The lease allows for both.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs the command before, where there is one. What somebody asked for is ended whatever it says.
///
/// # Errors
/// A sentence: why what a rule found is left alone.
pub(crate) async fn before(lease: &Lease) -> Result<(), String> {
    let said = run(lease, (&lease.before, "before", "")).await;
    if let Err(why) = &said {
        tracing::warn!(why, "the command before");
    }
    if lease.candidate.rule.is_some() { said } else { Ok(()) }
}

/// Runs the command after, where there is one.
pub(crate) async fn after(lease: &Lease, outcome: &Outcome) {
    let word = match outcome {
        Outcome::Gone { .. } => "gone",
        Outcome::Spared { .. } => "spared",
        Outcome::Survivors { .. } => "survivors",
        Outcome::Untouched { .. } => "untouched",
        Outcome::Refused { .. } => "refused",
    };
    if let Err(why) = run(lease, (&lease.after, "after", word)).await {
        tracing::warn!(why, "the command after");
    }
}

async fn run(lease: &Lease, (words, when, outcome): (&[OsBytes], &str, &str)) -> Result<(), String> {
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let shown = format!("the command {when} it, {}, ", program.as_os_str().to_string_lossy());
    let mut command = Command::new(program.as_os_str());
    command.args(args.iter().map(OsBytes::as_os_str));
    command.envs(environment(lease, when, outcome));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let work = async {
        let mut child = command.spawn().map_err(|error| format!("{shown}could not be run: {error}"))?;
        if let (Some(mut stdin), Ok(json)) = (child.stdin.take(), serde_json::to_vec(&lease.candidate)) {
            // One that does not read need not.
            drop(stdin.write_all(&json).await);
        }
        child.wait().await.map_err(|error| format!("{shown}was lost: {error}"))
    };
    match timeout(LIMIT, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{shown}ended with {status}")),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("{shown}took longer than {} s", LIMIT.as_secs())),
    }
}

fn environment(lease: &Lease, when: &str, outcome: &str) -> [(&'static str, String); 7] {
    let candidate = &lease.candidate;
    let pid = candidate.init.or(candidate.agent).map(|process| process.pid.to_string());
    [
        ("POOL_REAP", when.to_owned()),
        ("POOL_REAP_SESSION", candidate.session.to_string()),
        ("POOL_REAP_NAME", candidate.name.to_string()),
        ("POOL_REAP_RULE", candidate.rule.map_or("requested", |rule| rule.word()).to_owned()),
        ("POOL_REAP_EVIDENCE", candidate.evidence.clone()),
        ("POOL_REAP_PID", pid.unwrap_or_default()),
        ("POOL_REAP_OUTCOME", outcome.to_owned()),
    ]
}
