"""--print-config, --dry-run, --list-devices, and the flags that need a real process."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.server import UNPACED, run, serving

MIB = 1024 * 1024


def test_the_printed_config_is_a_config_file_with_the_same_meaning(tmp_path: Path) -> None:
    flags = ["-c", "512", "-r", r"a\nb", "-r", r"\\n", "--temp", "0.1", "-ot", "x=CPU"]
    first = run(*flags, "--api-key", "hidden", "--print-config")
    assert first.returncode == 0
    assert "hidden" not in first.stdout
    table = tomllib.loads(first.stdout)
    assert (table["ctx-size"], table["reverse-prompt"]) == (512, ["a\nb", r"\n"])
    file = tmp_path / "c.toml"
    file.write_text(first.stdout)
    second = run("--config", str(file), "--print-config")
    assert second.stdout == first.stdout.replace("# api-key: set, not shown", "# api-key: not set")


def test_a_dry_run_says_what_llama_cpp_then_takes() -> None:
    """Within 1 %, or what rounding to 0.1 MiB leaves: llama.cpp's own log of a real start."""
    flags = ["-c", "1024", "-np", "2", "-ub", "256", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"]
    # Where the processor has AMX weights are copied, and the log has the mapped file's size, too.
    flags.append("--no-repack")
    done = run(*flags, "--dry-run")
    assert done.returncode == 0, done.stderr
    row = re.search(r"^CPU +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.MULTILINE)
    assert row is not None
    weights, cache, computing, together = (float(cell) for cell in row.groups())
    assert together == pytest.approx(weights + cache + computing, abs=0.2)
    assert "2 x 512" in done.stdout
    assert "llama 3.3M Q8_0, 3,344,640 parameters" in done.stdout
    with serving(*flags, "-v") as server:
        # Lines of its thread for the log come when they come.
        server.until(lambda: "compute buffer size" in server.log.read_text())
        log = server.log.read_text()
    for name, planned in (("model", weights), ("KV", cache), ("compute", computing)):
        taken = sum(
            float(size) for size in re.findall(rf"CPU\S* +{name} buffer size = +([\d.]+) MiB", log)
        )
        assert taken > 0, name
        assert planned == pytest.approx(taken, rel=0.01, abs=0.06), name


def test_a_dry_run_of_no_model_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"nothing")
    done = run("-m", str(file), "--dry-run")
    assert done.returncode == 1
    assert str(file) in done.stderr


def test_devices_are_listed() -> None:
    done = run("--list-devices")
    assert (done.returncode, done.stdout) == (0, "Available devices:\n  (none)\n")


def test_version_among_other_flags_as_scripts_write_it() -> None:
    assert run("-m", "x.gguf", "--version").stdout.startswith("unpaced ")


def test_the_process_stays_on_the_cores_it_was_given() -> None:
    core = max(os.sched_getaffinity(0))
    with serving("--cpu-range", f"{core}-{core}", "-c", "64") as server:
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            allowed = re.search(r"Cpus_allowed_list:\s+(\S+)", (task / "status").read_text())
            assert allowed is not None and allowed[1] == str(core)
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
    done = run("--cpu-mask", "8" + "0" * 120)
    assert done.returncode == 1
    assert "this process may run on none of the cores" in done.stderr


def test_priority() -> None:
    with serving("--prio", "-1", "-c", "64") as server:
        assert os.getpriority(os.PRIO_PROCESS, server.process.pid) == 5


def test_lora_scales_of_the_server_and_of_a_request(tmp_path: Path) -> None:
    from tests.support.gguf_files import make_lora

    adapter = str(make_lora(tmp_path / "a.gguf", strength=0.5))
    shown = {"id": 0, "path": adapter, "scale": 0.5, "task_name": "", "prompt_prefix": ""}
    with serving("--lora-scaled", f"{adapter}:0.5", "-c", "64") as server:

        def answer(**body: object) -> str:
            # Without cells of before: a prompt in one batch has other roundings than in two.
            asked = {"n_predict": 24, "temperature": 0, "cache_prompt": False, **body}
            response = server.post("/completion", {"prompt": "Once upon", **asked})
            return str(response.json()["content"])

        assert server.client.get("/lora-adapters").json() == [shown]
        half, one, none = (answer(lora=[{"id": 0, "scale": scale}]) for scale in (0.5, 1, 0))
        assert len({half, one, none}) == 3
        assert answer() == answer(lora=[]) == half
        for scales, expected in (([{"id": 0, "scale": 1}], one), ([], none)):
            assert server.post("/lora-adapters", scales).json() == {"success": True}
            assert answer() == expected
            assert answer(lora=[{"id": 0, "scale": 0.5}]) == half
        assert server.client.get("/lora-adapters").json() == [shown | {"scale": 0.0}]
        asked = [{"id": 0, "scale": 0.25}]
        settings = server.complete(prompt="x", n_predict=1, lora=asked)["generation_settings"]
        assert settings["lora"] == asked
        wrong: list[object] = [[{"id": 1, "scale": 1}], [{"scale": 1}], [{"id": 0, "scale": "x"}]]
        for bad in (*wrong, [5], {}):
            assert server.post("/lora-adapters", bad).status_code == 400, bad
            refused = server.post("/completion", {"prompt": "x", "lora": bad})
            assert refused.status_code == 400, bad
            assert refused.json()["error"]["param"] == "lora"


def test_a_slot_is_not_restored_under_options_that_change_its_cells(tmp_path: Path) -> None:
    from tests.support.gguf_files import make_lora

    adapter = str(make_lora(tmp_path / "a.gguf"))
    flags = ("-c", "256", "--slot-save-path", str(tmp_path))
    with serving(*flags) as server:
        server.complete(prompt="Once upon a time", n_predict=2)
        assert server.post("/slots/0?action=save", {"filename": "s"}).status_code == 200
        assert server.post("/slots/0?action=restore", {"filename": "s"}).status_code == 200
    for changed in (("--lora", adapter), ("--rope-freq-base", "500")):
        with serving(*flags, *changed) as server:
            response = server.post("/slots/0?action=restore", {"filename": "s"})
            assert response.status_code == 400, response.text


def test_a_models_sampling_defaults_are_the_servers(tmp_path: Path) -> None:
    from gguf import GGUFValueType

    from tests.support.gguf_files import copy_with_keys

    model = copy_with_keys(
        tmp_path / "m.gguf",
        general__sampling__temp=(GGUFValueType.FLOAT32, 0.25),
        general__sampling__top_k=(GGUFValueType.INT32, 7),
    )
    with serving("-m", str(model), "-c", "64", "--top-k", "3") as server:
        params = server.client.get("/props").json()["default_generation_settings"]["params"]
        assert (params["temperature"], params["top_k"]) == (0.25, 3)
        used = server.complete(prompt="x", n_predict=1)["generation_settings"]
        assert (used["temperature"], used["top_k"]) == (0.25, 3)


@pytest.mark.parametrize("flags", [("-np", "1"), ("--no-kv-unified",), ("--dry-run",)])
def test_a_context_that_no_memory_holds_is_refused_with_its_size(flags: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(UNPACED), "serve", "--port", "0", "-c", "2000000000", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "GiB of host memory" in done.stderr
    assert "--ctx-size" in done.stderr
