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

// Writes what a rank does, in order, as a table: {"title": …, "rank": …,
// "columns": […], "rows": [[…], …], "left_out": 0}.
template <class Columns, class Order>
void write_order_table(JsonWriter& out, std::string_view title, int32_t rank,
                       const Columns& columns, const Order& order) {
  out.begin_object().field("title", title).field("rank", rank);
  out.member("columns").values(columns).member("rows").begin_array();
  for (const auto& row : order.rows) out.values(row);
  out.end_array().field("left_out", order.left_out).end_object();
}

// Members of the open object: sent and received bytes by link class.
void write_wire_members(JsonWriter& out, const WireBytes& wire);

// Per collective that moves anything: sent and received bytes by link class.
void write_wire(JsonWriter& out, const RankCost& rank);

}  // namespace canzona
