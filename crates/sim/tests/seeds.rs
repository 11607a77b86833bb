//! Runs of the simulator: each seed twice, which has to give the same run.

use std::process::Command;

/// Runs by default. An unoptimised build takes about 0.4 s for each; `scripts/sim` is seven times as fast.
const SEEDS: &str = "100";

#[test]
fn d1_q6_l4_g08_no_seed_breaks_a_promise_and_each_gives_the_same_run_again() {
    let seeds = std::env::var("POOL_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut sim = Command::new(env!("CARGO_BIN_EXE_sim"));
    sim.args(["--seeds", &seeds, "--jobs", &jobs, "--twice"]);
    let output = sim.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_run_is_repeated_with_some_of_its_parts_alone() {
    let sim = |only: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_sim"))
            .args(["--seed", "7", "--trace", "--twice", "--only", only])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains("  send ")).count()
    };
    let parts: Vec<String> = (0..4).map(|n| format!("client0:{n}")).collect();
    let (none, some) = (sim(""), sim(&parts.join(",")));
    assert!(none < some && some <= none + 2 * 4, "at most four sends more, each twice: {none} {some}");
}
