"""What the prepared runs share: their flags, their time, the files of their results.

A result is in the files as soon as it is known, so a run that is killed loses nothing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_PROPERTIES = (
    "name", "driver_version", "compute_cap", "memory.total", "clocks.max.sm", "clocks.max.memory",
    "power.limit", "ecc.mode.current",
)  # fmt: skip


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags of all runs."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--minutes", type=float, default=9.0, help="The run ends by then.")
    flags.add_argument(
        "--output_dir", type=pathlib.Path, required=True, help="A folder for the results."
    )
    flags.add_argument(
        "--rehearse", action="store_true", help="Run on a CPU, small, to the last line."
    )
    return flags


class Session:
    """The time of a run, and its results as NAME.json and NAME.md in the output directory.

    At the end of the time the process ends with what has been found, whatever it is doing.
    """

    def __init__(self, name: str, flags: argparse.Namespace):
        self.start = time.monotonic()
        self.seconds = 60 * flags.minutes
        self.path = flags.output_dir / name
        self.found = {
            "run": name,
            "rehearsal": flags.rehearse,
            "facts": {"gpu": gpu_properties(), "python": sys.version.split()[0]},
            "tables": {},
            "problems": [],
            "end": "killed",
        }
        flags.output_dir.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._watch = threading.Timer(self.seconds, self._end_of_time)
        self._watch.daemon = True
        self._watch.start()
        self.save()

    def left(self) -> float:
        """Returns the seconds that are left."""
        return self.start + self.seconds - time.monotonic()

    def fact(self, name: str, value) -> None:
        self.found["facts"][name] = value
        self.save()

    def put(self, table: str, what: str, **values) -> None:
        """Adds a row to a table, or replaces it, and prints it."""
        self.found["tables"].setdefault(table, {})[what] = values
        print(
            f"{self.seconds - self.left():6.1f} s  {table} | {what} | {_text(values)}", flush=True
        )
        self.save()

    def problem(self, text: str) -> None:
        self.found["problems"].append(text)
        print(f"PROBLEM {text}", flush=True)
        self.save()

    def attempt(self, what: str, function, *, least_seconds: float = 0.0):
        """Calls a function if there is time, and makes an error a problem; returns its result."""
        if self.left() < least_seconds:
            self.problem(f"{what}: left out, for {self.left():.0f} s were left")
            return None
        try:
            return function()
        except Exception as error:  # whatever fails, the next measurement counts
            self.problem(f"{what}: {type(error).__name__}: {str(error)[-1500:]}")
            return None

    def finish(self) -> int:
        """Ends the run; returns the status of the program: 1 if there was a problem."""
        self._watch.cancel()
        self.found["end"] = f"complete after {self.seconds - self.left():.0f} s"
        self.save()
        print(f"{self.path}.md: {self.found['end']}, {len(self.found['problems'])} problems")
        return 1 if self.found["problems"] else 0

    def save(self) -> None:
        with self._lock:
            text = json.dumps(self.found, indent=1, default=str) + "\n"
            _write(self.path.with_suffix(".json"), text)
            _write(self.path.with_suffix(".md"), markdown(self.found))

    def _end_of_time(self):
        self.found["end"] = f"its {self.seconds:.0f} s were over"
        self.save()
        print(f"{self.path}.md: {self.found['end']}", flush=True)
        os._exit(3)


def markdown(found: dict) -> str:
    """Formats the results of a run."""
    kind = ", a rehearsal without a GPU" if found["rehearsal"] else ""
    lines = [f"# {found['run']}{kind}: {found['end']}", ""]
    lines += [f"- {name}: {_text(value)}" for name, value in found["facts"].items()]
    for title, rows in found["tables"].items():
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        lines += [
            "",
            f"| {title} | " + " | ".join(columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        for what, row in rows.items():
            cells = [_text(row.get(name, "")) for name in columns]
            lines.append(f"| {what} | " + " | ".join(cells) + " |")
    lines.append("")
    for problem in found["problems"]:
        first, *_, last = [*problem.strip().splitlines(), ""]
        lines.append(f"- PROBLEM {first} ... {last}" if last else f"- PROBLEM {first}")
    return "\n".join(lines) + "\n"


def gpu_properties() -> dict[str, str]:
    """Returns what nvidia-smi says of the first GPU, and no items without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_PROPERTIES)}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_PROPERTIES, answer.stdout.splitlines()[0].split(", "), strict=False))


def built(*targets: str) -> list[pathlib.Path]:
    """Builds targets of custom_ops with Bazel and returns their files.

    Raises:
        RuntimeError: If there is no Bazel.
    """
    import configure

    bazel = configure.find_bazel()
    if bazel is None:
        raise RuntimeError("bazel or bazelisk must be on PATH. Received: none. Run `make system`.")
    # Bazel compiles everything again if LD_LIBRARY_PATH, in which NVRTC may be, is another.
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    options = {"cwd": ROOT, "check": True, "env": env}
    subprocess.run([bazel, "build", *(f"//custom_ops/{target}" for target in targets)], **options)
    command = [bazel, "info", "bazel-bin"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    folder = pathlib.Path(answer.stdout.strip()) / "custom_ops"
    return [folder / target.replace(":", "/") for target in targets]


def _text(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return str(value).replace("|", "/").replace("\n", " ")


def _write(path: pathlib.Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
