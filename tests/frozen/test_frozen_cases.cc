#include "test_frozen_cases.h"

#include <algorithm>
#include <set>

namespace canzona::tests {

FrozenCase& FrozenCase::set(const std::string& key, const std::string& value) {
  if (!value.empty()) words_.emplace_back(key, value);
  return *this;
}

std::string FrozenCase::get(const std::string& key,
                            const std::string& fallback) const {
  for (const auto& [name, value] : words_)
    if (name == key) return value;
  return fallback;
}

int64_t FrozenCase::number(const std::string& key, int64_t fallback) const {
  const std::string value = get(key, "");
  return value.empty() ? fallback : std::stoll(value);
}

std::string FrozenCase::text() const {
  std::string text;
  for (const auto& [name, value] : words_)
    text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

namespace {

using Words = std::vector<std::string>;

// SplitMix64, of its own: cases must not change with the library.
class FrozenDraw {
 public:
  explicit FrozenDraw(uint64_t seed) : state_(seed) {}
  size_t below(size_t count) {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % count;
  }
  const std::string& of(const Words& words) {
    return words[below(words.size())];
  }
  bool one_in(size_t count) { return below(count) == 0; }

 private:
  uint64_t state_;
};

struct FrozenMesh {
  int dp = 1, cp = 1, tp = 1, pp = 1, ep = 1;

  int homes() const { return dp * cp * ep; }
  int expert_homes() const { return dp * cp; }
  int world() const { return homes() * tp * pp; }
  std::string text() const {
    std::string text = "dp=" + std::to_string(dp);
    const auto add = [&](const char* axis, int size) {
      if (size > 1) text += std::string(",") + axis + std::to_string(size);
    };
    add("cp=", cp);
    add("tp=", tp);
    add("pp=", pp);
    add("ep=", ep);
    return text;
  }
};

const Words kStrategies{"replicated", "layerwise", "start_offset",
                        "contiguous", "megatron",  "balanced"};
const Words kRules{"muon", "soap", "shampoo", "adamw"};

// dp, cp, tp, pp, ep.
const std::vector<FrozenMesh> kMeshes{{},
                                      {2},
                                      {3},
                                      {4},
                                      {6},
                                      {7},
                                      {8},
                                      {12},
                                      {16},
                                      {64},
                                      {1, 1, 2},
                                      {1, 1, 4},
                                      {2, 1, 2},
                                      {4, 1, 2},
                                      {6, 1, 2},
                                      {8, 1, 4},
                                      {16, 1, 4},
                                      {2, 2},
                                      {4, 2, 2},
                                      {1, 1, 1, 2},
                                      {4, 1, 1, 2},
                                      {2, 1, 2, 4},
                                      {4, 2, 2, 2},
                                      {2, 1, 1, 1, 2},
                                      {4, 1, 2, 1, 2},
                                      {1, 1, 1, 1, 4},
                                      {2, 2, 1, 1, 2},
                                      {2, 1, 4, 1, 4},
                                      {4, 1, 1, 1, 4},
                                      {4, 2, 2, 2, 2},
                                      {3, 1, 2, 1, 2},
                                      {8, 1, 1, 2, 4}};

std::vector<int> divisors_of(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) divisors.push_back(d);
  return divisors;
}

int divisor_of(FrozenDraw& draw, int number) {
  const std::vector<int> divisors = divisors_of(number);
  return divisors[draw.below(divisors.size())];
}

std::string triple(int z1, int z2, int z3) {
  return "z1=" + std::to_string(z1) + ",z2=" + std::to_string(z2) +
         ",z3=" + std::to_string(z3);
}

// `even`: gradients and parameters are cut alike.
std::string draw_sizes(FrozenDraw& draw, int homes, bool even) {
  const size_t kind = draw.below(10);
  if (kind == 0) return "none";
  if (kind == 1) return "zero1";
  if (kind == 2) return even ? "zero3" : "zero2";
  if (kind == 3) return "zero3";
  if (kind == 4) return "replica:" + std::to_string(divisor_of(draw, homes));
  if (kind <= 6) return "hier:" + std::to_string(divisor_of(draw, homes));
  const int z1 = divisor_of(draw, homes), z2 = divisor_of(draw, z1);
  if (even) return triple(z1, z2, z2);
  return triple(z1, z2, divisor_of(draw, z1));
}

bool takes_uneven_sizes(const std::string& strategy) {
  return strategy != "replicated" && strategy != "layerwise";
}

std::string draw_rule_options(FrozenDraw& draw, const std::string& rule) {
  if (rule == "muon") return draw.of({"", "", "newton_schulz:standard"});
  if (rule == "soap")
    return draw.of(
        {"", "precondition_frequency:4,phases:3", "precondition_frequency:3"});
  if (rule == "shampoo") return draw.of({"", "precondition_frequency:3"});
  return "";
}

// Draws what is asked of ZeRO, nodes and links.
void draw_zero(FrozenDraw& draw, const FrozenMesh& mesh, bool has_experts,
               FrozenCase& c) {
  const bool uneven = takes_uneven_sizes(c.get("strategy", ""));
  // Now and then what a strategy refuses.
  const bool even = !uneven && !draw.one_in(20);
  c.set("zero", draw_sizes(draw, mesh.homes(), even));
  if (has_experts && draw.one_in(2))
    c.set("experts", draw_sizes(draw, mesh.expert_homes(), even));
  c.set("nodes", draw.of({"1", "2", "4", "8"}));
  if (draw.one_in(3)) c.set("reach", "per-node");
  if (draw.one_in(3)) c.set("message", "parameter");
  if (draw.one_in(even ? 30 : 4)) c.set("sum", "allreduce");
  c.set("prefetch", draw.of({"", "", "0", "1", "5"}));
}

FrozenCase draw_plan_case(FrozenDraw& draw, const FrozenMesh& mesh,
                          const std::string& strategy,
                          const std::string& rule) {
  FrozenCase c;
  const std::string model =
      mesh.ep > 1
          ? draw.of({"moe/4x4", "moe/4x8", "frozen/4x4"})
          : draw.of({"dense/4", "dense/8", "tied/4", "moe/4x4", "frozen/4x4"});
  c.set("model", model).set("mesh", mesh.text());
  c.set("strategy", strategy).set("rule", rule);
  c.set("options", draw_rule_options(draw, rule));
  const bool has_experts = model.find('x') != std::string::npos;
  draw_zero(draw, mesh, has_experts, c);
  c.set("parameters", draw.of({"", "fp32"}));
  c.set("bucket", draw.of({"", "1", "500", "3000", "3000"}));
  c.set("capacity", draw.of({"", "0", "8192"}));
  c.set("cap", draw.of({"", "", "", "", "40000", "200000"}));
  // Heads are not split where experts are planned apart.
  c.set("split", draw.of({"", "", "qkv", has_experts ? "gate-up" : "head",
                          "qkv,gate-up"}));
  if (takes_uneven_sizes(strategy))
    c.set("rounds",
          draw.of({"", "", "", "none", "sorted", "capacity", "balanced"}));
  c.set("links", draw.of({"", "slow"}));
  c.set("weight", draw.of({"", "", "", "numel", "flops", "cost"}));
  return c;
}

FrozenCase from_words(const Words& words) {
  FrozenCase c;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    c.set(word.substr(0, at), word.substr(at + 1));
  }
  return c;
}

std::vector<FrozenCase> refused_cases() {
  std::vector<FrozenCase> cases;
  for (const Words& words : std::vector<Words>{
           {"model=dense/4", "mesh=dp=2,tp=3"},
           {"model=dense/4", "mesh=dp=2,pp=3"},
           {"model=moe/4x4", "mesh=dp=2,ep=3"},
           {"model=dense/4", "mesh=dp=6", "zero=hier:4"},
           {"model=dense/4", "mesh=dp=6", "zero=z1=6,z2=2,z3=3"},
           {"model=dense/4", "mesh=dp=6", "zero=z1=4"},
           {"model=dense/4", "mesh=dp=6", "zero=zero3", "nodes=4",
            "reach=per-node"},
           {"model=dense/4", "mesh=dp=4", "experts=zero3"},
           {"model=moe/4x4", "mesh=dp=4,ep=2", "experts=hier:3"},
           {"model=moe/4x4", "mesh=dp=4,ep=2", "zero=zero3", "split=head"},
           {"model=dense/4", "mesh=dp=4", "bucket=0"},
           {"model=dense/4", "mesh=dp=4", "strategy=unknown"},
           {"model=dense/4", "mesh=dp=4,tp=2", "capacity=100"},
           {"model=dense/4", "mesh=dp=4", "options=precondition_frequency:3"},
       })
    cases.push_back(from_words(words));
  return cases;
}

std::vector<FrozenCase> large_cases() {
  std::vector<FrozenCase> cases;
  for (const Words& words : std::vector<Words>{
           {"model=qwen3-32b", "mesh=dp=32,tp=8"},
           {"model=qwen3-32b", "mesh=dp=32,tp=8", "zero=hier:8", "rule=soap",
            "table=nvidia_h200"},
           {"model=qwen3-32b", "mesh=dp=32,tp=8", "strategy=contiguous",
            "zero=zero3", "reach=per-node"},
           {"model=qwen3-0.6b", "mesh=dp=8", "rule=shampoo", "zero=hier:4",
            "table=nvidia_h200"},
           {"model=llama-3-70b", "mesh=dp=16,tp=8,pp=4", "strategy=megatron"},
           {"model=gpt2", "mesh=dp=8", "rule=adamw", "zero=replica:2"},
           {"model=qwen3-30b-a3b", "mesh=dp=8,ep=8,tp=4", "zero=hier:8"},
           {"model=qwen3-30b-a3b", "mesh=dp=64,tp=4,ep=4", "table=nvidia_h200"},
           {"model=qwen3-235b-a22b", "mesh=dp=32,tp=4,ep=8"},
       })
    cases.push_back(from_words(words));
  return cases;
}

void append(std::vector<FrozenCase>& to, const std::vector<FrozenCase>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

std::vector<FrozenCase> frozen_plan_cases() {
  constexpr int kDraws = 3;
  FrozenDraw draw(18);
  std::set<std::string> seen;
  std::vector<FrozenCase> cases;
  for (const std::string& strategy : kStrategies)
    for (const std::string& rule : kRules)
      for (const FrozenMesh& mesh : kMeshes)
        for (int i = 0; i < kDraws; ++i) {
          const FrozenCase c = draw_plan_case(draw, mesh, strategy, rule);
          if (seen.insert(c.text()).second) cases.push_back(c);
        }
  append(cases, refused_cases());
  append(cases, large_cases());
  return cases;
}

std::vector<FrozenCase> frozen_iteration_cases() {
  constexpr size_t kEvery = 23;
  FrozenDraw draw(19);
  const std::vector<FrozenCase> all = frozen_plan_cases();
  std::vector<FrozenCase> cases;
  for (size_t i = 0; i < all.size(); i += kEvery) {
    FrozenCase c = all[i];
    c.set("micro", draw.of({"1", "2", "4"}));
    c.set("overlap", draw.of({"none", "main", "background"}));
    c.set("copies", draw.of({"", "2e8"}));
    c.set("hidden", draw.of({"", "16"}));
    cases.push_back(c);
  }
  return cases;
}

std::vector<FrozenCase> frozen_step_cases() {
  constexpr int kDraws = 3;
  const std::vector<FrozenMesh> meshes{{},
                                       {2},
                                       {3},
                                       {4},
                                       {1, 1, 2},
                                       {2, 1, 2},
                                       {4, 1, 2},
                                       {8},
                                       {6},
                                       {2, 1, 1, 2},
                                       {2, 2, 2},
                                       {2, 1, 2, 1, 2},
                                       {4, 1, 1, 1, 2},
                                       {1, 1, 1, 1, 4}};
  FrozenDraw draw(20);
  std::vector<FrozenCase> cases;
  for (const std::string& strategy : kStrategies)
    for (const std::string& rule : kRules)
      for (int i = 0; i < kDraws; ++i) {
        // Meshes in turn, so that every one is there.
        const FrozenMesh& mesh = meshes[cases.size() % meshes.size()];
        FrozenCase c;
        const std::string model = mesh.ep > 1 || draw.one_in(2)
                                      ? draw.of({"moe/2x4", "frozen/2x4"})
                                      : "dense/2";
        c.set("model", model).set("mesh", mesh.text());
        c.set("strategy", strategy).set("rule", rule);
        if (rule == "soap" || rule == "shampoo")
          c.set("options", "precondition_frequency:2");
        draw_zero(draw, mesh, model.find('x') != std::string::npos, c);
        c.set("parameters", draw.of({"", "fp32", "fp32"}));
        c.set("bucket", draw.of({"500", "3000"})).set("capacity", "8192");
        c.set("micro", draw.of({"1", "2"}));
        c.set("overlap", draw.of({"none", "main", "background"}));
        cases.push_back(c);
      }
  return cases;
}

}  // namespace canzona::tests
