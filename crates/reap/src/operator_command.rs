//! The commands that the configuration runs before and after an end. They get the main facts of the candidate in
//! their environment, and the whole candidate as JSON on their standard input.

use std::process::Stdio;
use std::time::Duration;

use process::identity;
use process::kill;
use process::tree::Evidence;
use protocol::reap::{CandidateKind, Lease, Outcome, Rule};
use protocol::{OsBytes, ProcId, Tag};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Time between TERM and KILL for a command that exceeds its limit.
const GRACE: Duration = Duration::from_millis(500);
/// Time limit of one command. The lease allows for both.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Runs the operator's command `before`, if one is configured, within this time. It can only refuse to let a rule end
/// something that runs. An end that a user requested, a parking, and the clean-up of something that has ended take
/// place anyway.
///
/// # Errors
/// A sentence with the reason for the refusal.
pub(crate) async fn run_before(lease: &Lease, limit: Duration) -> Result<(), String> {
    let said = run(lease, (&lease.before, "before", ""), limit).await;
    if let Err(why) = &said {
        tracing::warn!(why, "the command before failed");
    }
    let candidate = &lease.candidate;
    let has_exited = |id: ProcId| identity::exited(id).unwrap_or(false);
    let over = match candidate.kind {
        CandidateKind::ZombiePane | CandidateKind::RetiredTag | CandidateKind::Leftover => true,
        // Its message waits for the proof that nothing is left of it.
        CandidateKind::StaleWorker => candidate.init.is_some_and(has_exited),
        _ => false,
    };
    // A session that is parked for a shortage of the machine has been hung up by now.
    let is_hung_up = candidate.rule.is_some_and(Rule::is_about_machine);
    if candidate.rule.is_some() && !over && !is_hung_up { said } else { Ok(()) }
}

/// Runs the operator's command `after`, if one is configured, within this time.
pub(crate) async fn run_after(lease: &Lease, outcome: &Outcome, limit: Duration) {
    let word = match outcome {
        Outcome::Gone { .. } => "gone",
        Outcome::Spared { .. } => "spared",
        Outcome::Survivors { .. } => "survivors",
        Outcome::Untouched { .. } => "untouched",
        Outcome::Refused { .. } => "refused",
    };
    if let Err(why) = run(lease, (&lease.after, "after", word), limit).await {
        tracing::warn!(why, "the command after failed");
    }
}

async fn run(
    lease: &Lease,
    (words, when, outcome): (&[OsBytes], &str, &str),
    limit: Duration,
) -> Result<(), String> {
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
            // The command may ignore its input.
            drop(stdin.write_all(&json).await);
        }
        child.wait().await
    };
    match timeout(limit, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{shown}ended with {status}")),
        Ok(Err(error)) => Err(format!("{shown}was lost: {error}")),
        Err(_) => {
            end(id).await;
            Err(format!("{shown}took longer than {} s", limit.as_secs()))
        }
    }
}

/// Kills a command that exceeded its limit, with its descendants.
async fn end(id: Option<ProcId>) {
    let Some(init) = id else { return };
    // No process has this tag.
    let evidence =
        Evidence { init: Some(init), sid: None, tag: Tag([0; 16]), cgroup: None, socket: Some("/".into()) };
    let options = kill::KillOptions { grace: GRACE, init_exits_last: false, ..kill::KillOptions::default() };
    let ended = tokio::task::spawn_blocking(move || kill::kill(&evidence, &options)).await;
    if let Ok(Err(error)) = ended {
        tracing::warn!(%error, "a command that exceeded its time limit may still run");
    }
}

fn environment(lease: &Lease, when: &str, outcome: &str) -> [(&'static str, String); 7] {
    let candidate = &lease.candidate;
    let pid = candidate.init.or(candidate.agent).map(|process| process.pid.to_string());
    [
        ("POOL_REAP", when.to_owned()),
        ("POOL_REAP_SESSION", candidate.session.to_string()),
        ("POOL_REAP_NAME", candidate.name.to_string()),
        ("POOL_REAP_RULE", candidate.rule.map_or("requested", |rule| rule.as_str()).to_owned()),
        ("POOL_REAP_EVIDENCE", candidate.evidence.clone()),
        ("POOL_REAP_PID", pid.unwrap_or_default()),
        ("POOL_REAP_OUTCOME", outcome.to_owned()),
    ]
}
