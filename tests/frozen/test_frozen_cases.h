// The requests of the frozen set, in words. Knows no type of the library.
//
//   for (const FrozenCase& c : frozen_plan_cases()) …
//   c.text();               // "model=moe/4x4 mesh=dp=4,tp=2 rule=muon …"
//   c.get("zero", "zero1")  // "hier:2"
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace canzona::tests {

class FrozenCase {
 public:
  // Words that are empty are left out.
  FrozenCase& set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, const std::string& fallback) const;
  int64_t number(const std::string& key, int64_t fallback) const;
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> words_;
};

// All strategies, rules and meshes, each with drawn ZeRO sizes, nodes, buckets
// and so on; requests that are refused; large models on large meshes. No case
// twice, the same on every machine.
std::vector<FrozenCase> frozen_plan_cases();
// Some of these, with a workload.
std::vector<FrozenCase> frozen_iteration_cases();
// Returns cases of at most 8 ranks.
std::vector<FrozenCase> frozen_step_cases();

}  // namespace canzona::tests
