//! The client against a service made by hand, which says what a test wants: refusals, silence, nonsense. Against the real
//! one it is tried by the tests of the command.

mod archive;
mod degrading;
mod files;
mod opening;
mod run;
mod service;
mod stub;
