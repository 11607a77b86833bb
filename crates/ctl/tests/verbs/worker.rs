//! `worker`.

use protocol::request::AddWorker;
use protocol::worker::{Selection, WorkerQueue, WorkerSpec};
use protocol::{Request, Response, SessionRef};

use crate::fake::{Answer, Pool, ok};
use crate::samples::session;

crate::tests! {
    a_worker_is_added_as_the_flags_say, workers_are_listed_and_changed_by_name,
}

fn spec(configured: bool) -> WorkerSpec {
    WorkerSpec {
        name: "index".into(),
        command: vec!["h".into(), "--json".into()],
        kinds: vec!["a".into()],
        sessions: WorkerQueue::Sessions(Selection::Named(vec![SessionRef("web".into())])),
        session_concurrency: 1,
        concurrency: 2,
        idle_end_ms: 60_000,
        lease_ms: None,
        timeout_ms: Some(1000),
        result: true,
        fallback: vec!["other".into()],
        fallback_after: 3,
        configured,
        removed: false,
    }
}

/// The hidden session of the worker.
fn hidden(configured: bool) -> Answer {
    let mut view = session("web");
    view.session.worker = Some(Box::new(spec(configured)));
    ok(Response::Session(Box::new(view)))
}

fn a_worker_is_added_as_the_flags_say() {
    let pool = Pool::new(|_| hidden(false));
    let line = "worker add index --kind a --session web --concurrency 2 --idle-end 1m --handler-timeout 1s \
                --lease 5s --session-concurrency 3 --max-restarts 1 --result --fallback other --fallback-after 4 --env A=1 --clean-env --limit mem=1G --cwd / -- h --json";
    assert_eq!(pool.run(line).success(), "index  running\n");
    let Request::AddWorker(asked) = pool.request() else { panic!("{:?}", pool.calls()) };
    let AddWorker { worker, cwd, env, limits, max_restarts, .. } = *asked;
    let wanted =
        WorkerSpec { lease_ms: Some(5000), session_concurrency: 3, fallback_after: 4, ..spec(false) };
    assert_eq!((worker, cwd.to_string_lossy().as_str(), max_restarts), (wanted, "/", Some(1)));
    assert_eq!((env, limits.memory), (vec![("A".into(), "1".into())], Some(1 << 30)));
    for wrong in
        ["worker add index -- h", "worker add index --all --own-queue -- h", "worker add index --all"]
    {
        assert_eq!(pool.run(wrong).code, 2, "{wrong}");
    }
}

fn workers_are_listed_and_changed_by_name() {
    let pool = Pool::new(|call| match &call.request {
        Request::List(list) if list.workers && list.all => {
            let mut view = session("web");
            view.session.worker = Some(Box::new(spec(true)));
            view.queue.queued = 7;
            ok(Response::Sessions(vec![view]))
        }
        Request::Generators => ok(Response::Generators(Vec::new())),
        _ => hidden(true),
    });
    let text = pool.run("worker ls").success();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..6], ["index", "running", "a", "web", "7", "0/2"]);
    let document = pool.json("worker ls --json");
    assert_eq!((&document["sessions"], &document["configured"]), (&"web".into(), &true.into()));
    let before = pool.calls().len();
    pool.run("worker start index").success();
    pool.run("worker stop @index").success();
    let ran = pool.run("worker rm index");
    assert_eq!(ran.code, 5, "it is in the configuration");
    let at = SessionRef("@index".into());
    let asked: Vec<Request> = pool.calls().into_iter().skip(before).map(|call| call.request).collect();
    assert!(matches!(&asked[0], Request::Restore(asked) if asked.session.as_ref() == Some(&at)), "{asked:?}");
    assert!(matches!(&asked[1], Request::Kill(asked) if asked.session == at), "{asked:?}");
    assert_eq!((&asked[2], asked.len()), (&Request::Show(at), 3));
}
