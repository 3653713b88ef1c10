"""Declared deployments: files say what should exist, a ledger what was applied, and a plan the difference.

Read in this order:

    config.py, read_config.py            `cluster.yaml` as values; yaml_node.py: strict reading with places
    desired.py                           typed resources of all files; digests.py, entries.py: their digests
    root.py, state.py                    what is stored where, and the ledger as a value
    ledger.py, lock.py                   compare-and-swap of the ledger, and the lock around every command
    catalog.py, approvals.py             published copies of files; approvals of people
    pipelines.py                         pipelines, parsed and checked by the room `pipeline/declared`
    plan.py, planner.py                  a plan as a value, and how it is built; preview.py: schema steps
    explain.py                           a plan in words
    sidecars.py, recovery.py             interrupted operations on graphs, and what to do with them
    apply.py, graph_work.py              converge: the effects, each inside a recovery file
    demotion.py, next_state.py           what a failure blocks, and the ledger after an apply
    refresh.py, live.py                  record what is really there; pipeline_runs.py: runs of pipelines
    lookup.py, serving.py                graphs by their cluster; what a server serves of it
    applied_pipelines.py                 pipelines that were applied, as commands run them
    diagnostics.py, codes.py             findings with stable codes
    session.py                           what all commands share; validate.py, plan_command.py, approve.py,
                                         status.py: the others
"""
