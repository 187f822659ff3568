#!/bin/sh
# What the suites start instead of the Python service: the binary, with a state directory of its own for every start,
# since they use the same session ids again and again, and with root filesystems for the image names that they use.
set -eu
state=$(mktemp -d "$PEER_RUN/state.XXXXXXXX")
export SANDBOXD_IMAGES="$PEER_IMAGES"
exec "$PEER_BINARY" serve --state-dir "$state"
