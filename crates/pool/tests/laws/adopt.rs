//! `adopt`: the pane that a target names, the record that it gets, and panes that are never adopted.

use std::collections::BTreeMap;

use pool::observe::{foreign_changes, foreign_sessions, panes_to_adopt};
use pool::session::{AdoptTarget, ForeignPane, ForeignProgram};
use pool::{Adoption, Agent, Pool, Settings, session};
use protocol::request::Remove;
use protocol::session::Origin;
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{
    ErrorCode, Event, Lifecycle, MessageState, OsBytes, PaneId, ProcId, Reason, Seq, ServerId, Session,
    Stamped, Tag, Timestamp, TmuxSessionId, WindowId,
};

use crate::world::{self, World};

fn settings() -> Settings {
    let agents = BTreeMap::from([("claude".to_owned(), Agent::default())]);
    Settings { max_sessions: 2, agents, ..world::settings() }
}

fn pane(session: u32) -> TmuxPane {
    let process = Some(ProcId { pid: 100 + session, start: 5 });
    TmuxPane { process, ..TmuxPane::bare(TmuxSessionId(session), WindowId(session), 100 + session) }
}

/// A server with sessions of these names, with one pane each; the last has two.
fn state(names: &[&str]) -> TmuxState {
    let session = |name: &str| TmuxSession::bare(name, 1);
    let ids = 1_u32..;
    let mut panes: BTreeMap<PaneId, TmuxPane> =
        ids.clone().zip(names).map(|(id, _)| (PaneId(id), pane(id))).collect();
    let last = u32::try_from(names.len()).unwrap();
    panes.insert(PaneId(90), pane(last));
    TmuxState {
        server: Server::Up(server()),
        sessions: ids.zip(names).map(|(id, name)| (TmuxSessionId(id), session(name))).collect(),
        panes,
    }
}

fn server() -> ServerId {
    ServerId { process: ProcId { pid: 10, start: 1 }, started_at: 1 }
}

fn found(pool: &Pool, state: &TmuxState, target: &str) -> Result<ForeignPane, ErrorCode> {
    match session::adopt_target(pool, state, target) {
        Ok(AdoptTarget::Foreign(adoptee)) => Ok(*adoptee),
        Ok(AdoptTarget::Ours(_)) => Err(ErrorCode::Conflict),
        Err(refusal) => Err(refusal.code),
    }
}

fn adopt_one(pool: &mut Pool, state: &TmuxState, target: &str, n: u8) -> Result<Session, ErrorCode> {
    let adoptee = found(pool, state, target)?;
    adopt(pool, &adoptee, n, None)
}

/// The environment of the program that [`adopt`] adopts.
fn caller_env() -> Vec<(OsBytes, OsBytes)> {
    [("HOME", "/home/me"), ("TMUX_PANE", "%1"), ("POOL_SESSION", "other")]
        .map(|(k, v)| (k.into(), v.into()))
        .into()
}

fn adopt(
    pool: &mut Pool,
    adoptee: &ForeignPane,
    n: u8,
    workspace: Option<&str>,
) -> Result<Session, ErrorCode> {
    let launch = world::launch(Tag([n; 16]), 9);
    let program = ForeignProgram {
        argv: vec!["/usr/bin/claude".into()],
        cwd: "/src".into(),
        env: caller_env(),
        active_at: None,
    };
    let made = session::adopt(pool, &settings(), adoptee, (program, workspace, Origin::Adopted), &launch)
        .map_err(|r| r.code)?;
    for event in made.events {
        pool.apply(&Stamped { seq: Seq(1), at: Timestamp(9), event });
    }
    Ok(pool.session(made.session).unwrap().clone())
}

