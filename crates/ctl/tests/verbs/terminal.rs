//! Commands that draw on a terminal.

use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::{Lifecycle, Reason, Response};

use crate::fake::{Pool, Ran, ok, shown};
use crate::lifecycle::script;
use crate::samples::{session, status};

crate::tests! {
    a_command_in_the_background_leaves_the_terminal_alone, a_line_without_progress_is_not_erased,
    a_terminal_that_takes_no_control_sequences_gets_none,
}

/// A pool that ends a session after the time at which a line of progress appears.
fn ends_late() -> Pool {
    Pool::new(|_| {
        std::thread::sleep(Duration::from_millis(1500));
        let mut view = session("web");
        (view.session.lifecycle, view.session.reason) = (Lifecycle::Stopped, Some(Reason::Killed));
        shown(view)
    })
}

/// Runs a shell with job control on a terminal of its own, in whose line `"$0" "$@"` is this command of `poolctl`;
/// `None` if `script` is not installed.
fn shell(pool: &Pool, line: &str, args: &str) -> Option<Ran> {
    let poolctl = pool.poolctl(args.split(' '));
    let mut shell = Command::new("sh");
    shell.args(["-mc", line]).arg(poolctl.get_program()).args(poolctl.get_args());
    shell.envs(poolctl.get_envs().filter_map(|(key, value)| Some((key, value?))));
    match script(&shell).stdin(Stdio::null()).output() {
        Ok(output) => Some(Ran::new(&output)),
        Err(_) => {
            println!("skipped: no `script`");
            None
        }
    }
}

fn a_command_in_the_background_leaves_the_terminal_alone() {
    let pool = ends_late();
    let Some(ran) = shell(&pool, r#""$0" "$@" & wait $!"#, "kill web") else { return };
    assert_eq!((ran.code, ran.out.contains("web  stopped(killed)")), (0, true), "{ran:?}");
    assert!(!ran.out.contains("waiting for") && !ran.out.contains("\x1b[K"), "{ran:?}");
}

fn a_line_without_progress_is_not_erased() {
    let pool = Pool::new(|_| shown(session("web")));
    let Some(ran) = shell(&pool, r#"printf 'id: '; "$0" "$@""#, "new web") else { return };
    assert_eq!((ran.code, ran.out.as_str()), (0, "id: sess_1\r\n"), "{ran:?}");
}

fn a_terminal_that_takes_no_control_sequences_gets_none() {
    let pool = Pool::new(|_| ok(Response::Status(Box::new(status()))));
    let Some(ran) = shell(&pool, r#""$0" "$@""#, "status") else { return };
    assert!(ran.out.contains("\x1b["), "{ran:?}");
    let dumb =
        [(ends_late(), r#"TERM=dumb "$0" "$@""#, "kill web"), (pool, r#"unset TERM; "$0" "$@""#, "status")];
    for (pool, line, args) in dumb {
        let ran = shell(&pool, line, args).unwrap();
        assert!(ran.code == 0 && !ran.out.contains('\x1b'), "{args}: {ran:?}");
    }
}
