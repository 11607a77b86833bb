//! The in-memory tmux gives the same answers as the real one.

use protocol::TmuxSessionId;
use tmux::fake::{Fake, Fault};
use tmux::{Adopt, Answer, Created, Driver, PaneRef, Receipt, Size, TmuxError};

use crate::support::Rig;

/// Plays the same scene on any driver.
async fn story(driver: &dyn Driver, rig: &Rig) {
    let create = rig.job("a", "exec sleep 1000");
    let created = driver.create(&create).await.unwrap();
    assert!(matches!(driver.create(&create).await, Err(TmuxError::Duplicate(_))));
    let pane = created.pane;
    let listing = driver.observe().await.unwrap();
    assert_eq!(listing.server, pane.server);
    assert_eq!(listing.panes[&pane.pane].tag, Some(pane.tag));
    let session = &listing.sessions[&created.session];
    assert_eq!((session.name.as_str(), session.pooled), ("a", true));
    assert_eq!(driver.paste(pane, rig.token(), b"x").await.unwrap(), Answer::Done);
    assert!(driver.paste(pane, rig.token(), b"").await.is_err());
    receipts(driver, rig, pane).await;
    assert_eq!(driver.input(pane, b"y").await.unwrap(), Answer::Done);
    assert!(driver.input(pane, b"").await.is_err());
    let size = Size { width: 61, height: 17 };
    assert_eq!(driver.resize(pane, size).await.unwrap(), Answer::Done);
    let snapshot = driver.snapshot(pane).await.unwrap();
    assert_eq!((snapshot.answer, snapshot.size, snapshot.typed_at), (Answer::Done, size, vec![]));
    assert_eq!((snapshot.in_mode, snapshot.dead), (false, false));
    let mut other = pane;
    other.server.pid += 1;
    assert_eq!(driver.enter(other).await.unwrap(), Answer::OtherServer);
    assert_eq!(driver.snapshot(other).await.unwrap().answer, Answer::OtherServer);
    let wrong = PaneRef { tag: protocol::ids::Tag([1; 16]), ..pane };
    assert_eq!(driver.kill_pane(wrong).await.unwrap(), Answer::NotOurs);
    assert_eq!(driver.rename(pane, created.session, &"b".parse().unwrap()).await.unwrap(), Answer::Done);
    assert_eq!(driver.observe().await.unwrap().sessions[&created.session].name, "b");
    give_up(driver, &created).await;
    assert!(driver.clients(pane, created.session).await.unwrap().is_empty());
    assert_eq!(driver.release(pane, false).await.unwrap(), Answer::Done);
    let left = &driver.observe().await.unwrap().panes[&pane.pane];
    assert_eq!((left.tag, left.detached), (None, true));
    let adopt = Adopt {
        tag: pane.tag,
        token: rig.token(),
        init: create.init.clone(),
        log: create.log.clone(),
        replace_pipe: false,
    };
    let adopted = async |server, session, tag| {
        let adopt = Adopt { tag, ..adopt.clone() };
        driver.adopt(server, session, pane.pane, &adopt).await.unwrap()
    };
    assert_eq!(adopted(other.server, created.session, pane.tag).await, Answer::OtherServer);
    assert_eq!(adopted(pane.server, TmuxSessionId(99), pane.tag).await, Answer::Gone);
    assert_eq!(adopted(pane.server, created.session, pane.tag).await, Answer::Done);
    assert_eq!(adopted(pane.server, created.session, wrong.tag).await, Answer::NotOurs);
    let text = rig.token();
    assert_eq!(driver.paste(pane, text, b"z").await.unwrap(), Answer::Done);
    assert_eq!(adopted(pane.server, created.session, pane.tag).await, Answer::Done, "once more, late");
    assert_eq!(driver.revoke(pane, text).await.unwrap(), (Answer::Done, Receipt::Typed));
    assert!(!driver.observe().await.unwrap().panes[&pane.pane].detached);
    assert_eq!(driver.kill_pane(pane).await.unwrap(), Answer::Done);
    assert_eq!(driver.kill_pane(pane).await.unwrap(), Answer::Gone);
    assert!(driver.observe().await.unwrap().sessions.is_empty());
}

/// The session `b` is renamed under this name alone.
async fn give_up(driver: &dyn Driver, created: &Created) {
    for (from, shown) in [("a", "b"), ("b", "left")] {
        let (from, to) = (from.parse().unwrap(), "left".parse().unwrap());
        driver.rename_left(created.pane.server, created.session, (&from, &to)).await.unwrap();
        assert_eq!(driver.observe().await.unwrap().sessions[&created.session].name, shown);
    }
}

/// A text is typed once under its token, in order, and later queries find it typed.
async fn receipts(driver: &dyn Driver, rig: &Rig, pane: PaneRef) {
    let [early, off, text, late] = [(); 4].map(|()| rig.token());
    let paste = async |token| driver.paste(pane, token, b"z").await.unwrap();
    let enter = async |token| driver.enter_after(pane, token).await.unwrap();
    let told = async |token| driver.revoke(pane, token).await.unwrap();
    assert_eq!(told(off).await, (Answer::Done, Receipt::Revoked));
    assert_eq!(told(off).await, (Answer::Done, Receipt::Revoked), "and stays so");
    assert_eq!((paste(off).await, paste(early).await), (Answer::Already, Answer::Already));
    assert_eq!(enter(off).await, Answer::Already);
    assert_eq!(paste(text).await, Answer::Done);
    assert_eq!(paste(text).await, Answer::Already, "not twice");
    assert_eq!(told(text).await, (Answer::Done, Receipt::Typed));
    assert_eq!(enter(early).await, Answer::Already);
    assert_eq!(enter(text).await, Answer::Done);
    assert_eq!(enter(text).await, Answer::Already);
    assert_eq!(told(text).await, (Answer::Done, Receipt::Entered));
    assert_eq!(told(early).await, (Answer::Done, Receipt::Unknown), "a later one tells nothing of it");
    assert_eq!(paste(late).await, Answer::Done);
    assert_eq!(told(text).await.1, Receipt::Unknown);
    assert_eq!(paste(rig.token()).await, Answer::Done);
    let wrong = PaneRef { tag: protocol::ids::Tag([1; 16]), ..pane };
    assert_eq!(driver.revoke(wrong, rig.token()).await.unwrap(), (Answer::NotOurs, Receipt::Unknown));
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
    assert!(matches!(fake.paste(pane, rig.token(), b"1").await, Err(TmuxError::TimedOut(_))));
    assert_eq!(fake.typed(pane.pane), b"");
    assert!(matches!(fake.paste(pane, rig.token(), b"2").await, Err(TmuxError::TimedOut(_))));
    assert!(matches!(fake.paste(pane, rig.token(), b"3").await, Err(TmuxError::Incomplete)));
    assert!(matches!(fake.paste(pane, rig.token(), b"4").await, Err(TmuxError::NoServer)));
    assert_eq!(fake.paste(pane, rig.token(), b"5").await.unwrap(), Answer::Done);
    assert_eq!(fake.typed(pane.pane), b"235");
    fake.change(pane.pane, |pane| pane.dead = true);
    assert_eq!(fake.paste(pane, rig.token(), b"6").await.unwrap(), Answer::Dead);
    fake.restart_server();
    assert_eq!(fake.paste(pane, rig.token(), b"7").await.unwrap(), Answer::OtherServer);
    fake.kill_server();
    assert!(matches!(fake.observe().await, Err(TmuxError::NoServer)));
    assert_eq!(fake.calls().len(), 9);
}
