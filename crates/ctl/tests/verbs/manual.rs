//! The manual: `help TOPIC`, and the man pages.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fake::{Pool, Ran};

crate::tests! {
    a_topic_is_shown_without_a_pool, an_unknown_topic_names_the_nearest_one,
    a_topic_in_place_of_a_verb_is_told_where_its_page_is, no_argument_in_an_error_commands_the_terminal,
    the_manual_is_written_as_man_pages,
}

fn a_topic_is_shown_without_a_pool() {
    let pool = Pool::empty();
    let page = pool.run("help sessions").success();
    assert!(page.starts_with("SESSIONS: ") && page.contains("\nSEE ALSO\n"), "{page}");
    assert!(page.lines().count() > 100 && !page.contains('\x1b'), "{page}");
    assert_eq!(pool.run("help workers").success(), pool.run("help queues-and-workers").success());
    assert!(pool.run("--color always help sessions").success().starts_with("\x1b[1mSESSIONS: "));
    let json = pool.json("--json help sessions");
    assert_eq!(json["topic"], "sessions");
    assert!(json["text"].as_str().unwrap().starts_with("# Sessions: "), "{json}");
    let help = pool.run("help").success();
    assert!(help.contains("\nTopics") && help.contains("\n  sessions "), "{help}");
    assert!(pool.run("help send").success().contains("Usage: poolctl send"), "a verb is a verb");
}

fn an_unknown_topic_names_the_nearest_one() {
    let pool = Pool::empty();
    let ran = pool.run("help sesions");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("did you mean sessions?") && ran.err.contains("\n  locks "), "{ran:?}");
    let ran = pool.run("--json help qeue");
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &error["error"]["code"]), (2, &Value::from("usage")));
    assert!(error["error"]["message"].as_str().unwrap().contains("did you mean queue?"), "{error}");
}

fn a_topic_in_place_of_a_verb_is_told_where_its_page_is() {
    let pool = Pool::empty();
    for (line, topic) in [("prompts", "prompts"), ("--pool x workers", "queues-and-workers")] {
        let ran = pool.run(line);
        let tip = format!("`poolctl help {topic}` shows the page\n");
        assert_eq!((ran.code, ran.err.ends_with(&tip)), (2, true), "{ran:?}");
    }
    let error: Value = serde_json::from_str(&pool.run("--json slots").err).unwrap();
    assert!(
        error["error"]["message"].as_str().unwrap().ends_with("`poolctl help slots` shows the page"),
        "{error}"
    );
    assert!(!pool.run("nonsense").err.contains("shows the page"));
}

fn no_argument_in_an_error_commands_the_terminal() {
    let pool = Pool::empty();
    for line in ["non\x1b[2Jsense", "ls --state non\x1b[2Jsense", "--json kill web --non\x1b[2Jsense"] {
        let ran = pool.run(line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("x1b[2Jsense") && !ran.err.contains('\x1b'), "{ran:?}");
    }
    // A line that is a mistake only with the character.
    let line = ["kill", "web", "--op-id", "a\x1b[2Jb"];
    let ran = Ran::new(&pool.poolctl(line).env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(ran.code == 2 && ran.err.contains("--op-id") && !ran.err.contains('\x1b'), "{ran:?}");
}

fn the_manual_is_written_as_man_pages() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::empty();
    pool.run(&format!("man --dir {}", dir.path().display())).success();
    let read = |page: &str| fs::read_to_string(dir.path().join(page)).unwrap();
    let verbs = ["poolctl", "poolctl-send", "poolctl-queue", "poolctl-queue-ls"];
    for page in
        verbs.map(|verb| format!("man1/{verb}.1")).into_iter().chain(["man7/tmux-pool-slots.7".into()])
    {
        let text = read(&page);
        assert!(text.contains(".TH ") && text.contains(".SH NAME") && text.contains("SEE ALSO"), "{page}");
    }
    let lock = read("man1/poolctl-lock.1").replace("\\-", "-");
    assert!(lock.contains("poolctl lock [OPTIONS] <SESSION> -- <CMD>..."), "{lock}");
    let slots = read("man7/tmux-pool-slots.7").replace("\\-", "-");
    assert!(slots.contains("workers (") && !slots.contains("own tmux-pool"), "{slots}");
    assert!(read("man1/poolctl-park.1").contains("tmux\\-pool\\-slots"), "{}", read("man1/poolctl-park.1"));
    assert!(
        !dir.path().join("man1/poolctl-become.1").exists() && !dir.path().join("man1/poolctl-man.1").exists()
    );
    // The formatter, if there is one, warns of none of them.
    for page in
        fs::read_dir(dir.path().join("man7")).unwrap().chain(fs::read_dir(dir.path().join("man1")).unwrap())
    {
        let path = page.unwrap().path();
        let groff = Command::new("groff")
            .args(["-k", "-man", "-Tutf8", "-ww", "-W", "break", "-z"])
            .arg(&path)
            .output();
        let Ok(said) = groff else { return };
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.is_empty(), "{}: {said}", path.display());
    }
}
