//! A pane's log writer: its arguments, and its replacement.

use std::fs;

use protocol::{PaneId, Tag};
use tmux::{Answer, LogOptions, PaneRef};

use crate::support::{Rig, executable, until};

/// Log writer that records its arguments, then appends to the log.
const WRITER: &str = "#!/bin/sh\ncase $1 in exec) . \"$2\" ;; log) shift; d=$1; shift; \
                      n=$(cat \"$d/told\" 2>/dev/null | wc -l); echo \"$*\" >>\"$d/told\"; exec cat >>\"$d/log$n\" ;; esac\n";

#[tokio::test]
async fn another_log_writer_goes_on_where_one_was_lost() {
    let rig = Rig::new();
    executable(&rig.path("init"), WRITER);
    let log = LogOptions { max_size: 5000, keep: 2, compress: false, ..LogOptions::new(rig.dir.path()) };
    let create = rig.job("one", "stty -echo; echo begun; exec cat");
    let create = tmux::Create { log: log.clone(), ..create };
    let pane = rig.device.create(&create).await.unwrap().pane;
    let has = |file: &str, text: &str| fs::read_to_string(rig.path(file)).is_ok_and(|all| all.contains(text));
    until("the first log", || has("log0", "begun")).await;
    let told = format!("--tag {} --max-size 5000 --keep 2", pane.tag);
    let init = rig.path("init");
    let compressed = LogOptions { compress: true, ..log };
    assert_eq!(rig.device.reopen_log(pane, &compressed, &init).await.unwrap(), Answer::Done);
    until("the second writer", || {
        fs::read_to_string(rig.path("told"))
            .is_ok_and(|all| all == format!("{told}\n{told} --compress --resumed\n"))
    })
    .await;
    rig.raw(&["send-keys", "-t", &pane.pane.to_string(), "more", "Enter"]);
    until("the second log", || has("log1", "more")).await;
    assert!(!has("log0", "more"));

    let reopen = async |pane| rig.device.reopen_log(pane, &compressed, &init).await.unwrap();
    assert_eq!(reopen(PaneRef { pane: PaneId(99), ..pane }).await, Answer::Gone);
    assert_eq!(reopen(PaneRef { tag: Tag([1; 16]), ..pane }).await, Answer::NotOurs);
    rig.raw(&["send-keys", "-t", &pane.pane.to_string(), "C-d"]);
    rig.dead(pane).await;
    assert_eq!(reopen(pane).await, Answer::Dead);
    assert_eq!(fs::read_to_string(rig.path("told")).unwrap().lines().count(), 2);
}
