//! The whole reaper, with a scripted `poold`, real processes and a tmux server of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::traits::tokio::Listener as _;
use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use process::kill::GraceLimit;
use protocol::aio::{self, FrameReader};
use protocol::hello::HelloReply;
use protocol::reap::Leftovers;
use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Rule};
use protocol::{
    Call, Epoch, ErrorCode, Frame, Hello, OsBytes, ProcId, Refusal, Reply, Request, Response, Role, Seq,
    ServerId, SessionId, Tag, Token, Welcome, frame,
};
use tempfile::TempDir;
use tmux::fake::{Fake, Fault};
use tmux::{Create, Created, Device, Driver, LogOptions};
use tokio::task::JoinHandle;

use crate::{Options, list, once, operator_command, reap_job, run};

const LONG: Duration = Duration::from_secs(20);

/// Private tmux server, ended on drop.
struct Tmux {
    dir: TempDir,
    device: Device,
    server: Option<ProcId>,
    panes: Vec<ProcId>,
}

impl Tmux {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let init = dir.path().join("init");
        fs::write(&init, "#!/bin/sh\n[ $1 = log ] && exit\nexec /bin/sh \"$2\"\n").unwrap();
        fs::set_permissions(&init, Permissions::from_mode(0o700)).unwrap();
        let device = Device { start_server: true, ..Device::new("tmux", dir.path().join("tmux")) };
        Self { dir, device, server: None, panes: Vec::new() }
    }

    /// Creates a session with this shell script in its pane.
    async fn create(&mut self, name: &str, script: &str) -> Created {
        let job = self.dir.path().join(format!("{name}.sh"));
        fs::write(&job, script).unwrap();
        let (init, log) = (self.dir.path().join("init"), LogOptions::new(self.dir.path()));
        let create = Create { init, job, log, ..Create::sample(name.parse().unwrap(), tag(name)) };
        let created = self.device.create(&create).await.unwrap();
        self.server = identity::identify(created.pane.server.pid).unwrap();
        self.panes.extend(identity::identify(created.pid).unwrap());
        created
    }

    async fn tags(&self) -> BTreeSet<Tag> {
        self.device.observe().await.unwrap().panes.values().filter_map(|pane| pane.tag).collect()
    }

    fn candidate(&self, name: &str, created: &Created) -> Candidate {
        let started_at = created.pane.server.started_at;
        Candidate {
            server: self.server.map(|process| ServerId { process, started_at }),
            pane: Some(created.pane.pane),
            init: identity::identify(created.pid).unwrap(),
            ..candidate(name)
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // The panes' programs too: some ignore the loss of their terminal.
        for id in self.server.iter().chain(&self.panes) {
            if let Ok(Some(process)) = Handle::open(*id) {
                drop(process.signal(Signal::SIGKILL));
            }
        }
    }
}

/// Returns the tag of this name in the running test. The thread is part of it, because tests run in parallel
/// and a job ends every process on the machine with its tag.
fn tag(name: &str) -> Tag {
    let test = BuildHasherDefault::<DefaultHasher>::default().hash_one(std::thread::current().id());
    let mut tag = [0; 16];
    tag[..4].copy_from_slice(&std::process::id().to_le_bytes());
    tag[4..8].copy_from_slice(&test.to_le_bytes()[..4]);
    tag[8..8 + name.len()].copy_from_slice(name.as_bytes());
    Tag(tag)
}

/// Returns a candidate with processes only.
pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate {
        session: SessionId(name.bytes().map(u64::from).sum()),
        name: name.parse().unwrap(),
        kind: CandidateKind::Requested,
        evidence: "asked for".to_owned(),
        tag: tag(name),
        server: None,
        pane: None,
        init: None,
        agent: None,
        grace_ms: 100,
        remove_pane: false,
        cgroup: None,
        rule: None,
    }
}

/// A process that ends only by KILL, with a tag if given; ended on drop.
struct Stubborn(Child);

impl Stubborn {
    fn start(tag: Option<Tag>) -> Self {
        Self::running("read -r line", tag)
    }

    fn running(script: &str, tag: Option<Tag>) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("trap '' TERM HUP; echo; {script}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.envs(tag.map(|tag| ("POOL_INCARNATION", tag.to_string())));
        let mut child = command.spawn().unwrap();
        // The first byte of its output proves that it has set its trap.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        Self(child)
    }

