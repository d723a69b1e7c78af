#!/usr/bin/env python3
"""release.py check | write [FOLDER]

  check   fails unless the version is the same everywhere: CMakeLists.txt, the
          newest section of CHANGELOG.md, which has a date and nothing before
          it, and no file that git knows has changed
  write   build/release/ with the wheel of build/wheels, the wheels of other
          kinds of CPUs from FOLDER, the sources, checksums and the notes
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "release"


def version_of(root):
    text = (root / "CMakeLists.txt").read_text()
    return re.search(r"project\(canzona VERSION ([\d.]+)", text).group(1)


def sections(root):
    """Title and text of each section of CHANGELOG.md."""
    parts = re.split(r"^## (.+)$", (root / "CHANGELOG.md").read_text(), flags=re.M)
    return [(t.strip(), b.strip()) for t, b in zip(parts[1::2], parts[2::2])]


def notes_of(root, version):
    for title, text in sections(root):
        if re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title):
            return text
    return None


def faults(root):
    version = version_of(root)
    for title, text in sections(root):
        if title.startswith(version + " "):
            break
        if text:
            yield (
                f"CHANGELOG.md: “{title}” comes before {version} and is not empty; "
                "give it a version, here and in CMakeLists.txt"
            )
    if notes_of(root, version) is None:
        yield f"CHANGELOG.md has no section “{version} (YYYY-MM-DD)”"
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        cwd=root, capture_output=True, text=True,
    ).stdout
    if changed:
        yield f"git: changed files, {changed.split()[1]} among them"


def wheel_faults(wheels, version):
    kinds = [re.search(r"_(x86_64|aarch64)\.whl$", w.name) for w in wheels]
    if not wheels:
        yield "there is no wheel; `make wheel` builds one"
    for wheel, kind in zip(wheels, kinds):
        if not wheel.name.startswith(f"canzona-{version}-py3-none-"):
            yield f"{wheel.name} is not of version {version}"
        if kind is None:
            yield f"{wheel.name} is for no CPU that we know"
    found = [kind.group(1) for kind in kinds if kind]
    for kind in sorted({k for k in found if found.count(k) > 1}):
        yield f"there are several wheels for {kind}"


def write_sources(folder, version):
    """What git has, with the file that makes it an sdist."""
    name = f"canzona-{version}"
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, name)
        tree.mkdir()
        archive = Path(scratch, "tree.tar")
        subprocess.run(
            ["git", "archive", "-o", archive, "HEAD"], cwd=ROOT, check=True
        )
        with tarfile.open(archive) as packed:
            packed.extractall(tree)
        (tree / "PKG-INFO").write_text(
            f"Metadata-Version: 2.1\nName: canzona\nVersion: {version}\n"
        )
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as packed:
            packed.add(tree, name)


def write(words):
    version = version_of(ROOT)
    folders = [ROOT / "build" / "wheels", *map(Path, words)]
    wheels = sorted(w for folder in folders for w in folder.glob("*.whl"))
    found = list(wheel_faults(wheels, version))
    if found:
        return found
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_wheel.py", *wheels], check=True
    )
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, OUT)
    write_sources(OUT, version)
    (OUT / "NOTES.md").write_text((notes_of(ROOT, version) or "") + "\n")
    sums = [
        f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n"
        for f in sorted(OUT.iterdir())
    ]
    (OUT / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")
    return []


def main(words):
    if words == ["check"]:
        found = list(faults(ROOT))
    elif words[:1] == ["write"] and len(words) < 3:
        found = write(words[1:])
    else:
        sys.exit(__doc__)
    for fault in found:
        print(f"release: {fault}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
