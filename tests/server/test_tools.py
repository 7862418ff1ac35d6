"""tools/serve.py and benchmarks/serving.py from the command line."""

import json

import pytest

from tests.tools.running import run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=/nowhere"], "error: --model must be a directory"),
        (["--model=.", "--model_name=a/b"], "error: --model_name must be a name without slashes"),
        (["--model=.", "--model_name=x", "forgotten"], "Arguments must be flags"),
        (["--model=.", "--port=70000"], "--port"),
        (["--model=.", "--max_rows=0"], "--max_rows"),
        (["--model=.", "--grpc_port=70000"], "--grpc_port"),
        (["--model=.", "--model_name=x", "--version_labels=a"], "--version_labels must be labels"),
        (["--model=.", "--model_name=x", "--version_labels=a=1,a=2"], "--version_labels must have"),
        (["--model=.", "--model_name=x", "--allowed_hosts=a:1"], "--allowed_hosts must be names"),
        (["--model=.", "--model_name=x", "--allowed_origins=a"], "--allowed_origins must be"),
        (["--model=.", "--model_name=x", "--api_key_file=/nowhere"], "--api_key_file must be"),
    ],
)
def test_flags_are_checked_before_any_work(arguments, message):
    result = run("serve", *arguments)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert message in result.stderr + result.stdout


def test_load(server, tmp_path):
    (tmp_path / "texts.txt").write_text("good film\n\nbad\n", encoding="utf-8")
    result = run(
        "benchmarks.serving",
        f"--text_file={tmp_path}/texts.txt",
        "--concurrency=1,3",
        f"--url=http://127.0.0.1:{server.port}/v1/models/tiny:predict",
        "--input_name=text",
        "--requests=9",
        "--warm_up=1",
        f"--json={tmp_path}/load.json",
    )
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "load.json").read_text())
    counts = [(row["clients"], row["requests"], row["failed"]) for row in rows]
    assert counts == [(1, 9, 0), (3, 9, 0)]
    assert all(len(row["latencies"]) == 9 for row in rows)
    refused = run(
        "benchmarks.serving",
        f"--text_file={tmp_path}/texts.txt",
        "--concurrency=1",
        f"--url=http://127.0.0.1:{server.port}/v1/models/other:predict",
        "--requests=2",
    )
    assert refused.returncode == 1 and "Requests failed" in refused.stderr
