#include "canzona/train/resume.h"

#include <algorithm>
#include <array>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/mesh.h"
#include "canzona/train/config_keys.h"

namespace canzona::train {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

Json side_object(const std::string& text, const std::string& where) {
  Json object = parse_json(text, {.what = where});
  if (!object.is_object()) throw UsageError(cat(where, ": no object"));
  return object;
}

// Runs `read`; a fault is the checkpoint's, not the caller's.
template <class Read>
auto of_checkpoint(const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    throw DataLost(error.what());
  }
}

const std::string& text_called(const std::map<std::string, std::string>& texts,
                               const char* name, const std::string& where) {
  const auto found = texts.find(name);
  if (found == texts.end())
    throw DataLost(
        cat(where, " has no ", name,
            ", which records the progress of the run; it cannot be resumed"));
  return found->second;
}

int64_t count_of(const Json& object, const char* key, const std::string& where,
                 int64_t low = 0) {
  return get_integer(object, key, low, kLargest, where);
}

// A loss that is not finite was written as null.
double loss_or_nan(const Json& object, const char* key,
                   const std::string& where) {
  return get_member(object, key, where).is_null()
             ? std::numeric_limits<double>::quiet_NaN()
             : get_number(object, key, where);
}

// Checkpoints from before spikes were recorded have none of these.
void read_spikes(const Json& run, const std::string& where, RunState& state) {
  if (!run.contains("recent_losses")) return;
  const Json& losses = run["recent_losses"];
  if (!losses.is_array() || losses.size() > kMostRecentLosses)
    throw UsageError(cat(where, ": recent_losses: expected a list of at most ",
                         kMostRecentLosses, " numbers"));
  for (const Json& loss : losses) {
    if (!loss.is_number())
      throw UsageError(cat(where, ": recent_losses: expected numbers"));
    state.recent_losses.push_back(loss.get<double>());
  }
  state.spikes = {count_of(run, "spikes", where),
                  count_of(run, "spike_step", where, -1),
                  loss_or_nan(run, "spike_loss", where),
                  loss_or_nan(run, "spike_over", where)};
}

}  // namespace

std::string data_json(const RunState& state, const DataIdentity& data) {
  JsonWriter out(2);
  out.begin_object()
      .field("sequences", state.sequences)
      .field("tokens", state.tokens)
      .field("length", data.length)
      .field("seed", data.seed)
      .field("description", data.description)
      .field("digest", data.digest);
  return out.end_object().take() + "\n";
}

std::string run_json(const RunState& state) {
  JsonWriter out(2);
  out.begin_object()
      .field("step", state.step)
      .field("starts", state.starts)
      .field("seconds", state.seconds)
      .field("tokens", state.tokens)
      .field("last_loss", state.last_loss)
      .field("skipped_steps", state.skipped_steps)
      .field("skipped_in_a_row", state.skipped_in_a_row)
      .field("nonfinite_tensor", state.nonfinite_tensor)
      .field("nonfinite_rank", state.nonfinite_rank)
      .field("spikes", state.spikes.count)
      .field("spike_step", state.spikes.step)
      .field("spike_loss", state.spikes.loss)
      .field("spike_over", state.spikes.over);
  if (!state.device.empty()) out.field("device", state.device);
  out.member("recent_losses").values(state.recent_losses);
  return out.end_object().take() + "\n";
}

std::string rng_json(uint64_t seed) {
  JsonWriter out(2);
  out.begin_object().field("seed", seed).field("kind", "stateless");
  return out.end_object().take() + "\n";
}

RunState read_run_state(const std::map<std::string, std::string>& texts,
                        const std::string& checkpoint) {
  const std::string at = printable(checkpoint);
  return of_checkpoint([&] {
    RunState state;
    std::string where = cat(at, "/data.json");
    const Json data = side_object(text_called(texts, kDataFile, at), where);
    state.sequences = count_of(data, "sequences", where);
    state.tokens = count_of(data, "tokens", where);
    where = cat(at, "/run.json");
    const Json run = side_object(text_called(texts, kRunFile, at), where);
    state.step = count_of(run, "step", where);
    state.starts = count_of(run, "starts", where, 1);
    state.seconds = get_number(run, "seconds", where);
    state.last_loss = loss_or_nan(run, "last_loss", where);
    state.skipped_steps = count_of(run, "skipped_steps", where);
    state.skipped_in_a_row = count_of(run, "skipped_in_a_row", where);
    state.nonfinite_tensor = get_string(run, "nonfinite_tensor", where);
    state.nonfinite_rank = count_of(run, "nonfinite_rank", where, -1);
    read_spikes(run, where, state);
    if (run.contains("device")) state.device = get_string(run, "device", where);
    return state;
  });
}

