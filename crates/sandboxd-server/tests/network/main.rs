//! What a sandbox with a network reaches, and what it must not: each attack is tried for real, and has to fail.
//!
//! One file per attack; beside each attack a harmless twin does what a sandbox may, so that nothing passes because nothing
//! ran. No test needs the Internet, or touches this machine's network: each starts itself again in a network namespace,
//! which is the host of that test, with another one behind it, which is its Internet. What is there in them goes with
//! the test.
//!
//! Each case runs as root, again with containers of an engine (`cargo xtask engine` starts one), and again as a user without privilege, whose way out is `pasta` (and for some `slirp4netns`).
//!
//! - [`world`]: the host and the Internet of a test, and who runs it.
//! - [`home`]: backends, sandboxes in them, and programs that try what they reach.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it cannot try here"
)]

mod home;
mod world;

#[path = "../namespaces/rented.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the backend, which use more of it"
)]
mod rented;

/// Each attack as root, in containers, and without root.
macro_rules! attacks {
    ($($attack:ident::{$($case:ident),* $(,)?})*) => {
        $(mod $attack;)*

        /// By rules on the host.
        mod as_root {
            $(mod $attack {
                $(
                    #[test]
                    fn $case() {
                        let name = concat!(
                            "as_root::", stringify!($attack), "::", stringify!($case)
                        );
                        crate::world::as_root(name, crate::$attack::$case);
                    }
                )*
            })*
        }

        /// By the same rules, in containers of an engine.
        mod in_containers {
            $(mod $attack {
                $(
                    #[test]
                    fn $case() {
                        let name = concat!(
                            "in_containers::", stringify!($attack), "::", stringify!($case)
                        );
                        crate::world::with_containers(name, crate::$attack::$case);
                    }
                )*
            })*
        }

        /// By `pasta`.
        mod without_root {
            $(mod $attack {
                $(
                    #[test]
                    fn $case() {
                        let name = concat!(
                            "without_root::", stringify!($attack), "::", stringify!($case)
                        );
                        crate::world::without_root(name, &[], crate::$attack::$case);
                    }
                )*
            })*
        }
    };
}

attacks! {
    outbound::{
        the_internet_is_reached_and_names_are_found,
        what_is_in_force_is_said,
        beside_it_a_sandbox_without_a_network_has_none,
    }
    metadata::{
        no_cloud_or_private_network_is_reached,
        no_spelling_redirect_or_answer_leads_there,
    }
    own_addresses::{
        none_of_the_hosts_is_reached_whatever_listens,
        one_that_came_later_is_not_reached_either,
    }
    neighbours::{no_sandbox_reaches_another, nobody_outside_reaches_a_sandbox}
    ipv6::{there_is_none_but_on_loopback}
    exceptions::{
        what_is_allowed_is_reached_and_nothing_beside_it,
        what_is_denied_is_not_reached,
    }
    connections::{one_sandbox_cannot_hold_them_all}
    parked::{each_has_an_address_of_its_own_and_reaches_no_other}
    lost_parts::{a_new_launcher_goes_on_with_the_same_router}
}

mod containers;
mod on_the_host;
mod other_uplinks;
mod refused;
