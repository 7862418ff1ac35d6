"""What all tests share: one TensorFlow, the materials that `make materials` fetched, tiny models.

Tests never download, except that two of the full suite call `make transformers4`. A skip must be
listed in EXPECTED_SKIPS, or the run fails.
"""

import functools
import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# NumPy's threads wait by spinning, which takes the cores from TensorFlow's and the other process's.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pathlib
import re
import sys
import time
import typing
from unittest import mock

import pytest

from tests.changed import changed_files, nearby_tests
from tests.training import processes

# PyTorch's compiler and TensorFlow bring an LLVM each, and a process that loads both ends. Without
# triton PyTorch does not load its own.
sys.modules["triton"] = None
# Before 3.12 Python lists the members of a protocol for each `isinstance`, and TensorFlow asks for
# each argument of an operation: a twentieth of the time of tracing.
typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
MATERIALS = pathlib.Path(os.environ.get("BERT_TF_MATERIALS", REPOSITORY / ".cache" / "materials"))

# The beginning of every reason for which a test may be skipped, and why that is no loss.
EXPECTED_SKIPS = {
    "needs a processor with": "the other instruction sets' paths are tested where they exist",
    "needs transformers and PyTorch": "optional: pip install transformers torch; formats are "
    "tested with files made without them too",
    "needs transformers and rjieba": "optional: pip install transformers rjieba jieba; ids are "
    "compared with those of tokenizers, with a fake dictionary, in every run",
    "needs transformers 4.57 with TensorFlow": "`make transformers4` installs it from PyPI, if "
    "Python is 3.10 to 3.12; files as it writes them are read in every run",
    "needs ai-edge-litert": "optional: in the `test` extra",
    "needs an environment without zentf": "an optional peer: what is said where it is missing",
    "needs tensorboard": "optional: in the `full` extra",
    "needs lit-nlp": "optional: pip install lit-nlp, which asks for NumPy 1",
    "needs faiss": "optional: in the `search` extra",
    "needs gensim": "optional: in the `test` extra",
    "needs usearch": "optional: in the `search` extra",
    "needs sentence-transformers": "optional: pip install sentence-transformers",
    "needs nbclient and ipykernel": "optional: in the `notebooks` extra",
    "needs huggingface_hub": "optional: only names on the Hugging Face Hub need it",
    "needs mteb": "optional: pip install mteb, which needs PyTorch",
    "needs bm25s": "optional: in the `test` extra",
    "needs pytrec-eval": "optional: pip install pytrec-eval-terrier; the scores are compared with "
    "their definitions in every run",
    "needs python-crfsuite": "optional: only the baseline of tagging needs it",
    "needs sentencepiece": "optional: in the `test` extra",
    "needs sacrebleu and rouge-score": "optional: in the `full` extra",
    "needs apache-beam": "optional: in the `test` extra",
    "needs pandas": "optional: in the `test` extra",
    "needs polars": "optional: in the `test` extra",
    "needs pyarrow": "optional: in the `test` extra",
    "needs datasets": "optional: in the `test` extra",
    "needs selenium": "optional: pip install selenium; only the page's test in a browser needs it",
    "needs openvino": "optional: in the `full` extra",
    "needs onnxruntime": "optional: in the `full` extra",
    "needs tf2onnx": "optional: in the `full` extra",
    "needs rouge-score": "optional: in the `full` extra",
    "needs tensorflow-serving-api": "optional: in the `test` extra",
    "needs grpcio": "optional: tensorflow-serving-api brings it",
    "needs grpcio-health-checking": "optional: in the `test` extra",
    "needs root": "only root can mount a small disk",
    "needs a browser": "optional: Debian's chromium and chromium-driver, for the page's test",
    "needs multilingual_e5": "91 MB: research/fetch_materials.py --materials=multilingual_e5",
    "needs apt-get": "the ordered text is a Debian package",
    "needs the native ops": "a run with BERT_TF_OPS=reference tests the reference alone",
    "needs a TensorFlow with the headers of XLA": "2.19's wheel has none: there jit_compile takes "
    "the reference",
    "needs Linux": "elsewhere the system does not watch for clients that read nothing",
    "needs JAX": "optional: pip install jax, in an environment of its own",
    "needs BERT_TF_CUDNN_PYTHON": "optional: docs/performance/gpu.md; without cuDNN's compiler the "
    "choice of calls, their arguments and the linking are tested",
    "needs NVRTC": "optional: pip install nvidia-cuda-nvrtc-cu12, 90 MB",
    "needs a machine without a GPU": "what is said there is tested there",
    "no time left": "`make check` ends after two minutes; `make test` runs it",
}