DataIdentity read_data_identity(const std::string& data_json,
                                const std::string& checkpoint) {
  return of_checkpoint([&] {
    const std::string where = cat(printable(checkpoint), "/data.json");
    const Json data = side_object(data_json, where);
    return DataIdentity{
        .description = get_string(data, "description", where),
        .digest = get_string(data, "digest", where),
        .length = count_of(data, "length", where),
        .seed = static_cast<uint64_t>(count_of(data, "seed", where))};
  });
}

namespace {

// Decays, tolerances and forms of products leave the meaning of the states
// unchanged. Options not listed must stay: sizes of blocks, the kind of
// momentum, or the basis that it is kept in. A preset may change as far as the
// options that it sets may.
constexpr auto kOptionsThatMayChange =
    std::to_array<std::string_view>({"beta1",
                                     "beta2",
                                     "beta3",
                                     "cautious_decay",
                                     "coefficients",
                                     "constraint",
                                     "constraint_eps",
                                     "constraint_radius",
                                     "decay_lr",
                                     "device",
                                     "epsilon",
                                     "epsilon_mode",
                                     "equilibrate",
                                     "equilibrate_eps",
                                     "grafting_beta2",
                                     "grafting_epsilon",
                                     "max_update_rms",
                                     "momentum",
                                     "nesterov",
                                     "newton_schulz",
                                     "norm_factor",
                                     "normalization",
                                     "overrun",
                                     "power_steps",
                                     "precision",
                                     "precondition_frequency",
                                     "preset",
                                     "renorm",
                                     "renorm_eps",
                                     "restarts",
                                     "scale",
                                     "scale_extra",
                                     "second_moment_eps",
                                     "second_moment_eps_mode",
                                     "second_moment_norm_eps",
                                     "steps",
                                     "strips"});

// These decide which states are kept beside those of the plain rule.
constexpr auto kOptionsThatAddStates =
    std::to_array<std::string_view>({"second_moment", "second_moment_axis"});

struct KeptValue {
  std::string key, saved, now;
};

std::vector<KeptValue> keys_that_differ(const TrainConfig& saved,
                                        const TrainConfig& now) {
  TrainConfig before = saved, after = now;
  const std::vector<ConfigKey> old_keys = config_keys(before);
  const std::vector<ConfigKey> new_keys = config_keys(after);
  std::vector<KeptValue> out;
  for (size_t k = 0; k < old_keys.size(); ++k) {
    const std::string was = old_keys[k].text(), is = new_keys[k].text();
    if (was != is && old_keys[k].on_resume != OnResume::kMayChange)
      out.push_back({old_keys[k].name, was, is});
  }
  return out;
}

// Compares effective values, because a preset of the rule stands for many.
void add_options_that_differ(const TrainConfig& saved, const TrainConfig& now,
                             bool begins_missing, std::vector<KeptValue>& out) {
  if (saved.rule.name != now.rule.name) return;
  const auto in_force = [](const TrainConfig& config) {
    return make_rule_facts(config.rule.name, rule_options_of(config))
        ->options();
  };
  const RuleOptions before = in_force(saved), after = in_force(now);
  for (const auto& [name, value] : before) {
    const auto other = after.find(name);
    const std::string is = other == after.end() ? "" : other->second;
    const bool has_own_key = name == "learning_rate" || name == "weight_decay";
    // AdamW's own options come from keys that may change.
    if (value != is && !has_own_key && !may_change_option(name, begins_missing))
      out.push_back({kRuleOption + name, value, is});
  }
}

std::string shown(const std::string& value) {
  return value.empty() ? "none" : value;
}

}  // namespace

Settings saved_settings(std::string_view config_json,
                        const std::string& origin) {
  Settings settings = json_settings(config_json, origin);
  std::erase_if(settings, [](const Setting& setting) {
    return setting.key == "run" || setting.key == "ranks";
  });
  return settings;
}

bool may_change_option(const std::string& option, bool begins_missing) {
  const auto is_in = [&](const auto& options) {
    return std::ranges::find(options, option) != options.end();
  };
  return is_in(kOptionsThatMayChange) ||
         (begins_missing && is_in(kOptionsThatAddStates));
}

