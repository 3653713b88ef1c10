"""Every area of the explorer by clicking, in a real browser against a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.server.running import RunningServer
from tests.ui.browsing import Visit

pytestmark = pytest.mark.browser

AREAS = ("explore", "schema", "query", "history", "review?branch=draft%2Froles", "data")


def test_wrong_token_is_refused_in_words(root: Visit, lab_server: RunningServer) -> None:
    page = root.context.browser.new_context().new_page()  # type: ignore[union-attr]  # it has one
    page.goto(f"{lab_server.url}/ui")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("invalid bearer token")).to_be_visible()
    page.context.close()


def test_person_is_found_and_the_picture_grows_by_a_double_click(root: Visit) -> None:
    page = root.go("explore")
    expect(page.locator(".picture")).to_have_attribute("data-nodes", re.compile("[1-9]"))
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Search nodes").fill("hedy")
    page.get_by_role("region", name="Found nodes").get_by_role("button", name="Hedy Lind").click()
    details = page.get_by_role("complementary", name="Details")
    expect(details.get_by_role("heading", name="Hedy Lind")).to_be_visible()
    expect(details.get_by_role("row", name="handle hedy")).to_be_visible()
    few = count_nodes(page)
    shown = page.get_by_role("region", name="Nodes that are shown")
    shown.get_by_role("button", name=re.compile("Project")).first.click()
    double_click_selected(page)
    expect(page.locator(".picture")).not_to_have_attribute("data-nodes", str(few))
    assert count_nodes(page) > few
    page.get_by_role("group", name="Types that are shown").get_by_role("button", name="Paper").click()
    expect(shown.get_by_text("Paper")).to_have_count(0)


def test_history_of_a_node_names_actors(root: Visit) -> None:
    page = root.go("explore?node=Person+alan")
    details = page.get_by_role("complementary", name="Details")
    details.get_by_role("tab", name="History").click()
    expect(details.get_by_text(re.compile("^ben, "))).to_be_visible()


def test_query_is_linted_run_and_explained(root: Visit) -> None:
    text = (
        "query near($handle: String, $age: I32) {\n"
        "  match { $p: Person { handle: $handle }  $p mentors $q  $q.age > $age }\n"
        "  return { $p, $q, $q.name as name, $q.age as age }\n  order { name }\n}"
    )
    page = root.go(f"query?q={quote(text)}&p={quote(json.dumps({'handle': 'grace', 'age': 1}))}")
    expect(page.get_by_text("valid", exact=True)).to_be_visible()
    expect(page.get_by_label("handle (string)")).to_have_value("grace")
    page.get_by_role("button", name="Run", exact=True).click()
    result = page.get_by_role("table", name="Result")
    expect(result.get_by_role("row")).to_have_count(4)
    expect(result.get_by_text("Barbara Lind")).to_be_visible()
    choose(page, "Picture")
    expect(page.locator(".picture")).to_have_attribute("data-nodes", re.compile("[2-9]"))
    choose(page, "JSON")
    expect(page.get_by_label("Result as JSON")).to_contain_text('"age"')
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("region", name="Plan").get_by_text("Scan").first).to_be_visible()
    page.get_by_label("Query", exact=True).fill("query q() { match { $p: Persn } return { $p.name } }")
    expect(page.get_by_text("1 error")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_be_visible()


def test_properties_are_completed_from_the_schema(root: Visit) -> None:
    page = root.go("query?q=" + quote("query q() { match { $p: Paper } return { $p. } }"))
    editor = page.get_by_label("Query", exact=True)
    editor.click()
    page.keyboard.press("Control+End")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("ci")
    expect(page.locator(".cm-tooltip-autocomplete").get_by_text("citations")).to_be_visible()
    page.keyboard.press("Escape")


def test_stored_query_runs(root: Visit) -> None:
    page = root.go("query")
    page.get_by_role("button", name="mentees", exact=True).click()
    page.get_by_label("handle (string)").last.fill("grace")
    page.get_by_role("button", name="Run mentees").click()
    expect(page.get_by_role("table", name="Result").get_by_role("row").nth(1)).to_be_visible()


def test_commit_shows_its_changes_and_leads_to_that_moment(root: Visit) -> None:
    page = root.go("history")
    commits = page.get_by_role("region", name="Commits")
    expect(commits.get_by_text("draft/roles", exact=True).first).to_be_visible()
    commits.get_by_role("button", name=re.compile("ben on main")).click()
    change = page.get_by_role("article", name="Person alan changed")
    expect(change.get_by_text("engineer")).to_be_visible()
    page.get_by_role("button", name="Look at this moment").click()
    expect(page.get_by_role("status")).to_contain_text("as commit")
    page.get_by_role("button", name="Schema", exact=True).click()
    expect(page.get_by_role("region", name="Node type Person").get_by_text("24 rows")).to_be_visible()
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_role("region", name="Node type Person").get_by_text("25 rows")).to_be_visible()


def test_edit_goes_to_a_branch_and_is_merged_after_review(root: Visit, lab_server: RunningServer) -> None:
    page = root.go("explore?node=Person+radia")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("city").fill("Oslo")
    expect(dialog.get_by_label("New branch", exact=True)).to_have_value("edit/radia")
    dialog.get_by_role("button", name="Save on edit/radia").click()
    change = page.get_by_role("article", name="Person radia changed")
    expect(change.get_by_text("Oslo")).to_be_visible()
    assert read_person(lab_server, "radia")["city"] != "Oslo"
    page.get_by_role("button", name="Merge into main").click()
    expect(page.get_by_text("Merged edit/radia into main.")).to_be_visible()
    assert read_person(lab_server, "radia")["city"] == "Oslo"


def test_reader_is_offered_no_change_and_is_refused_anyway(root: Visit) -> None:
    reader = root.beside("reader")
    page = reader.go("review?branch=draft%2Froles")
    expect(page.get_by_text("Policy does not let you merge into main.")).to_be_visible()
    expect(page.get_by_role("button", name="Merge into main")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete branch")).to_have_count(0)
    status = page.evaluate(
        "fetch('/graphs/default/branches/merge',"
        " {method: 'POST', body: JSON.stringify({source: 'draft/roles'}),"
        " headers: {'X-Omnigraph-Page': '1', 'Content-Type': 'application/json'}}).then(r => r.status)"
    )
    assert status == 403
    assert [one for one in reader.take_problems() if "403" not in one] == []
    reader.context.close()


@pytest.mark.parametrize("area", AREAS)
def test_area_has_no_serious_barrier(root: Visit, area: str) -> None:
    page = root.go(area)
    page.wait_for_load_state("networkidle")
    assert root.find_serious() == []


def test_dark_phone_shows_every_area_without_scrolling_sideways(root: Visit) -> None:
    phone = root.beside("reader", viewport={"width": 390, "height": 800}, color_scheme="dark")
    for area in AREAS:
        page = phone.go(area)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, area
    assert phone.find_serious() == []
    assert phone.take_problems() == []
    phone.context.close()


def test_conflict_is_resolved_and_merged(root: Visit, lab_server: RunningServer) -> None:
    page = root.go("review?branch=draft%2Froles")
    conflict = page.get_by_role("region", name="Conflict about Person grace")
    for value in ("40", "41"):
        expect(conflict.get_by_text(value, exact=True)).to_be_visible()
    merge = page.get_by_role("button", name="Merge into main")
    expect(merge).to_be_disabled()
    conflict.get_by_role("radio", name=re.compile("theirs")).click()
    page.get_by_role("button", name="Check my choices").click()
    expect(page.get_by_text("Every conflict is resolved")).to_be_visible()
    merge.click()
    expect(page.get_by_text("Merged draft/roles into main.")).to_be_visible()
    grace = read_person(lab_server, "grace")
    assert (grace["age"], grace["city"]) == (41, "Bergen")
    with lab_server.client("root") as client:
        assert "draft/roles" not in client.get("/branches").json()["branches"]


def test_file_is_loaded_on_a_branch_after_a_preview(root: Visit, notes: Path) -> None:
    page = root.go("data")
    expect(page.get_by_text("all in order")).to_be_visible()
    page.get_by_role("tab", name="Load a file").click()
    page.locator("input[type=file]").set_input_files(notes)
    expect(page.get_by_role("region", name="Preview of the file").get_by_text("Zoe Park")).to_be_visible()
    page.get_by_role("button", name="Load and review").click()
    expect(page.get_by_role("article", name="Person zoe added")).to_be_visible()
    page.get_by_role("button", name="Delete branch").click()
    expect(page.get_by_text("Branch load/people-csv is deleted.")).to_be_visible()


def count_nodes(page: Page) -> int:
    return int(page.locator(".picture").get_attribute("data-nodes") or 0)


def choose(page: Page, view: str) -> None:
    page.get_by_role("radiogroup", name="Show the result as").get_by_text(view).click()


def double_click_selected(page: Page) -> None:
    """Double click the node in the middle: the camera goes to a node that is selected."""
    canvas = page.locator(".picture-canvas")
    expect(page.locator(".picture[data-settled=true]")).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def read_person(server: RunningServer, handle: str) -> dict[str, object]:
    with server.client("root") as client:
        answer = client.post("/subgraph", json={"nodes": {"Person": [handle]}})
    properties: dict[str, object] = answer.json()["nodes"][0]["properties"]
    return properties
