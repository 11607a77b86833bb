//! `new`: names, arguments, limits, policies.

use std::collections::BTreeMap;

use pool::session::{CreateOutcome, NextRun};
use pool::{Agent, EnforceableLimits, RestartRules, Settings, session};
use protocol::paths::Env;
use protocol::policy::{Naming, RestartPolicy};
use protocol::reap::{Action, Leftovers, Rule};
use protocol::request::New;
use protocol::{ErrorCode, Paths, Session, SessionRef, Tag, Timestamp};

use crate::world::{self, World, settings};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `claude` can resume, `batch` may be parked although it cannot, `shell` neither.
fn agents() -> BTreeMap<String, Agent> {
    let claude = Agent {
        command: words(&["claude", "--quiet"]),
        start_args: words(&["--session-id", "{conversation}"]),
        resume_args: words(&["--resume={conversation}", "{conversation}-{conversation}"]),
        limits: "nice=5,tasks=9".parse().unwrap(),
        context_limit: Some(200_000),
        ..Agent::default()
    };
    let batch = Agent { command: words(&["batch"]), parkable: true, ..Agent::default() };
    let all = [("claude", claude), ("batch", batch), ("shell", Agent::default())];
    all.map(|(name, agent)| (name.to_owned(), agent)).into()
}

fn with(enforceable: EnforceableLimits, naming: Naming) -> Settings {
    Settings { max_sessions: 20, agents: agents(), enforceable, naming, ..settings() }
}

fn all() -> EnforceableLimits {
    EnforceableLimits { memory: true, tasks: true, cpu: true }
}

fn create(world: &mut World, settings: &Settings, asked: &New) -> Result<Session, ErrorCode> {
    let launch = world::launch(world.tag(), world.now);
    match session::create(&world.pool, settings, asked, &launch).map_err(|refusal| refusal.code)? {
        CreateOutcome::Create(made) => {
            world.emit_all(made.events);
            Ok(world.pool.session(made.session).unwrap().clone())
        }
        other => panic!("{other:?}"),
    }
}

fn of(agent: &str) -> New {
    New { agent: Some(agent.to_owned()), ..New::default() }
}

fn named(name: &str) -> New {
    New { name: Some(name.to_owned()), ..of("shell") }
}

#[test]
fn g01_two_of_the_same_second_have_different_names() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Timestamp));
    let mut name = |asked: New| create(&mut world, &settings, &asked).unwrap().name.to_string();
    assert_eq!(name(of("claude")), "claude-20260101-000000");
    assert_eq!(name(of("claude")), "claude-20260101-000000-2");
    assert_eq!(name(New { workspace: Some("claude-20260101-000000-3".into()), ..of("claude") }).len(), 24);
    assert_eq!(name(of("claude")), "claude-20260101-000000-4", "a workspace is a name too");
    assert_eq!(name(of("shell")), "shell-20260101-000000");
    assert_eq!(name(New::default()), "shell-20260101-000000-2");
    assert_eq!(name(New { command: vec!["make".into()], ..New::default() }), "command-20260101-000000");
}

#[test]
fn a_mistyped_agent_is_refused_as_that_and_not_as_a_name() {
    let world = World::default();
    for naming in [Naming::Timestamp, Naming::Numeric] {
        let launch = world::launch(Tag([1; 16]), world.now);
        let refusal = session::create(&world.pool, &with(all(), naming), &of("Claude"), &launch).unwrap_err();
        let told = &refusal.message;
        assert!(
            told.contains("no agent kind \"Claude\"") && told.ends_with("did you mean claude?"),
            "{told}"
        );
    }
}

#[test]
fn g01_w05_numeric_names_go_on_from_the_highest() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let name = |world: &mut World, asked: New| create(world, &settings, &asked).unwrap().name.to_string();
    assert_eq!(name(&mut world, of("shell")), "1");
    assert_eq!(name(&mut world, of("shell")), "2");
    assert_eq!(name(&mut world, named(" 41 ")), "41", "trimmed");
    assert_eq!(name(&mut world, named("7up")), "7up");
    assert_eq!(name(&mut world, of("shell")), "42");
    assert_eq!(name(&mut world, New { workspace: Some("0099".into()), ..named("x") }), "x");
    assert_eq!(name(&mut world, of("shell")), "100");
}

