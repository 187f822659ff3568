//! The Rust client against the service itself, with the in-memory backend.

mod behaviour;
mod examples;
mod support;
