#!/usr/bin/env python3
"""What Freehold is made of, from Cargo's own account of it.

--sbom writes a bill of materials (CycloneDX 1.5, JSON): every crate that is linked into the binary
on this platform, with version, checksum, licence and what it depends on. --notices writes the
licence of each, and the texts that the licences want passed on, each text once.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

TEXTS = re.compile(r"^(licen[sc]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def linked():
    """The packages of a normal build for this host, and the edges between them."""
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True)).group(1)
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", host]
    told = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in told["packages"]}
    edges = {}
    for node in told["resolve"]["nodes"]:
        kept = [
            dep["pkg"]
            for dep in node["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        ]
        edges[node["id"]] = sorted(kept)
    root = told["resolve"]["root"]
    found, waiting = set(), [root]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting.extend(edges[package])
    return root, {id: packages[id] for id in found}, edges


def checksums():
    lock = pathlib.Path("Cargo.lock").read_text()
    entry = re.compile(r'name = "([^"]+)"\nversion = "([^"]+)"\n(?:source = [^\n]+\n)?checksum = "([0-9a-f]{64})"')
    return {(name, version): sum for name, version, sum in entry.findall(lock)}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def bill(root, packages, edges):
    sums = checksums()

    def component(package):
        told = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "licenses": [{"expression": spdx(package)}],
        }
        digest = sums.get((package["name"], package["version"]))
        if digest:
            told["hashes"] = [{"alg": "SHA-256", "content": digest}]
        if package.get("repository"):
            told["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return told

    others = sorted((p for id, p in packages.items() if id != root), key=purl)
    main = component(packages[root]) | {"type": "application"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main},
        "components": [component(package) for package in others],
        "dependencies": [
            {"ref": purl(packages[id]), "dependsOn": [purl(packages[to]) for to in edges[id]]}
            for id in sorted(packages, key=lambda id: purl(packages[id]))
        ],
    }


def spdx(package):
    """Some crates still write `MIT/Apache-2.0`, which is no expression."""
    return (package.get("license") or "NOASSERTION").replace("/", " OR ")


def notices(root, packages):
    texts = collections.defaultdict(list)
    lines = ["Freehold links the following libraries.", ""]
    for id, package in sorted(packages.items(), key=lambda pair: purl(pair[1])):
        if id == root:
            continue
        named = f"{package['name']} {package['version']}"
        lines.append(f"{named}: {spdx(package)}")
        folder = pathlib.Path(package["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and TEXTS.match(path.name) and path.suffix not in (".rs", ".toml"):
                text = path.read_text(errors="replace").strip().replace("\r\n", "\n")
                if text:
                    texts[text].append(named)
    for text, named in texts.items():
        lines += ["", "-" * 78, "Text of " + ", ".join(named) + ":", "", text]
    return "\n".join(lines) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sbom", type=pathlib.Path, required=True)
    arguments.add_argument("--notices", type=pathlib.Path, required=True)
    asked = arguments.parse_args()
    root, packages, edges = linked()
    missing = [purl(package) for package in packages.values() if not package.get("license")]
    if missing:
        sys.exit("no licence is known of " + ", ".join(missing))
    asked.sbom.write_text(json.dumps(bill(root, packages, edges), indent=1) + "\n")
    asked.notices.write_text(notices(root, packages))
    print(f"{len(packages) - 1} libraries")


if __name__ == "__main__":
    main()