# With --longest-share a test, or the fixtures that it is the first to need, that takes a larger
# share of the run fails it, unless its name begins with one of these, which say why.
MAY_TAKE_LONGER = {
    "tests/inputs/test_long_texts.py::test_key_sentences": "imports scikit-learn from a cold disk",
    "tests/fuzz/test_fuzz.py": "the first one opens the mutants of all formats, two at a time",
    "tests/ops/test_cuda_compiles.py": "NVRTC starts, and compiles",
    "tests/serving/test_c_program.py": "MiniLM is exported twice and a C program compiled",
    "tests/test_documents.py::test_the_second_example_learns": "MiniLM is fine-tuned",
    "tests/models/test_subword_models.py::test_a_classifier": "from its pieces to a served model",
    "tests/tools/test_workers.py::test_two_workers": "two programs that wait",
    "tests/benchmarks/test_main.py::test_a_tiny_run": "times other libraries too",
    "tests/tools/test_original_command_lines.py": "whole examples of the original's",
}
# Files that take long for their number of tests. They run first: at the end of a run one of them
# would leave the other processor idle.
LONG_FILES = (
    "tests/fuzz/test_fuzz.py",
    "tests/test_crash_consistency.py",
    "tests/tools/test_run_pretraining.py",
    "tests/adapt/test_partly_quantized.py",
    "tests/training/checkpointing/test_checkpointing.py",
    "tests/conformance/test_training.py",
    "tests/training/test_freezing.py",
    "tests/training/test_traced_steps.py",
    "tests/training/test_training_model.py",
    "tests/text/test_subword_exactness.py",
    "tests/conformance/test_serving.py",
    "tests/conformance/test_replicas.py",
    "tests/text/test_exactness.py",
    "tests/tasks/pretraining/test_text.py",
    "tests/models/test_raw_text_model.py",
    "tests/test_docstrings.py",
    "tests/ops/test_cuda_compiles.py",
    "tests/serving/test_c_program.py",
    "tests/serving/test_tasks.py",
)
# What compares our kernels' numbers with others runs once per instruction set (the marker
# `numbers`). The rest of the tests reach the kernels through these layers and models.
TESTS_OF_NUMBERS = (
    "tests/adapt/test_calibration.py",
    "tests/adapt/test_quantize.py",
    "tests/checkpoints/test_numbers.py",
    "tests/conformance/test_models.py",
    "tests/conformance/test_ops.py",
    "tests/layers/",
    "tests/models/test_backbone.py",
    "tests/models/test_prepack_for_inference.py",
    "tests/ops/",
    "tests/training/optimizers/",
)
# What does not depend on the instructions, although it is in those files: XLA and traced functions
# call the same kernels, and errors come before a kernel.
_WITHOUT_NUMBERS = re.compile(
    "xla|unknown|saved|refuse|errors_say|shape_function|cuda|gpu|config|no_gradient|bad_|"
    # Models are made and called as they are everywhere; the reference draws; rows are gathered.
    "test_models.py::test_(an_empty|answers|built|dropout)|"
    "ops/test_(compilers|native|philox|second_order|signatures|tflite)|"
    "layers/test_(crf|initial_weights|kernel_choice|lstm|scalar_mix|token_layout|whitening)"
)
# Here graphs are optimized as users' are; see `optimize_graphs`.
OPTIMIZED_GRAPHS = ("tests/conformance/", "tests/ops/", "tests/serving/", "tests/quality/")
ALWAYS_CHECKED = "tests/test_docstrings.py"  # by `make check`, whatever has changed

