#!/bin/sh
# Serves the cluster that OMNIGRAPH_CLUSTER names. Options are those of omnigraph-server; anything else is a command
# of omnigraph, such as `cluster apply --config /cluster`.
set -eu

case "${1:-}" in
  "" | -*) ;;
  *) exec omnigraph "$@" ;;
esac

if [ -z "${OMNIGRAPH_CLUSTER:-}" ]; then
  echo "omnigraph: set OMNIGRAPH_CLUSTER to the directory or the storage URI of a cluster" >&2
  exit 64
fi
exec omnigraph-server --cluster "$OMNIGRAPH_CLUSTER" --bind "${OMNIGRAPH_BIND:-0.0.0.0:8080}" "$@"
