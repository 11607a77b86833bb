//! The pane of a candidate: finding it, removing it, and proving that it is gone. Only the pane that
//! `poold` named is touched, checked by the server in the same pass as the removal.

use std::time::{Duration, Instant};

use process::identity;
use protocol::ServerId;
use protocol::reap::Candidate;
use tmux::{Answer, Driver, Listing, PaneRef, ServerRef, TmuxError};

/// Time for a pane, or for a server that lost its last pane, to disappear.
const LIMIT: Duration = Duration::from_secs(2);
/// First and longest pause between two checks; they double. The first check comes at once, because tmux is
/// done by then.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// State of a candidate's pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PaneState {
    /// It exists.
    Here(PaneRef),
    /// A complete listing of its server lacks it, or its server is dead.
    Gone,
    /// It belongs to someone else; the reason.
    NotOurs(String),
    /// Its state could not be determined; the reason.
    Unknown(String),
}

/// Finds the pane: by its id if that is known, else by its tag in a listing.
pub(crate) async fn find(tmux: &dyn Driver, candidate: &Candidate) -> PaneState {
    match known_pane(candidate) {
        Some((server, pane)) => interpret(server, pane, tmux.peek(pane).await),
        None => find_by_tag(tmux, candidate).await,
    }
}

fn known_pane(candidate: &Candidate) -> Option<(ServerId, PaneRef)> {
    let (server, pane) = (candidate.server?, candidate.pane?);
    Some((server, PaneRef { server: server.into(), pane, tag: candidate.tag }))
}

/// Interprets the server's answer about one pane.
fn interpret(server: ServerId, pane: PaneRef, answer: Result<Answer, TmuxError>) -> PaneState {
    match answer {
        Ok(Answer::Gone) => PaneState::Gone,
        Ok(Answer::NotOurs) => {
            PaneState::NotOurs(format!("pane {} no longer has the session's tag", pane.pane))
        }
        Ok(Answer::OtherServer) | Err(_) if is_dead(server) => PaneState::Gone,
        Ok(Answer::OtherServer) => PaneState::Unknown(format!(
            "its pane: another tmux server answers, and its own ({server}) still runs"
        )),
        Ok(_) => PaneState::Here(pane),
        Err(error) => PaneState::Unknown(format!("its pane: {error}")),
    }
}

async fn find_by_tag(tmux: &dyn Driver, candidate: &Candidate) -> PaneState {
    match tmux.observe().await {
        Ok(listing) => in_listing(candidate, &listing),
        Err(_) if candidate.server.is_some_and(is_dead) => PaneState::Gone,
        // Never seen in a server, and no server runs.
        Err(TmuxError::NoServer) if candidate.server.is_none() => PaneState::Gone,
        Err(error) => PaneState::Unknown(format!("its pane: {error}")),
    }
}

/// Finds the pane by its tag.
fn in_listing(candidate: &Candidate, listing: &Listing) -> PaneState {
    if let Some(server) = candidate.server.filter(|server| ServerRef::from(*server) != listing.server) {
        return if is_dead(server) {
            PaneState::Gone
        } else {
            PaneState::Unknown(format!(
                "its pane: another tmux server answers, and its own ({server}) still runs"
            ))
        };
    }
    let found = listing.panes.iter().find(|(_, pane)| pane.tag == Some(candidate.tag));
    found.map_or(PaneState::Gone, |(id, _)| {
        PaneState::Here(PaneRef { server: listing.server, pane: *id, tag: candidate.tag })
    })
}

fn is_dead(server: ServerId) -> bool {
    identity::exited(server.process).unwrap_or(false)
}

