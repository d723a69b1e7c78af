#include "canzona/shapes/generate.h"
#include "canzona/shapes/parts.h"

namespace canzona {
namespace {

using Folder = TensorWriter::Folder;

struct MlpNames {
  const char* gate;
  const char* up;
  const char* gate_up;
  const char* down;
};
constexpr MlpNames kUsual{"gate_proj.weight", "up_proj.weight",
                          "gate_up_proj.weight", "down_proj.weight"};
constexpr MlpNames kMixtral{"w1.weight", "w3.weight", "w13.weight",
                            "w2.weight"};

void add_mlp(const MlpNames& names, int64_t hidden, int64_t ffn, bool fused,
             TensorWriter& out) {
  if (fused) {
    out.matrix(names.gate_up, 2 * ffn, hidden, Cut::kRows, gate_up_parts(ffn));
  } else {
    out.matrix(names.gate, ffn, hidden, Cut::kRows);
    out.matrix(names.up, ffn, hidden, Cut::kRows);
  }
  out.matrix(names.down, hidden, ffn, Cut::kColumns);
}

// Weights are [in, out]. Gate and up alternate, so that an equal share of the
// columns holds both.
void add_stacked_expert(int64_t hidden, int64_t ffn, TensorWriter& out) {
  out.matrix("gate_up_proj", hidden, 2 * ffn, Cut::kColumns);
  out.matrix("down_proj", ffn, hidden, Cut::kRows);
  out.bias("gate_up_proj_bias", 2 * ffn, Cut::kRows);
  out.bias("down_proj_bias", hidden, Cut::kNone);
}

void add_router(const Architecture& a, TensorWriter& out) {
  const int64_t count = a.experts.count;
  const bool stacked = a.experts.layout == ExpertLayout::kStacked;
  out.add(stacked ? "router.weight" : "gate.weight", {count, a.hidden},
          Role::kRouter, Cut::kNone);
  if (stacked) out.bias("router.bias", count, Cut::kNone);
}

void add_shared_experts(const Architecture& a, bool fused, TensorWriter& out) {
  const ExpertNumbers& experts = a.experts;
  if (experts.shared > 0) {
    const Folder folder(out, "shared_experts.");
    add_mlp(kUsual, a.hidden, experts.shared * experts.ffn, fused, out);
  }
  if (experts.gated_shared_ffn > 0) {
    out.add("shared_expert_gate.weight", {1, a.hidden}, Role::kRouter,
            Cut::kNone);
    const Folder folder(out, "shared_expert.");
    add_mlp(kUsual, a.hidden, experts.gated_shared_ffn, fused, out);
  }
}

}  // namespace

void add_dense_mlp(const Architecture& a, bool fused, TensorWriter& out) {
  const Folder folder(out, "mlp.");
  add_mlp(kUsual, a.hidden, a.ffn, fused, out);
}

void add_dense_mlp_biases(const Architecture& a, bool fused,
                          TensorWriter& out) {
  const Folder folder(out, "mlp.");
  if (fused) {
    out.bias("gate_up_proj.bias", 2 * a.ffn, Cut::kRows, gate_up_parts(a.ffn));
  } else {
    out.bias("gate_proj.bias", a.ffn, Cut::kRows);
    out.bias("up_proj.bias", a.ffn, Cut::kRows);
  }
  out.bias("down_proj.bias", a.hidden, Cut::kNone);
}

void add_experts(const Architecture& a, bool fused, TensorWriter& out) {
  const ExpertNumbers& experts = a.experts;
  const bool mixtral = experts.layout == ExpertLayout::kSparseBlock;
  const Folder block(out, mixtral ? "block_sparse_moe." : "mlp.");
  add_router(a, out);
  add_shared_experts(a, fused, out);
  const Folder folder(out, "experts.");
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    const Folder number(out, expert);
    const Folder dot(out, ".");
    out.set_expert(expert);
    if (experts.layout == ExpertLayout::kStacked) {
      add_stacked_expert(a.hidden, experts.ffn, out);
    } else {
      add_mlp(mixtral ? kMixtral : kUsual, a.hidden, experts.ffn, fused, out);
    }
  }
  out.set_expert(-1);
}

}  // namespace canzona
