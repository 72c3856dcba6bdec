"""Which ring runs which tests of real clusters: the core of ``make test``, and what ``make test-nightly`` alone runs.

A name is a folder, a file, a test (with all its parameters) or a test with one of them. A test in neither table is run
by ``make test-all``, which is what the gate runs. What takes minutes or gigabytes by its nature, and proves what no
other test does, has the mark ``nightly`` where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

# What needs no root, Go, container engine or compiler: Dask, PyTorch, losses and codes of the toy frameworks, and
# launches on the stand-in for OCI.
CORE = (
    "clusters/test_connect.py",
    "clusters/test_dask.py::test_example_shows_each_workers_share_and_its_result",
    "clusters/test_dask.py::test_exit_code_arguments_and_traceback_come_through_dask",
    "clusters/test_dask.py::test_kept_cluster_is_encrypted_loopback_only_and_open_to_its_owner",
    "clusters/test_dask.py::test_killed_scheduler_is_main_lost_and_no_success",
    "clusters/test_gang.py::test_first_cause_is_the_clusters_code_and_named",
    "clusters/test_gang.py::test_gang_starts_again_together_until_restarts_are_used_up",
    "clusters/test_local_backend.py",
    "clusters/test_local_losses.py::test_killed_main_agent_ends_every_worker_with_76",
    "clusters/test_local_losses.py::test_killed_worker_agent_leaves_no_grandchild_and_is_named",
    "clusters/test_local_losses.py::test_second_ctrl_c_ends_a_cluster_that_does_not_listen",
    "clusters/test_local_losses.py::test_signal_to_a_running_launch_stops_the_cluster",
    "clusters/test_lost_launcher.py",
    "clusters/test_oci.py::test_cluster_is_found_and_ended_by_its_tags_alone",
    "clusters/test_oci.py::test_ctrl_c_ends_the_cluster_in_order",
    "clusters/test_oci.py::test_dry_run_is_what_is_sent[runs]",
    "clusters/test_oci.py::test_exit_code_comes_through_and_logs_and_outputs_stay[runs]",
    "clusters/test_oci_dry_run.py::test_the_script_runs_the_cluster_that_a_launch_runs[runs]",
    "clusters/test_one_node.py::test_the_example_and_a_scripts_code[pytorch]",
    "clusters/test_pytorch.py::test_example_trains_alike_on_one_process_and_on_three_nodes",
    "clusters/test_pytorch.py::test_exit_code_of_a_rank_is_the_clusters[0-7-MAIN]",
    "clusters/test_shapes.py::test_a_notebook_runs_on_the_cluster_and_its_outputs_are_kept",
)

_TESTS_TOOLS = "a test of the tests' own tools, which the tests of the product that use them prove too"
_CHECK = "unit/backends/oci/test_check_*.py, each finding by itself; clusters/test_oci_check.py, one walk of each area"
_FIRST = "the same test with its other parameters"
_LADDER = "unit/test_smoke_oci.py; what climbs the ladder in a tenancy is a tool, and not the product"

# By name: what proves the same in the gate.
NIGHTLY = {
    "clusters/self": _TESTS_TOOLS,
    "clusters/test_added_packages.py::test_the_oldest_python_can_have_them[tensorboard]": _FIRST,
    "clusters/test_added_packages.py::test_the_oldest_python_can_have_them[jupyter]": _FIRST,
    "clusters/test_browser.py::test_a_session_ends_at_its_idle_limit_and_never_while_a_cell_runs": (
        "clusters/test_sessions.py::test_a_notebook_computes_on_the_cluster_until_nobody_uses_it"
    ),
    "clusters/test_browser_oci.py": "clusters/test_oci_bastion.py; clusters/test_browser.py",
    "clusters/test_chaos.py::test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left[local-107]": _FIRST,
    "clusters/test_chaos.py::test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left[local-121]": _FIRST,
    "clusters/test_chaos.py::test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left[local-125]": _FIRST,
    "clusters/test_chaos.py::test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left[hosts-35]": _FIRST,
    "clusters/test_chaos.py::test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left[docker-4]": _FIRST,
    "clusters/test_dask.py::test_killed_main_agent_ends_dasks_workers_with_76": (
        "clusters/test_local_losses.py::test_killed_main_agent_ends_every_worker_with_76"
    ),
    "clusters/test_dask.py::test_ports_are_free_again_after_the_end": "every launch that ends with assert_nothing_left",
    "clusters/test_doc_framework.py": "clusters/test_sessions.py::test_a_kind_is_added_by_a_folder; the toy frameworks",
    "clusters/test_docker.py::test_an_engine_that_was_killed_and_came_back_is_cleared[alone]": _FIRST,
    "clusters/test_docker.py::test_containers_that_never_begin_end_the_launch[all]": _FIRST,
    "clusters/test_from_ads.py::test_adss_variables_alone_make_a_cluster[horovod]": _FIRST,
    "clusters/test_from_ads.py::test_adss_variables_alone_make_a_cluster[pytorch]": _FIRST,
    "clusters/test_from_ads.py::test_adss_variables_alone_make_a_cluster[tensorflow]": _FIRST,
    "clusters/test_horovod.py::test_code_of_the_rank_that_failed_is_the_clusters[0-MAIN-7]": _FIRST,
    "clusters/test_horovod.py::test_example_gives_the_same_result_on_three_nodes_as_on_one[pytorch]": (
        "the same with TensorFlow; clusters/test_from_ads.py::test_a_yaml_of_ads_becomes_a_cluster[horovod]"
    ),
    "clusters/test_horovod.py::test_rank_that_hangs_is_named_after_the_stall_timeout": (
        "clusters/test_gang.py::test_node_that_hangs_is_named"
    ),
    "clusters/test_hosts.py::test_dask_runs_on_all_hosts_each_with_its_own_code": (
        "clusters/test_hosts.py::test_dask_does_without_a_worker_whose_link_is_cut"
    ),
    "clusters/test_hosts.py::test_hosts_end_with_who_made_them": _TESTS_TOOLS,
    "clusters/test_hosts.py::test_hosts_reach_each_other_over_one_link_alone": _TESTS_TOOLS,
    "clusters/test_hosts.py::test_ranks_on_all_hosts_add_up_and_end_when_a_link_is_cut[horovod]": _FIRST,
    "clusters/test_hosts.py::test_ranks_on_all_hosts_add_up_and_end_when_a_link_is_cut[tensorflow]": _FIRST,
    "clusters/test_images.py::test_job_runs_pull_what_was_pushed_and_run_it[pytorch 1 -- --epochs 2-accuracy]": _FIRST,
    "clusters/test_images.py::test_job_runs_pull_what_was_pushed_and_run_it[ray 1 -- --epochs 2-workers 2]": _FIRST,
    "clusters/test_images.py::test_killing_the_engine_in_a_build_leaves_nothing_in_the_way": (
        "clusters/test_docker.py::test_an_engine_that_was_killed_and_came_back_is_cleared"
    ),
    "clusters/test_images.py::test_ray_computes_in_containers_of_what_was_pushed": (
        "clusters/test_images.py::test_job_runs_pull_what_was_pushed_and_run_it[dask 3-best parameters]; test_ray.py"
    ),
    "clusters/test_images.py::test_the_image_of_ray_is_as_small_as_the_readme_says": (
        "clusters/test_images.py::test_images_are_as_small_as_the_readme_says"
    ),
    "clusters/test_images.py::test_the_image_of_ray_names_its_ports": (
        "clusters/test_images.py::test_labels_tell_what_it_is"
    ),
    "clusters/test_images.py::test_scripts_of_others_run_in_containers[dask/futures.py-2-pi is about 3.1]": _FIRST,
    "clusters/test_local_losses.py::test_a_frozen_node_is_ended_when_its_cluster_is_over[WORKER_1-0]": _FIRST,
    "clusters/test_oci.py::test_after_the_end_logs_are_in_the_order_of_time[1]": _FIRST,
    "clusters/test_oci.py::test_other_frameworks_run_their_examples": (
        "clusters/test_from_ads.py::test_a_yaml_of_ads_becomes_a_cluster"
    ),
    "clusters/test_oci_check.py::test_a_compartment_that_is_not_there": _CHECK,
    "clusters/test_oci_check.py::test_a_public_subnet": _CHECK,
    "clusters/test_oci_check.py::test_a_service_gateway_is_a_way_out": _CHECK,
    "clusters/test_oci_check.py::test_a_service_that_does_not_answer_is_not_known": _CHECK,
    "clusters/test_oci_check.py::test_a_subnet_of_another_compartment": _CHECK,
    "clusters/test_oci_check.py::test_a_subnet_that_is_gone": _CHECK,
    "clusters/test_oci_check.py::test_a_wrong_namespace_and_a_bucket_that_is_nowhere": _CHECK,
    "clusters/test_oci_check.py::test_each_statement_that_is_missing_is_named[1]": _FIRST,
    "clusters/test_oci_check.py::test_gateways_that_block_and_rules_that_do_not_hold": _CHECK,
    "clusters/test_oci_check.py::test_groups_that_are_missing_or_of_something_else": _CHECK,
    "clusters/test_oci_check.py::test_logs_and_a_bastion_of_somewhere_else": _CHECK,
    "clusters/test_oci_check.py::test_rules_of_a_security_group_alone": _CHECK,
    "clusters/test_oci_check_room.py::test_a_limit_for_fewer_nodes_leaves_room_for_fewer_workers": _CHECK,
    "clusters/test_oci_check_room.py::test_a_limit_of_which_nothing_is_told_is_not_known_to_have_room": _CHECK,
    "clusters/test_oci_check_room.py::test_a_shape_that_no_limit_names_is_not_known_to_have_room": _CHECK,
    "clusters/test_oci_check_room.py::test_an_image_for_other_machines_is_built_anew": _CHECK,
    "clusters/test_oci_check_room.py::test_an_image_of_somewhere_else_is_named_as_it_must_be": _CHECK,
    "clusters/test_oci_check_room.py::test_an_image_that_somebody_else_has_pushed_over_is_named_by_its_digest": _CHECK,
    "clusters/test_oci_check_room.py::test_another_shape_is_named_that_has_hosts": _CHECK,
    "clusters/test_oci_check_room.py::test_hosts_for_some_of_the_nodes_are_no_promise": _CHECK,
    "clusters/test_oci_check_room.py::test_who_launches_sees_the_image_and_is_told_what_shows_the_rest": _CHECK,
    "clusters/test_oci_clock.py::test_a_run_that_needs_attention_is_shown_and_may_recover[False]": _FIRST,
    "clusters/test_oci_clock.py::test_lists_and_states_that_lag_decide_nothing_wrong[0]": _FIRST,
    "clusters/test_oci_clock.py::test_nodes_that_never_start_end_the_launch[a worker]": _FIRST,
    "clusters/test_oci_clock.py::test_nodes_that_never_start_end_the_launch[all]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[main is made]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[nothing has started]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[one has not started]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[states are told late]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[the Job is made]": _FIRST,
    "clusters/test_oci_clock.py::test_the_first_ctrl_c_ends_a_launch_in_any_phase[the code is sent]": _FIRST,
    "clusters/test_oci_dry_run.py::test_a_signal_while_runs_are_created_leaves_nothing[1]": _FIRST,
    "clusters/test_oci_dry_run.py::test_a_signal_while_runs_are_created_leaves_nothing[2]": _FIRST,
    "clusters/test_oci_dry_run.py::test_ctrl_c_while_it_runs_ends_it": (
        "clusters/test_oci_dry_run.py::test_a_signal_while_runs_are_created_leaves_nothing[15]"
    ),
    "clusters/test_oci_dry_run.py::test_the_script_sends_the_code_as_it_is_and_passes_its_code_on": (
        "clusters/test_oci_dry_run.py::test_a_main_that_is_lost_is_76_and_one_whose_script_was_killed_its_own"
    ),
    "clusters/test_oci_groups.py::test_a_cluster_runs_however_the_service_counts[anew in each group]": _FIRST,
    "clusters/test_oci_groups.py::test_a_cluster_runs_however_the_service_counts[from 1]": _FIRST,
    "clusters/test_oci_groups.py::test_a_cluster_runs_however_the_service_counts[missing, OCIDs of their own]": _FIRST,
    "clusters/test_oci_groups.py::test_a_cluster_runs_however_the_service_counts[the last group first]": _FIRST,
    "clusters/test_oci_groups.py::test_a_rank_is_taken_once_whatever_becomes_of_the_request[503]": _FIRST,
    "clusters/test_oci_groups.py::test_a_rank_is_taken_once_whatever_becomes_of_the_request[drop-before]": _FIRST,
    "clusters/test_oci_logging.py::test_ten_thousand_lines_come_each_once[another]": _FIRST,
    "clusters/test_oci_refusals.py::test_bucket_that_runs_lose_in_the_middle_ends_them": (
        "clusters/test_oci_storage_faults.py::test_a_node_without_storage_ends_after_timeout_and_not_later"
    ),
    "clusters/test_oci_storage_faults.py::test_a_launch_comes_to_its_end_where_a_third_of_all_requests_is_refused": (
        "clusters/test_oci_faults.py; clusters/test_oci_storage_faults.py, each fault by itself"
    ),
    "clusters/test_oci_storage_faults.py::test_clocks_may_differ_by_four_minutes[240 -240]": _FIRST,
    "clusters/test_oci_storage_faults.py::test_code_gets_to_the_nodes_whatever_fails_once[429]": _FIRST,
    "clusters/test_oci_storage_faults.py::test_code_gets_to_the_nodes_whatever_fails_once[drop-before]": _FIRST,
    "clusters/test_oci_storage_faults.py::test_files_that_could_not_be_deleted_are_deleted_by_the_next_stop"
    "[list_objects]": _FIRST,
    "clusters/test_oci_storage_rest.py::test_requests_at_rest[4]": _FIRST,
    "clusters/test_oci_storage_rest.py::test_requests_at_rest[48]": _FIRST,
    "clusters/test_one_node.py::test_main_computes_alone_and_the_cluster_grows[ray]": _FIRST,
    "clusters/test_one_node.py::test_the_example_and_a_scripts_code[horovod]": _FIRST,
    "clusters/test_one_node.py::test_the_example_and_a_scripts_code[ray]": _FIRST,
    "clusters/test_one_node.py::test_the_example_and_a_scripts_code[tensorflow]": _FIRST,
    "clusters/test_python.py::test_the_notebook_runs_in_containers": (
        "clusters/test_python.py::test_the_notebook_runs_on_this_machine; clusters/test_docker.py"
    ),
    "clusters/test_python.py::test_the_notebook_runs_on_oci": (
        "clusters/test_python.py::test_the_notebook_runs_on_this_machine; clusters/test_oci.py"
    ),
    "clusters/test_pytorch.py::test_hang_ends_at_the_frameworks_timeout_with_its_node_named": (
        "clusters/test_gang.py::test_node_that_hangs_is_named"
    ),
    "clusters/test_pytorch_end.py::test_a_thread_of_torch_that_is_late_at_the_end_aborts_no_rank[accelerate]": _FIRST,
    "clusters/test_ray.py::test_a_main_without_a_part_ends_the_cluster[driver]": _FIRST,
    "clusters/test_ray.py::test_a_main_without_a_part_ends_the_cluster[raylet]": _FIRST,
    "clusters/test_ray_neighbours.py::test_another_user_gets_metrics_and_a_page": (
        "clusters/test_ports.py::test_sockets_are_those_of_the_table[ray]"
    ),
    "clusters/test_ray_outside.py::test_a_notebook_on_main_computes_on_all_nodes": (
        "clusters/test_sessions.py; clusters/test_ray_outside.py::test_a_program_outside_takes_part_by_a_token_that_"
        "nothing_shows"
    ),
    "clusters/test_second_life.py::test_every_framework_resumes_from_its_checkpoint[horovod]": _FIRST,
    "clusters/test_second_life.py::test_every_framework_resumes_from_its_checkpoint[tensorflow]": _FIRST,
    "clusters/test_shapes.py::test_a_cell_that_fails_on_a_worker_ends_the_cluster_with_its_words[tensorflow]": _FIRST,
    "clusters/test_shapes.py::test_every_node_keeps_a_copy_of_its_notebook[tensorflow]": _FIRST,
    "clusters/test_smoke_oci.py::test_every_guess_is_resolved": _LADDER,
    "clusters/test_smoke_oci.py::test_five_guesses_that_are_wrong_are_those_that_it_reports": _LADDER,
    "clusters/test_smoke_oci.py::test_nothing_stays_of_one_that_is_ended_in_the_middle": _LADDER,
    "clusters/test_subnet.py::test_a_neighbour_runs_nothing_and_makes_no_success[horovod]": (
        "the same with Dask and PyTorch; clusters/test_ports.py; clusters/test_horovod.py, what ssh lets main do"
    ),
    "clusters/test_subnet.py::test_a_neighbour_runs_nothing_and_makes_no_success[ray]": (
        "clusters/test_ray_neighbours.py::test_no_call_is_answered_without_the_token"
    ),
    "clusters/test_subnet.py::test_a_neighbour_runs_nothing_and_makes_no_success[tensorflow]": (
        "the same with Dask and PyTorch; clusters/test_ports.py"
    ),
    "clusters/test_tensorflow.py::test_hang_of_one_node_ends_at_tensorflows_timeout_with_its_name": (
        "clusters/test_gang.py::test_node_that_hangs_is_named"
    ),
    "clusters/test_tensorflow.py::test_killed_task_starts_the_gang_again_from_its_backup": (
        "clusters/test_tensorflow.py::test_gang_goes_on_without_a_lost_node_and_takes_in_a_new_one"
    ),
    "kubernetes/self": _TESTS_TOOLS,
    "kubernetes/test_backend_faults.py::test_a_pod_is_evicted_and_lives_again[WORKER_1]": _FIRST,
    "kubernetes/test_ray.py::test_the_example_is_tuned_and_trained_by_pods": (
        "kubernetes/test_images.py::test_the_example_of_dask_is_computed_by_pods; clusters/test_ray.py"
    ),
}


def is_named(test: str, name: str) -> bool:
    """Return whether *name* is that of *test*, ``clusters/test_x.py::test_y[z]``, or of what it is a part of."""
    return test == name or test.startswith((f"{name}/", f"{name}::", f"{name}["))


def mark(items: Iterable[pytest.Item]) -> None:
    """Give tests the marks ``core`` and ``nightly`` that their names have in the tables."""
    for item in items:
        test = item.nodeid.removeprefix("tests/")
        if any(is_named(test, name) for name in CORE):
            item.add_marker(pytest.mark.core)
        if any(is_named(test, name) for name in NIGHTLY):
            item.add_marker(pytest.mark.nightly)
