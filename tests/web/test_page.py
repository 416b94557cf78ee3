"""The page in a real Chromium: what a person sees, and what an enemy's log line cannot do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.model import Secret
from agent.web.view import ContextLine, Delivery, EvidenceFile, OnsetView, OutboxItem, RuleView, SourceView, StageMatch
from tests.web.conftest import Client, Serve
from tests.web.scene import NOW, ONSET, MemoryView, bad_night, deadlock_alert, hostile_alert, incident_of, quiet_night

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="chromium is not installed"),
    # selenium's own sockets are closed by the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PAGES = ["#/", "#/server/trtllm-0", "#/incidents", "#/rules", "#/onset/trtllm-0", "#/health"]


class Browser:
    """A driver with the few verbs that the tests use."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, client: Client, address: str = "#/") -> Browser:
        self.driver.get("about:blank")
        self.driver.get(f"{client.server.url}/{address}")
        self.wait("return document.querySelector('#main h1') !== null")
        return self

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: Any, seconds: float = 15.0) -> None:
        end = time.monotonic() + seconds
        while not self.js(script, *arguments):
            assert time.monotonic() < end, f"never: {script}\n{self.text()[:2000]}"
            time.sleep(0.03)

    def text(self, selector: str = "body") -> str:
        return str(self.js("return (document.querySelector(arguments[0]) || {}).innerText || ''", selector))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    made = Browser(chromium)
    made.size(1280, 800)
    made.complaints()
    yield made
    chromium.get("about:blank")


# ---- five seconds ------------------------------------------------------------------------------------------------


def test_the_first_line_says_which_server_is_stuck(serve: Serve, browser: Browser) -> None:
    browser.open(serve())
    assert browser.text("h1").replace("\n", " ").startswith("■trtllm-0 is stuck")
    banner = browser.text(".banner")
    assert "214 requests wait and 40 run, but nothing finishes" in banner
    assert "token budget deadlock, confirmed" in banner
    assert "kubectl delete pod trtllm-0" in banner
    assert browser.driver.title.startswith("■ trtllm-0 is stuck")
    assert browser.js("return document.getElementById('icon').getAttribute('href')") == "icon-bad.svg"
    # the worst first, and each state in words
    cards = browser.js("return [...document.querySelectorAll('.server')].map(n => n.querySelector('.pill').innerText)")
    assert [word.split("\n")[-1].lstrip("■?●○") for word in cards] == ["stuck", "not seen", "working", "idle"]
    assert browser.complaints() == []


def test_a_quiet_night_says_so(serve: Serve, browser: Browser) -> None:
    browser.open(serve(quiet_night()))
    assert "All is well: 2 servers at work, 1 idle or starting" in browser.text("h1")
    assert browser.js("return document.querySelectorAll('.banner.good').length") == 1


