"""The tree obeys the include rules, and the checker goes red for each kind of violation."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import include_rules  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_tree_obeys():
    assert include_rules.check(ROOT) == []


def test_the_checker_sees_the_tree():
    """A checker that finds no files, or no includes of ours, would be green for ever."""
    seen = list(include_rules.sources(ROOT))
    assert len(seen) > 30
    log_c = ROOT / "daemon/base/log.c"
    includes = include_rules.INCLUDE.findall(log_c.read_text())
    assert ('"', "base/log.h") in includes


def tree(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return include_rules.check(tmp_path)


HEADERS = {
    "daemon/base/log.h": "", "daemon/job/job.h": "", "daemon/net/server.h": "",
    "daemon/rpc/call.h": "", "daemon/session/session.h": "", "daemon/rpc/rpc.h": "", "daemon/model/graph.h": "",
    "daemon/store/store.h": "", "daemon/backend/backend.h": "", "daemon/replica/replica.h": "",
    "proto/tensor.h": "", "ctl/client.h": "",
}

GOOD = [
    ("daemon/net/a.c", '#include "rpc/call.h"\n#include <nghttp2/nghttp2.h>'),
    ("daemon/backend/a.c", '#include "model/graph.h"'),
    ("daemon/backend/onednn/conv.c", "#include <dnnl.h>"),
    ("daemon/backend/onednn_conv.c", "#include <oneapi/dnnl/dnnl.h>"),
    ("daemon/main.c", '#include "net/server.h"\n#include "job/job.h"'),
    ("daemon/config.c", "#include <ini.h>"),
    ("daemon/rpc/a.c", '#include "dps.pb-c.h"\n#include "job/job.h"'),
    ("ctl/client_http2.c", '#include <nghttp2/nghttp2.h>\n#include "proto/tensor.h"'),
    ("ctl/trainer/idx.c", "#include <zlib.h>"),
]

BAD = [
    ("daemon/base/a.c", '#include "job/job.h"', "base may not include job"),
    ("daemon/store/a.c", '#include "model/graph.h"', "store may not include model"),
    ("daemon/replica/a.c", '#include "job/job.h"', "replica may not include job"),
    ("daemon/job/a.c", '#include "net/server.h"', "job may not include net"),
    ("daemon/rpc/a.c", '#include "net/server.h"', "rpc may not include net"),
    ("daemon/net/a.c", '#include "session/session.h"', "net may not include session"),
    ("daemon/net/a.c", '#include "job/job.h"', "net may not include job"),
    ("daemon/model/a.c", '#include "backend/backend.h"', "model may not include backend"),
    ("daemon/backend/a.c", '#include "dps.pb-c.h"', "backend may not include proto"),
    ("daemon/model/a.c", '#  include "../job/../job/job.h"', "model may not include job"),
    ("daemon/model/a.c", "#include <job/job.h>", "model may not include job"),
    ("daemon/newpart/a.c", '#include "base/log.h"', "does not know"),
    ("ctl/a.c", '#include "base/log.h"', "ctl never includes daemon"),
    ("ctl/trainer/a.c", '#include "daemon/base/log.h"', "ctl never includes daemon"),
    ("proto/a.c", '#include "daemon/base/log.h"', "proto includes nothing of ours"),
    ("daemon/rpc/a.c", '#include "ctl/client.h"', "daemon never includes ctl"),
    ("daemon/rpc/a.c", "#include <nghttp2/nghttp2.h>", "belongs into daemon/net"),
    ("daemon/base/a.c", "#include <event2/event.h>", "belongs into daemon/net"),
    ("ctl/render.c", "#include <event2/event.h>", "belongs into daemon/net"),
    ("daemon/job/a.c", "#include <sqlite3.h>", "belongs into daemon/store"),
    ("daemon/replica/a.c", "#include <dnnl.h>", "belongs into daemon/backend/onednn"),
    ("daemon/backend/ref.c", "#include <oneapi/dnnl/dnnl.h>", "belongs into daemon/backend/onednn"),
    ("daemon/replica/a.c", "#include <cuda_runtime.h>", "belongs into daemon/backend/cuda"),
    ("daemon/main.c", "#include <systemd/sd-daemon.h>", "belongs into daemon/service"),
    ("daemon/store/a.c", "#include <zlib.h>", "belongs into ctl"),
    ("daemon/job/a.c", "#include <ini.h>", "belongs into daemon/*.c"),
]


@pytest.mark.parametrize("source,text", GOOD)
def test_green(tmp_path, source, text):
    assert tree(tmp_path, {**HEADERS, source: text}) == []


@pytest.mark.parametrize("source,text,sentence", BAD)
def test_red(tmp_path, source, text, sentence):
    problems = tree(tmp_path, {**HEADERS, source: text})
    assert len(problems) == 1
    assert sentence in problems[0]
    assert source in problems[0]


def test_red_on_a_cycle(tmp_path):
    problems = tree(tmp_path, {
        **HEADERS,
        "daemon/job/a.h": '#include "job/b.h"',
        "daemon/job/b.h": '#include "job/c.h"',
        "daemon/job/c.h": '#include "job/a.h"',
    })
    assert len(problems) == 1
    assert problems[0].startswith("include cycle: ")
    assert all(f"daemon/job/{x}.h" in problems[0] for x in "abc")


def test_exit_status(tmp_path, capsys):
    tree(tmp_path, {**HEADERS, "ctl/a.c": '#include "base/log.h"'})
    assert include_rules.main(["include_rules", str(tmp_path)]) == 1
    assert "ctl/a.c" in capsys.readouterr().out
    assert include_rules.main(["include_rules", str(ROOT)]) in (0, 1)
