//! Ways out of a sandbox, and past the service, that worked somewhere once: each is tried for real, and has to fail.
//!
//! One file per attack. An attack runs inside a sandbox of the namespaces backend, behind the HTTP service; beside it a
//! harmless twin does what everybody may, so that nothing passes because nothing ran. Every attack is tried as the user who
//! runs the tests, and where that is root again as a user without any privilege. Those that concern what runs inside a box,
//! whatever made it, are tried on a container engine too, which root's tests have to have.
//!
//! What the host sees of a test's sandboxes is what is below its process, so each test needs one (`cargo nextest run`).
//!
//! - [`place`]: the service, what a caller says to it, and what a program inside did.
//! - [`ordinary`]: the same test, as an ordinary user.
//! - [`outside`]: what the host sees of a sandbox.
//! - [`rented`]: sandboxes of the backend itself, for what no service hands out.
//! - [`wire`]: HTTP as bytes.
//! - [`fast`]: many requests over one connection.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it cannot try here"
)]

mod fast;
mod ordinary;
mod outside;

mod place;
#[path = "../namespaces/rented.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the backend, which use more of it"
)]
mod rented;

#[path = "../api/support.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the API, which use more of it"
)]
mod wire;

/// Attacks in sandboxes that were made before anybody asked for them. Only root's service has those for sessions with stored
/// files.
macro_rules! escape_from_the_pool {
    ($($attack:ident::{$($case:ident),* $(,)?})*) => {
        mod pooled {
            $(mod $attack {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        if !crate::ordinary::is_root() {
                            println!("left out: only root has a pool with stored files");
                            return;
                        }
                        crate::place::FROM_POOL
                            .scope((), crate::$attack::$case())
                            .await;
                    }
                )*
            })*
        }
    };
}

/// Attacks on what a container engine makes.
macro_rules! escape_from_docker {
    ($($attack:ident::{$($case:ident),* $(,)?})*) => {
        mod docker {
            $(mod $attack {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        if !crate::ordinary::is_root() {
                            println!("left out: only root has a container engine for the tests");
                            return;
                        }
                        crate::place::ON_DOCKER
                            .scope((), crate::$attack::$case())
                            .await;
                    }
                )*
            })*
        }
    };
}

/// Each attack as whoever runs the tests, and without root.
macro_rules! escape {
    ($($attack:ident::{$($case:ident),* $(,)?})*) => {
        $(mod $attack;)*

        /// As the user who runs the tests.
        mod here {
            $(mod $attack {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        crate::$attack::$case().await;
                    }
                )*
            })*
        }

        /// Where the tests run as root, each of these starts itself again as a user without any privilege.
        mod without_root {
            $(mod $attack {
                $(
                    #[test]
                    fn $case() {
                        let name = concat!(
                            "without_root::", stringify!($attack), "::", stringify!($case)
                        );
                        crate::ordinary::as_ordinary_user(name, crate::$attack::$case);
                    }
                )*
            })*
        }
    };
}

/// Those about how runs are ended, also as a user without any privilege but a cgroup: runs then end by theirs.
macro_rules! escape_with_cgroups {
    ($($attack:ident::{$($case:ident),* $(,)?})*) => {
        mod without_root_with_cgroups {
            $(mod $attack {
                $(
                    #[test]
                    fn $case() {
                        let name = concat!(
                            "without_root_with_cgroups::", stringify!($attack), "::", stringify!($case)
                        );
                        let said = crate::ordinary::with_a_cgroup_of_its_own(name, crate::$attack::$case);
                        if let Some(said) = said {
                            assert!(said.contains("runs are ended by cgroup"), "{said}");
                        }
                    }
                )*
            })*
        }
    };
}

