//! Hostile names, labels, directories and commands are refused, or stored and shown exactly; never executed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Output, Pool};

/// Texts with a meaning to tmux, a shell, a file system, a terminal or a parser.
#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "", " ", "two words", "quo'te", "quo\"te", "back\\slash", "new\nline", "carriage\rreturn", "tab\tbed",
    "semi;colon", "ends;", "\\;", "#{pid}", "#S", "##", "-leading", "--", "--help",
    "-t", "$1", "$HOME", "=x", "={last}", "%0", "$0", "@0", ":1",
    "a:b", "a.b", "../up", "/abs", "..", ".", "~", "*", "?",
    "[a]", "{a,b}", "!!", "&& true", "| cat", "> file", "é", "漢字", "🦀",
    "\u{202e}rtl", "\u{feff}bom", "\x1b[2J", "\x07", "\x7f", "UPPER", "sess_1", "sess_99", "null",
    "%s%n",
];

/// [`TEXTS`], and some that would create a canary file, are too long, or are not UTF-8.
fn texts(pool: &Pool) -> Vec<Vec<u8>> {
    let canary = pool.path("canary").display().to_string();
    let mut texts: Vec<Vec<u8>> = TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    texts.extend([
        format!("#(touch {canary})").into_bytes(),
        format!("`touch {canary}`").into_bytes(),
        format!("$(touch {canary})").into_bytes(),
        format!("x; touch {canary}; :").into_bytes(),
        format!("' ; run-shell 'touch {canary}' ; '").into_bytes(),
        "n".repeat(1000).into_bytes(),
        b"bad\xff\xfeutf8".to_vec(),
        b"\xc3".to_vec(),
    ]);
    texts
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// JSON form of bytes.
fn shown(bytes: &[u8]) -> Value {
    let hex = || json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()});
    std::str::from_utf8(bytes).map_or_else(|_| hex(), Value::from)
}

fn assert_nothing_ran(pool: &Pool) {
    assert!(!pool.path("canary").exists(), "something was executed");
}

/// True if `text` is a valid session name.
fn is_name(text: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(b);
    let id = text.strip_prefix(b"sess_").is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit));
    (1..=64).contains(&text.len()) && text.iter().all(allowed) && !b"_-".contains(&text[0]) && !id
}

#[test]
fn hostile_names_are_refused() {
    let pool = Pool::new();
    let cases = texts(&pool);
    let hostile: Vec<_> = cases.iter().filter(|text| !is_name(text)).collect();
    assert!(hostile.len() >= 40);
    for text in hostile {
        let workspace = [b"--workspace=", text.as_slice()].concat();
        for word in [os(&workspace), os(text)] {
            if word == OsStr::new("--help") || word == OsStr::new("--") {
                // Every program gives these two words their own meaning.
                continue;
            }
            let output = Output::of(pool.poolctl().arg("new").arg(&word).args(["--", "sleep", "1000"]), b"");
            assert_eq!(output.code, 2, "{word:?}: {output:?}");
        }
    }
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
    assert_nothing_ran(&pool);
}

#[test]
fn w05_names_are_checked_and_not_bent() {
    let pool = Pool::new();
    for name in ["+7", "7.0", "a.b", "a:b", "Web", "_x", "-x", "sess_7", &"a".repeat(65), "", "   "] {
        let new = json!({"new": {"name": name, "workspace": null, "agent": null, "command": ["sleep", "1000"],
            "cwd": null, "env": [], "caller_env": [], "labels": {}, "size": null, "reuse": false}});
        let answer = pool.ctl_in(&["rpc"], new.to_string().as_bytes()).expect(0).json();
        assert_eq!(answer["error"]["exit"], 2, "{name:?}: {answer}");
    }
    let longest = "a".repeat(64);
    let id = pool.ok(&["new", &longest, "--", "sleep", "1000"]);
    assert_eq!(pool.tmux_sessions(), [longest.as_str()]);
    pool.ctl(&["rename", &id, "bad.name"]).expect(2);
    pool.ctl(&["rename", &id, "sess_12"]).expect(2);
    assert_eq!(pool.show(&id)["name"], longest.as_str());
}

