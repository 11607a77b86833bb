//! The clocks of the operating system, in a time namespace.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use world::clock::{Clock, SystemClock};

/// A sleep of the machine that the namespace of the test begins with, in seconds.
const ASLEEP: u64 = 10_000_000;
/// Marks a process within that namespace.
const ROLE: &str = "TEST_AFTER_A_SLEEP";

/// In a namespace whose clock of the boot is ahead, as after a suspend. The process is made anew there.
#[test]
fn l03_time_asleep_is_not_time_awake() {
    if std::env::var_os(ROLE).is_some() {
        return after_a_sleep();
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", &ASLEEP.to_string()]);
        command
    };
    let may = unshare().arg("true").output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("skipped: no clocks of its own can be had: {may:?}\n");
        return drop(std::io::stderr().write_all(why.as_bytes()));
    }
    let mut inside = unshare();
    inside.arg(std::env::current_exe().unwrap());
    inside.args(["--exact", "l03_time_asleep_is_not_time_awake"]).env(ROLE, "1");
    let output = inside.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn after_a_sleep() {
    // Read first: the clock of the boot has gone on by then.
    let awake = SystemClock.awake();
    let since_boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    let asleep = since_boot.saturating_sub(awake);
    assert!(asleep >= Duration::from_secs(ASLEEP), "{awake:?} awake of {since_boot:?}");
}
