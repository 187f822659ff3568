//! A client of the sandboxd HTTP API: sandboxes that open by themselves when they are first used, and the archive that
//! reads stored workspaces.
