"""The comparisons with PyTorch print these tables of Markdown."""


class Report:
    """Prints lines and keeps them for a file."""

    def __init__(self):
        self.lines = []

    def print(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def table(self, title, header, rows):
        self.print(f"\n### {title}\n")
        self.print("| " + " | ".join(header) + " |")
        self.print("|" + "---|" * len(header))
        for row in rows:
            self.print("| " + " | ".join(row) + " |")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines) + "\n")


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f}"