#[test]
fn hostile_labels_are_refused_or_shown_exactly() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "sleep", "1000"]);
    for text in texts(&pool) {
        let mut value = OsString::from("key=");
        value.push(os(&text));
        let output = Output::of(pool.poolctl().args(["--json", "label", &id]).arg(&value), b"");
        match output.code {
            0 => assert_eq!(output.json()["labels"]["key"], shown(&text)),
            code => assert_eq!((code, std::str::from_utf8(&text).is_ok()), (2, false), "{output:?}"),
        }
        let mut key = os(&text);
        key.push("=value");
        let output = Output::of(
            pool.poolctl().args(["--json", "label", &id, "--remove=none"]).arg("--").arg(&key),
            b"",
        );
        match output.code {
            0 => assert_eq!(output.json()["labels"][str::from_utf8(&text).unwrap()], "value"),
            code => assert_eq!(code, 2, "{output:?}"),
        }
    }
    pool.restart_poold();
    let plain = pool.ok(&["show", &id]);
    assert!(!plain.contains('\x1b'), "no control sequence reaches a terminal by a label");
    assert_nothing_ran(&pool);
}

#[test]
fn hostile_directories_are_used_as_they_are() {
    let pool = Pool::with("[pool]\nmax_sessions = 100\n");
    let run = |name: &str, dir: &Path| {
        let mut command = pool.poolctl();
        command.args(["run", name, "--no-stream", "--cwd"]).arg(dir).args(["--", "sh", "-c", "pwd >here"]);
        Output::of(&mut command, b"")
    };
    let is_usable = |text: &Vec<u8>| {
        !text.is_empty() && !text.contains(&b'/') && text.len() < 255 && text != b"." && text != b".."
    };
    let (usable, other): (Vec<_>, Vec<_>) = texts(&pool).into_iter().partition(is_usable);
    assert!(usable.len() >= 40, "{}", usable.len());
    for (n, within) in usable.chunks(2).enumerate() {
        // One directory is within the other, so that the path of one session has both names.
        let parts = within.iter().map(|text| OsStr::from_bytes(text));
        let dir: PathBuf =
            [pool.path("work").join(format!("d{n}"))].into_iter().chain(parts.map(PathBuf::from)).collect();
        fs::create_dir_all(&dir).unwrap();
        let name = format!("s{n}");
        let output = run(&name, &dir);
        assert_eq!(output.code, 0, "{dir:?}: {output:?}");
        let here = fs::read(dir.join("here")).unwrap();
        assert_eq!(here, [dir.as_os_str().as_bytes(), b"\n"].concat());
        assert_eq!(pool.show(&name)["cwd"], shown(dir.as_os_str().as_bytes()));
    }
    for (n, text) in other.iter().enumerate() {
        let dir = pool.path("work").join(format!("missing{n}")).join(OsStr::from_bytes(text));
        let output = run(&format!("t{n}"), &dir);
        assert_eq!(output.code, 125, "{dir:?}: {output:?}");
        assert!(output.stderr.contains("is not a directory"), "{output:?}");
    }
    pool.ctl(&["new", "none", "--cwd", "/surely/not/here", "--", "true"]).expect(2);
    assert_nothing_ran(&pool);
}

#[test]
fn w17_hostile_commands_arrive_word_for_word() {
    let pool = Pool::new();
    let words = texts(&pool);
    let out = pool.path("argv");
    let mut command = pool.poolctl();
    command.args([
        "run",
        "all",
        "--no-stream",
        "--",
        "sh",
        "-c",
        r#"out=$1; shift; printf '%s\0' "$@" >"$out""#,
        "sh",
    ]);
    command.arg(&out).args(words.iter().map(|word| os(word)));
    drop(Output::of(&mut command, b"").expect(0));
    let expected: Vec<u8> = words.iter().flat_map(|word| [word.as_slice(), b"\0"].concat()).collect();
    assert!(fs::read(&out).unwrap() == expected, "the words arrive as they were given");
    let stored = pool.show("all")["command"].as_array().unwrap()[5..].to_vec();
    assert_eq!(stored, words.iter().map(|word| shown(word)).collect::<Vec<_>>());
    let human = Output::of(pool.poolctl().args(["show", "all"]), b"").expect(0);
    assert!(!human.stdout.contains('\x1b') && !human.stdout.contains('\x07'), "{human:?}");
    // Each word is used as the program, and no program has such a name. Of the words that could run nothing, every
    // third is tried.
    let is_tried = |(n, word): &(usize, &Vec<u8>)| {
        let acts = word.windows(5).any(|part| part == b"touch") || std::str::from_utf8(word).is_err();
        !word.contains(&b'/') && (n % 3 == 0 || acts)
    };
    for (n, text) in words.iter().enumerate().filter(is_tried) {
        let output = Output::of(pool.poolctl().args(["new", &format!("p{n}"), "--"]).arg(os(text)), b"");
        assert!([1, 2].contains(&output.code), "{text:?}: {output:?}");
    }
    assert_nothing_ran(&pool);
}
