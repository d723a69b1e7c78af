#include "canzona/report/mesh_commands.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona::report {
namespace {

// A word of a command line, quoted where a shell would read it otherwise.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "-_=.,:/+@%";
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || kPlain.find(c) != kPlain.npos;
  });
  if (is_plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

int64_t sequences(const LaunchedMesh& m) { return m.tokens / m.length; }

int64_t global_sequences(const LaunchedMesh& m) {
  return sequences(m) * m.num_micro_batches * m.mesh.homes();
}

std::string why_no_sequences(const LaunchedMesh& m) {
  if (m.length > 0 && m.tokens >= m.length && m.tokens % m.length == 0)
    return "";
  return cat("a micro-batch of ", m.tokens, " tokens is no whole number of ",
             "sequences of ", m.length);
}

std::string zero_text(const LaunchedMesh& m) {
  return zero_name(m.zero.sizes, m.mesh.homes());
}

std::string experts_text(const LaunchedMesh& m) {
  return m.zero.experts.z1 > 0
             ? zero_name(m.zero.experts, m.mesh.expert_homes())
             : "";
}

// The beginning of a command of torchrun.
std::vector<std::string> torchrun(const LaunchedMesh& m) {
  const int32_t world = m.mesh.world();
  if (world <= m.ranks_per_node)
    return {"torchrun", "--standalone", cat("--nproc-per-node ", world)};
  return {"torchrun", cat("--nnodes ", world / m.ranks_per_node),
          cat("--nproc-per-node ", m.ranks_per_node),
          "--rdzv-backend c10d --rdzv-endpoint HOST:29500"};
}

MeshCommand train_command(const LaunchedMesh& m) {
  MeshCommand out{"canzona train", "", m.untrained};
  if (out.why_not.empty()) out.why_not = why_no_sequences(m);
  if (!out.why_not.empty()) return out;
  std::vector<std::string> words = {"canzona train --model",
                                    shell_word(m.model),
                                    "--data DATA --mesh",
                                    to_string(m.mesh),
                                    "--rule",
                                    m.rule};
  if (!is_plain(m.zero.sizes, m.mesh.homes()))
    words.push_back("--zero " + zero_text(m));
  if (m.zero.experts.z1 > 0)
    words.push_back("--zero-experts " + experts_text(m));
  if (m.zero.reach == Reach::kPerNode) words.emplace_back("--collectives node");
  words.push_back(cat("--ranks-per-node ", m.ranks_per_node));
  words.push_back(cat("--set model.length=", m.length));
  words.push_back(cat("--set batch.global=", global_sequences(m)));
  words.push_back(cat("--set batch.micro=", sequences(m)));
  if (m.recompute) words.emplace_back("--set model.recompute=on");
  out.line = join(words, " ");
  return out;
}

// The layout of PyTorch that keeps what these sizes keep, as layout.py takes
// it; "" if there is none.
std::string torch_layout(const LaunchedMesh& m) {
  const ZeroSizes& z = m.zero.sizes;
  const int32_t homes = m.mesh.homes();
  const bool all_states = z.z1 == homes;
  if ((z.z3 != z.z2 && z.z3 != 1) || (!all_states && z.z1 != z.z2)) return "";
  // Replicas of DDP and HSDP share states where all ranks do.
  const char* shared =
      all_states && z.z2 < homes && homes > 1 ? " --share-states" : "";
  const char* whole = z.z3 < z.z2 ? " --keep-parameters" : "";
  if (z.z2 == 1) return cat("ddp", shared);
  if (z.z2 == homes) return cat("fsdp2", whole);
  return cat("hsdp:", z.z2, shared, whole);
}

std::string why_no_torch(const LaunchedMesh& m) {
  const Mesh& mesh = m.mesh;
  if (mesh.pp > 1 || mesh.ep > 1 || mesh.cp > 1)
    return cat("the package plans dp and tp; this mesh has ",
               mesh.pp > 1   ? "pipeline stages"
               : mesh.ep > 1 ? "expert parallelism"
                             : "context parallelism");
  if (m.zero.experts.z1 > 0 && m.zero.experts != m.zero.sizes)
    return cat("experts have ZeRO sizes of their own, ", experts_text(m));
  if (torch_layout(m).empty())
    return cat("DDP, FSDP2 and HSDP do not have ZeRO sizes ",
               to_string(m.zero.sizes));
  return "";
}

MeshCommand torch_command(const LaunchedMesh& m) {
  MeshCommand out{"PyTorch", "", why_no_torch(m)};
  if (!out.why_not.empty()) return out;
  std::vector<std::string> words = torchrun(m);
  words.push_back("examples/pytorch/layout.py --layout " + torch_layout(m));
  if (m.mesh.tp > 1) words.push_back(cat("--tp ", m.mesh.tp));
  if (m.rule != kDefaultRule) words.push_back("--rule " + m.rule);
  if (m.recompute) words.emplace_back("--recompute");
  if (m.num_micro_batches > 1)
    words.push_back(cat("--micro-batches ", m.num_micro_batches));
  out.line = join(words, " ");
  return out;
}

std::string why_no_megatron(const LaunchedMesh& m) {
  if (m.rule != kDefaultRule && m.rule != kElementRule)
    return cat("Megatron-Core has no optimizer ", m.rule);
  const auto is_whole = [](const ZeroSizes& z) {
    return z.z2 == 1 && z.z3 == 1;
  };
  const int32_t homes = m.mesh.homes();
  if (!is_whole(m.zero.sizes) ||
      (m.zero.experts.z1 > 0 && !is_whole(m.zero.experts)))
    return cat("it shards gradients and parameters (", zero_text(m),
               experts_text(m).empty() ? "" : " / " + experts_text(m),
               ") only under its FSDP, which has no whole matrices");
  if (m.zero.sizes.z1 != 1 && m.zero.sizes.z1 != homes)
    return cat("its layer-wise optimizer shards states over all ", homes,
               " data-parallel ranks or none, not over ", m.zero.sizes.z1);
  return why_no_sequences(m);
}

MeshCommand megatron_command(const LaunchedMesh& m) {
  MeshCommand out{"Megatron-Core", "", why_no_megatron(m)};
  if (!out.why_not.empty()) return out;
  std::vector<std::string> words = torchrun(m);
  words.emplace_back(m.rule == kDefaultRule
                         ? "-m canzona.megatron pretrain_gpt.py --optimizer "
                           "muon --muon-tp-mode duplicated"
                         : "pretrain_gpt.py --optimizer adam");
  if (m.zero.sizes.z1 > 1) words.emplace_back("--use-distributed-optimizer");
  const auto axis = [&](const char* flag, int32_t size) {
    if (size > 1) words.push_back(cat(flag, " ", size));
  };
  axis("--tensor-model-parallel-size", m.mesh.tp);
  axis("--pipeline-model-parallel-size", m.mesh.pp);
  axis("--expert-model-parallel-size", m.mesh.ep);
  axis("--context-parallel-size", m.mesh.cp);
  words.push_back(cat("--seq-length ", m.length));
  words.push_back(cat("--micro-batch-size ", sequences(m)));
  words.push_back(cat("--global-batch-size ", global_sequences(m)));
  words.emplace_back("--bf16 --overlap-grad-reduce");
  if (m.recompute)
    words.emplace_back(
        "--recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1");
  words.emplace_back("…");
  out.line = join(words, " ");
  return out;
}

}  // namespace

std::vector<MeshCommand> mesh_commands(
    const std::vector<LaunchedMesh>& fastest_first) {
  std::vector<MeshCommand> out;
  for (const auto command : {train_command, torch_command, megatron_command}) {
    MeshCommand found = command(fastest_first.front());
    for (size_t i = 1; i < fastest_first.size() && found.line.empty(); ++i) {
      found.line = command(fastest_first[i]).line;
      found.layout = i;
    }
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace canzona::report