_unexpected_skips = []
_took = []  # (seconds, which test)
_STARTED = pytest.StashKey[float]()


def pytest_addoption(parser):
    group = parser.getgroup("bert_tf")
    group.addoption(
        "--changed-since",
        metavar="REVISION",
        help="run the tests that the changes since a git revision call for, nearest first",
    )
    group.addoption(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="after so many seconds the tests that are left are skipped",
    )
    group.addoption(
        "--longest-share",
        type=float,
        metavar="PERCENT",
        help="fail if a test takes more of the time of all and MAY_TAKE_LONGER does not name it",
    )


@functools.cache
def _name_of(path):
    return path.resolve().relative_to(REPOSITORY).as_posix()


def _file_of(item):
    return _name_of(item.path)


def pytest_ignore_collect(collection_path, config):
    """Where only the tests of numbers run, the other files are not even imported."""
    if config.option.markexpr.startswith("numbers") and collection_path.name.startswith("test_"):
        return True if not _name_of(collection_path).startswith(TESTS_OF_NUMBERS) else None
    return None


def pytest_itemcollected(item):
    where = f"{_file_of(item)}::{item.originalname}"
    if where.startswith(TESTS_OF_NUMBERS) and not _WITHOUT_NUMBERS.search(where):
        item.add_marker("numbers")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    revision = config.getoption("--changed-since")
    if revision is None:
        order = {file: place for place, file in enumerate(LONG_FILES)}
        items.sort(key=lambda item: order.get(_file_of(item), len(order)))
        return
    try:
        changed = changed_files(REPOSITORY, revision)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    distances = {ALWAYS_CHECKED: -1, **nearby_tests(REPOSITORY, changed)}
    chosen = [item for item in items if _file_of(item) in distances]
    config.hook.pytest_deselected(items=[item for item in items if _file_of(item) not in distances])
    order = list(distances)
    items[:] = sorted(chosen, key=lambda item: order.index(_file_of(item)))


def optimize_graphs(is_wanted: bool) -> None:
    """Says whether TensorFlow optimizes graphs before it computes them.

    Tests compute most graphs once, which takes a fraction of the time of optimizing them. Once
    TensorFlow has started, only functions follow; datasets stay as they were.
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_wanted})


def keep_no_stacks() -> None:
    """Operations of graphs keep no Python stack, like those that TensorFlow adds: `op.traceback` is
    None. The stacks took a tenth of the time of tracing.

    If all operations had the same stack, TensorFlow would end in a segmentation fault.
    """
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.util import tf_stack

    tf_stack.extract_stack = lambda stacklevel=1: None
    pywrap_tf_session.TF_SetOpStackTrace = lambda operation, stack: None


def pytest_collectstart():
    """Pytest calls this for what is in this folder, not for the session."""
    optimize_graphs(False)
    keep_no_stacks()


def pytest_configure(config):
    config.stash[_STARTED] = time.monotonic()
    # Tracing makes millions of objects that live on, among which Python looks for garbage after
    # each 700: a twentieth of the processor time. Each module's garbage is collected at its end.
    gc.set_threshold(50_000, 20, 100)


def pytest_runtest_setup(item):
    limit = item.config.getoption("--time-limit")
    if limit is not None and time.monotonic() - item.config.stash[_STARTED] > limit:
        pytest.skip("no time left")


def pytest_runtest_logreport(report):
    _took.append((report.duration, f"{report.nodeid}: {report.when}"))
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(tuple(EXPECTED_SKIPS)):
            _unexpected_skips.append(f"{report.nodeid}: {reason}")


def _too_long(config):
    """A share, because machines differ: on a slow one every test takes longer."""
    percent = config.getoption("--longest-share")
    if percent is None:
        return []
    limit = percent / 100 * sum(seconds for seconds, _ in _took)
    return [
        f"{which} took {seconds:.1f} s, and no test may take longer than {limit:.1f} s"
        for seconds, which in _took
        if seconds > limit and not which.startswith(tuple(MAY_TAKE_LONGER))
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Says last why a run fails in which no test did."""
    processes.kill_all()
    why = [f"UNEXPECTED SKIP {line}" for line in _unexpected_skips]
    why += [f"TOO LONG {line}" for line in _too_long(session.config)]
    if why and session.exitstatus == 0:
        session.exitstatus = 1
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for line in why if reporter else []:
        reporter.write_line(line, red=True)


