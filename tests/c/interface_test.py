"""interface_test.py <build folder> <program>

The C interface through ctypes, and `import canzona` without torch: run by the
system's python3, which has neither torch nor NumPy.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
import unittest
from array import array
from pathlib import Path

BUILD = Path(sys.argv[1])
PROGRAM = Path(sys.argv[2])
ROOT = Path(__file__).resolve().parents[2]
os.environ["CANZONA_LIBRARY"] = str(BUILD)
os.environ["CANZONA_PROGRAM"] = str(PROGRAM)
sys.path.insert(0, str(ROOT / "python"))

import canzona  # noqa: E402
from canzona import _library  # noqa: E402


def in_python(code, **variables):
    """Runs code in a new interpreter; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


class Package(unittest.TestCase):
    def test_import_needs_no_torch(self):
        done = in_python(
            "import sys; sys.modules['torch'] = None\n"
            "import canzona\n"
            "print(canzona.plan('qwen3-0.6b', mesh='dp=2').json['num_matrices'])\n"
            "print('numpy' in sys.modules)\n"
        )
        self.assertEqual(done.stdout.split(), ["196", "False"], done.stderr)

    def test_names_that_need_torch_say_so(self):
        done = in_python(
            "import sys; sys.modules['torch'] = None\n"
            "import canzona\n"
            "try: canzona.Muon\n"
            "except ImportError as error: print(error)\n"
        )
        self.assertIn("canzona.Muon needs torch", done.stdout, done.stderr)

    def test_unknown_names_are_refused(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'Moun'"):
            canzona.Moun

    def test_version_is_that_of_the_library(self):
        self.assertEqual(canzona.__version__, _library.load().version())

    def test_rules(self):
        rules = canzona.rules()
        self.assertLessEqual({"muon", "soap", "shampoo", "adamw"}, set(rules))
        self.assertIn("preset", [o["name"] for o in rules["muon"]["options"]])

    def test_runs_as_a_module(self):
        done = subprocess.run(
            [sys.executable, "-m", "canzona", "rules", "--json"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertIn("rules", json.loads(done.stdout))

    def test_doctor_tells_what_computes(self):
        report = canzona.doctor()
        self.assertEqual(report.problems, [])
        self.assertIn("bf16 by", report.json["cpu"])
        self.assertIn("bf16 by", str(report))


class Plans(unittest.TestCase):
    def test_plan_of_a_preset(self):
        plan = canzona.plan(
            "qwen3-0.6b", mesh={"dp": 2}, layers=2, rule_option={"preset": "torch"}
        )
        self.assertEqual(plan.json["rule"]["options"]["preset"], "torch")
        self.assertEqual(plan.digest, plan.decisions["digest"])
        self.assertIn("Rank 1 of 2", plan.explain(rank=1))
        self.assertIn("<html", plan.html())
        self.assertTrue(plan._repr_html_().startswith("<iframe"))

    def test_audit_names_every_tensor(self):
        plan = canzona.plan("qwen3-0.6b", mesh="dp=2", layers=2)
        rules = [row["rule"] for row in plan.audit]
        self.assertEqual(rules.count("muon"), 14)
        self.assertEqual(len(rules), 24)

    def test_mistakes_are_usage_errors(self):
        with self.assertRaisesRegex(canzona.UsageError, "did you mean 'qwen3-"):
            canzona.plan("qwen3-9b")
        with self.assertRaisesRegex(ValueError, "did you mean '--rule'"):
            canzona.plan("qwen3-0.6b", ruel="soap")
        with self.assertRaisesRegex(canzona.UsageError, "html is an option of"):
            canzona.plan("qwen3-0.6b", html="x.html")


class Loading(unittest.TestCase):
    def failure(self, **variables):
        done = in_python("import canzona; canzona.rules()", **variables)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_no_library(self):
        said = self.failure(CANZONA_LIBRARY="/nowhere/libcanzona.so")
        self.assertIn("/nowhere/libcanzona.so does not exist", said)
        self.assertIn("$CANZONA_LIBRARY", said)

    def test_not_a_library(self):
        said = self.failure(CANZONA_LIBRARY=__file__)
        self.assertIn("cannot be loaded", said)

    def test_library_of_another_release(self):
        other = BUILD / "tests" / "c" / "libcanzona_other.so"
        said = self.failure(CANZONA_LIBRARY=str(other))
        self.assertIn("has version 1000 of the C interface", said)
        self.assertIn("needs 1", said)

    def test_no_cuda_library(self):
        if (BUILD / "libcanzona_cuda.so").exists():
            self.skipTest("this build has CUDA")
        with self.assertRaisesRegex(canzona.UsageError, "no library for cuda"):
            _library.load("cuda:0")

    def test_structures_have_the_sizes_of_c(self):
        self.assertEqual(ctypes.sizeof(_library.Allocator), 3 * 8)
        self.assertEqual(ctypes.sizeof(_library.Memory), 5 * 8)
        self.assertEqual(ctypes.sizeof(_library.Outcome), 24)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