    fn id(&self) -> ProcId {
        identity::identify(self.0.id()).unwrap().unwrap()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Scripted `poold`.
struct Poold {
    _dir: TempDir,
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// Candidates by name; the first is always the next, leased or not.
    candidates: BTreeMap<String, Candidate>,
    refused: BTreeSet<Tag>,
    /// Number of leases that must be requested before the first is given.
    together: usize,
    leases: Vec<Tag>,
    /// Tokens of the leases that were given, and of the verdicts.
    tokens: (Vec<Token>, Vec<Token>),
    verdicts: BTreeMap<Tag, Outcome>,
    tmux_socket: PathBuf,
    welcomes: usize,
    refuse_hello: Option<ErrorCode>,
    hang_up: bool,
}

impl Poold {
    fn new(candidates: impl IntoIterator<Item = Candidate>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("poold");
        let listener = aio::listen(&socket).unwrap();
        let candidates = candidates.into_iter().map(|c| (c.name.to_string(), c)).collect();
        let state = Arc::new(Mutex::new(State { candidates, ..State::default() }));
        let serving = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { _dir: dir, socket, state, serving }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn options(&self) -> Options {
        let build = "reaper test".to_owned();
        Options { socket: self.socket.clone(), pool: "default".to_owned(), build, tmux: None }
    }

    fn reaper(&self) -> JoinHandle<anyhow::Result<()>> {
        tokio::spawn(run(self.options(), std::future::pending()))
    }

    async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let wait = async {
            while !is_so(&self.state()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "{what}");
    }

    async fn verdict(&self, name: &str) -> Outcome {
        self.until(name, |state| state.verdicts.contains_key(&tag(name))).await;
        self.state().verdicts[&tag(name)].clone()
    }
}

impl Drop for Poold {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: Listener, state: Arc<Mutex<State>>) {
    loop {
        let stream = listener.accept().await.unwrap();
        tokio::spawn(connection(aio::split(stream), Arc::clone(&state)));
    }
}

/// Ends with the reaper's connection.
async fn connection(
    (reader, mut writer): (aio::ReadHalf, aio::WriteHalf),
    state: Arc<Mutex<State>>,
) -> Option<()> {
    let mut reader = FrameReader::new(reader);
    let hello: Hello = frame::decode(&reader.next().await.ok()??).unwrap();
    assert_eq!(hello.role, Role::Reaper);
    let reply = state.lock().unwrap().hello();
    aio::write_frame(&mut writer, &reply).await.ok()?;
    let mut held = None;
    loop {
        let call: Call = frame::decode(&reader.next().await.ok()??).unwrap();
        let reply = answer(&state, &mut held, call.request).await?;
        aio::write_frame(&mut writer, &Frame::Reply { id: call.id, reply }).await.ok()?;
    }
}

/// Answers a request of a connection that holds the lease with this tag.
async fn answer(state: &Mutex<State>, held: &mut Option<Tag>, request: Request) -> Option<Reply> {
    let look = || state.lock().unwrap();
    Some(Ok(match request {
        Request::Candidates => Response::Candidates(look().candidates.values().cloned().collect()),
        Request::NextCandidate { .. } => loop {
            if std::mem::take(&mut look().hang_up) {
                return None;
            }
            let next = look().candidates.values().next().cloned();
            if let Some(next) = next {
                break Response::Candidates(vec![next]);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        },
        Request::TakeLease { tag, .. } if *held == Some(tag) => return Some(look().lease(tag)),
        Request::TakeLease { tag, .. } => {
            look().leases.push(tag);
            while look().is_short() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let reply = look().lease(tag);
            *held = reply.is_ok().then_some(tag);
            return Some(reply);
        }
        Request::Settle(verdict) => {
            *held = None;
            if matches!(verdict.outcome, Outcome::Gone { .. }) {
                look().candidates.retain(|_, candidate| candidate.tag != verdict.tag);
            }
            look().tokens.1.push(verdict.token);
            look().verdicts.insert(verdict.tag, verdict.outcome);
            Response::Done
        }
        other => panic!("{other:?}"),
    }))
}

impl State {
    fn hello(&mut self) -> HelloReply {
        if let Some(code) = self.refuse_hello {
            return Err(Refusal::new(code, "not you"));
        }
        self.welcomes += 1;
        let (build, capabilities) = ("poold test".to_owned(), Vec::new());
        Ok(Welcome { version: protocol::hello::VERSION, epoch: Epoch(1), seq: Seq(0), build, capabilities })
    }

    fn is_short(&self) -> bool {
        self.leases.len() < self.together
    }

    fn lease(&mut self, tag: Tag) -> Reply {
        let found = self.candidates.values().find(|candidate| candidate.tag == tag);
        let Some(candidate) = found.filter(|_| !self.refused.contains(&tag)) else {
            return Err(Refusal::conflict("somebody else has it"));
        };
        let token = Token { epoch: Epoch(1), n: self.leases.len() as u64 };
        self.tokens.0.push(token);
        Ok(Response::Lease(Box::new(lease(candidate.clone(), token, &self.tmux_socket))))
    }
}

pub(crate) fn lease(candidate: Candidate, token: Token, socket: &std::path::Path) -> Lease {
    let tmux_socket = OsBytes(socket.as_os_str().as_encoded_bytes().to_vec());
    Lease {
        token,
        candidate,
        tmux_socket,
        protected: Vec::new(),
        tmux: "tmux".into(),
        socket: "/none".into(),
        verify_ms: 5000,
        run: "/none/run".into(),
        leftovers: Leftovers::Kill,
        private: None,
        before: Vec::new(),
        after: Vec::new(),
    }
}

fn is_gone(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Gone { .. })
}

#[tokio::test]
async fn a_session_is_ended_and_its_neighbour_is_not() {
    let mut tmux = Tmux::new();
    let one = tmux.create("one", "trap '' HUP TERM; sleep 1000 & wait; read line").await;
    let two = tmux.create("two", "exec sleep 1000").await;
    let poold = Poold::new([Candidate { remove_pane: true, ..tmux.candidate("one", &one) }]);
    poold.state().tmux_socket.clone_from(&tmux.device.socket);
    let _reaper = poold.reaper();
    let Outcome::Gone { killed } = poold.verdict("one").await else { panic!("not gone") };
    assert!(killed.iter().any(|id| id.pid == one.pid), "{killed:?}");
    assert_eq!(identity::identify(one.pid).unwrap(), None);
    assert_eq!(tmux.tags().await, [tag("two")].into());
    assert!(identity::identify(two.pid).unwrap().is_some());
}

#[tokio::test]
async fn a_zombie_pane_goes_and_a_restart_keeps_its_own() {
    let mut tmux = Tmux::new();
    let (one, two) = (tmux.create("one", "exit 3").await, tmux.create("two", "exit 3").await);
    tmux.create("three", "exec sleep 1000").await;
    let ended = async {
        while !tmux.device.observe().await.unwrap().panes.values().filter(|pane| pane.dead).count().eq(&2) {}
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
    let kind = CandidateKind::ZombiePane;
    let zombie = Candidate { kind, remove_pane: true, ..tmux.candidate("one", &one) };
    let poold = Poold::new([zombie, tmux.candidate("two", &two)]);
    poold.state().tmux_socket.clone_from(&tmux.device.socket);
    let _reaper = poold.reaper();
    assert!(is_gone(&poold.verdict("one").await) && is_gone(&poold.verdict("two").await));
    assert_eq!(tmux.tags().await, [tag("two"), tag("three")].into());
}

#[tokio::test]
async fn p04_stubborn_and_stopped_processes_end_and_strangers_do_not() {
    let (mut stubborn, mut stopped) = (Stubborn::start(Some(tag("one"))), Stubborn::start(Some(tag("one"))));
    let mut stranger = Stubborn::start(Some(tag("two")));
    Handle::open(stopped.id()).unwrap().unwrap().signal(Signal::SIGSTOP).unwrap();
    let poold = Poold::new([candidate("one")]);
    let _reaper = poold.reaper();
    assert!(is_gone(&poold.verdict("one").await));
    assert!(!stubborn.lives() && !stopped.lives());
    assert!(stranger.lives());
}

#[tokio::test]
async fn a_shorter_grace_that_is_asked_for_ends_the_grace_under_way() {
    let mut stubborn = Stubborn::start(Some(tag("one")));
    let poold = Poold::new([Candidate { grace_ms: 3_600_000, ..candidate("one") }]);
    let _reaper = poold.reaper();
    poold.until("it is leased", |state| !state.leases.is_empty()).await;
    poold.state().candidates.get_mut("one").unwrap().grace_ms = 0;
    assert!(is_gone(&poold.verdict("one").await) && !stubborn.lives());
    assert_eq!(poold.state().leases.len(), 1);
}

#[tokio::test]
async fn a_verdict_has_the_token_of_the_lease_that_a_restarted_poold_gave() {
    let _stubborn = Stubborn::start(Some(tag("one")));
    let poold = Poold::new([Candidate { grace_ms: 3_600_000, ..candidate("one") }]);
    let _reaper = poold.reaper();
    poold.until("it is leased", |state| !state.tokens.0.is_empty()).await;
    {
        let mut state = poold.state();
        // Each lease from now on has another token, as those of the next `poold`.
        state.leases.push(tag("other"));
        state.candidates.get_mut("one").unwrap().grace_ms = 0;
    }
    assert!(is_gone(&poold.verdict("one").await));
    let (given, settled) = poold.state().tokens.clone();
    assert_eq!((given[0].n, settled), (1, vec![Token { epoch: Epoch(1), n: 2 }]));
}

/// A process that only its cgroup identifies.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_in_its_control_group_ends_with_a_session() {
    use process::cgroup::{Subtree, remove};
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let root = PathBuf::from(mount.unwrap_or("/nowhere")).join(format!("reap-test-{}", std::process::id()));
    let group = Subtree::at(&root).and_then(|subtree| {
        subtree.prepare()?;
        subtree.create(tag("one"), &protocol::limits::Limits::default())
    });
    let group = match group {
        Ok(group) => group.path,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut stubborn = Stubborn::start(None);
    std::fs::write(group.join("cgroup.procs"), stubborn.id().pid.to_string()).unwrap();
    let poold = Poold::new([Candidate { cgroup: Some(group.into()), ..candidate("one") }]);
    let _reaper = poold.reaper();
    assert!(is_gone(&poold.verdict("one").await));
    assert!(!stubborn.lives());
    remove(&root).unwrap();
}

#[tokio::test]
async fn an_agent_that_left_every_net_is_known_by_name() {
    let ends = async |script: &str| {
        let mut agent = Stubborn::running(script, None);
        let poold = Poold::new([Candidate { agent: Some(agent.id()), ..candidate("one") }]);
        let _reaper = poold.reaper();
        assert!(is_gone(&poold.verdict("one").await), "{script}");
        assert!(!agent.lives(), "{script}");
    };
    tokio::join!(ends("read -r line"), ends("while :; do sleep 1000; done"));
}

#[tokio::test]
async fn one_that_is_refused_keeps_no_other_waiting() {
    let poold = Poold::new([candidate("a"), candidate("b"), candidate("c")]);
    poold.state().refused.insert(tag("a"));
    let _reaper = poold.reaper();
    assert!(is_gone(&poold.verdict("b").await) && is_gone(&poold.verdict("c").await));
    assert_eq!(poold.state().leases.iter().filter(|leased| **leased == tag("b")).count(), 1);
    poold.state().refused.clear();
    assert!(is_gone(&poold.verdict("a").await));
}

#[tokio::test]
async fn many_are_ended_together() {
    let names: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    let poold = Poold::new(names.iter().map(|name| candidate(name)));
    poold.state().together = names.len();
    let _reaper = poold.reaper();
    for name in &names {
        assert!(is_gone(&poold.verdict(name).await));
    }
}

#[tokio::test]
async fn poold_is_lost_and_found() {
    let poold = Poold::new([]);
    let _reaper = poold.reaper();
    poold.until("it connects", |state| state.welcomes == 1).await;
    poold.state().hang_up = true;
    poold.until("it connects again", |state| state.welcomes > 1).await;
    poold.state().candidates.insert("one".to_owned(), candidate("one"));
    assert!(is_gone(&poold.verdict("one").await));
}

#[tokio::test]
async fn versions_that_do_not_fit_are_the_end() {
    let poold = Poold::new([]);
    poold.state().refuse_hello = Some(ErrorCode::Protocol);
    let ended = tokio::time::timeout(LONG, poold.reaper()).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "not you");
}

#[tokio::test]
async fn told_to_end_it_finishes_what_it_is_at() {
    let poold = Poold::new([candidate("one"), candidate("two")]);
    poold.state().together = 3;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let reaper = tokio::spawn(run(poold.options(), async { drop(stopped.await) }));
    poold.until("two are asked for", |state| state.leases.len() == 2).await;
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    poold.state().together = 0;
    tokio::time::timeout(LONG, reaper).await.unwrap().unwrap().unwrap();
    assert!(is_gone(&poold.state().verdicts[&tag("one")]) && is_gone(&poold.state().verdicts[&tag("two")]));
}

#[tokio::test]
async fn once_says_whether_all_is_gone() {
    let poold = Poold::new([candidate("one"), candidate("two")]);
    once(poold.options()).await.unwrap();
    assert_eq!(poold.state().verdicts.len(), 2);
    let dir = tempfile::tempdir().unwrap();
    poold.state().tmux_socket = dir.path().join("no-server");
    let living = ServerId { process: identity::me().unwrap(), started_at: 1 };
    let left = Candidate { remove_pane: true, server: Some(living), ..candidate("three") };
    poold.state().candidates.insert("three".to_owned(), left);
    assert!(once(poold.options()).await.is_err(), "silence is no proof where the server lives");
    assert!(matches!(poold.state().verdicts[&tag("three")], Outcome::Untouched { .. }));
    let poold = Poold::new([candidate("one")]);
    poold.state().refused.insert(tag("one"));
    assert!(once(poold.options()).await.is_err(), "somebody else ends it, and it is named still");
}

#[tokio::test]
async fn a_list_touches_nothing() {
    let mut victim = Stubborn::start(Some(tag("one")));
    let poold = Poold::new([candidate("one")]);
    let (mut table, mut json) = (Vec::new(), Vec::new());
    list(poold.options(), false, &mut table).await.unwrap();
    list(poold.options(), true, &mut json).await.unwrap();
    assert!(String::from_utf8(table).unwrap().contains("requested"));
    assert_eq!(serde_json::from_slice::<Candidate>(&json).unwrap(), candidate("one"));
    assert!(poold.state().leases.is_empty() && victim.lives());
}

/// Returns the outcome of a lease on the victim, with a scripted tmux.
async fn outcome(tmux: &Fake, victim: Option<&Stubborn>) -> Outcome {
    let candidate = Candidate { remove_pane: true, agent: victim.map(Stubborn::id), ..candidate("outcome") };
    let token = Token { epoch: Epoch(1), n: 1 };
    let lease = lease(candidate, token, std::path::Path::new("/unused"));
    reap_job::end(tmux, &lease, &GraceLimit::default()).await
}

#[tokio::test]
async fn a_silent_server_is_no_proof() {
    let tmux = Fake::default();
    tmux.fail(std::iter::repeat_n(Fault::Hang, 1000));
    assert!(matches!(outcome(&tmux, None).await, Outcome::Untouched { .. }));
    let mut victim = Stubborn::start(None);
    assert!(matches!(outcome(&tmux, Some(&victim)).await, Outcome::Survivors { .. }));
    assert!(!victim.lives(), "its processes are ended all the same");
}

/// Returns the outcome of a lease on the process of `one`, whose pane has this tag; true if the process
/// lives on.
async fn in_pane(tagged: &str, kind: CandidateKind, remove_pane: bool) -> (Outcome, bool) {
    let tmux = Fake::default();
    let created = tmux.create(&Create::sample("one".parse().unwrap(), tag(tagged))).await.unwrap();
    let mut victim = Stubborn::start(Some(tag("one")));
    let process = ProcId { pid: created.pane.server.pid, start: 0 };
    let server = Some(ServerId { process, started_at: created.pane.server.started_at });
    let candidate =
        Candidate { kind, server, pane: Some(created.pane.pane), remove_pane, ..candidate("one") };
    let lease = lease(candidate, Token::default(), std::path::Path::new("/unused"));
    let outcome = reap_job::end(&tmux, &lease, &GraceLimit::default()).await;
    let panes = tmux.observe().await.unwrap().panes.len();
    (outcome, victim.lives() && panes == 1)
}

#[tokio::test]
async fn p06_what_has_another_tag_is_not_touched() {
    for remove_pane in [true, false] {
        let (outcome, spared) = in_pane("other", CandidateKind::Requested, remove_pane).await;
        assert!(matches!(outcome, Outcome::Untouched { .. }) && spared, "{outcome:?}");
    }
}

#[tokio::test]
async fn p06_a_program_that_is_no_init_of_the_pool_is_ended_only_in_a_pane_of_the_pool() {
    for (kind, in_pane) in [
        (CandidateKind::Requested, false),
        (CandidateKind::Leftover, false),
        (CandidateKind::Requested, true),
    ] {
        let (tmux, mut program) = (Fake::default(), Stubborn::start(None));
        let tagged = tag(if in_pane { "one" } else { "other" });
        let created = tmux.create(&Create::sample("one".parse().unwrap(), tagged)).await.unwrap();
        let process = ProcId { pid: created.pane.server.pid, start: 0 };
        let server = ServerId { process, started_at: created.pane.server.started_at };
        let (server, pane) = (Some(server).filter(|_| in_pane), Some(created.pane.pane).filter(|_| in_pane));
        let (init, agent) = (Some(program.id()), Some(program.id()));
        let candidate = Candidate { kind, server, pane, init, agent, ..candidate("one") };
        let lease = lease(candidate, Token::default(), std::path::Path::new("/unused"));
        let outcome = reap_job::end(&tmux, &lease, &GraceLimit::default()).await;
        assert_eq!(matches!(outcome, Outcome::Untouched { .. }), !in_pane, "{kind:?} {outcome:?}");
        assert_eq!(program.lives(), !in_pane, "{kind:?} {outcome:?}");
    }
}

#[tokio::test]
async fn t02_what_was_missing_and_is_there_is_not_left_over() {
    let (outcome, spared) = in_pane("one", CandidateKind::Leftover, true).await;
    assert!(matches!(outcome, Outcome::Untouched { .. }) && spared, "{outcome:?}");
    let (_, spared) = in_pane("one", CandidateKind::Requested, true).await;
    assert!(!spared);
}

#[tokio::test]
async fn a_command_before_keeps_only_what_a_rule_ends() {
    let dir = tempfile::tempdir().unwrap();
    for (rule, goes_on) in [(Some(Rule::Hung), false), (Some(Rule::HostMemory), true), (None, true)] {
        let lease = lease(Candidate { rule, ..candidate("one") }, Token::default(), dir.path());
        let lease = Lease { before: vec!["false".into()], ..lease };
        let said = operator_command::run_before(&lease, LONG).await;
        assert_eq!(said.is_ok(), goes_on, "{rule:?} {said:?}");
    }
}

#[tokio::test]
async fn a_command_before_cannot_keep_what_has_ended_from_being_cleaned_up() {
    use CandidateKind::{Leftover, Orphan, RetiredTag, StaleWorker, ZombiePane};
    let dir = tempfile::tempdir().unwrap();
    let me = identity::me().unwrap();
    let (living, ended) = (Some(me), Some(ProcId { start: me.start + 1, ..me }));
    for (kind, init, goes_on) in [
        (ZombiePane, None, true),
        (RetiredTag, None, true),
        (Leftover, None, true),
        (StaleWorker, ended, true),
        (StaleWorker, living, false),
        (Orphan, None, false),
    ] {
        let candidate = Candidate { kind, init, rule: Some(Rule::Hung), ..candidate("one") };
        let lease = lease(candidate, Token::default(), dir.path());
        let lease = Lease { before: vec!["false".into()], ..lease };
        let said = operator_command::run_before(&lease, LONG).await;
        assert_eq!(said.is_ok(), goes_on, "{kind:?} {said:?}");
    }
}

#[tokio::test]
async fn a_command_before_that_exceeds_its_time_refuses_and_is_ended_with_what_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let noted = dir.path().join("pids");
    let script = "sleep 100 & echo $! $$ >\"$0\"; exec sleep 100";
    let words = ["sh", "-c", script, noted.to_str().unwrap()];
    let candidate = Candidate { rule: Some(Rule::Hung), ..candidate("slow") };
    let lease =
        Lease { before: words.map(OsBytes::from).to_vec(), ..lease(candidate, Token::default(), dir.path()) };
    // Longer than a busy machine may keep a shell from writing a line.
    let why = operator_command::run_before(&lease, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(why, "the command before it, sh, took longer than 5 s");
    let pids = fs::read_to_string(noted).unwrap();
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        let left = identity::identify(pid).unwrap();
        assert!(left.is_none_or(|process| identity::exited(process).unwrap()), "{pid}");
    }
}
