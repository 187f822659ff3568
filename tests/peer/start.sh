#!/bin/sh
# What the suites start instead of the Python service: the binary, with a state directory of its own for every start,
# since they use the same session ids again and again; with root filesystems for the image names that they use, or on a
# container engine that has images of these names.
set -eu
state=$(mktemp -d "$PEER_RUN/state.XXXXXXXX")
if [ -n "${PEER_DOCKER_HOST:-}" ]; then
    export SANDBOXD_BACKEND=docker SANDBOXD_DOCKER_HOST="$PEER_DOCKER_HOST"
else
    export SANDBOXD_IMAGES="$PEER_IMAGES"
fi
exec "$PEER_BINARY" serve --state-dir "$state"
