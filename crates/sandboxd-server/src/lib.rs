//! The sandboxd daemon as a library: it owns the sandboxes and rents them out over HTTP.
//!
//! Rooms, in the order in which a request walks them:
//!
//! - [`config`]: the only reader of file, environment and flags.
//! - [`limits`]: every number, with its unit in its name.
//! - [`id`]: identifiers, parsed and never assembled.
//! - [`clock`]: time, so that tests can move it.
//! - [`budget`]: memory that requests share.
//! - [`api`]: HTTP in, HTTP out; the only room that knows axum and JSON.
//! - `pdf`: the text of a PDF.
//! - [`auth`]: who calls.
//! - [`sessions`]: who rents what until when.
//! - [`workspaces`]: stored files on the host.
//! - [`runtimes`]: what the operator allows, and images.
//! - [`egress`]: what a sandbox may reach on the network.
//! - [`backends`]: what a sandbox is made of.
//! - [`store`]: the state directory.
//! - [`server`]: the parts put together, from start to shutdown.
//! - [`telemetry`]: what is logged and counted, and how.

pub mod api;
pub mod auth;
pub mod backends;
pub mod budget;
pub mod clock;
pub mod config;
pub mod egress;
pub mod id;
pub mod limits;
mod pdf;
pub mod runtimes;
pub mod server;
pub mod sessions;
pub mod store;
pub mod telemetry;
pub mod workspaces;
