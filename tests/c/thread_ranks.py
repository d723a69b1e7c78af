"""Ranks that are threads of this process, on arrays of Python's own.

    model = {"a.weight": ([7, 5], 0), "a.bias": ([5], 1)}      # shape, group
    weights = train(model, GROUPS, layout=rows(2), steps=3)

Gradients and weights come from names and positions. Nothing here is quick; it
shows what a caller of the C interface does, and moves bytes by copying them.
"""

import threading
from array import array

from canzona._library import NUMBERS
from canzona._storage_plan import StoragePlan
from canzona._step import Step

GROUPS = [
    {"rule": "muon", "options": {"preset": "torch", "device": "cpu"}},
    {"rule": "adamw", "options": {}},
]


def size(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def number(name, place, step):
    """A number in (-1, 1) with few bits, exact in fp32."""
    value = 2166136261
    for letter in f"{name}/{place}/{step}".encode():
        value = (value ^ letter) * 16777619 % 2**32
    return ((value >> 8) % 8191 - 4095) / 4096


def rows(world):
    """Every tensor cut by rows, like torch.chunk: uneven, with empty tails."""

    def boxes(shape):
        most = -(-shape[0] // world)
        stored = []
        for rank in range(world):
            first = min(rank * most, shape[0])
            count = min(most, shape[0] - first)
            rest = [0] * (len(shape) - 1)
            box = [[first, *rest], [count, *shape[1:]]]
            stored.append([box] if count else [])
        return stored

    return boxes


def columns(world):
    """Matrices cut by columns, vectors on every rank."""

    def boxes(shape):
        if len(shape) == 1:
            return replicas(world)(shape)
        cut = [shape[1] * rank // world for rank in range(world + 1)]
        return [
            [[[0, cut[rank]], [shape[0], cut[rank + 1] - cut[rank]]]]
            for rank in range(world)
        ]

    return boxes


def replicas(world):
    """Every rank stores everything."""

    def boxes(shape):
        return [[[[0] * len(shape), list(shape)]] for _ in range(world)]

    return boxes


def request_of(model, groups, layout, **options):
    world = len(layout([1]))
    return {
        "canzona_storage": 1,
        "world": world,
        "groups": groups,
        "tensors": [
            {
                "name": name,
                "shape": shape,
                "dtype": "fp32",
                "group": group,
                "stored": layout(shape),
            }
            for name, (shape, group) in model.items()
        ],
        **options,
    }


def places(shape, box):
    """The places in a whole tensor of what a box holds, in its order."""
    first, count = box
    found = [0]
    for dim, length in enumerate(shape):
        found = [
            at * length + first[dim] + i
            for at in found
            for i in range(count[dim])
        ]
    return found


class Wires:
    """Collectives between threads: everybody lays out what it sends, waits for
    the others, and copies."""

    def __init__(self, groups):
        self._barriers = [threading.Barrier(len(group)) for group in groups]
        self._sent = [dict() for _ in groups]

    def exchange(self, group, rank, value):
        """Returns what every rank of the group has given, by rank."""
        self._sent[group][rank] = value
        self._barriers[group].wait(60)
        given = dict(self._sent[group])
        self._barriers[group].wait(60)
        return given

    def abort(self):
        for barrier in self._barriers:
            barrier.abort()


class RankMemory:
    """One rank's step, with the memory that its layout asks for."""

    def __init__(self, plan, rank, model, layout):
        self.step = Step(plan, rank)
        self.rank = rank
        self.model = model
        self.places = []
        for shape, _ in model.values():
            boxes = layout(shape)[rank]
            self.places.append([p for box in boxes for p in places(shape, box)])
        described = self.step.layout
        self.element = 2 if described["wire"] == "bf16" else 4
        self.weights = [
            array("f", [number(name, p, 0) for p in mine])
            for name, mine in zip(model, self.places)
        ]
        self.states = [array("f", bytes(4 * n)) for n in described["memories"]]
        self._begin_states(described)
        self._slots = array(
            "B", bytes(self.element * described["slot_elements"] or 1)
        )
        self.numbers = array("q", [0] * NUMBERS)
        self.bind()

    def _begin_states(self, described):
        for tensor in described["tensors"]:
            for state in tensor["states"] + tensor["owned"]:
                count, side = size(state["shape"]), state["shape"][-1]
                at, memory = state["at"], self.states[state["memory"]]
                for i in range(count):
                    is_one = i % (side + 1) == 0
                    if state["initially"] == "identity" and is_one:
                        memory[at + i] = 1.0

    def bind(self):
        def addresses(arrays):
            return [a.buffer_info()[0] if len(a) else 0 for a in arrays]

        self.step.bind(
            addresses(self.weights),
            [0] * len(self.weights),
            addresses(self.states),
            self._slots.buffer_info()[0],
            0,  # no rooms: nothing is shared
            self.numbers.buffer_info()[0],
        )

    def gradients(self, step, missing=()):
        """By tensor; None of those that have no gradient."""
        return [
            None
            if name in missing
            else array("f", [number(name, p, step) for p in mine])
            for name, mine in zip(self.model, self.places)
        ]

    def carry_out(self, wires):
        """Carries out the actions between begin() and end()."""
        for at, action in enumerate(self.step.layout["actions"]):
            kind = action["kind"]
            if kind == "compute":
                self.step.run(at)
            elif kind == "all_to_all":
                self._all_to_all(action, wires)
            elif kind == "broadcast":
                self._broadcast(action, wires)
            else:
                assert kind == "wait", kind

    def _bytes(self, at, count):
        return self._slots[self.element * at : self.element * (at + count)]

    def _put(self, at, data):
        first = self.element * at
        self._slots[first : first + len(data)] = data

    def _all_to_all(self, action, wires):
        group = self.step.layout["groups"][action["group"]]
        at, parts = action["send_at"], {}
        for rank, count in zip(group, action["send"]):
            parts[rank] = self._bytes(at, count)
            at += count
        given = wires.exchange(action["group"], self.rank, parts)
        at = action["receive_at"]
        for rank, count in zip(group, action["receive"]):
            part = given[rank][self.rank]
            assert len(part) == self.element * count, action
            self._put(at, part)
            at += count

    def _broadcast(self, action, wires):
        mine = self._bytes(action["at"], action["count"])
        given = wires.exchange(action["group"], self.rank, mine)
        self._put(action["at"], given[action["root"]])


def reduced(memories, places, operation):
    """An all-reduce of some of the ranks' numbers."""
    for place in places:
        value = operation(memory.numbers[place] for memory in memories)
        for memory in memories:
            memory.numbers[place] = value


def on_all(memories, work):
    """Runs work(memory) on every rank at once; raises the first error."""
    errors = []
    wires = Wires(memories[0].step.layout["groups"])

    def run(memory):
        try:
            work(memory, wires)
        except BaseException as error:
            errors.append(error)
            wires.abort()

    threads = [threading.Thread(target=run, args=(m,)) for m in memories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        broken = threading.BrokenBarrierError
        raise next((e for e in errors if not isinstance(e, broken)), errors[0])


def make_ranks(model, groups, layout, **options):
    plan = StoragePlan(request_of(model, groups, layout, **options))
    return [
        RankMemory(plan, rank, model, layout)
        for rank in range(len(layout([1])))
    ]


def gradient_address(gradient):
    """0 if there is none; of an empty piece anything else."""
    if gradient is None:
        return 0
    return gradient.buffer_info()[0] if len(gradient) else 1


def take_step(memories, step, rates, *, gradients=None, clip=None, skip=True):
    """One step of all ranks. `gradients`: by rank, to give others."""
    kept = gradients or [memory.gradients(step) for memory in memories]
    for memory, mine in zip(memories, kept):
        addresses = [gradient_address(gradient) for gradient in mine]
        memory.step.begin(addresses, [step] * len(memory.model), rates)
        memory.step.look()
    reduced(memories, range(4), max)
    if clip is not None:
        for memory in memories:
            memory.step.squares()
        reduced(memories, range(4, 12), sum)
        for memory in memories:
            memory.step.clip(clip)
    for memory in memories:
        memory.step.judge(skip)
    on_all(memories, lambda memory, wires: memory.carry_out(wires))
    for memory in memories:
        memory.step.end()


def first_weights(model):
    """The weights that whole() gives before the first step."""
    return {
        name: list(array("f", [number(name, p, 0) for p in range(size(shape))]))
        for name, (shape, _) in model.items()
    }


def whole(memories):
    """The weights by name, put together from all ranks; replicas must agree."""
    result = {}
    for i, (name, (shape, _)) in enumerate(memories[0].model.items()):
        values = [None] * size(shape)
        for memory in memories:
            for place, value in zip(memory.places[i], memory.weights[i]):
                assert values[place] in (None, value), (name, place)
                values[place] = value
        result[name] = values
    return result


def train(model, groups, layout, steps=3, rates=(0.02, 0.001), **options):
    memories = make_ranks(model, groups, layout, **options)
    for step in range(1, steps + 1):
        take_step(memories, step, list(rates))
    return whole(memories)
