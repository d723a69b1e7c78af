// The planner's options, one row each: name, help, words, default, how a text
// sets PlanOptions, and the key of a training configuration. The flags of
// `plan`, `compare`, `simulate`, `bench step` and `train`, the keys of
// configurations, their help, and the options of plan.json that are newer than
// its first version are made from this table.
//
//   PlannerTexts texts;  // nothing is given
//   texts["teams"] = "4";
//   const PlannerOption& teams = planner_option("teams");
//   teams.set(options, texts["teams"], teams.flag());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/plan/options.h"

namespace canzona::plan {

// The headings under which help lists options.
enum class PlannerGroup { kInput, kPlanning, kMemory, kZero, kCluster };

struct PlannerOption {
  std::string name;      // "teams": its flag is --teams
  std::string key = {};  // "plan.teams", for training; "": training has none
  PlannerGroup group = PlannerGroup::kPlanning;
  std::string label;       // of its value in help, "SIZE"
  std::string help;        // without words and default
  std::string usual = {};  // the default, as a user writes it
  // Help shows this instead; it is needed where `usual` is "".
  std::string shown_usual = {};
  std::vector<std::string> words = {};
  bool is_open = false;      // other texts than the words are allowed
  bool names_words = false;  // the help names the words itself
  // Whole numbers that are allowed beside the words.
  std::optional<std::pair<int64_t, int64_t>> range = {};
  // Reads a value other than "". A UsageError begins with `name`, or with the
  // option's name. Null if the reader needs more than the text: the mesh, or
  // whether sizes are searched for.
  void (*set)(PlanOptions& options, const std::string& text,
              const std::string& name) = nullptr;
  // If set, plan.json holds this text under `member()` unless it is that of
  // the default.
  std::string (*kept)(const PlanOptions& options) = nullptr;

  std::string flag() const { return "--" + name; }
  std::string member() const;  // "memory_cap"
  const std::string& shown_default() const {
    return shown_usual.empty() ? usual : shown_usual;
  }
};

// Planning and training describe two inputs that are not PlanOptions alike.
inline constexpr const char* kRuleHelp = "rule for matrices";
inline constexpr const char* kRecomputeHelp =
    "layers store only their input and are recomputed in backward";

const std::vector<PlannerOption>& planner_options();
// Requires a name of the table.
const PlannerOption& planner_option(std::string_view name);

// The text of every option; "" means that it is not given.
class PlannerTexts {
 public:
  PlannerTexts();
  static PlannerTexts defaults();  // each is `usual`

  // Require a name of the table. References stay valid.
  const std::string& operator[](std::string_view name) const;
  std::string& operator[](std::string_view name);
  // The text, or the default if it is not given.
  const std::string& or_usual(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> texts_;
};

}  // namespace canzona::plan
