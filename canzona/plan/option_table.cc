#include "canzona/plan/option_table.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/plan/strategies/strategy.h"

namespace canzona::plan {
namespace {

template <class Entry>
std::vector<std::string> names_of(const std::vector<Entry>& table) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.emplace_back(entry.name);
  return names;
}

void set_micro_groups(PlanOptions& o, const std::string& text,
                      const std::string& name) {
  const std::vector<std::string> modes = names_of(micro_group_table());
  if (std::ranges::find(modes, text) == modes.end())
    throw UsageError(cat(name, " ", quoted(text), ": expected ",
                         join(modes, ", "), did_you_mean(text, modes)));
  o.micro_groups = text;
}

template <auto Member, auto Parse>
void set_parsed(PlanOptions& o, const std::string& text, const std::string&) {
  o.*Member = Parse(text);
}

void set_parameters(PlanOptions& o, const std::string& text,
                    const std::string&) {
  o.parameters = parse_dtype(text, "parameters");
}

template <auto Member, auto Parse>
void set_zero(PlanOptions& o, const std::string& text, const std::string&) {
  o.zero.*Member = Parse(text);
}

template <auto Member>
void set_bytes(PlanOptions& o, const std::string& text,
               const std::string& name) {
  o.*Member = parse_bytes(text, name);
}

void set_links(PlanOptions& o, const std::string& text, const std::string&) {
  o.links = parse_links(text);
}

void set_alpha(PlanOptions& o, const std::string& text,
               const std::string& name) {
  o.alpha = parse_number(text, 0, 1, name);
}

void set_prefetch(PlanOptions& o, const std::string& text,
                  const std::string& name) {
  o.zero.prefetch = parse_prefetch(text, name);
}

void set_ranks_per_node(PlanOptions& o, const std::string& text,
                        const std::string& name) {
  o.ranks_per_node =
      static_cast<int32_t>(parse_integer(text, 1, kMaxWorld, name));
}

std::string kept_master(const PlanOptions& o) {
  return std::string(to_string(o.master));
}

std::string kept_teams(const PlanOptions& o) { return teams_text(o.teams); }

constexpr int64_t kMostBucketElements = 1'000'000'000'000;

void set_bucket_elements(PlanOptions& o, const std::string& text,
                         const std::string& name) {
  o.bucket_elements = text == "auto"
                          ? kAutoBucketElements
                          : parse_integer(text, 1, kMostBucketElements, name);
}

std::vector<PlannerOption> make_rows() {
  // The memory of cards is what CUDA reports as their total.
  return {
      {.name = "split",
       .key = "plan.split",
       .group = PlannerGroup::kInput,
       .label = "HOW",
       .help =
           "how to split tensors into matrices, or several joined by commas",
       .usual = "none",
       .words = {"none", "qkv", "head", "output-head", "gate-up", "expert"},
       .is_open = true,
       .set = set_parsed<&PlanOptions::splits, parse_splits>},
      {.name = "strategy",
       .key = "plan.strategy",
       .label = "NAME",
       .help = "how owners of matrices are chosen",
       .usual = "balanced",
       .words = names_of(strategy_table())},
      {.name = "weight",
       .label = "WHAT",
       .help = "what to balance",
       .shown_usual = "the strategy's",
       .words = {"numel", "flops", "cost"},
       .set = set_parsed<&PlanOptions::weight, parse_weight>},
      {.name = "alpha",
       .label = "A",
       .help = "how unevenly bytes may be distributed, 0 (even) to 1 (free)",
       .shown_usual = "the strategy's",
       .is_open = true,
       .set = set_alpha},
      {.name = "bucket-elements",
       .key = "plan.bucket_elements",
       .label = "N",
       .help = cat(
           "a bucket of gradients closes at N elements of tp shards; auto: ",
           kUsualBucketElements,
           ", more where buckets of balanced would be uneven"),
       .usual = "auto",
       .words = {"auto"},
       .names_words = true,
       .range = {{1, kMostBucketElements}},
       .set = set_bucket_elements},
      {.name = "micro-groups",
       .label = "MODE",
       .help = "how matrices are grouped",
       .shown_usual = "the strategy's",
       .words = names_of(micro_group_table()),
       .set = set_micro_groups},
      {.name = "teams",
       .key = "plan.teams",
       .label = "SIZE",
       .help = "let 2, 4 or 8 ranks of one home and node share a matrix by "
               "strips if the step is predicted to be 3 % shorter: off, auto, "
               "or the largest team size",
       .usual = "off",
       .words = {"auto", "off", "2", "4", "8"},
       .names_words = true,
       .set = set_parsed<&PlanOptions::teams, parse_teams>,
       .kept = kept_teams},
      {.name = "capacity",
       .label = "BYTES",
       .help = "most fp32 bytes of shards per owner and micro-group; 0: no "
               "grouping",
       .usual = "1600MiB",
       .is_open = true,
       .set = set_bytes<&PlanOptions::capacity_bytes>},
      {.name = "parameters",
       .label = "DTYPE",
       .help = "dtype of the model's parameters",
       .usual = "bf16",
       .words = {"bf16", "fp32"},
       .set = set_parameters},
      {.name = "master",
       .key = "plan.master",
       .group = PlannerGroup::kMemory,
       .label = "FORM",
       .help = "how the fp32 masters of bf16 parameters are kept: fp32, or "
               "remainder, the 16 bits that restore them; the same weights",
       .usual = "fp32",
       .words = {"fp32", "remainder"},
       .names_words = true,
       .set = set_parsed<&PlanOptions::master, parse_master_form>,
       .kept = kept_master},
      {.name = "memory-cap",
       .key = "plan.memory_cap",
       .group = PlannerGroup::kMemory,
       .label = "BYTES",
       .help = "most memory that a rank may need, activations included, 0: no "
               "cap; an 80 GB card has 79GiB, a 141 GB card 139GiB",
       .usual = "0",
       .is_open = true,
       .set = set_bytes<&PlanOptions::memory_cap_bytes>},
      {.name = "zero",
       .key = "zero.sizes",
       .group = PlannerGroup::kZero,
       .label = "SIZES",
       .help = "how to shard states, gradients and parameters: none, zero1, "
               "zero2, zero3, replica:Z, hier:Z, auto, or z1=..,z2=..,z3=..",
       .usual = "zero1",
       .words = {"none", "zero1", "zero2", "zero3", "auto"},
       .is_open = true,
       .names_words = true},
      {.name = "zero-experts",
       .key = "zero.experts",
       .group = PlannerGroup::kZero,
       .label = "SIZES",
       .help = "the same for experts, over their own data-parallel ranks",
       .shown_usual = "on the ranks of dense tensors",
       .words = {"none", "zero1", "zero2", "zero3", "auto"},
       .is_open = true,
       .names_words = true},
      {.name = "overlap",
       .key = "zero.overlap",
       .group = PlannerGroup::kZero,
       .label = "MODE",
       .help = "what compute waits for: everything (none); everything but the "
               "next gather (main); only what it needs (background)",
       .usual = "background",
       .words = {"none", "main", "background"},
       .names_words = true},
      {.name = "message",
       .key = "zero.message",
       .group = PlannerGroup::kZero,
       .label = "UNIT",
       .help = "what one message carries",
       .usual = "module",
       .words = {"module", "parameter"},
       .set = set_zero<&ZeroOptions::message, parse_message_unit>},
      {.name = "prefetch",
       .key = "zero.prefetch",
       .group = PlannerGroup::kZero,
       .label = "K",
       .help =
           "modules to gather ahead, or auto: as many as the memory cap allows",
       .usual = "auto",
       .words = {"auto"},
       .is_open = true,
       .names_words = true,
       .set = set_prefetch},
      {.name = "replica-sum",
       .key = "zero.replica_sum",
       .group = PlannerGroup::kZero,
       .label = "HOW",
       .help = "how gradients are summed over groups",
       .usual = "scatter",
       .words = {"scatter", "allreduce"},
       .set = set_zero<&ZeroOptions::replica_sum, parse_replica_sum>},
      {.name = "collectives",
       .key = "zero.collectives",
       .group = PlannerGroup::kCluster,
       .label = "HOW",
       .help = "how sums and gathers reach other nodes: direct, each of their "
               "ranks; node, once per node; auto, node if every group has a "
               "power of two of ranks on each node",
       .usual = "direct",
       .words = {"direct", "node", "auto"},
       .names_words = true,
       .set = set_zero<&ZeroOptions::reach, parse_reach>},
      // Training models links rather than describing them: links.model.
      {.name = "link",
       .group = PlannerGroup::kCluster,
       .label = "SPEEDS",
       .help =
           "speed of links, such as intra=400GB/s,inter=50GB/s,latency=10us",
       .shown_usual = "these, nominal",
       .is_open = true,
       .set = set_links},
      {.name = "ranks-per-node",
       .key = "links.ranks_per_node",
       .group = PlannerGroup::kCluster,
       .label = "N",
       .help = "consecutive ranks that share a node",
       .usual = cat(PlanOptions().ranks_per_node),
       .range = {{1, kMaxWorld}},
       .set = set_ranks_per_node},
  };
}

}  // namespace

