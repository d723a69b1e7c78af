// How do the published balance sweeps come out, and what does `balanced` make
// of them? Prints the paper's cases with every strategy; nothing here is timed.
//
//   build/bench/paper [--json]
#include <cstdio>
#include <exception>

#include "bench/table.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/shapes/read_model.h"

namespace canzona::bench {
namespace {

struct Case {
  std::string model = "qwen3-32b";
  std::string mesh = "dp=32,tp=8";
  std::string rule = "muon";
  RuleOptions rule_options;
  PlanOptions options;
  bool fused = true;
};

Plan plan_case(const Case& c) {
  Model model = read_model(c.model, {.fused = c.fused});
  route(model, {});
  const auto rule = make_rule_facts(c.rule, c.rule_options);
  return make_plan({model, parse_mesh(c.mesh), *rule, c.options});
}

const std::vector<std::string> kColumns{
    "case",          "dp memory",     "dp shard fl.",   "dp cost",
    "tp worst cost", "makespan/mean", "makespan/bound", "idle"};

void add_row(Table& table, const std::string& label, const Case& c) {
  const Balance b = measure_balance(plan_case(c));
  table.add(label, {b.dp.memory_max_over_mean, b.dp.shard_flops_max_over_mean,
                    b.dp.cost_max_over_mean, b.tp_worst.cost_max_over_mean,
                    b.makespan_over_mean, b.makespan_over_bound,
                    static_cast<double>(b.idle_ranks)});
}

void add_strategies(Table& table, const std::string& label, Case c) {
  for (const char* strategy :
       {"start_offset", "contiguous", "megatron", "balanced"}) {
    c.options.strategy = strategy;
    add_row(table, cat(label, " ", strategy), c);
  }
}

void main_case(bool json) {
  Table table("Qwen3-32B, dp=32,tp=8, fused (paper: 2.46/3.24 and 1.11/1.43)",
              kColumns);
  for (const char* form : {"standard", "gram"}) {
    Case c;
    c.rule_options["newton_schulz"] = form;
    add_strategies(table, form, c);
  }
  table.print(json);
}

void alpha_sweep(bool json) {
  Table table("alpha, Qwen3-32B, pp=8,dp=16: contiguous", kColumns);
  for (int i = 0; i <= 10; ++i) {
    Case c;
    c.mesh = "pp=8,dp=16";
    c.options.strategy = "contiguous";
    c.options.alpha = i / 10.0;
    add_row(table, cat("alpha ", i / 10.0), c);
  }
  table.print(json);
}

void dp_sweep(bool json) {
  Table table("dp 16 to 128 at tp=4, Qwen3-32B", kColumns);
  for (int dp : {16, 32, 64, 128}) {
    Case c;
    c.mesh = cat("dp=", dp, ",tp=4");
    add_strategies(table, cat("dp=", dp), c);
  }
  table.print(json);
}

void tp_sweep(bool json) {
  Table table("tp 2 to 8 at pp=4,dp=4, Qwen3-32B", kColumns);
  for (int tp : {2, 4, 8}) {
    Case c;
    c.mesh = cat("pp=4,dp=4,tp=", tp);
    add_strategies(table, cat("tp=", tp), c);
  }
  table.print(json);
}

void size_sweep(bool json) {
  Table table("sizes 1.7B to 32B at dp=16,tp=4", kColumns);
  for (const char* size : {"1.7b", "4b", "8b", "14b", "32b"}) {
    Case c;
    c.model = cat("qwen3-", size);
    c.mesh = "dp=16,tp=4";
    add_strategies(table, size, c);
  }
  table.print(json);
}

void other_rules(bool json) {
  Table table("Shampoo and SOAP, Qwen3-14B, pp=2,dp=32,tp=4", kColumns);
  for (const char* rule : {"shampoo", "soap"}) {
    Case c;
    c.model = "qwen3-14b";
    c.mesh = "pp=2,dp=32,tp=4";
    c.rule = rule;
    add_strategies(table, rule, c);
  }
  table.print(json);
}

void weights(bool json) {
  Table table("what is balanced: numel, flops or cost (gram)", kColumns);
  for (const char* model : {"qwen3-32b", "qwen3-30b-a3b"}) {
    for (const char* strategy : {"contiguous", "balanced"}) {
      for (Weight weight : {Weight::kNumel, Weight::kFlops, Weight::kCost}) {
        Case c;
        c.model = model;
        c.mesh = std::string_view(model) == "qwen3-30b-a3b" ? "dp=32,tp=4"
                                                            : "dp=16,tp=8";
        c.rule_options["newton_schulz"] = "gram";
        c.options.strategy = strategy;
        c.options.weight = weight;
        add_row(table,
                cat(std::string_view(model).substr(6), " ", strategy, " ",
                    to_string(weight)),
                c);
      }
    }
  }
  table.print(json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  using namespace canzona::bench;
  try {
    const bool json = wants_json(argc, argv);
    main_case(json);
    alpha_sweep(json);
    dp_sweep(json);
    tp_sweep(json);
    size_sweep(json);
    other_rules(json);
    weights(json);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
