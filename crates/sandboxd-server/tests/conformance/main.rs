//! The same cases on every backend that exists, through sessions, the link and the guest.
//!
//! A backend is one name in the list below; a case is never bent for one. Where a backend has no processes (the
//! in-memory double), the cases about processes say so and end. As root nothing is left out; an ordinary user has the
//! double and the namespaces backend without privileges.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, also in what the cases share"
)]

mod cases;
mod place;

/// Each case on each backend, as one test of its own.
macro_rules! conformance {
    ($($room:ident::{$($case:ident),* $(,)?})*) => {
        mod in_memory {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::cases::$room::$case(crate::place::Kind::InMemory).await;
                }
            )*)*
        }

        /// As the user who runs the tests; root has user ids and cgroups of its own to give.
        mod namespaces {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::cases::$room::$case(crate::place::Kind::Namespaces).await;
                }
            )*)*
        }

        /// On the container engine that root's tests find or start.
        mod docker {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if crate::place::has_engine() {
                        crate::cases::$room::$case(crate::place::Kind::Docker).await;
                    }
                }
            )*)*
        }

        /// Where the tests run as root, each of these starts itself again as a user without any privilege.
        mod namespaces_without_root {
            $($(
                #[test]
                fn $case() {
                    let name = concat!("namespaces_without_root::", stringify!($case));
                    crate::place::as_ordinary_user(name, || {
                        crate::cases::$room::$case(crate::place::Kind::Namespaces)
                    });
                }
            )*)*
        }
    };
}

conformance! {
    runs::{
        a_program_runs_and_its_output_comes_back,
        exit_codes_are_the_programs_own,
        streams_are_kept_apart,
        stdin_is_empty,
        the_environment_is_the_specs_and_the_callers,
        the_work_directory_is_where_programs_start,
        a_deadline_ends_the_whole_tree_and_keeps_what_was_printed,
        a_stop_ends_the_whole_tree,
        output_without_end_is_ended,
        output_is_bytes,
        what_the_kernel_would_refuse_is_named,
        a_background_child_does_not_hold_the_answer_back,
        many_sessions_run_at_once,
        exec_merges_the_streams,
    }
    files::{
        what_is_written_is_read_from_both_sides,
            a_large_file_is_read_while_it_comes,
            a_large_file_that_changes_while_it_is_read_is_cut_or_broken_off,
        a_large_file_goes_both_ways,
        the_native_rule_is_one_awake_and_asleep,
        what_is_removed_is_the_thing_itself,
        files_written_while_asleep_belong_to_the_sandbox,
        the_archive_reads_what_is_stored,
        any_path_is_reached_in_era_a,
    }
    lives::{
        sleep_keeps_files,
        eviction_keeps_files,
        a_dead_sandbox_is_healed_or_lost,
        limits_are_reported_or_refused,
        memory_over_the_ceiling_ends_the_program_and_not_the_session,
        usage_is_sampled,
        what_is_stored_is_told,
        a_closed_session_leaves_nothing,
        a_shutdown_leaves_nothing,
        sessions_do_not_see_each_other,
        a_session_from_the_pool_is_as_any_other,
        nothing_is_reached_on_a_network,
    }
}
