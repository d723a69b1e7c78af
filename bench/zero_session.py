"""Commands of `canzona bench zero` inside a budget, for zero_numbers.py."""
import json
import subprocess
import sys
import time

# At least 24 layers and 30M parameters: the embedding, whose gather and scatter
# nothing can hide, is a small part.
DEEP = {"model.layers": 24, "model.hidden": 384, "model.ffn": 768,
        "model.heads": 8, "model.kv_heads": 4, "model.head_dim": 48,
        "model.length": 128}
# Links of the rules' steps where the rules themselves did not run: half of
# AdamW's compute there.
USUAL_LINK = "intra=226MB/s,inter=22.6MB/s"


class Bench:
    """Runs commands inside a budget and keeps what they said."""

    def __init__(self, args, seconds):
        self.args = args
        self.seconds = seconds  # by part
        self.results = []
        self.text = []
        self.link = USUAL_LINK  # of the rules

    def save(self):
        if self.args.json:
            with open(self.args.json, "w") as file:
                json.dump(self.results, file, indent=1)
        if self.args.markdown:
            with open(self.args.markdown, "w") as file:
                file.write("\n".join(self.text) + "\n")

    def say(self, *lines):
        for text in lines:
            print(text, flush=True)
        self.text += lines
        self.save()

    def run(self, part, limit, *words, settings=None):
        """The JSON of one command, or None if it did not end well in time."""
        command = [self.args.canzona, "bench", "zero", "--quiet", "--json",
                   "--limit", f"{max(1, limit):.0f}s", *map(str, words)]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        for text in self.args.set:
            command += ["--set", text]
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  timeout=max(30, 3 * limit))
        except subprocess.TimeoutExpired:
            print(f"{part}: no end after {3 * limit:.0f} s:", *command,
                  file=sys.stderr)
            return None
        if not done.stdout.startswith("{"):
            print(f"{part}: {done.stderr}", *command, file=sys.stderr)
            return None
        answer = json.loads(done.stdout)
        seconds = time.monotonic() - begin
        self.results.append({"part": part, "command": " ".join(command),
                             "seconds": seconds, "answer": answer})
        print(f"{part}: {seconds:.0f} s:", *command[3:], file=sys.stderr,
              flush=True)
        self.save()
        return answer
