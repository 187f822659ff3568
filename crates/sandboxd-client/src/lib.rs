//! A client of the sandboxd HTTP API.
//!
//! - [`Service`]: where the service is and the token for it; health, policy, and the list of sessions.
//! - [`Sandbox`]: a sandbox that opens by itself when it is first used. What goes wrong is a typed error.
//! - [`DegradingSandbox`]: the same for tools that hand whatever comes to a model: nothing raises, and what failed is a
//!   value that says so.
//! - [`WorkspaceArchive`]: stored workspaces, read without a sandbox.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use sandboxd_client::{Command, Service};
//!
//! let service = Service::new("http://localhost:8080", "the service token")?;
//! let sandbox = service.sandbox().runtime("python").build()?; // nothing is opened yet
//! let output = sandbox.run(&Command::shell("python -c 'print(6 * 7)'")).await?; // now it is
//! assert_eq!(output.stdout, "42\n");
//! sandbox.purge().await?; // ends the session and deletes its files
//! # Ok(())
//! # }
//! ```
//!
//! # Tokens
//!
//! A [`Service`] holds the service's token, which opens everything. An open sandbox goes on with the token of its own
//! session, which reaches that session only. Neither is ever shown by `Debug`.
//!
//! # TLS
//!
//! By itself the client speaks plain HTTP, as the service does. For a service behind a proxy that speaks TLS, hand in a
//! connector of your choice with [`ServiceBuilder::connector`].
//!
//! # Time
//!
//! Every request has a deadline. It follows what the service may take: a run's own timeout or the service's ceiling,
//! whichever is less, and ten seconds. So a request is not given up while the service still works on it.

mod address;
mod archive;
mod builder;
mod degrading;
mod error;
mod files;
mod files_inside;
mod http;
mod limits;
mod opening;
mod run;
mod sandbox;
mod service;
mod shell;

pub use address::{AddressError, Token};
pub use archive::{ArchiveError, TreeBounds, WorkspaceArchive};
pub use builder::{NameError, SandboxBuilder};
pub use degrading::{DegradingSandbox, Grep};
pub use error::{Refusal, RequestError};
pub use files::FileError;
pub use opening::OpenError;
pub use run::{Command, Output, RunError, RunId};
pub use sandbox::Sandbox;
/// The types of the HTTP API.
pub use sandboxd_api as api;
pub use sandboxd_api::run::Limit;
pub use service::{Service, ServiceBuilder};
pub use shell::{Shell, ShellError};
