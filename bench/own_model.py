"""Decoders with a vocabulary of bytes, as flags of `canzona bench step`."""
import json


def model_flags(folder, layers, hidden, ffn, heads, kv_heads, head_dim):
    path = f"{folder}/{layers}x{hidden}.json"
    with open(path, "w") as file:
        json.dump({"model_type": "qwen3", "vocab_size": 256,
                   "hidden_size": hidden, "intermediate_size": ffn,
                   "num_hidden_layers": layers, "head_dim": head_dim,
                   "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads,
                   "tie_word_embeddings": False}, file)
    return ["--model", path, "--fused", "--split", "qkv,gate-up",
            "--parameters", "fp32"]