#[test]
fn w05_numeric_names_go_on_above_those_that_tmux_lists() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let listed = ["7", "+90", "8x", "-3", "", "0006"].map(str::to_owned);
    let launch = session::CreateInputs { tmux_names: &listed, ..world::launch(world.tag(), world.now) };
    let made = session::create(&world.pool, &settings, &of("shell"), &launch);
    let Ok(CreateOutcome::Create(made)) = made else { panic!("{made:?}") };
    world.emit_all(made.events);
    let created = world.pool.session(made.session).unwrap().clone();
    assert_eq!((created.name.as_str(), created.workspace.as_str()), ("8", "8"));
    let listed = ["8", "11"].map(str::to_owned);
    let renamed = session::renumber(&world.pool, &created, &listed).unwrap();
    world.emit(renamed);
    let renamed = world.pool.session(made.session).unwrap();
    assert_eq!((renamed.name.as_str(), renamed.workspace.as_str()), ("12", "12"));
    assert!(world.pool.named("8").is_none() && world.pool.named("12").is_some(), "the old name is free");
    assert_eq!(
        Session { name: created.name.clone(), workspace: created.workspace.clone(), ..renamed.clone() },
        created
    );
}

#[test]
fn w05_no_generated_name_is_that_of_a_session_in_tmux() {
    let name = |naming: Naming, listed: &[&str]| {
        let (mut world, settings) = (World::default(), with(all(), naming));
        let listed: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        let launch = session::CreateInputs { tmux_names: &listed, ..world::launch(world.tag(), world.now) };
        let made = session::create(&world.pool, &settings, &of("claude"), &launch);
        let Ok(CreateOutcome::Create(made)) = made else { panic!("{made:?}") };
        world.emit_all(made.events);
        world.pool.session(made.session).unwrap().name.to_string()
    };
    let stamped = ["claude-20260101-000000", "claude-20260101-000000-2"];
    assert_eq!(name(Naming::Timestamp, &stamped), "claude-20260101-000000-3");
    let highest = u64::MAX.to_string();
    assert_eq!(name(Naming::Numeric, &[&highest]), format!("{highest}-2"));
}

#[test]
fn w05_what_is_no_name_and_no_number_is_refused() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let long = "x".repeat(65);
    for bad in ["+7", "-7", "7.0", "a:b", "A", "", "  ", "é", "a b", "sess_7", &long] {
        assert_eq!(create(&mut world, &settings, &named(bad)).unwrap_err(), ErrorCode::Usage, "{bad:?}");
        let workspace = New { workspace: Some(bad.to_owned()), ..named("ok") };
        assert_eq!(create(&mut world, &settings, &workspace).unwrap_err(), ErrorCode::Usage, "{bad:?}");
    }
    assert_eq!(create(&mut world, &settings, &of("shell")).unwrap().name.as_str(), "1");
    assert_eq!(create(&mut world, &settings, &named("1")).unwrap_err(), ErrorCode::Conflict);
}

#[test]
fn w05_the_highest_number_is_not_the_end_of_names() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    create(&mut world, &settings, &named(&u64::MAX.to_string())).unwrap();
    create(&mut world, &settings, &named("99999999999999999999999")).unwrap();
    let names: Vec<String> =
        (0..2).map(|_| create(&mut world, &settings, &of("shell")).unwrap().name.to_string()).collect();
    assert_eq!(names, ["18446744073709551615-2", "18446744073709551615-3"]);
}

#[test]
fn w04_an_id_is_its_prefix_and_plain_digits() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let id = create(&mut world, &settings, &named("a")).unwrap().id;
    let found = |text: &str| session::resolve(&world.pool, &SessionRef(text.to_owned())).ok().map(|s| s.id);
    assert_eq!((found("sess_1"), found("a")), (Some(id), Some(id)));
    for other in ["sess_+1", "sess_ 1", "sess_1 ", "sess_", "sess_1x", "SESS_1", "1", "xsess_1"] {
        assert_eq!(found(other), None, "{other:?}");
    }
}

fn places(paths: &Paths) -> session::LaunchInputs<'_> {
    session::LaunchInputs { paths, tmp: std::path::Path::new("/tmp/of-a-session"), wiring: None }
}

