//! The scripts with which shells complete `poolctl`.

use std::process::Command;

use protocol::Response;

use crate::fake::{Pool, Ran, ok};
use crate::samples::session;

crate::tests! { bash_completes_what_has_an_equals_sign }

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
