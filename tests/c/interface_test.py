"""interface_test.py <build folder> <program>

The C interface through ctypes, and `import canzona` without torch: run by the
system's python3, which has neither torch nor NumPy.
"""

import ctypes
import json
import os
import pickle
import subprocess
import sys
import unittest
from pathlib import Path

BUILD = Path(sys.argv[1])
PROGRAM = Path(sys.argv[2])
ROOT = Path(__file__).resolve().parents[2]
os.environ["CANZONA_LIBRARY"] = str(BUILD)
os.environ["CANZONA_PROGRAM"] = str(PROGRAM)
sys.path.insert(0, str(ROOT / "python"))

import canzona  # noqa: E402
from canzona import _library  # noqa: E402
import thread_ranks as ranks  # noqa: E402


def in_python(code, **variables):
    """Runs code in a new interpreter; returns what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        **variables,
    }
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
            "plan = canzona.plan('qwen3-0.6b', mesh='dp=2')\n"
            "print(plan.json['num_matrices'])\n"
            "print('numpy' in sys.modules)\n"
        )
        self.assertEqual(done.stdout.split(), ["196", "False"], done.stderr)

    def test_layouts_of_torch_need_no_torch(self):
        done = in_python(
            "import sys; sys.modules['torch'] = None\n"
            "import canzona\n"
            "plan = canzona.plan('qwen3-0.6b', 'dp=2', layout='fsdp2')\n"
            "print(plan.json['world'], len(plan.decisions['decisions']['owners']))\n"
        )
        self.assertEqual(done.stdout.split(), ["2", "196"], done.stderr)

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
        self.assertIn("torch", [p["name"] for p in rules["muon"]["presets"]])

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
        report = canzona.doctor(machine=False)
        self.assertEqual(report.problems, [])
        self.assertIn("bf16 by", report.json["cpu"])
        self.assertIn("bf16 by", str(report))
        self.assertNotIn("machine", report.json)

    def doctor(self, *words, **options):
        return subprocess.run(
            [sys.executable, "-m", "canzona", "doctor", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def test_doctor_tells_of_python_and_the_machine(self):
        done = self.doctor("--json")
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 if found["problems"] else 0)
        self.assertEqual(found["library"], str(_library.load().path))
        self.assertGreater(found["machine"]["sgemm_gflops"], 0)
        self.assertIn("torch", found)

    def test_doctor_prints_problems_once(self):
        done = self.doctor(cwd="/proc")  # where nothing can be written
        self.assertEqual(done.returncode, 1)
        words = [line.split()[0] for line in done.stdout.splitlines() if line]
        for word in ("python", "library", "torch", "sgemm", "disk", "problem:"):
            self.assertEqual(words.count(word), 1, done.stdout)
        self.assertNotIn("no problems found", done.stdout)
        self.assertIn("usage", self.doctor("--help").stdout.lower())


class Plans(unittest.TestCase):
    def test_plan_of_a_preset(self):
        plan = canzona.plan(
            "qwen3-0.6b",
            mesh={"dp": 2},
            layers=2,
            rule_option={"preset": "torch"},
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
        self.assertIn("needs 3", said)

    def test_no_cuda_library(self):
        if (BUILD / "libcanzona_cuda.so").exists():
            self.skipTest("this build has CUDA")
        with self.assertRaisesRegex(canzona.UsageError, "no library for cuda"):
            _library.load("cuda:0")

    def test_structures_have_the_sizes_of_c(self):
        self.assertEqual(ctypes.sizeof(_library.Allocator), 3 * 8)
        self.assertEqual(ctypes.sizeof(_library.Memory), 6 * 8)
        self.assertEqual(ctypes.sizeof(_library.Outcome), 24)


MODEL = {
    "wide.weight": ([7, 12], 0),
    "tall.weight": ([11, 5], 0),
    "row.weight": ([1, 6], 0),
    "bias": ([9], 1),
    "one": ([1], 1),
}
RATES = [0.02, 0.001]


class Steps(unittest.TestCase):
    """Ranks that are threads, on arrays of Python's."""

    def train(self, layout, **options):
        return ranks.train(MODEL, ranks.GROUPS, layout, rates=RATES, **options)

    def test_layouts_give_the_same_bits(self):
        for wire in ("fp32", "bf16"):
            alone = self.train(ranks.rows(1), wire=wire)
            self.assertNotEqual(alone, ranks.first_weights(MODEL))
            for name, layout in (
                ("rows 2", ranks.rows(2)),
                ("rows 3", ranks.rows(3)),
                ("columns 2", ranks.columns(2)),
                ("replicas 2", ranks.replicas(2)),
            ):
                with self.subTest(wire=wire, layout=name):
                    self.assertEqual(self.train(layout, wire=wire), alone)

    def test_shared_states_give_the_same_bits(self):
        alone = self.train(ranks.rows(1))
        shared = self.train(ranks.replicas(2), share_states=True)
        self.assertEqual(shared, alone)

    def test_rules_with_states_at_the_owner(self):
        for rule in ("soap", "shampoo"):
            groups = [
                {"rule": rule, "options": {"device": "cpu"}},
                ranks.GROUPS[1],
            ]
            alone = ranks.train(MODEL, groups, ranks.rows(1), rates=RATES)
            apart = ranks.train(MODEL, groups, ranks.rows(2), rates=RATES)
            with self.subTest(rule=rule):
                self.assertEqual(apart, alone)

    def test_adamw_is_that_of_the_paper(self):
        """Against AdamW in Python's own doubles."""
        (memory,) = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(1))
        options = {o["name"]: o for o in canzona.rules()["adamw"]["options"]}
        beta1, beta2, epsilon, decay = (
            float(options[name]["default"])
            for name in ("beta1", "beta2", "epsilon", "weight_decay")
        )
        weights = [ranks.number("bias", p, 0) for p in range(9)]
        m, v = [0.0] * 9, [0.0] * 9
        for step in range(1, 4):
            ranks.take_step([memory], step, RATES)
            for i in range(9):
                g = ranks.number("bias", i, step)
                m[i] = beta1 * m[i] + (1 - beta1) * g
                v[i] = beta2 * v[i] + (1 - beta2) * g * g
                mean, square = (
                    m[i] / (1 - beta1**step),
                    v[i] / (1 - beta2**step),
                )
                weights[i] -= RATES[1] * decay * weights[i]
                weights[i] -= RATES[1] * mean / (square**0.5 + epsilon)
        for ours, theirs in zip(ranks.whole([memory])["bias"], weights):
            self.assertAlmostEqual(ours, theirs, delta=1e-6)

    def test_a_tensor_without_gradient_is_left_alone(self):
        memories = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(2))
        missing = ("tall.weight", "bias")
        gradients = [memory.gradients(1, missing) for memory in memories]
        ranks.take_step(memories, 1, RATES, gradients=gradients)
        now, before = ranks.whole(memories), ranks.first_weights(MODEL)
        for name in MODEL:
            self.assertEqual(now[name] == before[name], name in missing, name)

    def test_gradients_of_different_tensors_change_nothing(self):
        memories = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.replicas(2))
        gradients = [
            memories[0].gradients(1),
            memories[1].gradients(1, ("bias",)),
        ]
        ranks.take_step(memories, 1, RATES, gradients=gradients)
        for memory in memories:
            self.assertEqual(memory.step.outcome().unlike, 1)
        self.assertEqual(ranks.whole(memories), ranks.first_weights(MODEL))

    def test_nonfinite_gradients_are_skipped_on_all_ranks(self):
        memories = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(2))
        gradients = [memory.gradients(1) for memory in memories]
        gradients[1][1][3] = float("nan")
        ranks.take_step(memories, 1, RATES, gradients=gradients)
        for memory in memories:
            outcome = memory.step.outcome()
            self.assertEqual(
                (outcome.skipped, outcome.nonfinite_tensor), (1, 1)
            )
        self.assertEqual(ranks.whole(memories), ranks.first_weights(MODEL))

    def test_the_norm_counts_every_element_once(self):
        squares = sum(
            ranks.number(name, place, 1) ** 2
            for name, (shape, _) in MODEL.items()
            for place in range(ranks.size(shape))
        )
        for layout in (ranks.rows(1), ranks.rows(3), ranks.replicas(2)):
            memories = ranks.make_ranks(MODEL, ranks.GROUPS, layout)
            ranks.take_step(memories, 1, RATES, clip=1e9)
            for memory in memories:
                self.assertAlmostEqual(
                    memory.step.outcome().norm, squares**0.5, delta=1e-6
                )

    def test_clipping_scales_gradients_in_place(self):
        memories = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(2))
        gradients = [memory.gradients(1) for memory in memories]
        before = [list(g) for mine in gradients for g in mine]
        ranks.take_step(memories, 1, RATES, gradients=gradients, clip=0.5)
        factor = 0.5 / (memories[0].step.outcome().norm + 1e-6)
        after = [list(g) for mine in gradients for g in mine]
        for old, new in zip(before, after):
            for x, y in zip(old, new):
                self.assertAlmostEqual(y, x * factor, delta=1e-6)

    def test_lists_of_the_wrong_length_are_refused(self):
        (memory,) = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(1))
        step, tensors = memory.step, len(MODEL)
        with self.assertRaisesRegex(
            canzona.UsageError, "4 addresses, expected 5"
        ):
            step.begin([0] * 4, [1] * tensors, RATES)
        with self.assertRaisesRegex(
            canzona.UsageError, "rates: 1 values, expected 2"
        ):
            step.begin([0] * tensors, [1] * tensors, [0.1])
        with self.assertRaisesRegex(canzona.UsageError, "weights: 0 addresses"):
            step.bind([], [], [], 0, 0, 0)

    def test_errors_of_the_library_are_exceptions(self):
        (memory,) = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(1))
        with self.assertRaises(canzona.UsageError):
            memory.step.run(0)
        with self.assertRaisesRegex(ValueError, "weight_decay"):
            memory.step.set_options(0, {"wait_decay": 0.1})
        memory.step.set_options(0, {"weight_decay": 0.1})
        memory.step.close()
        memory.step.close()
        with self.assertRaisesRegex(canzona.UsageError, "the step is NULL"):
            memory.step.end()

    def test_a_forked_child_has_no_steps(self):
        (memory,) = ranks.make_ranks(MODEL, ranks.GROUPS, ranks.rows(1))
        child = os.fork()
        if child == 0:
            try:
                memory.step.look()
            except canzona.UsageError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        ranks.take_step([memory], 1, RATES)

    def test_a_plan_goes_on_in_a_forked_child(self):
        request = ranks.request_of(MODEL, ranks.GROUPS, ranks.rows(2))
        plan = canzona.StoragePlan(request)
        explained = plan.explain(rank=0)
        child = os.fork()
        if child == 0:
            os._exit(0 if plan.explain(rank=0) == explained else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_plans_travel_between_processes(self):
        request = ranks.request_of(MODEL, ranks.GROUPS, ranks.rows(2))
        plan = canzona.StoragePlan(request)
        again = pickle.loads(pickle.dumps(plan))
        self.assertEqual(again.digest, plan.digest)
        self.assertEqual(len(plan.digest), 64)
        self.assertEqual(plan.world, 2)
        self.assertIn("3 matrices", plan.explain())
        self.assertIn("wide.weight", plan.explain(rank=1))
        self.assertNotEqual(plan.explain(rank=0), plan.explain(rank=1))
        self.assertIn("<html", plan.html())

    def test_audit_of_given_storage(self):
        model = {
            "fused": ([8, 4], 0),
            "experts": ([2, 4, 4], 0),
            "bias": ([3], 1),
        }
        request = ranks.request_of(model, ranks.GROUPS, ranks.rows(2))
        request["tensors"][0]["splits"] = [4, 4]
        plan = canzona.StoragePlan(request)
        rows = {row.pop("name"): row for row in plan.audit}
        self.assertEqual(
            list(rows),
            ["fused:0", "fused:1", "experts[0]", "experts[1]", "bias"],
        )
        self.assertEqual(rows["fused:1"]["shape"], [4, 4])
        self.assertEqual(
            {rows["fused:0"]["owner"], rows["fused:1"]["owner"]}, {0, 1}
        )
        self.assertGreater(rows["experts[1]"]["ticks"], 0)
        self.assertEqual(rows["bias"]["rule"], "adamw")
        self.assertIsNone(rows["bias"]["owner"])

    def test_a_table_of_costs_is_part_of_the_request(self):
        request = ranks.request_of(MODEL, ranks.GROUPS, ranks.rows(2))
        plain = canzona.StoragePlan(request)
        request["cost_table"] = {
            "format": "canzona.cost_table",
            "version": 1,
            "device": "Toy 1",
            "kind": "cpu",
            "precision": "fp32",
            "date": "2025-03-31",
            "measurements": [
                {
                    "rule": "muon",
                    "algorithm": "gram",
                    "options": {"newton_schulz": "gram"},
                    "entries": [{"rows": 8, "cols": 8, "seconds": 1e-3}],
                }
            ],
        }
        plan = canzona.StoragePlan(request)
        self.assertEqual(plan.json["request"]["cost"]["source"], "Toy 1")
        self.assertEqual(plain.json["request"]["cost"]["source"], "nominal")
        self.assertNotEqual(plan.digest, plain.digest)
        self.assertEqual(pickle.loads(pickle.dumps(plan)).digest, plan.digest)
        request["cost_table"]["measurements"][0]["rule"] = "moun"
        with self.assertRaisesRegex(canzona.UsageError, "cost_table.*moun"):
            canzona.StoragePlan(request)

    def test_requests_that_do_not_fit_are_refused(self):
        request = ranks.request_of(MODEL, ranks.GROUPS, ranks.rows(2))
        request["tensors"][0]["stored"][1] = []
        with self.assertRaisesRegex(canzona.UsageError, "wide.weight"):
            canzona.StoragePlan(request)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
