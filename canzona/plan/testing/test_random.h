// Random meshes, models and wishes for tests of this room and of those to its
// right.
#pragma once

#include "canzona/plan/testing/test_support.h"

namespace canzona::plan {

inline PlanOptions random_options(Random& random) {
  PlanOptions options;
  options.bucket_elements = random.pick<int64_t>({1, 50, 1000, 400'000'000});
  // No matrix of these models needs more than 1 MiB.
  options.capacity_bytes = random.pick<int64_t>({0, 1 << 20, 1 << 30});
  options.parameters = random.pick<DType>({DType::kBf16, DType::kFp32});
  return options;
}

inline RuleChoice random_rule(Random& random) {
  return random.pick<RuleChoice>(
      {{"muon", {}},
       {"muon", {{"newton_schulz", "standard"}}},
       {"soap", {{"precondition_frequency", "4"}, {"phases", "3"}}},
       {"shampoo", {}},
       {"adamw", {}}});
}

inline Mesh random_mesh(Random& random) {
  Mesh mesh;
  mesh.dp = random.pick<int32_t>({1, 2, 4, 7, 8});
  mesh.cp = random.pick<int32_t>({1, 1, 2});
  mesh.tp = random.pick<int32_t>({1, 2, 4, 7});
  mesh.pp = random.pick<int32_t>({1, 1, 2});
  mesh.ep = random.pick<int32_t>({1, 1, 2, 4});
  return mesh;
}

inline Tensor random_tensor(Random& random, const Mesh& mesh,
                            const std::string& name, int32_t layer) {
  const std::vector<int64_t> sides{1, 2, 3, 5, 7, 8, 13, 16, 31};
  const Cut cut = random.pick<Cut>({Cut::kNone, Cut::kRows, Cut::kColumns});
  int64_t rows = random.pick(sides), cols = random.pick(sides);
  if (cut == Cut::kRows) rows *= mesh.tp;
  if (cut == Cut::kColumns) cols *= mesh.tp;
  return matrix_tensor(name, rows, cols, cut, layer);
}

// Odd shapes, with and without experts, norms and an embedding.
inline Model random_model(Random& random, const Mesh& mesh) {
  std::vector<Tensor> tensors;
  if (random.coin()) {
    Tensor embedding = matrix_tensor("embedding", 11 * mesh.tp, 3, Cut::kRows);
    embedding.role = Role::kEmbedding;
    embedding.matrix_rule = false;
    tensors.push_back(embedding);
  }
  const bool has_experts = mesh.ep > 1 || random.coin();
  const int32_t layers = mesh.pp * random.small(1, 3);
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (int32_t i = random.small(1, 3); i > 0; --i) {
      tensors.push_back(
          random_tensor(random, mesh, cat("layers.", layer, ".w", i), layer));
    }
    for (int32_t e = 0; has_experts && e < 4; ++e) {
      tensors.push_back(random_tensor(
          random, mesh, cat("layers.", layer, ".experts.", e), layer));
      tensors.back().expert = e;
    }
    if (random.coin()) {
      tensors.push_back(adamw_tensor(cat("layers.", layer, ".norm"),
                                     random.between(1, 50), layer));
    }
  }
  return model_of(std::move(tensors));
}

}  // namespace canzona::plan
