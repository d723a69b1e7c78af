// The answer of `canzona bench zero`.
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/zero_bench.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona {

// A run of all cells, and what the views need to describe it.
struct ZeroReport {
  std::string model;
  int64_t num_parameters = 0;
  std::string rule;
  PrecisionChoice precision;
  std::string strategy;
  Reach reach = Reach::kDirect;
  std::string device = "cpu";
  ZeroBenchRequest request;
  ZeroBench bench;

  // True if work on a device stands in for training; compute_text() says which
  // work.
  bool on_device() const { return request.make_engine != nullptr; }
  std::string compute_text() const;
  // True if the busy time of links is known, and the part of it during which
  // compute waited.
  bool knows_busy() const { return bench.link || !on_device(); }
  bool knows_exposed() const { return bench.link && !on_device(); }

  std::vector<const ZeroCell*> ran() const;
  int64_t num_micro_batches() const {
    return request.settings.micro_batches(request.mesh);
  }
  std::string disagreement() const {
    return bench.disagreement(request.mesh, num_micro_batches(),
                              request.settings.runtime.wire);
  }
};

// Lists warnings that readers of the figures must know.
std::vector<std::string> warnings_of(const ZeroReport& report);

std::string zero_text(const ZeroReport& report, const Ink& ink);
std::string zero_json(const ZeroReport& report);

}  // namespace canzona