escape! {
    layers::{
        users_are_nobodys_else,
        capabilities_are_those_of_the_list_and_none_outside,
        no_file_lends_its_owners_rights,
        the_second_wall_stands,
        the_devices_are_the_usual_ones,
        proc_and_sys_are_its_own_and_what_is_the_machines_is_hidden,
        namespaces_are_its_own_and_no_more_are_made,
        a_run_has_a_session_of_its_own_and_no_terminal,
        the_keyring_of_whoever_started_the_service_is_left_behind,
        the_program_that_enters_is_sealed_and_holds_nothing_of_the_hosts,
    }
    foreign_keys::{none_is_read_linked_or_asked_for}
    swapped_paths::{no_walk_is_led_outside}
    planted_links::{
        no_route_follows_them_awake_or_asleep,
        the_service_changes_no_owner_and_no_mode_through_them,
    }
    entering_binary::{
        nobody_catches_it,
        a_script_that_names_it_as_its_interpreter_gains_nothing,
    }
    leaked_descriptors::{
        a_run_has_its_three_streams_and_nothing_else,
        no_path_through_a_descriptor_leads_out,
    }
    cgroup_release_agent::{none_is_mounted_written_or_left}
    control_sockets::{none_answers_inside}
    abstract_sockets::{
        none_of_the_hosts_or_of_a_neighbours_is_reached,
        the_hosts_network_is_refused_at_start,
    }
    guest_code_outside::{nothing_in_a_workspace_is_loaded_or_run_by_the_service}
    terminal_injection::{
        nothing_is_typed_for_somebody_else,
        sequences_come_back_as_text_and_nothing_else,
    }
    redirected_mounts::{
        a_root_full_of_links_leads_nowhere,
        a_kept_layer_full_of_links_leads_nowhere,
        settings_of_the_kernel_cannot_be_written,
    }
    order_of_setup::{it_is_used_behind_the_last_wall_only}
    programs_the_kernel_starts::{none_is_named_and_none_is_started}
    network_none::{there_is_loopback_and_no_way_out}
    another_sessions_token::{
        it_opens_nothing_but_its_own,
        nothing_inside_is_a_credential,
        no_answer_and_no_log_holds_a_token,
    }
    request_smuggling::{an_odd_request_gets_what_the_plain_one_gets}
    where_things_run::{every_way_to_run_something_runs_it_inside}
    remains_of_another::{nothing_of_one_is_found_by_the_next}
    neighbours::{
        one_cannot_see_signal_or_trace_the_other,
        what_is_left_in_a_workspace_lends_a_host_user_nothing,
    }
    callers_paths::{no_path_of_a_caller_moves_the_border}
    deep_and_wide_trees::{
        every_operation_on_them_ends_and_they_go,
        a_deep_tree_that_is_closed_to_its_owner_goes_too,
    }
    api_exhaustion::{
        ceilings_hold_against_many_at_once,
        what_is_too_long_or_never_ends_is_given_up,
        nothing_is_remembered_of_a_hundred_thousand_ids,
        whoever_only_holds_a_connection_costs_little,
    }
    dashboard::{nothing_of_a_guests_is_markup_anywhere}
    hostile_archives::{none_unpacks_to_anywhere_else}
    ordinary_programs::{what_is_usual_works_behind_every_wall}
    undying_trees::{
        none_outlives_its_deadline,
        none_outlives_a_stop,
        none_outlives_too_much_output,
        none_outlives_its_deadline_after_a_hang_up,
        none_outlives_its_session,
        what_a_finished_run_left_lives_until_the_session_sleeps,
        trees_of_hundreds_go_whole,
    }
    kernel_surface::{
        calls_that_lead_out_fail,
        sockets_without_a_use_are_not_made,
        unknown_calls_and_foreign_tables_do_nothing,
    }
}

