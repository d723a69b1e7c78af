// The facts of a case are held fast as a line of a file:
//
//   model=dense/4 mesh=dp=4 … | plan 5e0c… | bytes 91af… | ~mean 1.5e-05
//
// First the request, then facts that must be equal, then numbers (~) that must
// be equal to 1e-12 of their size.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace canzona::tests {

struct FrozenFacts {
  std::vector<std::pair<std::string, std::string>> exact;
  std::vector<std::pair<std::string, double>> times;
};

std::string frozen_line(const std::string& text, const FrozenFacts& facts);

// By request. Throws std::runtime_error for a file that cannot be read, and
// for a request that is there twice.
std::map<std::string, FrozenFacts> read_frozen(const std::string& path);

// Lists what differs, by name, with both values; empty if nothing does.
std::vector<std::string> differences(const FrozenFacts& frozen,
                                     const FrozenFacts& now);

}  // namespace canzona::tests
