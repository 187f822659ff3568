//! Linux namespaces (skeleton).
