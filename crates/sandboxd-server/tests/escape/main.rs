//! Ways out of a sandbox, and past the service, that worked somewhere once: each is tried for real, and has to fail.
//!
//! One file per attack. An attack runs inside a sandbox of the namespaces backend, behind the HTTP service; beside it a
//! harmless twin does what everybody may, so that nothing passes because nothing ran. Every attack is tried as the user who
//! runs the tests, and where that is root again as a user without any privilege.
//!
//! - [`place`]: the service, what a caller says to it, and what a program inside did.
//! - [`ordinary`]: the same test, as an ordinary user.
//! - [`outside`]: what the host sees of a sandbox.
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

#[path = "../api/support.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the API, which use more of it"
)]
mod wire;

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
    kernel_surface::{
        calls_that_lead_out_fail,
        sockets_without_a_use_are_not_made,
        unknown_calls_and_foreign_tables_do_nothing,
    }
}
