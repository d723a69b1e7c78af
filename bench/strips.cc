// Measures what strips cost a rank that computes a matrix alone. Both take
// turns: Muon's whole step with `strips=1`, and with other numbers of strips.
//
//   $ build/bench/strips --shapes 1024x4096,2048x8192 --rounds 7
//   muon on cpu, bf16, one matrix, 1 thread
//     shape, strips             one strip ms     strips ms         ratio  …
//     1024x4096, 2 (auto)              160.1         161.0        1.0056
//
//   --device cpu|cuda --precision P --form FORM --shapes MxN,.. --strips
//   auto|2|4|8|all
//   --batch N --rounds N --json
//
// Medians of CPU time, on a GPU of the wall until its work has ended, and the
// ratio of the least times, which other programs disturb less. `auto` leaves
// out shapes that have one strip.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/table.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"
#include "canzona/rules/rule.h"

namespace canzona::bench {
namespace {

struct StripsBench {
  std::string device = "cpu";
  std::string precision = "auto";
  std::string form = "auto";
  std::string shapes = "1024x8192,2048x8192,4096x16384";
  std::string strips = "auto";
  int64_t batch = 1;
  int64_t rounds = 7;
  bool json = false;
};

StripsBench read_arguments(int argc, char** argv) {
  StripsBench bench;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return std::string(++i < argc ? argv[i] : ""); };
    if (name == "--device")
      bench.device = value();
    else if (name == "--precision")
      bench.precision = value();
    else if (name == "--form")
      bench.form = value();
    else if (name == "--shapes")
      bench.shapes = value();
    else if (name == "--strips")
      bench.strips = value();
    else if (name == "--batch")
      bench.batch = parse_integer(value(), 1, 4096, "--batch");
    else if (name == "--rounds")
      bench.rounds = parse_integer(value(), 1, 1000, "--rounds");
    else if (name == "--json")
      bench.json = true;
    else
      throw UsageError(cat("unknown option ", quoted(name)));
  }
  return bench;
}

// Matrices of one shape, and a rule that steps them.
class Stepper {
 public:
  Stepper(const StripsBench& bench, Engine& engine, const Dims& dims,
          const std::string& strips)
      : engine_(engine),
        memory_(engine),
        rule_(make_rule("muon",
                        {{"device", bench.device},
                         {"precision", bench.precision},
                         {"newton_schulz", bench.form},
                         {"strips", strips}},
                        DType::kFp32, bench.device)),
        dims_(dims) {
    const int64_t count = num_elements(dims);
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t b = 0; b < bench.batch; ++b) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = uniform_at(static_cast<size_t>(b), i);
      states_.push_back({memory_.zeros(count)});
      shards_.push_back({.whole = dims_,
                         .count = count,
                         .grad = memory_.put(values),
                         .weights = memory_.put(values),
                         .states = states_.back()});
    }
    // The vectors have moved while they grew.
    for (size_t b = 0; b < shards_.size(); ++b) shards_[b].states = states_[b];
  }

  int strips() const {
    return rule_->facts().strips({dims_[0], dims_[1]}).strips;
  }
  void step() {
    engine_.repeat([&] {
      rule_->step_whole(engine_, {1, 1e-3}, {.dims = dims_, .shards = shards_});
    });
    engine_.synchronize();
  }

 private:
  Engine& engine_;
  EngineMemory memory_;
  std::unique_ptr<Rule> rule_;
  const Dims dims_;
  std::vector<std::vector<Run>> states_;
  std::vector<Shard> shards_;
};

// Warmed up, then in turns.
void measure(const StripsBench& bench, Engine& one_engine, Engine& engine,
             const Dims& dims, const std::string& strips, Table& table) {
  Stepper one(bench, one_engine, dims, "1");
  Stepper cut(bench, engine, dims, strips);
  if (cut.strips() == 1) return;
  const auto now = bench.device == "cpu" ? thread_cpu_seconds : wall_seconds;
  std::vector<double> with_one, with_strips;
  for (int64_t round = -1; round < bench.rounds; ++round)
    for (const bool first : {true, false}) {
      const double begin = now();
      (first ? one : cut).step();
      if (round >= 0)
        (first ? with_one : with_strips).push_back(1e3 * (now() - begin));
    }
  table.add(cat(dims[0], "x", dims[1], ", ", cut.strips(),
                strips == "auto" ? " (auto)" : ""),
            {median(with_one), median(with_strips),
             median(with_strips) / median(with_one),
             *std::ranges::min_element(with_strips) /
                 *std::ranges::min_element(with_one)});
}

void run(const StripsBench& bench) {
  const auto one = make_engine(bench.device);
  const auto cut = make_engine(bench.device);
  Table table(
      cat("muon on ", bench.device, ", ", bench.precision, ", ", bench.batch,
          " matrices, ", cut->describe()),
      {"shape, strips", "one strip ms", "strips ms", "ratio", "of least"});
  const std::vector<std::string> all{"2", "4", "8"};
  for (const std::string& shape : split_text(bench.shapes, ',')) {
    const std::vector<std::string> sides = split_text(shape, 'x');
    if (sides.size() != 2)
      throw UsageError(cat("--shapes ", quoted(shape), ": expected MxN"));
    const Dims dims{parse_integer(sides[0], 1, 1 << 20, "rows"),
                    parse_integer(sides[1], 1, 1 << 20, "columns")};
    for (const std::string& strips :
         bench.strips == "all" ? all : std::vector<std::string>{bench.strips})
      measure(bench, *one, *cut, dims, strips, table);
  }
  table.print(bench.json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_or_tell(
      [&] { canzona::bench::run(canzona::bench::read_arguments(argc, argv)); });
}
