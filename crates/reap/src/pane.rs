//! The pane of a candidate: found, removed, and shown to be gone. Only ever the one that `poold`
//! named, checked by the server together with the removal.

use std::time::{Duration, Instant};

use process::identity;
use protocol::ServerId;
use protocol::reap::Candidate;
use tmux::{Answer, Driver, Listing, PaneRef, ServerRef, TmuxError};

/// How long a pane, or a server whose last pane it was, may take to go.
const LIMIT: Duration = Duration::from_secs(2);
/// The first and the longest pause between two looks; they double. The first look comes at once: tmux has done it.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// What a look says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pane {
    /// It is there.
    Here(PaneRef),
    /// A complete listing of its server lacks it, or its server is dead.
    Gone,
    /// It is another's, and why.
    NotOurs(String),
    /// Nothing was learnt, and why.
    Unknown(String),
}

/// Looks for it: where it is known, at it alone, else among all.
pub(crate) async fn find(tmux: &dyn Driver, candidate: &Candidate) -> Pane {
    match known(candidate) {
        Some((server, pane)) => said(server, pane, tmux.peek(pane).await),
        None => find_among_all(tmux, candidate).await,
    }
}

fn known(candidate: &Candidate) -> Option<(ServerId, PaneRef)> {
    let (server, pane) = (candidate.server?, candidate.pane?);
    Some((server, PaneRef { server: server.into(), pane, tag: candidate.tag }))
}

/// What the server's word about one pane means.
fn said(server: ServerId, pane: PaneRef, answer: Result<Answer, TmuxError>) -> Pane {
    match answer {
        Ok(Answer::Gone) => Pane::Gone,
        Ok(Answer::NotOurs) => {
            Pane::NotOurs(format!("pane {} does not have the session's tag any more", pane.pane))
        }
        Ok(Answer::OtherServer) | Err(_) if is_dead(server) => Pane::Gone,
        Ok(Answer::OtherServer) => {
            Pane::Unknown(format!("its pane: another tmux server answers, and its own ({server}) lives"))
        }
        Ok(_) => Pane::Here(pane),
        Err(error) => Pane::Unknown(format!("its pane: {error}")),
    }
}

async fn find_among_all(tmux: &dyn Driver, candidate: &Candidate) -> Pane {
    match tmux.observe().await {
        Ok(listing) => in_listing(candidate, &listing),
        Err(_) if candidate.server.is_some_and(is_dead) => Pane::Gone,
        // It was never seen in a server, and there is none.
        Err(TmuxError::NoServer) if candidate.server.is_none() => Pane::Gone,
        Err(error) => Pane::Unknown(format!("its pane: {error}")),
    }
}

/// The tag tells which one it is.
fn in_listing(candidate: &Candidate, listing: &Listing) -> Pane {
    if let Some(server) = candidate.server.filter(|server| ServerRef::from(*server) != listing.server) {
        return if is_dead(server) {
            Pane::Gone
        } else {
            Pane::Unknown(format!("its pane: another tmux server answers, and its own ({server}) lives"))
        };
    }
    let found = listing.panes.iter().find(|(_, pane)| pane.tag == Some(candidate.tag));
    found.map_or(Pane::Gone, |(id, _)| {
        Pane::Here(PaneRef { server: listing.server, pane: *id, tag: candidate.tag })
    })
}

fn is_dead(server: ServerId) -> bool {
    identity::exited(server.process).unwrap_or(false)
}

/// Removes it, and looks again until it is gone.
///
/// # Errors
/// A sentence: why it is not shown to be gone.
pub(crate) async fn remove(tmux: &dyn Driver, candidate: &Candidate) -> Result<(), String> {
    let start = Instant::now();
    let mut pause = Duration::ZERO;
    loop {
        // When this look begins: what was done before it is seen by it, however long that took.
        let late = start.elapsed() > LIMIT;
        let why = match find(tmux, candidate).await {
            Pane::Gone => return Ok(()),
            Pane::NotOurs(why) => return Err(why),
            Pane::Unknown(why) => why,
            Pane::Here(pane) => match tmux.kill_pane(pane).await {
                // The next look shows it.
                Ok(Answer::Done | Answer::Gone) => format!("pane {} is still there", pane.pane),
                Ok(answer) => format!("pane {} was not removed ({answer:?})", pane.pane),
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
    use protocol::{ProcId, SessionId, Tag};
    use tmux::fake::{Fake, Fault};
    use tmux::{Create, Created, Size};

    use super::*;

    const TAG: Tag = Tag([9; 16]);

    async fn create(tmux: &Fake) -> Created {
        let create = Create {
            token: protocol::Token::default(),
            name: "one".parse().unwrap(),
            tag: TAG,
            size: Size { width: 80, height: 24 },
            history_limit: None,
            init: "/i".into(),
            job: "/j".into(),
            log: tmux::LogOptions::new("/l"),
        };
        tmux.create(&create).await.unwrap()
    }

    /// With a server process of this start time; none has 0.
    fn candidate(created: Option<Created>, start: u64) -> Candidate {
        let server = |c: Created| ServerId {
            process: ProcId { pid: c.pane.server.pid, start },
            started_at: c.pane.server.started_at,
        };
        Candidate {
            session: SessionId(1),
            name: "one".parse().unwrap(),
            kind: CandidateKind::ZombiePane,
            evidence: String::new(),
            tag: TAG,
            server: created.map(server),
            pane: created.map(|created| created.pane.pane),
            init: None,
            agent: None,
            grace_ms: 0,
            remove_pane: true,
            cgroup: None,
            rule: None,
        }
    }

    #[tokio::test]
    async fn p07_it_is_found_by_id_or_tag_and_removed_once() {
        let tmux = Fake::default();
        for by_id in [true, false] {
            let created = create(&tmux).await;
            let candidate = candidate(Some(created).filter(|_| by_id), 0);
            assert_eq!(find(&tmux, &candidate).await, Pane::Here(created.pane));
            assert_eq!(remove(&tmux, &candidate).await, Ok(()));
            assert_eq!(find(&tmux, &candidate).await, Pane::Gone);
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
            assert!(matches!(find(&tmux, &candidate).await, Pane::NotOurs(_)));
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
        assert_eq!(find(&tmux, &candidate(Some(created), 0)).await, Pane::Gone, "its server is dead");
        let me = identity::me().unwrap();
        let mut living = candidate(Some(created), 0);
        living.server = Some(ServerId { process: me, started_at: 1 });
        assert!(matches!(find(&tmux, &living).await, Pane::Unknown(_)), "its server lives");
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
            assert!(matches!(find(&tmux, &living).await, Pane::Unknown(_)), "{fault:?}");
            assert_eq!(find(&tmux, &candidate(Some(created), 0)).await, Pane::Gone, "{fault:?}");
        }
        tmux.fail([Fault::NoServer]);
        assert_eq!(find(&tmux, &candidate(None, 0)).await, Pane::Gone, "it was never seen in a server");
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
            // The first fault meets the look, the second the removal.
            tmux.fail([fault.clone(), fault]);
            assert_eq!(remove(&*tmux, &candidate).await, Ok(()));
            tmux.restart_server();
            create(&tmux).await;
        }
    }
}
