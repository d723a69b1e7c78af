// `canzona bench zero`: how its answer looks.
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/zero_bench.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona {

// A run of all cells, with what the views say of it.
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

  // True if the work of modules on a device stands for training;
  // compute_text() says which.
  bool on_device() const { return request.make_engine != nullptr; }
  std::string compute_text() const;
  // True if it is known how long links were busy, and how long of that compute
  // waited.
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

// Lists what a reader of the figures must know.
std::vector<std::string> warnings_of(const ZeroReport& report);

std::string zero_text(const ZeroReport& report, const Ink& ink);
std::string zero_json(const ZeroReport& report);

}  // namespace canzona
