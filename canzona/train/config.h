// A TrainConfig has all settings of a training run and where each came from.
// One table (config_keys.h) lists the keys; parsing, help, documentation and
// JSON are made from it.
//
//   Settings given = read_config_file("run.toml");
//   given.push_back(parse_setting("steps=50", "--set"));
//   TrainConfig config = make_config(given);
//   config.origins.at("steps");   // "--set"
//
// Later settings override earlier ones, which override the preset's values,
// which override the defaults. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/option_table.h"
#include "canzona/rules/facts.h"
#include "canzona/train/settings.h"

namespace canzona::train {

// A Schedule is the learning rate by steps, as a factor of its peak.
//
//   double rate = peak * rate_factor(step, steps, {.kind = "cosine"});
//
// Steps count 0 … steps - 1. Warm-up rises evenly to 1 and ends with step
// warmup - 1. Then, by kind, with p from 0 at the next step to 1 at `steps`:
//
//   constant   1
//   linear     1 - p · (1 - final)
//   cosine     final + (1 - final) · (1 + cos π p) / 2
//   wsd        1, and linear over the last `decay` steps
//
// All functions are pure.

struct ScheduleSettings {
  std::string kind = "wsd";
  int64_t warmup = 0;  // steps
  double decay = 0.2;  // wsd: below 1 a share of all steps, else steps
  double final = 0;    // factor at the end
};

std::vector<std::string> schedule_kinds();

// Returns a factor from 0 to 1. `steps` may be 0; then there is no step to ask
// for.
double rate_factor(int64_t step, int64_t steps,
                   const ScheduleSettings& settings);

// Numbers are zero until the preset provides them.
struct TrainConfig {
  static constexpr int64_t kAutoMicroBatch = 0;

  std::string preset = "tiny";
  int64_t seed = 1;
  int64_t steps = 0;
  struct {
    std::string path = "synthetic";
    std::string tokenizer = {};  // "": bytes are tokens
    double held_out = 0.05;
  } data = {};
  struct {
    std::string name = {};  // "": the preset's
    int64_t layers = 0;
    int64_t hidden = 0;
    int64_t ffn = 0;
    int64_t heads = 0;
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t vocab = 256;
    int64_t length = 0;
    int64_t context = 0;  // 0: the length
    bool tied = false;
    bool qk_norm = true;
    double rope_base = 10000;
    double norm_epsilon = 1e-6;
    std::string recompute = "off";
    int64_t experts = 0;
    int64_t experts_per_token = 2;
    int64_t expert_ffn = 0;
    int64_t shared_experts = 0;
    double balance_coefficient = 0.01;
  } model = {};
  struct {
    int64_t global = 0;
    int64_t micro = 0;  // kAutoMicroBatch: the largest that fits
  } batch = {};
  struct {
    std::string name = kDefaultRule;
    double learning_rate = 0;
    double weight_decay = 0.1;
    RuleOptions options = {};  // as given by rule.option.X
  } rule = {};
  struct {
    double learning_rate = 0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
  } adamw = {};
  ScheduleSettings schedule = {};
  double clip = 1;
  struct {
    double tau = 0;  // 0: off
    double alpha = 0.5;
    std::string group = "group_max";
  } qk_clip = {};
  int64_t max_skipped = 10;  // steps in a row; 0: any number
  struct {
    double factor = 10;  // times the median of recent losses; 0: never
    bool stop = false;
  } spike = {};
  int64_t check_replicas = 0;  // steps; 0: never
  std::string init;            // weights to start from; "": random
  std::string freeze;          // patterns of names, separated by commas
  struct {
    int64_t every = 0;
    int64_t sequences = -1;  // -1: auto; 0: all
  } eval = {};
  struct {
    int64_t every = 0;  // steps; 0: nothing is saved
    int64_t keep_last = 2;
    std::string mode = "background";
  } save = {};
  // What the planner's options say (plan/option_table.h).
  PlannerTexts planner = PlannerTexts::defaults();
  bool reuse = false;      // zero.reuse
  std::string link_model;  // links.model; "": as fast as memory
  std::string mesh = {};   // "": dp over all ranks
  int64_t ranks = 0;       // 0: as many as in the mesh
  std::string transport = "auto";
  std::string device = "cpu";
  std::string attention = "cudnn";
  std::string wire = "fp32";
  std::string run = {};  // "": nothing is written
  struct {
    int64_t every = 1;
  } log = {};

  std::map<std::string, std::string> origins = {};  // for every key

  const std::string& origin(const std::string& key) const {
    return origins.at(key);
  }
  bool chooses_micro_batch() const { return batch.micro == kAutoMicroBatch; }
};

// Applies defaults, the preset's values, then `given` in order. UsageError
// names the key, its origin, what was expected and what came.
TrainConfig make_config(const Settings& given);

// Returns a note if a file of an older program says that matrices are exchanged
// strip by strip, which this one does not do; "" otherwise.
std::string note_on_strips(const TrainConfig& config);

// Checks constraints between keys; make_config() calls it.
void check_config(const TrainConfig& config);

// How many ranks there could be if the configuration does not say.
struct RankCounts {
  int64_t launched = 0;  // by a launcher; 0: none
  int64_t cores = 1;     // on this machine
};

// Determines the mesh: as given, or dp over `ranks`, over the launcher's ranks,
// or over as many cores as the batch can be divided among. The mesh becomes
// part of the configuration, with its origin. A preset's batch.micro is lowered
// to what a data-parallel rank has, and so is that of a checkpoint, whose ZeRO
// sizes become the nearest that the mesh allows. Throws UsageError if counts
// contradict each other or the batch cannot be divided over the mesh.
Mesh settle_mesh(TrainConfig& config, const RankCounts& counts);

// The same on one core, without changing the configuration.
Mesh mesh_of(const TrainConfig& config, int64_t launched = 0);

// Returns how many held-out sequences an evaluation takes, if there are that
// many: with `auto`, as many as contain a tenth of the tokens that the run
// trains on, at least one; none if the run has no steps.
int64_t eval_sequences_of(const TrainConfig& config);

// Returns the name of the trained model, for people.
inline const std::string& model_name(const TrainConfig& config) {
  return config.model.name.empty() ? config.preset : config.model.name;
}

// Returns the longest context that the model is made for, in tokens: the
// training length, or more if its weights came with more.
inline int64_t context_length_of(const TrainConfig& config) {
  return std::max(config.model.context, config.model.length);
}

// Return the planner's options as requested; `zero=auto` is resolved by code
// that can choose; until then it counts as ZeRO-1. UsageError names the key
// that is wrong.
bool chooses_zero(const TrainConfig& config);
bool chooses_experts(const TrainConfig& config);
PlanOptions planner_options_of(const TrainConfig& config, const Mesh& mesh);

// Return the options of the matrix rule, with its learning rate and decay, and
// of AdamW for everything else. If the matrix rule is AdamW, adamw.beta1 and so
// on apply to it as well, unless rule.option sets them or a preset.
RuleOptions rule_options_of(const TrainConfig& config);
RuleOptions adamw_options_of(const TrainConfig& config);

// Writes the value of every key as one object, nested at the dots; the result
// is itself a configuration file.
void write_config(JsonWriter& out, const TrainConfig& config);

}  // namespace canzona::train
