//! The scripts with which shells complete `poolctl`.

use std::process::Command;

use protocol::Response;

use crate::fake::{Pool, Ran, ok};
use crate::samples::session;

crate::tests! { bash_completes_what_has_an_equals_sign, zsh_adds_no_blank_to_what_goes_on }

/// Calls the function of the script as bash does at a Tab: `$0` is poolctl, and the line, the part of its last word
/// that bash replaces, and all parts follow.
const BASH: &str = r#"
    poolctl=$0 COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 last=$2
    shift 2
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    poolctl() { "$poolctl" "$@"; }
    eval "$(poolctl completions bash)"
    _clap_complete_poolctl poolctl "$last"
    printf '%s\n' "${COMPREPLY[@]}"
"#;

fn bash_completes_what_has_an_equals_sign() {
    let pool = Pool::new(|_| {
        let mut view = session("web");
        view.session.labels.insert("team".into(), "core".into());
        ok(Response::Sessions(vec![view]))
    });
    let poolctl = pool.poolctl([""; 0]);
    for (line, parts, last, offered) in [
        ("poolctl kill --label=", "poolctl kill --label =", "", "team=core\n"),
        ("poolctl kill --label=team=c", "poolctl kill --label = team = c", "c", "core\n"),
        ("poolctl kill --label team=c", "poolctl kill --label team = c", "c", "core\n"),
        ("poolctl kill --label=a=b --gr", "poolctl kill --label = a = b --gr", "--gr", "--grace\n"),
        ("poolctl new --env A= --ag", "poolctl new --env A = --ag", "--ag", "--agent\n"),
        ("poolctl kill w", "poolctl kill w", "w", "web\n"),
    ] {
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(BASH).arg(poolctl.get_program()).args([line, last]).args(parts.split(' '));
        bash.env_clear().envs(poolctl.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let Ok(output) = bash.output() else { return println!("skipped: no bash") };
        assert_eq!(Ran::new(&output).success(), offered, "{line}");
    }
}

/// Calls the function of the script, with a `_describe` that prints what it is to offer, and the option for no blank.
const ZSH: &str = r#"
    poolctl=$0
    poolctl() { "$poolctl" "$@" }
    compdef() { }
    _describe() { print -r -- ${(P)3} $4 }
    eval "$(poolctl completions zsh)"
    words=("$@") CURRENT=$#
    _clap_dynamic_completer_poolctl
"#;

fn zsh_adds_no_blank_to_what_goes_on() {
    let pool = Pool::empty();
    let poolctl = pool.poolctl([""; 0]);
    for (word, offered) in [("e", "error exit\n"), ("mess", "message\\: -S\n")] {
        let mut zsh = Command::new("zsh");
        zsh.args(["-fc", ZSH]).arg(poolctl.get_program()).args(["poolctl", "wait", "web", "--for", word]);
        zsh.env_clear().envs(poolctl.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let Ok(output) = zsh.output() else { return println!("skipped: no zsh") };
        let ran = Ran::new(&output);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), (offered, ""), "{word}");
    }
}
