#include <algorithm>
#include <set>

#include "canzona/base/text.h"
#include "canzona/plan/validate/validate.h"

namespace canzona {
namespace {

std::string join_ranks(std::span<const int32_t> ranks) {
  constexpr size_t kShown = 9;
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    words.push_back(std::to_string(ranks[i]));
  return join(words, ", ") + (ranks.size() > kShown ? ", …" : "");
}

void check_blocks(const MatrixBlocks& blocks, const std::string& owners_text,
                  std::span<const int32_t> owners, int32_t teams, int32_t most,
                  std::vector<std::string>& violations) {
  if (std::ssize(owners) != blocks.count())
    violations.push_back(cat(owners_text, " are ", owners.size(),
                             ", expected one for each of the ", blocks.count(),
                             " blocks"));
  const auto ranks = std::ssize(distinct(owners));
  if (ranks > most)
    violations.push_back(cat(owners_text, " are ", ranks,
                             " ranks, more than teams=", teams_text(teams),
                             " allows: at most ", most));
}

}  // namespace

void check_sharing(ShareTable& shares, size_t number, const std::string& matrix,
                   std::span<const int32_t> owners, int32_t teams,
                   int32_t home_size, std::vector<std::string>& violations) {
  const int32_t most = largest_team(teams, home_size);
  const std::string ranks = join_ranks(owners);
  if (shares.is_in_blocks(number))
    return check_blocks(shares.blocks(number),
                        cat(matrix, ": the owners of its blocks (", ranks, ")"),
                        owners, teams, most, violations);
  const auto violated = [&](const auto&... what) {
    violations.push_back(cat(matrix, ": its team (", ranks, ")", what...));
  };
  for (const int32_t rank : std::set<int32_t>(owners.begin(), owners.end()))
    if (std::ranges::count(owners, rank) > 1)
      violated(" names rank ", rank, " twice");
  const auto size = std::ssize(owners);
  if (!is_team_size(size))
    violated(" has ", size, " ranks, expected 2, 4 or 8");
  if (size > most)
    violated(" is larger than teams=", teams_text(teams), " allows: at most ",
             most);
  const StripFacts& facts = shares.strips(number);
  if (size <= facts.most_ranks()) return;
  if (facts.has_helper())
    violated(" has ", size, " ranks, expected an owner and one helper");
  else
    violated(" is larger than the ",
             facts.strips == 1 ? "one strip" : cat(facts.strips, " strips"),
             " of the matrix");
}

}  // namespace canzona