def test_blindness_is_neither_good_nor_bad(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    view.alert_list, view.server_list = [], view.server_list[1:]
    browser.open(serve(view))
    assert "vllm-1 cannot be seen" in browser.text("h1")
    assert browser.js("return document.querySelectorAll('.banner.blind').length") == 1


def test_several_stuck_servers_are_counted_and_named(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    view.server_list += [replace(view.server_list[0], name="trtllm-1")]
    view.alert_list += [deadlock_alert().with_(server="trtllm-1", fingerprint="b" * 16)]
    browser.open(serve(view))
    assert "2 of 5 servers are stuck or dead" in browser.text("h1")
    assert "trtllm-1 is stuck" in browser.text(".banner")


def test_nothing_watched_yet_tells_what_to_do(serve: Serve, browser: Browser) -> None:
    browser.open(serve(MemoryView()))
    assert "No server is watched yet" in browser.text("h1")
    assert "wedgewatch init" in browser.text(".banner")


def test_the_incident_holds_the_proof(serve: Serve, browser: Browser) -> None:
    client = serve()
    browser.open(client, f"#/incident/{client.view.incident_list[0].id}")
    browser.wait("return document.querySelectorAll('.plot svg path').length >= 6")
    text = browser.text("#main")
    for expected in (
        "trtllm-0: token budget deadlock",
        "Nothing completes while requests wait: yes",
        "The same load with a smaller budget survives: not run",
        "Not this: overload (would still finish, slowly)",
        "assert total_num_tokens <= self.max_num_tokens",
        "oncall (pagerduty)",
        "connection refused, 4 attempts",
        "Requests waiting",
        "log/server.log",
        "nvidia-smi is not installed here",
        "dry run: would restart",
    ):
        assert expected in text, expected
    # the stages stand in the plots under the numbers that they have in the list
    marks = browser.js("return [...document.querySelectorAll('.plot:first-child .badge-text')].map(n => n.textContent)")
    assert marks == ["1", "2", "3", "4"]
    # the log view opened at the lines that matter
    assert browser.js(
        "const b=document.querySelector('.log'), h=b.querySelector('.hit.error');"
        "return h.offsetTop >= b.scrollTop && h.offsetTop < b.scrollTop + b.clientHeight"
    )
    assert browser.complaints() == []


def test_an_only_engine_is_found_whatever_the_series_call_it(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    view.series_map["trtllm-0"] = {("0", signal): points for (_, signal), points in view.series_map["trtllm-0"].items()}
    alert = view.alert_list[0]
    early = {"tokens_per_second": [[ONSET - 240 + 5 * i, 950.0] for i in range(12)]}
    view.alert_list = [alert.with_(context={**alert.context, "series": early})]
    view.incident_list = [incident_of(view.alert_list[0])]
    browser.open(serve(view), f"#/incident/{view.incident_list[0].id}")
    browser.wait("return document.querySelectorAll('.plot svg path').length >= 6")
    assert browser.text(".plot:first-child .key.waiting").endswith("209")
    # what the alert carries of the time before is joined to the live series
    label = browser.js("return document.querySelector('.plot:nth-child(3) svg').getAttribute('aria-label')")
    assert "generated from 950 to 0" in label


def test_a_long_traceback_shows_what_it_says_and_what_is_over_is_no_order(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    alert = view.alert_list[0]
    body = "\n".join(
        ["Traceback (most recent call last):", *(f"  File {n}" for n in range(30)), "AssertionError: 257 > 256"]
    )
    stages = (*alert.stages[:-1], replace(alert.stages[-1], body=body))
    over = alert.with_(stages=stages, state="resolved", ends_at=NOW - 60)
    view.alert_list, view.incident_list = [], [incident_of(over)]
    client = serve(view)
    browser.open(client, f"#/incident/{view.incident_list[0].id}")
    said = browser.text(".stages li:last-child code")
    assert said.startswith("Traceback")
    assert "… 27 lines …" in said
    assert said.endswith("AssertionError: 257 > 256")
    assert "Do now" not in browser.text("#main")
    assert "not run" in browser.text(".checks li:last-child b")
    assert "python" not in browser.text(".checks li:last-child b")
    # whoever comes to the first screen when all is over finds what it was
    browser.open(client)
    browser.wait("return document.querySelector('.lately a') !== null")
    assert browser.text(".lately a") == "trtllm-0: token budget deadlock"


def test_a_restart_does_not_empty_the_plots(serve: Serve, browser: Browser) -> None:
    """
    incident: 950 tokens/s ... 0 | restart: the live series begin here
    """
    view = bad_night()
    for key in view.series_map["trtllm-0"]:
        view.series_map["trtllm-0"][key] = [(NOW - 20 + 5 * i, 7.0) for i in range(4)]
    early = {"tokens_per_second": [[ONSET - 240 + 5 * i, 950.0] for i in range(12)]}
    alert = view.alert_list[0]
    over = alert.with_(context={**alert.context, "series": early}, state="resolved", ends_at=NOW - 30)
    view.alert_list, view.incident_list = [], [incident_of(over)]
    browser.open(serve(view), "#/server/trtllm-0")
    plot = "document.querySelector('.plot:nth-child(3) svg')"
    browser.wait(f"return {plot} !== null && {plot}.getAttribute('aria-label').includes('generated from 950 to 7')")
    assert browser.complaints() == []


def test_every_page_has_its_content(serve: Serve, browser: Browser) -> None:
    client = serve()
    for address, expected in (
        ("#/incidents", "silent stall"),
        ("#/rules", "TokenBudgetDeadlock"),
        ("#/onset", "Begins at about 60.5 requests running"),
        ("#/health", "Source /var/log/vllm-1.log cannot be read"),
        ("#/server/vllm-0", "the gaps between 5,210 signs of progress"),
        ("#/server/nobody", "No server of this name"),
        ("#/incident/nothing", "No such incident"),
        ("#/%E0%A4%A", "There is no such page"),
    ):
        browser.driver.get("about:blank")
        browser.driver.get(f"{client.server.url}/{address}")
        browser.wait("return document.body.innerText.includes(arguments[0])", expected)


# ---- live --------------------------------------------------------------------------------------------------------


def test_a_change_shows_by_itself_and_keeps_the_focus(serve: Serve, browser: Browser) -> None:
    view = quiet_night()
    client = serve(view)
    browser.open(client)
    browser.wait("return document.getElementById('link').textContent === 'live'")
    browser.js("document.querySelector('.server[data-key=\"sglang-0\"]').focus()")
    night = bad_night()
    view.server_list, view.alert_list = night.server_list, night.alert_list
    client.server.events.publish("servers", "alerts", "incidents")
    browser.wait("return document.querySelector('h1').innerText.includes('trtllm-0 is stuck')")
    assert browser.js("return document.activeElement.dataset.key") == "sglang-0"
    view.alert_list = [alert.with_(state="resolved") for alert in view.alert_list]
    view.server_list = quiet_night().server_list
    client.server.events.publish("servers", "alerts", "incidents")
    browser.wait("return document.querySelector('h1').innerText.includes('All is well')")


def test_new_points_come_into_the_plot(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    client = serve(view)
    browser.open(client, "#/server/trtllm-0")
    browser.wait("return document.querySelector('.key.waiting') !== null")
    view.clock += 5
    view.series_map["trtllm-0"][("", "requests_waiting")].append((view.clock, 999.0))
    client.server.events.publish("servers")
    browser.wait("return document.querySelector('.key.waiting').innerText.includes('999')")


def test_a_daemon_that_went_away_is_said(serve: Serve, browser: Browser) -> None:
    client = serve()
    browser.open(client)
    browser.wait("return document.getElementById('link').textContent === 'live'")
    client.server.close()
    browser.wait("return document.body.innerText.includes('What you see is old')")


def test_the_token_is_asked_for(serve: Serve, browser: Browser) -> None:
    client = serve(token=Secret("s3cret"))
    browser.driver.get("about:blank")
    browser.driver.get(client.server.url)
    browser.wait("return document.querySelector('form.token input') !== null")
    browser.press("s3cret", "\ue007")
    browser.wait("return document.body.innerText.includes('trtllm-0 is stuck')")
    browser.wait("return document.getElementById('link').textContent === 'live'")
    incident = client.view.incident_list[0].id
    browser.js("location.hash = arguments[0]", f"#/incident/{incident}")
    browser.wait("return document.body.innerText.includes('Mute this server for 1 h')")
    browser.js("window.confirm = () => true")
    browser.js("[...document.querySelectorAll('button')].find(b => b.innerText.startsWith('Mute')).click()")
    browser.wait("return document.body.innerText.includes('is sent for one hour')")
    assert client.view.mute_list[0].matchers == ('server="trtllm-0"',)


# ---- hands -------------------------------------------------------------------------------------------------------


def test_keys_lead_everywhere(serve: Serve, browser: Browser) -> None:
    browser.open(serve())
    for key, expected in (
        ("2", "Incidents"),
        ("3", "Rules in force"),
        ("4", "Load at each onset"),
        ("5", "needs a look"),
    ):
        browser.press(key)
        browser.wait("return document.querySelector('#main h1').innerText.includes(arguments[0])", expected)
    browser.press("1", "u")
    browser.wait("return document.getElementById('zone').textContent === 'UTC'")
    browser.press("u", "t")
    assert browser.js("return document.documentElement.dataset.theme") == "light"
    browser.press("t", "t")
    assert browser.js("return document.documentElement.dataset.theme") is None


def test_the_pointer_reads_all_plots_at_one_moment(serve: Serve, browser: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    browser.open(serve(), "#/server/trtllm-0")
    browser.press("u")
    browser.wait("return document.querySelectorAll('.plot svg .line').length >= 6")
    svg = browser.driver.find_element(By.CSS_SELECTOR, ".plot svg")
    ActionChains(browser.driver).move_to_element_with_offset(svg, -100, 0).perform()
    browser.wait("return document.querySelectorAll('.cursor').length === 4")
    times = browser.js("return [...document.querySelectorAll('.plot .when')].map(n => n.innerText)")
    assert len(set(times)) == 1
    assert times[0].startswith("09:0")
    finished = browser.text(".plot:nth-child(2) .key.finished")
    assert finished.endswith("72"), finished
    browser.press("u")


def test_a_plot_is_read_with_the_arrow_keys(serve: Serve, browser: Browser) -> None:
    browser.open(serve(), "#/server/trtllm-0")
    browser.wait("return document.querySelectorAll('.plot svg .line').length >= 6")
    browser.js("document.querySelector('.plot svg').focus()")
    for _ in range(7):
        browser.press("\ue00e")  # page up: a tenth of the span each
    assert browser.text(".plot:nth-child(2) .key.finished").endswith("72")
    browser.press("\ue00c")
    assert browser.js("return document.querySelectorAll('.cursor').length") == 0
    label = browser.js("return document.querySelector('.plot:nth-child(2) svg').getAttribute('aria-label')")
    assert label == "Completions: finished from 72 to 0"


@pytest.mark.parametrize("address", [*PAGES, "incident"])
def test_nothing_sticks_out_on_a_phone(serve: Serve, browser: Browser, address: str) -> None:
    client = serve()
    browser.size(360, 740)
    browser.open(client, f"#/incident/{client.view.incident_list[0].id}" if address == "incident" else address)
    browser.wait("return document.querySelectorAll('#main > *').length > 0")
    assert browser.js("return document.documentElement.scrollWidth") <= 360


CONTRAST = """
const part = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
const lum = (c) => { const v = c.map((x) => part(x / 255));
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const back = (n) => { for (; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor);
  if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement, style = getComputedStyle(node);
  if (!walker.currentNode.data.trim() || node.closest('svg, noscript') || !node.offsetParent) continue;
  const a = lum(rgb(style.color).slice(0, 3)), b = lum(back(node));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push([walker.currentNode.data.trim().slice(0, 30), ratio.toFixed(2)]);
}
return bad;
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(serve: Serve, browser: Browser, dark: bool) -> None:
    client = serve()
    browser.size(1280, 800, dark=dark)
    for address in [*PAGES, f"#/incident/{client.view.incident_list[0].id}"]:
        browser.open(client, address)
        assert browser.js(CONTRAST) == [], address


# ---- enemies -----------------------------------------------------------------------------------------------------

PAYLOADS = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "</code></td></svg><svg onload=window.pwned=1>",
    "\"'><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "{{constructor.constructor('window.pwned=1')()}}${window.pwned=1}",
    "javascript:window.pwned=1",
    "\u202egnp.exe\u2066 \x1b[31mred\x1b[0m \x00 \ufffe",
    "<style>*{display:none}</style><base href=//evil.example><meta http-equiv=refresh content=0;url=//evil.example>",
]


INERT = """
const all = (selector) => [...document.querySelectorAll(selector)];
return {
  pwned: window.pwned || 0,
  foreign: all('main script, main img, main iframe, main style, main base, main meta').length,
  handlers: all('*').filter((n) => [...n.attributes].some((a) => a.name.startsWith('on'))).length,
  links: all('a').map((a) => a.href).filter((address) => !address.startsWith(location.origin)),
};
"""


def hostile_view() -> MemoryView:
    text = " ".join(PAYLOADS)
    view = bad_night()
    alert = hostile_alert(text)
    view.server_list = [
        replace(
            view.server_list[0], name=alert.server, engine=text, why=text, labels={text: text}, scrape_error=text,
            deadline_source=text, facts={text: 1.0},
        ),
    ]  # fmt: skip
    view.series_map = {alert.server: view.series_map["trtllm-0"]}
    view.alert_list = [alert]
    incident = incident_of(alert)
    view.incident_list = [
        replace(
            incident,
            context=tuple(ContextLine(ONSET, payload, text, 1, "ERROR", payload) for payload in PAYLOADS),
            evidence=(EvidenceFile(text, 10, text),),
            deliveries=(Delivery(NOW, text, text, text, text, text),),
            actions_taken=(text,),
        )
    ]
    view.rule_list = [RuleView(text, text, text, "critical", (text,), (StageMatch(text),), text, text, 0.0, text, text)]
    view.source_list = [SourceView(text, text, text, error=text)]
    view.outbox_list = [OutboxItem(1, text, text, text, text, "dead", NOW, last_error=text)]
    view.onsets = {alert.server: OnsetView(alert.server, text, verdict=text)}
    view.health = replace(view.health, problems=(text,), config_error=text)
    return view


def test_hostile_text_is_shown_and_does_nothing(serve: Serve, browser: Browser) -> None:
    from urllib.parse import quote

    view = hostile_view()
    client = serve(view)
    name = quote(view.server_list[0].name, safe="")
    pages = ["#/", f"#/server/{name}", f"#/incident/{view.incident_list[0].id}", "#/incidents", "#/rules"]
    for address in [*pages, f"#/onset/{name}", "#/health"]:
        browser.open(client, address)
        browser.wait("return document.querySelector('#main').innerText.includes('window.pwned=1')")
        found = browser.js(INERT)
        assert found == {"pwned": 0, "foreign": 0, "handlers": 0, "links": []}, address
    assert "<script>window.pwned=1</script>" in browser.text("#main")
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_a_script_that_got_in_anyway_would_not_run(serve: Serve, browser: Browser) -> None:
    browser.open(serve())
    outcome = browser.js(
        "try { document.querySelector('main').innerHTML = '<img src=x onerror=window.pwned=1>'; return 'taken' }"
        " catch (error) { return error.name }"
    )
    assert outcome == "TypeError"  # trusted types: no text becomes markup
    browser.js(
        "const n = document.createElement('script'); try { n.text = 'window.pwned = 1' } catch { /* trusted types */ }"
        "n.append('window.pwned = 1'); document.body.append(n)"
    )
    assert browser.js("return window.pwned || 0") == 0
    browser.complaints()


def test_nothing_comes_from_elsewhere(serve: Serve, browser: Browser) -> None:
    client = serve()
    browser.open(client)
    loaded = browser.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert len(loaded) > 10
    assert [name for name in loaded if not name.startswith(client.server.url)] == []


def test_hundreds_of_servers_and_a_long_name_do_not_break_it(serve: Serve, browser: Browser) -> None:
    view = bad_night()
    view.server_list += [replace(view.server_list[1], name=f"vllm-{'x' * 120}-{i}") for i in range(300)]
    browser.size(360, 740)
    browser.open(serve(view))
    browser.wait("return document.querySelectorAll('.server').length === 304")
    assert browser.js("return document.documentElement.scrollWidth") <= 360
