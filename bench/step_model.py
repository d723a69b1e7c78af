"""The model and the rule of measurements of the optimizer step."""


def model_flags(rule, scale, layers):
    """Flags of `canzona plan` and `bench step`; 0 layers: all."""
    flags = ["--model", "qwen3-1.7b", "--scale", scale, "--rule", rule]
    if layers:
        flags += ["--layers", str(layers)]
    if rule == "muon":
        flags += ["--rule-option", "precision=bf16"]
    if rule in ("soap", "shampoo"):
        flags += ["--rule-option", "precondition_frequency=5"]
    return flags
