// `canzona explain`: why this owner, what moves.
#include "canzona/report/explain.h"

#include <cstdint>
#include <memory>

#include "canzona/base/text.h"
#include "canzona/report/places.h"
#include "canzona/report/plan_view.h"
#include "cli/errors.h"
#include "cli/plan_input.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kExplainExamples =
    R"(Examples:
  canzona explain plan.json
  canzona explain plan.json --rank 17
  canzona explain plan.json --matrix layers.0.mlp.up
  canzona explain plan.json --bucket 3 --json
)";

struct ExplainFlags {
  std::string path;
  std::string rank;
  std::string matrix;
  std::string bucket;
  bool json = false;

  int selectors() const {
    return (rank.empty() ? 0 : 1) + (matrix.empty() ? 0 : 1) +
           (bucket.empty() ? 0 : 1);
  }
};

int32_t number(const std::string& text, size_t count, const char* option,
               const char* what) {
  const int64_t value = parse_integer(text, 0, INT32_MAX, option);
  check_number(value, static_cast<int64_t>(count), option, what);
  return static_cast<int32_t>(value);
}

ReportPlan read_shown(const std::string& path) {
  PlanFile file = read_plan(path);
  if (!file.violations.empty())
    throw ViolationsFound(cat("plan ", quoted(path), " is not sound"),
                          std::move(file.violations));
  ReportPlan shown;
  shown.plan = std::move(file.plan);
  shown.ranks = predict(shown.plan);
  shown.balance = measure_balance(shown.plan);
  return shown;
}

std::string explanation(const ExplainFlags& a, const ReportPlan& shown,
                        const Ink& ink) {
  const Plan& plan = shown.plan;
  if (!a.rank.empty()) {
    const int32_t rank = number(a.rank, shown.ranks.size(), "--rank", "ranks");
    return a.json ? explain_rank_json(shown, rank)
                  : explain_rank(shown, rank, ink);
  }
  if (!a.bucket.empty()) {
    const int32_t bucket =
        number(a.bucket, static_cast<size_t>(num_buckets(plan)), "--bucket",
               "buckets");
    return a.json ? explain_bucket_json(plan, bucket)
                  : explain_bucket(plan, bucket, ink);
  }
  if (!a.matrix.empty()) {
    const Found found = find_by_name(plan, a.matrix);
    return a.json ? explain_matrices_json(shown, found)
                  : explain_matrices(shown, found, ink);
  }
  return a.json ? plan_view_json(shown) : plan_text(shown, ink);
}

Outcome run(const ExplainFlags& arguments, const Output& out) {
  if (arguments.selectors() > 1)
    throw UsageError("--rank, --matrix and --bucket: at most one of them");
  out.result(explanation(arguments, read_shown(arguments.path), out.ink()));
  if (arguments.selectors() == 0)
    out.note("for more: --rank R, --matrix NAME or --bucket B");
  return Outcome::kDone;
}

}  // namespace

Verb add_explain(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "explain", "show why a matrix has its owner and what moves");
  auto arguments = std::make_shared<ExplainFlags>();
  app->add_option("PLAN", arguments->path,
                  "a file that `canzona plan -o` wrote")
      ->required();
  app->add_option(
         "--rank", arguments->rank,
         "what this rank owns, keeps and sends, and what it does in an "
         "iteration, in order")
      ->option_text("R");
  app->add_option("--matrix", arguments->matrix,
                  "why this matrix (or those of this tensor) has its owner")
      ->option_text("NAME");
  app->add_option("--bucket", arguments->bucket,
                  "which tensors lie in this bucket, and at which home")
      ->option_text("B");
  app->add_flag("--json", arguments->json,
                "print one JSON object instead of text");
  app->footer(kExplainExamples);
  return {app, [arguments](const Output& out) { return run(*arguments, out); }};
}

}  // namespace canzona::cli