namespace {

// Returns the way to change what adds states, if that is all that differs.
std::string way_out(const std::vector<KeptValue>& differing) {
  const bool adds_states =
      std::ranges::all_of(differing, [](const KeptValue& value) {
        return value.key.starts_with(kRuleOption) && value.now != "none" &&
               may_change_option(
                   value.key.substr(std::string_view(kRuleOption).size()),
                   true);
      });
  return adds_states
             ? "add --missing init to begin the states that were not saved"
             : "start a new run instead of resuming";
}

}  // namespace

void require_resumable(const TrainConfig& saved, const TrainConfig& now,
                       const std::string& origin, bool begins_missing) {
  std::vector<KeptValue> differing = keys_that_differ(saved, now);
  add_options_that_differ(saved, now, begins_missing, differing);
  if (differing.empty()) return;
  constexpr size_t kMost = 10;
  const std::vector<ConfigRow> rows = config_rows(now);
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kMost, differing.size()); ++i) {
    const KeptValue& value = differing[i];
    const auto row = std::ranges::find(rows, value.key, &ConfigRow::key);
    CANZONA_CHECK(row != rows.end(), "key ", value.key);
    lines.push_back(cat(value.key, " is ", shown(value.saved), " in the ",
                        origin, ", and ", shown(value.now), " now (",
                        row->origin, ")"));
  }
  if (differing.size() > kMost)
    lines.push_back(cat("and ", differing.size() - kMost, " more"));
  throw UsageError(cat(
      "resume: ", join(lines, "; "), "; a resumed run must keep ",
      differing.size() == 1 ? "it" : "them",
      " (canzona config keys says which may change): leave ",
      differing.size() == 1 ? "it" : "them", " out, or ", way_out(differing)));
}

namespace {

// Returns the first key that decides which ranks can share a matrix and that
// has changed, with both values; "" if none has.
std::string change_for_teams(const TrainConfig& saved, const TrainConfig& now) {
  const auto strips = [](const TrainConfig& config) {
    const auto found = config.rule.options.find("strips");
    return found == config.rule.options.end() ? "auto" : found->second;
  };
  const std::array<KeptValue, 6> values = {{
      {"mesh", to_string(mesh_of(saved)), to_string(mesh_of(now))},
      {"plan.strategy", saved.planner["strategy"], now.planner["strategy"]},
      {"zero.sizes", saved.planner["zero"], now.planner["zero"]},
      {"zero.experts", saved.planner["zero-experts"],
       now.planner["zero-experts"]},
      {"links.ranks_per_node", saved.planner["ranks-per-node"],
       now.planner["ranks-per-node"]},
      {"rule.option.strips", strips(saved), strips(now)},
  }};
  for (const KeptValue& value : values)
    if (value.saved != value.now)
      return cat(value.key, " is ", shown(value.now), " now, not ",
                 shown(value.saved));
  return "";
}

// Sets a size of teams that `now` took from the checkpoint to auto; returns a
// note, "" if there is none.
std::string free_teams(const std::string& change, const TrainConfig& saved,
                       TrainConfig& now) {
  constexpr const char* kKey = "plan.teams";
  const std::string was = now.planner["teams"], origin = now.origin(kKey);
  if (was == "auto" || was == "off" || origin != saved.origin(kKey)) return "";
  now.planner["teams"] = "auto";
  now.origins[kKey] = cat(origin, ", where it is ", was);
  return cat(kKey, " ", was, " (", origin, ") became auto: ", change);
}

// Says what settle_mesh() has made of ZeRO sizes of the checkpoint; "" if it
// has changed nothing.
std::string note_on_sizes(const std::string& key, const TrainConfig& saved,
                          const TrainConfig& now, const std::string& was,
                          const std::string& is) {
  const std::string& origin = saved.origin(key);
  if (now.origin(key) != cat(origin, ", where it is ", was)) return "";
  return cat(key, " ", was, " (", origin, ") became ", is,
             ", the nearest sizes on ", now.mesh);
}

}  // namespace

std::vector<std::string> free_saved_choices(const TrainConfig& saved,
                                            TrainConfig& now) {
  const std::string change = change_for_teams(saved, now);
  if (change.empty()) return {};
  std::vector<std::string> notes = {
      note_on_sizes("zero.sizes", saved, now, saved.planner["zero"],
                    now.planner["zero"]),
      note_on_sizes("zero.experts", saved, now, saved.planner["zero-experts"],
                    now.planner["zero-experts"]),
      free_teams(change, saved, now)};
  std::erase(notes, "");
  return notes;
}

}  // namespace canzona::train
