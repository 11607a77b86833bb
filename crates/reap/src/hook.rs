//! The commands that the configuration has run before something is ended, and after. They get what it is about in
//! their environment, and the whole candidate as JSON on their standard input.

use std::process::Stdio;
use std::time::Duration;

use process::identity;
use process::kill;
use process::tree::Evidence;
use protocol::reap::{CandidateKind, Lease, Outcome};
use protocol::{OsBytes, ProcId, Tag};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Between TERM and KILL for one that takes longer.
const GRACE: Duration = Duration::from_millis(500);
/// How long one may take. The lease allows for both.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs the command before, where there is one. What somebody asked for is ended whatever it says, and what is over is
/// cleaned up.
///
/// # Errors
/// A sentence: why what a rule found, and runs, is left alone.
pub(crate) async fn before(lease: &Lease) -> Result<(), String> {
    let said = run(lease, (&lease.before, "before", "")).await;
    if let Err(why) = &said {
        tracing::warn!(why, "the command before");
    }
    let over = matches!(
        lease.candidate.kind,
        CandidateKind::ZombiePane | CandidateKind::RetiredTag | CandidateKind::Leftover
    );
    if lease.candidate.rule.is_some() && !over { said } else { Ok(()) }
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
    let mut child = command.spawn().map_err(|error| format!("{shown}could not be run: {error}"))?;
    let id = child.id().and_then(|pid| identity::identify(pid).ok()?);
    let json = serde_json::to_vec(&lease.candidate).unwrap_or_default();
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // One that does not read need not.
            drop(stdin.write_all(&json).await);
        }
        child.wait().await
    };
    match timeout(LIMIT, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{shown}ended with {status}")),
        Ok(Err(error)) => Err(format!("{shown}was lost: {error}")),
        Err(_) => {
            end(id).await;
            Err(format!("{shown}took longer than {} s", LIMIT.as_secs()))
        }
    }
}

/// Ends one that takes too long, with what it started.
async fn end(id: Option<ProcId>) {
    let Some(init) = id else { return };
    // No process has this mark.
    let evidence =
        Evidence { init: Some(init), sid: None, tag: Tag([0; 16]), cgroup: None, socket: Some("/".into()) };
    let options = kill::Options { grace: GRACE, init_stands_by: false, ..kill::Options::default() };
    let ended = tokio::task::spawn_blocking(move || kill::kill(&evidence, &options)).await;
    if let Ok(Err(error)) = ended {
        tracing::warn!(%error, "a command that took too long may live on");
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
