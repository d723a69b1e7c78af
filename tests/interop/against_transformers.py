#!/usr/bin/env python3
"""against_transformers.py <canzona> <dump_logits> <folder> [--json FILE]

Weights to and from Hugging Face's transformers, and logits of both sides on
4 x 256 tokens:

  ours    a run of `canzona train` becomes a checkpoint, `ckpt export --hf`
          writes it (fp32 in one file, fp32 and bf16 in several), and
          transformers read it;
  theirs  a model by chance of transformers is saved (fp32 and bf16, one file
          and several), `canzona train --init` starts from it, and what that
          writes is read again.

Dense models with and without norms of queries and keys (Qwen3, Llama), experts
(Qwen3-MoE), tied and untied. A difference is |ours - theirs|, the largest of
all logits; transformers compute in fp32. Where the last expert that a token is
sent to and the first that it is not sent to differ by less than 1e-6 of their
probabilities (transformers in fp64), rounding decides between them: such a
token, and what comes after it in its sequence, is left out and counted. Exits with 77, which ctest counts as
skipped, where torch, transformers or safetensors are missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

try:
    import torch
    import transformers
    import safetensors.torch  # noqa: F401
except ImportError as missing:
    other = os.environ.get("CANZONA_TRANSFORMERS_PYTHON", "")
    if other and sys.executable != other:
        os.execv(other, [other, *sys.argv])
    print(f"skipped: {missing} (pip install torch transformers safetensors, or "
          "CANZONA_TRANSFORMERS_PYTHON=/path/to/python)")
    sys.exit(77)

SEQUENCES, LENGTH = 4, 256
LARGEST = 1e-4  # of a logit
TIE = 1e-6  # between probabilities of experts
VOCAB = 256

THETA = 500000.0
# As this version of transformers wants it.
ROPE = ({"rope_theta": THETA} if int(transformers.__version__.split(".")[0]) < 5
        else {"rope_parameters": {"rope_type": "default",
                                  "rope_theta": THETA}})
COMMON = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=320,
              num_hidden_layers=4, num_attention_heads=8,
              num_key_value_heads=4, head_dim=32,
              max_position_embeddings=LENGTH, rms_norm_eps=1e-5, **ROPE)
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=96,
               norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
KINDS = {
    "qwen3": (transformers.Qwen3Config, {}, []),
    "llama": (transformers.LlamaConfig, {}, ["model.qk_norm=off"]),
    "qwen3_moe": (transformers.Qwen3MoeConfig, EXPERTS,
                  ["model.experts=8", "model.experts_per_token=3",
                   "model.expert_ffn=96"]),
}
MODEL_KEYS = ["model.layers=4", "model.hidden=128", "model.ffn=320",
              "model.heads=8", "model.kv_heads=4", "model.head_dim=32",
              "model.length=64", "model.norm_epsilon=1e-5",
              f"model.rope_base={THETA:.0f}", "batch.global=8",
              "batch.micro=2"]


class Bench:
    """The programs, a folder, and the tokens that both sides see."""

    def __init__(self, canzona, dump_logits, folder):
        self.canzona, self.dump = canzona, dump_logits
        self.folder = pathlib.Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        torch.manual_seed(1)
        self.tokens = torch.randint(0, VOCAB, (SEQUENCES, LENGTH))
        self.token_file = self.folder / "tokens.bin"
        self.token_file.write_bytes(
            self.tokens.to(torch.int32).numpy().tobytes())
        self.rows = []

    def run(self, *words):
        done = subprocess.run([str(word) for word in words],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))}: exit status "
                               f"{done.returncode}\n{done.stderr}")
        return done.stdout

    def ours(self, path):
        file = self.folder / "logits.bin"
        self.run(self.dump, path, self.token_file, SEQUENCES, LENGTH, file)
        numbers = torch.frombuffer(bytearray(file.read_bytes()),
                                   dtype=torch.float32)
        return numbers.reshape(SEQUENCES, LENGTH, VOCAB)

    def model(self, path, dtype=torch.float32):
        plain = {"attn_implementation": "eager"}
        # Newer versions have fused products for experts, but not in fp64.
        if int(transformers.__version__.split(".")[0]) >= 5:
            plain["experts_implementation"] = "eager"
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, **plain).eval()

    def theirs(self, path):
        with torch.no_grad():
            return self.model(path)(self.tokens).logits

    def decided(self, path):
        """Tokens whose experts are not a matter of rounding."""
        model = self.model(path, torch.float64)
        kept = torch.ones(SEQUENCES, LENGTH, dtype=torch.bool)
        chosen = getattr(model.config, "num_experts_per_tok", 0)
        if not chosen:
            return kept
        with torch.no_grad():
            layers = model(self.tokens, output_router_logits=True).router_logits
        for scores in layers:
            odds = scores.double().reshape(SEQUENCES, LENGTH, -1).softmax(-1)
            odds = odds.sort(-1, descending=True).values
            tied = odds[..., chosen - 1] - odds[..., chosen] < TIE
            kept &= tied.cumsum(-1) == 0
        return kept

    def require_sensitive(self, path, theirs):
        """Another angle or another norm gives other logits than allowed."""
        for key, value in (("rope_theta", 1e4), ("rms_norm_eps", 1e-2)):
            other = self.folder / "other"
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(path, other)
            config = json.loads((other / "config.json").read_text())
            config.get("rope_parameters", config)[key] = value
            config[key] = value
            (other / "config.json").write_text(json.dumps(config))
            moved = (self.theirs(other) - theirs).abs().max().item()
            if moved < 10 * LARGEST:
                raise RuntimeError(f"{path}: {key} changes logits by {moved}: "
                                   "the comparison would not notice it")

    def compare(self, what, ours, theirs, decided):
        largest = theirs.abs().max().item()
        left_out = int((~decided).sum())
        if (not torch.isfinite(theirs).all() or largest < 0.1
                or left_out > SEQUENCES * LENGTH // 2):
            raise RuntimeError(f"{what}: logits that tell nothing")
        worst = (ours - theirs).abs()[decided].max().item()
        self.rows.append({"what": what, "difference": worst,
                          "largest_logit": largest, "left_out": left_out})
        print(f"{what:58s} {worst:9.2e} of {largest:.2f}"
              + (f", {left_out} tokens left out" if left_out else ""),
              flush=True)


def same_tensors(a, b):
    """True if two folders hold the same names and bits."""
    def read(folder):
        found = {}
        for file in pathlib.Path(folder).glob("*.safetensors"):
            found.update(safetensors.torch.load_file(file))
        return found
    first, second = read(a), read(b)
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first)


def ours_to_theirs(bench, kind, tied):
    """Trained by us, exported, read by transformers."""
    name = f"{kind}{'_tied' if tied else ''}"
    run = bench.folder / f"run_{name}"
    settings = MODEL_KEYS + KINDS[kind][2] + [
        f"model.tied={'on' if tied else 'off'}"]
    words = [word for key in settings for word in ("--set", key)]
    bench.run(bench.canzona, "train", "--steps", 5, "--save-every", 5, "--mesh",
              "dp=2", "--run", run, *words)
    store = run / "ckpt"
    ours = bench.ours(store)
    for label, options in {
            "fp32, one file": [],
            "fp32, several files": ["--max-shard-size", "300KB"],
            "bf16, several files": ["--dtype", "bf16",
                                    "--max-shard-size", "150KB"]}.items():
        out = bench.folder / f"out_{name}_{label.replace(', ', '_')}"
        bench.run(bench.canzona, "ckpt", "export", store, "--hf", out, *options)
        mine = bench.ours(out) if "bf16" in label else ours
        theirs = bench.theirs(out)
        bench.compare(f"{name}: export, {label}", mine, theirs,
                      bench.decided(out))
        if not options:
            bench.require_sensitive(out, theirs)
    if not same_tensors(run, bench.folder / f"out_{name}_fp32_one file"):
        raise RuntimeError(f"{name}: the export is not what was trained")


def by_chance(kind, tied):
    """A model with weights that are larger than transformers begin with, so
    that attention and experts have something to choose."""
    make, more, _ = KINDS[kind]
    config = make(**COMMON, **more, tie_word_embeddings=tied)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(3)
            else:
                weight.add_(0.2 * torch.randn_like(weight))
    return model


def theirs_to_ours(bench, kind, tied):
    """Saved by transformers, read by train --init."""
    name = f"{kind}{'_tied' if tied else ''}"
    for label, dtype, size in (("fp32, one file", torch.float32, "5GB"),
                               ("fp16, one file", torch.float16, "5GB"),
                               ("bf16, several files", torch.bfloat16,
                                "200KB")):
        at = bench.folder / f"hf_{name}_{label.replace(', ', '_')}"
        by_chance(kind, tied).to(dtype).save_pretrained(at, max_shard_size=size)
        theirs, decided = bench.theirs(at), bench.decided(at)
        bench.compare(f"{name}: --init, {label}", bench.ours(at), theirs,
                      decided)
        run = bench.folder / f"{at.name}_run"
        bench.run(bench.canzona, "train", "--init", at, "--steps", 0,
                  "--mesh", "dp=2,tp=2", "--zero", "zero3", "--set",
                  "model.length=64", "--set", "batch.global=8", "--set",
                  "batch.micro=2", "--run", run)
        bench.compare(f"{name}: --init on 4 ranks, {label}", bench.ours(run),
                      bench.theirs(run), decided)


def main():
    arguments = sys.argv[1:]
    report = None
    if "--json" in arguments:
        place = arguments.index("--json")
        report = arguments[place + 1]
        del arguments[place:place + 2]
    if len(arguments) != 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bench = Bench(*arguments)
    for kind in KINDS:
        for tied in (False, True):
            ours_to_theirs(bench, kind, tied)
            theirs_to_ours(bench, kind, tied)
    worst = max(row["difference"] for row in bench.rows)
    print(f"{len(bench.rows)} comparisons of {SEQUENCES} x {LENGTH} tokens, "
          f"worst {worst:.2e}, allowed {LARGEST:.0e} "
          f"(torch {torch.__version__}, transformers "
          f"{transformers.__version__})")
    if report:
        pathlib.Path(report).write_text(json.dumps(
            {"torch": torch.__version__,
             "transformers": transformers.__version__,
             "sequences": SEQUENCES, "length": LENGTH, "allowed": LARGEST,
             "worst": worst, "comparisons": bench.rows}, indent=2) + "\n")
    sys.exit(0 if worst <= LARGEST else 1)


if __name__ == "__main__":
    main()