// What one session could do to another, or find of it, and what shows that a wall is missing.
escape_from_the_pool! {
    layers::{
        users_are_nobodys_else,
        capabilities_are_those_of_the_list_and_none_outside,
        no_file_lends_its_owners_rights,
        the_second_wall_stands,
        the_devices_are_the_usual_ones,
        proc_and_sys_are_its_own_and_what_is_the_machines_is_hidden,
        namespaces_are_its_own_and_no_more_are_made,
        a_run_has_a_session_of_its_own_and_no_terminal,
        the_keyring_of_whoever_started_the_service_is_left_behind,
        the_program_that_enters_is_sealed_and_holds_nothing_of_the_hosts,
    }
    foreign_keys::{none_is_read_linked_or_asked_for}
    planted_links::{no_route_follows_them_awake_or_asleep}
    entering_binary::{nobody_catches_it}
    leaked_descriptors::{
        a_run_has_its_three_streams_and_nothing_else,
        no_path_through_a_descriptor_leads_out,
    }
    cgroup_release_agent::{none_is_mounted_written_or_left}
    abstract_sockets::{none_of_the_hosts_or_of_a_neighbours_is_reached}
    network_none::{there_is_loopback_and_no_way_out}
    another_sessions_token::{
        it_opens_nothing_but_its_own,
        nothing_inside_is_a_credential,
    }
    remains_of_another::{nothing_of_one_is_found_by_the_next}
    neighbours::{
        one_cannot_see_signal_or_trace_the_other,
        what_is_left_in_a_workspace_lends_a_host_user_nothing,
    }
    undying_trees::{none_outlives_a_stop}
    kernel_surface::{calls_that_lead_out_fail}
}

escape_with_cgroups! {
    undying_trees::{
        none_outlives_its_deadline,
        none_outlives_a_stop,
        none_outlives_too_much_output,
        none_outlives_its_deadline_after_a_hang_up,
        none_outlives_its_session,
        trees_of_hundreds_go_whole,
    }
}

// What is not here is about the namespaces backend's own make (its mounts, its entering program, its images, what the host
// sees below this process), needs programs that the image does not have, or expects the errors of the jail's own filter,
// where an engine's answer is another refusal.
escape_from_docker! {
    layers::{
        a_run_has_a_session_of_its_own_and_no_terminal,
        the_keyring_of_whoever_started_the_service_is_left_behind,
    }
    swapped_paths::{no_walk_is_led_outside}
    planted_links::{
        no_route_follows_them_awake_or_asleep,
        the_service_changes_no_owner_and_no_mode_through_them,
    }
    entering_binary::{
        nobody_catches_it,
        a_script_that_names_it_as_its_interpreter_gains_nothing,
    }
    leaked_descriptors::{
        a_run_has_its_three_streams_and_nothing_else,
        no_path_through_a_descriptor_leads_out,
    }
    control_sockets::{none_answers_inside}
    abstract_sockets::{none_of_the_hosts_or_of_a_neighbours_is_reached}
    guest_code_outside::{nothing_in_a_workspace_is_loaded_or_run_by_the_service}
    terminal_injection::{
        nothing_is_typed_for_somebody_else,
        sequences_come_back_as_text_and_nothing_else,
    }
    redirected_mounts::{settings_of_the_kernel_cannot_be_written}
    programs_the_kernel_starts::{none_is_named_and_none_is_started}
    network_none::{there_is_loopback_and_no_way_out}
    another_sessions_token::{
        it_opens_nothing_but_its_own,
        nothing_inside_is_a_credential,
    }
    remains_of_another::{nothing_of_one_is_found_by_the_next}
    callers_paths::{no_path_of_a_caller_moves_the_border}
    deep_and_wide_trees::{
        every_operation_on_them_ends_and_they_go,
        a_deep_tree_that_is_closed_to_its_owner_goes_too,
    }
    kernel_surface::{
        calls_that_lead_out_fail,
    }
    undying_trees::{
        none_outlives_its_deadline,
        none_outlives_a_stop,
        none_outlives_too_much_output,
        none_outlives_its_deadline_after_a_hang_up,
        none_outlives_its_session,
        trees_of_hundreds_go_whole,
    }
}