std::string PlannerOption::member() const {
  std::string out = name;
  std::ranges::replace(out, '-', '_');
  return out;
}

const std::vector<PlannerOption>& planner_options() {
  static const std::vector<PlannerOption> all = make_rows();
  return all;
}

const PlannerOption& planner_option(std::string_view name) {
  const auto found =
      std::ranges::find(planner_options(), name, &PlannerOption::name);
  CANZONA_CHECK(found != planner_options().end(), "planner option ", name);
  return *found;
}

PlannerTexts::PlannerTexts() {
  for (const PlannerOption& option : planner_options()) texts_[option.name];
}

PlannerTexts PlannerTexts::defaults() {
  PlannerTexts texts;
  for (const PlannerOption& option : planner_options())
    texts[option.name] = option.usual;
  return texts;
}

const std::string& PlannerTexts::operator[](std::string_view name) const {
  const auto found = texts_.find(name);
  CANZONA_CHECK(found != texts_.end(), "planner option ", name);
  return found->second;
}

std::string& PlannerTexts::operator[](std::string_view name) {
  return const_cast<std::string&>(std::as_const(*this)[name]);
}

const std::string& PlannerTexts::or_usual(std::string_view name) const {
  const std::string& text = (*this)[name];
  return text.empty() ? planner_option(name).usual : text;
}

}  // namespace canzona::plan
