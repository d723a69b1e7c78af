#include "canzona/base/json_writer.h"
#include "canzona/report/runs/run_text.h"

namespace canzona {
namespace {

void write_reached(JsonWriter& out, const std::optional<Reached>& reached) {
  out.member("reached");
  if (!reached) {
    out.null();
    return;
  }
  out.begin_object()
      .field("steps", reached->steps)
      .field("tokens", reached->tokens)
      .field("seconds", reached->seconds)
      .field("steps_ratio", reached->steps_ratio)
      .field("tokens_ratio", reached->tokens_ratio)
      .field("seconds_ratio", reached->seconds_ratio)
      .end_object();
}

void write_run(JsonWriter& out, const ComparedRuns& all, size_t i) {
  const TrainingRun& run = all.runs[i];
  out.begin_object()
      .field("name", run.name)
      .field("folder", run.folder)
      .field("complete", run.state() == "finished")
      .field("state", run.has_ended() ? run.state() : "running")
      .field("rule", run.summary ? run.summary->rule : "")
      .field("mesh", run.summary ? run.summary->mesh : "")
      .field("steps", run.num_steps())
      .field("tokens", run.tokens())
      .field("seconds", run.seconds())
      .field("tokens_per_second", run.tokens_per_second())
      .field("memory_bytes", run.memory_bytes())
      .field("final_loss", run.final_loss())
      .field("eval_loss", run.eval_loss())
      .field("perplexity", perplexity_of(run.eval_loss()))
      .field("mfu", run.mfu())
      .field("skipped_steps", run.skipped_steps())
      .field("digest", run.digest())
      .field("same_as_baseline",
             !run.digest().empty() &&
                 run.digest() == all.runs[all.baseline].digest());
  write_reached(out, all.reached[i]);
  out.end_object();
}

}  // namespace

std::string runs_json(const ComparedRuns& all) {
  JsonWriter out(2);
  out.begin_object()
      .field("baseline", all.runs[all.baseline].name)
      .field("target_loss", all.target);
  out.member("runs").begin_array();
  for (size_t i = 0; i < all.runs.size(); ++i) write_run(out, all, i);
  return out.end_array().end_object().take() + "\n";
}

}  // namespace canzona
