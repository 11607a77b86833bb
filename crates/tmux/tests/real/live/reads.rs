//! Reads over a connection agree with a plain listing.

use std::time::Duration;

use protocol::tmux::TmuxTransport;
use protocol::{PaneId, TmuxSessionId, WindowId};
use tmux::live::{Live, LiveEvent, Reading, Scope, SessionPart};
use tmux::{Created, TmuxError};

use super::{open, other, own, part, read, sessions, whole};
use crate::support::Rig;

/// Reads every scope, and compares the answers with a plain listing.
async fn reads(rig: &Rig, live: &mut Live, created: &Created) {
    let plain = rig.device.observe().await.unwrap();
    assert_eq!(live.server(), created.pane.server);
    assert_eq!(read(live, Scope::Alive).await, Reading::Alive);
    assert_eq!(whole(live).await, plain);
    assert_eq!(read(live, Scope::Sessions).await, Reading::Sessions(plain.sessions.clone()));
    let expected = SessionPart {
        id: created.session,
        session: plain.sessions[&created.session].clone(),
        panes: plain.panes.clone().into_iter().filter(|(_, pane)| pane.session == created.session).collect(),
    };
    assert_eq!(part(live, Scope::Session(created.session)).await, Some(expected.clone()));
    assert_eq!(part(live, Scope::Window(created.window)).await, Some(expected.clone()));
    assert_eq!(part(live, Scope::Pane(created.pane.pane)).await, Some(expected));
    assert_eq!(part(live, Scope::Session(TmuxSessionId(99))).await, None);
    assert_eq!(part(live, Scope::Window(WindowId(99))).await, None);
    assert_eq!(part(live, Scope::Pane(PaneId(99))).await, None);
    assert_eq!(whole(live).await, plain, "and after a question about what is not there");
}

#[tokio::test]
async fn every_question_is_answered_natively_and_by_a_client() {
    let (rig, created) = own().await;
    rig.start("b", "exec sleep 1000").await;
    for means in [TmuxTransport::Native, TmuxTransport::Control] {
        let mut live = Live::open(&rig.device, means).await.unwrap();
        assert_eq!(live.transport(), means);
        reads(&rig, &mut live, &created).await;
    }
}

#[tokio::test]
async fn another_ones_server_is_read_and_not_changed() {
    let (rig, created) = other().await;
    rig.start("b", "exec sleep 1000").await;
    let before = rig.device.observe().await.unwrap();
    let mut live = open(&rig).await;
    reads(&rig, &mut live, &created).await;
    assert_eq!(rig.device.observe().await.unwrap(), before);
    assert_eq!(rig.raw(&["list-clients"]), "");
    assert!(matches!(Live::open(&rig.device, TmuxTransport::Control).await, Err(TmuxError::Refused(_))));
}

