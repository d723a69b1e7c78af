#include "cli/plan_storage.h"

#include <chrono>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/option_table.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/torch_request.h"
#include "canzona/report/storage_view.h"
#include "cli/plan_input.h"

namespace canzona::cli {
namespace {

constexpr int64_t kMaxStorageFile = int64_t{1} << 29;
constexpr int64_t kMaxStorageFileValues = 30'000'000;

// True if the text says so itself, however broken it is.
bool claims_to_be_storage(const std::string& text) {
  if (text.find(kFormerFormat) == std::string::npos &&
      text.find(kMadeByCaller) == std::string::npos)
    return false;
  try {
    return is_storage_plan(
        parse_json(text, {.what = "plan",
                          .max_bytes = kMaxStorageFile,
                          .max_values = kMaxStorageFileValues}));
  } catch (const UsageError&) {
    return false;
  }
}

using Clock = std::chrono::steady_clock;

// Plans, validates, writes files and shows the plan. `where` names the request
// in errors, which do not name it themselves.
Outcome show_plan(StorageInput input, const std::string& where,
                  const PlanArguments& arguments, const Output& out,
                  Clock::time_point start = Clock::now()) {
  StoragePlan plan;
  try {
    plan = make_storage_plan(std::move(input.request), input.table());
  } catch (const UsageError& error) {
    throw UsageError(cat(where, ": ", error.what()));
  }
  std::vector<std::string> violations = validate(plan);
  if (!violations.empty())
    throw ViolationsFound("the plan fails validation", std::move(violations));
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  // Files come first, because the reader of the text may stop early.
  if (!arguments.output.empty())
    out.save(arguments.output, storage_plan_to_json(plan), "plan");
  if (!arguments.html.empty())
    out.save(arguments.html, storage_html(plan), "report");
  out.result(storage_view(plan), arguments.json);
  out.note(cat("planned and validated in ", human_seconds(seconds)));
  return Outcome::kDone;
}

// Reads the dtype of an option; fp32 if it was not given.
DType dtype_of(const std::string& text, const char* option) {
  return text.empty() ? DType::kFp32 : parse_dtype(text, option);
}

// What a user of PyTorch passes to the optimizer. A capacity that is named is
// kept strictly, as there.
StorageOptions torch_options(const PlanArguments& arguments,
                             const PlanInput& input) {
  StorageOptions options;
  options.wire = dtype_of(arguments.wire, "--wire");
  options.master = input.options.master;
  if (options.master == MasterForm::kRemainder &&
      dtype_of(arguments.dtype, "--dtype") != DType::kBf16)
    throw UsageError(
        "--master remainder: parameters in fp32 have no masters; add --dtype "
        "bf16");
  options.share_states = arguments.share_states;
  options.ranks_per_node = input.options.ranks_per_node;
  options.teams = input.options.teams;
  options.links = input.options.links;
  const std::string& capacity = arguments.planner["capacity"];
  if (capacity.empty()) return options;
  options.capacity_bytes = input.options.capacity_bytes;
  options.strict_capacity = true;
  if (options.capacity_bytes < 1)
    throw UsageError(cat("--capacity ", quoted(capacity),
                         ": expected at least one byte with --layout"));
  return options;
}

// Sums over strips cost a little, and only teams need them: as in PyTorch there
// are none where teams are off, unless somebody asks for them.
RuleGroup matrices_group(const PlanArguments& arguments,
                         const PlanInput& input) {
  RuleGroup group{std::string(input.rule->name()), input.rule->options()};
  const bool named =
      parse_rule_options(arguments.rule_options).contains("strips");
  if (const auto strips = group.options.find("strips");
      strips != group.options.end() && !named &&
      input.options.teams == kTeamsOff)
    strips->second = "1";
  return group;
}

// AdamW's weight decay is that of the matrices where the user names one.
RuleGroup elements_beside(const PlanArguments& arguments) {
  RuleGroup group{kElementRule, {}};
  const RuleOptions given = parse_rule_options(arguments.rule_options);
  const auto decay = given.find("weight_decay");
  if (decay != given.end()) group.options.insert(*decay);
  return group;
}

void refuse_planners_options(const PlanArguments& arguments) {
  const std::string other = arguments.option_beside(
      {"--layout",   "--model",          "--fused",         "--layers",
       "--scale",    "--matrix-rule",    "--adamw",         "--mesh",
       "--split",    "--dtype",          "--wire",          "--share-states",
       "--rule",     "--rule-option",    "--newton-schulz", "--phases",
       "--capacity", "--ranks-per-node", "--cost",          "--teams",
       "--link",     "--output",         "--html",          "--json",
       "--master"});
  if (!other.empty())
    throw UsageError(cat("--layout ", quoted(arguments.layout), ": ", other,
                         " cannot be combined with it: PyTorch decides where "
                         "tensors are stored, and communicates for forward and "
                         "backward"));
}

}  // namespace

Outcome plan_storage(const PlanArguments& arguments, const Output& out) {
  const std::string& path = arguments.storage;
  const std::string other = arguments.option_beside(
      {"--storage", "--cost", "--output", "--html", "--json"});
  if (!other.empty())
    throw UsageError(cat("--storage ", quoted(path), ": ", other,
                         " cannot be combined with it: the file already gives "
                         "the tensors, ranks and rules"));
  std::optional<CostTable> table;
  if (!arguments.cost.empty()) table = read_cost_table(arguments.cost);
  const Clock::time_point start = Clock::now();
  StorageInput input =
      read_storage(read_file(path, kMaxStorageFile, "given storage"), path);
  if (table && input.cost)
    throw UsageError(cat("--cost ", quoted(arguments.cost), ": ",
                         printable(path), " has a table of its own"));
  if (table) input.cost = std::move(table);
  return show_plan(std::move(input), path, arguments, out, start);
}

Outcome plan_layout(const PlanArguments& arguments, const Output& out) {
  TorchPlacement placement{.layout = parse_torch_layout(arguments.layout)};
  refuse_planners_options(arguments);
  placement.dtype = dtype_of(arguments.dtype, "--dtype");
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  placement.mesh = input.mesh;
  placement.matrices = matrices_group(arguments, input);
  placement.elements = elements_beside(arguments);
  placement.splits = input.options.splits;
  placement.options = torch_options(arguments, input);
  const Clock::time_point start = Clock::now();
  return show_plan(
      {torch_request(input.model, placement), std::move(input.cost_table)},
      cat("--layout ", arguments.layout), arguments, out, start);
}

void refuse_layout_options(const PlanArguments& arguments) {
  const char* given = !arguments.dtype.empty()  ? "--dtype"
                      : !arguments.wire.empty() ? "--wire"
                      : arguments.share_states  ? "--share-states"
                                                : nullptr;
  if (given != nullptr)
    throw UsageError(cat(given, " requires --layout, such as --layout fsdp2"));
}

std::optional<StoragePlanFile> read_storage_plan(const std::string& path) {
  const std::string text = read_file(path, int64_t{1} << 30, "plan");
  if (!claims_to_be_storage(text)) return std::nullopt;
  StoragePlanFile file;
  try {
    file.plan = storage_plan_from_json(text, path).plan;
  } catch (const UsageError& error) {
    file.violations.emplace_back(error.what());
    return file;
  }
  file.violations = validate(file.plan);
  return file;
}

}  // namespace canzona::cli
