"""`/metrics` over real turns: read by the library's parser, by promtool and by a real Prometheus."""

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from tests.support.cases import each
from tests.support.waiting import wait_until

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
AGENT = "a-name-that-is-no-label"
DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def needs(*programs):
    """Skip a test where programs aren't installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}, of the package prometheus")


def samples(answer, parse=parser):
    """The samples of an answer by name and labels."""
    assert answer.status == 200, answer
    families = parse.text_string_to_metric_families(answer.body.decode())
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


@pytest.fixture
def worked(daemon):
    """A daemon two of whose turns have ended: one called a tool and succeeded, one failed."""
    daemon.spawn(AGENT, daemon.workspace(), "/shell true\nDone.")
    daemon.spawn("bert", daemon.workspace("other"), "/exit 3")
    return daemon


def test_counters_go_on_over_a_death_of_the_daemon_and_the_removal_of_agents(web, worked):
    before = samples(web.ask("/metrics"))
    worked.ok("send", AGENT, "/shell true\nAgain.")
    worked.wait(AGENT)
    worked.kill()
    worked.start()
    worked.ok("end", AGENT)
    worked.ok("rm", AGENT)
    after = samples(web.ask("/metrics"))
    grown = {key: after[key] - value for key, value in before.items() if not key[0].endswith("_created")}
    assert grown["substrat_turns_total", "success"] == grown["substrat_tool_calls_total",] == 1
    assert grown["substrat_turns_total", "error"] == 0
    assert grown["substrat_turn_duration_seconds_count",] == grown["substrat_queue_wait_seconds_bucket", "+Inf"] == 1
    assert grown["substrat_tokens_total", "auto", "input"] > 0
    assert grown["substrat_agents", "idle"] == -1
    assert after["substrat_attention_agents", "failed", "urgent"] == after["substrat_agents", "failed"] == 1


def test_both_formats_have_the_same_numbers_and_no_agents_name(web, worked):
    plain, newer = web.ask("/metrics"), web.ask("/metrics", Accept=OPENMETRICS)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert newer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert newer.body.endswith(b"# EOF\n")
    assert samples(plain) == samples(newer, openmetrics_parser)
    assert all(AGENT.encode() not in answer.body for answer in (plain, newer))
    names = {name for name, *_ in samples(plain)}
    assert all(name.startswith("substrat_") for name in names), "this process's own numbers are none of the daemon's"
    # The document lists each; the plain text has no kind `info`, and the parser takes `_total` off.
    families = parser.text_string_to_metric_families(plain.body.decode())
    served = {f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families}
    assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT, re.MULTILINE)) == served


@each("accept", ["", "text/html", "*/*", "application/openmetrics-text; version=x", "text/plain; version=1.x", ";,;"])
def test_an_odd_accept_gets_an_answer(web, accept):
    assert samples(web.ask("/metrics", Accept=accept))["substrat_open_questions",] == 0


def test_nobody_reads_them_without_the_token(web, serve, daemon):
    assert [web.ask("/metrics", token=token).status for token in (None, "x")] == [401, 401]
    assert web.ask("/metrics", {}).error == "MethodNotAllowed"
    assert serve("--read-only").ask("/metrics").status == 200
    daemon.stop()
    assert (web.ask("/metrics").status, web.ask("/metrics").error) == (503, "DaemonNotRunning")
    daemon.start()


@pytest.mark.real
@needs("promtool")
def test_promtool_finds_nothing_to_mend(web, worked):
    text = web.ask("/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.slow
@pytest.mark.real
@needs("prometheus", "promtool")
def test_a_real_prometheus_reads_them(web, worked, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        "  - job_name: substrat\n"
        f"    authorization: {{credentials_file: {worked.runtime}/web.token}}\n"
        f"    static_configs: [{{targets: ['{web.host}']}}]\n"
    )
    checked = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked

    def value(query):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=20
        ) as answer:
            found = json.load(answer)["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:

            def scraped():
                assert server.poll() is None, (tmp_path / "log").read_text()
                try:
                    return value("sum(substrat_turns_total) and on() up == 1")
                except OSError:
                    return None  # it doesn't listen yet

            assert wait_until(scraped, "the first scrape") == value("substrat_turn_duration_seconds_count")
            assert value('substrat_turn_duration_seconds_bucket{le="+Inf"}') == value("sum(substrat_turns_total)")
            assert value('substrat_attention_agents{kind="failed"}') == 1
            assert value("histogram_quantile(0.9, substrat_turn_duration_seconds_bucket)") > 0
        finally:
            server.terminate()


@pytest.mark.real
@needs("promtool")
def test_the_documents_configuration_and_alerts_are_good(tmp_path):
    scraping, alerts = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    token = tmp_path / "web.token"
    token.touch()
    (tmp_path / "prometheus.yml").write_text(scraping.replace("/run/user/1000/substrat/web.token", str(token)))
    (tmp_path / "alerts.yml").write_text(alerts)
    for what, name in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        done = subprocess.run(["promtool", "check", what, tmp_path / name], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