#[tokio::test]
async fn shared_windows_belong_to_the_first_session() {
    for (rig, created) in [own().await, other().await] {
        let second = rig.start("b", "exec sleep 1000").await;
        rig.raw(&["new-window", "-d", "-t", "=b:", "sleep 1000"]);
        rig.raw(&["new-session", "-d", "-t", "=a:", "-s", "grouped"]);
        rig.raw(&["link-window", "-d", "-s", "=b:0", "-t", "=a:7"]);
        rig.raw(&["link-window", "-d", "-s", "=b:0", "-t", "=b:8"]);
        let mut live = open(&rig).await;
        let all = whole(&mut live).await;
        assert_eq!(all.panes[&second.pane.pane].session, created.session);
        let twice = [created.session, second.session];
        for &id in all.sessions.keys() {
            assert_eq!(read(&mut live, Scope::Session(id)).await, Reading::Shared);
        }
        for (&id, pane) in &all.panes {
            // The second window of `b` belongs to it alone.
            let alone = !twice.contains(&pane.session) || pane.window.0 == 2;
            for ask in [Scope::Window(pane.window), Scope::Pane(id)] {
                let answer = read(&mut live, ask).await;
                assert_eq!(matches!(answer, Reading::Part(Some(_))), alone, "{ask:?}: {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_pane_is_found_wherever_it_went() {
    for (rig, created) in [own().await, other().await] {
        let second = rig.start("b", "exec sleep 1000").await;
        let mut live = open(&rig).await;
        let pane = created.pane.pane;
        rig.raw(&["join-pane", "-d", "-h", "-s", &pane.to_string(), "-t", "=b:0"]);
        let found = part(&mut live, Scope::Pane(pane)).await.unwrap();
        assert_eq!((found.id, found.panes.keys().copied().collect::<Vec<_>>()), (second.session, vec![pane]));
        assert_eq!(part(&mut live, Scope::Window(created.window)).await, None);
        rig.raw(&["kill-pane", "-t", &pane.to_string()]);
        assert_eq!(part(&mut live, Scope::Pane(pane)).await, None);
    }
}

#[tokio::test]
async fn a_pane_of_the_pool_that_was_moved_into_the_hidden_session_is_there() {
    let (rig, created) = own().await;
    let mut live = open(&rig).await;
    let pane = created.pane.pane;
    rig.raw(&["move-window", "-d", "-s", "=a:", "-t", "=_pool:"]);
    let all = whole(&mut live).await;
    assert_eq!((all.sessions.len(), all.panes.keys().copied().collect::<Vec<_>>()), (0, vec![pane]));
    assert_eq!(all, rig.device.observe().await.unwrap());
    assert_eq!(read(&mut live, Scope::Pane(pane)).await, Reading::Shared);
    rig.device.end_if_empty().await.unwrap();
    assert_eq!(whole(&mut live).await, all, "its server does not end");
    rig.raw(&["kill-pane", "-t", &pane.to_string()]);
    assert!(whole(&mut live).await.panes.is_empty());
}

#[tokio::test]
async fn many_questions_are_answered_in_their_order_though_hearing_is_given_up_often() {
    for (rig, created) in [own().await, other().await] {
        let mut live = open(&rig).await;
        let kinds = [
            Scope::All,
            Scope::Alive,
            Scope::Session(created.session),
            Scope::Session(TmuxSessionId(99)),
            Scope::Sessions,
        ];
        let asked: Vec<Scope> = kinds.into_iter().cycle().take(200).collect();
        asked.iter().for_each(|ask| live.request(*ask));
        let mut answered = Vec::new();
        while answered.len() < asked.len() {
            let given_up = tokio::time::timeout(Duration::from_micros(50), live.next()).await;
            match given_up.map(Result::unwrap) {
                Ok(LiveEvent::Read(ask, read)) => {
                    let gone = ask == Scope::Session(TmuxSessionId(99));
                    assert_eq!(gone, read == Reading::Part(None));
                    answered.push(ask);
                }
                Ok(LiveEvent::Notice(_)) | Err(_) => {}
            }
        }
        assert_eq!(answered, asked);
    }
}

#[tokio::test]
async fn an_empty_server_is_read_as_empty() {
    for own in [true, false] {
        let mut rig = Rig::new();
        rig.device.own = own;
        rig.start("a", "exec sleep 1000").await;
        rig.raw(&["set-option", "-s", "exit-empty", "off"]);
        rig.raw(&["kill-session", "-t", "=a:"]);
        let mut live = open(&rig).await;
        let listing = whole(&mut live).await;
        assert!(listing.sessions.is_empty() && listing.panes.is_empty());
        assert!(sessions(&mut live).await.is_empty());
        assert_eq!(part(&mut live, Scope::Session(TmuxSessionId(0))).await, None);
        assert!(rig.device.observe().await.unwrap().panes.is_empty());
        let created = rig.start("b", "exec sleep 1000").await;
        assert!(whole(&mut live).await.panes.contains_key(&created.pane.pane));
    }
}

#[tokio::test]
async fn names_are_only_names() {
    let (rig, _) = own().await;
    let names = ["#{pid} #(id) %d", "a;b \"c\" 'd'", "%end 1 1 1", "é\\n", "$0", "=x", "_pool2"];
    for name in names {
        rig.raw(&["new-session", "-d", "-s", &name.replace('#', "##"), "sleep 1000"]);
        // From tmux 3.7 on this is no valid name of a window.
        let mut window = std::process::Command::new("tmux");
        window.arg("-S").arg(&rig.device.socket).args(["new-window", "-d", "-n", "w\n%begin 1 1 1\n"]);
        let _may_be_refused = window.arg("sleep 1000").output().unwrap();
    }
    let plain = rig.device.observe().await.unwrap();
    assert_eq!(plain.sessions.len(), names.len() + 1);
    for means in [TmuxTransport::Native, TmuxTransport::Control] {
        let mut live = Live::open(&rig.device, means).await.unwrap();
        assert_eq!(whole(&mut live).await, plain);
        for (id, session) in &plain.sessions {
            assert_eq!(part(&mut live, Scope::Session(*id)).await.unwrap().session, *session);
        }
    }
}