/// Removes the pane, and checks until it is gone.
///
/// # Errors
/// A sentence with the reason why it is not proved to be gone.
pub(crate) async fn remove(tmux: &dyn Driver, candidate: &Candidate) -> Result<(), String> {
    let start = Instant::now();
    let mut pause = Duration::ZERO;
    loop {
        // Measured at the beginning of the check, so that the check sees everything done before that time, however long
        // it takes.
        let late = start.elapsed() > LIMIT;
        let why = match find(tmux, candidate).await {
            PaneState::Gone => return Ok(()),
            PaneState::NotOurs(why) => return Err(why),
            PaneState::Unknown(why) => why,
            PaneState::Here(pane) => match tmux.kill_pane(pane).await {
                // The next check confirms it.
                Ok(Answer::Done | Answer::Gone) => format!("pane {} is still there", pane.pane),
                Ok(answer) => format!("pane {} was not removed: {answer}", pane.pane),
                Err(error) => format!("pane {} was not removed: {error}", pane.pane),
            },
        };
        if late {
            return Err(why);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::reap::CandidateKind;
    use protocol::{ProcId, Tag};
    use tmux::fake::{Fake, Fault};
    use tmux::{Create, Created};

    use super::*;

    const TAG: Tag = Tag([9; 16]);

    async fn create(tmux: &Fake) -> Created {
        tmux.create(&Create::sample("one".parse().unwrap(), TAG)).await.unwrap()
    }

    /// Returns a candidate whose server process has this start time; no process has 0.
    fn candidate(created: Option<Created>, start: u64) -> Candidate {
        let server = |c: Created| ServerId {
            process: ProcId { pid: c.pane.server.pid, start },
            started_at: c.pane.server.started_at,
        };
        Candidate {
            kind: CandidateKind::ZombiePane,
            tag: TAG,
            server: created.map(server),
            pane: created.map(|created| created.pane.pane),
            remove_pane: true,
            ..crate::tests::candidate("one")
        }
    }

    #[tokio::test]
    async fn p07_it_is_found_by_id_or_tag_and_removed_once() {
        let tmux = Fake::default();
        for by_id in [true, false] {
            let created = create(&tmux).await;
            let candidate = candidate(Some(created).filter(|_| by_id), 0);
            assert_eq!(find(&tmux, &candidate).await, PaneState::Here(created.pane));
            assert_eq!(remove(&tmux, &candidate).await, Ok(()));
            assert_eq!(find(&tmux, &candidate).await, PaneState::Gone);
            assert_eq!(remove(&tmux, &candidate).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn p07_a_pane_with_another_tag_is_left() {
        let tmux = Fake::default();
        let created = create(&tmux).await;
        let candidate = candidate(Some(created), 0);
        for tag in [None, Some(Tag([8; 16]))] {
            tmux.change(created.pane.pane, |pane| pane.tag = tag);
            assert!(matches!(find(&tmux, &candidate).await, PaneState::NotOurs(_)));
            assert!(remove(&tmux, &candidate).await.is_err());
        }
        assert!(!tmux.calls().contains(&"kill_pane"));
    }

    #[tokio::test]
    async fn t03_the_same_id_on_a_new_server_is_not_the_pane() {
        let tmux = Fake::default();
        let created = create(&tmux).await;
        tmux.restart_server();
        let successor = create(&tmux).await;
        assert_eq!(successor.pane.pane, created.pane.pane);
        assert_eq!(find(&tmux, &candidate(Some(created), 0)).await, PaneState::Gone, "its server is dead");
        let me = identity::me().unwrap();
        for pane in [Some(created.pane.pane), None] {
            let server = Some(ServerId { process: me, started_at: 1 });
            let living = Candidate { server, pane, ..candidate(Some(created), 0) };
            let found = find(&tmux, &living).await;
            assert!(matches!(found, PaneState::Unknown(_)), "its server lives: {pane:?}");
        }
        assert!(!tmux.calls().contains(&"kill_pane"));
    }

    #[tokio::test]
    async fn silence_proves_nothing_but_a_dead_server_does() {
        let tmux = Fake::default();
        let created = create(&tmux).await;
        let mut living = candidate(Some(created), 0);
        living.server = Some(ServerId { process: identity::me().unwrap(), started_at: 1 });
        for fault in [Fault::Hang, Fault::NoServer, Fault::CutReply] {
            tmux.fail([fault.clone(), fault.clone()]);
            assert!(matches!(find(&tmux, &living).await, PaneState::Unknown(_)), "{fault:?}");
            assert_eq!(find(&tmux, &candidate(Some(created), 0)).await, PaneState::Gone, "{fault:?}");
        }
        tmux.fail([Fault::NoServer]);
        assert_eq!(find(&tmux, &candidate(None, 0)).await, PaneState::Gone, "it was never seen in a server");
    }

    #[tokio::test]
    async fn what_was_done_late_is_looked_at_all_the_same() {
        let tmux = Fake::default();
        let created = create(&tmux).await;
        tmux.fail([Fault::Late(LIMIT + Duration::from_millis(100))]);
        assert_eq!(remove(&tmux, &candidate(Some(created), 0)).await, Ok(()));
        assert_eq!(tmux.calls(), ["create", "peek", "kill_pane", "peek"]);
    }

    #[tokio::test]
    async fn a_lost_answer_is_made_up_for() {
        let tmux = Arc::new(Fake::default());
        let created = create(&tmux).await;
        let mut candidate = candidate(Some(created), 0);
        candidate.server = None;
        for fault in [Fault::LoseReply, Fault::Hang, Fault::CutReply] {
            // The first fault affects the check, the second the removal.
            tmux.fail([fault.clone(), fault]);
            assert_eq!(remove(&*tmux, &candidate).await, Ok(()));
            tmux.restart_server();
            create(&tmux).await;
        }
    }
}
