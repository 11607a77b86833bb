//! Text that is sent arrives in the right pane, complete and once; output is kept.

use std::fs;

use crate::harness::{Output, PATIENCE, Pool, eventually, wait_until};

/// Creates a session whose program copies its raw terminal input to the test's file `out`.
fn recorder(pool: &Pool) -> String {
    let out = pool.path("out");
    let script = format!("stty raw -echo; exec cat >'{}'", out.display());
    let id = pool.script("recorder", &script);
    wait_until("the program reads", PATIENCE, || pool.show(&id)["current_command"] == "cat" || out.exists());
    id
}

fn recorded(pool: &Pool, length: usize) -> Vec<u8> {
    pool.await_file("out", |bytes| bytes.len() >= length)
}

/// A text of `length` bytes with every character that tmux, a shell or a terminal might interpret.
fn text(length: usize) -> String {
    let pieces = [
        "plain ",
        "é漢🦀",
        "line\n",
        "\ttab",
        ";",
        "#{pid} ",
        "#(date)",
        " -t x",
        "$HOME `id` ",
        "'\"\\",
        "\n\n",
    ];
    let mut text = String::new();
    let mut at = 7_usize;
    while text.len() < length {
        at = (at * 31 + 17) % 1009;
        text.push_str(pieces[at % pieces.len()]);
    }
    while text.len() > length {
        text.pop();
    }
    text.clone() + &"x".repeat(length - text.len())
}

#[test]
fn i1_what_is_sent_arrives_byte_for_byte() {
    let pool = Pool::new();
    let id = recorder(&pool);
    let special =
        [";", "a;", "-t", "#{pid}", "#(touch x)", "$1", "~", "\\;", "!ls", "/help", " ", "é", "a\nb\n\nc"];
    let mut expected = Vec::new();
    let mut texts: Vec<String> = special.map(str::to_owned).to_vec();
    texts.extend([1, 2, 4095, 4096, 4097, 65_536].map(text));
    for text in &texts {
        let sent = Output::of(pool.poolctl().args(["send", &id, "--file"]).arg(file(&pool, text)), b"");
        drop(sent.expect(0));
        expected.extend_from_slice(text.as_bytes());
        expected.push(b'\r');
    }
    let arrived = recorded(&pool, expected.len());
    assert!(arrived == expected, "{} bytes arrived, {} expected", arrived.len(), expected.len());
    let queue = pool.lines(&["queue", "ls", &id]);
    assert!(queue.iter().all(|message| message["state"] == "done" && message["reason"] == "unconfirmed"));
}

/// Writes the text to a file, with a final newline.
fn file(pool: &Pool, text: &str) -> std::path::PathBuf {
    let path = pool.path("body");
    fs::write(&path, format!("{text}\n")).unwrap();
    path
}

#[test]
fn i1_t22_the_longest_text_arrives_as_one_and_a_longer_one_is_refused() {
    let pool = Pool::new();
    let id = recorder(&pool);
    let most = text(256 * 1024);
    let over = format!("{most}x");
    pool.ctl_in(&["send", &id, "-"], over.as_bytes()).expect(2);
    let sent = pool.ctl_in(&["--json", "send", &id, "-"], most.as_bytes()).expect(0).json();
    assert_eq!(sent["size"], most.len());
    pool.ok(&["wait", &id, "--for", &format!("message:{}", sent["id"])]);
    let arrived = recorded(&pool, most.len() + 1);
    assert!(arrived == [most.as_bytes(), b"\r"].concat(), "{} of {} bytes", arrived.len(), most.len());
    assert_eq!(pool.show(&id)["total_requests"], 1);
}

#[test]
fn i2_nothing_that_is_sent_leaves_paste_mode() {
    let pool = Pool::new();
    let id = recorder(&pool);
    let sent = pool.ctl_in(&["send", &id, "-"], "a\x1b[201~\x03b\r\nc\rd\x7f\u{9b}e\0f".as_bytes());
    drop(sent.expect(0));
    let arrived = recorded(&pool, "a[201~b\nc\ndef\r".len());
    assert_eq!(String::from_utf8(arrived).unwrap(), "a[201~b\nc\ndef\r");
    pool.ctl_in(&["send", &id, "-"], b"\xff\xfe").expect(2);
    pool.ctl_in(&["send", &id, "-"], b"\x1b\x1b").expect(2);
}

