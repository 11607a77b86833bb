//! The in-memory tmux gives the answers of the real one.

use protocol::ids::TmuxSessionId;
use tmux::fake::{Fake, Fault};
use tmux::{Adopt, Answer, Driver, PaneRef, TmuxError};

use crate::support::Rig;

/// The same story on any driver.
async fn story(driver: &dyn Driver, rig: &Rig) {
    let create = rig.job("a", "exec sleep 1000");
    let created = driver.create(&create).await.unwrap();
    assert!(matches!(driver.create(&create).await, Err(TmuxError::Duplicate(_))));
    let pane = created.pane;
    let listing = driver.observe().await.unwrap();
    assert_eq!(listing.server, pane.server);
    assert_eq!(listing.panes[&pane.pane].tag, Some(pane.tag));
    assert_eq!(listing.sessions[&created.session].name, "a");
    assert_eq!(driver.paste(pane, b"x").await.unwrap(), Answer::Done);
    assert!(driver.paste(pane, b"").await.is_err());
    let mut other = pane;
    other.server.pid += 1;
    assert_eq!(driver.enter(other).await.unwrap(), Answer::OtherServer);
    let wrong = PaneRef { tag: protocol::ids::Tag([1; 16]), ..pane };
    assert_eq!(driver.kill_pane(wrong).await.unwrap(), Answer::NotOurs);
    assert_eq!(driver.rename(pane, created.session, &"b".parse().unwrap()).await.unwrap(), Answer::Done);
    assert_eq!(driver.observe().await.unwrap().sessions[&created.session].name, "b");
    assert!(driver.clients(pane.server, created.session).await.unwrap().is_empty());
    assert_eq!(driver.release(pane).await.unwrap(), Answer::Done);
    let left = &driver.observe().await.unwrap().panes[&pane.pane];
    assert_eq!((left.tag, left.detached), (None, true));
    let adopt = Adopt { tag: pane.tag, init: create.init.clone(), log: create.log.clone() };
    let adopted = async |server, session, tag| {
        let adopt = Adopt { tag, ..adopt.clone() };
        driver.adopt(server, session, pane.pane, &adopt).await.unwrap()
    };
    assert_eq!(adopted(other.server, created.session, pane.tag).await, Answer::OtherServer);
    assert_eq!(adopted(pane.server, TmuxSessionId(99), pane.tag).await, Answer::Gone);
    assert_eq!(adopted(pane.server, created.session, pane.tag).await, Answer::Done);
    assert_eq!(adopted(pane.server, created.session, wrong.tag).await, Answer::NotOurs);
    assert!(!driver.observe().await.unwrap().panes[&pane.pane].detached);
    assert_eq!(driver.kill_pane(pane).await.unwrap(), Answer::Done);
    assert_eq!(driver.kill_pane(pane).await.unwrap(), Answer::Gone);
    assert!(driver.observe().await.unwrap().sessions.is_empty());
}

#[tokio::test]
async fn the_fake_tells_the_story_of_the_real_one() {
    let rig = Rig::new();
    story(&rig.device, &rig).await;
    story(&Fake::default(), &rig).await;
}

#[tokio::test]
async fn faults_come_in_order_and_keep_their_word() {
    let (rig, fake) = (Rig::new(), Fake::default());
    let pane = fake.create(&rig.job("a", "")).await.unwrap().pane;
    fake.fail([Fault::Hang, Fault::LoseReply, Fault::CutReply, Fault::NoServer]);
    assert!(matches!(fake.paste(pane, b"1").await, Err(TmuxError::TimedOut(_))));
    assert_eq!(fake.typed(pane.pane), b"");
    assert!(matches!(fake.paste(pane, b"2").await, Err(TmuxError::TimedOut(_))));
    assert!(matches!(fake.paste(pane, b"3").await, Err(TmuxError::Incomplete)));
    assert!(matches!(fake.paste(pane, b"4").await, Err(TmuxError::NoServer)));
    assert_eq!(fake.paste(pane, b"5").await.unwrap(), Answer::Done);
    assert_eq!(fake.typed(pane.pane), b"235");
    fake.change(pane.pane, |pane| pane.dead = true);
    assert_eq!(fake.paste(pane, b"6").await.unwrap(), Answer::Dead);
    fake.restart_server();
    assert_eq!(fake.paste(pane, b"7").await.unwrap(), Answer::OtherServer);
    fake.kill_server();
    assert!(matches!(fake.observe().await, Err(TmuxError::NoServer)));
    assert_eq!(fake.calls().len(), 9);
}
