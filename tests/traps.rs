//! Maps the known traps of earlier session managers to the tests that guard them. `tests/README.md` states each row.

use crate::tidy::{functions, legend};

/// Each row of the inventory with its tests. A trap that is in two rows has the same test in both.
const TRAPS: &[(&str, &[&str])] = &[
    ("T-01", &["t13_external_kill_is_detected", "law_1_the_states_events_give_the_state"]),
    (
        "T-02",
        &[
            "t02_tmux_is_read_at_the_configured_period_and_the_time_of_it_is_known",
            "t13_sync_happens_by_itself",
        ],
    ),
    ("T-03", &["t03_an_operation_is_verified_by_its_own_result"]),
    ("T-04", &["t24_a_stopped_server_removes_nothing", "t01_unknown_and_silence_remove_nothing"]),
    ("T-05", &["t05_an_adopted_session_is_as_old_and_as_active_as_its_tmux_session"]),
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
    (
        "T-12",
        &[
            "t12_each_sync_is_logged_with_what_it_saw_and_how_long_it_took",
            "t24_a_stopped_server_removes_nothing",
            "t13_concurrent_operations_do_not_deadlock",
        ],
    ),
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
    (
        "T-23",
        &[
            "t23_a_soft_reset_gives_a_fresh_context_without_a_new_process_and_is_typed_once",
            "t23_a_reset_is_a_new_process_with_a_fresh_conversation_and_an_empty_log",
            "t23_ephemeral_sessions_go_first_at_the_cap_also_where_they_cannot_resume",
            "t23_an_idle_ephemeral_session_is_the_first_to_go_at_the_cap_and_is_removed",
        ],
    ),
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
    (
        "P-04",
        &[
            "p04_a_damaged_database_is_loud_and_kept",
            "p04_why_poold_does_not_start_is_told_wherever_it_is_missed",
        ],
    ),
    (
        "P-05",
        &[
            "p05_a_new_session_of_an_old_name_inherits_nothing",
            "p05_a_stranger_with_the_old_name_is_not_taken_for_it",
            "t03_a_recycled_id_in_a_new_server_is_never_the_old_pane",
        ],
    ),
    ("P-06", &["p10_fallback_without_metadata"]),
    (
        "P-07",
        &[
            "p07_what_a_program_writes_and_what_is_typed_into_it_is_no_commit",
            "p10_created_at_and_counts_survive_a_restart",
        ],
    ),
    ("P-08", &["p08_every_change_is_on_disk_when_it_is_answered", "p10_cleanup_on_delete"]),
    ("P-09", &["what_is_over_is_removed_when_its_time_is_up", "what_goes_when_its_time_is_up"]),
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
    ("P-20", &["p10_created_at_and_counts_survive_a_restart"]),
    ("P-21", &["rest_and_status_follow_life", "c12_what_is_idle_for_longer_than_it_may_is_parked"]),
    (
        "P-23",
        &["g08_a_full_pool_refuses_and_a_limit_on_waiting_is_kept", "reuse_gets_or_creates_by_workspace"],
    ),
    ("P-24", &["h34_by_itself_only_what_is_configured_is_adopted"]),
    ("P-25", &["rm_refuses_what_is_worked_on"]),
    (
        "P-27",
        &[
            "q03_every_message_ends_and_attempts_are_counted_with_the_claim",
            "q03_a_message_is_worked_once_and_its_result_is_kept",
        ],
    ),
    ("P-28", &["a_kind_that_fails_is_held_back_and_the_sender_is_told"]),
    (
        "P-29",
        &["reports_are_read_in_their_order_when_poold_is_back", "the_oldest_minor_events_are_removed_first"],
    ),
    ("G-02", &["new_takes_a_prompt_a_size_and_an_environment"]),
    ("G-09", &["a_crash_at_any_step_of_new_leaves_one_session"]),
    ("G-15", &["keys_arrive_by_name"]),
    ("G-17", &["a_backup_is_one_moment_with_all_that_was_acknowledged_before"]),
    ("G-21", &["w35_documents_have_every_key_of_the_contract"]),
    ("G-23", &["a_match_may_be_cut_anywhere_and_coloured"]),
    ("G-24", &["g04_each_session_has_a_directory_of_its_own_whatever_its_agent"]),
    ("C-03", &["p10_cleanup_on_delete", "w12_events_carry_the_facts"]),
    ("C-16", &["a_message_that_is_shown_has_its_history"]),
    ("W-01", &["w01_ids_and_names_are_numbered_apart"]),
    ("W-02", &["w02_an_id_is_never_used_twice", "w02_an_id_is_never_used_twice_not_even_after_a_crash"]),
    ("W-03", &["w02_an_id_is_never_used_twice"]),
    ("W-04", &["w04_an_id_is_its_prefix_and_plain_digits", "t14_only_the_exact_name_is_meant"]),
    (
        "W-05",
        &[
            "w05_names_are_checked_and_not_bent",
            "w01_ids_and_names_are_numbered_apart",
            "w05_numeric_names_go_on_above_those_of_other_sessions_in_tmux",
            "w05_numeric_names_go_on_above_those_that_tmux_lists",
            "w05_an_external_rename_is_followed_where_it_is_a_name",
        ],
    ),
    (
        "W-06",
        &[
            "w06_a_session_whose_server_died_is_kept_as_lost",
            "w06_what_has_ended_or_is_lost_keeps_the_colours_of_its_directory",
            "rest_and_status_follow_life",
        ],
    ),
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
    (
        "W-10",
        &[
            "w10_the_last_activity_survives_a_restart",
            "w10_an_adopted_program_that_was_silent_is_idle_at_once",
        ],
    ),
    (
        "W-11",
        &[
            "h34_what_is_meant_is_one_pane_by_its_id_or_exact_name",
            "w15_creating_while_discovering_makes_each_once",
            "w11_several_clients_that_adopt_one_session_get_the_same_id",
        ],
    ),
    ("W-12", &["w12_events_carry_the_facts", "w12_w33_a_creation_says_how_it_came_about"]),
    (
        "W-13",
        &[
            "w13_a_tag_of_an_ended_incarnation_is_removed_and_never_adopted",
            "w13_what_disappeared_while_poold_was_down_is_told_with_its_reason",
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
    (
        "W-16",
        &[
            "a_crash_at_any_step_of_new_leaves_one_session",
            "w16_a_new_session_is_synced_before_its_job_is_written_and_before_tmux_is_told",
            "w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is",
        ],
    ),
    (
        "W-17",
        &[
            "w17_hostile_commands_arrive_word_for_word",
            "w17_quotes_dollars_and_lines_are_typed_as_they_are",
            "w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is",
        ],
    ),
    (
        "W-18",
        &[
            "w18_a_message_that_cannot_be_typed_waits_and_is_typed_once",
            "an_enter_that_the_agent_swallows_is_pressed_again_and_the_text_is_not_typed_again",
            "w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is",
        ],
    ),
    (
        "W-19",
        &[
            "w19_a_removed_session_is_not_found_again",
            "w19_without_a_reaper_kill_and_rm_say_that_nobody_verified_it",
        ],
    ),
    (
        "W-20",
        &[
            "w20_a_session_that_tmux_keeps_is_not_adopted_again",
            "h34_by_itself_only_what_is_configured_is_adopted",
            "w20_what_is_left_of_a_session_is_its_users",
            "w20_a_pipe_of_its_user_is_replaced_only_when_asked",
        ],
    ),
    ("W-21", &["w21_a_program_that_does_not_react_is_not_forgotten"]),
    (
        "W-22",
        &[
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
            "w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys",
            "w22_the_list_is_answered_while_tmux_is_not",
            "t08_a_stopped_server_keeps_nobody_waiting_who_needs_no_answer_of_it",
        ],
    ),
    (
        "W-23",
        &[
            "w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys",
            "w23_without_a_watcher_what_is_shown_was_looked_at",
            "t01_a_stopped_server_is_named_with_its_cure_and_loses_nothing",
            "t8_a_stopped_server_is_a_time_out_and_the_client_is_reaped",
        ],
    ),
    (
        "W-24",
        &[
            "w24_w27_w37_what_is_not_said_is_carried_forward",
            "w24_what_is_idle_sleeps_only_where_a_thought_says_so",
            "w24_what_was_published_of_tokens_comes_first_where_it_is_known",
            "w24_counts_count_only_above_zero",
            "w24_what_was_said_of_a_conversation_ends_with_it",
        ],
    ),
    (
        "W-25",
        &[
            "w25_the_colours_of_a_repository_are_its_own_or_made_of_its_path_and_nothing_is_written",
            "w25_colours_that_are_no_file_keep_nobody_waiting",
            "w25_a_pipe_in_place_of_the_colours_keeps_no_list_waiting",
            "w25_w26_w38_one_answer_has_the_colours_the_output_and_the_thought_of_every_session",
        ],
    ),
    (
        "W-26",
        &[
            "w26_the_replay_is_the_last_500_characters_whatever_they_are_made_of",
            "w26_files_that_do_not_answer_keep_no_list_waiting",
            "w25_w26_w38_one_answer_has_the_colours_the_output_and_the_thought_of_every_session",
            "w21_a_program_that_does_not_react_is_not_forgotten",
        ],
    ),
    (
        "W-27",
        &[
            "w24_w27_w37_what_is_not_said_is_carried_forward",
            "w27_w30_within_a_stream_only_what_is_newer_counts_and_a_new_stream_always_does",
            "w27_when_it_was_thought_is_the_publishers_word",
            "w27_the_fingerprint_is_overwritten",
        ],
    ),
    ("W-28", &["w28_what_was_acknowledged_is_there_after_a_kill"]),
    (
        "W-29",
        &[
            "w29_who_was_answered_before_a_stop_has_its_thought_kept_and_who_waits_for_thoughts_misses_none",
            "q07_every_claim_that_waits_gets_what_comes",
        ],
    ),
    (
        "W-30",
        &[
            "w30_where_streams_stand_is_said_and_kept_while_tmux_does_not_answer",
            "w27_w30_within_a_stream_only_what_is_newer_counts_and_a_new_stream_always_does",
            "w30_what_is_old_in_its_stream_is_old_whatever_came_between",
        ],
    ),
    ("W-31", &["p08_every_change_is_on_disk_when_it_is_answered", "t13_sync_happens_by_itself"]),
    ("W-32", &["w32_the_death_of_a_pane_process_is_told_with_its_signal", "w32_who_detaches_ends_nothing"]),
    (
        "W-33",
        &[
            "w33_a_follower_gets_the_state_then_the_mark_then_changes",
            "w12_w33_a_creation_says_how_it_came_about",
        ],
    ),
    ("W-34", &["w33_a_follower_gets_the_state_then_the_mark_then_changes"]),
    ("W-35", &["w35_documents_have_every_key_of_the_contract"]),
    (
        "W-36",
        &[
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
            "w36_all_that_is_said_is_kept",
            "w36_the_place_in_a_stream_says_what_is_newer",
            "w36_no_stream_is_locked_out_and_each_field_is_the_last_that_was_said",
            "w36_thoughts_go_with_their_session_and_no_namesake_has_them",
        ],
    ),
    (
        "W-37",
        &[
            "w24_w27_w37_what_is_not_said_is_carried_forward",
            "w37_where_nothing_was_thought_it_holds_and_carries_forward",
        ],
    ),
    (
        "W-38",
        &[
            "w38_how_a_pane_is_observed_is_told_with_the_last_trouble",
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
            "every_key_of_a_session_and_a_message_is_there_whatever_it_does",
        ],
    ),
    (
        "W-39",
        &[
            "w39_which_tmux_runs_is_configured_for_each_pool_and_no_environment_decides_it",
            "w39_no_code_changes_the_environment_of_its_own_process",
            "the_fake_tells_the_story_of_the_real_one",
        ],
    ),
    ("C-04", &["c04_an_observation_tells_of_the_prompt_that_it_belongs_to"]),
    (
        "C-05",
        &[
            "c05_an_agent_takes_up_the_conversation_that_it_had_when_it_was_parked",
            "c05_a_conversation_that_was_never_begun_is_not_taken_up",
            "c05_a_conversation_is_that_of_the_incarnation_that_has_it",
            "c05_codex_chooses_its_conversation_and_tells",
        ],
    ),
    (
        "C-06",
        &[
            "c06_an_agent_begins_with_nothing_and_what_is_kept_of_it_does_not_grow_with_what_is_said",
            "a_late_report_never_turns_the_activity_back",
        ],
    ),
    (
        "C-07",
        &[
            "c07_what_a_hook_reports_is_on_disk_before_the_hook_ends",
            "c07_the_same_use_of_a_tool_is_one_message",
            "c07_a_full_queue_keeps_no_agent_from_its_work",
        ],
    ),
    ("C-08", &["c08_summaries_that_fail_again_and_again_are_held_back_and_not_lost"]),
    (
        "C-09",
        &[
            "c09_what_is_sent_while_a_session_is_removed_is_refused_or_gone_with_it_and_nothing_comes_after",
            "w19_without_a_reaper_kill_and_rm_say_that_nobody_verified_it",
        ],
    ),
    (
        "3.3",
        &[
            "a_bell_ends_when_somebody_comes_and_never_holds_a_wait_for_idle",
            "the_plan_and_the_files_of_an_agent_are_shown_and_a_new_conversation_has_none",
            "t14_only_the_exact_name_is_meant",
            "a_shell_that_marks_its_prompts_confirms_and_its_terminal_tells_what_it_does",
            "any_other_program_is_busy_while_it_writes_and_idle_when_it_is_silent",
            "a_turn_that_fails_ends_its_prompt_and_is_an_error",
            "the_skill_of_a_prompt_is_found",
            "titles_and_the_alternate_screen_are_told",
            "a_viewer_begins_with_the_screen_and_misses_nothing_after_it",
            "what_is_not_kept_any_more_is_said",
            "a_reader_that_stops_is_only_behind_and_holds_nobody_up",
            "w36_no_stream_is_locked_out_and_each_field_is_the_last_that_was_said",
            "w25_the_colours_of_a_repository_are_its_own_or_made_of_its_path_and_nothing_is_written",
        ],
    ),
    (
        "(d)",
        &[
            "rest_and_status_follow_life",
            "what_does_not_work_rests_as_deep_as_is_known",
            "what_a_program_says_of_itself_is_what_it_does_and_who_waits_for_it_hears_it",
            "t01_silence_is_unknown_and_absence_is_absent",
            "w20_a_session_that_tmux_keeps_is_not_adopted_again",
        ],
    ),
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

/// Each test case of those systems, by its original name, with the tests of the same behaviour here.
const CASES: &[(&str, &[&str])] = &[
    ("session sync after external deletion", &["t13_external_kill_is_detected"]),
    (
        "concurrent operations",
        &[
            "t13_concurrent_operations_do_not_deadlock",
            "t07_what_twenty_send_at_once_arrives_whole_and_in_each_senders_order",
        ],
    ),
    (
        "auto-sync on operations",
        &["t13_sync_happens_by_itself", "t03_an_operation_is_verified_by_its_own_result"],
    ),
    ("new session discovery", &["t13_externally_created_session_is_foreign_and_untouched"]),
    ("metadata persistence", &["p10_created_at_and_counts_survive_a_restart"]),
    ("metadata recovery", &["p10_created_at_and_counts_survive_a_restart"]),
    ("missing metadata", &["p10_fallback_without_metadata"]),
    ("metadata cleanup", &["p10_cleanup_on_delete"]),
    ("next_session_counter_parses_expected_format", &["w04_an_id_is_its_prefix_and_plain_digits"]),
    ("next_session_counter_rejects_unexpected_format", &["w04_an_id_is_its_prefix_and_plain_digits"]),
    (
        "query_tmux_active_pane_session_ids_uses_list_panes_and_supports_numeric_names",
        &["w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys"],
    ),
    (
        "ready_process_exit_ids_reaps_immediately_when_grace_is_zero",
        &[
            "a_process_seen_to_end_is_the_end_of_its_session",
            "t02_absence_with_the_processs_end_is_proof_at_once",
        ],
    ),
    ("ready_process_exit_ids_drops_recovered_sessions", &["a_pane_that_comes_back_is_live_again"]),
    ("spawn_tool_roundtrip_sets_correct_display_name", &["agents_are_a_table_of_the_configuration"]),
    (
        "normalize_initial_request_trims_blank_values",
        &["w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is"],
    ),
    (
        "build_initial_request_input_appends_carriage_return",
        &["w16_w17_w18_what_a_new_session_is_told_arrives_once_and_as_it_is"],
    ),
    (
        "build_spawn_tool_command_inlines_codex_initial_request",
        &["w16_what_each_agent_is_told_at_its_start_is_its_first_prompt"],
    ),
    (
        "build_spawn_tool_command_inlines_claude_initial_request",
        &["w16_what_each_agent_is_told_at_its_start_is_its_first_prompt"],
    ),
    (
        "build_spawn_tool_command_escapes_single_quotes_for_shell",
        &[
            "w16_what_each_agent_is_told_at_its_start_is_its_first_prompt",
            "w17_hostile_commands_arrive_word_for_word",
        ],
    ),
    (
        "init_persistence_bumps_id_counter_from_thought_snapshot_ids",
        &["w02_an_id_is_never_used_twice", "w36_thoughts_go_with_their_session_and_no_namesake_has_them"],
    ),
    (
        "init_persistence_keeps_persisted_session_id_progression",
        &["w02_an_id_is_never_used_twice_not_even_after_a_crash"],
    ),
    (
        "persist_thought_preserves_supplied_updated_at",
        &[
            "w27_when_it_was_thought_is_the_publishers_word",
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
        ],
    ),
    (
        "persist_thought_retains_objective_shift_timestamp_until_next_shift",
        &[
            "w27_the_last_change_of_the_objective_stays_known",
            "w24_w27_w37_what_is_not_said_is_carried_forward",
        ],
    ),
    (
        "persist_registry_uses_actor_state_without_querying_tmux",
        &["w30_where_streams_stand_is_said_and_kept_while_tmux_does_not_answer"],
    ),
    (
        "persist_registry_merges_direct_thought_snapshot_into_registry",
        &[
            "w24_w27_w37_what_is_not_said_is_carried_forward",
            "w28_what_was_acknowledged_is_there_after_a_kill",
        ],
    ),
    (
        "thought_snapshot_for_summary_matches_active_tmux_pane",
        &["w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys"],
    ),
    (
        "thought_snapshot_for_summary_does_not_fall_back_to_latest_tmux_pane_without_active_binding",
        &["w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys"],
    ),
    (
        "list_sessions_merges_thought_snapshots_and_skips_exited_summaries",
        &[
            "w24_what_is_idle_sleeps_only_where_a_thought_says_so",
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
        ],
    ),
    (
        "startup_idle_session_only_sleeps_after_waiting_thought_snapshot",
        &[
            "w24_what_is_idle_sleeps_only_where_a_thought_says_so",
            "what_does_not_work_rests_as_deep_as_is_known",
        ],
    ),
    (
        "list_sessions_merges_thought_snapshot_from_active_tmux_pane_batch_lookup",
        &["w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys"],
    ),
    (
        "list_sessions_keeps_summary_when_active_tmux_pane_batch_lookup_fails",
        &["w22_the_list_is_answered_while_tmux_is_not"],
    ),
    ("list_sessions_skips_dropped_summary_replies", &["w21_a_program_that_does_not_react_is_not_forgotten"]),
    ("list_sessions_skips_closed_command_channels", &["w21_a_program_that_does_not_react_is_not_forgotten"]),
    (
        "collect_session_snapshots_uses_summary_snapshot_and_thought_cache",
        &[
            "w26_the_replay_is_the_last_500_characters_whatever_they_are_made_of",
            "w22_w36_w38_all_fields_of_a_thought_are_in_get_show_and_ls",
        ],
    ),
    (
        "collect_session_snapshots_merges_thought_snapshot_from_active_tmux_pane_batch_lookup",
        &["w22_w23_a_thought_for_a_pane_is_its_sessions_and_for_no_other_pane_anybodys"],
    ),
    (
        "collect_exited_session_ids_reports_only_exited_sessions",
        &["w32_the_death_of_a_pane_process_is_told_with_its_signal"],
    ),
    ("reap_exited_sessions_removes_ready_actor_handles", &["t13_external_kill_is_detected"]),
    (
        "create_session_uses_fake_tmux_and_bootstraps_codex_spawn",
        &[
            "codex_is_started_with_hooks_that_are_trusted_and_without_a_daemon_of_its_own",
            "w16_what_each_agent_is_told_at_its_start_is_its_first_prompt",
        ],
    ),
    (
        "discover_tmux_sessions_with_reason_uses_fake_tmux_listings",
        &[
            "w13_only_what_the_configuration_names_is_adopted_and_never_what_was_given_back",
            "h34_by_itself_only_what_is_configured_is_adopted",
        ],
    ),
    (
        "plan_tmux_discovery_skips_tracked_and_dedupes_names",
        &["w09_what_the_pool_has_is_not_found_again_whatever_it_is_called"],
    ),
    (
        "plan_tmux_discovery_reuses_stale_id_and_bumps_numeric_counter",
        &["a_pane_that_comes_back_is_live_again", "g01_w05_numeric_names_go_on_from_the_highest"],
    ),
    ("plan_tmux_discovery_skips_empty_names", &["any_name_of_tmux_gives_a_name"]),
    (
        "plan_tmux_discovery_all_tracked_returns_empty_candidates",
        &["w09_what_the_pool_has_is_not_found_again_whatever_it_is_called"],
    ),
    (
        "plan_tmux_discovery_empty_list_returns_empty",
        &["w09_what_the_pool_has_is_not_found_again_whatever_it_is_called"],
    ),
];

#[test]
fn every_trap_has_its_test() {
    let (known, legend) = (functions(), legend());
    let rows: Vec<&str> = TRAPS.iter().map(|(row, _)| *row).collect();
    let wanted = (1..=14).chain(20..=28).map(|n| format!("T-{n:02}"));
    let wanted = wanted.chain((1..=12).map(|n| format!("P-{n:02}")));
    let rest = "P-20 P-21 P-23 P-24 P-25 P-27 P-28 P-29 G-02 G-09 G-15 G-17 G-21 G-23 G-24 C-03 C-16";
    let wanted = wanted.chain(rest.split(' ').map(str::to_owned));
    let wanted = wanted.chain((1..=39).map(|n| format!("W-{n:02}")));
    let wanted = wanted.chain((4..=9).map(|n| format!("C-{n:02}")));
    let wanted = wanted.chain(["3.3", "(d)", "G-13", "H-3.4"].map(str::to_owned));
    assert_eq!(rows, wanted.collect::<Vec<_>>());
    for row in rows {
        assert!(legend.contains(row), "tests/README.md does not state {row}");
    }
    for (row, tests) in TRAPS.iter().chain(CASES) {
        assert!(!tests.is_empty(), "{row}");
        for test in *tests {
            assert!(known.contains(*test), "{row} names {test}, which does not exist");
        }
    }
}
