//! The child's steps, in the order in which [`crate::child`] takes them.

pub(crate) mod descriptors;

pub(crate) mod cgroup;

pub(crate) mod namespaces;

pub(crate) mod loopback;

pub(crate) mod handover;

pub(crate) mod network;

pub(crate) mod identity;

pub(crate) mod views;

pub(crate) mod root;

pub(crate) mod entries;

pub(crate) mod devices;

pub(crate) mod proc;

pub(crate) mod nested;

pub(crate) mod memory;

pub(crate) mod work_dir;

pub(crate) mod limits;

pub(crate) mod keyring;

pub(crate) mod capabilities;

pub(crate) mod landlock;

pub(crate) mod exec;

pub(crate) mod seccomp;
