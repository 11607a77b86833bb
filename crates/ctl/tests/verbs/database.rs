//! `export`, `import`, `backup`, `check`, `compact`.

use std::os::unix::fs::PermissionsExt;

use protocol::reply::Checked;
use protocol::{OsBytes, Refusal, Request, Response};
use serde_json::{Value, json};

use crate::fake::{Answer, Pool, Ran, ok};

crate::tests! {
    an_export_is_whole_or_not_there, a_backup_is_made_where_it_was_asked_for,
    a_check_that_finds_something_is_nine, a_compaction_says_what_it_gained, without_a_daemon_poold_does_it,
    a_program_gets_one_document_without_a_daemon, nothing_is_imported_beside_a_daemon,
}

fn text(text: &str) -> Response {
    Response::Text(text.into())
}

fn an_export_is_whole_or_not_there() {
    let pool = Pool::new(|_| Answer::Parts(vec![text("{\"a\":1}\n"), text("{\"b\":")], text("2}\n")));
    let whole = "{\"a\":1}\n{\"b\":2}\n";
    assert_eq!(pool.run("export").success(), whole);
    let out = pool.dir.path().join("out.jsonl");
    std::fs::write(&out, "older").unwrap();
    let file = out.to_str().unwrap();
    assert_eq!(pool.run(&format!("export {file}")).success(), format!("16 bytes written to {file}\n"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), whole);
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    let document = pool.json(&format!("export {file} --json"));
    assert_eq!(document, json!({"path": file, "bytes": 16}));

    let broken = Pool::new(|call| {
        let part = protocol::Frame::Part { id: call.id, part: text("{\"a\":1}\n") };
        Answer::Frames(vec![part])
    });
    assert_eq!(broken.run(&format!("export {file}")).code, 7);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), whole, "it is as it was");
    let left: Vec<_> = std::fs::read_dir(pool.dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".new")), "{left:?}");
}

fn a_backup_is_made_where_it_was_asked_for() {
    let pool = Pool::new(|call| match &call.request {
        Request::Backup { path } => {
            std::fs::write(path.as_path(), "12345").unwrap();
            ok(text("5 bytes of it\n"))
        }
        other => panic!("{other:?}"),
    });
    let mut command = pool.poolctl(["backup", "copy", "--json"]);
    let ran = Ran::new(&command.current_dir(pool.dir.path()).output().unwrap());
    let path = std::fs::canonicalize(pool.dir.path()).unwrap().join("copy");
    let document: Value = serde_json::from_str(&ran.success()).unwrap();
    assert_eq!(document, json!({"path": path.to_str().unwrap(), "bytes": 5, "written": "5 bytes of it\n"}));
    assert_eq!(pool.request(), Request::Backup { path: OsBytes::from(path.as_os_str()) });
    let pool = Pool::new(|_| Answer::Reply(Err(Refusal::conflict("is there"))));
    assert_eq!(pool.run("backup /tmp").code, 4);
}

fn a_check_that_finds_something_is_nine() {
    let pool = Pool::new(|_| ok(Response::Checked(Checked { records: 7, bytes: 70, ..Checked::default() })));
    assert_eq!(pool.run("check").success(), "7 records, 70 bytes: no damage\n");
    let found = || Checked {
        records: 7,
        bytes: 70,
        problems: vec!["row 3\x1b is not the event".into()],
        quarantined: vec!["messages 12: checksum".into()],
    };
    let pool = Pool::new(move |_| ok(Response::Checked(found())));
    let ran = pool.run("check");
    let said = "problem: row 3\\x1b is not the event\nquarantined: messages 12: checksum\n\
                7 records, 70 bytes: 1 problem, 1 record quarantined\n";
    assert_eq!((ran.code, ran.out.as_str()), (9, said));
    let ran = pool.run("check --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["quarantined"]), (9, &json!(["messages 12: checksum"])));
}

fn a_compaction_says_what_it_gained() {
    let pool = Pool::new(|_| ok(Response::Compacted { before: 4096, after: 1024 }));
    assert_eq!(pool.run("compact").success(), "4096 bytes before, 1024 bytes now\n");
    assert_eq!(pool.run("compact --json").success(), "{\"after_bytes\":1024,\"before_bytes\":4096}\n");
    assert_eq!(Pool::empty().run("compact").code, 7);
}

/// Runs with a `poold` that prints its arguments and environment.
fn with_poold(pool: &Pool, args: &[&str]) -> Ran {
    with_this_poold(pool, args, "echo \"$@\" $POOL_NAME $POOL_STATE_DIR $POOL_LOCK_TOKEN")
}

fn with_this_poold(pool: &Pool, args: &[&str], script: &str) -> Ran {
    let poold = pool.dir.path().join("poold");
    std::fs::write(&poold, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&poold, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = pool.poolctl(args);
    command.env("POOL_BIN_DIR", pool.dir.path()).env("POOL_LOCK_TOKEN", "3.1");
    Ran::new(&command.output().unwrap())
}

fn without_a_daemon_poold_does_it() {
    let pool = Pool::empty();
    let state = pool.dir.path().display().to_string();
    for (args, started) in [
        (&["import", "file"][..], "--import file"),
        (&["import", "-"], "--import -"),
        (&["check"], "--check"),
        (&["check", "--offline"], "--check"),
        (&["compact", "--offline"], "--compact"),
    ] {
        let ran = with_poold(&pool, args);
        assert_eq!((ran.code, ran.out), (0, format!("{started} default {state}\n")), "{args:?}");
    }
}

fn a_program_gets_one_document_without_a_daemon() {
    let pool = Pool::empty();
    let document = |args: &[&str], script: &str| {
        let ran = with_this_poold(&pool, args, script);
        let text = if ran.code == 0 { &ran.out } else { &ran.err };
        (
            ran.code,
            serde_json::from_str::<Value>(text).unwrap(),
            if ran.code == 0 { ran.err } else { ran.out },
        )
    };
    let said = |args: &[&str]| document(args, "echo \"$@ $(cat)\"");
    let nothing = String::new;
    assert_eq!(said(&["import", "-", "--json"]), (0, json!({"said": "--import -"}), nothing()));
    let compacted = json!({"before_bytes": null, "after_bytes": null, "said": "--compact"});
    assert_eq!(said(&["compact", "--offline", "--json"]), (0, compacted, nothing()));
    let sound = json!({"records": null, "bytes": null, "problems": [], "quarantined": [], "said": "--check"});
    assert_eq!(said(&["check", "--offline", "--json"]), (0, sound, nothing()));
    for (exit, code, word) in [(4, 4, "conflict"), (9, 9, "storage"), (101, 1, "failed")] {
        let script = format!("echo '2026-01-01T00:00:00Z ERROR poold: it is there: x' >&2; exit {exit}");
        let error = json!({"error": {"code": word, "message": "it is there: x", "exit": code}});
        assert_eq!(document(&["import", "file", "--json"], &script), (code, error, nothing()));
    }
}

fn nothing_is_imported_beside_a_daemon() {
    let pool = Pool::new(|call| panic!("{call:?}"));
    let ran = with_poold(&pool, &["import", "file"]);
    assert_eq!((ran.code, ran.out.as_str()), (4, ""));
    assert!(ran.err.contains("poolctl down"), "{}", ran.err);
}
