//! HTTP in, HTTP out (skeleton).
