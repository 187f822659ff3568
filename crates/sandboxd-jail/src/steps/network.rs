//! A sandbox that reaches something does so by one interface, whose other end is in the router.

use crate::netlink::{Requests, Routing};
use crate::spawn::on;
use sandboxd_jail::network::{GATEWAY, INSIDE, address_of};
use sandboxd_jail::plan::Network;
use sandboxd_jail::report::{Failure, Step};

/// Gives the interface that the launcher has put here its address, and makes the router the way to everything.
pub(crate) fn configure(network: Network) -> Result<(), Failure> {
    let Network::Routed { number } = network else {
        return Ok(());
    };
    let failed = |errno| on(Step::Network, INSIDE)(errno);
    let routing = Routing::open().map_err(failed)?;
    let index = routing.index(INSIDE).map_err(failed)?;
    let requests = Requests::default()
        .up(index)
        .address(index, address_of(number), 32)
        .default_route(GATEWAY, index);
    routing.carry_out(&requests).map_err(failed)
}