fn argv(session: &Session, settings: &Settings) -> Vec<String> {
    let env = Env { home: Some("/home".into()), ..Env::default() };
    let paths = Paths::new(&env).unwrap();
    let job = session::launch_job(session, session.incarnation.as_ref().unwrap(), settings, places(&paths));
    job.argv.iter().map(protocol::OsBytes::to_string_lossy).collect()
}

#[test]
fn a_conversation_is_taken_up_only_once_something_was_said_in_it() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let session = create(&mut world, &settings, &of("claude")).unwrap();
    assert_eq!(argv(&session, &settings), ["claude", "--quiet", "--session-id", "talk"]);
    let next = |world: &mut World, conversation: &str, fresh: bool| {
        let (tag, now) = (world.tag(), Timestamp(world.now));
        let events = session::next_incarnation(
            world.pool.session(session.id).unwrap(),
            NextRun { tag, now, conversation, fresh },
        );
        world.emit_all(events);
        let session = world.pool.session(session.id).unwrap();
        (session.incarnation.as_ref().unwrap().resumed, argv(session, &settings)[2..].to_vec())
    };
    assert_eq!(next(&mut world, "two", false), (false, words(&["--session-id", "two"])), "nothing was said");
    let spoken = session::begin_conversation(world.pool.session(session.id).unwrap()).unwrap();
    world.emit(spoken);
    assert_eq!(session::begin_conversation(world.pool.session(session.id).unwrap()), None, "said once");
    assert_eq!(next(&mut world, "three", false), (true, words(&["--resume=two", "two-two"])));
    assert_eq!(next(&mut world, "new", true), (false, words(&["--session-id", "new"])), "begun anew");
    assert_eq!(next(&mut world, "last", false), (false, words(&["--session-id", "last"])));
}

#[test]
fn an_agent_that_cannot_resume_has_no_conversation() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let session = create(&mut world, &settings, &of("batch")).unwrap();
    assert_eq!((&session.conversation, session::begin_conversation(&session)), (&None, None));
    let next = NextRun { tag: Tag([9; 16]), now: Timestamp(0), conversation: "new", fresh: true };
    world.emit_all(session::next_incarnation(&session, next));
    let session = world.pool.session(session.id).unwrap();
    assert_eq!((&session.conversation, argv(session, &settings)), (&None, words(&["batch"])));
}

#[test]
fn what_cannot_be_bounded_is_refused_unless_that_is_said() {
    let limited = |limits: &str, agent: &str| New { limits: limits.parse().unwrap(), ..of(agent) };
    let (mut world, without) = (World::default(), with(EnforceableLimits::default(), Naming::Numeric));
    let refused = |world: &mut World, settings: &Settings, asked: &New| create(world, settings, asked).err();
    for (limits, agent) in [("tasks=9", "shell"), ("cpu=50%", "shell"), ("", "claude")] {
        let asked = limited(limits, agent);
        assert_eq!(refused(&mut world, &without, &asked), Some(ErrorCode::Refused), "{limits}");
        let mut anyway = asked;
        anyway.limits.best_effort = true;
        assert_eq!(refused(&mut world, &without, &anyway), None);
    }
    // These limits are watched, or enforced everywhere.
    let watched = limited("mem=1G,disk=1G,nofile=99,core=0,fsize=1G,nice=3,cpus=0", "shell");
    assert_eq!(refused(&mut world, &without, &watched), None);
    let some = with(EnforceableLimits { tasks: true, ..EnforceableLimits::default() }, Naming::Numeric);
    assert_eq!(refused(&mut world, &some, &limited("tasks=9", "shell")), None);
    assert_eq!(refused(&mut world, &some, &limited("tasks=9,cpu=5", "shell")), Some(ErrorCode::Refused));
}

#[test]
fn the_sessions_limits_win_over_its_agents() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let asked = New { limits: "tasks=50,mem=1G".parse().unwrap(), ..of("claude") };
    let session = create(&mut world, &settings, &asked).unwrap();
    assert_eq!(session.spec.limits.to_string(), "mem=1G,tasks=50,nice=5");
    assert_eq!(session.spec.context_limit, Some(200_000));
}

