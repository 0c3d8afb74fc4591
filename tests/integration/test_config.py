"""Configuration: the file, the options, and the example that is shipped."""
import re
import subprocess

import pytest
from harness import BUILD, ROOT


def run(*words):
    return subprocess.run([str(BUILD / "dpsd"), *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=60, stdin=subprocess.DEVNULL)


def settings():
    """{name: default} as dpsd itself prints it."""
    lines = run("--settings").stdout.splitlines()
    return {line[:20].strip(): line[21:49].strip() for line in lines}


def test_example_names_every_setting_with_its_default():
    shown, section = {}, None
    for line in (ROOT / "units/dpsd.conf").read_text().splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif match := re.fullmatch(r"#(\w+) =(.*)", line):
            shown[f"{section}.{match[1]}"] = match[2].strip()
    assert shown == settings()


def test_example_uncommented_is_accepted(tmp_path):
    text = (ROOT / "units/dpsd.conf").read_text()
    active = re.sub(r"^#(\w+ =.*\S)$", r"\1", text, flags=re.M)
    conf = tmp_path / "dpsd.conf"
    conf.write_text(active)
    assert run("--config", conf, "--version").returncode == 0


@pytest.mark.parametrize("text, names", [
    ("[trainer]\nlease = 0\n", ["line 2", "trainer.lease", "1 to 3600"]),
    ("[trainer]\nlaese = 5\n", ["line 2", "trainer.laese"]),
    ("[trainer]\nlease = 5\nnonsense\n", ["line 3"]),
    ("[daemon]\nlog_level = loud\n", ["log_level", "debug"]),
    ("[daemon]\ndevice = cuda:0\n", ["cuda:0", "cpu"]),
])
def test_wrong_file_is_named_with_line_and_remedy(tmp_path, text, names):
    conf = tmp_path / "dpsd.conf"
    conf.write_text(text)
    done = run("--config", conf)
    assert done.returncode == 2
    for name in [str(conf), *names]:
        assert name in done.stderr, done.stderr


@pytest.mark.parametrize("words, names", [
    (["--config", "/nowhere/dpsd.conf"], ["/nowhere/dpsd.conf"]),
    (["--frobnicate"], ["--frobnicate", "--help"]),
    (["--set", "trainer.lease"], ["KEY=VALUE"]),
    (["--set", "trainer.lease=x"], ["trainer.lease"]),
    (["word"], ["word"]),
])
def test_wrong_options_are_named(words, names):
    done = run(*words)
    assert done.returncode == 2
    for name in names:
        assert name in done.stderr, done.stderr


def test_options_go_before_the_file(tmp_path):
    conf = tmp_path / "dpsd.conf"
    conf.write_text("[daemon]\nlog_level = debug\n")
    done = run("--log-level", "loud", "--config", conf)
    assert done.returncode == 2 and "loud" in done.stderr
