"""How the place of a graph is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage.location import Location


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/g", "/data/g"),
        ("/data/g/", "/data/g"),
        ("//data//g", "/data/g"),
        ("/data/./x/../g", "/data/g"),
        ("/", "/"),
        ("file:///data/g/", "/data/g"),
        ("file://localhost/data/g", "/data/g"),
        ("FILE:///data/with%20space", "/data/with space"),
        ("/data/100%25 #1", "/data/100%25 #1"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("S3://bucket/größe und mehr", "s3://bucket/größe und mehr"),
    ],
)
def test_one_place_has_one_uri(text: str, uri: str) -> None:
    assert Location.parse(text).uri == uri
    assert Location.parse(uri).uri == uri


def test_a_relative_path_counts_from_the_current_folder_and_keeps_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Location.parse("link/g").uri == f"{tmp_path}/link/g"
    assert Location.parse(Path("./x/../g")).uri == f"{tmp_path}/g"
    assert Location.parse("./s3:/odd").uri == f"{tmp_path}/s3:/odd"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "gs://bucket/x",
        "https://example.org/g",
        "s3:/bucket/x",
        "s3://",
        "s3:///key",
        "s3://key:secret@bucket/x",
        "s3://bucket/a/../b",
        "s3://bucket/./b",
        "s3://bucket/a%41",
        "s3://bucket/a#b",
        "s3://bucket/a?b",
        "file://elsewhere/data",
        "file://data",
        "file:///data/%00",
        "/data/a\0b",
        "/data/a\nb",
        "/data/a?b",
        "file:///data/a%3Fb",
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidName):
        Location.parse(text)


@pytest.mark.parametrize("root", ["/data/g", "s3://bucket/g"])
@pytest.mark.parametrize("part", ["..", "../x", "a/../../x", ".", "", "/etc/passwd", "a//b", "a/", "a\0b"])
def test_a_join_never_leads_outside(root: str, part: str) -> None:
    with pytest.raises(errors.InvalidName):
        Location.parse(root) / part


def test_parts_of_a_place() -> None:
    local = Location.parse("/data/g") / "__recovery" / "01.json"
    assert (local.uri, local.name, local.is_local) == ("/data/g/__recovery/01.json", "01.json", True)
    assert local.path == Path("/data/g/__recovery/01.json")
    assert (Location.parse("/") / "x").uri == "/x"
    remote = Location.parse("s3://bucket") / "nodes/40d7"
    assert (remote.bucket, remote.key, remote.is_local) == ("bucket", "nodes/40d7", False)
    assert str(remote) == "s3://bucket/nodes/40d7"
    assert (remote / "100%2F.json").name == "100%2F.json"
    with pytest.raises(errors.InvalidName):
        _ = remote.path
    with pytest.raises(errors.InvalidName):
        _ = local.key


def test_a_bucket_is_reached_as_the_aws_environment_says() -> None:
    remote = Location.parse("s3://bucket/g")
    assert Location.parse("/data/g").storage_options({"AWS_REGION": "x"}) == {}
    assert remote.storage_options({}) == {"aws_region": "us-east-1"}
    assert remote.storage_options(
        {
            "AWS_ENDPOINT_URL": "https://other",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
            "AWS_ALLOW_HTTP": "TRUE",
            "AWS_S3_FORCE_PATH_STYLE": "1",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_SESSION_TOKEN": "t",
            "AWS_DEFAULT_REGION": "eu-central-1",
        }
    ) == {
        "aws_endpoint": "http://127.0.0.1:9000",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "aws_session_token": "t",
        "aws_region": "eu-central-1",
    }
    assert (
        remote.storage_options({"AWS_S3_FORCE_PATH_STYLE": "false"})["aws_virtual_hosted_style_request"]
        == "true"
    )


def test_an_unencrypted_endpoint_needs_consent() -> None:
    with pytest.raises(errors.StorageFailure, match="not encrypted") as failure:
        Location.parse("s3://bucket/g").storage_options({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})
    assert failure.value.kind == "Configuration"
    assert "AWS_ALLOW_HTTP" in (failure.value.remedy or "")
