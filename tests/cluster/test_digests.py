"""Digests are those that other releases compute from the same files."""

from __future__ import annotations

import hashlib

from tests.cluster.deployment import CONFIG, QUERY, SCHEMA, SERVER_POLICY, Deployment

BLOBS = """\
    external_blobs:
      allow:
        - {base: s3://Assets/k, scope: server_safe}
        - {base: file:///data/, scope: embedded_only}
"""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_digests_are_made_of_these_very_bytes(fresh: Deployment) -> None:
    profile = '{"kind":"mock"}'
    provider = sha(f"embedding-provider\0{profile}")
    graph = sha(
        f"graph\0knowledge\0schema\0{sha(SCHEMA)}\0query\0people\0{sha(QUERY)}\0"
        f"embedding_provider\0provider.embedding.local\0{provider}\0"
    )
    digests = {
        "graph.knowledge": graph,
        "policy.server": sha(SERVER_POLICY),
        "provider.embedding.local": provider,
        "query.knowledge.people": sha(QUERY),
        "schema.knowledge": sha(SCHEMA),
    }
    assert fresh.validate()["resource_digests"] == digests
    config = (
        '{"version":1,"metadata":{"name":null},"storage":null,"state":{"backend":null,"lock":null},'
        '"providers":{"embedding":{"local":{"kind":"mock","base_url":null,"model":null,"api_key":null}}},'
        '"graphs":{"knowledge":{"schema":"knowledge.pg","queries":"queries/","embedding_provider":"local"}},'
        '"policies":{"server":{"file":"server.yaml","applies_to":["cluster"]}}}'
    )
    pairs = "".join(f"{address}\0{digest}\0" for address, digest in digests.items())
    planned = fresh.plan()["desired_revision"]["config_digest"]
    assert planned == sha(f"cluster-config\0{config}\0{pairs}")


def test_a_blob_policy_is_part_of_the_digest_of_its_graph(fresh: Deployment) -> None:
    fresh.configure(CONFIG.replace("policies:", BLOBS + "policies:"))
    bases = (
        '{"mode":"allow","bases":[{"uri":"file:///data/","scope":"embedded_only"},'
        '{"uri":"s3://assets/k/","scope":"server_safe"}]}'
    )
    provider = sha('embedding-provider\0{"kind":"mock"}')
    assert fresh.validate()["resource_digests"]["graph.knowledge"] == sha(
        f"graph\0knowledge\0schema\0{sha(SCHEMA)}\0query\0people\0{sha(QUERY)}\0"
        f"embedding_provider\0provider.embedding.local\0{provider}\0external_blob_policy\0{bases}\0"
    )


def test_comments_order_and_formatting_do_not_matter(fresh: Deployment) -> None:
    before = fresh.plan()["desired_revision"]
    top, _, policies = CONFIG.partition("policies:")
    fresh.configure(f"# a comment\npolicies:{policies}{top}metadata:   {{}}\n")
    assert fresh.plan()["desired_revision"] == before
    fresh.configure(CONFIG + "metadata: {name: brain}\n")
    assert fresh.plan()["desired_revision"] != before
