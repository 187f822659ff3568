//! System calls without the C library, for code that shares the guest's memory and must not touch its `errno`.

pub(crate) mod sys;