def pytest_generate_tests(metafunc):
    """A test that takes `is_full` runs with few cases, and in the full suite with many too."""
    if "is_full" in metafunc.fixturenames:
        many = pytest.param(True, marks=pytest.mark.full)
        metafunc.parametrize("is_full", [False, many], ids=["few", "many"], scope="session")


@pytest.fixture(autouse=True, scope="module")
def garbage_is_collected():
    """What a module leaves is freed when it ends, a little at a time, and then not looked at again.

    Left to itself, Python frees the graphs of fifty modules at once, which takes TensorFlow 40 s.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def kernels_are_kept(garbage_is_collected, request):
    """Within a module, seeding TensorFlow leaves it its kernels.

    It forgets all of them otherwise, for the sake of the few that hold a state. Then every test
    optimizes again the graphs that it has in common with others, the tokenizer's above all: a third
    of the processor time of some modules. Keras draws by kernels without a state.
    """
    import keras
    from tensorflow.python.eager import context

    keras.utils.set_random_seed(0)  # a module's fixtures draw what they drew before
    optimize_graphs(_file_of(request.node).startswith(OPTIMIZED_GRAPHS))
    with mock.patch.object(context.pywrap_tfe, "TFE_ContextClearCaches"):
        yield


@pytest.fixture(autouse=True)
def seeds(kernels_are_kept):
    """Every test draws what it drew before: one that trains passes always or never."""
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture
def eager_steps():
    """Models train and predict operation by operation: tracing takes longer than a few steps.

    It is for tests of what steps that are traced and steps that are not have in common, such as
    files and options. What they do not have in common is tested in tests/training.
    """
    import keras

    # Our models trace their steps whatever `tf.config.run_functions_eagerly` says.
    is_eager = property(lambda model: True, lambda model, value: None)
    with mock.patch.object(keras.Model, "run_eagerly", is_eager):
        yield


@pytest.fixture(scope="session")
def materials() -> pathlib.Path:
    """The folder that research/fetch_materials.py filled."""
    if not MATERIALS.is_dir():
        pytest.fail(f"{MATERIALS} is missing: run `make materials` first")
    return MATERIALS


@pytest.fixture(scope="session")
def minilm(materials) -> pathlib.Path:
    """Real weights: all-MiniLM-L6-v2."""
    return materials / "minilm"


@pytest.fixture
def fake_jieba(monkeypatch):
    """`tests.text.fake_jieba.install`, which one test has called."""
    from tests.text import fake_jieba

    for name in ("rjieba", "jieba"):
        monkeypatch.setitem(sys.modules, name, None)
    fake_jieba.install()
    yield fake_jieba.install
    fake_jieba.jieba_cut.cache_clear()


@pytest.fixture(scope="session")
def tiny_config():
    from bert_tf import BertConfig

    return BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.1,  # so tiny a network learns nothing from 0.02
    )


@pytest.fixture(scope="session")
def tiny_vocabulary() -> list[str]:
    """64 entries: the special tokens, letters, their continuations and a few words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["good", "bad", "film", "the", "."]
    vocabulary = special + words + letters + [f"##{letter}" for letter in letters]
    return vocabulary + [f"[unused{index}]" for index in range(64 - len(vocabulary))]
