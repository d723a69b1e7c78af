"""scripts/check_wheel.py and scripts/release.py refuse what strangers cannot use."""

import importlib.util
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE = platform.machine()
NAME = f"canzona-0.0.1-py3-none-manylinux_2_34_{MACHINE}.whl"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "readelf")))
    or MACHINE not in ("x86_64", "aarch64"),
    reason="there is no C compiler, or no readelf",
)


@pytest.mark.parametrize("cuda", ["12.8", "11.8", "14.0"])
def test_a_torch_for_another_cuda_is_refused_in_a_sentence(cuda, monkeypatch):
    import torch

    import canzona
    from canzona._library import load

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr("canzona._library._loaded", {})
    with pytest.raises(canzona.UsageError, match=f"built for CUDA {cuda}"):
        load("cuda:0")
    assert load("cpu").version()


def script(name):
    path = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(folder, name, text, *words):
    source = folder / "source.c"
    source.write_text(text)
    out = folder / name
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", out, source, *words], check=True
    )


def wheel_of(folder, texts, name=NAME, words=()):
    """A wheel whose files are compiled from these."""
    for file in script("check_wheel").FILES:
        compiled(
            folder, file, texts.get(file, "int one(void) { return 1; }"), *words
        )
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file in script("check_wheel").FILES:
            archive.write(folder / file, file)
    return path


def said_of(path, *words):
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_wheel.py", path, *words],
        capture_output=True,
        text=True,
    )
    return result.returncode, result.stdout + result.stderr


CUDA = "canzona/lib/libcanzona_cuda.so"


def test_a_good_wheel_passes(tmp_path):
    calls = "void cublasCreate_v2(void); void f(void) { cublasCreate_v2(); }"
    status, text = said_of(wheel_of(tmp_path, {CUDA: calls}))
    assert status == 0 and text.endswith("fit\n"), text


# Name, source, further words of the linker, what is said.
BAD = {
    "newer glibc": (
        'char* f(void); asm(".symver g,arc4random@GLIBC_2.36");'
        "unsigned g(void); unsigned h(void) { return g(); }",
        (),
        "needs GLIBC_2.36 (arc4random)",
    ),
    "another library": (
        "double f(double x) { return x; }",
        ("-Wl,--no-as-needed", "-lgcc_s"),
        "needs libgcc_s.so.1",
    ),
    "a name that nobody has": (
        "void elsewhere(void); void f(void) { elsewhere(); }",
        (),
        "misses elsewhere",
    ),
    "a folder of this machine": (
        "int f(void) { return 0; }",
        ("-Wl,-rpath,/home",),
        "RUNPATH",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_bad_library_is_refused(name, tmp_path):
    text, words, expected = BAD[name]
    status, said = said_of(wheel_of(tmp_path, {CUDA: text}, words=words))
    assert status == 1 and expected in said, said


def test_a_bad_wheel_is_refused(tmp_path):
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    good = wheel_of(tmp_path, {})
    status, said = said_of(good.rename(tmp_path / NAME.replace(MACHINE, other)))
    assert status == 1 and f"is not for {other}" in said
    (tmp_path / "linux").mkdir()
    status, said = said_of(
        wheel_of(
            tmp_path / "linux", {}, NAME.replace("manylinux_2_34", "linux")
        )
    )
    assert status == 1 and "is not called" in said
    empty = tmp_path / NAME
    with zipfile.ZipFile(empty, "w"):
        pass
    status, said = said_of(empty)
    assert status == 1 and "has no canzona/bin/canzona" in said


def test_a_large_wheel_is_refused(tmp_path, monkeypatch):
    check = script("check_wheel")
    monkeypatch.setattr(check, "LARGEST", 10)
    said = list(check.faults(wheel_of(tmp_path, {}), set(check.FILES)))
    assert len(said) == 1 and "are more than 45" in said[0]


def release_tree(folder, version="1.2.0", changes=""):
    (folder / "CMakeLists.txt").write_text(
        f"project(canzona VERSION {version} LANGUAGES CXX)\n"
    )
    (folder / "CHANGELOG.md").write_text(
        f"# Changes\n\n## Unreleased\n{changes}\n"
        "## 1.2.0 (2026-01-02)\n\n- One.\n- Two.\n\n## 1.1.0 (2025-01-02)\n\n- Old.\n"
    )
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_versions_are_checked(tmp_path):
    release = script("release")
    good = release_tree(tmp_path)
    assert list(release.faults(good)) == []
    assert release.notes_of(good, "1.2.0") == "- One.\n- Two."
    (good / "CHANGELOG.md").write_text("changed")
    assert any("changed files" in f for f in release.faults(good))
    (tmp_path / "b").mkdir()
    bad = release_tree(tmp_path / "b", changes="\n- Not released.\n")
    assert any("“Unreleased” comes before" in f for f in release.faults(bad))
    (tmp_path / "c").mkdir()
    bad = release_tree(tmp_path / "c", version="1.3.0")
    assert any("no section “1.3.0" in f for f in release.faults(bad))


def test_wheels_of_a_release_are_checked():
    release = script("release")

    def faults(*names):
        return list(release.wheel_faults([Path(n) for n in names], "1.2.0"))

    start = "canzona-1.2.0-py3-none-manylinux_2_34_"
    assert faults(f"{start}x86_64.whl", f"{start}aarch64.whl") == []
    assert "there is no wheel" in faults()[0]
    assert (
        "not of version 1.2.0"
        in faults("canzona-1.1.0-py3-none-manylinux_2_34_x86_64.whl")[0]
    )
    assert (
        "several wheels for x86_64"
        in faults(f"{start}x86_64.whl", f"a/{start}x86_64.whl")[0]
    )
