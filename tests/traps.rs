//! Which test stands guard before which known trap of earlier systems of this kind.

use crate::tidy::functions;

/// A row of the inventory of traps, and its tests. The same trap in two rows has the same test.
const TRAPS: &[(&str, &[&str])] = &[
    ("T-01", &["t13_external_kill_is_detected", "law_1_the_states_events_give_the_state"]),
    ("T-02", &["t13_sync_happens_by_itself"]),
    ("T-03", &["t03_an_operation_is_verified_by_its_own_result"]),
    ("T-04", &["t24_a_stopped_server_removes_nothing", "t01_unknown_and_silence_remove_nothing"]),
    ("T-05", &["p10_created_at_and_counts_survive_a_restart"]),
    ("T-06", &["t08_kill_is_idempotent_and_a_miss_is_told"]),
    ("T-07", &["t07_a_repeat_is_never_typed_twice"]),
    ("T-08", &["t08_kill_is_idempotent_and_a_miss_is_told", "t13_concurrent_operations_do_not_deadlock"]),
    ("T-09", &["t09_no_server_is_an_answer_and_no_failure", "w07_a_server_that_never_ran_counts_as_none"]),
    (
        "T-10",
        &[
            "t13_externally_created_session_is_foreign_and_untouched",
            "t07_foreign_sessions_are_never_changed",
        ],
    ),
    ("T-11", &["law_4_one_holder_in_order_with_growing_tokens"]),
    ("T-12", &["t24_a_stopped_server_removes_nothing", "t13_concurrent_operations_do_not_deadlock"]),
    (
        "T-13",
        &[
            "t13_external_kill_is_detected",
            "t13_concurrent_operations_do_not_deadlock",
            "t13_sync_happens_by_itself",
            "t13_externally_created_session_is_foreign_and_untouched",
            "w13_an_external_kill_is_told_without_polling",
        ],
    ),
    ("T-14", &["t14_only_the_exact_name_is_meant"]),
    ("T-20", &["reuse_gets_or_creates_by_workspace"]),
    ("T-21", &["t21_the_cap_holds_under_many_at_once"]),
    ("T-22", &["t22_a_prompt_of_several_lines_stays_one"]),
    ("T-23", &["t21_the_cap_holds_under_many_at_once"]),
    (
        "T-24",
        &[
            "t24_a_stopped_server_removes_nothing",
            "t01_a_stopped_server_is_named_with_its_cure_and_loses_nothing",
        ],
    ),
    ("T-25", &["p10_created_at_and_counts_survive_a_restart", "p10_fallback_without_metadata"]),
    ("T-26", &["t24_a_stopped_server_removes_nothing", "p03_every_way_down_is_honest"]),
    ("T-27", &["t24_a_stopped_server_removes_nothing", "the_table_of_exit_codes"]),
    ("T-28", &["t28_stopping_the_daemons_ends_no_session"]),
    ("P-01", &["p10_created_at_and_counts_survive_a_restart"]),
    ("P-02", &["w05_names_are_checked_and_not_bent"]),
    ("P-03", &["p03_an_end_under_way_is_finished_after_a_restart"]),
    ("P-04", &["p04_a_damaged_database_is_loud_and_kept"]),
    (
        "P-05",
        &[
            "p05_a_new_session_of_an_old_name_inherits_nothing",
            "p05_a_stranger_with_the_old_name_is_not_taken_for_it",
            "t03_a_recycled_id_in_a_new_server_is_never_the_old_pane",
        ],
    ),
    ("P-06", &["p10_fallback_without_metadata"]),
    ("P-07", &["p10_created_at_and_counts_survive_a_restart"]),
    ("P-08", &["p08_every_change_is_on_disk_when_it_is_answered", "p10_cleanup_on_delete"]),
    ("P-09", &["run_streams_and_ends_like_its_program"]),
    (
        "P-10",
        &[
            "p10_created_at_and_counts_survive_a_restart",
            "p10_fallback_without_metadata",
            "p10_cleanup_on_delete",
        ],
    ),
    ("P-11", &["p10_created_at_and_counts_survive_a_restart"]),
    ("P-12", &["d1_d3_a_power_cut_loses_no_acknowledged_commit"]),
    ("W-01", &["w01_ids_and_names_are_numbered_apart"]),
    ("W-02", &["w02_an_id_is_never_used_twice", "w02_an_id_is_never_used_twice_not_even_after_a_crash"]),
    ("W-03", &["w02_an_id_is_never_used_twice"]),
    ("W-04", &["w05_names_are_checked_and_not_bent", "t14_only_the_exact_name_is_meant"]),
    (
        "W-05",
        &[
            "w05_names_are_checked_and_not_bent",
            "w01_ids_and_names_are_numbered_apart",
            "w05_an_external_rename_is_followed_where_it_is_a_name",
        ],
    ),
    ("W-06", &["w06_a_session_whose_server_died_is_kept_as_lost", "rest_follows_life_and_quiet"]),
    (
        "W-07",
        &[
            "w07_a_server_that_never_ran_counts_as_none",
            "t24_a_stopped_server_removes_nothing",
            "t01_a_socket_that_may_not_be_opened_is_forbidden_and_proves_nothing",
        ],
    ),
    ("W-08", &["w08_a_foreign_name_is_shown_as_it_is"]),
    (
        "W-09",
        &[
            "p05_a_stranger_with_the_old_name_is_not_taken_for_it",
            "t03_a_replaced_server_with_sessions_named_alike_takes_nothing_over",
        ],
    ),
    ("W-10", &["w10_the_last_activity_survives_a_restart"]),
    ("W-11", &["w15_creating_while_discovering_makes_each_once"]),
    ("W-12", &["w12_events_carry_the_facts", "w12_foreign_sessions_come_and_go_in_the_journal"]),
    (
        "W-13",
        &[
            "w13_a_tag_of_an_ended_incarnation_is_removed_and_never_adopted",
            "w13_an_external_kill_is_told_without_polling",
        ],
    ),
    (
        "W-14",
        &[
            "t24_a_stopped_server_removes_nothing",
            "w14_a_second_watcher_waits_and_one_that_takes_over_is_the_one",
        ],
    ),
    ("W-15", &["w15_creating_while_discovering_makes_each_once"]),
    ("W-16", &["w16_the_intent_is_on_disk_before_anything_runs"]),
    ("W-17", &["w17_hostile_commands_arrive_word_for_word"]),
    ("W-18", &["w18_a_message_that_cannot_be_typed_waits_and_is_typed_once"]),
    ("W-19", &["w19_a_removed_session_is_not_found_again"]),
    (
        "W-20",
        &[
            "w20_a_session_that_tmux_keeps_is_not_adopted_again",
            "h34_by_itself_only_what_is_configured_is_adopted",
        ],
    ),
    ("W-21", &["w21_a_program_that_does_not_react_is_not_forgotten"]),
    (
        "W-22",
        &[
            "w22_the_hidden_session_is_nowhere_to_be_seen",
            "t08_a_stopped_server_keeps_nobody_waiting_who_needs_no_answer_of_it",
        ],
    ),
    (
        "W-23",
        &[
            "w23_without_a_watcher_what_is_shown_was_looked_at",
            "t01_a_stopped_server_is_named_with_its_cure_and_loses_nothing",
        ],
    ),
    ("W-24", &["w24_without_a_watcher_a_subscriber_is_told_how_it_stands"]),
    ("W-32", &["w32_the_death_of_a_pane_process_is_told_with_its_signal", "w32_who_detaches_ends_nothing"]),
    ("W-33", &["w33_a_follower_gets_the_state_then_the_mark_then_changes"]),
    ("W-34", &["w33_a_follower_gets_the_state_then_the_mark_then_changes"]),
    ("W-35", &["w35_documents_have_every_key_of_the_contract"]),
    ("G-13", &["g13_the_pane_of_the_pool_decides_and_no_other"]),
    (
        "H-3.4",
        &[
            "h34_an_adopted_session_is_one_like_any_other",
            "h34_what_is_meant_is_one_pane_by_its_id_or_exact_name",
            "h34_a_crash_at_any_step_of_adopt_leaves_one_live_session",
        ],
    ),
];

#[test]
fn every_trap_has_its_test() {
    let known = functions();
    let rows: Vec<&str> = TRAPS.iter().map(|(row, _)| *row).collect();
    let wanted = (1..=14).chain(20..=28).map(|n| format!("T-{n:02}"));
    let wanted = wanted.chain((1..=12).map(|n| format!("P-{n:02}")));
    let wanted = wanted.chain((1..=24).chain(32..=35).map(|n| format!("W-{n:02}")));
    let wanted = wanted.chain(["G-13", "H-3.4"].map(str::to_owned));
    assert_eq!(rows, wanted.collect::<Vec<_>>());
    for (row, tests) in TRAPS {
        assert!(!tests.is_empty(), "{row}");
        for test in *tests {
            assert!(known.contains(*test), "{row} names {test}, which is not there");
        }
    }
}
