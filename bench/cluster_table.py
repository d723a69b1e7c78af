"""Tables of what canzona predicts for clusters, for legs_clusters.py and
zero_clusters.py."""
import argparse
import json
import subprocess


def cluster_parser(doc):
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--markdown", help="a file for the tables")
    return parser


class ClusterTable:
    """Asks the program on nodes of 8, prints lines and keeps them."""

    def __init__(self, args):
        self.args = args
        self.text = []

    def predicted(self, verb, *words, activations="none"):
        command = [self.args.canzona, verb, *map(str, words),
                   "--ranks-per-node", "8", "--activations", activations,
                   "--json", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)

    def say(self, *lines):
        for line in lines:
            print(line, flush=True)
        self.text += lines

    def save(self):
        if self.args.markdown:
            with open(self.args.markdown, "w") as file:
                file.write("\n".join(self.text) + "\n")