#[test]
fn a_target_is_a_pane_a_session_or_an_exact_name() {
    let (pool, state) = (Pool::default(), state(&["one", "two words", "both"]));
    for target in ["%1", "$1", "one", "=one"] {
        assert_eq!(found(&pool, &state, target).unwrap().id, PaneId(1), "{target}");
    }
    assert_eq!(found(&pool, &state, "two words").unwrap().id, PaneId(2));
    for missing in ["on", "o*", "%77", "$77", "", "two"] {
        assert_eq!(found(&pool, &state, missing), Err(ErrorCode::NotFound), "{missing}");
    }
    assert_eq!(found(&pool, &state, "both"), Err(ErrorCode::Conflict), "two panes");
    assert_eq!(found(&pool, &state, "%90").unwrap().name, "both");
    assert_eq!(found(&pool, &TmuxState::default(), "one"), Err(ErrorCode::Unavailable));
}

#[test]
fn an_ended_program_and_anothers_pane_are_refused() {
    let pool = Pool::default();
    let mut state = state(&["one"]);
    let seen = |state: &mut TmuxState, change: fn(&mut TmuxPane)| {
        let mut pane = pane(1);
        change(&mut pane);
        state.panes = [(PaneId(1), pane)].into();
        found(&Pool::default(), state, "one")
    };
    assert_eq!(seen(&mut state, |pane| pane.exited = true), Err(ErrorCode::Refused));
    assert_eq!(seen(&mut state, |pane| pane.dead = true), Err(ErrorCode::Refused));
    assert_eq!(seen(&mut state, |pane| pane.tag = Some(Tag([9; 16]))), Err(ErrorCode::Conflict));
    assert!(seen(&mut state, |pane| pane.detached = true).is_ok(), "asked for by name");
    assert!(foreign_sessions(&pool, &state).contains_key(&TmuxSessionId(1)));
}

#[test]
fn an_adopted_session_has_a_record_like_any_other() {
    let mut pool = Pool::default();
    let state = state(&["My Project.x", "web", "web"]);
    let one = adopt_one(&mut pool, &state, "%1", 1).unwrap();
    assert_eq!((one.name.as_str(), one.workspace.as_str()), ("my-project-x", "my-project-x"));
    assert_eq!((one.spec.agent.as_str(), one.lifecycle), ("claude", Lifecycle::Starting));
    assert_eq!(one.spec.env, [("HOME".into(), "/home/me".into())], "what it needs to be started again");
    assert!(session::is_being_adopted(&one) && one.incarnation.unwrap().pane == Some(PaneId(1)));
    let adoptee = found(&pool, &state, "%2").unwrap();
    assert_eq!(adopt(&mut pool, &adoptee, 2, Some("my-project-x")).unwrap_err(), ErrorCode::Conflict);
    assert_eq!(adopt(&mut pool, &adoptee, 2, Some("no good")).unwrap_err(), ErrorCode::Usage);
    let two = adopt(&mut pool, &adoptee, 2, Some("site")).unwrap();
    assert_eq!((two.name.as_str(), two.workspace.as_str()), ("web", "site"));
    assert_eq!(adopt_one(&mut pool, &state, "%3", 3).unwrap_err(), ErrorCode::Refused);
}

