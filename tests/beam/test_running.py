"""A pipeline that fails is started again."""

import functools
import os
import signal

import pytest

pytest.importorskip("apache_beam", reason="needs apache-beam")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from bert_tf.beam.running import run_pipeline
from bert_tf.errors import ConfigError, UserError

DIRECT = ["--runner=DirectRunner", "--allow_unsafe_triggers"]
PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


class Fail(beam.DoFn):
    """Fails, or kills its process, as often as there are files in a directory."""

    def __init__(self, directory, kills):
        self.directory, self.kills = directory, kills

    def process(self, number):
        files = os.listdir(self.directory)
        if files:
            os.remove(os.path.join(self.directory, files[0]))
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("no luck")
        yield number


def build(directory, kills, pipeline):
    pipeline | beam.Create([1]) | beam.ParDo(Fail(directory, kills))


def run(tmp_path, failures, max_retries, kills=False, options=()):
    for number in range(failures):
        (tmp_path / f"{number}").touch()
    arguments = functools.partial(build, str(tmp_path), kills)
    run_pipeline(arguments, PipelineOptions([*DIRECT, *options]), max_retries)
    assert not os.listdir(tmp_path)


def test_it_is_started_again(tmp_path, capsys):
    run(tmp_path, failures=2, max_retries=2)
    printed = capsys.readouterr().err
    assert "no luck" in printed and "1 more attempts" in printed


def test_too_many_failures(tmp_path):
    with pytest.raises(UserError, match="(?s)Received, 2 times: .*OSError: no luck"):
        run(tmp_path, failures=2, max_retries=1)
    with pytest.raises(ConfigError, match="`max_retries` must be at least 0"):
        run(tmp_path, failures=0, max_retries=-1)


@pytest.mark.full
def test_a_killed_worker(tmp_path, capsys):
    run(tmp_path, failures=1, max_retries=1, kills=True, options=PROCESSES)
    assert "a worker process was lost" in capsys.readouterr().err
