// Functions of canzona.h on plans.
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/calls.h"
#include "canzona/c/canzona.h"
#include "canzona/c/handles.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/report/storage_view.h"
#include "canzona/report/terminal.h"

namespace canzona::c {
namespace {

Handles<PlanHandle>& plan_handles() {
  // Never destroyed, because threads may still use it while the process exits.
  static auto& handles = *new Handles<PlanHandle>("plan");
  return handles;
}

void check_rank(const StoragePlan& plan, int32_t rank, const char* function) {
  if (rank < -1 || rank >= plan.world)
    throw UsageError(cat(function, ": rank ", rank, ", expected 0 to ",
                         plan.world - 1, ", or -1 for the whole plan"));
}

}  // namespace

std::shared_ptr<PlanHandle> plan_of(const canzona_plan* plan,
                                    const char* function) {
  return plan_handles().get(plan, function);
}

}  // namespace canzona::c

extern "C" {

canzona_plan* canzona_plan_new(const char* json, int64_t length) {
  return canzona::c::result_of([&] {
    using namespace canzona;
    using namespace canzona::c;
    StorageInput input =
        read_storage(text_argument(json, length, "canzona_plan_new", "json"));
    auto plan = std::make_shared<PlanHandle>(
        make_storage_plan(std::move(input.request), input.table()));
    return static_cast<canzona_plan*>(plan_handles().add(std::move(plan)));
  });
}

const char* canzona_plan_json(canzona_plan* plan) {
  return canzona::c::result_of([&] {
    return canzona::c::plan_of(plan, "canzona_plan_json")
        ->text("json", canzona::plan::storage_plan_to_json);
  });
}

const char* canzona_plan_digest(canzona_plan* plan) {
  return canzona::c::result_of([&] {
    return canzona::c::plan_of(plan, "canzona_plan_digest")
        ->plan()
        .digest.c_str();
  });
}

const char* canzona_plan_explain(canzona_plan* plan, int32_t rank) {
  return canzona::c::result_of([&] {
    using namespace canzona;
    using namespace canzona::c;
    const auto handle = plan_of(plan, "canzona_plan_explain");
    check_rank(handle->plan(), rank, "canzona_plan_explain");
    return handle->text(cat("rank ", rank), [rank](const StoragePlan& storage) {
      return rank < 0 ? print_text(storage_view(storage), Ink())
                      : print_text(explain_storage_rank(storage, rank), Ink());
    });
  });
}

const char* canzona_plan_html(canzona_plan* plan) {
  return canzona::c::result_of([&] {
    return canzona::c::plan_of(plan, "canzona_plan_html")
        ->text("html", canzona::report::storage_html);
  });
}

void canzona_plan_free(canzona_plan* plan) {
  canzona::c::status_of([&] { canzona::c::plan_handles().remove(plan); });
}

}  // extern "C"
