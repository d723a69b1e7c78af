// Pieces shared by the views of several benches: links, machines, warnings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/comm/thread/link_model.h"
#include "canzona/measure/collectives.h"
#include "canzona/measure/machine.h"
#include "canzona/report/document.h"

namespace canzona::report::bench {

// The precision in which a rule's products are computed, and why.
struct PrecisionChoice {
  std::string precision = {};  // "bf16"; empty: the rule has no such option
  std::string why = {};        // "auto: AMX", "--rule-option", "--precision"

  // Returns "bf16 (auto: AMX)", or "" if the rule has no such option.
  std::string text() const {
    return precision.empty() ? "" : precision + " (" + why + ")";
  }
};

// The members `precision` and `precision_why`; both are null if the rule has no
// such option.
inline Document precision_members(const PrecisionChoice& choice) {
  const bool is_known = !choice.precision.empty();
  const Value none = nullptr;
  return Document()
      .set("precision", is_known ? choice.precision : none)
      .set("precision_why", is_known ? choice.why : none);
}

// "measured here, no cost table: 31 GFLOP/s of fp32 products and …"
std::string speed_text(const MachineSpeed& speed);

// "modelled link: 10 GB/s inside a node, …"
std::string link_text(const LinkModel& link);
Document link_members(const LinkModel& link);

// Warns that the modelled link is so fast that copies distort the measurement.
// `copies`: the bytes per second that a rank copies here.
std::string too_fast_text(double copies);
// Adds a warning if more ranks than CPUs share this machine.
void warn_of_shared_cpus(int num_ranks, std::vector<std::string>& warnings);

// The answer of `canzona bench collectives`.
struct CollectivesReport {
  std::string transport;     // "thread", "mpi", "tcp" or "nccl"
  std::string library = {};  // "NCCL 2.28.9 (…)"; "": none of its own
  std::string device;        // "cpu", or the GPU's name
  int num_ranks = 1;
  int64_t bytes = 0;
  int rounds = 0;
  Collectives measured;
};

Document collectives_view(const CollectivesReport& report);

}  // namespace canzona::report::bench
