//! Prints the OpenAPI document; `cargo xtask openapi` keeps it in `docs/openapi.json`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let document = sandboxd_server::api::openapi_document();
    std::io::stdout().write_all(document.as_bytes())
}