#[test]
fn t07_a_repeat_is_never_typed_twice() {
    let pool = Pool::new();
    let id = recorder(&pool);
    let first = pool.ok(&["send", &id, "--op-id", "once", "text"]);
    for _ in 0..3 {
        assert_eq!(pool.ok(&["send", &id, "--op-id", "once", "text"]), first);
    }
    let keyed = pool.ok(&["send", &id, "--key", "k", "keyed"]);
    assert_eq!(pool.ok(&["send", &id, "--key", "k", "keyed"]), keyed);
    pool.ctl(&["send", &id, "--key", "k", "other"]).expect(4);
    let kind = pool.ctl(&["send", &id, "--kind", "note", "--key", "k", "keyed"]).expect(4).stderr;
    assert!(kind.contains("with another kind"), "{kind}");
    pool.ok(&["send", &id, "--wait", "done", "last"]);
    assert_eq!(recorded(&pool, 16), b"text\rkeyed\rlast\r");
}

#[test]
fn w18_a_message_that_cannot_be_typed_waits_and_is_typed_once() {
    let pool = Pool::new();
    let id = recorder(&pool);
    pool.tmux_text(&["copy-mode", "-t", "=recorder:"]);
    let message = pool.ok(&["send", &id, "patience"]);
    let until = format!("message:{message}");
    // A client that was not even welcomed within the timeout asks again.
    let wait = || pool.ctl(&["--json", "--timeout", "300ms", "wait", &id, "--for", &until]);
    let waited =
        eventually("it is answered", PATIENCE, || Some(wait()).filter(|told| told.code != 7)).expect(6);
    assert_eq!(waited.error()["code"], "timeout");
    pool.ctl(&["keys", &id, "x"]).expect(1);
    pool.tmux_text(&["send-keys", "-t", "=recorder:", "-X", "cancel"]);
    pool.ok(&["wait", &id, "--for", &until]);
    assert_eq!(recorded(&pool, 9), b"patience\r");
    let history = pool.lines(&["queue", "show", &id, &message]);
    let states: Vec<_> =
        history[0]["history"].as_array().unwrap().iter().map(|s| s["state"].clone()).collect();
    assert_eq!((&states[0], states.last()), (&"queued".into(), Some(&"done".into())), "{states:?}");
}

#[test]
fn messages_arrive_in_order_from_many_senders() {
    let pool = Pool::new();
    let id = recorder(&pool);
    let sent: Vec<(u64, String)> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|n| {
                let (pool, id) = (&pool, &id);
                scope.spawn(move || {
                    let send = |m: i32| {
                        let text = format!("sender {n} message {m}");
                        (pool.ok(&["send", id, &text]).parse().unwrap(), text)
                    };
                    (0..5).map(send).collect::<Vec<_>>()
                })
            })
            .collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    });
    let mut sent = sent;
    sent.sort();
    let expected: String = sent.into_iter().map(|(_, text)| text + "\r").collect();
    let arrived = recorded(&pool, expected.len());
    assert_eq!(String::from_utf8(arrived).unwrap(), expected);
}

#[test]
fn the_log_has_ten_megabytes_from_the_first_byte() {
    let pool = Pool::new();
    let data = pool.path("data");
    let script = format!(
        "stty -opost; head -c 7500000 /dev/urandom | base64 >'{0}'; cat '{0}'; echo the end",
        data.display()
    );
    let run = pool.ctl(&["run", "big", "--no-stream", "--", "sh", "-c", &script]).expect(0);
    drop(run);
    let expected = [fs::read(&data).unwrap(), b"the end\n".to_vec()].concat();
    assert!(expected.len() > 10_000_000);
    let logged = eventually("all of it is logged", PATIENCE, || {
        Some(pool.ctl(&["logs", "big", "--raw"]).expect(0).bytes).filter(|log| log.len() >= expected.len())
    });
    assert!(
        logged == expected,
        "{} of {} bytes are as they were written",
        same(&logged, &expected),
        expected.len()
    );
    let last = pool.ctl(&["logs", "big", "--lines", "1"]).expect(0);
    assert_eq!(last.text(), "the end");
}

fn same(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

#[test]
fn the_last_screen_is_shown_after_the_end() {
    let pool = Pool::new();
    pool.ctl(&["run", "brief", "--", "sh", "-c", "echo first; echo second; exit 3"]).expect(3);
    let screen = pool.ok(&["capture", "brief"]);
    assert_eq!(screen.lines().take(2).collect::<Vec<_>>(), ["first", "second"]);
}
