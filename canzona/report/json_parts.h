// Pieces of the JSON views that several of them share. Each writes one value.
#pragma once

#include "canzona/base/json_writer.h"
#include "canzona/report/report_plan.h"

namespace canzona {

// {"dp": 32, "cp": 1, "tp": 8, "pp": 1, "ep": 1}
void write_mesh(JsonWriter& out, const Mesh& mesh);

void write_axis(JsonWriter& out, const AxisBalance& axis);

// Members `dp`, `tp`, `tp_worst` and `all_ranks` of the object being written.
void write_balance_members(JsonWriter& out, const Balance& balance);

// {"parameters": …, …, "total": …}, bytes.
void write_memory(JsonWriter& out, const RankMemory& memory);

// Writes what is counted against the cap: {"cap_bytes": …, "gradients": "fp32",
// "activations": {"bytes": …, "tokens": …, …}, "fullest_rank": {…, "total": …}}
// of a plan that has terms.
void write_activations(JsonWriter& out, const MemoryTerms& terms);
void write_counted_memory(JsonWriter& out, const ReportPlan& shown);

// Members of the open object: sent and received bytes by link class.
void write_wire_members(JsonWriter& out, const WireBytes& wire);

// Per collective that moves anything: sent and received bytes by link class.
void write_wire(JsonWriter& out, const RankCost& rank);

}  // namespace canzona