#[test]
fn what_is_removed_at_its_end_is_not_started_again() {
    let restart = RestartRules { policy: RestartPolicy::Always, ..RestartRules::default() };
    let (mut world, settings) = (World::default(), Settings { restart, ..with(all(), Naming::Numeric) });
    let ephemeral = New { ephemeral: true, ..of("shell") };
    for restart in [RestartPolicy::Always, RestartPolicy::OnFailure] {
        let both = New { restart: Some(restart), ..ephemeral.clone() };
        assert_eq!(create(&mut world, &settings, &both).unwrap_err(), ErrorCode::Usage);
    }
    let policy = |world: &mut World, asked: &New| create(world, &settings, asked).unwrap().policy.restart;
    assert_eq!(policy(&mut world, &ephemeral), RestartPolicy::No);
    assert_eq!(policy(&mut world, &New { restart: Some(RestartPolicy::No), ..ephemeral }), RestartPolicy::No);
    assert_eq!(policy(&mut world, &of("shell")), RestartPolicy::Always, "as it is configured");
}

#[test]
fn an_idle_time_is_for_what_can_be_parked() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let mut asked = |agent: &str, ms: u64| {
        let asked = New { idle_timeout_ms: Some(ms), ..of(agent) };
        create(&mut world, &settings, &asked).map(|session| session.policy.idle_timeout_ms)
    };
    assert_eq!(asked("shell", 60_000), Err(ErrorCode::Usage));
    assert_eq!(asked("shell", u64::MAX), Ok(Some(u64::MAX)), "never is what it does");
    assert_eq!(asked("claude", 60_000), Ok(Some(60_000)));
    assert_eq!(asked("batch", 60_000), Ok(Some(60_000)));
}

#[test]
fn what_becomes_of_it_by_rules_is_said_at_its_creation_and_only_of_a_session() {
    let (mut world, settings) = (World::default(), with(all(), Naming::Numeric));
    let mut says = |rule, action| {
        let asked = New { reap: [(rule, action)].into(), ..of("shell") };
        create(&mut world, &settings, &asked).map(|session| session.policy.reap)
    };
    for action in Action::ALL {
        assert_eq!(says(Rule::Hung, action), Ok([(Rule::Hung, action)].into()));
        assert_eq!(says(Rule::Orphans, action), Err(ErrorCode::Usage), "it is about what is over");
    }
    let long = |max_runtime_ms| New { max_runtime_ms, ..of("shell") };
    let mut runs = |ms| create(&mut world, &settings, &long(ms)).unwrap().policy.max_runtime_ms;
    assert_eq!((runs(Some(9)), runs(Some(u64::MAX)), runs(None)), (Some(9), None, None));
}

#[test]
fn what_a_program_detached_is_ended_unless_its_agent_says_otherwise() {
    let (mut world, mut settings) = (World::default(), with(all(), Naming::Numeric));
    let session = create(&mut world, &settings, &of("shell")).unwrap();
    assert_eq!(settings.agent_of(&session).leftovers, Leftovers::Kill);
    settings.agents.get_mut("batch").unwrap().leftovers = Leftovers::Report;
    assert_eq!(settings.agent_of(&session).leftovers, Leftovers::Kill, "another one says so");
    settings.agents.get_mut("shell").unwrap().leftovers = Leftovers::Report;
    assert_eq!(settings.agent_of(&session).leftovers, Leftovers::Report);
    let env = Env { home: Some("/home".into()), ..Env::default() };
    let (run, paths) = (session.incarnation.as_ref().unwrap(), Paths::new(&env).unwrap());
    let job = session::launch_job(&session, run, &settings, places(&paths));
    assert_eq!((job.leftovers, job.private), (Leftovers::Report, Some(session.dir.clone())));
}

#[test]
fn those_who_wait_for_a_slot_come_first() {
    let settings = Settings { max_sessions: 2, ..with(all(), Naming::Numeric) };
    let world = World::default();
    let ask = |ahead: usize| {
        let launch = session::CreateInputs { ahead, ..world::launch(Tag([1; 16]), 0) };
        session::create(&world.pool, &settings, &of("shell"), &launch).unwrap()
    };
    assert!(matches!((ask(0), ask(1)), (CreateOutcome::Create(_), CreateOutcome::Create(_))));
    assert_eq!(ask(2), CreateOutcome::Full);
}
