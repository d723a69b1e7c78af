// Texts shared by the views of several benches: links, machines, warnings.
// Each write_… writes one value or the members it names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/comm/thread/link_model.h"
#include "canzona/comm/transport.h"
#include "canzona/measure/collectives.h"
#include "canzona/measure/machine.h"
#include "canzona/report/terminal.h"

namespace canzona {

// The precision in which a rule's products are computed, and why.
struct PrecisionChoice {
  std::string precision = {};  // "bf16"; empty: the rule has no such option
  std::string why = {};        // "auto: AMX", "--rule-option", "--precision"

  // Returns "bf16 (auto: AMX)", or "" if the rule has no such option.
  std::string text() const {
    return precision.empty() ? "" : precision + " (" + why + ")";
  }
};

// Writes the members `precision` and `precision_why`; both are null if the rule
// has no such option.
inline void write_precision(JsonWriter& out, const PrecisionChoice& choice) {
  out.member("precision");
  choice.precision.empty() ? out.null() : out.value(choice.precision);
  out.member("precision_why");
  choice.precision.empty() ? out.null() : out.value(choice.why);
}

// "measured here, no cost table: 31 GFLOP/s of fp32 products and …"
std::string speed_text(const MachineSpeed& speed);

// "modelled link: 10 GB/s inside a node, …"
std::string link_text(const LinkModel& link);
// Writes the members of a modelled link and leaves the object open.
void begin_link(JsonWriter& out, const LinkModel& link);

// Tells what NCCL takes of rank 0's GPU, communicator by communicator: "" if
// there are none. `largest` is what it takes of the rank of which it takes
// most.
std::string library_memory_text(const std::vector<LibraryMemory>& communicators,
                                int64_t largest);
// Writes the same as the member `nccl_memory`.
void write_library_memory(JsonWriter& out,
                          const std::vector<LibraryMemory>& communicators,
                          int64_t largest);

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
  std::string model = {};    // whose plan cuts pieces, or ""
  int num_ranks = 1;
  int64_t bytes = 0;
  int rounds = 0;
  Collectives measured;
  // The memory of rank 0, and the most of any rank; empty without NCCL.
  std::vector<LibraryMemory> library_memory = {};
  int64_t largest_library_bytes = 0;
};

std::string collectives_text(const CollectivesReport& report, const Ink& ink);
std::string collectives_json(const CollectivesReport& report);

}  // namespace canzona