/// Adopts the session of this tmux name, in a server with sessions of these names.
fn adopt_beside(tmux_names: &[&str], shown: &str, argv: &[&str]) -> Session {
    let state = state(tmux_names);
    let adoptee = found(&Pool::default(), &state, shown).unwrap();
    let listed: Vec<String> = tmux_names.iter().map(|&name| name.to_owned()).collect();
    let launch = session::CreateInputs { tmux_names: &listed, ..world::launch(Tag([1; 16]), 9) };
    let argv = argv.iter().map(|&word| word.into()).collect();
    let program = ForeignProgram { argv, cwd: "/src".into(), env: Vec::new(), active_at: None };
    let with = (program, None, Origin::Adopted);
    let made = session::adopt(&Pool::default(), &settings(), &adoptee, with, &launch).unwrap();
    match made.events.into_iter().next() {
        Some(Event::SessionCreated(session)) => *session,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_exact_name_of_another_tmux_session_is_left_to_it() {
    let named = |shown| adopt_beside(&["Zed", "zed", "last"], shown, &["vim"]).name.to_string();
    assert_eq!((named("Zed").as_str(), named("zed").as_str()), ("zed-2", "zed"));
}

#[test]
fn a_login_shell_can_be_started_again() {
    let command = |argv: &[&str]| adopt_beside(&["one", "last"], "one", argv).spec.command;
    assert_eq!(command(&["-bash"]), ["bash".into(), "-l".into()]);
    assert_eq!(command(&["-", "x"]), ["-".into(), "x".into()]);
    assert_eq!(command(&["bash", "-i"]), ["bash".into(), "-i".into()]);
}

#[test]
fn a_shell_without_a_script_is_a_shell() {
    let kind = |argv: &[&str]| adopt_beside(&["one", "last"], "one", argv).spec.agent;
    for shell in [
        &["-bash"][..],
        &["/bin/zsh"],
        &["bash", "--norc", "-i"],
        &["bash", "--rcfile", "mine", "-o", "vi"],
        &["sh", "+x"],
        &["fish"],
    ] {
        assert_eq!(kind(shell), "shell", "{shell:?}");
    }
    for command in [
        &["sh", "-c", "make"][..],
        &["bash", "-lc", "make"],
        &["bash", "-o", "vi", "build.sh"],
        &["fish", "--command=make"],
        &["bash", "build.sh"],
        &["vim"],
        &["-"],
        &[],
    ] {
        assert_eq!(kind(command), "command", "{command:?}");
    }
    assert_eq!(kind(&["/opt/claude", "--resume"]), "claude");
}

#[test]
fn messages_to_a_session_whose_adoption_fails_are_kept_and_its_pane_is_not_its_own() {
    let (mut pool, state) = (Pool::default(), state(&["one", "two", "last"]));
    let one = adopt_one(&mut pool, &state, "%1", 1).unwrap();
    let two = adopt_one(&mut pool, &state, "%2", 2).unwrap();
    let mut world = World { pool, now: 10, ..World::default() };
    let message = crate::queue::send_prompt(&mut world, one.id).unwrap();
    let fresh = (Tag([7; 16]), Timestamp(11));
    let ended = |pool: &Pool, id| session::abandon_adoption(pool, id, fresh, "its pane is gone");
    assert!(matches!(&ended(&world.pool, two.id)[..], [Event::SessionDeleted { tmux_alive: true, .. }]));
    let before = world.pool.clone();
    for (begun, lifecycle, reason) in [
        (None, Lifecycle::Failed, Reason::TmuxFailed),
        (Some(Reason::Killed), Lifecycle::Stopped, Reason::Killed),
        (Some(Reason::Restarted), Lifecycle::Stopped, Reason::Restarted),
    ] {
        world.pool = before.clone();
        let draining = begun.map(|reason| session::begin_end(world.pool.session(one.id).unwrap(), reason));
        world.emit_all(draining.into_iter().collect());
        let events = ended(&world.pool, one.id);
        world.emit_all(events);
        let kept = world.pool.session(one.id).unwrap();
        assert_eq!((kept.lifecycle, kept.reason), (lifecycle, Some(reason)));
        let run = kept.incarnation.as_ref().unwrap();
        assert_eq!((run.tag, run.pane, run.session, run.agent), (fresh.0, None, None, None));
        assert_eq!(world.pool.tagged(one.incarnation.as_ref().unwrap().tag), None);
        assert_eq!(world.pool.message_state(one.id, message), Some(MessageState::Queued));
        assert_eq!(ended(&world.pool, one.id), [], "it has ended");
    }
}

#[test]
fn any_name_of_tmux_gives_a_name() {
    for name in ["", "...", "UPPER", "-x-", "日本", "sess_5", &"long".repeat(40), "#(rm)", "a:b"] {
        let state = state(&[name]);
        let mut pool = Pool::default();
        let first = adopt_one(&mut pool, &state, "%1", 1);
        let second = adopt_one(&mut pool, &state, "%90", 2);
        assert_ne!(first.unwrap().name, second.unwrap().name, "{name}");
    }
}

#[test]
fn w13_only_what_the_configuration_names_is_adopted_and_never_what_was_given_back() {
    let pool = Pool::default();
    let mut state = state(&["x-one", "other", "x-two"]);
    let due = |state: &TmuxState, adoption: &Adoption| {
        panes_to_adopt(adoption, &foreign_sessions(&pool, state), state)
    };
    assert_eq!(due(&state, &Adoption::Never), []);
    assert_eq!(due(&state, &Adoption::All), [PaneId(1), PaneId(2)], "one of several panes has to be named");
    state.panes.remove(&PaneId(90));
    assert_eq!(due(&state, &Adoption::Prefix("x-".into())), [PaneId(1), PaneId(3)]);
    assert_eq!(due(&state, &Adoption::All), [PaneId(1), PaneId(2), PaneId(3)]);
    state.panes.get_mut(&PaneId(1)).unwrap().detached = true;
    state.panes.get_mut(&PaneId(2)).unwrap().tag = Some(Tag([7; 16]));
    assert_eq!(due(&state, &Adoption::All), [PaneId(3)]);
    state.sessions.get_mut(&TmuxSessionId(3)).unwrap().pooled = true;
    assert_eq!(due(&state, &Adoption::All), [], "the pool's own pane of it has gone, and its user's has not");
}

#[test]
fn w11_who_adopts_at_the_same_time_gets_the_same_session() {
    let (mut pool, state) = (Pool::default(), state(&["one", "two"]));
    let first = adopt_one(&mut pool, &state, "one", 1).unwrap();
    for target in ["one", "%1", "$1"] {
        assert_eq!(session::adopt_target(&pool, &state, target).unwrap(), AdoptTarget::Ours(first.id));
    }
    let anew = ServerId { started_at: 2, ..server() };
    let restarted = TmuxState { server: Server::Up(anew), ..state.clone() };
    assert!(found(&pool, &restarted, "one").is_ok(), "the ids of another server are of other panes");
    assert!(found(&pool, &state, "%2").is_ok());
}

#[test]
fn w20_a_tmux_session_with_further_panes_outlives_the_removal() {
    let mut pool = Pool::default();
    let mut state = state(&["one"]);
    let first = adopt_one(&mut pool, &state, "%1", 1).unwrap();
    let remove = |pool: &Pool, state: &TmuxState| {
        let asked = Remove { session: first.id.into(), force: true, ..Remove::default() };
        let with = (&asked, Reason::ApiDelete);
        let removed = session::remove(pool, &first, with, (state, Timestamp(10))).unwrap();
        let alive = removed.iter().find_map(|event| match event {
            Event::SessionDeleted { tmux_alive, .. } => Some(*tmux_alive),
            _ => None,
        });
        alive.unwrap()
    };
    state.panes.get_mut(&PaneId(1)).unwrap().tag = first.tag();
    assert!(remove(&pool, &state), "the other pane");
    state.panes.remove(&PaneId(90));
    assert!(!remove(&pool, &state));
}

#[test]
fn w09_what_the_pool_has_is_not_found_again_whatever_it_is_called() {
    let mut pool = Pool::default();
    let due = |pool: &Pool, state: &TmuxState| {
        panes_to_adopt(&Adoption::All, &foreign_sessions(pool, state), state)
    };
    let nothing = TmuxState { sessions: BTreeMap::new(), panes: BTreeMap::new(), ..state(&["x"]) };
    assert_eq!(due(&pool, &nothing), []);
    // Two sessions may have the same name, and a name may be empty.
    let mut state = state(&["main", "main", ""]);
    state.panes.remove(&PaneId(90));
    assert_eq!(due(&pool, &state), [PaneId(1), PaneId(2), PaneId(3)]);
    adopt_one(&mut pool, &state, "%1", 1).unwrap();
    state.panes.get_mut(&PaneId(1)).unwrap().tag = Some(Tag([1; 16]));
    assert_eq!(due(&pool, &state), [PaneId(2), PaneId(3)], "its namesake is still a stranger");
    state.sessions.get_mut(&TmuxSessionId(1)).unwrap().name = "renamed".to_owned();
    assert_eq!(due(&pool, &state), [PaneId(2), PaneId(3)]);
    adopt_one(&mut pool, &state, "%2", 2).unwrap();
    for (pane, tag) in [(2, 2), (3, 9)] {
        state.panes.get_mut(&PaneId(pane)).unwrap().tag = Some(Tag([tag; 16]));
    }
    assert_eq!(due(&pool, &state), [], "all are somebody's");
}

#[test]
fn foreign_sessions_come_get_other_names_and_go() {
    let pool = Pool::default();
    let before = foreign_sessions(&pool, &state(&["one", "two"]));
    let after = foreign_sessions(&pool, &state(&["uno"]));
    let seen: Vec<String> =
        foreign_changes(&before, &after).iter().map(|event| format!("{event:?}")).collect();
    let [gone, new] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(gone.starts_with("ForeignGone") && gone.contains("two"));
    assert!(new.starts_with("ForeignSeen") && new.contains("uno"));
    assert_eq!(foreign_changes(&after, &after), Vec::<Event>::new());
}

#[test]
fn t05_an_adopted_session_is_as_old_and_as_active_as_its_tmux_session() {
    let mut state = state(&["one"]);
    state.panes.remove(&PaneId(90));
    let adopted = |created_at: u64, active_at: Option<u64>| {
        let (mut pool, mut state) = (Pool::default(), state.clone());
        state.sessions.values_mut().for_each(|session| session.created_at = created_at);
        let adoptee = found(&pool, &state, "one").unwrap();
        let active_at = active_at.map(Timestamp);
        let program =
            ForeignProgram { argv: vec!["cat".into()], cwd: "/".into(), env: Vec::new(), active_at };
        let launch = world::launch(Tag([1; 16]), 9000);
        let with = (program, None, Origin::Adopted);
        let made = session::adopt(&pool, &settings(), &adoptee, with, &launch).unwrap();
        let mut events = made.events;
        let run = match &events[0] {
            Event::SessionCreated(session) => session.incarnation.clone().unwrap(),
            other => panic!("{other:?}"),
        };
        events.push(Event::SessionLive { session: made.session, incarnation: run, recovered: false });
        for event in events {
            pool.apply(&Stamped { seq: Seq(1), at: Timestamp(9500), event });
        }
        let session = pool.session(made.session).unwrap();
        (session.created_at.0, session.last_activity_at.0, session.changed_at.0)
    };
    assert_eq!(adopted(2, Some(5000)), (2000, 5000, 9500), "its adoption is no activity");
    assert_eq!(adopted(2, None), (2000, 2000, 9500));
    assert_eq!(adopted(2, Some(1000)), (2000, 2000, 9500), "not before it began");
    assert_eq!(adopted(20, Some(30_000)), (9000, 9000, 9500), "nor in the future");
    assert_eq!(adopted(0, None), (9000, 9000, 9500), "if tmux does not tell");
}

#[test]
fn w12_an_adoption_at_the_start_is_a_discovery_unless_it_was_requested() {
    let state = state(&["one"]);
    let adoptee = found(&Pool::default(), &state, "$1");
    // Its tmux session has two panes; one of them is named.
    assert_eq!(adoptee.unwrap_err(), ErrorCode::Conflict);
    let adoptee = found(&Pool::default(), &state, "%1").unwrap();
    let origin = |started: Option<u64>| session::adoption_origin(&adoptee, started.map(Timestamp));
    assert_eq!(origin(Some(1000)), Origin::StartupDiscovery);
    assert_eq!(origin(Some(999)), Origin::Adopted);
    assert_eq!(origin(None), Origin::Adopted);
}
